"""Vectors of pairs beside keys and values: relations of tokens, which heads share and queries do not."""

import numpy as np
import pytest
from test_split import check

import attn


def relations(mask="true", groups=True):
    keys, head = ("G", "h // (H // G)") if groups else ("H", "h")
    return attn.compile(f"""
        attention relations(q: f32[B, H, M, D], k: f32[B, {keys}, N, D], v: f32[B, {keys}, N, E], rk: f32[B, M, N, D],
                            rv: f32[B, M, N, E], valid: i32[B]) {{
          score[b, h, m, n]  = sum[d](q[b, h, m, d] * (k[b, {head}, n, d] + rk[b, m, n, d])) / sqrt(D)
          weight[b, h, m, n] = softmax[n](score[b, h, m, n] where n < valid[b] and {mask})
          out[b, h, m, e]    = sum[n](weight[b, h, m, n] * (v[b, {head}, n, e] + rv[b, m, n, e]))
          return out
        }}""")


def tensors(b, h, g, m, n, d, e):
    generator = np.random.default_rng(m * n + h)
    shapes = (b, h, m, d), (b, g, n, d), (b, g, n, e), (b, m, n, d), (b, m, n, e)
    return [generator.standard_normal(shape, np.float32) for shape in shapes]


SIZES = [
    (1, 1, 1, 1, 1, 1, 1),
    (2, 3, 3, 7, 5, 3, 2),
    (2, 8, 2, 9, 63, 16, 17),  # four rows that share keys
    (1, 12, 4, 5, 65, 40, 8),  # three of them
    (1, 7, 2, 33, 20, 8, 8),  # groups that are not whole
    (1, 40, 40, 3, 30, 8, 8),  # more heads than a task has rows
    (3, 2, 1, 130, 17, 5, 33),
    (2, 4, 4, 1, 2001, 24, 24),  # one query
    (1, 2, 2, 3, 0, 4, 4),
    (1, 2, 2, 0, 3, 4, 4),
]


@pytest.mark.parametrize("mask", ["true", "n <= m", "(n + m) % 3 != 0"], ids=["all", "causal", "without a range"])
def test_relations_of_any_size(mask):
    kernel = relations(mask)
    for b, h, g, m, n, d, e in SIZES:
        check(kernel, *tensors(b, h, g, m, n, d, e), np.array([n, n // 2, n][:b], np.int32))


def test_relations_in_any_layout():
    kernel = relations(groups=False)
    q, k, v, rk, rv = tensors(2, 5, 5, 6, 70, 12, 20)
    last = [np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) for x in (k, v, rk, rv)]
    check(kernel, q[:, ::-1], *last, np.array([70, 11], np.int32))
    check(kernel, q, k[:, ::-1], v[..., ::-1], rk[:, ::-1], rv[:, :, ::-1], np.array([70, 11], np.int32))


def test_relations_without_heads():
    """The queries alone are rows of one task, up to 32 of them."""
    kernel = attn.compile("""
        attention alone(q: f32[M, D], k: f32[N, D], v: f32[N, E], rv: f32[M, N, E]) {
          weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]))
          out[m, e]    = sum[n](weight[m, n] * (v[n, e] + rv[m, n, e]))
          return out
        }""")
    for m, n in ((1, 1), (32, 65), (33, 300), (100, 7)):
        q, k, v, _, rv = (x[0] for x in tensors(1, 1, 1, m, n, 8, 5))
        check(kernel, q[0], k[0], v[0], rv)


def test_tables_of_distances_beside_keys_and_values():
    kernel = attn.compile("""
        attention table(q: f32[H, M, D], k: f32[H, N, D], v: f32[H, N, E], rk: f32[R, D], rv: f32[R, E]) {
          far[m, n]       = min(max(n - m, -3), 3) + 3
          weight[h, m, n] = softmax[n](sum[d](q[h, m, d] * (k[h, n, d] + rk[far[m, n], d])))
          out[h, m, e]    = sum[n](weight[h, m, n] * (v[h, n, e] + rv[far[m, n], e]))
          return out
        }""")
    for h, m, n in ((1, 1, 1), (3, 50, 65), (40, 5, 9)):
        q, k, v, rk, rv = (x[0] for x in tensors(1, h, h, m, n, 8, 6))
        rows = np.random.default_rng(n).standard_normal((7, 14), np.float32)
        check(kernel, q, k, v, rows[:, :8], rows[:, 8:])


@pytest.mark.parametrize("d", [1, 8, 16, 24, 40, 64])
def test_gradients_of_relations(d):
    """Rows that fill vectors and rows that do not; heads that follow one another for each query."""
    torch = pytest.importorskip("torch")
    kernel = relations(groups=False)
    q, k, v, rk, rv = inputs = [torch.tensor(x).requires_grad_() for x in tensors(2, 3, 3, 21, 35, d, d)]
    valid = torch.tensor([35, 11], dtype=torch.int32)
    upstream = torch.randn(2, 3, 21, d)
    found = torch.autograd.grad(kernel(*inputs, valid), inputs, upstream)

    wide = [x.detach().double().requires_grad_() for x in inputs]
    q, k, v, rk, rv = wide
    score = torch.einsum("bhmd,bhmnd->bhmn", q, k[:, :, None] + rk[:, None]) / d**0.5
    weight = score.masked_fill(torch.arange(35) >= valid[:, None, None, None], -torch.inf).softmax(-1)
    out = torch.einsum("bhmn,bhmnd->bhmd", weight, v[:, :, None] + rv[:, None])
    for a, b in zip(found, torch.autograd.grad(out, wide, upstream.double()), strict=True):
        assert (a - b).abs().max() <= 4e-6 * b.abs().max()
