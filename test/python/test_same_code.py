"""Statements that differ in names alone are compiled once."""

import numpy as np
import pytest
from test_split import check

import attn

PROJECTIONS = """
attention projections(x: f32[M, I], y: f32[N, J], wq: f32[D, I], wk: f32[E, J], wv: f32[E, J]) {
  q[m, d]      = sum[i](x[m, i] * wq[d, i])
  k[n, e]      = sum[j](y[n, j] * wk[e, j])
  v[n, e]      = tanh(sum[j](y[n, j] * wv[e, j]))
  weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d % E]) / sqrt(D))
  out[m, e]    = sum[n](weight[m, n] * v[n, e])
  return out, q, k
}
"""


def shared(kernel):
    """The steps that have the code of another."""
    return kernel.emit("asm").count("\n# the code of step ")


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("m, n, i, j, d, e", [(1, 65, 7, 16, 33, 4), (63, 1, 48, 17, 8, 40), (100, 37, 64, 64, 16, 16), (5, 0, 3, 2, 1, 9)])
def test_projections(lazy, m, n, i, j, d, e):
    kernel = attn.compile(PROJECTIONS, lazy=lazy)
    generator = np.random.default_rng(m)
    shapes = (m, i), (n, j), (d, i), (e, j), (e, j)
    check(kernel, *(generator.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5) for shape in shapes))


def test_one_code_for_both_plans_of_two_projections():
    assert shared(attn.compile(PROJECTIONS)) == 2  # for few rows and for many


TWO = """
attention two(x: {}[M, D], y: {}[N, D], s: f32[N]) {{
  a[m] = sum[d]({})
  b[n] = sum[d]({})
  return a, b
}}
"""


@pytest.mark.parametrize(
    "types, terms, count",
    [
        (("f32", "f32"), ("x[m, d] ** 2", "y[n, d] ** 2"), 1),
        (("f32", "f32"), ("x[m, d] + 1e-9", "y[n, d] + 1e-9"), 1),
        (("f32", "f32"), ("x[m, d] + 1e-9", "y[n, d] + 2e-9"), 0),
        (("f32", "f32"), ("max(x[m, d], 0)", "min(y[n, d], 0)"), 0),
        (("f32", "f32"), ("exp(x[m, d])", "log(y[n, d])"), 0),
        (("f32", "f32"), ("x[m, d] * x[m, 0]", "y[n, d] * y[0, d]"), 0),
        (("f32", "f32"), ("x[m, d] * x[m, 0]", "y[n, d] * s[n]"), 0),
        (("f32", "f32"), ("x[m, d] where d < m", "y[n, d] where d <= n"), 0),
        (("f32", "f16"), ("x[m, d] ** 2", "y[n, d] ** 2"), 0),
    ],
)
def test_what_is_the_same(types, terms, count):
    kernel = attn.compile(TWO.format(*types, *terms))
    assert shared(kernel) == count
    generator = np.random.default_rng(1)
    x, y = (generator.uniform(0.5, 2, (size, 20)).astype({"f32": np.float32, "f16": np.float16}[dtype]) for size, dtype in zip((9, 5), types))
    check(kernel, x, y, np.arange(5, dtype=np.float32))
