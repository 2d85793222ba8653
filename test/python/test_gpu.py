"""Every file of examples/ on a GPU's plans: run as OpenCL by PoCL on the CPU, and assembled as PTX.

Nothing here needs a GPU, and nothing here has run on one.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import EXAMPLES
from gallery_cases import CASES
from test_check_bounds import compile_paged, outside, paged, with_page
from test_gallery import NAMES, TOLERANCE, draw

import attn


def missing_opencl():
    """Why kernels for OpenCL cannot run here; empty where they can."""
    try:
        library = ctypes.CDLL("libOpenCL.so.1")
    except OSError as error:
        return f"OpenCL cannot be loaded: {error}"
    count = ctypes.c_uint()
    if library.clGetPlatformIDs(0, None, ctypes.byref(count)) or not count.value:
        return "OpenCL has no platform: install pocl-opencl-icd"
    return ""


needs_opencl = pytest.mark.skipif(bool(missing_opencl()), reason=missing_opencl())
PTXAS = shutil.which("ptxas")


def compile_for(target, name, dtype=None, plan=None):
    return attn.compile(EXAMPLES / f"{name}.attn", kernel=name, target=target, dtype=dtype, sizes=CASES[name].fixed, plan=plan)


def numbers(results):
    results = results if isinstance(results, tuple) else (results,)
    return [np.asarray(array.double() if hasattr(array, "double") else array, np.float64) for array in results]


def assert_equal(kernel, found, expected, tolerance):
    """Relative to the largest number of each row; NaN and infinities in the same places."""
    for info, result, reference in zip(kernel.outputs, numbers(found), numbers(expected)):
        assert np.array_equal(np.isnan(result), np.isnan(reference)), info.name
        finite = np.isfinite(reference)
        assert np.array_equal(result[~finite], reference[~finite], equal_nan=True), info.name
        result, reference = (np.atleast_1d(np.where(finite, values, 0)) for values in (result, reference))
        scale = np.abs(reference).max(axis=-1, keepdims=True, initial=0) + np.abs(reference).sum() / max(reference.size, 1) + 1e-30
        error = np.abs(result - reference) / scale
        assert error.max(initial=0) <= tolerance, f"{info.name}: {error.max()}"


@needs_opencl
@pytest.mark.parametrize("name", NAMES)
def test_runs_as_opencl(name):
    kernel = compile_for("opencl", name, "f32")
    for number in (0, 1):
        arguments, _ = draw(name, kernel, number)
        tolerance = TOLERANCE["f32"] * CASES[name].worse
        assert_equal(kernel, kernel(**arguments), kernel.reference(**arguments), tolerance)


def backward_arguments(forward, backward, arguments, random):
    """What a backward kernel reads: inputs, what the forward kernel gives, and gradients of the outputs."""
    saved = forward(**arguments)
    saved = saved if isinstance(saved, tuple) else (saved,)
    known = {**arguments, **{info.name: np.asarray(array) for info, array in zip(forward.outputs, saved)}}
    for info in backward.inputs:
        if info.name not in known:
            known[info.name] = random.standard_normal(known[info.name.removeprefix("grad_")].shape).astype("f")
    return {info.name: known[info.name] for info in backward.inputs}


#: Where a tensor would be as large as all pairs there is a block of it: in all but the first.
WITH_GRADIENTS = ["causal", "alibi", "relative_keys", "dropout", "t5_bias", "talking_heads"]


@needs_opencl
@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients(name):
    random = np.random.default_rng(3)
    kernels = [attn.compile(EXAMPLES / f"{name}.attn", target=target).grad() for target in ("host", "opencl")]
    arguments, _ = draw(name, attn.compile(EXAMPLES / f"{name}.attn"), 1)
    given = backward_arguments(*kernels[0], arguments, random)
    assert_equal(kernels[1][1], kernels[1][1](**given), kernels[0][1](**given), 3 * TOLERANCE["f32"])


LEARNED = """
attention learned(q: f32[B, H, M, D], k: f32[B, H, N, D], v: f32[B, H, N, E], slope: f32[H]) {
  score[b, h, m, n]  = sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D) + slope[h] * (n - m)
  weight[b, h, m, n] = softmax[n](score[b, h, m, n] where n <= m + N - M)
  out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h, n, e])
  return out
}
"""


@pytest.fixture(scope="module")
def learned():
    return [attn.compile(LEARNED, target=target).grad() for target in ("host", "opencl")]


@needs_opencl
@pytest.mark.parametrize(
    "sizes", [(2, 2, 2100, 2101), (2, 3, 37, 65), (2, 2, 0, 5), (2, 2, 5, 0), (0, 2, 5, 5), (2, 0, 5, 5)], ids=str
)
def test_gradients_block_by_block(learned, sizes):
    """Three blocks of pairs; one; and none, where gradients of what there is are 0."""
    b, h, m, n = sizes
    random = np.random.default_rng(sum(sizes))
    shapes = {"q": (b, h, m, 4), "k": (b, h, n, 4), "v": (b, h, n, 3), "slope": (h,)}
    arguments = {name: random.standard_normal(shape).astype("f") for name, shape in shapes.items()}
    arguments["slope"] *= np.float32(0.01)  # scores stay small where keys are far
    (forward, backward), (_, on_device) = learned
    given = backward_arguments(forward, backward, arguments, random)
    assert_equal(on_device, on_device(**given), backward(**given), 3 * TOLERANCE["f32"])


BOTH = """
attention both(q: f32[M, D], k: f32[N, D]) {
  weight[m, n]  = softmax[n](sum[d](q[m, d] * k[n, d]))
  out[m, e: D]  = sum[n](weight[m, n] * k[n, e])
  twice[n, d]   = 2 * k[n, d]
  return out, twice
}
"""


@needs_opencl
def test_an_output_without_elements_beside_one_that_has_some():
    out, twice = attn.compile(BOTH, target="opencl")(np.zeros((0, 3), "f"), np.ones((5, 3), "f"))
    assert np.asarray(out).shape == (0, 3) and (np.asarray(twice) == 2).all()


@needs_opencl
@pytest.mark.parametrize("name", ["scaled_dot", "mha", "bmm", "dropout", "grouped_query", "gated_pooling"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_runs_in_narrow_types(name, dtype):
    kernel = compile_for("opencl", name, dtype)
    arguments, _ = draw(name, kernel, 1, dtype)
    assert_equal(kernel, kernel(**arguments), kernel.reference(**arguments), 2 * TOLERANCE[dtype])


MASKS = {
    "all": ("", ""),
    "causal": ("n <= m + N - M", ""),
    "window": ("n <= m and m - n < 20", ""),
    "ragged": ("n < valid[b]", ", valid: i32[B]"),
    "documents": ("n <= m and n >= start[b, m]", ", start: i32[B, M]"),
    "future": ("n > m + 40", ""),
    "none": ("n < 0", ""),
}
# Batch, queries, keys: several chunks of 32 keys and several tiles of 32 queries, and none of them whole.
SIZES = [(2, 37, 101), (1, 1, 33), (1, 70, 5)]


@pytest.fixture(scope="module")
def masked():
    """One kernel with an output for each mask: PoCL takes seconds to compile a kernel."""
    parameters = "".join(declared for _, declared in MASKS.values())
    lines = [
        f"  w_{name}[b, m, n] = softmax[n](sum[d](q[b, m, d] * k[b, n, d]){f' where {mask}' if mask else ''})\n"
        f"  {name}[b, m, e] = sum[n](w_{name}[b, m, n] * v[b, n, e])\n"
        for name, (mask, _) in MASKS.items()
    ]
    tensors = f"q: f32[B, M, 5], k: f32[B, N, 5], v: f32[B, N, 7]{parameters}"
    return attn.compile(f"attention masked({tensors}) {{\n{''.join(lines)}  return {', '.join(MASKS)}\n}}\n", target="opencl")


def masked_arguments(sizes):
    random = np.random.default_rng(sum(sizes))
    b, m, n = sizes
    q, k, v = (random.standard_normal(shape).astype("f") for shape in ((b, m, 5), (b, n, 5), (b, n, 7)))
    starts = np.maximum(np.arange(m) - random.integers(0, 50, (b, m)), 0).astype("i4")
    return {"q": q, "k": k, "v": v, "valid": np.array([n - 1, 0][:b], "i4"), "start": starts}


@needs_opencl
@pytest.mark.parametrize("sizes", SIZES)
def test_chunks_that_a_mask_leaves_out(masked, sizes):
    arguments = masked_arguments(sizes)
    assert_equal(masked, masked(**arguments), masked.reference(**arguments), TOLERANCE["f32"])


@needs_opencl
def test_keys_that_no_query_sees_never_matter_whatever_they_are(masked):
    arguments = masked_arguments((1, 37, 301))
    arguments["valid"][:] = 77
    expected = masked(**arguments)
    arguments["k"][0, 77:] = np.nan
    arguments["v"][0, 77 + 64 :] = np.inf  # a weight of 0 times infinity would be NaN; the last chunk that is computed has keys to 95
    np.testing.assert_array_equal(masked(**arguments).ragged, expected.ragged)
    assert np.isnan(masked(**arguments).all).all()


def chunks_visited(kernel, bounds, all_chunks):
    """First and number of the chunks of a kernel with one tiled sum, as the source computes them of the bounds of its keys."""
    source = kernel.emit("opencl")
    loop = re.search(r"for \(int (\w+_state_\w+) = (\w+); \1 < \2 \+ (\w+);", source)
    definitions = dict(re.findall(r"int (\w+) = (.*);", source))
    in_shared_memory = re.compile(r"\(\(__local int \*\)_allocgroup\w+\)\[(\d+)\]")
    places = sorted({int(place) for place in in_shared_memory.findall(source)})

    def value(text):
        if text in definitions:
            text = in_shared_memory.sub(lambda found: f"bounds[{places.index(int(found[1]))}]", definitions[text])
        known = {name: value(name) for name in set(re.findall(r"\b_\d+\b", text))}
        sizes = {name: all_chunks for name in re.findall(r"\b_t\d+\b", text)}
        return eval(text, {"bounds": bounds, **known, **sizes})

    return value(loop[2]), value(loop[3])


@pytest.mark.parametrize(
    "name, bounds, expected",
    [
        ("swin", [], (0, 9)),
        ("causal", [33], (0, 2)),
        ("causal", [32], (0, 1)),
        ("causal", [0], (0, 0)),
        ("causal", [1000], (0, 9)),
        ("sliding_window", [40, 97], (1, 3)),
        ("sliding_window", [64, 65], (2, 1)),
        ("sliding_window", [64, 0], (2, 0)),
    ],
)
def test_the_loop_over_chunks_has_the_bounds_of_the_mask(name, bounds, expected):
    assert chunks_visited(compile_for("opencl", name, plan={"split.queries": 0}), bounds, 9) == expected


SPECIAL = "attention special(x: {dtype}[N]) {{ same[n] = x[n]\n twice[n] = x[n] * 2.0\n return same, twice }}"


@needs_opencl
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_every_16_bit_float(dtype):
    """Widened and rounded by integers, on the device as NumPy and PyTorch do."""
    torch = pytest.importorskip("torch")
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    x = bits.view(kind)
    same, twice = attn.compile(SPECIAL.format(dtype=dtype), target="opencl")(x)
    assert torch.equal(same.isnan(), x.isnan()) and torch.equal(twice.isnan(), x.isnan())
    known = ~x.isnan()
    assert torch.equal(same.view(torch.int16)[known], bits[known])
    assert torch.equal(twice[known], (x.float() * 2).to(kind)[known])


@pytest.mark.parametrize("name", NAMES)
def test_ptx(name, tmp_path):
    """Each step has a kernel, which is assembled for the GPUs of three generations, where ptxas is installed; nothing is spilled, or on
    a thread's stack."""
    parts = compile_for("cuda", name).emit("ptx").split("// step ")[1:]
    assert parts and all(".visible .entry" in part for part in parts)
    for number, part in enumerate(parts):
        source = tmp_path / f"{number}.ptx"
        source.write_text(part.partition("\n")[2])
        for target in ("sm_80", "sm_90", "sm_120") if PTXAS else ():
            command = [PTXAS, "-v", f"-arch={target}", str(source), "-o", str(tmp_path / "out")]
            report = subprocess.run(command, capture_output=True, text=True, check=False)
            assert report.returncode == 0, report.stderr
            spills = re.findall(r"(\d+) bytes (?:spill stores|spill loads|stack frame)", report.stderr)
            assert spills and set(spills) == {"0"}, report.stderr


