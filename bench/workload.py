"""What is measured: a spec, its inputs, the same formula in PyTorch, and who else can compute it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Callable

import torch

import attn

Call = Callable[[], object]  #: computes the workload once
Prepare = Callable[..., Call]  #: of the inputs, by name


@dataclass(frozen=True)
class Workload:
    name: str
    spec: str  #: text of the spec
    draw: Callable[[], dict[str, torch.Tensor | float]]  #: what makes the inputs, in the order of the spec's parameters
    formula: Callable[..., Any]  #: the textbook's formula of the inputs, in whatever precision they have
    peers: dict[str, Prepare] = field(default_factory=dict)  #: what prepares each for the inputs: it may compile
    flops: float = 0  #: operations that the mask leaves, a multiply-add counted as two; 0 where memory is the limit
    read_bytes: float = 0  #: that must come from memory; 0 where arithmetic is the limit
    dtype: str = "f32"
    races_formula: bool = True  #: whether `formula` itself, eager and compiled, is among the peers
    checked: Callable[[torch.Tensor], torch.Tensor] = lambda result: result  #: the part of each result that `exact` gives
    exact: Callable[..., Any] | None = None  #: that part of the results for the inputs, in float64; without it, `formula` gives it
    ours: Prepare | None = None  #: what prepares our call for the inputs; without it, the spec's kernel is called
    gradients: tuple[str, ...] = ()  #: inputs whose gradients are computed as well, by the spec's forward and backward kernels
    constants: dict[str, int] = field(default_factory=dict)  #: sizes that are known when the kernel is compiled
    target: str = "host"  #: what the kernel is compiled for

    @cached_property
    def inputs(self) -> dict[str, torch.Tensor | float]:
        """Drawn when they are first asked for, since all workloads together need more memory than a machine may have."""
        return self.draw()

    def kernel(self) -> attn.Kernel:
        dtype = None if self.dtype == "f32" else self.dtype
        return attn.compile(self.spec, target=self.target, sizes=self.constants, dtype=dtype)

    def error(self, results: Any) -> float:
        """The worst error of the results, each relative to the largest number that is expected of it."""
        exact = self.exact(**self.inputs) if self.exact else self.formula(**in_double(self.inputs))
        pairs = [(self.checked(found).double(), expected) for found, expected in zip(as_tuple(results), as_tuple(exact), strict=True)]
        return max(((found - expected).abs().max() / expected.abs().max()).item() for found, expected in pairs)


def as_tuple(results: Any) -> tuple[torch.Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def in_double(inputs: dict) -> dict:
    return {
        name: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }
