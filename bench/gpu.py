"""A GPU with CUDA: the device that is PyTorch's current one."""

from __future__ import annotations

import dataclasses

import torch

from .attention import ELEMENTS
from .device import Limits
from .memory import most_device_memory, with_outputs
from .workload import Call, Workload

SIDE = 8192  #: of the matrices whose product is the limit of arithmetic
READ_BYTES = 1 << 30  #: more than any cache holds
TRIALS = 5  #: of each limit, the best of which is taken


def missing() -> str | None:
    """Why nothing can be measured here."""
    if torch.cuda.is_available():
        return None
    return "PyTorch finds no CUDA device" if torch.version.cuda else f"PyTorch {torch.__version__} is built without CUDA"


class Gpu:
    threads = None

    def prepare(self, workload: Workload) -> Workload:
        """f16 and bf16 are compiled for the tensor cores of this device, f32 for its multiply-adds."""
        torch.cuda.empty_cache()
        capability = torch.cuda.get_device_capability()
        architecture = "90a" if capability == (9, 0) else "".join(map(str, capability))  # with the instructions of Hopper alone
        return dataclasses.replace(
            workload,
            draw=lambda: {name: each.cuda() for name, each in workload.draw().items()},
            target="cuda" if workload.dtype == "f32" else f"cuda-sm_{architecture}",
        )

    def seconds(self, call: Call, count: int) -> float:
        """Between two events on PyTorch's current stream, on which everybody works."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        call()
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / count

    def limits(self) -> Limits:
        """Of arithmetic, by PyTorch's products of large matrices: multiply-adds for f32, where it is not allowed TF32, and tensor cores."""
        return Limits(
            flops=self.product_flops("f32"),
            bf16_flops=self.product_flops("bf16"),
            f16_flops=self.product_flops("f16"),
            bandwidth=self.bandwidth(),
        )

    def product_flops(self, dtype: str) -> float:
        a, b = (torch.randn(SIDE, SIDE, dtype=ELEMENTS[dtype], device="cuda") for _ in range(2))
        product = torch.empty_like(a)
        return 2 * SIDE**3 / self.best(lambda: torch.matmul(a, b, out=product))

    def bandwidth(self) -> float:
        """Of reading a tensor or of copying it, whichever moves more."""
        numbers = torch.ones(READ_BYTES // 4, device="cuda")
        copy = torch.empty_like(numbers)
        return max(READ_BYTES / self.best(numbers.sum), 2 * READ_BYTES / self.best(lambda: copy.copy_(numbers)))

    def best(self, call: Call) -> float:
        return min(self.seconds(call, 1) for _ in range(TRIALS))

    def memory(self, workload: Workload) -> int:
        kernel = workload.kernel()
        torch.cuda.empty_cache()  # the kernel has its memory from the driver
        return most_device_memory(kernel, with_outputs(kernel, workload.inputs))
