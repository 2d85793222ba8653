"""Kinds of attention: masks, changes of scores, dropout. Each differs from the plain one in a few words of its spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Variant:
    """What distinguishes an attention from the plain one. Functions get (tensors, b, h, m, n), index tensors or numbers."""

    parameters: str = ""  #: of the spec, after q, k and v
    score: str = "sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D)"
    where: str = ""  #: the spec's mask
    tensors: Callable[[dict], Tensors] = lambda sizes: {}  #: what `parameters` declares
    change: Callable[..., Any] | None = None  #: of a score; takes the score first
    mask: Callable[..., Any] | None = None
    causal: bool = False  #: SDPA has a word for it
    dense: bool = False  #: `change` adds a tensor that SDPA can take
    dropout: float = 0  #: the probability with which a weight is dropped
    returns_weights: bool = False  #: as a second result

    @property
    def plain(self) -> bool:
        return self == Variant()


def slopes(sizes: dict) -> Tensors:
    return {"slope": 2.0 ** (-8.0 * torch.arange(1, sizes["H"] + 1) / sizes["H"])}


def dense_bias(sizes: dict) -> Tensors:
    return {"bias": torch.randn(sizes["H"], sizes["M"], sizes["N"], generator=torch.Generator().manual_seed(1))}


def ragged_lengths(sizes: dict) -> Tensors:
    return {"length": torch.linspace(sizes["N"] / 4, sizes["N"], sizes["B"]).int()}


def document_starts(sizes: dict) -> Tensors:
    """Documents of growing length: the first token of the document that each token is in."""
    bounds = sizes["N"] * (torch.arange(8) / 8.0) ** 1.5
    return {"start": torch.stack([bounds[bounds <= m].max() for m in range(sizes["M"])]).int()}


def document_numbers(sizes: dict) -> Tensors:
    """The same documents, of which each token has the number, as a query and as a key."""
    document = torch.unique(document_starts(sizes)["start"], return_inverse=True)[1].int()
    return {"document": document, "of": document}


def given_mask(sizes: dict) -> Tensors:
    document = document_numbers(sizes)["document"]
    return {"see": document[:, None] == document[None]}


def block_table(sizes: dict) -> Tensors:
    """A quarter of the blocks of 128 keys for each block of 128 queries, and the diagonal."""
    blocks = [-(-sizes[size] // 128) for size in "MN"]
    table = torch.rand(blocks, generator=torch.Generator().manual_seed(1)) < 0.25
    return {"table": table | torch.eye(*blocks, dtype=torch.bool)}


PLAIN = Variant()
SCORE = PLAIN.score
CAUSAL = Variant(where="n <= m", mask=lambda t, b, h, m, n: n <= m, causal=True)
WINDOW = Variant(where="n <= m and n > m - 256", mask=lambda t, b, h, m, n: (n <= m) & (n > m - 256))
ALIBI = Variant(
    parameters=", slope: f32[H]",
    score=f"{SCORE} + slope[h] * (n - m)",
    tensors=slopes,
    change=lambda s, t, b, h, m, n: s + t["slope"][h] * (n - m),
    dense=True,
)
SOFTCAP = Variant(score=f"30 * tanh({SCORE} / 30)", change=lambda s, t, b, h, m, n: 30 * torch.tanh(s / 30))
EVERYTHING = Variant(
    parameters=", slope: f32[H]",
    score=f"30 * tanh({SCORE} / 30) + slope[h] * (n - m)",
    where=WINDOW.where,
    tensors=slopes,
    change=lambda s, t, b, h, m, n: 30 * torch.tanh(s / 30) + t["slope"][h] * (n - m),
    mask=WINDOW.mask,
)
BIAS = Variant(
    parameters=", bias: f32[H, M, N]",
    score=f"{SCORE} + bias[h, m, n]",
    tensors=dense_bias,
    change=lambda s, t, b, h, m, n: s + t["bias"][h, m, n],
    dense=True,
)
RAGGED = Variant(
    parameters=", length: i32[B]",
    where="n < length[b]",
    tensors=ragged_lengths,
    mask=lambda t, b, h, m, n: n < t["length"][b],
)
DOCUMENTS = Variant(
    parameters=", start: i32[M]",
    where="n >= start[m] and n <= m",
    tensors=document_starts,
    mask=lambda t, b, h, m, n: (n >= t["start"][m]) & (n <= m),
)
NUMBERED = Variant(
    parameters=", document: i32[M], of: i32[N]",
    where="n <= m and document[m] == of[n]",
    tensors=document_numbers,
    mask=lambda t, b, h, m, n: (n <= m) & (t["document"][m] == t["of"][n]),
)
GIVEN = Variant(
    parameters=", see: bool[M, N]",
    where="see[m, n]",
    tensors=given_mask,
    mask=lambda t, b, h, m, n: t["see"][m, n],
)
TABLE = Variant(
    parameters=", table: bool[X, Y]",
    where="table[m // 128, n // 128]",
    tensors=block_table,
    mask=lambda t, b, h, m, n: t["table"][m // 128, n // 128],
)
SINK = Variant(
    where="n <= m and (n < 4 or n > m - 256)",
    mask=lambda t, b, h, m, n: (n <= m) & ((n < 4) | (n > m - 256)),
)
DROPOUT = Variant(dropout=0.1)
WEIGHTS = Variant(returns_weights=True)
