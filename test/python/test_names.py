"""Names of a spec that Halide gives as well: to what belongs to a loop, to values that are computed once, to our own loops."""

import re

import numpy as np
import pytest

import attn

SPEC = """
attention named(x: f32[B, M, D], k: f32[N, D], v: f32[N, E], width: f32) {
  total[m, d]  = sum[b](x[b, m, d])
  weight[m, n] = softmax[n](sum[d](total[m, d] * k[n, d]) / width where n <= m + 3)
  out[m, e]    = sum[n](weight[m, n] * v[n, e])
  return total, weight, out
}"""
INDICES = ["s", "loop_max", "row", "t1"]
TENSORS = ["s", "total_sum", "t1"]


def assert_named(word, name, generator):
    """That `word` may be called `name`."""
    source = re.sub(rf"\b{word}\b", name, SPEC)
    kernel = attn.compile(source, lazy=False)
    for rows in (1, 7, 33):
        x, k, v = (generator.standard_normal(shape, np.float32) for shape in ((3, rows, 5), (20, 5), (20, 18)))
        for found, expected in zip(kernel(x, k, v, 2.0), kernel.reference(x, k, v, 2.0)):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", INDICES)
def test_index_variables(name, generator):
    for index in "mde":
        assert_named(index, name, generator)


@pytest.mark.parametrize("name", TENSORS)
def test_parameters_and_tensors(name, generator):
    for word in ("width", "total"):
        assert_named(word, name, generator)
