"""The benchmark's table of a GPU, where there is none: its rows, its arithmetic, and who is in them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch")
sys.path.insert(0, str(ROOT))
from bench import catalogue, gpu, measure, page, table, variants  # noqa: E402
from bench.attention import attention  # noqa: E402
from bench.pytorch import sdpa_by  # noqa: E402

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: PyTorch finds no CUDA device")
HERE = Path(__file__).parent
PYTHONPATH = os.pathsep.join(filter(None, [str(HERE), *sys.path]))
WORKLOADS = list(catalogue.gpu())
LIMITS = dict(flops=50e12, bf16_flops=800e12, f16_flops=400e12, bandwidth=3e12)


def run(*command, **environment):
    environment = os.environ | {"PYTHONPATH": PYTHONPATH} | environment
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def test_without_a_gpu_rows_are_empty(tmp_path):
    target = tmp_path / "performance.md"
    target.write_text("before\n{}\nold\n{}\nafter\n".format(*page.GPU), encoding="utf-8")
    printed = run("-m", "bench", "gpu", "--page", str(target), CUDA_VISIBLE_DEVICES="")
    written = target.read_text(encoding="utf-8")
    for text in (printed, written):
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        assert rows[0] == table.header(table.GPU).splitlines()[0]
        assert [row.replace(" ", "") for row in rows[1:]] == [
            f"|{each.name}|{each.dtype}|".replace(" ", "") + "|" * len(table.GPU) for each in WORKLOADS
        ]
        assert text.count("Nothing was measured: PyTorch") == 1
    assert written.startswith("before\n") and written.endswith("\nafter\n") and "old" not in written


def row(workload, seconds, memory=0):
    return measure.Row(
        workload.name, workload.dtype, None, seconds, 1.5e-3, memory, LIMITS, workload.flops, workload.read_bytes
    )  # fmt: skip


def test_the_cells_of_invented_times():
    workload = attention("H2", heads=2, queries=1000, width=50, dtype="f16")
    assert workload.flops == 4e8
    times = {"attn": [3e-6, 2e-6, 1e-6], "sdpa math": [9e-6] * 3, "sdpa flash": [1e-6, 3e-6, 1e-6]}
    line = table.line(table.GPU, row(workload, times, memory=1_500_000))
    assert line == "| H2 | f16 | 2 µs | 50% | sdpa flash | 1 µs | 0.50 | 200.0 | 0.50 tensor cores | 1.5e-03 | 1.50 MB |"


@pytest.mark.parametrize("dtype, share", [("f32", "0.80 FMA"), ("f16", "0.10 tensor cores"), ("bf16", "0.05 tensor cores")])
def test_the_limit_is_that_of_the_dtype(dtype, share):
    workload = attention("H2", heads=2, queries=1000, width=50, dtype=dtype)
    assert f"| 40.0 | {share} |" in table.line(table.GPU, row(workload, {"attn": [1e-5] * 2}))


def test_decoding_is_held_to_the_bandwidth():
    workload = attention("decode", heads=8, groups=2, queries=1, keys=9375, width=64, dtype="bf16")
    line = table.line(table.GPU, row(workload, {"attn": [2e-6] * 2}))
    assert line == "| decode | bf16 | 2 µs | 0% | none |  |  |  | 0.80 read | 1.5e-03 | 0.00 MB |"


def test_the_limits_of_a_page():
    workload = attention("H2", heads=2, queries=10, width=50)
    text = page.gpu_limits([row(workload, {}), row(workload, {})])
    assert text == "- products of matrices: 50.0 TF/s in f32, 400 in f16, 800 in bf16; 3.00 TB/s moved"


def test_tensor_cores_take_all_rows_of_16_bits():
    from emulated import emit

    for workload in WORKLOADS:
        if workload.dtype != "f32":
            sizes = [option for name, size in workload.constants.items() for option in ("--set", f"{name}={size}")]
            assert "not on tensor cores" not in emit(workload.spec, f"--dtype={workload.dtype}", *sizes), workload.name


def test_each_of_pytorchs_implementations_runs_alone():
    workload = attention("plain", variants.CAUSAL, batch=2, heads=4, queries=300, width=16)
    for implementation in ("math", "flash"):  # those that CPUs have
        assert workload.error(sdpa_by(implementation, variants.CAUSAL, **workload.inputs)()) < 1e-5
    with pytest.raises(RuntimeError, match="No viable backend"):
        sdpa_by("cudnn", variants.CAUSAL, **workload.inputs)()
    assert torch.backends.cuda.math_sdp_enabled() and torch.backends.cuda.flash_sdp_enabled()


def test_16_bits_have_their_variants_tensors_in_16_bits():
    inputs = attention("ALiBi", variants.ALIBI, queries=8, dtype="f16").inputs
    assert {each.dtype for each in inputs.values()} == {torch.float16}


MEMORY = """
import attn, numpy
from cuda_arrays import Array
from bench.memory import most_device_memory, most_memory

source = "attention twice(x: f32[N, D], w: f32[D, D]) {\\n  y[n, d] = sum[j](x[n, j] * w[j, d])\\n  z[n, d] = sum[j](y[n, j] * w[j, d])\\n  return z\\n}"
x, w = numpy.ones((300, 64)), numpy.ones((64, 64))
kernel = attn.compile(source, target="cuda")
print("most:", most_device_memory(kernel, [Array(x), Array(w), Array(x)]))
print("host:", most_memory(kernel, [Array(x), Array(w), Array(x)], threads=1))
"""


def test_memory_of_the_device_is_counted(tmp_path):
    """By a driver that prints its calls: what lies between two statements is there, and nothing else."""
    source = ROOT / "test" / "Tools" / "Inputs" / "fake_cuda.c"
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-ldl", "-o", str(tmp_path / "libcuda.so.1")], check=True)
    printed = run("-c", MEMORY, LD_LIBRARY_PATH=str(tmp_path))
    most, host = (int(printed.split(f"{what}: ")[1].split()[0]) for what in ("most", "host"))
    stored = 300 * 64 * 4
    assert host < stored <= most < 1.1 * stored  # Halide's runtime rounds it up


@needs_gpu
def test_a_row_of_a_gpu():
    for dtype, tolerance in {"f32": 1e-5, "f16": 3e-3, "bf16": 2e-2}.items():
        workload = catalogue.on_gpu("causal", variants.CAUSAL, queries=300, width=64, dtype=dtype)
        measured = measure.measure(workload, gpu.Gpu(), rounds=2)
        assert measured.error < tolerance
        assert {"attn", "sdpa math", "flex"} <= set(measured.seconds), measured.failures
        assert 0 < measured.share()[0] < 1
