"""Attention of batches and heads in one of its variants: most of the workloads.

One description gives the spec, the textbook's formula in PyTorch, and the calls of the peers.
"""

from __future__ import annotations

from functools import partial

import torch

from .formula import WHOLE_SCORES, checked_part, exact, formula, grid
from .ggml import ggml
from .iree import iree
from .onednn import onednn
from .pytorch import flex, sdpa
from .variants import Variant
from .workload import Workload

ELEMENTS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def spec(variant: Variant, groups: bool = True) -> str:
    """groups: whether heads of queries may share heads of keys."""
    where = f" where {variant.where}" if variant.where else ""
    kept = f"\n  kept[b, h, m, n] = dropout(weight[b, h, m, n], {variant.dropout}, 1)" if variant.dropout else ""
    text = f"""attention heads(q: f32[B, H, M, D], k: f32[B, G, N, D], v: f32[B, G, N, E]{variant.parameters}) {{
  score[b, h, m, n] = {variant.score}
  weight[b, h, m, n] = softmax[n](score[b, h, m, n]{where}){kept}
  out[b, h, m, e] = sum[n]({"kept" if kept else "weight"}[b, h, m, n] * v[b, h // (H // G), n, e])
  return out{", weight" if variant.returns_weights else ""}
}}
"""
    return text if groups else text.replace("h // (H // G)", "h").replace("[B, G,", "[B, H,")


def share_kept(variant: Variant, sizes: dict) -> float:
    """The share of query-key pairs that the mask leaves."""
    if not variant.mask:
        return 1.0
    mask = variant.mask(variant.tensors(sizes), *grid(*(torch.arange(sizes[name]) for name in "BHMN")))
    return torch.count_nonzero(mask).item() / mask.numel()


def peers(variant: Variant, sizes: dict, dtype: str, few: bool) -> dict:
    """Who can compute it."""
    able = {}
    can_add = variant.dense or not variant.change
    if not (variant.dropout or variant.returns_weights):
        able["flex"] = partial(flex, variant)
        if can_add:
            able["onednn"] = partial(onednn, variant)
    if can_add and not variant.returns_weights:
        able["sdpa"] = partial(sdpa, variant)
    if variant.plain:
        able["ggml"] = ggml
        if dtype == "f32" and not few and sizes["G"] == sizes["H"]:
            able["iree"] = iree
    return able


def draw(variant: Variant, sizes: dict, dtype: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"q": "BHMD", "k": "BGND", "v": "BGNE"}
    drawn = {
        name: torch.randn([sizes[size] for size in shape], generator=generator, dtype=ELEMENTS[dtype]) for name, shape in shapes.items()
    }
    return drawn | {name: each.to(ELEMENTS[dtype]) if each.is_floating_point() else each for name, each in variant.tensors(sizes).items()}


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
    sizes = dict(B=batch, H=heads, G=groups or heads, M=queries, N=keys or queries, D=width, E=value_width or width)
    few = queries <= 16  # decoding: bound by reading the keys and values
    share = share_kept(variant, sizes)
    scores = batch * heads * queries * sizes["N"]
    terms = sizes["D"] + sizes["E"]
    part = checked_part(sizes)
    return Workload(
        name=name,
        spec=spec(variant),
        draw=partial(draw, variant, sizes, dtype),
        formula=partial(formula, variant),
        peers=peers(variant, sizes, dtype, few),
        flops=0 if few else 2 * scores * share * terms,
        read_bytes=batch * sizes["G"] * sizes["N"] * terms * ELEMENTS[dtype].itemsize * share if few else 0,
        dtype=dtype,
        races_formula=scores <= WHOLE_SCORES,
        checked=lambda result: result[part[0]][:, :, part[1]],
        exact=partial(exact, variant, part),
    )
