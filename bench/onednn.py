"""The attention of oneDNN Graph as a peer, through PyTorch: TorchScript can hand a graph's parts to the oneDNN in PyTorch."""

from __future__ import annotations

import math

import torch

from .formula import added, grouped
from .variants import Variant
from .workload import Call


class Formula(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.divisor = math.sqrt(width)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / self.divisor, -1), v)


class FormulaWithBias(Formula):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / self.divisor + bias, -1), v)


def onednn(variant: Variant, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **tensors: torch.Tensor) -> Call:
    """On PyTorch's number of threads. A mask is added to the scores. Raises RuntimeError where oneDNN does not take it as a whole."""
    bias, groups = added(variant, q, k, tensors), k.shape[1]
    inputs = [grouped(q, groups), k, v]
    if bias is not None:
        bias = bias if q.shape[1] == groups else grouped(bias.expand(*q.shape[:3], k.shape[2]), groups)
        inputs.append(bias)
    graph = (Formula if bias is None else FormulaWithBias)(q.shape[3]).eval()
    torch.jit.enable_onednn_fusion(True)
    try:
        traced = torch.jit.freeze(torch.jit.trace(graph, inputs))
        for _ in range(3):  # TorchScript looks at the first calls, then compiles
            traced(*inputs)
        group = torch.jit.last_executed_optimized_graph().findNode("prim::oneDNNFusionGroup")
    finally:
        torch.jit.enable_onednn_fusion(False)
    taken = [node.kind() for node in group.g("Subgraph").nodes()] if group else []
    if taken.count("aten::matmul") != 2 or "aten::softmax" not in taken:
        raise RuntimeError("oneDNN does not take the softmax and both products as one part")
    return lambda: traced(*inputs).view(*q.shape[:3], v.shape[3])
