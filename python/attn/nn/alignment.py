"""Attentions of recurrent translation models: Bahdanau's module in its parts, and Luong's attention to a place."""

from __future__ import annotations

import math

import torch
from torch import nn

from .masks import lengths
from .operators import SpecOperator
from .scores import Attention, linear, project


class BahdanauAttention(nn.Module):
    """energy = v · tanh(attn([hidden; encoder]) + bias) for a decoder step; its softmax weighs the steps."""

    _align = SpecOperator("bahdanau")
    _combine = SpecOperator("context")

    def __init__(self, hidden_size: int, encoder_size: int | None = None, attention_size: int | None = None):
        """hidden_size: X. encoder_size: Y, and attention_size, the units that compare: X where they are left out."""
        super().__init__()
        units = hidden_size if attention_size is None else attention_size
        self.attn = nn.Linear(hidden_size + (hidden_size if encoder_size is None else encoder_size), units, bias=False)
        self.bias = nn.Parameter(torch.zeros(units))
        self.v = nn.Parameter(torch.empty(units).uniform_(-1 / math.sqrt(units), 1 / math.sqrt(units)))

    def forward(
        self, hidden: torch.Tensor, encoder_outputs: torch.Tensor, valid_lens: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """hidden (B, X), encoder_outputs (B, N, Y) -> weights (B, N), which sum to 1, and their energy (B, N).

        valid_lens: integers (B,), how many steps of each sequence count, or None for all. Weights past them are 0,
            energies are not.

        Raises TypeError for other dtypes and ValueError for other shapes.
        """
        if hidden.ndim != 2:
            raise ValueError(f"hidden: must have 2 dimensions (batch, width), but has shape {tuple(hidden.shape)}")
        valid = lengths(valid_lens, hidden.shape[0], 1, encoder_outputs.shape[1])[:, 0]
        inputs = {
            "hidden": hidden,
            "encoder_outputs": encoder_outputs,
            "w": self.attn.weight,
            "bias": self.bias,
            "v": self.v,
        }
        weights, energy = self._align("weight", "energy", **inputs, valid_lens=valid)
        return weights, energy

    def context(self, weights: torch.Tensor, encoder_outputs: torch.Tensor) -> torch.Tensor:
        """weights (B, N), encoder_outputs (B, N, Y) -> their weighted sums (B, Y), a batched matrix product."""
        (out,) = self._combine("out", weights=weights, encoder_outputs=encoder_outputs)
        return out


class LocalAttention(Attention):
    """Luong's local attention: each query looks at the keys within `radius` of a centre that it predicts.

    centre = length · sigmoid(v_p · tanh(W_p q)); the weight of key n is softmax(q · W k) over the window, times
    exp(-2 (n - centre)² / radius²). So weights do not sum to 1. After a call, `centres` (B, M) are kept beside them.
    """

    operator = SpecOperator("local")

    def __init__(
        self,
        query_size: int,
        num_hiddens: int,
        radius: float = 10.0,
        dropout: float = 0.0,
        *,
        key_size: int | None = None,
        keep_weights: bool = True,
    ):
        """query_size: the width of queries. num_hiddens: units that predict the centre. radius: half the window.

        key_size: the width of keys; where it is left out, the first call says it.
        """
        super().__init__(dropout, keep_weights=keep_weights)
        if not radius > 0:
            raise ValueError(f"radius: must be greater than 0, but is {radius}")
        self.radius = float(radius)
        self.W = linear(key_size, query_size, bias=False)
        self.W_p = nn.Linear(query_size, num_hiddens, bias=False)
        self.v_p = nn.Linear(num_hiddens, 1, bias=False)
        self.centres: torch.Tensor | None = None

    def inputs(
        self, queries: torch.Tensor, keys: torch.Tensor, valid_lens: torch.Tensor
    ) -> dict[str, torch.Tensor | float]:
        place = torch.sigmoid(self.v_p(torch.tanh(project("queries", self.W_p, queries)))).squeeze(-1)
        centres = valid_lens.to(place.dtype) * place
        self.centres = centres.detach()
        return {"keys": project("keys", self.W, keys), "centre": centres, "radius": self.radius}
