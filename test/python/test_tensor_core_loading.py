"""Kernels for tensor cores in this process and in objects: NVRTC compiles them, and a driver that runs their text on the CPU
takes the place of a GPU (test/Tools/Inputs/fake_cuda.c). Nothing here has run on one. test/Tools/tensor-cores.test is the same
for C programs.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from emulated import Library, emit
from tensor_core_cases import FEATURES, LAYER, arguments_of_layer, statements_of_layer
from test_tensor_cores import DTYPES, TOLERANCE, empty_like, error_of, expected, text_of

import attn
from attn import nvrtc

nvrtc.locate()
HERE = Path(__file__).parent
WIDTHS = (48, 40)
SIZES = dict(B=1, H=2, M=70, N=90, D=WIDTHS[0], E=WIDTHS[1])
# Parameters of every kind: none, numbers of integers, floats and 64 bits, tables of integers and bools, several outputs.
CASES = [("causal", "bf16"), ("window", "f16"), ("softcap", "bf16"), ("padding", "f16"), ("dropout", "f16"), ("ragged", "bf16"), ("grouped", "f16")]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: PyTorch finds no CUDA device")
needs_nvrtc = pytest.mark.skipif("ATTN_NVRTC" not in os.environ, reason="needs NVRTC: pip install nvidia-cuda-nvrtc")


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """The folder of a driver, and of the kernels that its devices run."""
    folder = tmp_path_factory.mktemp("driver")
    source = HERE.parent / "Tools" / "Inputs" / "fake_cuda.c"
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", folder / "libcuda.so.1", "-ldl"], check=True)
    Library(folder, "kernels", [text_of(feature, dtype, WIDTHS) for feature, dtype in CASES])
    return folder


def run(driver, calls, **environment):
    """The outputs of calls, and the lines that the driver printed."""
    torch.save(calls, driver / "calls.pt")
    environment = os.environ | {"FAKE_CUDA_KERNELS": str(driver / "kernels.so")} | environment | {
        "LD_LIBRARY_PATH": str(driver),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), *sys.path])),
    }
    command = [sys.executable, HERE / "tensor_core_calls.py", driver / "calls.pt"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return torch.load(driver / "calls.pt"), [line.strip() for line in done.stdout.splitlines()]


def case(feature, dtype, changed):
    """The source, the arguments and what they give."""
    source = FEATURES[feature].spec(f"{feature}_{dtype}_{WIDTHS[0]}_{WIDTHS[1]}", dtype)
    arguments = FEATURES[feature].arguments(FEATURES[feature].sizes_of(SIZES | changed), DTYPES[dtype])
    return source, arguments, expected(attn.compile(source), arguments)


@needs_nvrtc
def test_in_this_process(driver):
    torch.manual_seed(25)
    cases = [(feature, dtype, {}) for feature, dtype in CASES] + [(*CASES[0], dict(N=0))]
    made = [case(*each) for each in cases]
    options = dict(target="cuda-sm_80,sm_90a", sizes=dict(D=WIDTHS[0], E=WIDTHS[1]))
    calls = [(source, options, arguments, empty_like(reference)) for source, arguments, reference in made]
    results, lines = run(driver, calls, FAKE_CUDA_CAPABILITY="90")
    launches = [line for line in lines if line.startswith("launch")]
    # That without keys is the first one's kernel.
    assert len(launches) == len(cases) == lines.count("load a module with 0 options: a cubin for sm_90") + 1
    assert launches[0].startswith("launch 2 blocks of 128 threads, 49216 shared bytes, device 0, stream (nil)")
    for (feature, dtype, changed), found, (*_, reference) in zip(cases, results, made):
        error = max(error_of(*pair) for pair in zip(found, reference))
        assert error <= TOLERANCE[dtype], f"{feature}, {dtype}, {changed}: {error}"


@needs_nvrtc
def test_keys_in_parts(driver):
    """One query of two heads a group, in the tiling for few rows: 6 blocks on 16 multiprocessors, with 10 tiles of keys of which
    each part has at least 2. What the parts leave of 12 rows is merged, a row a block."""
    torch.manual_seed(29)
    source, arguments, reference = case("grouped", "f16", dict(B=3, H=4, M=1, N=601))
    call = (source, dict(target="cuda-sm_80", sizes=dict(D=WIDTHS[0], E=WIDTHS[1])), arguments, empty_like(reference))
    (results,), lines = run(driver, [call], FAKE_CUDA_MULTIPROCESSORS="16")
    launches = [line.split(",")[0] for line in lines if line.startswith("launch")]
    assert launches == ["launch 30 blocks of 32 threads", "launch 12 blocks of 64 threads"]
    assert max(error_of(*pair) for pair in zip(results, reference)) <= TOLERANCE["f16"]


@needs_nvrtc
def test_statements_around_the_attention(driver, tmp_path):
    """Halide's kernels compute what the attention reads, in memory of the device, and what reads it. Here they run nothing:
    their memory has the right numbers from the beginning."""
    torch.manual_seed(32)
    options = dict(target="cuda-sm_80", sizes=dict(D=40, E=32))
    Library(tmp_path, "kernels", [emit(LAYER, "--set=D=40", "--set=E=32")])
    arguments = arguments_of_layer(dict(B=2, H=4, G=2, M=9, N=75, C=24, D=40, E=32))
    for number, value in enumerate(statements_of_layer(arguments).values()):
        value.contiguous().reshape(-1).view(torch.uint8).numpy().tofile(tmp_path / str(number))
    out, lse = expected(attn.compile(LAYER), arguments)
    call = (LAYER, options, arguments, [torch.zeros_like(out), torch.full_like(lse, torch.nan)])
    environment = dict(FAKE_CUDA_MEMORY=str(tmp_path), FAKE_CUDA_KERNELS=str(tmp_path / "kernels.so"))
    ((_, found),), lines = run(driver, [call], **environment)
    assert error_of(found, lse) <= 1e-4
    # Five statements, the attention with its output, and a statement that reads it.
    work = [re.sub(r" \d+ blocks.*", "", line) for line in lines if line.startswith(("allocate", "launch", "attribute"))]
    of_halide = ["allocate", "launch"]
    assert work == of_halide * 5 + ["allocate", "launch"] + ["launch"], lines


@needs_nvrtc
def test_a_later_process_needs_no_nvrtc(driver, tmp_path):
    source, arguments, reference = case(*CASES[0], {})
    call = (source, dict(target="cuda-sm_80", sizes=dict(D=WIDTHS[0], E=WIDTHS[1])), arguments, empty_like(reference))
    for place in (os.environ["ATTN_NVRTC"], "/nowhere/libnvrtc.so.13"):
        (results,), _ = run(driver, [call], ATTN_CACHE_DIR=str(tmp_path), ATTN_NVRTC=place)
        assert max(error_of(*pair) for pair in zip(results, reference)) <= TOLERANCE[CASES[0][1]]


@needs_gpu
def test_on_a_gpu():
    torch.manual_seed(26)
    for feature, dtype in CASES:
        source, arguments, reference = case(feature, dtype, {})
        given = {name: value.cuda() if isinstance(value, torch.Tensor) and value.dim() else value for name, value in arguments.items()}
        found = attn.compile(source, target="cuda-sm_80,sm_90a", sizes=dict(D=WIDTHS[0], E=WIDTHS[1]))(**given)
        for one, other in zip(found if isinstance(found, tuple) else (found,), reference):
            assert error_of(one.cpu(), other) <= TOLERANCE[dtype], (feature, dtype)


@needs_nvrtc
def test_subscripts_are_checked_by_halides_kernels(driver):
    """A checking kernel runs first; it is Halide's, and here finds 0 in memory that nobody wrote."""
    feature, dtype = CASES[0]
    source = FEATURES[feature].spec("checked", dtype).replace("sqrt(D)", "sqrt(D) * scale[which[b]]")
    source = source.replace(f"v: {dtype}[B, H, N, E]", f"v: {dtype}[B, H, N, E], which: i32[B], scale: f32[S]")
    arguments = FEATURES[feature].arguments(SIZES, DTYPES[dtype])
    arguments |= {"which": torch.zeros(SIZES["B"], dtype=torch.int32), "scale": torch.ones(3)}
    outputs = empty_like(expected(attn.compile(source), arguments))
    options = dict(target="cuda-sm_80", sizes=dict(D=WIDTHS[0], E=WIDTHS[1]), check_bounds=True)
    _, lines = run(driver, [(source, options, arguments, outputs)])
    modules = [line for line in lines if line.startswith("load a module")]
    assert modules[-1].endswith("a cubin for sm_80") and all(line.endswith(": sm_80") for line in modules[:-1])
    assert len(modules) > 1


