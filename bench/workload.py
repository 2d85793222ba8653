"""What is measured: a spec, its inputs, the same formula in PyTorch, and who else can compute it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable

import torch

Call = Callable[[], object]  #: computes the workload once


@dataclass(frozen=True)
class Workload:
    name: str
    spec: str  #: text of the spec
    inputs: dict[str, torch.Tensor | float]  #: in the order of the spec's parameters
    formula: Callable[..., torch.Tensor]  #: the textbook's formula of `inputs`, in whatever precision they have
    peers: dict[str, Callable[[], Call]] = field(default_factory=dict)  #: what prepares each: it may compile
    flops: float = 0  #: operations that the mask leaves, a multiply-add counted as two; 0 where memory is the limit
    read_bytes: float = 0  #: that must come from memory; 0 where arithmetic is the limit
    dtype: str = "f32"
    races_formula: bool = True  #: whether `formula` itself, eager and compiled, is among the peers


def in_double(inputs: dict) -> dict:
    return {
        name: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }
