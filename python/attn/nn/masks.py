"""Softmax over a part of each row."""

from __future__ import annotations

import torch

from .operators import SpecOperator

_masked_softmax = SpecOperator("masked_softmax")


def masked_softmax(X: torch.Tensor, valid_lens: torch.Tensor | None) -> torch.Tensor:
    """Softmax over the last axis; the elements at and beyond a row's valid length are 0.

    X: (B, M, N), floating-point.
    valid_lens: None for whole rows; integers of shape (B,), one length for all rows of a batch element, or (B, M), one
        for each row.

    Returns (B, M, N), in the dtype of X. A row of length 0 is all 0; where scores are filled with -1e6, as many
    tutorials do, it is 1 / N everywhere, so that its output is the average of all values.

    Raises TypeError where `valid_lens` are no integers, and ValueError where a shape does not fit.
    """
    if X.ndim != 3:
        raise ValueError(f"X: must have 3 dimensions (B, M, N), but has shape {tuple(X.shape)}")
    (weight,) = _masked_softmax("weight", x=X, valid_lens=lengths(valid_lens, *X.shape))
    return weight


def lengths(valid_lens: torch.Tensor | None, batch: int, queries: int, keys: int) -> torch.Tensor:
    """How many keys each query may see: i32 of shape (B, M).

    valid_lens: None for all keys; integers of shape (B,), one for each sequence, or (B, M), one for each query.
    batch, queries, keys: B, M and N.

    Raises TypeError where `valid_lens` are no integers, and ValueError for another shape.
    """
    if valid_lens is None:
        return torch.full((1, 1), keys, dtype=torch.int32).expand(batch, queries)
    if not isinstance(valid_lens, torch.Tensor) or valid_lens.is_floating_point() or valid_lens.dtype == torch.bool:
        found = valid_lens.dtype if isinstance(valid_lens, torch.Tensor) else type(valid_lens).__name__
        raise TypeError(f"valid_lens: must be a tensor of integers, but is {found}")
    if valid_lens.shape not in ((batch,), (batch, queries)):
        raise ValueError(
            f"valid_lens: shape must be ({batch},) or ({batch}, {queries}), but is {tuple(valid_lens.shape)}"
        )
    counts = valid_lens.clamp(0, keys).to(torch.int32)
    return counts if counts.ndim == 2 else counts[:, None].expand(batch, queries)
