"""One workload: everybody's times in turns, our worst error and memory, the device's limits."""

from __future__ import annotations

import statistics
import warnings
from dataclasses import asdict, dataclass, field
from functools import partial

import torch

from .device import Device
from .pytorch import calling, compiling
from .workload import Call, Workload

SHORTEST = 2e-3  #: seconds that one timing takes at least: short calls are repeated
SLOW, SLOW_ROUNDS = 10, 3  #: whoever takes so many times our time runs in so few rounds: IREE would take most of the hour


@dataclass(frozen=True)
class Row:
    name: str
    dtype: str
    threads: int | None  #: of the CPU; None on a GPU
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

    def rate(self) -> float | None:
        """Operations a second; None where memory is the limit."""
        return self.flops / self.median("attn") if self.flops else None

    def share(self) -> tuple[float, str] | None:
        """Of the limit that the workload meets first, and the name of this limit."""
        if self.flops:
            of_dtype = f"{self.dtype}_flops"
            which = of_dtype if self.limits.get(of_dtype) else "flops"
            return self.rate() / self.limits[which], which
        if self.read_bytes:
            return self.read_bytes / self.median("attn") / self.limits["bandwidth"], "bandwidth"
        return None


def repeats(device: Device, call: Call) -> int:
    return max(1, round(SHORTEST / max(device.seconds(call, 1), 1e-7)))


def is_slow(seconds: dict[str, list[float]], who: str) -> bool:
    known = len(seconds[who]) >= SLOW_ROUNDS
    return known and statistics.median(seconds[who]) > SLOW * statistics.median(seconds["attn"])


def call_kernel(workload: Workload, **inputs: torch.Tensor | float) -> Call:
    kernel, arguments = workload.kernel(), list(inputs.values())
    return lambda: kernel(*arguments)


def formula_peers(workload: Workload) -> dict:
    if not workload.races_formula:
        return {}
    return {"eager": calling(workload.formula), "torch.compile": compiling(workload.formula)}


def measure(workload: Workload, device: Device, rounds: int) -> Row:
    workload = device.prepare(workload)
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
        counts = {who: repeats(device, runner) for who, runner in runners.items()}
        seconds: dict[str, list[float]] = {who: [] for who in runners}
        for _ in range(rounds):
            for who, runner in runners.items():
                if not is_slow(seconds, who):
                    seconds[who].append(device.seconds(runner, counts[who]))
    limits = device.limits()
    return Row(
        workload.name,
        workload.dtype,
        device.threads,
        seconds,
        error,
        device.memory(workload),
        asdict(limits),
        workload.flops,
        workload.read_bytes,
        failures,
    )
