"""Gradients of maxima and log-sum-exps, also of scores that a softmax has too, against PyTorch in f64."""

import pytest

import attn

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("queries", [1, 20, 150])  # split, narrow and wide tiles
def test_rows_of_weights_in_another_order_than_those_of_the_sum(queries):
    """The log-sum-exp is stored with the sum, in its own order."""
    source = """attention rows(q: f32[B, M, H, D], k: f32[N, B, H, D], v: f32[B, N, H, E]) {
        weight[b, h, m, n] = softmax[n](sum[d](q[b, m, h, d] * k[n, b, h, d]))
        out[m, b, h, e]    = sum[n](weight[b, h, m, n] * v[b, n, h, e])
        lse[h, m, b]       = logsumexp[n](sum[d](q[b, m, h, d] * k[n, b, h, d]))
        return out, lse }"""
    kernel = attn.compile(source.replace("f32", "f64"), lazy=True)
    assert "w_logsumexp" not in kernel.grad()[0].emit("plan")
    shapes = (2, queries, 3, 5), (33, 2, 3, 5), (2, 33, 3, 7)
    q, k, v = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    score = torch.einsum("bmhd,nbhd->bhmn", q, k)
    expected = torch.einsum("bhmn,bnhe->mbhe", score.softmax(-1), v), score.logsumexp(-1).permute(1, 2, 0)
    for found, wanted in zip(kernel(q, k, v), expected):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert_gradients_are_those_of(source, (q, k, v), expected)


def test_a_log_sum_exp_over_fewer_indices_than_a_softmax_of_the_same_scores():
    """They were taken for one: the gradient of `lse` was asked for as a scalar."""
    source = """attention both(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {
        score[m, n]  = sum[d](q[m, d] * k[n, d])
        weight[m, n] = softmax[m, n](score[m, n])
        out[m, e]    = sum[n](weight[m, n] * v[n, e])
        lse[m]       = logsumexp[n](score[m, n])
        return out, lse }"""
    q, k, v = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((5, 3), (7, 3), (7, 2)))
    score = q @ k.T
    expected = (score.flatten().softmax(0).view(5, 7) @ v, score.logsumexp(1))
    assert_gradients_are_those_of(source, (q, k, v), expected)


@pytest.mark.parametrize("extreme", ["max", "min"])
@pytest.mark.parametrize("mask", ["", " where n <= m + 2"])
def test_a_maximum_beside_a_softmax_of_the_same_scores(extreme, mask):
    """Its part of the scores' gradient was lost."""
    source = f"""attention both(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {{
        weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]))
        out[m, e]    = sum[n](weight[m, n] * v[n, e])
        most[m]      = {extreme}[n](sum[d](q[m, d] * k[n, d]){mask})
        return out, most }}"""
    q, k, v = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((5, 3), (7, 3), (7, 2)))
    score = q @ k.T
    left_out = torch.arange(7) > torch.arange(5)[:, None] + (2 if mask else 9)
    worst = -torch.inf if extreme == "max" else torch.inf
    most = getattr(score.masked_fill(left_out, worst), f"a{extreme}")(1)
    assert_gradients_are_those_of(source, (q, k, v), (score.softmax(1) @ v, most))


