"""Parts of a softmax that no weighted sum has: log-sum-exps alone (`attn-sum-weights`), and weights that other statements read."""

import numpy as np
import pytest
from test_split import check

import attn

MASKS = {"": "", "lengths": " where n < valid[b]", "causal": " where n <= m", "sink": ", sink = s[h]"}


def source(mask):
    return f"""attention total(q: f32[B, H, M, D], k: f32[B, H, N, D], valid: i32[B], s: f32[H]) {{
      score[b, h, m, n] = sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D)
      out[b, h, m] = logsumexp[n](score[b, h, m, n]{mask}) / 2
      return out
    }}"""


@pytest.fixture(scope="module", params=list(MASKS))
def total(request):
    return attn.compile(source(MASKS[request.param]), lazy=True)


def numbers(*shapes):
    generator = np.random.default_rng(sum(shapes[0]))
    return [generator.standard_normal(shape, np.float32) for shape in shapes]


@pytest.mark.parametrize("m, n, d", [(1, 1, 1), (7, 65, 5), (1, 2001, 64), (70, 63, 17), (130, 300, 40), (3, 0, 4), (0, 3, 4)])
def test_log_sum_exps_alone(total, m, n, d):
    q, k, s = numbers((2, 3, m, d), (2, 3, n, d), (3,))
    check(total, q, k, np.array([n, n // 3], np.int32), s)


@pytest.mark.parametrize("mask", MASKS)
def test_they_are_computed_by_tiles(mask):
    kernel = attn.compile(source(MASKS[mask]), target="x86-64-linux-avx2-fma-f16c", lazy=True)
    assert "logsumexp_sum: split for at most" in kernel.emit("plan") and "else tiled" in kernel.emit("plan")


def test_their_chunks_are_counted():
    kernel = attn.compile(source(" where n <= m"), lazy=True, count_chunks=True)
    q, k, s = numbers((1, 1, 1024, 8), (1, 1, 1024, 8), (1,))
    totals, chunks = kernel(q, k, np.zeros(1, np.int32), s)
    np.testing.assert_allclose(totals, kernel.reference(q, k, np.zeros(1, np.int32), s)[0], rtol=2e-6, atol=2e-6)
    assert 0.5 <= chunks[0] / chunks[2] < 0.75


DUAL = """attention dual(q: f32[B, H, M, D], k: f32[B, H, N, D], v: f32[B, H, N, E]) {{
  score[b, h, m, n]  = sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D)
  row[b, h, m, n]    = softmax[n](score[b, h, m, n]{where})
  column[b, h, n, m] = softmax[m](score[b, h, m, n])
  out[b, h, m, e]    = sum[n](row[b, h, m, n] * column[b, h, n, m] * v[b, h, n, e])
  return out
}}"""


@pytest.mark.parametrize("where", ["", " where n <= m"])
@pytest.mark.parametrize("m, n, d, e", [(1, 1, 1, 1), (2, 65, 5, 3), (65, 2, 5, 3), (70, 63, 17, 9), (130, 200, 40, 33), (4, 0, 3, 2)])
def test_weights_that_are_multiplied_with_others(where, m, n, d, e):
    kernel = attn.compile(DUAL.format(where=where), lazy=True)
    check(kernel, *numbers((2, 2, m, d), (2, 2, n, d), (2, 2, n, e)))


EXTERNAL = """attention external(x: f32[B, N, D], mk: f32[S, D], mv: f32[S, E], w: f32[S, S]) {
  weight[b, s, n] = softmax[n](sum[d](x[b, n, d] * mk[s, d]) / sqrt(D))
  total[b, n]     = sum[s](weight[b, s, n])
  mixed[b, n, t]  = sum[s](weight[b, s, n] * w[s, t])
  out[b, n, e]    = sum[s](weight[b, s, n] / total[b, n] * mv[s, e]) + sum[t: S](mixed[b, n, t] * mv[t, e])
  return out
}"""


@pytest.mark.parametrize("n, s", [(1, 1), (7, 3), (65, 64), (300, 17), (0, 5)])
def test_weights_that_several_statements_read(n, s):
    """They lie where their scores did, from the step that computes those on: nothing else may lie there."""
    kernel = attn.compile(EXTERNAL, lazy=True)
    check(kernel, *numbers((3, n, 20), (s, 20), (s, 11), (s, s)))


def test_scores_lie_where_the_weights_will():
    target = "x86-64-linux-avx2-fma-f16c"
    assert "matrix weight_score: in the place of weight" in attn.compile(EXTERNAL, target=target, lazy=True).emit("plan")
    assert "matrix row_score: in the place of row" in attn.compile(DUAL.format(where=""), target=target, lazy=True).emit("plan")
