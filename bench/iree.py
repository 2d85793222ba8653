"""IREE's fused attention (`iree_linalg_ext.attention`) as a peer, where its packages are installed."""

from __future__ import annotations

import math

import torch

from .workload import Call

# Batches and heads are one dimension there.
MODULE = """
func.func @attention(%q: tensor<{B}x{M}x{D}xf32>, %k: tensor<{B}x{N}x{D}xf32>, %v: tensor<{B}x{N}x{E}xf32>) -> tensor<{B}x{M}x{E}xf32> {{
  %scale = arith.constant {scale} : f32
  %empty = tensor.empty() : tensor<{B}x{M}x{E}xf32>
  %out = iree_linalg_ext.attention <{{indexing_maps = [
      affine_map<(b, m, n, d, e) -> (b, m, d)>, affine_map<(b, m, n, d, e) -> (b, n, d)>,
      affine_map<(b, m, n, d, e) -> (b, n, e)>, affine_map<(b, m, n, d, e) -> ()>, affine_map<(b, m, n, d, e) -> (b, m, e)>]}}>
      ins(%q, %k, %v, %scale : tensor<{B}x{M}x{D}xf32>, tensor<{B}x{N}x{D}xf32>, tensor<{B}x{N}x{E}xf32>, f32)
      outs(%empty : tensor<{B}x{M}x{E}xf32>) {{
    ^bb0(%score: f32):
      iree_linalg_ext.yield %score : f32
  }} -> tensor<{B}x{M}x{E}xf32>
  return %out : tensor<{B}x{M}x{E}xf32>
}}
"""


def iree(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    """`softmax(q kᵀ / sqrt(D)) v` on PyTorch's number of threads. Raises ImportError where IREE is not installed."""
    import iree.compiler
    import iree.runtime

    batch, heads, queries, width = q.shape
    text = MODULE.format(
        B=batch * heads, M=queries, N=k.shape[2], D=width, E=v.shape[3], scale=f"{1 / math.sqrt(width):e}"
    )  # fmt: skip
    module = iree.compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=["--iree-llvmcpu-target-cpu=host"])
    iree.runtime.flags.parse_flags(f"--task_topology_group_count={torch.get_num_threads()}")
    config = iree.runtime.Config(device=iree.runtime.get_driver("local-task").create_default_device())
    context = iree.runtime.SystemContext(config=config)
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, module))
    function = context.modules.module["attention"]
    arguments = [iree.runtime.asdevicearray(config.device, each.flatten(0, 1).numpy()) for each in (q, k, v)]
    return lambda: function(*arguments)
