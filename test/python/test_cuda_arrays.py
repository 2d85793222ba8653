"""Arrays on a GPU: in place, on the stream of their library, with outputs beside them.

A driver that prints its calls takes the place of a GPU (cuda_arrays.py); the tests that need a GPU are marked so.
"""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import EXAMPLES
from cuda_arrays import Array

import attn

torch = pytest.importorskip("torch")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: PyTorch finds no CUDA device")
HERE = Path(__file__).parent


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    source = HERE.parent / "Tools" / "Inputs" / "fake_cuda.c"
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(folder / "libcuda.so.1")], check=True)
    return folder


def calls(driver, case):
    """What the driver and the arrays were asked for, one line each."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(driver), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(HERE / "cuda_arrays.py"), case]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return [line.strip() for line in result.stdout.splitlines() if "load a module" not in line and "primary" not in line]


def launch(device, stream):
    return f"launch 1 blocks of 64 threads, 0 shared bytes, device {device}, stream {stream}"


def test_arrays_of_any_library(driver):
    assert calls(driver, "arrays") == [
        "asked for on stream 1",  # DLPack's name for the default stream
        "an array of (3,) on device 1",
        "asked for on stream 1",
        launch(1, "(nil)"),
        "returned an Array on device 1",
        f"asked for on stream {0x1234}",
        f"asked for on stream {0x1234}",
        launch(0, "0x1234"),
    ]


def test_tensors_of_pytorch_run_on_its_current_stream(driver):
    made = "asked for on stream None"  # PyTorch's to_dlpack makes no stream wait
    assert calls(driver, "torch") == [
        made,
        "a tensor of (3,) on device 1",
        made,
        launch(1, "0x71"),
        "returned a Tensor on device 1",
        made,
        made,
        launch(0, "0x70"),
        f"asked for on stream {0x1234}",
        f"asked for on stream {0x1234}",
        launch(0, "0x1234"),  # the thread's own again
    ]


def test_tensors_with_dlpacks_table_of_functions(driver):
    assert calls(driver, "exchange") == [
        "allocated: (3,) on a device of type 2 number 1",
        launch(1, "0x71"),
        "returned a Tensor on device 1",
    ]


@pytest.mark.skipif(has_driver(), reason="this machine has a CUDA driver")
def test_without_a_driver():
    kernel = attn.compile(EXAMPLES / "bmm.attn", target="cuda")
    x = Array(np.ones((1, 2, 3)))
    with pytest.raises(RuntimeError, match="bmm: cannot load libcuda.so.1, which kernels for CUDA need: is the driver installed?"):
        kernel(x, Array(np.ones((1, 3, 2))), out=Array(np.ones((1, 2, 2))))


def test_an_array_on_a_gpu_for_a_kernel_of_the_cpu():
    kernel = attn.compile(EXAMPLES / "bmm.attn")
    with pytest.raises(ValueError, match="x: is on a device of type 2, but must be on the CPU"):
        kernel(Array(np.ones((1, 2, 3))), np.ones((1, 3, 2), "f"))


def test_outputs_of_a_dtype_that_the_inputs_library_lacks():
    kernel = attn.compile("attention f(x: f32[N]) {\n  y[n]: bf16 = x[n]\n  return y\n}\n", target="cuda")
    with pytest.raises(TypeError, match="^arrays has no dtype bf16: give `out`$"):
        kernel(Array(np.ones(3)))


def test_a_stream_is_an_address():
    with pytest.raises(ValueError, match="stream: must be the address of a stream, or 0, but is -1"):
        attn.set_cuda_stream(-1)


def test_the_readme_lists_the_tests_that_need_a_gpu():
    marked = [
        name
        for path in HERE.glob("test_*.py")
        for name in re.findall(r"^@needs_gpu\ndef (\w+)", path.read_text(encoding="utf-8"), re.M)
    ]
    readme = (HERE.parent.parent / "README.md").read_text(encoding="utf-8")
    assert len(marked) >= 2 and all(f"`{name}`" in readme for name in marked)


@needs_gpu
def test_on_a_gpu_in_place():
    kernel = attn.compile(EXAMPLES / "causal.attn", target="cuda")
    q, k, v = (torch.randn(2, 3, 65, 32) for _ in range(3))
    out = kernel(*(each.cuda() for each in (q, k, v)))
    assert out.is_cuda
    np.testing.assert_allclose(out.cpu(), kernel.reference(q, k, v), atol=1e-5)


@needs_gpu
def test_on_a_gpu_after_what_its_stream_has_to_do():
    kernel = attn.compile("attention twice(x: f32[N]) {\n  y[n] = x[n] * 2.0\n  return y\n}\n", target="cuda")
    x = torch.zeros(1 << 20, device="cuda")
    kernel(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(10**8)
        x.fill_(3)
        y = kernel(x)
        assert (y == 6).all()
