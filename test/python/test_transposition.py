"""What lies along keys, or along a product's terms, is turned block by block: odd sizes, dtypes and strides against NumPy in float64."""

import numpy as np
import pytest

import attn

BIASED = """attention biased(q: f32[H, M, D], k: f32[H, N, D], v: f32[H, N, E], bias: DTYPE[H, M, N], allowed: bool[M, N]) {
  weight[h, m, n] = softmax[n](sum[d](q[h, m, d] * k[h, n, d]) + bias[h, m, n] where allowed[m, n])
  out[h, m, e]    = sum[n](weight[h, m, n] * v[h, n, e])
  return out
}
"""


def expected(q, k, v, bias, allowed):
    scores = np.einsum("hmd,hnd->hmn", *(x.astype("d") for x in (q, k))) + bias
    scores = np.where(allowed, scores, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True, initial=-1e30), -1e30))
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, where=total > 0, out=np.zeros_like(weights)) @ v.astype("d")


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
def test_biases_and_masks_along_keys(dtype):
    kernel = attn.compile(BIASED.replace("DTYPE", dtype))
    random = np.random.default_rng(0)
    for queries, keys in [(9, 1), (17, 15), (63, 16), (64, 17), (65, 255), (100, 257), (130, 300), (33, 0)]:
        q, k, v = (random.standard_normal((2, rows, width)).astype("f") for rows, width in ((queries, 7), (keys, 7), (keys, 5)))
        bias = random.standard_normal((2, queries, keys)).astype({"f32": "f", "f16": "e", "f64": "d"}[dtype])
        allowed = random.random((queries, keys)) < 0.8
        found = kernel(q, k, v, bias, allowed)
        np.testing.assert_allclose(found, expected(q, k, v, bias, allowed), rtol=0, atol=1e-5)


def test_a_bias_with_strides():
    kernel = attn.compile(BIASED.replace("DTYPE", "f32"))
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal((2, 70, 8)).astype("f") for _ in range(3))
    whole = random.standard_normal((2, 150, 200)).astype("f")
    allowed = np.broadcast_to(random.random(70) < 0.7, (70, 70))
    for bias in (whole[:, 10:80, 3:73], whole[:, 139:69:-1, :70], whole[:, :140:2, ::2][:, :, :70], np.broadcast_to(whole[:1, :70, :70], (2, 70, 70))):
        np.testing.assert_allclose(kernel(q, k, v, bias, allowed), expected(q, k, v, bias, allowed), rtol=0, atol=1e-5)


@pytest.mark.parametrize("width", [1, 5, 16, 24, 33])
def test_weights_of_a_product_over_heads_and_columns(width):
    text = "attention merge(c: f32[H, M, D], w: f32[O, H * D]) {\n  y[m, o] = sum[h, d](w[o, h * D + d] * c[h, m, d])\n  return y\n}\n"
    random = np.random.default_rng(width)
    c, w = random.standard_normal((3, 20, width)).astype("f"), random.standard_normal((45, 3 * width)).astype("f")
    found = attn.compile(text)(c, w)
    exact = np.einsum("hmd,ohd->mo", c.astype("d"), w.astype("d").reshape(45, 3, width))
    np.testing.assert_allclose(found, exact, rtol=0, atol=2e-6 * np.abs(exact).max() + 1e-5)
