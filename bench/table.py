"""The rows as text."""

from __future__ import annotations

from .measure import Row

HEADER = "| workload | dtype | threads | attn | spread | best peer | its time | attn is faster by | share of limit | worst error | memory a thread |"


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def line(row: Row) -> str:
    peer = row.best_peer()
    share = row.share()
    cells = [
        row.name,
        row.dtype,
        str(row.threads),
        duration(row.median("attn")),
        f"{row.spread('attn'):.0%}",
        peer or "none",
        duration(row.median(peer)) if peer else "",
        f"{row.median(peer) / row.median('attn'):.2f}" if peer else "",
        f"{share[0]:.2f} {share[1]}" if share else "",
        f"{row.error:.1e}",
        f"{row.memory / row.threads / 1e6:.2f} MB",
    ]
    return "| " + " | ".join(cells) + " |"


def header() -> str:
    return HEADER + "\n" + "|---" * HEADER.count(" | ") + "|---|"


def failures(rows: list[Row]) -> str:
    lines = [f"- {row.name}: {who}: {reason}" for row in rows for who, reason in row.failures.items()]
    return "\n".join(dict.fromkeys(lines))
