"""attn: attention written as mathematics, compiled to a fused kernel.

    kernel = attn.compile("examples/scaled_dot.attn")
    out, weight = kernel(q, k, v, valid)
"""

from ._attn import CompileError
from .kernel import Kernel, TensorInfo, compile, set_num_threads

__all__ = ["CompileError", "Kernel", "TensorInfo", "compile", "set_num_threads"]

CompileError.__module__ = "attn"  # where users import it from
