"""Numbers that a kernel compares with each other: a score and the greatest of its row, ranks, gradients of maxima."""

import functools

import numpy as np
import pytest

import attn
from formulas import softmax

torch = pytest.importorskip("torch")
compiled = functools.cache(attn.compile)  # for all sizes
SIZES = [(1, 1, 1), (7, 9, 5), (7, 65, 64), (33, 63, 8), (65, 129, 40), (1, 2001, 64)]


def normal(*shapes, seed=0):
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("m, n, d", SIZES)
def test_the_best_key_is_one_of_the_keys(m, n, d):
    kernel = compiled(
        """
        attention hardmax(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {
          s[m, n] = sum[d](q[m, d] * k[n, d]) / sqrt(D)
          t[m]    = max[n](s[m, n])
          w[m, n] = softmax[n](s[m, n] where s[m, n] >= t[m])
          o[m, e] = sum[n](w[m, n] * v[n, e])
          return o
        }"""
    )
    q, k, v = normal((m, d), (n, d), (n, 3))
    np.testing.assert_array_equal(kernel(q, k, v), v[(q.astype(float) @ k.T).argmax(-1)])


@pytest.mark.parametrize("bound, number", [("t[m] - margin", 0.0), ("t[m] * margin + 0", 1.0), ("t[m] / margin", 1.0)])
def test_the_best_key_is_within_any_margin(bound, number):
    kernel = compiled(
        f"""
        attention near(q: f32[M, D], k: f32[N, D], v: f32[N, E], margin: f32) {{
          s[m, n] = sum[d](q[m, d] * k[n, d]) / sqrt(D)
          t[m]    = max[n](s[m, n])
          w[m, n] = softmax[n](s[m, n] where s[m, n] >= {bound})
          o[m, e] = sum[n](w[m, n] * v[n, e])
          return o
        }}"""
    )
    for m, n, d in SIZES:
        q, k, v = map(torch.tensor, normal((m, d), (n, d), (n, 3)))
        best = (q.double() @ k.double().T).argmax(-1)
        v.requires_grad_()
        o = kernel(q, k, v, number)
        o.sum().backward()
        torch.testing.assert_close(o, v[best], rtol=0, atol=0)
        torch.testing.assert_close(v.grad, torch.bincount(best, minlength=n).float()[:, None].expand(n, 3), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("m, n, d", SIZES)
def test_ranks_leave_so_many_keys(m, n, d):
    kernel = compiled(
        """
        attention ranks(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {
          s[m, n]    = sum[d](q[m, d] * k[n, d])
          rank[m, n] = sum[j: N](select(s[m, j] > s[m, n], 1.0, 0.0))
          w[m, n]    = softmax[n](s[m, n] where rank[m, n] < 3)
          o[m, e]    = sum[n](w[m, n] * v[n, e])
          return o, rank
        }"""
    )
    q, k, v = normal((m, d), (n, d), (n, 3))
    o, rank = kernel(q, k, v)
    np.testing.assert_array_equal(np.sort(rank), np.broadcast_to(np.arange(n), (m, n)))
    np.testing.assert_allclose(o, softmax(q @ k.T, rank < 3) @ v, rtol=1e-4, atol=1e-4)


TERMS = {
    "sum[d](q[m, d] * k[n, d])": lambda q, k, c: q @ k.T,
    "sum[d](q[m, d] * k[n, d]) / sqrt(D) + c[n]": lambda q, k, c: q @ k.T / q.shape[-1] ** 0.5 + c,
    "exp(sum[d](q[m, d] * k[n, d]) / D)": lambda q, k, c: torch.exp(q @ k.T / q.shape[-1]),
    "tanh(sum[d](q[m, d] * k[n, d])) * c[n]": lambda q, k, c: torch.tanh(q @ k.T) * c,
    "c[n] * exp(q[m, 0])": lambda q, k, c: c * torch.exp(q[:, :1]),
}


@pytest.mark.parametrize("m, n, d", SIZES)
@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("kind", ["max", "min"])
def test_gradients_of_extremes_of_what_is_computed(kind, term, m, n, d):
    """Each row's gradient goes to one key: none is lost because two loops round a score differently."""
    kernel = compiled(
        f"attention best(q: f32[M, D], k: f32[N, D], c: f32[N]) {{\n b[m] = {kind}[n]({term})\n return b\n}}"
    )
    inputs = [torch.from_numpy(array).requires_grad_() for array in normal((m, d), (n, d), (n,))]
    weight = torch.from_numpy(normal((m,), seed=1)[0])
    (kernel(*inputs) * weight).sum().backward()
    gradients = [each.grad.clone() for each in inputs]
    doubles = [each.detach().double().requires_grad_() for each in inputs]
    extreme = getattr(TERMS[term](*doubles), "amax" if kind == "max" else "amin")(-1)
    expected = torch.autograd.grad((extreme * weight).sum(), doubles, allow_unused=True)
    for gradient, want in zip(gradients, expected):
        want = torch.zeros_like(gradient) if want is None else want.float()
        torch.testing.assert_close(gradient, want, rtol=1e-4, atol=1e-5 * max(1.0, want.abs().max().item()))


def test_gradients_of_the_greatest_weight():
    kernel = compiled(
        """
        attention peak(q: f32[M, D], k: f32[N, D]) {
          w[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]) / sqrt(D))
          p[m]    = max[n](w[m, n])
          return p
        }"""
    )
    inputs = [torch.from_numpy(array).requires_grad_() for array in normal((33, 16), (63, 16))]
    kernel(*inputs).sum().backward()
    q, k = (each.detach().double().requires_grad_() for each in inputs)
    expected = torch.autograd.grad(torch.softmax(q @ k.T / 4, -1).amax(-1).sum(), (q, k))
    for each, want in zip(inputs, expected):
        torch.testing.assert_close(each.grad, want.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("outer, inner", [("max", "max"), ("min", "max"), ("max", "min")])
def test_gradients_of_extremes_of_extremes(outer, inner):
    kernel = compiled(f"attention f(p: f32[N], q: f32[E]) {{\n x = {outer}[e]({inner}[n](p[n] * q[e]))\n return x\n}}")
    for n, e in ((1, 1), (7, 5), (65, 33)):
        p, q = (torch.tensor(x).requires_grad_() for x in normal((n,), (e,)))
        (p.grad, q.grad) = torch.autograd.grad(kernel(p, q), (p, q))
        products = p.detach()[:, None] * q.detach()
        within = getattr(products, f"a{inner}")(0)
        at = getattr(torch, f"arg{outer}")(within)
        row = getattr(torch, f"arg{inner}")(products[:, at])
        torch.testing.assert_close(p.grad, torch.zeros(n).index_fill_(0, row, q[at].item()))
        torch.testing.assert_close(q.grad, torch.zeros(e).index_fill_(0, at, p[row].item()))
