"""Measures the workloads and prints a table.

python -m bench [GROUP...] [--only TEXT] [--threads 1 2] [--rounds 9] [--json FILE] [--page FILE] [--plot FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Iterator, Sequence

import torch
from tqdm import tqdm

from . import gpu, page, table
from .catalogue import GROUPS
from .device import Device
from .measure import Row, measure
from .processor import Processor
from .workload import Workload

ON_CPU = [group for group in GROUPS if group not in ("plans", "gpu")]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Kernels of attn beside their peers and the machine's limits.")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="which workloads; without, all but plans that can be measured here")
    parser.add_argument("--only", default="", metavar="TEXT", help="workloads whose name contains TEXT")
    parser.add_argument("--dtype", choices=["f32", "bf16", "f16"], help="workloads of this dtype")
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, os.cpu_count() or 1}), metavar="N", help="of the CPU")
    parser.add_argument("--rounds", type=int, default=9, help="of which the median is taken")
    parser.add_argument("--json", metavar="FILE", help="where the times of every round are stored")
    parser.add_argument("--page", type=Path, metavar="FILE", help="the page whose tables are replaced by these: docs/performance.md")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="where the shares of the group `lengths` are drawn")
    return parser.parse_args()


def chosen(group: str, options: argparse.Namespace) -> Iterator[Workload]:
    for workload in GROUPS[group]():
        if options.only in workload.name and options.dtype in (None, workload.dtype):
            yield workload


def measured(group: str, devices: Sequence[Device], columns: table.Columns, options: argparse.Namespace) -> list[Row]:
    """The rows of a group's workloads, each on all devices, which are printed as they come."""
    rows = []
    pairs = [(workload, device) for workload in chosen(group, options) for device in devices]
    total = len(pairs)
    taken = (pairs.pop(0) for _ in range(total))  # so that the inputs of what has been measured are freed
    for workload, device in tqdm(taken, desc=group, total=total, file=sys.stderr, disable=not sys.stderr.isatty()):
        rows.append(measure(workload, device, options.rounds))
        tqdm.write(table.line(columns, rows[-1]), file=sys.stdout)
        sys.stdout.flush()
    return rows


def on_cpu(groups: list[str], options: argparse.Namespace) -> list[Row]:
    print(f"\n{table.header(table.PROCESSOR)}", flush=True)
    devices = [Processor(threads) for threads in options.threads]
    rows = {group: measured(group, devices, table.PROCESSOR, options) for group in groups}
    lengths = rows.pop("lengths", [])
    tabled = sum(rows.values(), [])
    if options.page:
        machine = f"{page.machine_name()}, PyTorch {torch.__version__}."
        page.write(options.page, page.CPU, page.section(machine, page.limits(tabled), table.PROCESSOR, tabled))
    if options.plot:
        page.plot(options.plot, [row for row in lengths if row.threads == 1])
    return tabled + lengths


def chosen_and_tuned(options: argparse.Namespace) -> list[Row]:
    print(f"\n{table.header(table.PLANS)}", flush=True)
    rows = measured("plans", [Processor(threads) for threads in options.threads], table.PLANS, options)
    if options.page:
        page.write(options.page, page.PLANS, page.section(f"{page.machine_name()}.", page.limits(rows), table.PLANS, rows))
    return rows


def on_gpu(options: argparse.Namespace) -> list[Row]:
    """Where there is none, the table's cells stay empty."""
    print(f"\n{table.header(table.GPU)}", flush=True)
    reason = gpu.missing()
    if reason:
        lines = [table.empty_line(table.GPU, workload) for workload in chosen("gpu", options)]
        why = f"Nothing was measured: {reason}."
        print("\n".join(lines), f"\n{why}", sep="\n")
        if options.page:
            page.write(options.page, page.GPU, "\n".join([why, "", table.header(table.GPU), *lines]))
        return []
    rows = measured("gpu", [gpu.Gpu()], table.GPU, options)
    if options.page:
        machine = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}."
        page.write(options.page, page.GPU, page.section(machine, page.gpu_limits(rows), table.GPU, rows))
    return rows


def main() -> None:
    options = parse()
    groups = options.groups or ON_CPU + ["gpu"] * (not gpu.missing())
    print(f"PyTorch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    rows = []
    if set(groups) & set(ON_CPU):
        rows += on_cpu([group for group in groups if group in ON_CPU], options)
    if "plans" in groups:
        rows += chosen_and_tuned(options)
    if "gpu" in groups:
        rows += on_gpu(options)
    if any(row.failures for row in rows):
        print(f"\nWho could not run:\n\n{table.failures(rows)}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([dataclasses.asdict(row) for row in rows], file, indent=1)


if __name__ == "__main__":
    main()
