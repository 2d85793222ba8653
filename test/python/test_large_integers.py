"""Integers that 32 bits do not hold: limits of masks, subscripts that are clamped, ranges of indices."""

import functools

import numpy as np
import pytest

import attn
from formulas import softmax

compiled = functools.cache(attn.compile)
LARGEST = 2**63 - 1
MASKED = """
attention masked(q: f32[M, D], k: f32[N, D], v: f32[N, E], a: i64, b: i64) {{
  weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]) where {})
  out[m, e] = sum[n](weight[m, n] * v[n, e])
  return out
}}
"""
# Each mask, and what NumPy says of it where no step leaves 64 bits, though the difference of two sides may: a and b are
# then numbers of Python.
MASKS = {
    "n <= a": lambda m, n, a, b: n <= a,
    "a >= n and n >= b": lambda m, n, a, b: (n <= a) & (n >= b),
    "abs(m - n) <= a": lambda m, n, a, b: abs(m - n) <= a,
    "n - b < a": lambda m, n, a, b: n - b < a,
    "m - n < a": lambda m, n, a, b: m - n < a,
    "n < a - b": lambda m, n, a, b: n < a - b,
    "not (n > a)": lambda m, n, a, b: n <= a,
    "4 * n + 3 <= a": lambda m, n, a, b: 4 * n + 3 <= a,
    "3 * (m - n) <= a and a > b - 5 * n": lambda m, n, a, b: (3 * (m - n) <= a) & (a > b - 5 * n),
    "n <= 9223372036854775807": lambda m, n, a, b: n <= LARGEST,
    "n - 3 < 9223372036854775807 and n >= b": lambda m, n, a, b: n >= b,
}


@pytest.mark.parametrize("queries", [1, 5, 70])
@pytest.mark.parametrize("mask", MASKS)
def test_limits_may_be_the_largest_integers(mask, queries):
    """The largest integer is a common way to say that there is no limit."""
    random = np.random.default_rng(queries)
    q, k, v = (random.standard_normal((rows, 8)).astype(np.float32) for rows in (queries, 70, 70))
    kernel = compiled(MASKED.format(mask))
    m, n = np.arange(queries)[:, None].astype(object), np.arange(70)[None, :].astype(object)
    for a, b in ((LARGEST, 0), (LARGEST - 1, 0), (2**61 + 20, 2**61), (7, -(2**61)), (-LARGEST, 0), (40, 1)):
        expected = softmax(q @ k.T, MASKS[mask](m, n, a, b).astype(bool)) @ v
        np.testing.assert_allclose(kernel(q, k, v, a, b), expected, rtol=1e-4, atol=1e-5, err_msg=f"a = {a}, b = {b}")


@pytest.mark.parametrize("subscript", ["m * 4294967296", "m * M * M * M", "4294967296 - m", "m * M * 1048576 - M"])
def test_subscripts_beyond_32_bits_are_clamped(subscript):
    x = np.arange(2048, dtype=np.float32)
    kernel = attn.compile(f"attention a(x: f32[M]) {{\n y[m: M] = x[{subscript}]\n return y\n}}")
    places = [eval(subscript, {"m": m, "M": len(x)}) for m in range(len(x))]
    np.testing.assert_array_equal(kernel(x), x[np.clip(places, 0, len(x) - 1)])


def test_two_digits_subscript_a_product():
    x = np.arange(35, dtype=np.float32)
    kernel = attn.compile("attention a[D = 7](x: f32[H * D]) {\n y[h: H, d: D] = x[h * D + d] + x[d * H + h]\n return y\n}")
    h, d = np.mgrid[:5, :7]
    np.testing.assert_array_equal(kernel(x), x[h * 7 + d] + x[d * 5 + h])


@pytest.mark.parametrize(
    "formula, index, size",
    [
        ("sum[i: A * B](a[i // B] * b[i % B])", "i", "A * B"),
        ("max[i: A * B * B](a[i // B // B])", "i", "A * B * B"),
        ("sum[i: A + B * 65536](a[i % A])", "i", "A + B * 65536"),
    ],
)
def test_ranges_that_are_too_large(formula, index, size):
    kernel = attn.compile(f"attention far(a: f32[A], b: f32[B]) {{\n y = {formula}\n return y\n}}")
    few, many = np.ones(3, np.float32), np.ones(65536, np.float32)
    kernel(few, few)
    with pytest.raises(ValueError) as error:
        kernel(many, many)
    assert str(error.value).startswith(f"far: the range {size} of index `{index}` would be too large: at most 1073741824")


def test_pairs_of_keys_that_are_too_many():
    kernel = attn.compile(
        """
        attention far(a: f32[X], b: f32[Y]) {
          w[x, y] = softmax[x, y](a[x] * b[y])
          y       = sum[x, y](w[x, y] * a[x])
          return y
        }"""
    )
    many = np.ones(65536, np.float32)
    with pytest.raises(ValueError, match="would be .*too large"):
        kernel(many, many)


def test_a_negative_float_as_an_integer_is_subtracted_from_an_index():
    kernel = attn.compile("attention f(t: f32[M], x: f32[N]) {\n  seen[m, n: N] = m - i64(t[m] * 4.0) <= N\n  return seen\n}\n")
    t = np.array([-0.3, 0.5, 1, -0.26, -0.6, -3], "f")
    np.testing.assert_array_equal(kernel(t, np.zeros(5, "f")), kernel.reference(t, np.zeros(5, "f")))
