"""Attentions that take what another one gives: as queries, keys, values or a bias. Their gradients are PyTorch's."""

import functools

import numpy as np
import pytest

import attn

torch = pytest.importorskip("torch")

compiled = functools.cache(attn.compile)  # for all sizes


def attend(q, k, v, bias=0.0):
    return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias, -1) @ v


FIRST = """
  w[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]) / sqrt(D))
  o[m, d] = sum[n](w[m, n] * v[n, d])
"""
SECOND = """
  u[i, j]   = softmax[j](sum[d]({query} * {key}) / sqrt(D){bias})
  out[i, d] = sum[j](u[i, j] * {value})
"""
READS = dict(query="x[i, d]", key="y[j, d]", value="z[j, d]", bias="")
# What the second attention reads of the first one's output, and the sizes of x and of y, z that go with that.
CHAINS = {
    "queries": (dict(query="o[i, d]"), "M", "J", lambda o, x, y, z: attend(o, y, z)),
    "keys": (dict(key="o[j, d]"), "I", "M", lambda o, x, y, z: attend(x, o, z)),
    "values": (dict(value="o[j, d]"), "I", "M", lambda o, x, y, z: attend(x, y, o)),
    "keys and values": (dict(key="o[j, d]", value="o[j, d]"), "I", "M", lambda o, x, y, z: attend(x, o, o)),
    "everything": (dict(query="o[i, d]", key="o[j, d]", value="o[j, d]"), "M", "M", lambda o, x, y, z: attend(o, o, o)),
    "bias": (dict(bias=" + o[j, 0]"), "I", "M", lambda o, x, y, z: attend(x, y, z, o[:, 0])),
}


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (7, 9, 5, 11), (65, 63, 16, 33), (130, 257, 8, 7)])
@pytest.mark.parametrize("chain", CHAINS)
def test_gradients(chain, sizes):
    reads, rows, keys, second = CHAINS[chain]
    m, n, d, other = sizes
    sizes_of = {"M": m, "I": other, "J": other}
    x, y = f"x: f32[{rows}, D]", f"y: f32[{keys}, D], z: f32[{keys}, D]"
    body = FIRST + SECOND.format(**{**READS, **reads}).replace("[i, j]", f"[i: {rows}, j: {keys}]", 1)
    text = f"attention chain(q: f32[M, D], k: f32[N, D], v: f32[N, D], {x}, {y}) {{{body}  return out\n}}"
    random = np.random.default_rng(m)
    shapes = [(m, d), (n, d), (n, d), (sizes_of[rows], d), (sizes_of[keys], d), (sizes_of[keys], d)]
    inputs = [torch.from_numpy(random.standard_normal(shape)).requires_grad_() for shape in shapes]
    expected = second(attend(*inputs[:3]), *inputs[3:])
    weight = torch.from_numpy(random.standard_normal(expected.shape))
    wanted = torch.autograd.grad((expected * weight).sum(), inputs, allow_unused=True)
    singles = [each.detach().float().requires_grad_() for each in inputs]
    out = compiled(text)(*singles)
    torch.testing.assert_close(out, expected.float(), rtol=1e-4, atol=1e-5)
    (out * weight.float()).sum().backward()
    for single, want in zip(singles, wanted):
        want = torch.zeros_like(single) if want is None else want.float()
        torch.testing.assert_close(single.grad, want, rtol=1e-3, atol=2e-5 * max(1.0, want.abs().max().item()))


def test_two_way_attention():
    """Each side reads the other, and then itself as it became."""
    text = """
      attention two_way(a: f32[M, D], b: f32[N, D]) {
        s[m, n]   = sum[d](a[m, d] * b[n, d]) / sqrt(D)
        to[m, d]  = sum[n](softmax[n](s[m, n]) * b[n, d])
        fro[n, d] = sum[m](softmax[m](s[m, n]) * a[m, d])
        t[m, n]   = softmax[n](sum[d](to[m, d] * fro[n, d]) / sqrt(D))
        out[m, d] = sum[n](t[m, n] * fro[n, d])
        return out
      }"""
    random = np.random.default_rng(5)
    a, b = (torch.from_numpy(random.standard_normal((rows, 8))).requires_grad_() for rows in (33, 19))
    to, fro = attend(a, b, b), attend(b, a, a)
    expected = attend(to, fro, fro)
    wanted = torch.autograd.grad(expected.square().sum(), (a, b))
    singles = [each.detach().float().requires_grad_() for each in (a, b)]
    attn.compile(text)(*singles).square().sum().backward()
    for single, want in zip(singles, wanted):
        torch.testing.assert_close(single.grad, want.float(), rtol=1e-3, atol=1e-4)
