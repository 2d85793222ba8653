"""The CPU, with some number of threads."""

from __future__ import annotations

import time
from functools import cached_property

import torch

import attn

from .device import Limits
from .limits import Meter
from .memory import most_memory, with_outputs
from .workload import Call, Workload, as_tuple


class Processor:
    def __init__(self, threads: int):
        self.threads = threads

    @cached_property
    def meter(self) -> Meter:
        return Meter(self.threads)

    def prepare(self, workload: Workload) -> Workload:
        attn.set_num_threads(self.threads)
        torch.set_num_threads(self.threads)
        return workload

    def seconds(self, call: Call, count: int) -> float:
        call()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - begin) / count

    def limits(self) -> Limits:
        return self.meter.measure()

    def memory(self, workload: Workload) -> int:
        """Of the forward or the backward kernel, whichever takes more, where gradients are computed."""
        kernel = workload.kernel()
        tensors = {name: torch.as_tensor(value) for name, value in workload.inputs.items()}
        if not workload.gradients:
            return self.most(kernel, tensors)
        forward, backward = kernel.grad(workload.gradients)
        results = as_tuple(forward(*tensors.values()))
        saved = dict(zip([info.name for info in forward.outputs], results))
        gradients = {f"grad_{info.name}": torch.ones_like(saved[info.name]) for info in kernel.outputs}
        return max(self.most(forward, tensors), self.most(backward, tensors | saved | gradients))

    def most(self, kernel: attn.Kernel, tensors: dict[str, torch.Tensor]) -> int:
        return most_memory(kernel, with_outputs(kernel, tensors), self.threads)
