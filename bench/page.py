"""The latest tables as sections of a page, docs/performance.md, with a plot beside it."""

from __future__ import annotations

import dataclasses
import platform
import statistics
from pathlib import Path

from .measure import Row
from .table import Columns, failures, header, line

CPU = "<!-- Written by make bench; do not edit. -->", "<!-- End of what make bench writes. -->"
PLANS = "<!-- Written by python -m bench plans; do not edit. -->", "<!-- End of what python -m bench plans writes. -->"
GPU = "<!-- Written by python -m bench gpu; do not edit. -->", "<!-- End of what python -m bench gpu writes. -->"


def machine_name() -> str:
    """The processor's name, as Linux gives it."""
    for text in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if text.startswith("model name"):
            return text.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def limits(rows: list[Row]) -> str:
    """The medians of the limits, for each number of threads."""
    lines = []
    for threads in sorted({row.threads for row in rows}):
        of = [row.limits for row in rows if row.threads == threads]
        flops, bf16, bandwidth = (statistics.median(each[name] for each in of) / 1e9 for name in ("flops", "bf16_flops", "bandwidth"))
        bf16_text = f"{bf16:.0f} GF/s of bf16 dot products, " if bf16 else ""
        lines.append(f"- {threads} thread{'s' * (threads > 1)}: {flops:.0f} GF/s of f32 multiply-adds, {bf16_text}{bandwidth:.1f} GB/s read")
    return "\n".join(lines)


def of_median_limits(rows: list[Row]) -> list[Row]:
    """Each row with the medians of the limits for its number of threads: what was measured beside one of them may have been disturbed."""
    of_threads: dict[int | None, list[dict[str, float]]] = {}
    for row in rows:
        of_threads.setdefault(row.threads, []).append(row.limits)
    medians = {
        threads: {name: statistics.median(each[name] for each in all_limits) for name in all_limits[0]}
        for threads, all_limits in of_threads.items()
    }
    return [dataclasses.replace(row, limits=medians[row.threads]) for row in rows]


def gpu_limits(rows: list[Row]) -> str:
    f32, bf16, f16, bandwidth = (
        statistics.median(row.limits[name] for row in rows) / 1e12 for name in ("flops", "bf16_flops", "f16_flops", "bandwidth")
    )
    return f"- products of matrices: {f32:.1f} TF/s in f32, {f16:.0f} in f16, {bf16:.0f} in bf16; {bandwidth:.2f} TB/s moved"


def section(machine: str, limits: str, columns: Columns, rows: list[Row]) -> str:
    rows = of_median_limits(rows)
    parts = [machine, f"Limits, measured between the rows:\n\n{limits}", "\n".join([header(columns), *(line(columns, row) for row in rows)])]
    if any(row.failures for row in rows):
        parts.append(f"Who could not run:\n\n{failures(rows)}")
    return "\n\n".join(parts)


def write(path: Path, markers: tuple[str, str], text: str) -> None:
    """Replaces what stands between the markers of the page."""
    begin, end = markers
    before, rest = path.read_text(encoding="utf-8").split(begin)
    after = rest.split(end)[1]
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def plot(path: Path, rows: list[Row]) -> None:
    """The share of the limit over the number of tokens, of rows of the group `lengths`: PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    series: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        length, mask = row.name.removeprefix("N").split()
        series.setdefault(f"{row.dtype} {mask}", []).append((int(length), row.share()[0]))
    for name, points in series.items():
        axes.plot(*zip(*sorted(points)), marker="o", linestyle="--" if "bf16" in name else "-", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({length for points in series.values() for length, _ in points}))
    axes.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
    axes.set(xlabel="tokens", ylabel="share of the peak", ylim=(0, 1))
    axes.set_title(f"8 heads of width 64, 1 thread: peaks of f32 multiply-adds and bf16 dot products, {machine_name()}", fontsize="small")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