def test_nvrtc_that_is_not_there(monkeypatch):
    monkeypatch.setenv("ATTN_NVRTC", "/nowhere/libnvrtc.so.13")
    feature, dtype = CASES[0]
    with pytest.raises(attn.CompileError, match="ATTN_NVRTC names no library that can be loaded.*: /nowhere/libnvrtc.so.13"):
        attn.compile(FEATURES[feature].spec("missing", dtype), target="cuda-sm_80", lazy=False)


def test_where_nvrtc_is_found(monkeypatch, tmp_path):
    library = tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delenv("ATTN_NVRTC", raising=False)
    nvrtc.locate()
    assert os.environ["ATTN_NVRTC"] == str(library)
    monkeypatch.setenv("ATTN_NVRTC", "mine")
    nvrtc.locate()
    assert os.environ["ATTN_NVRTC"] == "mine"


def test_arguments_that_no_launch_takes():
    names = [f"x{number}" for number in range(100)]
    parameters = "".join(f", {name}: f32[B, H, 1, 1]" for name in names)
    feature = FEATURES["plain"].spec("many", "bf16").replace("v: bf16[B, H, N, E]", f"v: bf16[B, H, N, E]{parameters}")
    source = feature.replace("sqrt(D)", "sqrt(D)" + "".join(f" + {name}[b, h, 0, 0]" for name in names))
    text = emit(source)
    reason = "the Halide GPU plan is used: a launch would be given 4232 bytes of arguments, but takes at most 4096\n"
    assert text.endswith(reason), text[-200:]
