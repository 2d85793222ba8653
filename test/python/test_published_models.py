"""Attention of published models, as its code has it: results and gradients beside PyTorch's in f64."""

import functools
import math

import pytest

import attn

torch = pytest.importorskip("torch")

compiled = functools.cache(attn.compile)  # for all sizes


def compare(spec, formula, *inputs, tolerance=1e-5):
    """In f32, within 1e-5 of the largest number of f64's, or of a tenth of the largest gradient: they are sums of sums."""
    exact = [each.double().requires_grad_() if each.is_floating_point() else each for each in inputs]
    inputs = [each.clone().requires_grad_(each.is_floating_point()) for each in inputs]
    expected, found = formula(*exact), compiled(spec)(*inputs)
    weights = torch.randn(expected.shape, dtype=torch.float64)
    by = [index for index, each in enumerate(inputs) if each.requires_grad]
    gradients = torch.autograd.grad(found, [inputs[index] for index in by], weights.float())
    exact_gradients = torch.autograd.grad(expected, [exact[index] for index in by], weights)
    noise = 0.1 * max(each.abs().max() for each in exact_gradients)
    for name, one, other in zip(["out", *by], [found, *gradients], [expected, *exact_gradients]):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= tolerance * max(other.abs().max(), noise), name


def normal(*shape):
    return torch.randn(shape)


# Shifted windows of S x S pixels (Swin): queries are a number that is no size's name.
SWIN = """
attention swin(q: f32[I, W, H, S * S, D], k: f32[I, W, H, S * S, D], v: f32[I, W, H, S * S, E],
               table: f32[H, 2 * S - 1, 2 * S - 1], region: i32[W, S * S]) {
  bias[h, m: S * S, n: S * S] = table[h, m // S - n // S + (S - 1), m % S - n % S + (S - 1)]
  score[i, w, h, m, n]  = sum[d](q[i, w, h, m, d] * k[i, w, h, n, d]) / sqrt(D) + bias[h, m, n]
  weight[i, w, h, m, n] = softmax[n](score[i, w, h, m, n] where region[w, m] == region[w, n])
  out[i, w, h, m, e]    = sum[n](weight[i, w, h, m, n] * v[i, w, h, n, e])
  return out
}
"""


@pytest.mark.parametrize("side", [1, 2, 3, 5, 7, 12])
def test_shifted_windows(side):
    torch.manual_seed(side)
    pixels = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)
    apart = pixels[:, :, None] - pixels[:, None, :] + side - 1

    def formula(q, k, v, table, region):
        score = q @ k.mT / math.sqrt(q.shape[-1]) + table[:, apart[0], apart[1]]
        other = region[:, :, None] != region[:, None, :]
        return score.masked_fill(other[None, :, None], -torch.inf).softmax(-1) @ v

    def rows(width):
        return normal(2, 3, 2, side * side, width)

    table = normal(2, 2 * side - 1, 2 * side - 1)
    region = torch.randint(0, 3, (3, side * side), dtype=torch.int32)
    compare(SWIN, formula, rows(9), rows(9), rows(8), table, region)


# A table that is read by the distance in a graph, and edges whose heads are side by side (Graphormer).
GRAPH = """
attention graph(q: f32[B, H, M, D], k: f32[B, H, M, D], v: f32[B, H, M, E], distance: i32[B, M, M], table: f32[P, H],
                edge: f32[B, M, M, H]) {
  score[b, h, m, n]  = sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D) + table[distance[b, m, n], h] + edge[b, m, n, h]
  weight[b, h, m, n] = softmax[n](score[b, h, m, n])
  out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h, n, e])
  return out
}
"""


@pytest.mark.parametrize("nodes", [1, 7, 63, 65, 300])
def test_distances_in_a_graph(nodes):
    torch.manual_seed(nodes)

    def formula(q, k, v, distance, table, edge):
        score = q @ k.mT / math.sqrt(q.shape[-1]) + (table[distance.long()] + edge).permute(0, 3, 1, 2)
        return score.softmax(-1) @ v

    distance = torch.randint(0, 9, (2, nodes, nodes), dtype=torch.int32)
    rows = [normal(2, 3, nodes, width) for width in (8, 8, 9)]
    compare(GRAPH, formula, *rows, distance, normal(9, 3), normal(2, nodes, nodes, 3))


# Keys that fade by gates (gated linear attention, Mamba-2): gradients of the gates are products of three matrices.
GATED = """
attention gated(q: f32[B, H, T, D], k: f32[B, H, T, D], v: f32[B, H, T, E], gate: f32[B, H, T]) {
  total[b, h, t]       = sum[s](gate[b, h, s] where s <= t)
  score[b, h, t, s: T] = sum[d](q[b, h, t, d] * k[b, h, s, d])
  out[b, h, t, e]      = sum[s](score[b, h, t, s] * exp(total[b, h, t] - total[b, h, s]) * v[b, h, s, e] where s <= t)
  return out
}
"""


