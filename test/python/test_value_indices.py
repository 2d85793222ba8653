"""Sums of weights whose value index is not the last of the output, and sums over other indices than the key."""

import pytest

import attn

torch = pytest.importorskip("torch")

PARAMETERS = "q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, E], mix: f32[B, B]"
WEIGHT = "weight[b, m, n] = softmax[n](sum[d](q[b, m, d] * k[b, n, d]) / sqrt(D){mask})"
# Statements after the weights, and what they are of (weights, values, mix).
SUMS = {
    "columns first": (
        "out[b, e, m] = sum[n](weight[b, m, n] * v[b, n, e])",
        lambda w, v, mix: (w @ v).transpose(1, 2),
    ),
    "columns outermost": (
        "out[e, b, m] = sum[n](weight[b, m, n] * v[b, n, e])",
        lambda w, v, mix: (w @ v).permute(2, 0, 1),
    ),
    "values of every other batch": (
        "out[b, c: B, m] = sum[n](weight[b, m, n] * v[c, n, 0])",
        lambda w, v, mix: torch.einsum("bmn,cn->bcm", w, v[:, :, 0]),
    ),
    "mixed over heads": (
        "mixed[b, m, n] = sum[c: B](mix[b, c] * weight[c, m, n])\n  out[b, m, e] = sum[n](mixed[b, m, n] * v[b, n, e])",
        lambda w, v, mix: torch.einsum("bc,cmn->bmn", mix, w) @ v,
    ),
    "summed over queries": ("out[b, n] = sum[m](weight[b, m, n])", lambda w, v, mix: w.sum(1)),
    "summed up to each key": (
        "out[b, m, j: N] = sum[n](weight[b, m, n] where n <= j)",
        lambda w, v, mix: w.cumsum(-1),
    ),
    "mixed and summed over keys": (
        "out[b, m] = sum[c: B](mix[b, c] * sum[n](weight[c, m, n] * v[c, n, 0]))",
        lambda w, v, mix: torch.einsum("bc,cmn,cn->bm", mix, w, v[:, :, 0]),
    ),
}


@pytest.mark.parametrize("mask", ["", " where n <= m"])
@pytest.mark.parametrize("name", SUMS)
def test_sums(name, mask):
    statements, formula = SUMS[name]
    weight = WEIGHT.format(mask=mask)
    kernel = attn.compile(f"attention sums({PARAMETERS}) {{\n  {weight}\n  {statements}\n  return out\n}}")
    for b, m, n, d, e in ((1, 1, 1, 1, 1), (2, 7, 9, 5, 3), (3, 65, 63, 16, 33), (2, 530, 130, 8, 1), (2, 0, 4, 3, 2)):
        torch.manual_seed(m)
        tensors = [torch.randn(b, m, d), torch.randn(b, n, d), torch.randn(b, n, e), torch.randn(b, b)]
        tensors = [tensor.requires_grad_() for tensor in tensors]
        q, k, v, mix = exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
        score = q @ k.transpose(1, 2) / d**0.5
        if mask:
            score = score.masked_fill(torch.arange(n)[None, :] > torch.arange(m)[:, None], -torch.inf)
        expected = formula(torch.softmax(score, -1), v, mix)
        found = kernel(*tensors)
        torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-5)
        weight = torch.randn(expected.shape)
        (found * weight).sum().backward()
        (expected * weight).sum().backward()
        for single, double in zip(tensors, exact):
            wanted = torch.zeros_like(single) if double.grad is None else double.grad.float()
            scale = max(1.0, wanted.abs().max().item() if wanted.numel() else 0.0)
            given = torch.zeros_like(single) if single.grad is None else single.grad
            torch.testing.assert_close(given, wanted, rtol=1e-3, atol=2e-5 * scale)