WIDE = """attention wide(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {
  weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]) where n <= m)
  out[m, e]    = sum[n](weight[m, n] * v[n, e])
  return out
}
"""


@needs_opencl
@pytest.mark.parametrize("width", [100, 150])
def test_wide_values(width):
    """Scores are computed once for each 128 columns."""
    kernel = attn.compile(WIDE, target="opencl", sizes={"E": width})
    assert "tiled: 16 queries x 128 columns a block" in kernel.emit("plan")
    random = np.random.default_rng(width)
    arrays = [random.standard_normal(shape).astype("f") for shape in ((37, 5), (45, 5), (45, width))]
    assert_equal(kernel, kernel(*arrays), kernel.reference(*arrays), TOLERANCE["f32"])


@needs_opencl
@pytest.mark.parametrize("count", [2, 3, 7])
def test_as_many_rows_as_columns(count):
    """Fewer than a block has: no bounds of the rows were found, and the call was an error."""
    kernel = attn.compile(WIDE, target="opencl", sizes={"M": count, "E": count})
    random = np.random.default_rng(count)
    arrays = [random.standard_normal(shape).astype("f") for shape in ((count, 5), (45, 5), (45, count))]
    assert_equal(kernel, kernel(*arrays), kernel.reference(*arrays), TOLERANCE["f32"])