def test_equal_terms_of_a_maximum_share_its_gradient():
    source = """attention pooled(k: f32[N, E], row: i32[L]) {
        out[e]   = max[n](k[n, e])
        twice[e] = max[l](k[row[l], e])
        return out, twice }"""
    k = torch.tensor([[1.0, 2.0], [1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    row = torch.tensor([3, 0, 3], dtype=torch.int32)
    assert_gradients_are_those_of(source, (k, row), (k.amax(0), k[row.long()].amax(0)))


def test_a_minimum_within_the_scores_of_a_log_sum_exp():
    """What its terms are compared with was read before it was there."""
    source = """attention lowest(q: f32[M, D], k: f32[N, D]) {
        term[m, n] = sigmoid(sum[d](q[m, d] * k[n, d]))
        lse[m]     = logsumexp[n](sigmoid(min[j](term[m, j] where j >= n)) where n <= m + 2)
        return lse }"""
    q, k = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((5, 3), (7, 3)))
    lowest = (q @ k.T).sigmoid().flip(1).cummin(1).values.flip(1).sigmoid()
    left_out = torch.arange(7) > torch.arange(5)[:, None] + 2
    assert_gradients_are_those_of(source, (q, k), lowest.masked_fill(left_out, -torch.inf).logsumexp(1))


def test_a_softmax_over_two_indices_within_a_formula():
    """It had no gradient: only one that is a statement had."""
    source = """attention whole(x: f32[B, M, N], factor: f32[M]) {
        weight[b, m, n] = softmax[m, n](x[b, m, n] where n <= m + 2) * factor[m] + 1.0
        return weight }"""
    x, factor = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((3, 5, 7), (5,)))
    left_out = torch.arange(7) > torch.arange(5)[:, None] + 2
    weight = x.masked_fill(left_out, -torch.inf).flatten(1).softmax(1).view(3, 5, 7)
    assert_gradients_are_those_of(source, (x, factor), weight * factor[:, None] + 1)


def assert_gradients_are_those_of(source, inputs, expected):
    """In f64, for random gradients of the outputs."""
    outputs = attn.compile(source.replace("f32", "f64"), lazy=True)(*inputs)
    outputs, expected = (each if isinstance(each, tuple) else (each,) for each in (outputs, expected))
    weights = [torch.randn_like(each) for each in outputs]
    learned = [each for each in inputs if each.requires_grad]
    found, wanted = (torch.autograd.grad(each, learned, weights) for each in (outputs, expected))
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reduction, output", [("softmax", "sum[n](a[h, m, n] * v[n, e])"), ("logsumexp", "a[h, m] * v[m, e]")])
def test_a_sink_is_learned_where_the_scores_are_constants(reduction, output):
    """Its gradient was 0: it was looked for beside that of the scores."""
    keys = ", n" if reduction == "softmax" else ""
    source = f"""attention sunk(sink: f64[H], v: f64[N, E]) {{
        a[h, m: N{keys}] = {reduction}[n: N](-0.5 * abs(f64(m - n)), sink = sink[h])
        out[h, m: N, e] = {output}
        return out }}"""
    sink, v = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((3,), (6, 2)))
    at = torch.arange(6, dtype=torch.float64)
    scores = torch.cat([(-0.5 * (at[:, None] - at).abs()).expand(3, 6, 6), sink[:, None, None].expand(3, 6, 1)], 2)
    expected = scores.softmax(2)[:, :, :-1] @ v if keys else scores.logsumexp(2)[:, :, None] * v
    assert_gradients_are_those_of(source, (sink, v), (expected,))


def test_a_logarithm_of_the_weights_of_a_whole_kernel():
    """A log-sum-exp without rows, whose score is made of weights, is one of no tensor of the forward kernel."""
    kernel = attn.compile("""
        attention whole(x: f32[M, N]) {
          total = logsumexp[m, n](softmax[m](x[m, n]))
          return total
        }""")
    x = torch.randn(7, 5, requires_grad=True)
    kernel(x).backward()
    exact = x.detach().double().requires_grad_()
    torch.logsumexp(torch.softmax(exact, 0).flatten(), 0).backward()
    torch.testing.assert_close(x.grad, exact.grad.float())


def test_scores_that_are_a_logarithm_of_a_sum():
    """What the forward pass saves of the weights has a name that nothing else of it has."""
    kernel = attn.compile("""
        attention nested(x: f32[M, N, E]) {
          w[m, n] = softmax[n](logsumexp[e](x[m, n, e]))
          return w
        }""")
    x, gradient = torch.randn(3, 5, 4, requires_grad=True), torch.randn(3, 5)
    (kernel(x) * gradient).sum().backward()
    exact = x.detach().double().requires_grad_()
    (torch.softmax(torch.logsumexp(exact, -1), -1) * gradient).sum().backward()
    torch.testing.assert_close(x.grad, exact.grad.float())


def test_sinks_that_are_sums():
    kernel = attn.compile("""
        attention sinks(q: f32[M, D], k: f32[N, D], v: f32[N, E], s: f32[D]) {
          w[m, n]   = softmax[n](sum[d](q[m, d] * k[n, d]), sink = sum[d](q[m, d] * s[d]))
          out[m, e] = sum[n](w[m, n] * v[n, e])
          return out
        }""")
    for m, n in ((1, 1), (1, 33), (7, 5), (65, 63), (600, 20)):
        given = [torch.randn(*shape) / 2 for shape in ((m, 8), (n, 8), (n, 5), (8,))]
        found, exact = [x.requires_grad_() for x in given], [x.detach().double().requires_grad_() for x in given]
        q, k, v, s = exact
        expected = torch.softmax(torch.cat([q @ k.T, (q @ s)[:, None]], 1), 1)[:, :-1] @ v
        out, gradient = kernel(*found), torch.randn(m, 5)
        torch.testing.assert_close(out, expected.float(), rtol=1e-5, atol=2e-6)
        (out * gradient).sum().backward()
        (expected * gradient).sum().backward()
        for single, double in zip(found, exact):
            wanted = double.grad.float()
            torch.testing.assert_close(single.grad, wanted, rtol=1e-4, atol=4e-6 * max(1, wanted.abs().max().item()))
