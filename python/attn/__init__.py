"""attn: attention written as mathematics, compiled to a fused kernel.

    kernel = attn.compile("examples/scaled_dot.attn")
    out, weight = kernel(q, k, v, valid)
"""

import importlib
from typing import Any

from ._attn import CompileError
from .kernel import Kernel, TensorInfo, compile, set_num_threads

__all__ = ["CompileError", "Kernel", "TensorInfo", "compile", "set_num_threads"]

CompileError.__module__ = "attn"  # where users import it from


def __getattr__(name: str) -> Any:
    """The parts that need PyTorch (`attn.nn`) or Matplotlib (`attn.plot`), imported when they are first named."""
    if name in ("nn", "plot"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'attn' has no attribute '{name}'")