@needs_opencl
def test_tensors_that_are_named_as_parts_of_others_are():
    """`weight_sum` is a tensor here, and what a softmax called `weight` adds up: one array in the device's source hid another."""
    kernel = attn.compile(
        """attention pages(q: f32[M], k: f32[N, P], v: f32[N, P, E]) {
          score[m, n, p] = q[m] * k[n, p]
          inner[m, n, p] = softmax[p](score[m, n, p])
          weight[m, n]   = softmax[n](sum[p](inner[m, n, p] * score[m, n, p]))
          out[m, e]      = sum[n, p](weight[m, n] * inner[m, n, p] * v[n, p, e])
          return out }""",
        target="opencl",
    )
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype("f") for shape in ((5,), (9, 4), (9, 4, 3))]
    assert_equal(kernel, kernel(*arrays), kernel.reference(*arrays), TOLERANCE["f32"])


@needs_opencl
def test_a_sum_over_functions_of_a_score():
    kernel = attn.compile(
        """attention layered(q: f32[M, D], k: f32[N, D], v: f32[N, E], first: f32[U], second: f32[U]) {
          score[m, n]  = sum[d](q[m, d] * k[n, d])
          layer[m, n]  = sum[u](second[u] * relu(first[u] * score[m, n]))
          weight[m, n] = softmax[n](score[m, n] + layer[m, n])
          out[m, e]    = sum[n](weight[m, n] * v[n, e])
          return out }""",
        target="opencl",
    )
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype("f") / 2 for shape in ((37, 5), (45, 5), (45, 9), (6,), (6,))]
    assert_equal(kernel, kernel(*arrays), kernel.reference(*arrays), TOLERANCE["f32"])


