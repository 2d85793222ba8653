"""attn: attention written as mathematics, compiled to a fused kernel.

    kernel = attn.compile("examples/scaled_dot.attn")
    out, weight = kernel(q, k, v, valid)

With PyTorch: kernels called with tensors that require grad, `attn.torch_operator(kernel)` for torch.compile,
`attn.flex_attention`, and the layers of `attn.nn`. `attn.plot` draws weights and masks.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._attn import CompileError
from .kernel import Kernel, TensorInfo, compile, set_cuda_stream, set_num_threads

if TYPE_CHECKING:
    from . import nn as nn
    from . import plot as plot
    from .flex import TracingError, flex_attention
    from .operators import Operator, torch_operator

__all__ = [
    "CompileError",
    "Kernel",
    "Operator",
    "TensorInfo",
    "TracingError",
    "compile",
    "flex_attention",
    "set_cuda_stream",
    "set_num_threads",
    "torch_operator",
]

CompileError.__module__ = "attn"  # where users import it from

#: What needs PyTorch or Matplotlib, and the module that is imported for it when it is first used.
_MODULES = ("nn", "plot")
_WITH_TORCH = {"TracingError": "flex", "flex_attention": "flex", "Operator": "operators", "torch_operator": "operators"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'attn' has no attribute '{name}'")
    value = getattr(importlib.import_module(f".{_WITH_TORCH[name]}", __name__), name)
    globals()[name] = value
    return value
