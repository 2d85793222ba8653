"""The benchmark's workloads are what their names say: spec, formula and PyTorch's attention agree, at sizes that are quick."""

import dataclasses
import importlib.util
import itertools
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from conftest import ROOT

import attn

torch = pytest.importorskip("torch")
sys.path.insert(0, str(ROOT))
from bench import catalogue, formula, ggml, measure, others, page, table, tuned, variants  # noqa: E402
from bench.attention import attention  # noqa: E402
from bench.device import Limits  # noqa: E402
from bench.memory import most_memory  # noqa: E402
from bench.processor import Processor  # noqa: E402
from bench.training import causal_flex, training  # noqa: E402
from bench.workload import Workload  # noqa: E402

VARIANTS = {name: value for name, value in vars(variants).items() if isinstance(value, variants.Variant)}
SIZES = dict(batch=2, heads=4, queries=300, width=16)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TorchScript, which oneDNN is reached through
@pytest.mark.parametrize("name", VARIANTS)
def test_spec_formula_and_peers_agree(name):
    workload = attention(name, VARIANTS[name], **SIZES)
    assert workload.error(attn.compile(workload.spec)(*workload.inputs.values())) < 1e-5
    if VARIANTS[name].dropout:
        return  # PyTorch's bits are others
    assert workload.error(workload.formula(**workload.inputs)) < 1e-5
    for who in {"sdpa", "onednn"} & set(workload.peers):
        with torch.no_grad():
            assert workload.error(workload.peers[who](**workload.inputs)()) < 1e-4


def test_dropout_drops_in_all_formulas():
    workload = attention("dropout", variants.DROPOUT, queries=8, keys=4096)
    sdpa = workload.peers["sdpa"](**workload.inputs)
    for result in (workload.formula(**workload.inputs), sdpa()):
        assert 1e-2 < workload.error(result) < 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("who, dtype, queries", [*itertools.product(["onednn", "ggml"], ["f32", "bf16"], [1, 300]), ("iree", "f32", 300)])
