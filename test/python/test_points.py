"""Squared distances of points, which are two norms less a product where that is accurate (attn-expand-distances)."""

import numpy as np
import pytest

import attn

POINTS = """
attention points(p: f32[B, M, C], r: f32[B, N, C], v: f32[B, H, N, E], w: f32[H], t: f32[M]) {{
  score[b, h, m, n] = {score}
  weight[b, h, m, n] = softmax[n](score[b, h, m, n])
  out[b, h, m, e] = sum[n](weight[b, h, m, n] * v[b, h, n, e])
  return out
}}"""
SQUARES = "sum[c]((p[b, m, c] - r[b, n, c]) ** 2)"


@pytest.mark.parametrize("score", [f"-w[h] * sqrt({SQUARES})", f"-log({SQUARES} + 1e-3) / w[h]", f"1 / (w[h] + {SQUARES})"])
def test_functions_of_squared_distances_are_computed_as_written(generator, score):
    """Two norms less a product cancel where points are the same: the root of what is left would be of a number below 0."""
    kernel = attn.compile(POINTS.format(score=score))
    assert "norm" not in kernel.emit("simplified")
    p, v = generator.standard_normal((2, 65, 3), np.float32), generator.standard_normal((2, 3, 65, 5), np.float32)
    given = p, p, v, np.float32([0.5, 1, 2]), np.float32(generator.random(65))
    np.testing.assert_allclose(kernel(*given), kernel.reference(*given), rtol=0, atol=4e-6)


@pytest.mark.parametrize("scale", ["* w[h]", "/ (2 * w[h] ** 2)", "/ w[h] / t[m]"])
def test_squared_distances_times_large_numbers_are_computed_as_written(generator, scale):
    kernel = attn.compile(POINTS.format(score=f"-{SQUARES} {scale}"))
    assert "norm" in kernel.emit("simplified")
    p, v = generator.standard_normal((2, 65, 3), np.float32), generator.standard_normal((2, 3, 65, 5), np.float32)
    t = np.float32(generator.random(65) + 0.5)
    for width in (0.01, 1, 100, 1e5):
        given = p, p, v, np.float32([0.5, 1, 2]) * np.float32(width), t
        # Where norms are expanded, scores are known to 3e-5 (lib/Transforms/ExpandDistances.cpp).
        np.testing.assert_allclose(kernel(*given), kernel.reference(*given), rtol=0, atol=3e-5)
