"""Where workloads are measured: what the CPU (processor.py) and a GPU (gpu.py) have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .workload import Call, Workload


@dataclass(frozen=True)
class Limits:
    """What a device can do at most."""

    flops: float  #: float32 multiply-adds, two operations each, a second
    bandwidth: float  #: bytes a second, read from memory
    bf16_flops: float = 0  #: of products of bf16 where the device has faster ones; 0 where it has none
    f16_flops: float = 0  #: the same of f16


class Device(Protocol):
    threads: int | None  #: of the CPU; None on a GPU

    def prepare(self, workload: Workload) -> Workload:
        """Makes ready for a workload, and returns it as it runs here: with inputs in the device's memory."""

    def seconds(self, call: Call, count: int) -> float:
        """What one of `count` calls in a row takes, after one more, which has what fits into caches there again."""

    def limits(self) -> Limits:
        """Measured now, so that they are those of the moment."""

    def memory(self, workload: Workload) -> int:
        """Bytes that our kernel holds at most in the device's memory, beyond inputs and outputs."""