def test_other_libraries_agree(who, dtype, queries):
    if who == "onednn" and dtype == "bf16" and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("oneDNN needs AVX-512 for bf16")
    groups = 6 if who == "iree" else 3
    workload = attention(who, batch=2, heads=6, groups=groups, queries=queries, keys=600, width=32, dtype=dtype)
    try:
        with torch.no_grad():
            result = workload.peers[who](**workload.inputs)()
    except ImportError as reason:
        pytest.skip(str(reason))
    result = torch.from_numpy(result.to_host()).view(2, 6, queries, 32) if who == "iree" else result
    assert workload.error(result) < (1e-5 if dtype == "f32" else 4e-2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_onednn_takes_an_attention_as_a_whole_or_not_at_all(monkeypatch):
    monkeypatch.setattr(torch.jit, "enable_onednn_fusion", lambda enabled: None)
    with torch.no_grad(), pytest.raises(RuntimeError, match="^oneDNN does not take the softmax and both products as one part$"):
        workload = attention("split", queries=8, keys=8)
        workload.peers["onednn"](**workload.inputs)


def test_ggml_that_is_missing_or_of_another_processor(monkeypatch, tmp_path):
    library = ggml.library.__wrapped__
    monkeypatch.setattr(ggml, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="^libggml-python is not installed"):
        library()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libggml-cpu.so").touch()
    monkeypatch.setattr(ggml, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    monkeypatch.setattr(ggml.ctypes, "CDLL", lambda path: Mock(ggml_cpu_has_avx512=Mock(return_value=0)))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    with pytest.raises(ImportError, match="^libggml-python was compiled without AVX-512"):
        library()


def test_a_graph_that_ggml_cannot_compute():
    graph = object.__new__(ggml.Attention)
    graph.ggml, graph.backend, graph.graph = Mock(ggml_backend_graph_compute=Mock(return_value=1)), None, None
    with pytest.raises(RuntimeError, match="^ggml could not compute its graph$"):
        graph()


@pytest.mark.parametrize("dtype, tolerance", [("f32", 1e-5), ("bf16", 1e-2)])
def test_pages_and_no_pages_agree(dtype, tolerance):
    workload = others.paged(dtype, tokens=64)
    kernel = attn.compile(workload.spec, dtype=None if dtype == "f32" else dtype)
    assert workload.error(kernel(*workload.inputs.values())) < tolerance
    without = workload.peers["attn without pages"](**workload.inputs)()
    assert workload.error(without[:, :, 0]) < tolerance


def test_a_large_attention_is_checked_in_part(monkeypatch):
    monkeypatch.setattr(formula, "WHOLE_SCORES", 0)
    workload = attention("ragged", variants.RAGGED, **SIZES | {"batch": 3})
    result = attn.compile(workload.spec)(*workload.inputs.values())
    assert workload.checked(result).shape == (2, 4, formula.CHECKED_QUERIES, 16)
    assert workload.error(result) < 1e-5
    result[-1, 0, -1, 0] += 100
    assert workload.error(result) > 1


def test_every_name_and_dtype_is_one_workload():
    names = [(group, each.name, each.dtype) for group, workloads in catalogue.GROUPS.items() for each in workloads()]
    assert len(set(names)) == len(names)


def test_memory_is_what_a_kernel_keeps_between_its_statements():
    kernel = attn.compile("""attention twice(x: f32[N, D], w: f32[D, D]) {
  y[n, d] = sum[j](x[n, j] * w[j, d])
  z[n, d] = sum[j](y[n, j] * w[j, d])
  return z
}
""")
    x, w, z = torch.randn(3000, 256), torch.randn(256, 256) / 16, torch.empty(3000, 256)
    assert x.nbytes <= most_memory(kernel, [x, w, z], threads=1) < 2 * x.nbytes
    torch.testing.assert_close(z, x @ w @ w, rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError, match="w: dimension 0 .D. is 255"):
        most_memory(kernel, [x, w[1:], z], threads=1)


@pytest.mark.parametrize("name", ["WINDOW", "CAUSAL"])
def test_flops_are_those_that_the_mask_leaves(name):
    workload = attention(name, VARIANTS[name], heads=1, queries=512, width=8)
    pairs = sum(min(m + 1, 256) for m in range(512)) if name == "WINDOW" else 512 * 513 / 2
    assert workload.flops == pytest.approx(4 * pairs * 8)


@pytest.mark.parametrize("workload", [others.textbook(), others.additive("additive", 1, 7, 9), others.self_attention(14),
    others.rotary("rotary", 17, 17), others.rotary("rotary", 1, 17), others.pair_bias(9)])
def test_formulas_of_the_other_workloads(workload):
    found = attn.compile(workload.spec)(*workload.inputs.values())
    torch.testing.assert_close(found, workload.formula(**workload.inputs), rtol=1e-4, atol=1e-5)


STEPS = {
    "plain": training(catalogue.heads("plain", variants.PLAIN, **SIZES), "qkv", ["sdpa"]),
    "causal": training(catalogue.heads("causal", variants.CAUSAL, **SIZES), "qkv", ["sdpa"]),
    "flex": training(catalogue.heads("flex", variants.CAUSAL, **SIZES), "qkv", run=causal_flex),
    "slopes": training(catalogue.heads("slopes", variants.ALIBI, **SIZES), [*"qkv", "slope"]),
    "grouped": training(attention("grouped", variants.CAUSAL, **SIZES, groups=2), "qkv", ["sdpa"]),
    "additive": training(others.additive("additive", 2, 3, 9), ["hq", "hk", "wv", "v"]),
}


@pytest.mark.parametrize("name", STEPS)
def test_everybodys_steps_of_training_agree(name):
    workload = STEPS[name]
    assert len(workload.ours(**workload.inputs)()) == 1 + len(workload.gradients)
    assert set(workload.peers) == {"eager", "torch.compile"} | ({"sdpa"} if name in ("plain", "causal", "grouped") else set())
    with torch.no_grad():  # as `measure` calls them
        for prepare in (workload.ours, *(each for who, each in workload.peers.items() if who != "torch.compile")):
            assert workload.error(prepare(**workload.inputs)()) < 1e-5


def test_a_wrong_gradient_is_an_error():
    workload = STEPS["slopes"]
    results = workload.ours(**workload.inputs)()
    results[-1][1] += 1e-2 * results[-1].abs().max()
    assert workload.error(results) > 5e-3


def test_a_row_of_training():
    row = measure.measure(dataclasses.replace(STEPS["causal"], peers={}), Machine(threads=1), rounds=2)
    attn.set_num_threads(0)
    assert row.name == "training, causal" and row.error < 1e-5
    # All scores, which the backward kernel does not store, would take 2.9 MB.
    assert 0 < row.memory < 8e6


def test_slow_peers_run_in_few_rounds():
    seconds = {"attn": [1.0, 1.0, 1.0], "fast": [9.0, 9.0, 9.0], "slow": [11.0, 11.0, 11.0], "unknown": [11.0, 11.0]}
    assert [who for who in seconds if measure.is_slow(seconds, who)] == ["slow"]


class Machine(Processor):
    def limits(self):
        return Limits(flops=1e12, bf16_flops=2e12, bandwidth=1e10)


def test_a_row_of_the_table():
    workload = attention("small", queries=64, heads=2, width=8)

    def broken(**inputs):
        raise RuntimeError("cannot\nat all")

    peers = {"sdpa": workload.peers["sdpa"], "broken": broken}
    row = measure.measure(dataclasses.replace(workload, peers=peers, races_formula=False), Machine(threads=1), rounds=2)
    attn.set_num_threads(0)
    assert set(row.seconds) == {"attn", "sdpa"} and row.best_peer() == "sdpa"
    assert row.share() == (pytest.approx(row.flops / row.median("attn") / 1e12), "flops")
    assert row.memory > 0 and f"{row.memory / 1e6:.2f} MB" in table.line(table.PROCESSOR, row)
    assert table.failures([row]) == "- small: broken: cannot"
    assert table.line(table.PROCESSOR, row).count("|") == table.header(table.PROCESSOR).splitlines()[0].count("|")


def projection(**inputs: torch.Tensor) -> Workload:
    scale = "scale * " if "scale" in inputs else ""
    spec = f"""attention project(x: f32[N, D], w: f32[D, E]{", scale: f32" if scale else ""}) {{
  y[n, e] = {scale}sum[d](x[n, d] * w[d, e])
  return y
}}
"""
    return Workload("projection", spec, lambda: others.normal(x=(65, 7), w=(7, 63)) | inputs, lambda x, w, scale=1: scale * (x @ w))


def test_a_tuned_plan_is_a_peer():
    workload = tuned.tuned(projection())
    assert workload.error(workload.peers[tuned.PEER](**workload.inputs)()) < 1e-5
    row = measure.measure(workload, Machine(threads=1), rounds=2)
    attn.set_num_threads(0)
    assert row.best_peer() == tuned.PEER and not row.failures
    assert table.line(table.PLANS, row).count("|") == table.header(table.PLANS).splitlines()[0].count("|")


def test_what_cannot_be_tuned_says_why():
    row = measure.measure(tuned.tuned(projection(scale=torch.tensor(2.0))), Machine(threads=1), rounds=2)
    attn.set_num_threads(0)
    assert row.failures == {tuned.PEER: "attnc: error: the shape lacks a value of the scalar scale: give it scale=INT"}


def test_a_limit_that_was_disturbed_changes_no_share():
    workload = dataclasses.replace(attention("N64 full", queries=64, heads=1, width=8), peers={}, races_formula=False)
    row = measure.measure(workload, Machine(1), 2)
    attn.set_num_threads(0)
    disturbed = dataclasses.replace(row, limits={name: value / 3 for name, value in row.limits.items()})
    of_more_threads = dataclasses.replace(row, threads=2, limits={name: value * 2 for name, value in row.limits.items()})
    rows = page.of_median_limits([row, disturbed, row, of_more_threads])
    assert [each.share() for each in rows[:3]] == [row.share()] * 3
    assert rows[3].share() == of_more_threads.share()


def test_the_page_and_the_plot(tmp_path):
    rows = [
        measure.measure(dataclasses.replace(attention(f"N{n} full", queries=n, heads=1, width=8), peers={}, races_formula=False), Machine(1), 2)
        for n in (64, 128)
    ]
    attn.set_num_threads(0)
    target = tmp_path / "performance.md"
    target.write_text("before\n{}\nold\n{}\nafter\n".format(*page.CPU), encoding="utf-8")
    page.write(target, page.CPU, page.section("a machine", page.limits(rows), table.PROCESSOR, rows))
    text = target.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "- 1 thread: 1000 GF/s of f32 multiply-adds, 2000 GF/s of bf16 dot products, 10.0 GB/s read" in text
    assert table.line(table.PROCESSOR, rows[0]) in text
    if importlib.util.find_spec("matplotlib"):
        page.plot(tmp_path / "plot.png", rows)
        assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
