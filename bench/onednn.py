"""The attention of oneDNN Graph as a peer, through PyTorch: TorchScript can hand a graph's parts to the oneDNN in PyTorch."""

from __future__ import annotations

import math

import torch

from .workload import Call


class Formula(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.divisor = math.sqrt(width)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / self.divisor, -1), v)


def onednn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    """`softmax(q kᵀ / sqrt(D)) v` on PyTorch's number of threads. Raises RuntimeError where oneDNN does not take it as a whole."""
    rows = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])  # the heads of a group are further queries of it
    torch.jit.enable_onednn_fusion(True)
    try:
        traced = torch.jit.freeze(torch.jit.trace(Formula(q.shape[3]).eval(), (rows, k, v)))
        for _ in range(3):  # TorchScript looks at the first calls, then compiles
            traced(rows, k, v)
        group = torch.jit.last_executed_optimized_graph().findNode("prim::oneDNNFusionGroup")
    finally:
        torch.jit.enable_onednn_fusion(False)
    taken = [node.kind() for node in group.g("Subgraph").nodes()] if group else []
    if taken.count("aten::matmul") != 2 or "aten::softmax" not in taken:
        raise RuntimeError("oneDNN does not take the softmax and both products as one part")
    return lambda: traced(rows, k, v).view(*q.shape[:3], v.shape[3])
