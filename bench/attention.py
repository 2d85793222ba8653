"""Attention of batches and heads with a mask, a change of scores, or both: most of the workloads.

One description gives the spec, the textbook's formula in PyTorch, SDPA's call and FlexAttention's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable

import torch
import torch.nn.functional as F

from .iree import iree
from .workload import Call, Workload

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Variant:
    """What distinguishes an attention from the plain one. Functions get (tensors, b, h, m, n), index tensors or numbers."""

    parameters: str = ""  #: of the spec, after q, k and v
    score: str = "sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D)"
    where: str = ""  #: the spec's mask
    tensors: Callable[[dict], Tensors] = lambda sizes: {}  #: what `parameters` declares
    change: Callable[..., Any] | None = None  #: of a score; takes the score first
    mask: Callable[..., Any] | None = None
    causal: bool = False  #: SDPA has a word for it
    dense: bool = False  #: `change` adds a tensor that SDPA can take


def spec(variant: Variant) -> str:
    where = f" where {variant.where}" if variant.where else ""
    return f"""attention heads(q: f32[B, H, M, D], k: f32[B, G, N, D], v: f32[B, G, N, E]{variant.parameters}) {{
  score[b, h, m, n] = {variant.score}
  weight[b, h, m, n] = softmax[n](score[b, h, m, n]{where})
  out[b, h, m, e] = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
  return out
}}
"""


def grid(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
    sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    return tuple(torch.arange(size).view([-1 if axis == i else 1 for axis in range(4)]) for i, size in enumerate(sizes))


def formula(variant: Variant) -> Callable[..., torch.Tensor]:
    def attend(q, k, v, **tensors):
        if k.shape[1] != q.shape[1]:
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        indices = grid(q, k)
        if variant.change:
            scores = variant.change(scores, tensors, *indices)
        if variant.mask:
            scores = scores.masked_fill(~variant.mask(tensors, *indices), -math.inf)
        return torch.softmax(scores, -1) @ v

    return attend


def kept(variant: Variant, q, k, tensors) -> float:
    """The share of query-key pairs that the mask leaves."""
    if not variant.mask:
        return 1.0
    mask = variant.mask(tensors, *grid(q, k))
    return mask.expand(torch.broadcast_shapes(mask.shape, (1, 1, q.shape[2], k.shape[2]))).double().mean().item()


def sdpa(variant: Variant, q, k, v, tensors) -> Call:
    grouped = q.shape[1] != k.shape[1]
    if variant.causal and q.shape[2] == k.shape[2]:
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    mask = variant.mask(tensors, *grid(q, k)) if variant.mask else None
    if variant.dense:
        bias = variant.change(torch.zeros(()), tensors, *grid(q, k)).to(q.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
    return lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)


def flex(variant: Variant, q, k, v, tensors) -> Call:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()
    compiled = torch.compile(flex_attention)
    change = (lambda s, b, h, m, n: variant.change(s, tensors, b, h, m, n)) if variant.change else None
    blocks = None
    if variant.mask:
        blocks = create_block_mask(
            lambda b, h, m, n: variant.mask(tensors, b, h, m, n),
            q.shape[0], q.shape[1], q.shape[2], k.shape[2], device="cpu",
        )  # fmt: skip

    def call():
        with torch.no_grad():
            return compiled(
                q, k, v, score_mod=change, block_mask=blocks, enable_gqa=q.shape[1] != k.shape[1]
            )

    return call


def attention(
    name: str,
    variant: Variant = Variant(),
    *,
    batch: int = 1,
    heads: int = 8,
    groups: int | None = None,
    queries: int = 2048,
    keys: int | None = None,
    width: int = 64,
    value_width: int | None = None,
    dtype: str = "f32",
) -> Workload:
    groups, keys, value_width = groups or heads, keys or queries, value_width or width
    generator = torch.Generator().manual_seed(0)
    element = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]

    def draw(*shape):
        return torch.randn(*shape, generator=generator).to(element)

    q, k, v = draw(batch, heads, queries, width), draw(batch, groups, keys, width), draw(batch, groups, keys, value_width)
    sizes = dict(B=batch, H=heads, G=groups, M=queries, N=keys, D=width, E=value_width)
    tensors = variant.tensors(sizes)
    pairs = batch * heads * queries * keys * kept(variant, q, k, tensors)
    few = queries <= 16  # decoding: bound by reading the keys and values
    scores_fit = batch * heads * queries * keys <= 1 << 26
    peers = {"flex": lambda: flex(variant, q, k, v, tensors)}
    if dtype == "f32" and not few and groups == heads and not (variant.change or variant.mask):
        peers["iree"] = lambda: iree(q, k, v)
    if variant.dense or not variant.change:
        peers["sdpa"] = lambda: sdpa(variant, q, k, v, tensors)
    return Workload(
        name=name,
        spec=spec(variant),
        inputs={"q": q, "k": k, "v": v, **tensors},
        formula=formula(variant),
        peers=peers,
        flops=0 if few else 2 * pairs * (width + value_width),
        read_bytes=(k.nbytes + v.nbytes) * kept(variant, q, k, tensors) if few else 0,
        dtype=dtype,
        races_formula=scores_fit,
    )
