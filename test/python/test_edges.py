"""Rows that a query and a key have together, as the edges of a graph do: a part of scores, and values."""

import functools

import pytest

import attn

torch = pytest.importorskip("torch")

compiled = functools.cache(attn.compile)
SPEC = """
attention edges(q: {t}[B, H, M, D], k: {t}[B, H, N, D], v: {t}[B, H, N, E], edge: {t}[B, M, N, C], w: {t}[B, H, M, C]) {{
  score[b, h, m, n]  = (sum[d](q[b, h, m, d] * k[b, h, n, d]) + {score}) / sqrt(D)
  weight[b, h, m, n] = softmax[n](score[b, h, m, n] where {mask})
  out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h, n, e])
  mean[b, h, m, c]   = sum[n](weight[b, h, m, n] * edge[b, m, n, c])
  return out, mean
}}
"""
SCORES = {
    "of the query": ("sum[c](w[b, h, m, c] * edge[b, m, n, c])", lambda w, edge: torch.einsum("bhmc,bmnc->bhmn", w, edge)),
    "of the head": ("sum[c](edge[b, m, n, c] * w[b, h, 0, c])", lambda w, edge: torch.einsum("bhc,bmnc->bhmn", w[:, :, 0], edge)),
    "largest": ("max[c](w[b, h, m, c] * edge[b, m, n, c])", lambda w, edge: (w[:, :, :, None] * edge[:, None]).amax(-1)),
}
MASKS = {"true": lambda m, n: m + n >= 0, "n <= m + 3": lambda m, n: n <= m + 3}
SIZES = [(1, 1, 1, 1), (1, 8, 1, 301), (3, 2, 7, 20), (2, 4, 65, 63), (1, 5, 130, 200), (2, 3, 0, 5), (0, 2, 4, 4)]


def tensors(B, H, M, N, dtype=torch.float32):
    torch.manual_seed(B + 10 * H + 100 * M + N)
    shapes = (B, H, M, 9), (B, H, N, 9), (B, H, N, 17), (B, M, N, 6), (B, H, M, 6)
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]


def formula(name, mask, q, k, v, edge, w):
    m, n = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
    score = (q @ k.mT + SCORES[name][1](w, edge)) / 9**0.5
    weight = score.masked_fill(~MASKS[mask](m, n), -torch.inf).softmax(-1)
    return weight @ v, torch.einsum("bhmn,bmnc->bhmc", weight, edge)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SCORES)
def test_edges_are_those_of_pytorch(name, mask):
    kernel = compiled(SPEC.format(t="f32", score=SCORES[name][0], mask=mask))
    for sizes in SIZES:
        if name == "of the head" and sizes[2] == 0:
            continue  # there is no query 0
        given = tensors(*sizes)
        for found, wanted in zip(kernel(*given), formula(name, mask, *(each.double() for each in given))):
            assert found.shape == wanted.shape
            if wanted.numel():
                torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2e-6 * wanted.abs().max().item())


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SCORES)
def test_gradients(name, mask):
    kernel = compiled(SPEC.format(t="f64", score=SCORES[name][0], mask=mask), lazy=True)
    given = [each.requires_grad_() for each in tensors(2, 3, 9, 13, torch.float64)]
    outputs = [kernel(*given), formula(name, mask, *given)]
    weights = [torch.randn_like(each) for each in outputs[1]]
    found, wanted = (torch.autograd.grad(each, given, weights) for each in outputs)
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


def test_edges_are_a_matrix_product_for_the_heads_of_a_query():
    """Read for the queries in the lanes of a vector they would be numbers far apart."""
    kernel = compiled(SPEC.format(t="f32", score=SCORES["of the query"][0], mask="true"))
    assert "matrix weight_pairs: for at least 3 h" in kernel.emit("plan")
    backward = kernel.grad()[1].emit("plan")
    # A gradient with columns for each pair is not added to by one head after the other.
    assert "blocks of b, m, n: weight stored, grad_edge_by_mean, " in backward


def test_keys_are_no_edges():
    """Keys that heads share have a batch and a key as edges do, but no query."""
    kernel = compiled("""
        attention shared(q: f32[B, H, M, D], k: f32[B, N, D], v: f32[B, N, E], bias: f32[H, N]) {
          weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, n, d]) + bias[h, n])
          out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, n, e])
          return out
        }""")
    assert "_pairs" not in kernel.emit("plan")
