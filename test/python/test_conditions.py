"""Conditions that are made with reductions, or decide between formulas of products, and their gradients."""

import numpy as np
import pytest

import attn


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


@pytest.mark.parametrize("size", [1, 7, 33, 70])
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_a_condition_that_is_a_reduction_for_each_term(kind, size):
    """Its inner sum was one for all lanes of a vector of terms: an internal error."""
    kernel = attn.compile(
        f"""attention chosen(q: f32[M, D], t: f32[D, I]) {{
          out[m] = {kind}[d](q[m, d] where sum[i](t[d, i]) > 0.2)
          return out }}"""
    )
    for queries in (1, 20):
        arguments = normal(queries, size), normal(size, 5)
        np.testing.assert_allclose(kernel(*arguments), kernel.reference(*arguments), rtol=0, atol=4e-6)


@pytest.mark.parametrize("queries", [1, 20, 150])  # split, narrow and wide tiles
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("passes", [True, False])
def test_a_condition_that_is_one_for_all_terms_of_a_score(kind, queries, passes):
    """Where it is false no score was written, and each was read."""
    kernel = attn.compile(
        f"""attention flagged(q: f32[M, D], k: f32[N, D], v: f32[N, E], limit: f32) {{
          score[m, n]  = {kind}[d](q[m, d] * k[n, d] where limit > 0.5)
          weight[m, n] = sigmoid(score[m, n])
          out[m, e]    = sum[n](weight[m, n] * v[n, e])
          return out }}"""
    )
    arguments = normal(queries, 7), normal(33, 7), normal(33, 9), float(passes)
    np.testing.assert_allclose(kernel(*arguments), kernel.reference(*arguments), rtol=0, atol=2e-5)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_softmax_over_two_indices_of_which_one_has_a_sum(rows):
    """The sum was looked for outside of the loop over its index: an internal error."""
    kernel = attn.compile(
        """attention both(q: f32[B, N], a: f32[M], v: f32[M, E]) {
          weight[b, m] = softmax[b, m](sum[n](q[b, n]) + a[m])
          out[b, e]    = sum[m](weight[b, m] * v[m, e])
          return out, weight }"""
    )
    arguments = normal(rows, 5), normal(33), normal(33, 9)
    for found, expected in zip(kernel(*arguments), kernel.reference(*arguments)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=4e-6)


@pytest.mark.parametrize("queries", [1, 20, 150])  # split, narrow and wide tiles
def test_gradients_of_a_choice_within_a_choice(queries):
    """Halide had no bounds of a comparison of floats within other conditions, and failed."""
    torch = pytest.importorskip("torch")
    kernel = attn.compile(
        """attention kept(q: f64[M, D], k: f64[N, D], v: f64[N, E], keep: bool[N]) {
          dot[m, n]    = sum[d](q[m, d] * k[n, d])
          weight[m, n] = relu(select(keep[n], dot[m, n], 0))
          out[m, e]    = sum[n](weight[m, n] * v[n, e])
          return out }"""
    )
    q, k, v = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((queries, 5), (33, 5), (33, 9)))
    keep = torch.arange(33) % 3 != 1
    expected = (q @ k.T).where(keep, 0).relu() @ v
    weights = torch.randn_like(expected)
    found, wanted = (torch.autograd.grad(each, (q, k, v), weights) for each in (kernel(q, k, v, keep), expected))
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_gradients_of_choices_in_scores_visit_the_keys_of_the_mask():
    """The gradient of a slope of 1 or 0.2 is a choice between 0 and the masked one, and was taken for one without a mask."""
    torch = pytest.importorskip("torch")
    kernel = attn.compile(
        """attention edges(x: f64[N, H, D], a: f64[H, D], b: f64[H, D], source: i32[X], start: i32[N + 1]) {
          to[n, h]            = sum[d](x[n, h, d] * a[h, d])
          from[n, h]          = sum[d](x[n, h, d] * b[h, d])
          sum_[h, m: N, e: X] = to[m, h] + from[source[e], h]
          weight[h, m: N, e]  = softmax[e](max(sum_[h, m, e], 0.2 * sum_[h, m, e]) where start[m] <= e and e < start[m + 1])
          out[m, h, d]        = sum[e](weight[h, m, e] * x[source[e], h, d])
          return out }"""
    )
    plan = kernel.grad()[1].emit("plan")
    assert plan.count("visited start[m] <= e < start[m + 1]") == plan.count(" stored") == 2
    x, a, b = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((30, 2, 5), (2, 5), (2, 5)))
    source, start = torch.randint(0, 30, (90,), dtype=torch.int32), torch.arange(0, 91, 3, dtype=torch.int32)

    def formula(x, a, b):
        to, source_of = (x * a).sum(-1), x[source.long()]
        score = torch.nn.functional.leaky_relu(to.repeat_interleave(3, 0) + (source_of * b).sum(-1), 0.2)
        weight = score.view(30, 3, 2).softmax(1)
        return (weight[..., None] * source_of.view(30, 3, 2, 5)).sum(1)

    weights = torch.randn(30, 2, 5, dtype=torch.float64)
    outputs = kernel(x, a, b, source, start), formula(x, a, b)
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)
    for found, wanted in zip(*(torch.autograd.grad(each, (x, a, b), weights) for each in outputs)):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-11)


def test_gradients_of_an_output_that_is_wider_than_what_it_is_computed_in():
    torch = pytest.importorskip("torch")
    kernel = attn.compile(
        """attention halved(x: f32[N], y: f32[N]) {
          wide[n]: f64 = x[n] * 0.5
          out[n]       = wide[n] * y[n]
          return wide, out }"""
    )
    x, y, of_wide, of_out = (torch.from_numpy(normal(5 + shift)[:5]) for shift in range(4))
    x.requires_grad_(), y.requires_grad_()
    wide, out = kernel(x, y)
    assert wide.dtype == torch.float64
    by_x, by_y = torch.autograd.grad((wide, out), (x, y), (of_wide.double(), of_out))
    torch.testing.assert_close(by_x, 0.5 * of_wide + 0.5 * y.detach() * of_out)
    torch.testing.assert_close(by_y, 0.5 * x.detach() * of_out)
