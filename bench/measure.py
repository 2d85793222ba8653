"""One workload: everybody's times in turns, our worst error and memory, the machine's limits."""

from __future__ import annotations

import statistics
import time
import warnings
from dataclasses import asdict, dataclass, field
from functools import partial

import torch

import attn

from .limits import Limits, Meter
from .memory import most_memory
from .pytorch import calling, compiling
from .workload import Call, Workload, as_tuple

SHORTEST = 2e-3  #: seconds that one timing takes at least: short calls are repeated
SLOW, SLOW_ROUNDS = 10, 3  #: whoever takes so many times our time runs in so few rounds: IREE would take most of the hour


@dataclass(frozen=True)
class Row:
    name: str
    dtype: str
    threads: int
    seconds: dict[str, list[float]]  #: of each round, by who ran; "attn" is ours
    error: float  #: relative to the largest number of the float64 result
    memory: int  #: bytes that our kernel holds at most, beyond inputs and outputs
    limits: dict[str, float]
    flops: float
    read_bytes: float
    failures: dict[str, str] = field(default_factory=dict)  #: who could not run, and why

    def median(self, who: str) -> float:
        return statistics.median(self.seconds[who])

    def spread(self, who: str) -> float:
        """Half the distance of the quartiles, relative to the median."""
        low, _, high = statistics.quantiles(self.seconds[who], n=4)
        return (high - low) / 2 / self.median(who)

    def best_peer(self) -> str | None:
        peers = [who for who in self.seconds if who != "attn"]
        return min(peers, key=self.median, default=None)

    def share(self) -> tuple[float, str] | None:
        """Of the limit that the workload meets first."""
        seconds = self.median("attn")
        if self.flops:
            which = "bf16_flops" if self.dtype == "bf16" and self.limits["bf16_flops"] else "flops"
            return self.flops / seconds / self.limits[which], {"flops": "FMA", "bf16_flops": "bf16 dot"}[which]
        if self.read_bytes:
            return self.read_bytes / seconds / self.limits["bandwidth"], "read"
        return None


def repeats(call: Call) -> int:
    begin = time.perf_counter()
    call()
    return max(1, round(SHORTEST / max(time.perf_counter() - begin, 1e-7)))


def timed(call: Call, count: int) -> float:
    call()  # its tensors are in cache again, or as far as they fit
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def is_slow(seconds: dict[str, list[float]], who: str) -> bool:
    known = len(seconds[who]) >= SLOW_ROUNDS
    return known and statistics.median(seconds[who]) > SLOW * statistics.median(seconds["attn"])


def compiled(workload: Workload) -> attn.Kernel:
    return attn.compile(workload.spec, dtype=None if workload.dtype == "f32" else workload.dtype)


def call_kernel(workload: Workload, **inputs: torch.Tensor | float) -> Call:
    kernel, arguments = compiled(workload), list(inputs.values())
    return lambda: kernel(*arguments)


def formula_peers(workload: Workload) -> dict:
    if not workload.races_formula:
        return {}
    return {"eager": calling(workload.formula), "torch.compile": compiling(workload.formula)}


def memory(workload: Workload, threads: int) -> int:
    """Of the kernel; of the forward or the backward kernel, whichever takes more, where gradients are computed."""
    kernel = compiled(workload)
    tensors = {name: torch.as_tensor(value) for name, value in workload.inputs.items()}
    if not workload.gradients:
        return memory_of(kernel, tensors, threads)
    forward, backward = kernel.grad(workload.gradients)
    results = as_tuple(forward(*tensors.values()))
    saved = dict(zip([info.name for info in forward.outputs], results))
    gradients = {f"grad_{info.name}": torch.ones_like(saved[info.name]) for info in kernel.outputs}
    of_both = memory_of(forward, tensors, threads), memory_of(backward, tensors | saved | gradients, threads)
    return max(of_both)


def memory_of(kernel: attn.Kernel, tensors: dict[str, torch.Tensor], threads: int) -> int:
    """For its inputs, by name, among the tensors."""
    inputs = [tensors[info.name] for info in kernel.inputs]
    return most_memory(kernel, [*inputs, *as_tuple(kernel(*inputs))], threads)


def measure(workload: Workload, threads: int, rounds: int, meter: Meter) -> Row:
    attn.set_num_threads(threads)
    torch.set_num_threads(threads)
    run = (workload.ours or partial(call_kernel, workload))(**workload.inputs)
    error = workload.error(run())
    runners, failures = {"attn": run}, {}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for who, prepare in {**workload.peers, **formula_peers(workload)}.items():
            try:
                runners[who] = prepare(**workload.inputs)
                runners[who]()
            except Exception as reason:  # a peer that cannot is named in the table, with what it said
                runners.pop(who, None)
                failures[who] = (str(reason) or type(reason).__name__).splitlines()[0]
        counts = {who: repeats(runner) for who, runner in runners.items()}
        seconds: dict[str, list[float]] = {who: [] for who in runners}
        for _ in range(rounds):
            for who, runner in runners.items():
                if not is_slow(seconds, who):
                    seconds[who].append(timed(runner, counts[who]))
    limits: Limits = meter.measure()
    return Row(
        workload.name,
        workload.dtype,
        threads,
        seconds,
        error,
        memory(workload, threads),
        asdict(limits),
        workload.flops,
        workload.read_bytes,
        failures,
    )
