"""PyTorch's fused attentions as peers, and functions of its operations."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F

from .formula import added, grid
from .variants import Variant
from .workload import Call, Prepare


SWITCHES = {  #: what turns SDPA's implementations on and off
    "math": torch.backends.cuda.enable_math_sdp,
    "efficient": torch.backends.cuda.enable_mem_efficient_sdp,
    "flash": torch.backends.cuda.enable_flash_sdp,
    "cudnn": torch.backends.cuda.enable_cudnn_sdp,
}


def sdpa(variant: Variant, q, k, v, **tensors) -> Call:
    options = dict(enable_gqa=q.shape[1] != k.shape[1], dropout_p=variant.dropout)
    if variant.causal and q.shape[2] == k.shape[2]:
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, **options)
    mask = added(variant, q, k, tensors)
    return lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)


def sdpa_by(implementation: str, variant: Variant, **inputs) -> Call:
    """By one of its implementations alone. The call raises RuntimeError where that cannot."""
    call = sdpa(variant, **inputs)
    others = [switch for name, switch in SWITCHES.items() if name != implementation]

    def alone():
        for switch in others:
            switch(False)
        try:
            return call()
        finally:
            for switch in others:
                switch(True)

    return alone


def flex(variant: Variant, q, k, v, **tensors) -> Call:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()
    compiled = torch.compile(flex_attention)
    change = (lambda s, b, h, m, n: variant.change(s, tensors, b, h, m, n)) if variant.change else None
    blocks = None
    if variant.mask:
        # A dimension on which the mask does not depend has the size 1.
        first = [torch.arange(size, device=q.device) for size in (*q.shape[:2], 1, 1)]
        batches, heads = variant.mask(tensors, *grid(*first)).shape[:2]
        blocks = create_block_mask(
            lambda b, h, m, n: variant.mask(tensors, b, h, m, n), batches, heads, q.shape[2], k.shape[2], device=q.device
        )

    def call():
        with torch.no_grad():
            return compiled(
                q, k, v, score_mod=change, block_mask=blocks, enable_gqa=q.shape[1] != k.shape[1]
            )

    return call


def calling(function: Callable[..., Any]) -> Prepare:
    """A function of the inputs, as it is."""
    return lambda **inputs: lambda: function(**inputs)


def compiling(function: Callable[..., Any]) -> Prepare:
    """The function through torch.compile."""

    def prepare(**inputs):
        torch._dynamo.reset()
        compiled = torch.compile(function)
        return lambda: compiled(**inputs)

    return prepare
