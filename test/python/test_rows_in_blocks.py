"""Backward passes whose pairs are in several blocks of rows, and that compute something for each row of a block between them.

A block has room for 3.4 MB of pairs (lib/Runtime/BlockCounts.c): 3000 rows of 128 are two or more.
"""

import pytest

import attn

torch = pytest.importorskip("torch")

ROWS = {
    "n[m] = sum[r](a[m, r] ** 2)": lambda a: (a**2).sum(-1, keepdim=True),
    "n[m] = max[r](a[m, r])": lambda a: a.amax(-1, keepdim=True),
    "n[m] = min[r](a[m, r]) + 1": lambda a: a.amin(-1, keepdim=True) + 1,
    "n[m] = logsumexp[r](a[m, r])": lambda a: torch.logsumexp(a, -1, keepdim=True),
}


def assert_gradients(kernel, formula, tensors, least=0.0):
    tensors = [tensor.requires_grad_() for tensor in tensors]
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    kernel(*tensors).sum().backward()
    formula(*exact).sum().backward()
    for single, double in zip(tensors, exact):
        wanted = double.grad.float()
        torch.testing.assert_close(single.grad, wanted, rtol=1e-4, atol=5e-6 * max(wanted.abs().max().item(), least))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_between_pairs(row):
    kernel = attn.compile(f"""
    attention features(q: f32[M, D], w: f32[R, D], z: f32[R]) {{
      a[m, r] = sum[d](w[r, d] * q[m, d])
      {row}
      f[m, r] = exp(a[m, r] - n[m])
      out[m] = sum[r](f[m, r] * z[r])
      return out
    }}""")

    def formula(q, w, z):
        a = q @ w.T
        return (a - ROWS[row](a)).exp() @ z

    for rows in (1, 1700, 3000, 8192):
        torch.manual_seed(rows)
        assert_gradients(kernel, formula, [torch.randn(rows, 4) / 8, torch.randn(128, 4), torch.rand(128) + 0.1])


def test_heads_and_rows():
    """Blocks within the heads and the batch: of features that are made positive by the largest of each row."""
    kernel = attn.compile("""
    attention performer(q: f32[B, H, M, D], k: f32[B, H, N, D], v: f32[B, H, N, E], w: f32[R, D]) {
      a[b, h, m, r]  = sum[d](w[r, d] * q[b, h, m, d]) - sum[d](q[b, h, m, d] ** 2) / 2
      fq[b, h, m, r] = exp(a[b, h, m, r] - max[s: R](a[b, h, m, s]))
      c[b, h, n, r]  = sum[d](w[r, d] * k[b, h, n, d]) - sum[d](k[b, h, n, d] ** 2) / 2
      fk[b, h, n, r] = exp(c[b, h, n, r] - max[s: R](c[b, h, n, s]))
      state[b, h, r, e] = sum[n](fk[b, h, n, r] * v[b, h, n, e])
      total[b, h, r]    = sum[n](fk[b, h, n, r])
      out[b, h, m, e]   = sum[r](fq[b, h, m, r] * state[b, h, r, e]) / sum[r](fq[b, h, m, r] * total[b, h, r])
      return out
    }""")

    def features(x, w):
        a = x @ w.T - (x**2).sum(-1, keepdim=True) / 2
        return (a - a.amax(-1, keepdim=True)).exp()

    def formula(q, k, v, w):
        fq, fk = features(q, w), features(k, w)
        return fq @ (fk.transpose(-1, -2) @ v) / (fq @ fk.sum(-2)[..., None])

    torch.manual_seed(0)
    tensors = [torch.randn(2, 3, 700, 8) / 2, torch.randn(2, 3, 900, 8) / 2, torch.randn(2, 3, 900, 8), torch.randn(96, 8)]
    assert_gradients(kernel, formula, tensors)


