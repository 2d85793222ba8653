"""The split plan on a GPU, run as OpenCL by PoCL: keys in parts, rows that share keys in one tile."""

import re

import numpy as np
import pytest
from test_gallery import TOLERANCE
from test_gpu import assert_equal, needs_opencl

import attn

# Heads of a group share keys, H need not be a multiple of P (a subscript is clamped then); `alone` has no queries, `each` no rows that share keys.
SPEC = """attention split(q: f32[B, H, M, D], k: f32[B, P, N, D], v: f32[B, P, N, E], bias: f32[H, M, N], gain: f32[H],
                   valid: i32[B], start: i32[B, M], sink: f32[H]) {
  score[b, h, m, n] = sum[d](q[b, h, m, d] * k[b, h // (H // P), n, d]) * gain[h]
  w_all[b, h, m, n] = softmax[n](score[b, h, m, n])
  all[b, h, m, e] = sum[n](w_all[b, h, m, n] * v[b, h // (H // P), n, e])
  w_biased[b, h, m, n] = softmax[n](score[b, h, m, n] + bias[h, m, n] where n < valid[b], sink = sink[h])
  biased[b, h, m, e] = sum[n](w_biased[b, h, m, n] * bias[h, m, n] * v[b, h // (H // P), n, e])
  w_late[b, h, m, n] = softmax[n](sum[d](tanh(q[b, h, m, d] + k[b, h // (H // P), n, d])) / 8.0
                                  where n >= start[b, m] and n <= m + N - M)
  late[b, h, m, e] = sum[n](w_late[b, h, m, n] * v[b, h // (H // P), n, e])
  linear[b, h, m, e] = sum[n](score[b, h, m, n] * v[b, h // (H // P), n, e] where n > valid[b])
  w_alone[b, h, n] = softmax[n](sum[d](q[b, h, 0, d] * k[b, h // (H // P), n, d]))
  alone[b, h, e] = sum[n](w_alone[b, h, n] * v[b, h // (H // P), n, e] * gain[h])
  w_each[b, n] = softmax[n](v[b, 0, n, 0])
  each[b, e] = sum[n](w_each[b, n] * v[b, 0, n, e])
  return all, biased, late, linear, alone, each
}
"""
# Batch, heads, those of keys, queries, keys, terms, columns: some with many parts of keys.
SIZES = [
    (1, 8, 2, 1, 3000, 64, 128),
    (2, 5, 2, 3, 1100, 40, 150),
    (1, 3, 3, 8, 650, 65, 7),
    (3, 2, 1, 1, 33, 1, 1),
    (1, 1, 1, 1, 1, 7, 63),
    (1, 2, 1, 2, 7, 0, 3),
    (2, 2, 1, 2, 0, 3, 4),
]


def arguments_of(sizes, dtype="f"):
    random = np.random.default_rng(sum(sizes))
    b, h, p, m, n, d, e = sizes
    shapes = {"q": (b, h, m, d), "k": (b, p, n, d), "v": (b, p, n, e), "bias": (h, m, n), "gain": (h,), "sink": (h,)}
    arrays = {name: random.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    arrays["q"] /= np.sqrt(max(d, 1)).astype(dtype)
    arrays["valid"] = np.array([n // 3, n, 0][:b], "i4")
    arrays["start"] = random.integers(0, n + 1, (b, m)).astype("i4")
    return arrays


@pytest.fixture(scope="module")
def split():
    """One kernel for all sizes: PoCL takes seconds to compile it."""
    return attn.compile(SPEC, target="opencl")


@needs_opencl
@pytest.mark.parametrize("sizes", SIZES)
def test_parts_of_keys(split, sizes):
    arguments = arguments_of(sizes)
    assert_equal(split, split(**arguments), split.reference(**arguments), 2 * TOLERANCE["f32"])


@needs_opencl
def test_keys_that_no_row_sees_are_not_read(split):
    sizes = (1, 4, 2, 2, 2001, 16, 9)
    arguments = arguments_of(sizes)
    arguments["valid"][:] = 700
    expected = split(**arguments).biased
    arguments["k"][:, :, 700 + 32 :] = np.nan
    arguments["v"][:, :, 700 + 32 :] = np.nan
    np.testing.assert_array_equal(split(**arguments).biased, expected)


CACHE = """attention decode(q: {dtype}[B, H, M, 64], k: {dtype}[B, P, N, 64], v: {dtype}[B, P, N, 64]) {{
  weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h // 4, n, d]) / 8.0)
  out[b, h, m, e] = sum[n](weight[b, h, m, n] * v[b, h // 4, n, e])
  return out
}}
"""


@needs_opencl
@pytest.mark.parametrize("dtype, tolerance", [("f16", 2 * TOLERANCE["f16"]), ("bf16", 2 * TOLERANCE["bf16"]), ("f64", 1e-13)])
def test_other_types(dtype, tolerance):
    torch = pytest.importorskip("torch")
    kernel = attn.compile(CACHE.format(dtype=dtype), target="opencl")
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}[dtype]
    torch.manual_seed(0)
    arrays = [torch.randn(shape, dtype=torch.float64).to(kind) for shape in ((2, 8, 1, 64), (2, 2, 777, 64), (2, 2, 777, 64))]
    assert_equal(kernel, kernel(*arrays), kernel.reference(*arrays), tolerance)


def test_rows_that_share_keys_are_in_one_tile():
    plan = attn.compile(CACHE.format(dtype="f32"), target="cuda").emit("plan")
    assert "split: 8 rows that share keys x 64 columns a block of 16 x 8 threads" in plan
    assert "sum out: split for at most 8 m, else tiled" in plan
    assert plan.count("step out_few") == 2  # the parts, and what merges them


def test_factors_and_values_are_read_once_for_a_tile():
    """The loop over the terms of a product reads shared memory alone, as does the one over the keys of a chunk."""
    source = attn.compile(CACHE.format(dtype="f32"), target="opencl", plan={"split.queries": 0}).emit("opencl")
    for name in ("product_of_slice", "output"):
        loop = re.search(rf"^( *)for \(int _out_\w*{name}\w* = .*?^\1\}}", source, re.S | re.M)
        assert loop and "__local" in loop[0] and not re.search(r"_[kqv]\[", loop[0])