# The arguments of a launch: the kernel, blocks, threads, bytes of shared memory.
LAUNCH = re.compile(r'halide_cuda_run\(cuda\[0\], "[^"]*", [^"]*?, (\d+), (\d+), (\d+), ([\d+*() ]+), \(void')


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ["scaled_dot", "dropout", "causal", "sigmoid_attention", "latent"])
def test_blocks_have_no_more_shared_memory_than_all_may(name, dtype):
    source = (EXAMPLES / f"{name}.attn").read_text().replace("f32", dtype).replace("bf16", dtype)
    for sizes in (CASES[name].fixed, (CASES[name].fixed or {}) | {"E": 128}):
        kernel = attn.compile(source, kernel=name, target="cuda", sizes=sizes)
        shared = [eval(launch[-1]) for launch in LAUNCH.findall(kernel.emit("loops"))]
        assert shared and 0 < max(shared) <= 48 * 1024


@needs_opencl
def test_bounds_are_checked():
    kernel = compile_paged(check_bounds=True, target="opencl")
    assert_equal(kernel, kernel(**paged()), kernel.reference(**paged()), TOLERANCE["f32"])
    outside(kernel, "paged: k: dimension 0 (P) is 6, but its subscript in score is 99", with_page(paged(), (1, 0), 99))


ALONE = r"""
import attn, numpy
try:
    attn.compile("attention f(x: f32[N]) {\n y[n] = x[n]\n return y\n}\n", target="opencl")(numpy.ones(3, "f"))
except RuntimeError as error:
    print(error)
"""


@needs_opencl
def test_no_platform_of_opencl(tmp_path):
    environment = os.environ | {"OCL_ICD_VENDORS": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "f: OpenCL device 0 cannot be used: clGetPlatformIDs failed with error -1001\n"


def test_a_kernel_for_a_gpu_wants_tensors_on_it():
    kernel = attn.compile(EXAMPLES / "bmm.attn", target="opencl", copy=False)
    x = np.ones((1, 2, 3), np.float32)
    with pytest.raises(ValueError, match="x: is in the CPU's memory, but the kernel was compiled for OpenCL"):
        kernel(x, x.reshape(1, 3, 2))
