"""Softmaxes over several indices: one attention over all of them."""

import numpy as np
import pytest

import attn

VOLUME = """
attention volume(q: f32[M, D], k: f32[X, Y, Z, D], v: f32[X, Y, Z, E], reach: i32) {
  score[m, x, y, z]  = sum[d](q[m, d] * k[x, y, z, d]) / sqrt(D)
  weight[m, x, y, z] = softmax[x, y, z](score[m, x, y, z] where abs(x - m) <= reach and y != 1)
  out[m, e]          = sum[x, y, z](weight[m, x, y, z] * v[x, y, z, e])
  return out
}
"""


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


@pytest.mark.parametrize("queries", [1, 20, 150])  # split, narrow and wide tiles
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 3, 5), (63, 2, 7), (5, 0, 3), (0, 4, 2)])
def test_a_softmax_over_three_indices(queries, shape):
    kernel = attn.compile(VOLUME)
    arguments = normal(queries, 9), normal(*shape, 9), normal(*shape, 17), 2
    np.testing.assert_allclose(kernel(*arguments), kernel.reference(*arguments), rtol=0, atol=4e-6)


def test_its_gradients():
    torch = pytest.importorskip("torch")
    inputs = [torch.from_numpy(normal(*shape)).double().requires_grad_() for shape in [(6, 3), (5, 2, 3, 3), (5, 2, 3, 4)]]
    kernel = attn.compile(VOLUME.replace("f32", "f64"))
    assert torch.autograd.gradcheck(lambda *tensors: kernel(*tensors, 2), inputs)


def test_chunks_of_a_window_over_blocks_of_keys_are_the_windows():
    text = """
      attention blocks(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {
        weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]) where n // 64 <= m // 64 and n // 64 >= m // 64 - 1)
        out[m, e]    = sum[n](weight[m, n] * v[n, e])
        return out
      }
    """
    arguments = normal(2048, 8), normal(2048, 8), normal(2048, 8)
    out, chunks = attn.compile(text, count_chunks=True)(*arguments)
    assert chunks[0] < chunks[2] / 3
    np.testing.assert_allclose(out, attn.compile(text).reference(*arguments), rtol=0, atol=4e-6)


@pytest.mark.parametrize("blocks", [(0,), (3,)])
@pytest.mark.parametrize("divisor", ["S", "(N - M)", "(M - N)"])
def test_quotients_by_sizes_that_may_be_0_or_less(blocks, divisor):
    text = f"""
      attention quotients(q: f32[M, D], k: f32[N, D], v: f32[N, E], s: f32[S]) {{
        weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]) where n // {divisor} <= m // 2)
        out[m, e]    = sum[n](weight[m, n] * v[n, e])
        return out
      }}
    """
    kernel = attn.compile(text)
    for queries in (20, 700):
        arguments = normal(queries, 8), normal(600, 8), normal(600, 8), normal(*blocks)
        np.testing.assert_allclose(kernel(*arguments), kernel.reference(*arguments), rtol=0, atol=4e-6)