@pytest.mark.parametrize("tokens", [7, 64, 256, 300])
def test_a_row_that_reads_the_one_before(tokens):
    """The row before may be of the block before, whose numbers are gone."""
    kernel = attn.compile("""attention shifted(q: f32[H, N, J], k: f32[H, N, J], v: f32[H, N, J], mix: f32[H, H]) {
      w[h, m: N, n: N]  = softmax[n](sum[j](q[h, m, j] * k[h, n, j]))
      w2[g: H, m: N, n: N] = sum[h](mix[g, h] * w[h, m, n])
      w3[g: H, m: N, n: N] = w2[g, m, n] + w2[g, m - 1, n]
      out[g: H, m: N, j]   = sum[n: N](w3[g, m, n] * v[g, n, j])
      return out
    }""")

    def formula(q, k, v, mix):
        w = torch.einsum("gh,hmn->gmn", mix, torch.softmax(q @ k.transpose(-1, -2), -1))
        return (w + w[:, (torch.arange(tokens) - 1).clamp(0)]) @ v

    torch.manual_seed(tokens)
    assert_gradients(kernel, formula, [torch.randn(4, tokens, 32) / 4 for _ in range(3)] + [torch.randn(4, 4)])


MASKS = {
    "n <= m": lambda m, n, last: n <= m,
    "abs(m - n) < 5": lambda m, n, last: (m - n).abs() < 5,
    "n < last[h]": lambda m, n, last: n < last,
    "n <= m and n >= last[h]": lambda m, n, last: (n <= m) & (n >= last),
    "n >= m + 150": lambda m, n, last: n >= m + 150,
    "m >= 0": lambda m, n, last: m + n >= 0,
}