@pytest.mark.parametrize("tokens", [1, 7, 65, 300])
@pytest.mark.parametrize("least, tolerance", [(-0.3, 1e-5), (-1.5, 1e-4)])  # exp of a masked pair, of 225, is infinite
def test_gates(tokens, least, tolerance):
    torch.manual_seed(tokens)

    def formula(q, k, v, gate):
        total = gate.cumsum(-1)
        later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        fade = (total[..., :, None] - total[..., None, :]).masked_fill(later, -torch.inf).exp()
        return (q @ k.mT * fade) @ v

    rows = [normal(2, 3, tokens, width) for width in (8, 8, 9)]
    compare(GATED, formula, *rows, least * torch.rand(2, 3, tokens), tolerance=tolerance)


# Features with places (cosFormer): the norm's gradient has a product of matrices for each of its terms.
COSINE_FEATURES = """
attention features(q: f32[B, H, N, D], k: f32[B, H, N, D], v: f32[B, H, N, E]) {
  qs[b, h, n, d] = max(q[b, h, n, d], 0) * sin(1.5707963 * n / N)
  qc[b, h, n, d] = max(q[b, h, n, d], 0) * cos(1.5707963 * n / N)
  ks[b, h, n, d] = max(k[b, h, n, d], 0) * sin(1.5707963 * n / N)
  kc[b, h, n, d] = max(k[b, h, n, d], 0) * cos(1.5707963 * n / N)
  ss[b, h, d, e] = sum[n](ks[b, h, n, d] * v[b, h, n, e])
  sc[b, h, d, e] = sum[n](kc[b, h, n, d] * v[b, h, n, e])
  zs[b, h, d]    = sum[n](ks[b, h, n, d])
  zc[b, h, d]    = sum[n](kc[b, h, n, d])
  norm[b, h, n]  = sum[d](qs[b, h, n, d] * zs[b, h, d]) + sum[d](qc[b, h, n, d] * zc[b, h, d]) + 1
  out[b, h, n, e] = (sum[d](qs[b, h, n, d] * ss[b, h, d, e]) + sum[d](qc[b, h, n, d] * sc[b, h, d, e])) / norm[b, h, n]
  return out
}
"""


@pytest.mark.parametrize("tokens", [1, 6, 65, 1000])
def test_features_with_places(tokens):
    torch.manual_seed(tokens)

    def formula(q, k, v):
        angle = (1.5707963 * torch.arange(tokens, dtype=torch.float64) / tokens)[:, None]
        q, k = ((each.relu() * angle.sin(), each.relu() * angle.cos()) for each in (q, k))
        total = sum(one @ (other.mT @ v) for one, other in zip(q, k))
        return total / (sum((one * other.sum(2, keepdim=True)).sum(-1, keepdim=True) for one, other in zip(q, k)) + 1)

    compare(COSINE_FEATURES, formula, *[normal(2, 3, tokens, width) for width in (8, 8, 9)])


# Rows and columns that are normalised in turn (Sinkhorn): the sum of a column is the same for all rows.
DOUBLY = """
attention doubly(q: f32[B, H, M, D], k: f32[B, H, N, D], v: f32[B, H, N, E]) {
  x[b, h, m, n]     = exp(sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D))
  row[b, h, m, n]   = x[b, h, m, n] / sum[j](x[b, h, m, j])
  first[b, h, m, n] = row[b, h, m, n] / sum[i](row[b, h, i, n])
  again[b, h, m, n] = first[b, h, m, n] / sum[j](first[b, h, m, j])
  last[b, h, m, n]  = again[b, h, m, n] / sum[i](again[b, h, i, n])
  out[b, h, m, e]   = sum[n](last[b, h, m, n] * v[b, h, n, e])
  return out
}
"""


@pytest.mark.parametrize("queries, keys", [(1, 1), (7, 3), (65, 63), (130, 300)])
def test_doubly_normalised_weights(queries, keys):
    torch.manual_seed(queries)

    def formula(q, k, v):
        x = (q @ k.mT / math.sqrt(q.shape[-1])).exp()
        for _ in range(2):
            x = x / x.sum(-1, keepdim=True)
            x = x / x.sum(-2, keepdim=True)
        return x @ v

    compare(DOUBLY, formula, normal(2, 2, queries, 8), normal(2, 2, keys, 8), normal(2, 2, keys, 9))


