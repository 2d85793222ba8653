"""What this machine can do at most, measured in the same process as the kernels."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

from .device import Limits

HERE = Path(__file__).parent
READ_BYTES = 512 << 20  # more than any cache holds


class Meter:
    """The C functions of limits.c and of the demo's peak.c."""

    def __init__(self, threads: int):
        self.threads = threads
        self.folder = tempfile.TemporaryDirectory()
        library = Path(self.folder.name) / "limits.so"
        sources = [HERE / "limits.c", HERE.parent / "examples/demo/peak.c"]
        flags = ["-O2", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-pthread", "-Wno-psabi"]
        subprocess.run(["cc", *flags, *map(str, sources), "-o", str(library)], check=True)
        self.library = ctypes.CDLL(str(library))
        for name in ("peak_flops", "peak_bf16", "read_bandwidth"):
            getattr(self.library, name).restype = ctypes.c_double
        # In pages such as the workloads' tensors have: NumPy would ask for huge ones, which are read up to 1.5 times as fast.
        self.memory = torch.ones(READ_BYTES, dtype=torch.uint8)

    def measure(self) -> Limits:
        flops, paired = self.library.peak_flops(self.threads), self.library.peak_bf16(self.threads)
        return Limits(
            flops=flops,
            bf16_flops=paired if paired > flops else 0,  # of paired dot products, which are slower on some processors
            bandwidth=self.library.read_bandwidth(
                ctypes.c_void_p(self.memory.data_ptr()), ctypes.c_size_t(READ_BYTES), self.threads
            ),
        )
