"""Sequence to sequence: a recurrent encoder, and a decoder that attends to its outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .scores import AdditiveAttention

_CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}


class Seq2SeqEncoder(nn.Module):
    """An embedding and a recurrent network."""

    def __init__(
        self,
        vocab_size: int,
        embed_size: int,
        num_hiddens: int,
        num_layers: int,
        dropout: float = 0.0,
        *,
        cell: str = "gru",
    ):
        """dropout: between the layers. cell: "gru" or "lstm". Raises ValueError for another."""
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_size)
        self.rnn = _recurrent(cell, embed_size, num_hiddens, num_layers, dropout)

    def forward(self, X: torch.Tensor, valid_lens: torch.Tensor | None = None) -> tuple[torch.Tensor, Any]:
        """X (B, N), integers -> the last layer's outputs (N, B, num_hiddens), and the state of all layers after the
        last step: a tensor (num_layers, B, num_hiddens), or two of them, hidden and cell, of an LSTM.

        valid_lens: integers (B,) above 0: outputs past a sequence's length are 0, and its state is the one after its
        last valid step. None where padding is read like words.
        """
        embedded = self.embedding(X).transpose(0, 1)
        if valid_lens is None:
            return self.rnn(embedded)
        outputs, state = self.rnn(pack_padded_sequence(embedded, valid_lens.cpu(), enforce_sorted=False))
        return pad_packed_sequence(outputs, total_length=X.shape[1])[0], state


class Seq2SeqAttentionDecoder(nn.Module):
    """A recurrent decoder. At each step, the query is its last layer's hidden state, and keys and values are the
    encoder's outputs. The context is joined to the embedding of the step's token.
    """

    def __init__(
        self,
        vocab_size: int,
        embed_size: int,
        num_hiddens: int,
        num_layers: int,
        dropout: float = 0.0,
        *,
        cell: str = "gru",
        attention: nn.Module | None = None,
    ):
        """dropout: between the layers, and on the attention's weights. cell: "gru" or "lstm", as in the encoder.

        attention: called with queries (B, 1, num_hiddens), keys, values and valid lengths; it has `attention_weights`.
            Where it is left out, AdditiveAttention of num_hiddens units.

        Raises ValueError for another cell.
        """
        super().__init__()
        self.attention = attention or AdditiveAttention(
            num_hiddens, dropout, query_size=num_hiddens, key_size=num_hiddens
        )
        self.embedding = nn.Embedding(vocab_size, embed_size)
        self.rnn = _recurrent(cell, embed_size + num_hiddens, num_hiddens, num_layers, dropout)
        self.dense = nn.Linear(num_hiddens, vocab_size)
        self._attention_weights: list[torch.Tensor] = []

    def init_state(self, enc_outputs: tuple[torch.Tensor, Any], enc_valid_lens: torch.Tensor | None) -> list[Any]:
        """The state before the first step.

        enc_outputs: what the encoder returned. enc_valid_lens: the lengths (B,) of its sequences, None for all steps.
        """
        outputs, hidden_state = enc_outputs
        return [outputs.transpose(0, 1), hidden_state, enc_valid_lens]

    def forward(self, X: torch.Tensor, state: list[Any]) -> tuple[torch.Tensor, list[Any]]:
        """X (B, T), integers, and the state before it -> scores (B, T, vocab_size), and the state after it.

        state: what `init_state` or an earlier call returned.
        """
        enc_outputs, hidden_state, enc_valid_lens = state
        outputs, self._attention_weights = [], []
        for token in self.embedding(X).unbind(1):
            # An LSTM has a cell state beside the hidden one.
            hidden = hidden_state[0] if isinstance(hidden_state, tuple) else hidden_state
            context = self.attention(hidden[-1].unsqueeze(1), enc_outputs, enc_outputs, enc_valid_lens)
            step = torch.cat((context, token.unsqueeze(1)), -1).transpose(0, 1)
            output, hidden_state = self.rnn(step, hidden_state)
            outputs.append(output)
            self._attention_weights.append(self.attention.attention_weights)
        return self.dense(torch.cat(outputs)).transpose(0, 1), [enc_outputs, hidden_state, enc_valid_lens]

    @property
    def attention_weights(self) -> list[torch.Tensor]:
        """(B, 1, N) for each step of the last call."""
        return self._attention_weights


def _recurrent(cell: str, inputs: int, hiddens: int, layers: int, dropout: float) -> nn.RNNBase:
    if cell not in _CELLS:
        raise ValueError(f"cell: must be one of {', '.join(_CELLS)}, but is {cell!r}")
    return _CELLS[cell](inputs, hiddens, layers, dropout=dropout)