@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask):
    """Blocks have as many rows as the keys that these need allow, and then some of the keys; some rows need none."""
    kernel = attn.compile(f"""attention masked(q: f32[H, M, D], k: f32[H, N, D], v: f32[H, N, E], last: i32[H]) {{
      score[h, m, n] = sum[d](q[h, m, d] * k[h, n, d])
      out[h, m, e]   = sum[n](softmax[n](score[h, m, n] where {mask}) * v[h, n, e])
      return out
    }}""")
    for queries, keys in ((1, 1), (63, 63), (128, 128), (130, 130), (401, 401), (1025, 1025), (7, 9001), (230, 9001)):
        torch.manual_seed(queries)
        last = torch.tensor([keys // 3, 0, keys], dtype=torch.int32)
        kept = MASKS[mask](torch.arange(queries)[:, None], torch.arange(keys), last[:, None, None]).expand(3, queries, keys)

        def formula(q, k, v):
            score = (q @ k.transpose(-1, -2)).masked_fill(~kept, -torch.inf)
            return torch.softmax(score, -1).nan_to_num() @ v

        tensors = [torch.randn(3, tokens, 9) / 2 for tokens in (queries, keys, keys)]
        assert_gradients(lambda q, k, v: kernel(q, k, v, last), formula, tensors, least=0.1)  # of one key, 0


def group_sums(weight, heads):
    """Of the heads of each of two groups; those that are left over belong to none."""
    group = heads // 2
    return torch.stack([weight[:, number * group : (number + 1) * group].sum(1) for number in range(2)], 1)


def sums_of_neighbours(weight, heads):
    """Of the heads before, at, and after each head, the first and the last of which are their own neighbours."""
    return sum(weight[:, (torch.arange(heads) + shift).clamp(0, heads - 1)] for shift in (-1, 0, 1))


#: Sums of weights of other heads, whose gradients come from outside of a block of heads.
OF_OTHER_HEADS = {
    "group": ("more[b, g: 2, m, n: N] = sum[r: H // 2](weight[b, g * (H // 2) + r, m, n])", group_sums),
    "neighbours": ("more[b, h: H, m, n: N] = sum[r: 3](weight[b, h + r - 1, m, n])", sums_of_neighbours),
}


@pytest.mark.parametrize("name", OF_OTHER_HEADS)
def test_weights_of_other_heads(name):
    statement, of_heads = OF_OTHER_HEADS[name]
    kernel = attn.compile(f"""
    attention importance(q: f32[B, H, M, D], k: f32[B, H, N, D], v: f32[B, H, N, E]) {{
      weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D))
      out[b, h, m, e] = sum[n](weight[b, h, m, n] * v[b, h, n, e])
      {statement}
      return out, more
    }}""")
    torch.manual_seed(0)
    for heads, M, N in ((1, 3, 5), (4, 7, 5), (5, 65, 63), (5, 700, 300)):
        tensors = [torch.randn(2, heads, rows, 8) for rows in (M, N, N)]
        gradient = [torch.randn(2, heads, M, 8), torch.randn(2, 2 if name == "group" else heads, M, N)]

        def loss(out, more):
            return (out * gradient[0]).sum() + (more * gradient[1]).sum()

        def formula(q, k, v):
            weight = torch.softmax(q @ k.mT / 8**0.5, -1)
            return loss(weight @ v, of_heads(weight, heads))

        assert_gradients(lambda *tensors: loss(*kernel(*tensors)), formula, tensors)


def test_more_than_two_billion_pairs():
    """Their numbers are beyond 32 bits, though none is in a block."""
    kernel = attn.compile("""attention plain(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {
      out[m, e] = sum[n](softmax[n](sum[d](q[m, d] * k[n, d])) * v[n, e])
      return out
    }""")
    tokens = 46400
    torch.manual_seed(0)
    q, k, v, grad_out = (torch.randn(tokens, 1) for _ in range(4))
    q[:] = 0  # all weights are 1 / N
    for tensor in (q, k, v):
        tensor.requires_grad_()
    kernel(q, k, v).backward(grad_out)
    covariance = (k.detach() * (v.detach() - v.detach().mean())).mean()
    torch.testing.assert_close(q.grad, grad_out * covariance, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(v.grad, grad_out.mean().expand_as(v), rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(k.grad, torch.zeros_like(k), rtol=0, atol=1e-8)


def test_weights_whose_key_is_not_the_last_index():
    """Attention without dot products (AFT): its weights have a column as well, and none of them is stored."""
    kernel = attn.compile("""
    attention aft(q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, D], w: f32[M, N]) {
      weight[b, m, n, d] = softmax[n](k[b, n, d] + w[m, n])
      out[b, m, d] = sigmoid(q[b, m, d]) * sum[n](weight[b, m, n, d] * v[b, n, d])
      return out
    }""")
    backward = kernel.grad()[1]
    assert "weight_again stored" in backward.emit("plan") and "weight" not in [each.name for each in backward.inputs]

    def formula(q, k, v, w):
        weight = torch.softmax(k[:, None] + w[None, :, :, None], 2)
        return torch.sigmoid(q) * (weight * v[:, None]).sum(2)

    torch.manual_seed(0)
    for batch, M, N, D in ((1, 1, 1, 1), (2, 7, 5, 3), (2, 65, 63, 40), (3, 300, 200, 16)):
        tensors = [torch.randn(batch, M, D), torch.randn(batch, N, D), torch.randn(batch, N, D), torch.randn(M, N)]
        assert_gradients(kernel, formula, tensors, least=0.1)


def test_a_pair_within_a_sum():
    """Both factors of a term are read from one tensor, one of them at other places: neither is the sum's own pair."""
    kernel = attn.compile("""
    attention inside(p: f32[B], a: f32[M], b: f32[N]) {
      t[i: B, d: M, n: N] = p[i]
      x[n: N, i: B] = relu(sum[d: M](t[i, d, n] * t[2 * i, 2 * i + 1, d % 2]))
      return x
    }""")
    p, gradient, i = torch.randn(5, requires_grad=True), torch.randn(3, 5), torch.arange(5)
    (kernel(p, torch.randn(4), torch.randn(3)) * gradient).sum().backward()
    exact = p.detach().double().requires_grad_()
    (torch.relu(4 * exact * exact[(2 * i).clamp(max=4)]) * gradient).sum().backward()
    torch.testing.assert_close(p.grad, exact.grad.float())
