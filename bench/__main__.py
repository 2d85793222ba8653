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

import torch
from tqdm import tqdm

from . import page
from .catalogue import GROUPS
from .limits import Meter
from .measure import measure
from .table import failures, header, line


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Kernels of attn beside their peers and the machine's limits.")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="which workloads; all of them without")
    parser.add_argument("--only", default="", metavar="TEXT", help="workloads whose name contains TEXT")
    parser.add_argument("--dtype", choices=["f32", "bf16", "f16"], help="workloads of this dtype")
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, os.cpu_count() or 1}), metavar="N")
    parser.add_argument("--rounds", type=int, default=9, help="of which the median is taken")
    parser.add_argument("--json", metavar="FILE", help="where the times of every round are stored")
    parser.add_argument("--page", type=Path, metavar="FILE", help="the page whose table is replaced by this one: docs/performance.md")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="where the shares of the group `lengths` are drawn")
    return parser.parse_args()


def main() -> None:
    options = parse()
    load = os.getloadavg()[0]
    print(f"PyTorch {torch.__version__}, {os.cpu_count()} cores, load {load:.1f}\n\n{header()}", flush=True)
    chosen = [
        (group, threads, workload)
        for group in options.groups or GROUPS
        for workload in GROUPS[group]()
        if options.only in workload.name and options.dtype in (None, workload.dtype)
        for threads in options.threads
    ]
    meters = {threads: Meter(threads) for threads in options.threads}
    rows, lengths = [], []
    total = len(chosen)
    taken = (chosen.pop(0) for _ in range(total))  # so that the inputs of what has been measured are freed
    for group, threads, workload in tqdm(taken, total=total, file=sys.stderr, disable=not sys.stderr.isatty()):
        row = measure(workload, threads, options.rounds, meters[threads])
        (lengths if group == "lengths" else rows).append(row)
        tqdm.write(line(row), file=sys.stdout)
        sys.stdout.flush()
    if any(row.failures for row in rows):
        print(f"\nWho could not run:\n\n{failures(rows)}")
    if options.page:
        page.write(options.page, rows, torch.__version__)
    if options.plot:
        page.plot(options.plot, [row for row in lengths if row.threads == 1])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([dataclasses.asdict(row) for row in rows + lengths], file, indent=1)


main()
