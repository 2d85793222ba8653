"""Pictures of attention: weights as heatmaps, and masks with the tiles that a kernel skips, takes whole or masks.

Every function returns a Matplotlib figure, which is neither shown nor kept by `matplotlib.pyplot`:
`figure.savefig("weights.png")`.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

try:
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator
except ImportError:
    raise ImportError("attn.plot: needs Matplotlib: pip install matplotlib") from None

_TILES = {"empty: skipped": "#f2f2f2", "partial: masked": "#f5b041", "full": "#5dade2"}


def heatmaps(
    matrices: Any,
    xlabel: str = "Keys",
    ylabel: str = "Queries",
    titles: Sequence[str] | Sequence[Sequence[str]] | None = None,
    *,
    keys: Sequence[str] | None = None,
    queries: Sequence[str] | None = None,
    figsize: tuple[float, float] = (2.5, 2.5),
    cmap: str = "Reds",
) -> Figure:
    """Matrices as rows and columns of heatmaps, all on one scale, with a colour bar that they share.

    matrices: (rows, columns, M, N), or (columns, M, N) or (M, N) for one row; any array library's.
    xlabel, ylabel: what the matrices' columns and rows are.
    titles: a title for each column, above the first row; or one for each heatmap, as (rows, columns).
    keys, queries: a label for each of the N columns and M rows, such as the words.
    figsize: inches for one heatmap.

    Raises ValueError where a shape or a number of titles or labels does not fit.
    """
    weights = _array(matrices)
    if not 2 <= weights.ndim <= 4:
        raise ValueError(
            f"matrices: must have 2 to 4 dimensions, (rows, columns, M, N) at most, but has shape {weights.shape}"
        )
    weights = weights.astype(np.float64).reshape((1,) * (4 - weights.ndim) + weights.shape)
    if weights.size == 0:
        raise ValueError(f"matrices: must have elements, but has shape {weights.shape}")
    rows, columns, height, width = weights.shape
    _check_count("keys", keys, width)
    _check_count("queries", queries, height)
    titles = _titles(titles, rows, columns)
    figure = Figure(figsize=(figsize[0] * columns + 0.8, figsize[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    scale = {"vmin": min(0.0, np.nanmin(weights)), "vmax": np.nanmax(weights)}
    for row in range(rows):
        for column in range(columns):
            axis = axes[row, column]
            image = axis.imshow(weights[row, column], cmap=cmap, aspect="auto", interpolation="nearest", **scale)
            axis.set_title(titles[row][column])
            _label_ticks(axis, keys, queries)
            axis.label_outer()
            if row == rows - 1:
                axis.set_xlabel(xlabel)
            if column == 0:
                axis.set_ylabel(ylabel)
    figure.colorbar(image, ax=axes, shrink=0.7)
    return figure


def mask(
    allowed: Any,
    tile: int | tuple[int, int] = 16,
    *,
    xlabel: str = "Keys",
    ylabel: str = "Queries",
    title: str | None = None,
    figsize: tuple[float, float] = (4.5, 4.5),
) -> Figure:
    """A mask, with its tiles coloured: empty ones are skipped, full ones need no mask, partial ones are masked.

    allowed: (M, N) of bool: whether a query may see a key. Any array library's.
    tile: how many queries and keys a tile has: a number, or (queries, keys). Tiles at the ends may be smaller.

    Raises TypeError for another dtype, and ValueError where the shape or the tile is not as it says here.
    """
    allowed = _array(allowed)
    if allowed.dtype != np.bool_:
        raise TypeError(f"allowed: dtype must be bool, but is {allowed.dtype}")
    if allowed.ndim != 2 or allowed.size == 0:
        raise ValueError(f"allowed: must have 2 dimensions (M, N) and elements, but has shape {allowed.shape}")
    step = (tile, tile) if isinstance(tile, int) else tuple(tile)
    if len(step) != 2 or min(step) < 1:
        raise ValueError(f"tile: must be a number above 0, or two, but is {tile}")
    kinds = tile_kinds(allowed, step)
    figure = Figure(figsize=figsize, layout="constrained")
    axis = figure.subplots()
    cells = kinds.repeat(step[0], 0).repeat(step[1], 1)[: allowed.shape[0], : allowed.shape[1]]
    axis.imshow(
        cells, cmap=ListedColormap(list(_TILES.values())), norm=BoundaryNorm([0, 1, 2, 3], 3), interpolation="nearest"
    )
    hidden = np.ones((*allowed.shape, 4))  # what a partial tile must leave out, paler
    hidden[..., 3] = np.where(~allowed & (cells == 1), 0.6, 0)
    axis.imshow(hidden, interpolation="nearest")
    for row in range(step[0], allowed.shape[0], step[0]):
        axis.axhline(row - 0.5, color="grey", linewidth=0.5)
    for column in range(step[1], allowed.shape[1], step[1]):
        axis.axvline(column - 0.5, color="grey", linewidth=0.5)
    axis.set(xlabel=xlabel, ylabel=ylabel, title=title or "")
    _label_ticks(axis, None, None)
    entries = [
        Patch(facecolor=colour, edgecolor="grey", label=f"{name} ({(kinds == kind).sum()})")
        for kind, (name, colour) in enumerate(_TILES.items())
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    return figure


def tile_kinds(allowed: np.ndarray, tile: tuple[int, int]) -> np.ndarray:
    """For each tile of a mask (M, N): 0 where it is empty, 1 where it is partial, 2 where it is full."""
    starts = [np.arange(0, extent, step) for extent, step in zip(allowed.shape, tile)]
    count = np.add.reduceat(np.add.reduceat(allowed.astype(np.int64), starts[0], 0), starts[1], 1)
    rows, columns = (np.diff(np.append(start, extent)) for start, extent in zip(starts, allowed.shape))
    return np.where(count == 0, 0, np.where(count == np.outer(rows, columns), 2, 1))


def _array(values: Any) -> np.ndarray:
    """Arrays of any library, and PyTorch's whatever their dtype and whether they require gradients."""
    if hasattr(values, "detach"):
        values = values.detach()
        values = values.float() if values.is_floating_point() else values
    return np.asarray(values)


def _check_count(name: str, labels: Sequence[str] | None, count: int) -> None:
    if labels is not None and len(labels) != count:
        raise ValueError(f"{name}: must be {count} labels, but {len(labels)} were given")


def _titles(titles: Any, rows: int, columns: int) -> list[list[str]]:
    if titles is None:
        return [[""] * columns] * rows
    if all(isinstance(title, str) for title in titles):
        titles = [list(titles)] + [[""] * len(titles)] * (rows - 1)
    if len(titles) != rows or any(len(row) != columns for row in titles):
        found = f"{len(titles)} rows of {sorted({len(row) for row in titles})}"
        raise ValueError(f"titles: must be {columns} titles, or {rows} rows of {columns}, but are {found}")
    return [list(row) for row in titles]


def _label_ticks(axis: Any, keys: Sequence[str] | None, queries: Sequence[str] | None) -> None:
    if keys is None:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    else:
        axis.set_xticks(range(len(keys)), keys, rotation=45, ha="right", rotation_mode="anchor")
    if queries is None:
        axis.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    else:
        axis.set_yticks(range(len(queries)), queries)
