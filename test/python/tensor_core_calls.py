"""Calls of kernels for tensor cores from Python, with a driver that runs them on the CPU, whose devices have its memory.

    LD_LIBRARY_PATH=FOLDER-OF-THE-DRIVER python tensor_core_calls.py CALLS

CALLS is a file of PyTorch's: (source, options of attn.compile, arguments, outputs) of each call. The outputs are stored in
their place. test_tensor_core_loading.py reads them and what the driver prints (test/Tools/Inputs/fake_cuda.c).
"""

import ctypes
import sys

import torch
from cuda_arrays import CUDA, DLTensor

import attn

pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class OnDevice:
    """A tensor of the CPU that says it is on a device."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return CUDA, 0

    def __dlpack__(self, *, stream=None):
        capsule = torch.utils.dlpack.to_dlpack(self.tensor)
        DLTensor.from_address(pointer_of(capsule, b"dltensor")).device_type = CUDA
        return capsule


def on_device(value):
    return OnDevice(value) if isinstance(value, torch.Tensor) and value.dim() else value


def main(path):
    calls = torch.load(path)
    for source, options, arguments, outputs in calls:
        kernel = attn.compile(source, **options)
        out = tuple(map(on_device, outputs))
        kernel(**{name: on_device(value) for name, value in arguments.items()}, out=out if len(out) > 1 else out[0])
    torch.save([outputs for *_, outputs in calls], path)


if __name__ == "__main__":
    main(sys.argv[1])
