"""The demo's large case: the C program's kernel, PyTorch's attention and the processor's peak, in turns.

    race.py DEMO FOLDER    DEMO is the C program; FOLDER is where its arrays go
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import attn

try:
    import torch
except ImportError:
    torch = None

HEADS, TOKENS, WIDTH = 8, 2048, 64
FLOPS = 4 * HEADS * TOKENS * TOKENS * WIDTH  # a multiply-add for each element of q·k and of weight·v
ROUNDS = 15
CHECKED_ROWS = 16  # of each head
SPEC = Path(__file__).parent / "attend.attn"


class Program:
    """The C program, which keeps its tensors between commands."""

    def __init__(self, demo: str, folder: Path, threads: int):
        files = [str(folder / f"{name}.npy") for name in ("q", "k", "v", "valid", "out")]
        self.process = subprocess.Popen(
            [demo, "serve", str(threads), *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, command: str) -> float:
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            sys.exit(f"the C program stopped at '{command}'")
        return float(answer)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def torch_seconds(q, k, v) -> float:
    begin = time.perf_counter()
    torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return time.perf_counter() - begin


def race(demo: str, folder: Path, arrays: dict, threads: int) -> None:
    program = Program(demo, folder, threads)
    ours, theirs, peaks = [], [], []  # of one round beside each other, so that what disturbs one disturbs all
    if torch is not None:
        torch.set_num_threads(threads)
        rivals = [torch.from_numpy(arrays[name])[None] for name in ("q", "k", "v")]
    for _ in range(ROUNDS):
        program.ask("run")  # each has its tensors in cache again when it is timed
        ours.append(program.ask("run"))
        if torch is not None:
            torch_seconds(*rivals)
            theirs.append(torch_seconds(*rivals))
        peaks.append(program.ask("peak"))
    program.ask("write")
    program.close()

    seconds, peak = statistics.median(ours), statistics.median(peaks)
    share = statistics.median(FLOPS / run / most for run, most in zip(ours, peaks))
    print(f"  {threads} thread{'s' if threads > 1 else ''}")
    print(
        f"    attn          {seconds * 1e3:7.1f} ms {FLOPS / seconds / 1e9:7.0f} GF/s   "
        f"{share:.2f} of the FMA peak, {peak / 1e9:.0f} GF/s"
    )
    if torch is None:
        print("    PyTorch is not installed, so there is nothing to compare with (./setup.sh --test installs it)")
    else:
        rival = statistics.median(theirs)
        ratio = statistics.median(other / run for run, other in zip(ours, theirs))
        print(
            f"    PyTorch SDPA  {rival * 1e3:7.1f} ms {FLOPS / rival / 1e9:7.0f} GF/s   "
            f"attn is {ratio:.2f} times as fast"
        )


def worst_difference(folder: Path, arrays: dict) -> float:
    """Of the C program's output from the reference interpreter, on some rows of each head: rows do not depend on each other."""
    inner = np.random.default_rng(1).choice(np.arange(1, TOKENS - 1), CHECKED_ROWS - 2, replace=False)
    rows = np.concatenate([[0], np.sort(inner), [TOKENS - 1]])
    kernel = attn.compile(SPEC)
    expected = kernel.reference(**{**arrays, "q": arrays["q"][:, rows]})
    return float(np.abs(np.load(folder / "out.npy")[:, rows] - expected).max())


def main() -> None:
    demo, folder = sys.argv[1], Path(sys.argv[2])
    generator = np.random.default_rng(0)
    arrays = {name: generator.standard_normal((HEADS, TOKENS, WIDTH), np.float32) for name in ("q", "k", "v")}
    arrays["valid"] = np.full(HEADS, TOKENS, np.int32)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    print(f"{HEADS} heads × {TOKENS} tokens × {WIDTH}, float32: {FLOPS / 1e9:.1f} GF, medians of {ROUNDS} rounds")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        print(f"  other programs are busy here (load {load:.1f} on {cores} cores): the times are not what this machine can do")
    for threads in sorted({1, min(2, os.cpu_count() or 1)}):
        race(demo, folder, arrays, threads)
    difference = worst_difference(folder, arrays)
    print(f"  worst difference from the reference, {CHECKED_ROWS} rows of each head: {difference:.1e}")


main()
