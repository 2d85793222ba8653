"""Memory of which nothing beyond an array can be read: who reads there ends, and is found."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

_PROTECT = ctypes.CDLL(None, use_errno=True).mprotect
_PROTECT.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_NO_ACCESS = 0


def beside_unreadable_memory(array, begins: bool = False):
    """A copy of an array of NumPy or a tensor of PyTorch, with the same strides. It ends where a page begins that cannot be read, or
    begins where one ends."""
    if not isinstance(array, np.ndarray):
        import torch

        bits = array.view(torch.int16) if array.dtype == torch.bfloat16 else array  # NumPy has no bf16
        return torch.from_numpy(beside_unreadable_memory(bits.numpy(), begins)).view(array.dtype)
    if not array.size:
        return array
    least = sum(min(0, (size - 1) * stride) for size, stride in zip(array.shape, array.strides))
    most = sum(max(0, (size - 1) * stride) for size, stride in zip(array.shape, array.strides))
    span = most - least + array.itemsize
    readable = -(-span // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, mmap.PAGESIZE + readable + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (start, start + mmap.PAGESIZE + readable):
        if _PROTECT(page, mmap.PAGESIZE, _NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect")
    first = mmap.PAGESIZE + (0 if begins else readable - span)
    copy = np.ndarray(array.shape, array.dtype, memory, first - least, array.strides)
    copy[...] = array
    return copy
