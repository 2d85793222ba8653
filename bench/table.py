"""The rows as text."""

from __future__ import annotations

from typing import Callable

from .measure import Row
from .workload import Workload

Columns = dict[str, Callable[[Row], str]]  #: what follows the workload's name and dtype


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def of_best_peer(cell: Callable[[Row, str], str]) -> Callable[[Row], str]:
    return lambda row: cell(row, row.best_peer()) if row.best_peer() else ""


def share_of(names: dict[str, str]) -> Callable[[Row], str]:
    """names: of the limits, in the table."""

    def cell(row: Row) -> str:
        share = row.share()
        return f"{share[0]:.2f} {names[share[1]]}" if share else ""

    return cell


def worst_error(row: Row) -> str:
    return f"{row.error:.1e}"


TIMES: Columns = {
    "attn": lambda row: duration(row.median("attn")),
    "spread": lambda row: f"{row.spread('attn'):.0%}",
    "best peer": lambda row: row.best_peer() or "none",
    "its time": of_best_peer(lambda row, peer: duration(row.median(peer))),
    "attn is faster by": of_best_peer(lambda row, peer: f"{row.median(peer) / row.median('attn'):.2f}"),
}
PROCESSOR: Columns = {
    "threads": lambda row: str(row.threads),
    **TIMES,
    "share of limit": share_of({"flops": "FMA", "bf16_flops": "bf16 dot", "bandwidth": "read"}),
    "worst error": worst_error,
    "memory a thread": lambda row: f"{row.memory / row.threads / 1e6:.2f} MB",
}
PLANS: Columns = {
    "threads": lambda row: str(row.threads),
    "chosen": TIMES["attn"],
    "spread": TIMES["spread"],
    "tuned": TIMES["its time"],
    "tuned / chosen": TIMES["attn is faster by"],
}
GPU: Columns = {
    **TIMES,
    "TFLOP/s": lambda row: f"{row.rate() / 1e12:.1f}" if row.rate() else "",
    "share of limit": share_of({"flops": "FMA", "bf16_flops": "tensor cores", "f16_flops": "tensor cores", "bandwidth": "read"}),
    "worst error": worst_error,
    "memory": lambda row: f"{row.memory / 1e6:.2f} MB",
}


def text(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def header(columns: Columns) -> str:
    return text(["workload", "dtype", *columns]) + "\n" + "|---" * (2 + len(columns)) + "|"


def line(columns: Columns, row: Row) -> str:
    return text([row.name, row.dtype, *(cell(row) for cell in columns.values())])


def empty_line(columns: Columns, workload: Workload) -> str:
    """Of a workload that has not been measured."""
    return text([workload.name, workload.dtype, *[""] * len(columns)])


def failures(rows: list[Row]) -> str:
    lines = [f"- {row.name}: {who}: {reason}" for row in rows for who, reason in row.failures.items()]
    return "\n".join(dict.fromkeys(lines))
