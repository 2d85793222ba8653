"""Weights that a kernel returns are made of scores that lie in their place before."""

import numpy as np
import pytest
import attn
import torch

FORMS = {
    "plain": ("", ""),
    "masked": ("", " where n <= m + N - M and n < valid[b]"),
    "given": ("", " where keep[m, n]"),
    "biased": (" + bias[m, n]", " where n < valid[b]"),
    "large": (" * 1000.0", ""),
    "sink": ("", ", sink = 0.5"),
}


def spec(form: str, returned: str, element: str = "f32") -> str:
    added, where = FORMS[form]
    return f"""attention heads(q: {element}[B, H, M, D], k: {element}[B, G, N, D], v: {element}[B, G, N, E],
                bias: {element}[M, N], valid: i32[B], keep: bool[M, N]) {{
  score[b, h, m, n] = sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D){added}
  weight[b, h, m, n] = softmax[n](score[b, h, m, n]{where})
  lse[b, h, m] = logsumexp[n](score[b, h, m, n]{where})
  out[b, h, m, e] = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
  return {returned}
}}
"""


def inputs(queries: int, keys: int, dtype=np.float32) -> list[np.ndarray]:
    generator = np.random.default_rng(1000 * queries + keys)
    shapes = (2, 4, queries, 33), (2, 2, keys, 33), (2, 2, keys, 21), (queries, keys)
    arrays = [generator.standard_normal(shape).astype(dtype) for shape in shapes]
    return [*arrays, np.array([keys, keys // 3], np.int32), generator.random((queries, keys)) < 0.5]


def check(results, expected, tolerance: float) -> None:
    for result, exact in zip(results, expected, strict=True):
        assert result.shape == exact.shape
        if exact.size:
            finite = np.isfinite(exact)  # a row of no keys has the log-sum-exp -inf
            np.testing.assert_array_equal(result[~finite], exact[~finite])
            found, exact = np.where(finite, result, 0), np.where(finite, exact, 0)
            scale = np.abs(exact).max(-1, keepdims=True) if exact.ndim == 4 else np.maximum(np.abs(exact), 1)
            assert (np.abs(found - exact) / np.where(scale == 0, 1, scale)).max() < tolerance


@pytest.mark.parametrize("queries, keys", [(0, 5), (5, 0), (1, 1), (1, 301), (6, 63), (7, 1), (7, 65), (65, 2001), (450, 31)])
@pytest.mark.parametrize("form", [name for name in FORMS if name != "large"])
def test_weights_are_those_of_the_oracle(form, queries, keys):
    kernel = attn.compile(spec(form, "out, weight, lse"))
    arrays = inputs(queries, keys)
    check(kernel(*arrays), kernel.reference(*arrays), 2e-6)


def test_large_scores_leave_rows_that_add_up_to_one():
    # Two sums of the same products would differ by some of their roundings, and e^difference is no small factor here.
    kernel = attn.compile(spec("large", "weight"))
    weights = kernel(*inputs(65, 301))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize("returned", ["weight", "score, weight", "weight, score", "weight, lse, out, score"])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_with_other_results(returned, element):
    kernel = attn.compile(spec("masked", returned, element))
    arrays = inputs(65, 130, np.float64 if element == "f64" else np.float32)
    results, expected = kernel(*arrays), kernel.reference(*arrays)
    if returned == "weight":
        results, expected = [results], [expected]
    check(results, expected, 2e-6 if element == "f32" else 1e-13)


@pytest.mark.parametrize("element", [torch.bfloat16, torch.float16])
def test_weights_of_16_bits_are_rounded_once(element):
    kernel = attn.compile(spec("masked", "weight", {torch.bfloat16: "bf16", torch.float16: "f16"}[element]))
    drawn = [torch.from_numpy(array) for array in inputs(65, 301)]
    q, k, v, bias = (each.to(element) for each in drawn[:4])
    weights = kernel(q, k, v, bias, *drawn[4:])
    scores = q.double() @ k.double().repeat_interleave(2, 1).transpose(-1, -2) / 33**0.5
    m, n = torch.arange(65)[:, None], torch.arange(301)
    mask = (n <= m + 301 - 65) & (n < drawn[4][:, None, None, None])
    exact = torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)
    assert weights.dtype == element
    assert ((weights.double() - exact).abs() <= exact * torch.finfo(element).eps * 0.51 + 1e-7).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_that_are_no_contiguous_memory(threads):
    kernel = attn.compile(spec("masked", "weight"))
    arrays = inputs(65, 130)
    memory = np.full((2, 4, 130, 2 * 65 + 1), np.nan, np.float32)
    out = memory[..., 1::2].swapaxes(-1, -2)
    attn.set_num_threads(threads)
    try:
        kernel(*arrays, out=out)
    finally:
        attn.set_num_threads(0)
    np.testing.assert_array_equal(out, kernel(*arrays))
    assert np.isnan(memory[..., ::2]).all()


def test_weights_of_another_row_for_each_key():
    """They are stored: rows that a mask leaves no keys, or other ones, say nothing about which keys a sum needs."""
    kernel = attn.compile("""
        attention diagonal(x: f32[N, N], v: f32[N, E]) {
          w[m: N, n: N] = softmax[n](x[m, n] where n >= m)
          out[m: N, e]  = sum[n: N](w[m + n, n] * v[n, e])
          return out
        }""")
    for n in (1, 7, 65):
        x, v = np.random.default_rng(n).standard_normal((2, n, n)).astype(np.float32)
        np.testing.assert_allclose(kernel(x, v), kernel.reference(x, v), rtol=0, atol=4e-6)


@pytest.mark.parametrize("queries", [1, 7, 70])
def test_weights_of_rows_that_are_clamped(queries):
    """Scores that are made of the row's number (b - 1) are those of the row that is read, not of the one asked for."""
    kernel = attn.compile("""
        attention clamped(q: f64[B, M, D], k: f64[B, N, D], v: f64[B, N, E], row: i64[B]) {
          score[b: B, m, n] = sum[d](q[max(b - 1, 0), m, d] * k[b, n, d])
          weight[b, m, n]   = softmax[n](score[b, m, n])
          out[b, m, e]      = sum[n](weight[row[b], m, n] * v[b, n, e])
          return out
        }""")
    random = np.random.default_rng(queries)
    q, k, v = (random.standard_normal((5, rows, 4)) for rows in (queries, 9, 9))
    row = np.array([-3, 2, 5, 2**40, -(2**63)])
    score = np.einsum("bmd,bnd->bmn", q[[0, 0, 1, 2, 3]], k)
    weight = np.exp(score) / np.exp(score).sum(-1, keepdims=True)
    np.testing.assert_allclose(kernel(q, k, v, row), weight[np.clip(row, 0, 4)] @ v, rtol=1e-12)
