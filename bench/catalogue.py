"""The workloads, by group."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Callable, Iterator

import torch

from .attention import Variant, attention
from .workload import Workload

EXAMPLES = Path(__file__).parents[1] / "examples"


def slopes(sizes: dict) -> dict:
    return {"slope": 2.0 ** (-8.0 * torch.arange(1, sizes["H"] + 1) / sizes["H"])}


def dense_bias(sizes: dict) -> dict:
    return {"bias": torch.randn(sizes["H"], sizes["M"], sizes["N"], generator=torch.Generator().manual_seed(1))}


def ragged_lengths(sizes: dict) -> dict:
    return {"length": torch.linspace(sizes["N"] / 4, sizes["N"], sizes["B"]).int()}


def document_starts(sizes: dict) -> dict:
    """Documents of growing length: the first token of the document that each token is in."""
    bounds = sizes["N"] * (torch.arange(8) / 8.0) ** 1.5
    return {"start": torch.stack([bounds[bounds <= m].max() for m in range(sizes["M"])]).int()}


SCORE = Variant().score
PLAIN = Variant()
CAUSAL = Variant(where="n <= m", mask=lambda t, b, h, m, n: n <= m, causal=True)
WINDOW = Variant(where="n <= m and n > m - 256", mask=lambda t, b, h, m, n: (n <= m) & (n > m - 256))
ALIBI = Variant(
    parameters=", slope: f32[H]",
    score=f"{SCORE} + slope[h] * (n - m)",
    tensors=slopes,
    change=lambda s, t, b, h, m, n: s + t["slope"][h] * (n - m),
    dense=True,
)
SOFTCAP = Variant(score=f"30 * tanh({SCORE} / 30)", change=lambda s, t, b, h, m, n: 30 * torch.tanh(s / 30))
EVERYTHING = Variant(
    parameters=", slope: f32[H]",
    score=f"30 * tanh({SCORE} / 30) + slope[h] * (n - m)",
    where=WINDOW.where,
    tensors=slopes,
    change=lambda s, t, b, h, m, n: 30 * torch.tanh(s / 30) + t["slope"][h] * (n - m),
    mask=WINDOW.mask,
)
BIAS = Variant(
    parameters=", bias: f32[H, M, N]",
    score=f"{SCORE} + bias[h, m, n]",
    tensors=dense_bias,
    change=lambda s, t, b, h, m, n: s + t["bias"][h, m, n],
    dense=True,
)
RAGGED = Variant(
    parameters=", length: i32[B]",
    where="n < length[b]",
    tensors=ragged_lengths,
    mask=lambda t, b, h, m, n: n < t["length"][b],
)
DOCUMENTS = Variant(
    parameters=", start: i32[M]",
    where="n >= start[m] and n <= m",
    tensors=document_starts,
    mask=lambda t, b, h, m, n: (n >= t["start"][m]) & (n <= m),
)


def prefill() -> Iterator[Workload]:
    for name, sizes in {
        "H8 N2048 D64": {},
        "H8 N1024 D128": dict(queries=1024, width=128),
        "H4 N4096 D64": dict(heads=4, queries=4096),
        "H2 N16384 D64": dict(heads=2, queries=16384),
        "32/8 N1024 D128": dict(heads=32, groups=8, queries=1024, width=128),
    }.items():
        for mask, variant in (("full", PLAIN), ("causal", CAUSAL)):
            for dtype in ("f32", "bf16"):
                yield attention(f"{name} {mask}", variant, dtype=dtype, **sizes)
    for width, value_width in ((40, 40), (80, 80), (96, 96), (192, 128), (256, 256)):
        yield attention(f"H8 N1024 D{width}/{value_width}", queries=1024, width=width, value_width=value_width)


def masks_and_scores() -> Iterator[Workload]:
    yield attention("window 256 of 2048", WINDOW)
    yield attention("window 256 of 8192", WINDOW, queries=8192)
    yield attention("ALiBi", ALIBI)
    yield attention("softcap", SOFTCAP)
    yield attention("softcap ALiBi window", EVERYTHING)
    yield attention("dense bias", BIAS)
    yield attention("ragged batch of 8", RAGGED, batch=8, queries=512)
    yield attention("documents", DOCUMENTS)


def decode() -> Iterator[Workload]:
    for heads in (8, 32):
        for keys in (512, 8192, 65536):
            for batch in (1, 8) if keys < 65536 else (1,):
                sizes = dict(batch=batch, heads=heads, groups=8, queries=1, keys=keys, width=128)
                for dtype in ("f32", "bf16"):
                    yield attention(f"decode {heads}/8 N{keys} B{batch}", dtype=dtype, **sizes)
    yield attention("decode 32/8 N8192, 4 queries", heads=32, groups=8, queries=4, keys=8192, width=128)
    yield paged()


def paged() -> Workload:
    generator = torch.Generator().manual_seed(0)
    pages, size, heads, groups, width = 512, 16, 32, 8, 128
    q = torch.randn(1, heads, width, generator=generator)
    k, v = (torch.randn(pages, size, groups, width, generator=generator) for _ in range(2))
    page = torch.randperm(pages, generator=generator).int()[None]

    def formula(q, k, v, page, length):
        k, v = (x[page[0].long()].flatten(0, 1).transpose(0, 1)[None] for x in (k, v))
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = q[:, :, None] @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return (torch.softmax(scores, -1) @ v)[:, :, 0]

    length = torch.tensor([pages * size], dtype=torch.int32)
    return Workload(
        "decode 32/8 N8192, pages of 16", example("paged"), dict(q=q, k=k, v=v, page=page, length=length), formula,
        read_bytes=k.nbytes + v.nbytes,
    )  # fmt: skip


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.attn").read_text(encoding="utf-8")


def additive(name: str, batch: int, queries: int, keys: int) -> Workload:
    text = """attention additive(hq: f32[B, M, U], hk: f32[B, N, U], wv: f32[U], v: f32[B, N, E]) {
  weight[b, m, n] = softmax[n](sum[u](wv[u] * tanh(hq[b, m, u] + hk[b, n, u])))
  out[b, m, e] = sum[n](weight[b, m, n] * v[b, n, e])
  return out
}
"""
    hq, hk, wv, v = normal((batch, queries, 64), (batch, keys, 64), (64,), (batch, keys, 64))

    def formula(hq, hk, wv, v):
        return torch.softmax(torch.tanh(hq[:, :, None] + hk[:, None]) @ wv, -1) @ v

    return Workload(name, text, dict(hq=hq, hk=hk, wv=wv, v=v), formula)


def normal(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator) for shape in shapes]


def gaussian() -> Workload:
    q, k, v = normal(*[(8, 2048, 64)] * 3)
    return Workload(
        "gaussian", example("gaussian"), dict(q=q, k=k, v=v, width=8.0),
        lambda q, k, v, width: torch.softmax(-0.5 * torch.cdist(q, k) ** 2 / width**2, -1) @ v,
        flops=4 * 8 * 2048 * 2048 * 64,
    )  # fmt: skip


def bilinear() -> Workload:
    q, k, v, w = normal((8, 2048, 64), (8, 2048, 64), (8, 2048, 64), (64, 64))
    w = w / 64
    return Workload(
        "bilinear", example("bilinear"), dict(q=q, k=k, v=v, w=w),
        lambda q, k, v, w: torch.softmax(q @ w @ k.transpose(-1, -2), -1) @ v,
        flops=4 * 8 * 2048 * 2048 * 64 + 2 * 8 * 2048 * 64 * 64,
    )  # fmt: skip


def self_attention(tokens: int) -> Workload:
    heads, width = 12, 64
    model = heads * width
    x, wq, wk, wv, wo = normal((1, tokens, model), *[(model, model)] * 4)
    weights = [w / math.sqrt(model) for w in (wq, wk, wv, wo)]
    text = """attention block[H = 12](x: f32[B, N, J], wq: f32[H * D, J], wk: f32[H * D, J], wv: f32[H * D, J], wo: f32[O, H * D]) {
  q[b, h: H, m, d: D] = sum[j](x[b, m, j] * wq[h * D + d, j]) / sqrt(D)
  k[b, h: H, n, d: D] = sum[j](x[b, n, j] * wk[h * D + d, j])
  v[b, h: H, n, d: D] = sum[j](x[b, n, j] * wv[h * D + d, j])
  weight[b, h, m, n]  = softmax[n](sum[d](q[b, h, m, d] * k[b, h, n, d]))
  context[b, h, m, d] = sum[n](weight[b, h, m, n] * v[b, h, n, d])
  y[b, m, o]          = sum[h, d](wo[o, h * D + d] * context[b, h, m, d])
  return y
}
"""

    def split(y):
        return y.unflatten(-1, (heads, width)).transpose(1, 2)

    def formula(x, wq, wk, wv, wo):
        q, k, v = (split(x @ w.T) for w in (wq, wk, wv))
        context = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(width), -1) @ v
        return context.transpose(1, 2).flatten(2) @ wo.T

    flops = 8 * tokens * model * model + 4 * tokens * tokens * model
    return Workload(
        f"self-attention of {tokens} tokens", text, dict(zip(("x", "wq", "wk", "wv", "wo"), (x, *weights))), formula, flops=flops
    )


def textbook() -> Workload:
    q, k = torch.ones(2, 1, 2), torch.ones(2, 10, 2)
    v = torch.arange(80.0).reshape(2, 10, 4)

    def formula(q, k, v, valid):
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        mask = torch.arange(k.shape[1]) < valid[:, None, None]
        return torch.softmax(scores.masked_fill(~mask, -1e6), -1) @ v

    text = (EXAMPLES / "demo/attend.attn").read_text(encoding="utf-8")
    valid = torch.tensor([2, 6], dtype=torch.int32)
    return Workload("textbook (2,1,2) x (2,10,2)", text, dict(q=q, k=k, v=v, valid=valid), formula)


def others() -> Iterator[Workload]:
    yield additive("additive 512 x 512 x 64", 1, 512, 512)
    yield additive("additive decoder B64 M1 N50", 64, 1, 50)
    yield gaussian()
    yield bilinear()
    yield self_attention(14)
    yield self_attention(128)
    yield textbook()


def lengths() -> Iterator[Workload]:
    """For the plot: without peers."""
    for dtype in ("f32", "bf16"):
        for mask, variant in (("full", PLAIN), ("causal", CAUSAL)):
            for tokens in (128, 256, 512, 1024, 2048, 4096, 8192):
                workload = attention(f"N{tokens} {mask}", variant, queries=tokens, dtype=dtype)
                yield dataclasses.replace(workload, peers={}, races_formula=False)


GROUPS: dict[str, Callable[[], Iterator[Workload]]] = {
    "prefill": prefill,
    "masks": masks_and_scores,
    "decode": decode,
    "others": others,
    "lengths": lengths,
}
