"""Multi-head attention with its projections: for any queries, keys and values, and as DistilBERT has it."""

from __future__ import annotations

import torch
from torch import nn

from .masks import lengths
from .operators import SpecOperator
from .scores import check_ranks, linear, probability, project


class MultiHeadAttention(nn.Module):
    """W_o concat_h(softmax(q_h·k_h / √D) v_h), where q, k, v = W_q queries, W_k keys, W_v values are cut into heads of
    width D.

    After a call, `attention_weights` (B, H, M, N) are the weights before dropout, detached; None with
    `keep_weights=False`.
    """

    _attend = SpecOperator("multi_head")

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        query_size: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        keep_weights: bool = True,
    ):
        """num_hiddens: the width of all heads together, and of the output. bias: whether the four projections have one.

        query_size, key_size, value_size: the widths; where one is left out, the first call says it, as with PyTorch's
            lazy layers.

        Raises ValueError where the heads do not divide the width.
        """
        super().__init__()
        check_heads("num_hiddens", num_hiddens, "num_heads", num_heads)
        self.num_heads = num_heads
        self.dropout = probability("dropout", dropout)
        self.keep_weights = keep_weights
        self.W_q = linear(query_size, num_hiddens, bias)
        self.W_k = linear(key_size, num_hiddens, bias)
        self.W_v = linear(value_size, num_hiddens, bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias)
        self.attention_weights: torch.Tensor | None = None

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        valid_lens: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """queries (B, M, Q), keys (B, N, K), values (B, N, V) -> (B, M, num_hiddens).

        valid_lens: how many keys count: None for all; integers of shape (B,), or (B, M) for each query its own.

        Raises TypeError for other dtypes and ValueError for other shapes.
        """
        check_ranks(queries, keys, values)
        q, k, v = (
            split(project(*each), self.num_heads)
            for each in (("queries", self.W_q, queries), ("keys", self.W_k, keys), ("values", self.W_v, values))
        )
        outputs = ("out", "weight") if self.keep_weights else ("out",)
        valid = lengths(valid_lens, *queries.shape[:2], keys.shape[1])
        results = self._attend(
            *outputs, dropout=self.dropout if self.training else 0.0, queries=q, keys=k, values=v, valid_lens=valid
        )
        self.attention_weights = results[1].detach() if self.keep_weights else None
        return self.W_o(results[0].flatten(2))


class MultiHeadSelfAttention(nn.Module):
    """DistilBERT's self-attention: projections with biases, a padding mask, dropout and a mask of heads.

    The parameters have DistilBERT's names, so that its state dictionaries load. After a call, `attention_weights`
    (B, H, M, N) are the weights after dropout and head mask, detached; None with `keep_weights=False`.
    """

    _attend = SpecOperator("self_attention")

    def __init__(self, dim: int, n_heads: int, attention_dropout: float = 0.0, *, keep_weights: bool = True):
        """dim: the width of inputs, outputs and all heads together. Raises ValueError unless n_heads divides it."""
        super().__init__()
        check_heads("dim", dim, "n_heads", n_heads)
        self.n_heads = n_heads
        self.attention_dropout = probability("attention_dropout", attention_dropout)
        self.keep_weights = keep_weights
        self.q_lin, self.k_lin, self.v_lin, self.out_lin = (nn.Linear(dim, dim) for _ in range(4))
        self.attention_weights: torch.Tensor | None = None

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None = None,
        head_mask: torch.Tensor | None = None,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, ...]:
        """query (B, M, dim), key and value (B, N, dim) -> (context (B, M, dim),), or (context, weights (B, H, M, N)).

        mask: (B, N), 0 or False where a key is padding; None where none is. Where all are, the weights are 0.
        head_mask: (H,), what each head's weights are multiplied by: 0 switches it off; None for ones.
        output_attentions: whether the weights, after dropout and head mask, are returned too.

        Raises TypeError for other dtypes and ValueError for other shapes.
        """
        check_ranks(query, key, value)
        batch, keys = key.shape[:2]
        keep = self._mask("mask", mask, (batch, keys), query).to(torch.bool)
        per_head = self._mask("head_mask", head_mask, (self.n_heads,), query).to(query.dtype)
        q, k, v = (
            split(project(*each), self.n_heads)
            for each in (("query", self.q_lin, query), ("key", self.k_lin, key), ("value", self.v_lin, value))
        )
        outputs = ("out", "kept") if self.keep_weights or output_attentions else ("out",)
        dropout = self.attention_dropout if self.training else 0.0
        results = self._attend(*outputs, dropout=dropout, query=q, key=k, value=v, mask=keep, head_mask=per_head)
        self.attention_weights = results[1].detach() if self.keep_weights else None
        context = self.out_lin(results[0].flatten(2))
        return (context, results[1]) if output_attentions else (context,)

    def _mask(self, name: str, mask: torch.Tensor | None, shape: tuple[int, ...], query: torch.Tensor) -> torch.Tensor:
        if mask is None:
            return query.new_ones((1,) * len(shape)).expand(shape)
        if mask.shape != shape:
            raise ValueError(f"{name}: shape must be {shape}, but is {tuple(mask.shape)}")
        return mask


def check_heads(width_name: str, width: int, heads_name: str, heads: int) -> None:
    """Raises ValueError where the width cannot be cut into that many heads."""
    if heads < 1 or width % heads:
        raise ValueError(f"{width_name}: must be a multiple of {heads_name} = {heads}, but is {width}")


def split(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """(B, N, H * D) as (B, N, H, D), a view."""
    return rows.unflatten(-1, (heads, -1))
