"""The textbook's formula of an attention in PyTorch: to race with, and in float64 to judge by."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

import attn

from .variants import Variant
from .workload import in_double

WHOLE_SCORES = 1 << 26  #: larger attentions are checked in part, and nobody runs the formula with all scores in memory
WHOLE_KEYS = 1 << 28
CHECKED_QUERIES = 64


def grid(*indices: torch.Tensor) -> list[torch.Tensor]:
    """Of each dimension's indices: along that dimension."""
    return [index.view([-1 if axis == i else 1 for axis in range(len(indices))]) for i, index in enumerate(indices)]


def whole(q: torch.Tensor, k: torch.Tensor) -> list[torch.Tensor]:
    return [torch.arange(size, device=q.device) for size in (*q.shape[:3], k.shape[2])]


def attend(variant: Variant, q, k, v, tensors, indices: list[torch.Tensor], kept: torch.Tensor | None = None) -> Any:
    """The textbook's formula. `indices` are those of the batches, heads, queries and keys; `kept` replaces a random dropout."""
    groups, indices = k.shape[1], grid(*indices)
    scores = grouped(q, groups) @ k.mT / math.sqrt(q.shape[-1])
    scores = scores.reshape(*q.shape[:3], k.shape[2])
    if variant.change:
        scores = variant.change(scores, tensors, *indices)
    if variant.mask:
        scores = scores.masked_fill(~variant.mask(tensors, *indices), -math.inf)
    weights = torch.softmax(scores, -1)
    used = weights
    if variant.dropout:
        used = F.dropout(weights, variant.dropout) if kept is None else weights * kept
    out = (grouped(used, groups) @ v).reshape(*q.shape[:3], v.shape[3])
    return (out, weights) if variant.returns_weights else out


def grouped(x: torch.Tensor, groups: int) -> torch.Tensor:
    """The heads of a group as further rows, so that their keys need not be repeated."""
    return x.reshape(x.shape[0], groups, -1, x.shape[3])


def added(variant: Variant, q, k, tensors) -> torch.Tensor | None:
    """What a masked or biased attention adds to its scores, as a tensor for those that take one."""
    indices = grid(*whole(q, k))
    bias = variant.change(torch.zeros((), device=q.device), tensors, *indices).to(q.dtype) if variant.dense else None
    if variant.mask:
        mask = ~variant.mask(tensors, *indices)
        bias = (torch.zeros((), dtype=q.dtype, device=q.device) if bias is None else bias).masked_fill(mask, -math.inf)
    return bias


def formula(variant: Variant, q, k, v, **tensors) -> Any:
    return attend(variant, q, k, v, tensors, whole(q, k))


def checked_part(sizes: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Batches and queries: all, or the first and the last batch and some queries from the first to the last."""
    batches, queries = torch.arange(sizes["B"]), torch.arange(sizes["M"])
    scores = sizes["B"] * sizes["H"] * sizes["M"] * sizes["N"]
    if scores > WHOLE_SCORES or sizes["B"] * sizes["G"] * sizes["N"] * sizes["D"] > WHOLE_KEYS:
        batches, queries = batches[:: max(1, sizes["B"] - 1)], torch.linspace(0, sizes["M"] - 1, min(sizes["M"], CHECKED_QUERIES)).long()
    return batches, queries


def exact(variant: Variant, part: tuple[torch.Tensor, torch.Tensor], q, k, v, **tensors) -> Any:
    (batches, queries), (_, heads, _, keys) = [each.to(q.device) for each in part], whole(q, k)
    kept = dropout_of(variant, q, k)[batches][:, :, queries] if variant.dropout else None
    few = in_double({"q": q[batches][:, :, queries], "k": k[batches], "v": v[batches]})
    return attend(variant, **few, tensors=in_double(tensors), indices=[batches, heads, queries, keys], kept=kept)


def dropout_of(variant: Variant, q, k) -> torch.Tensor:
    """What each weight is multiplied by: the bits of the language's dropout depend on the element alone."""
    text = f"attention bits(x: f32[B, H, M, N]) {{\n  kept[b, h, m, n] = dropout(x[b, h, m, n], {variant.dropout}, 1)\n  return kept\n}}\n"
    return attn.compile(text)(torch.ones(*q.shape[:3], k.shape[2]))