# Buckets of distances that the kernel computes (T5): it chooses between integers by comparing query and key.
BUCKETS = """
attention buckets(q: f32[B, H, M, D], k: f32[B, H, M, D], v: f32[B, H, M, E], table: f32[K, H]) {
  distance[m: M, n: M] = abs(m - n)
  far[m, n]    = min(8 + i32(log(max(distance[m, n], 1) / 8.0) / log(16.0) * 8), 15)
  bucket[m, n] = select(distance[m, n] < 8, distance[m, n], far[m, n]) + select(n > m, 16, 0)
  score[b, h, m, n]  = sum[d](q[b, h, m, d] * k[b, h, n, d]) + table[bucket[m, n], h]
  weight[b, h, m, n] = softmax[n](score[b, h, m, n])
  out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h, n, e])
  return out
}
"""


@pytest.mark.parametrize("tokens", [1, 7, 65, 300])
def test_buckets_of_distances(tokens):
    torch.manual_seed(tokens)

    def formula(q, k, v, table):
        apart = torch.arange(tokens)[None, :] - torch.arange(tokens)[:, None]
        distance = apart.abs()
        far = (8 + (torch.log(distance.clamp(min=1).float() / 8) / math.log(16) * 8).long()).clamp(max=15)
        bucket = torch.where(distance < 8, distance, far) + 16 * (apart > 0)
        return (q @ k.mT + table[bucket].permute(2, 0, 1)).softmax(-1) @ v

    rows = [normal(2, 3, tokens, width) for width in (8, 8, 9)]
    compare(BUCKETS, formula, *rows, normal(32, 3))


# Pointwise weights (HSTU): no softmax, but gates of silu, with places of tokens beside the products.
HSTU = """
attention hstu(q: f32[B, H, N, D], k: f32[B, H, N, D], v: f32[B, H, N, E], place: f32[H, N, N]) {
  score[b, h, m: N, n]  = sum[d](q[b, h, m, d] * k[b, h, n, d]) + place[h, m, n]
  gate[b, h, m: N, n]   = sigmoid(score[b, h, m, n])
  weight[b, h, m: N, n] = score[b, h, m, n] * gate[b, h, m, n] / N
  out[b, h, m: N, e]    = sum[n](weight[b, h, m, n] * v[b, h, n, e] where n <= m)
  return out
}
"""


@pytest.mark.parametrize("tokens", [1, 7, 65, 130])
def test_pointwise_weights(tokens):
    torch.manual_seed(tokens)

    def formula(q, k, v, place):
        return (torch.nn.functional.silu(q @ k.mT + place) / tokens).tril() @ v

    compare(HSTU, formula, *(normal(2, 2, tokens, width) for width in (12, 12, 9)), normal(2, tokens, tokens))


# Hierarchical attention networks: words of sentences, sentences of documents; the hidden layers are inside of the scores.
HIERARCHY = """
attention hierarchy(x: f32[B, S, T, D], wt: f32[U, D], ut: f32[U], us: f32[D], words: i32[B, S], sentences: i32[B]) {
  a[b, j: S, t]      = sum[u](ut[u] * tanh(sum[d](wt[u, d] * x[b, j, t, d])))
  weight[b, j: S, t] = softmax[t](a[b, j, t] where t < words[b, j])
  y[b, j: S, d]      = sum[t](weight[b, j, t] * x[b, j, t, d])
  share[b, j: S]     = softmax[j](sum[d](us[d] * tanh(y[b, j, d])) where j < sentences[b])
  out[b, d]          = sum[j: S](share[b, j] * y[b, j, d])
  return out
}
"""


@pytest.mark.parametrize("b, s, t, d, u", [(1, 1, 1, 1, 1), (3, 4, 7, 5, 3), (2, 3, 65, 33, 17)])
def test_hierarchical_attention(b, s, t, d, u):
    torch.manual_seed(t)
    words, sentences = torch.randint(1, t + 1, (b, s), dtype=torch.int32), torch.randint(1, s + 1, (b,), dtype=torch.int32)

    def formula(x, wt, ut, us, words, sentences):
        score = torch.tanh(x @ wt.mT) @ ut
        weight = score.masked_fill(torch.arange(t) >= words[..., None], -torch.inf).softmax(-1)
        y = torch.einsum("bjt,bjtd->bjd", weight, x)
        share = (torch.tanh(y) @ us).masked_fill(torch.arange(s) >= sentences[:, None], -torch.inf).softmax(-1)
        return torch.einsum("bj,bjd->bd", share, y)

    compare(HIERARCHY, formula, normal(b, s, t, d), normal(u, d), normal(u), normal(d), words, sentences)
