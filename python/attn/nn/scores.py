"""Attention by its score: the dot product, a small network, a learned matrix, a distance.

Each layer takes queries (B, M, Q), keys (B, N, K), values (B, N, E) and valid lengths, and returns (B, M, E). All are
f32, f64, bf16 or f16, on the CPU; the parameters have the same dtype. A query whose valid length is 0 gives 0, where
tutorials that fill masked scores with -1e6 give the average of all values.

After a call, `attention_weights` (B, M, N) are the weights before dropout, detached from the graph: for pictures. With
`keep_weights=False` they are never stored, and `attention_weights` is None.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from .masks import lengths
from .operators import SpecOperator


class Attention(nn.Module):
    """What all layers share: dropout on the weights, valid lengths, and the weights of the last call."""

    operator: SpecOperator  #: inputs queries, keys, values, valid_lens and the layer's own; outputs out and weight

    def __init__(self, dropout: float = 0.0, *, keep_weights: bool = True):
        super().__init__()
        self.dropout = probability("dropout", dropout)
        self.keep_weights = keep_weights
        self.attention_weights: torch.Tensor | None = None

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        valid_lens: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """queries (B, M, Q), keys (B, N, K), values (B, N, E) -> (B, M, E).

        valid_lens: how many keys count: None for all; integers of shape (B,), or (B, M) for each query its own.

        Raises TypeError for other dtypes and ValueError for other shapes.
        """
        check_ranks(queries, keys, values)
        valid_lens = lengths(valid_lens, *queries.shape[:2], keys.shape[1])
        inputs = {"queries": queries, "keys": keys} | self.inputs(queries, keys, valid_lens)
        outputs = ("out", "weight") if self.keep_weights else ("out",)
        dropout = self.dropout if self.training else 0.0
        results = self.operator(*outputs, dropout=dropout, **inputs, values=values, valid_lens=valid_lens)
        self.attention_weights = results[1].detach() if self.keep_weights else None
        return results[0]

    def inputs(
        self, queries: torch.Tensor, keys: torch.Tensor, valid_lens: torch.Tensor
    ) -> dict[str, torch.Tensor | float]:
        """The spec's inputs that the layer has itself, and projected queries and keys; valid_lens are (B, M)."""
        return {}

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"


class DotProductAttention(Attention):
    """Scaled dot-product attention: softmax(q·k / √D) v, for queries and keys of the same width D."""

    operator = SpecOperator("dot_product")


class AdditiveAttention(Attention):
    """Additive (Bahdanau) attention: softmax(w_v · tanh(W_q q + W_k k)) v, for queries and keys of any widths."""

    operator = SpecOperator("additive")

    def __init__(
        self,
        num_hiddens: int,
        dropout: float = 0.0,
        *,
        query_size: int | None = None,
        key_size: int | None = None,
        bias: bool = False,
        keep_weights: bool = True,
    ):
        """num_hiddens: how many units compare a query with a key. bias: whether W_k has one.

        query_size, key_size: the widths; where one is left out, the first call says it, as with PyTorch's lazy layers.
        """
        super().__init__(dropout, keep_weights=keep_weights)
        self.W_q = linear(query_size, num_hiddens, bias=False)
        self.W_k = linear(key_size, num_hiddens, bias=bias)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)

    def inputs(
        self, queries: torch.Tensor, keys: torch.Tensor, valid_lens: torch.Tensor
    ) -> dict[str, torch.Tensor | float]:
        queries, keys = project("queries", self.W_q, queries), project("keys", self.W_k, keys)
        return {"queries": queries, "keys": keys, "wv": self.w_v.weight[0]}


MLPAttention = AdditiveAttention  # its name where the score is seen as a perceptron with one hidden layer


class BilinearAttention(Attention):
    """Luong's "general" attention: softmax(q · (W k + b)) v, for queries and keys of any widths."""

    operator = SpecOperator("bilinear")

    def __init__(
        self,
        query_size: int,
        dropout: float = 0.0,
        *,
        key_size: int | None = None,
        bias: bool = False,
        keep_weights: bool = True,
    ):
        """query_size, key_size: the widths; where key_size is left out, the first call says it."""
        super().__init__(dropout, keep_weights=keep_weights)
        self.W = linear(key_size, query_size, bias=bias)

    def inputs(
        self, queries: torch.Tensor, keys: torch.Tensor, valid_lens: torch.Tensor
    ) -> dict[str, torch.Tensor | float]:
        return {"keys": project("keys", self.W, keys)}


class GaussianAttention(Attention):
    """Gaussian kernel regression: softmax(-‖q - k‖² / (2 width²)) v, for queries and keys of the same width."""

    operator = SpecOperator("gaussian")

    def __init__(self, width: float = 1.0, dropout: float = 0.0, *, learned: bool = False, keep_weights: bool = True):
        """width: a smaller one looks at nearer keys only. learned: whether it is trained."""
        super().__init__(dropout, keep_weights=keep_weights)
        if not width > 0:
            raise ValueError(f"width: must be greater than 0, but is {width}")
        self.width = nn.Parameter(torch.tensor(float(width)), requires_grad=learned)

    def inputs(
        self, queries: torch.Tensor, keys: torch.Tensor, valid_lens: torch.Tensor
    ) -> dict[str, torch.Tensor | float]:
        return {"width": self.width}


def probability(name: str, value: float) -> float:
    """The value, if it is a probability. Raises ValueError otherwise."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: must be between 0 and 1, but is {value}")
    return float(value)


def check_ranks(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Raises ValueError where one is not a batch of rows. The kernel compares their sizes."""
    for name, tensor in {"queries": queries, "keys": keys, "values": values}.items():
        if tensor.ndim != 3:
            raise ValueError(
                f"{name}: must have 3 dimensions (batch, rows, width), but has shape {tuple(tensor.shape)}"
            )


def linear(width: int | None, outputs: int, bias: bool) -> nn.Linear:
    """A linear layer, lazy where its width is not known yet."""
    return nn.LazyLinear(outputs, bias=bias) if width is None else nn.Linear(width, outputs, bias=bias)


def project(name: str, layer: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
    """The rows through a linear layer. Raises ValueError where their width is another."""
    lazy = isinstance(layer.weight, UninitializedParameter)
    if not lazy and rows.shape[-1] != layer.in_features:
        raise ValueError(f"{name}: width must be {layer.in_features}, but shape is {tuple(rows.shape)}")
    return layer(rows)
