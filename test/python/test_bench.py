"""The benchmark's workloads are what their names say: spec, formula and PyTorch's attention agree, at sizes that are quick."""

import dataclasses
import importlib.util
import sys

import pytest
from conftest import ROOT

import attn

torch = pytest.importorskip("torch")
sys.path.insert(0, str(ROOT))
from bench import catalogue, measure, page, table  # noqa: E402
from bench.attention import Variant, attention  # noqa: E402

VARIANTS = {name: value for name, value in vars(catalogue).items() if isinstance(value, Variant)}
SIZES = dict(batch=2, heads=4, queries=300, width=16)


@pytest.mark.parametrize("name", VARIANTS)
def test_spec_formula_and_pytorch_agree(name):
    workload = attention(name, VARIANTS[name], **SIZES)
    expected = workload.formula(**workload.inputs)
    torch.testing.assert_close(attn.compile(workload.spec)(*workload.inputs.values()), expected, rtol=1e-5, atol=1e-5)
    if "sdpa" in workload.peers:
        torch.testing.assert_close(workload.peers["sdpa"]()(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["WINDOW", "CAUSAL"])
def test_flops_are_those_that_the_mask_leaves(name):
    workload = attention(name, VARIANTS[name], heads=1, queries=512, width=8)
    pairs = sum(min(m + 1, 256) for m in range(512)) if name == "WINDOW" else 512 * 513 / 2
    assert workload.flops == pytest.approx(4 * pairs * 8)


@pytest.mark.parametrize("workload", [catalogue.textbook(), catalogue.additive("additive", 1, 7, 9), catalogue.self_attention(14)])
def test_formulas_of_the_other_workloads(workload):
    found = attn.compile(workload.spec)(*workload.inputs.values())
    torch.testing.assert_close(found, workload.formula(**workload.inputs), rtol=1e-4, atol=1e-5)


class Meter:
    def measure(self):
        return measure.Limits(flops=1e12, bf16_flops=2e12, bandwidth=1e10)


def test_a_row_of_the_table():
    workload = attention("small", queries=64, heads=2, width=8)

    def broken():
        raise RuntimeError("cannot\nat all")

    peers = {"sdpa": workload.peers["sdpa"], "broken": broken}
    row = measure.measure(dataclasses.replace(workload, peers=peers, races_formula=False), threads=1, rounds=2, meter=Meter())
    attn.set_num_threads(0)
    assert set(row.seconds) == {"attn", "sdpa"} and row.best_peer() == "sdpa"
    assert row.share() == (pytest.approx(row.flops / row.median("attn") / 1e12), "FMA")
    assert table.failures([row]) == "- small: broken: cannot"
    assert table.line(row).count("|") == table.header().splitlines()[0].count("|")


def test_the_page_and_the_plot(tmp_path):
    rows = [
        measure.measure(dataclasses.replace(attention(f"N{n} full", queries=n, heads=1, width=8), peers={}, races_formula=False), 1, 2, Meter())
        for n in (64, 128)
    ]
    attn.set_num_threads(0)
    target = tmp_path / "performance.md"
    target.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n", encoding="utf-8")
    page.write(target, rows, "2")
    text = target.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "- 1 thread: 1000 GF/s of f32 multiply-adds, 2000 GF/s of bf16 dot products, 10.0 GB/s read" in text
    assert table.line(rows[0]) in text
    if importlib.util.find_spec("matplotlib"):
        page.plot(tmp_path / "plot.png", rows)
        assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
