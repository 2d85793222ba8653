"""How much memory a kernel takes beyond its inputs and outputs: what its object asks of malloc and of CUDA's driver is counted."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Sequence

import attn

from .workload import as_tuple

SOURCE = Path(__file__).parent / "memory.c"
FLAGS = ["-O2", "-shared", "-fPIC", "-Wl,--wrap=malloc,--wrap=calloc,--wrap=free,--wrap=dlsym", "-pthread", "-ldl", "-lm"]


def most_memory(kernel: attn.Kernel, tensors: Sequence[Any], threads: int) -> int:
    """Bytes held at most at one time, after two calls; what the kernel keeps for the next call is among them.

    tensors: inputs and outputs, in the kernel's order. The code is the same as in this process, in an object of its own.
    """
    return after_two_calls(kernel, tensors, threads).most_memory()


def most_device_memory(kernel: attn.Kernel, tensors: Sequence[Any]) -> int:
    """The same of a GPU's memory."""
    return after_two_calls(kernel, tensors, threads=1).most_device_memory()


def after_two_calls(kernel: attn.Kernel, tensors: Sequence[Any], threads: int) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        kernel.save(Path(folder) / "kernel")
        library = Path(folder) / "kernel.so"
        subprocess.run(["cc", str(Path(folder) / "kernel.o"), str(SOURCE), *FLAGS, "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library))
    for name in ("most_memory", "most_device_memory"):
        getattr(loaded, name).restype = ctypes.c_size_t
    loaded.attn_last_error.restype = ctypes.c_char_p
    loaded.attn_set_num_threads(threads)
    capsules = [tensor.__dlpack__() for tensor in tensors]
    for _ in range(2):
        if getattr(loaded, kernel.name)(*map(dlpack_tensor, capsules)):
            raise RuntimeError(loaded.attn_last_error().decode())
    return loaded


def with_outputs(kernel: attn.Kernel, tensors: dict[str, Any]) -> list[Any]:
    """The kernel's inputs, by name among the tensors, and the outputs of a call."""
    inputs = [tensors[info.name] for info in kernel.inputs]
    return [*inputs, *as_tuple(kernel(*inputs))]


def dlpack_tensor(capsule: object) -> ctypes.c_void_p:
    """The DLTensor in a capsule, which it begins with."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_void_p(pointer(capsule, b"dltensor"))
