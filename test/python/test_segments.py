"""Softmaxes of keys that each have one query (attn-segment): edges of a graph, by the nodes that they lead to."""

import attn
import numpy as np
import pytest
from oracle.memory import beside_unreadable_memory

HEAD = "attention f(x: {t}[N, H, D], s: {t}[H, X], v: {t}[B, X, D], src: i32[X], dst: i32[X], of: i32[B, X], keep: bool[X]) {{\n  {text}\n}}\n"
# The statements, and whether each key has one weight.
CASES = {
    "edges": ("w[h, m: N, e] = softmax[e](s[h, e] where dst[e] == m)\n  y[m, h, d] = sum[e](w[h, m, e] * x[src[e], h, d])\n  return y", True),
    "kept edges": (
        "w[m: N, h, e] = softmax[e](2.0 * s[h, e] - 1.0 where keep[e] and m == dst[e] and e % 5 != 2)\n"
        "  y[m, h, d] = sum[e](w[m, h, e] * x[src[e], h, d])\n  return y",
        True,
    ),
    "graphs": (
        "w[b, m: N, e] = softmax[e](v[b, e, 0] where of[b, e] == m)\n"
        "  y[b, m, d] = sum[e](w[b, m, e] ** 2 * v[b, e, d] where keep[e])\n"
        "  t[b, m] = sum[e](w[b, m, e])\n  return y, t",
        True,
    ),
    "nodes as scores": (
        "w[h, m: N, e] = softmax[e](max(x[src[e], h, 0] + x[dst[e], h, 1 % D], 0.2 * (x[src[e], h, 0] + x[dst[e], h, 1 % D])) where dst[e] == m)\n"
        "  y[m, h, d] = 2.0 * sum[e](w[h, m, e] * x[src[e], h, d]) + x[m, h, d]\n  return y",
        True,
    ),
    "returned weights": ("w[h, m: N, e] = softmax[e](s[h, e] where dst[e] == m)\n  y[m, h] = sum[e](w[h, m, e] * s[h, e])\n  return y, w", False),
    "a sink": ("w[h, m: N, e] = softmax[e](s[h, e] where dst[e] == m, sink = 0.5)\n  y[m, h] = sum[e](w[h, m, e] * s[h, e])\n  return y", False),
    "scores of pairs": ("w[h, m: N, e] = softmax[e](s[h, e] * x[m, h, 0] where dst[e] == m)\n  y[m, h] = sum[e](w[h, m, e] * s[h, e])\n  return y", False),
    "summed over nodes": ("w[h, m: N, e] = softmax[e](s[h, e] where dst[e] == m)\n  y[h, e] = sum[m: N](w[h, m, e] * x[m, h, 0])\n  return y", False),
}
SIZES = [dict(N=7, H=2, D=5, X=63, B=2), dict(N=65, H=1, D=1, X=40, B=1), dict(N=1, H=3, D=33, X=200, B=1), dict(N=5, H=2, D=3, X=0, B=2)]
TOLERANCE = {"f32": 2e-6, "f16": 2e-3, "f64": 1e-12}


