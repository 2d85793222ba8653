"""Sums whose terms have places that numbers say (attn-place): segments, histograms, tables, copied words."""

import attn
import numpy as np
import pytest
from oracle.memory import beside_unreadable_memory

SIZES = [dict(B=2, N=63, T=7, D=5), dict(B=1, N=1, T=65, D=1), dict(B=3, N=200, T=1, D=33), dict(B=2, N=0, T=5, D=3), dict(B=2, N=5, T=0, D=3)]
CASES = {
    "segments": "y[b, t: T, d] = sum[n](x[b, n, d] where id[b, n] == t)",
    "a formula around": "y[b, t: T, d] = x[b, 0, d] - 2.0 * sum[n](x[b, n, d] * p[b, n] where t == id[b, n] and n % 3 != 1)",
    "in the last dimension": "y[b, d, t: T] = sum[n](x[b, n, d] * p[b, n] where id[b, n] == t) + z[t]",
    "two numbers": "y[b, t: T, s: T] = sum[n](p[b, n] where id[b, n] == t and id[0, n] + 1 == s)",
    "a number of each pair": "y[b, n, t: T] = sum[d](x[b, n, d] where pair[n, d] - 1 == t)",
    "a number of each lane": "y[t: T, n] = sum[d](x[0, n, d] * p[0, n] where pair[n, d] == t)",
    "a table": "y[b, n, d: T] = sum[t: T](z[t] * p[b, n] where id[b, n] == t)",
    "a part of a table": "y[b, n, s: T] = sum[t: T](z[t] + z[s] where id[b, n] == t and t <= s)",
    "weights": "w[b, d, n] = softmax[n](x[b, n, d])\n  y[b, d, t: T] = sum[n](w[b, d, n] where id[b, n] == t)",
    "weights at a number": "w[b, n, t: T] = softmax[t](z[t] * p[b, n])\n  y[b, n] = sum[t: T](w[b, n, t] where id[b, n] == t)",
}
HEAD = "attention f(x: {t}[B, N, D], p: {t}[B, N], z: {t}[T], id: i32[B, N], pair: i32[N, D]) {{\n  {text}\n  return y\n}}\n"
TOLERANCE = {"f32": 2e-6, "f16": 2e-3}


def draw(sizes, dtype):
    """Numbers of which some are outside, by one and by far."""
    random = np.random.default_rng(7)
    B, N, T, D = (sizes[name] for name in "BNTD")
    floats = {"x": (B, N, D), "p": (B, N), "z": (T,)}
    arguments = {name: random.standard_normal(shape).astype(dtype) for name, shape in floats.items()}
    for name, shape in {"id": (B, N), "pair": (N, D)}.items():
        numbers = random.integers(-1, T + 2, shape)
        arguments[name] = np.where(random.random(shape) < 0.1, random.choice([-(2**31), 2**31 - 1], shape), numbers).astype("i4")
    return arguments


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_the_reference(case, dtype):
    kernel = attn.compile(HEAD.format(t=dtype, text=CASES[case]))
    for sizes in SIZES:
        arguments = draw(sizes, {"f32": "f4", "f16": "f2"}[dtype])
        if "x[b, 0, d]" in CASES[case] and sizes["N"] == 0:
            continue
        expected = kernel.reference(**arguments).astype("f8")
        found = kernel(**{name: beside_unreadable_memory(value) for name, value in arguments.items()})
        scale = np.abs(expected).max(initial=1.0)
        assert np.abs(found - expected).max(initial=0) <= TOLERANCE[dtype] * scale, sizes


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_torch(case):
    torch = pytest.importorskip("torch")
    kernel = attn.compile(HEAD.format(t="f32", text=CASES[case]))

    def places(numbers, count):
        """[…, place]: 1 where a number says it."""
        return (torch.tensor(numbers)[..., None] == torch.arange(count)).float()

    def eager(x, p, z, id, pair, T):
        N = x.shape[1]
        at = places(id, T)
        others = (torch.arange(N) % 3 != 1).float()
        return {
            "segments": lambda: torch.einsum("bnd,bnt->btd", x, at),
            "a formula around": lambda: x[:, :1] - 2 * torch.einsum("bnd,bn,n,bnt->btd", x, p, others, at),
            "in the last dimension": lambda: torch.einsum("bnd,bn,bnt->bdt", x, p, at) + z,
            "two numbers": lambda: torch.einsum("bn,bnt,ns->bts", p, at, places(id[0].astype("i8") + 1, T)),
            "a number of each pair": lambda: torch.einsum("bnd,ndt->bnt", x, places(pair.astype("i8") - 1, T)),
            "a number of each lane": lambda: torch.einsum("nd,n,ndt->tn", x[0], p[0], places(pair, T)),
            "a table": lambda: torch.einsum("t,bn,bnt->bn", z, p, at)[..., None].expand(-1, -1, T),
            "a part of a table": lambda: torch.einsum("bnt,ts->bns", at, (z[:, None] + z) * (torch.arange(T)[:, None] <= torch.arange(T))),
            "weights": lambda: torch.einsum("bnd,bnt->bdt", torch.softmax(x, 1), at),
            "weights at a number": lambda: (torch.softmax(z * p[..., None], -1) * at).sum(-1),
        }[case]()

    for sizes in SIZES[:3]:
        arguments = draw(sizes, "f4")
        results = []
        for function in (lambda **given: kernel(**given, id=arguments["id"], pair=arguments["pair"]),
                         lambda **given: eager(**given, id=arguments["id"], pair=arguments["pair"], T=sizes["T"])):
            given = {name: torch.tensor(arguments[name], requires_grad=True) for name in "xpz"}
            y = function(**given)
            (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum().backward()
            results.append([tensor.grad if tensor.grad is not None else torch.zeros_like(tensor) for tensor in given.values()])
        for found, expected in zip(*results):
            assert (found - expected).abs().max() <= 1e-5 * max(expected.abs().max(), 1), sizes


@pytest.mark.parametrize("case, has_sum", [("segments", True), ("in the last dimension", True), ("a table", False), ("a part of a table", False)])
def test_a_term_is_visited_once(case, has_sum):
    """A sum for places, whose terms have a number that is inside; or the one term."""
    text = attn.compile(HEAD.format(t="f32", text=CASES[case])).emit("simplified")
    assert ("attn.reduce sum" in text) == has_sum and "arith.maxsi" in text
