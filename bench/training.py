"""Steps of training: the result of an attention, and its gradients by some inputs for a given gradient of the result."""

from __future__ import annotations

import dataclasses
from functools import lru_cache, partial
from typing import Any, Sequence

import torch

import attn

from .measure import call_kernel, formula_peers
from .pytorch import calling
from .workload import Call, Prepare, Workload


@lru_cache(maxsize=1)
def gradient_of(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """What everybody's result has as its gradient: normal numbers, the same in all precisions."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)


def step(prepare: Prepare, names: Sequence[str], **inputs: Any) -> Call:
    """The call that `prepare` gives, followed by its backward pass: the result, and the gradients of the named inputs."""
    leaves = {name: value.detach().requires_grad_() if name in names else value for name, value in inputs.items()}
    by = [leaves[name] for name in names]
    forward = prepare(**leaves)

    def call():
        with torch.enable_grad():
            result = forward()
            return (result.detach(), *torch.autograd.grad(result, by, gradient_of(result.shape, result.dtype)))

    return call


def causal_flex(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    """Ours as FlexAttention's users call it."""
    return lambda: attn.flex_attention(q, k, v, block_mask=lambda b, h, m, n: n <= m)


def training(workload: Workload, names: Sequence[str], peers: Sequence[str] = (), run: Prepare | None = None) -> Workload:
    """A step of training of a workload whose spec has one output, by the inputs `names`.

    peers: those of the workload that have gradients and race; so does its formula, eager and compiled, where it does.
    run: what is ours instead of the spec's kernel.
    """
    names = tuple(names)
    racing = {who: workload.peers[who] for who in peers} | formula_peers(workload)
    return dataclasses.replace(
        workload,
        name=f"training, {workload.name}",
        gradients=names,
        ours=partial(step, run or partial(call_kernel, workload), names),
        formula=lambda **inputs: step(calling(workload.formula), names, **inputs)(),
        peers={who: partial(step, prepare, names) for who, prepare in racing.items()},
        flops=3.5 * workload.flops,  # two products forward, five backward
        races_formula=False,
        checked=lambda result: result,
        exact=None,
    )