def draw(sizes, dtype):
    """Some edges lead nowhere, some scores are -inf: all of those that lead to node 0."""
    random = np.random.default_rng(11)
    N, H, D, X, B = (sizes[name] for name in "NHDXB")
    arguments = {name: random.standard_normal(shape).astype(dtype) for name, shape in {"x": (N, H, D), "s": (H, X), "v": (B, X, D)}.items()}
    arguments["s"] *= 20
    arguments["src"] = random.integers(0, N, X).astype("i4")
    for name, shape in {"dst": (X,), "of": (B, X)}.items():
        numbers = random.integers(-1, N + 1, shape)
        arguments[name] = np.where(random.random(shape) < 0.05, random.choice([-(2**31), 2**31 - 1], shape), numbers).astype("i4")
    arguments["s"][:, arguments["dst"] == 0] = -np.inf
    arguments["s"][random.random((H, X)) < 0.1] = -np.inf
    arguments["keep"] = random.random(X) < 0.8
    return arguments


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_the_reference(case, dtype):
    text, is_rewritten = CASES[case]
    kernel = attn.compile(HEAD.format(t=dtype, text=text))
    assert ("attn.softmax" in kernel.emit("simplified")) != is_rewritten
    for sizes in SIZES:
        arguments = draw(sizes, {"f32": "f4", "f16": "f2", "f64": "f8"}[dtype])
        if "x[src[e]" in text and "dst[e], h" in text:
            arguments["dst"] = np.clip(arguments["dst"], 0, sizes["N"] - 1)  # where it is a subscript
        if case in ("returned weights", "a sink", "scores of pairs"):
            arguments["s"] = np.where(np.isinf(arguments["s"]), -9, arguments["s"]).astype(arguments["s"].dtype)  # 0 * inf
        guarded = {name: beside_unreadable_memory(value) for name, value in arguments.items()}
        for found, expected in zip(as_tuple(kernel(**guarded)), as_tuple(kernel.reference(**arguments))):
            expected = expected.astype("f8")
            assert np.abs(found - expected).max(initial=0) <= TOLERANCE[dtype] * np.abs(expected).max(initial=1.0), sizes


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][1]])
def test_gradients_are_those_of_torch(case):
    torch = pytest.importorskip("torch")
    text, _ = CASES[case]
    kernel = attn.compile(HEAD.format(t="f64", text=text))

    def softmax(score, kept):
        """Over the last axis, of what is kept: 0 in a row without anything."""
        masked = torch.where(kept, score, -torch.inf)
        empty = ~torch.isfinite(masked).any(-1, keepdim=True)
        return torch.where(empty, 0.0, torch.softmax(torch.where(empty, 0.0, masked), -1))

    def eager(x, s, v, src, dst, of, keep):
        N, X = x.shape[0], s.shape[1]
        leads = dst == torch.arange(N)[:, None]  # [N, X]
        if case == "graphs":
            w = softmax(v[:, None, :, 0], of[:, None] == torch.arange(N)[:, None])
            return torch.einsum("bme,bed,e->bmd", w**2, v, keep.to(v.dtype)), w.sum(-1)
        score, kept = s, leads
        if case == "kept edges":
            score, kept = 2 * s - 1, leads & keep & (torch.arange(X) % 5 != 2)
        if case == "nodes as scores":
            score = torch.nn.functional.leaky_relu(x[src, :, 0] + x[dst, :, 1 % x.shape[2]], 0.2).T
        y = torch.einsum("hme,ehd->mhd", softmax(score[:, None], kept), x[src])
        return 2 * y + x if case == "nodes as scores" else y

    for sizes in SIZES[:3]:
        arguments = {name: torch.tensor(value) for name, value in draw(sizes, "f8").items()}
        arguments["s"] = arguments["s"].clamp(min=-9)  # PyTorch has NaN for the gradient of what is -inf
        if case == "nodes as scores":
            arguments["dst"] = arguments["dst"].clamp(0, sizes["N"] - 1)
        results = []
        for function in (kernel, eager):
            given = {name: value.clone().requires_grad_() for name, value in arguments.items() if value.is_floating_point()}
            outputs = as_tuple(function(**arguments | given))
            sum((y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum() for y in outputs).backward()
            results.append([torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in given.values()])
        for found, expected in zip(*results):
            assert (found - expected).abs().max() <= 1e-11 * max(expected.abs().max(), 1), sizes


def test_weights_that_are_rounded_are_stored():
    """As those of every softmax whose statement has a narrower type."""
    kernel = attn.compile(HEAD.format(t="f32", text=CASES["edges"][0].replace("w[h, m: N, e] =", "w[h, m: N, e]: f16 =")))
    assert "w_share" not in kernel.emit("simplified")
    arguments = draw(SIZES[0], "f4")
    expected = kernel.reference(**arguments)
    assert np.abs(kernel(**arguments) - expected).max() <= 1e-3 * np.abs(expected).max()


def test_scores_of_minus_infinity_have_no_gradient():
    torch = pytest.importorskip("torch")
    kernel = attn.compile(HEAD.format(t="f32", text=CASES["edges"][0]))
    arguments = {name: torch.tensor(value) for name, value in draw(SIZES[0], "f4").items()}
    arguments["s"].requires_grad_()
    kernel(**arguments).square().sum().backward()
    assert torch.isfinite(arguments["s"].grad).all() and arguments["s"].grad.abs().max() > 0
    assert (arguments["s"].grad[torch.isinf(arguments["s"])] == 0).all()
