"""Calls of kernels for CUDA from Python with a driver that prints its calls, whose devices have the CPU's memory.

    LD_LIBRARY_PATH=FOLDER-OF-THE-DRIVER python cuda_arrays.py CASE

Prints what the driver was asked for and what the call returned; test_cuda_arrays.py reads it. The driver is made of
test/Tools/Inputs/fake_cuda.c. PyTorch's tensors on a GPU are played by `Tensor`, since PyTorch may be without CUDA.
"""

import ctypes
import sys
import types

import numpy as np

import attn

CUDA = 2


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
kept = []  # what C reads after the call that made it


def describe(values, device, tensor):
    shape = (ctypes.c_int64 * values.ndim)(*values.shape)
    kept.append((values, shape))
    tensor.data, tensor.device_type, tensor.device_id, tensor.ndim = values.ctypes.data, CUDA, device, values.ndim
    tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset = 2, 32, 1, 0
    tensor.shape, tensor.strides = shape, None


class Array:
    """An array of f32 on a device, of a library of the array API standard."""

    def __init__(self, values, device=0):
        self.values, self.device = np.ascontiguousarray(values, "f"), device

    def __dlpack_device__(self):
        return CUDA, self.device

    def __dlpack__(self, *, stream=None):
        print("asked for on stream", stream)
        managed = Managed()
        describe(self.values, self.device, managed.tensor)
        kept.append(managed)
        return new_capsule(ctypes.addressof(managed), b"dltensor", None)

    def __array_namespace__(self):
        def empty(shape, dtype, device):
            print("an array of", shape, "on device", device)
            return Array(np.zeros(shape, dtype), device)

        return types.SimpleNamespace(__name__="arrays", float32="f", empty=empty)


class Tensor(Array):
    """One of PyTorch's."""

    requires_grad, is_cuda, is_cpu, is_quantized, layout = False, True, False, False, "strided"

    def is_neg(self):
        return False


def play_torch():
    """Takes PyTorch's place: `Tensor` and what attn asks of the module."""

    def empty(shape, dtype, device):
        print("a tensor of", tuple(shape), "on device", device)
        return Tensor(np.zeros(shape, dtype), device)

    def current_stream(device):
        return types.SimpleNamespace(cuda_stream=0x70 + device)

    sys.modules["torch"] = types.SimpleNamespace(
        Tensor=Tensor,
        strided="strided",
        float32="f",
        empty=empty,
        device=str,
        is_grad_enabled=lambda: True,
        is_autocast_enabled=lambda device: False,
        autograd=types.SimpleNamespace(forward_ad=types.SimpleNamespace(_current_level=-1)),
        compiler=types.SimpleNamespace(is_compiling=lambda: False),
        _C=types.SimpleNamespace(_functorch=types.SimpleNamespace(peek_interpreter_stack=lambda: None)),
        cuda=types.SimpleNamespace(current_stream=current_stream),
        utils=types.SimpleNamespace(dlpack=types.SimpleNamespace(to_dlpack=lambda tensor: Array.__dlpack__(tensor))),
    )


def play_exchange():
    """Gives `Tensor` DLPack's table of C functions, as PyTorch's has."""
    tensor_pointer, managed_pointer = ctypes.POINTER(DLTensor), ctypes.POINTER(ManagedVersioned)
    pointer = ctypes.POINTER(ctypes.c_void_p)

    @ctypes.PYFUNCTYPE(ctypes.c_int, tensor_pointer, ctypes.POINTER(managed_pointer), ctypes.c_void_p, ctypes.c_void_p)
    def allocate(prototype, out, _context, _set_error):
        wanted = prototype.contents
        shape = tuple(wanted.shape[i] for i in range(wanted.ndim))
        print("allocated:", shape, "on a device of type", wanted.device_type, "number", wanted.device_id)
        managed = ManagedVersioned(1, 0)
        describe(np.zeros(shape, "f"), wanted.device_id, managed.tensor)
        kept.append(managed)
        out[0] = ctypes.pointer(managed)
        return 0

    @ctypes.PYFUNCTYPE(ctypes.c_int, managed_pointer, pointer)
    def import_tensor(managed, out):
        tensor = Tensor(np.zeros(()), managed.contents.tensor.device_id)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))
        out[0] = id(tensor)
        return 0

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, tensor_pointer)
    def view(tensor, out):
        describe(tensor.values, tensor.device, out.contents)
        return 0

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, pointer)
    def current_stream(kind, number, out):
        assert kind == CUDA
        out[0] = 0x70 + number
        return 0

    class Table(ctypes.Structure):
        _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)] + [
            (name, ctypes.c_void_p) for name in ("previous", "allocate", "export", "import_tensor", "view", "current_stream")
        ]

    functions = [ctypes.cast(each, ctypes.c_void_p).value for each in (allocate, import_tensor, view, current_stream)]
    table = Table(1, 2, None, functions[0], None, *functions[1:])
    kept.extend([table, allocate, import_tensor, view, current_stream])
    Tensor.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)


def main(case):
    kernel = attn.compile("attention twice(x: f32[N]) {\n  y[n] = x[n] * 2.0\n  return y\n}\n", target="cuda")
    ones = np.ones(3)
    if case == "arrays":
        result = kernel(Array(ones, 1))
        print("returned an", type(result).__name__, "on device", result.device)
        attn.set_cuda_stream(0x1234)
        out = Array(ones)
        assert kernel(Array(ones), out=out) is out
    elif case == "torch":
        play_torch()
        result = kernel(Tensor(ones, 1))
        print("returned a", type(result).__name__, "on device", result.device)
        attn.set_cuda_stream(0x1234)  # not PyTorch's
        kernel(x=Tensor(ones), out=Tensor(ones))
        kernel(Array(ones), out=Array(ones))
    elif case == "exchange":
        play_exchange()
        result = kernel(Tensor(ones, 1))
        print("returned a", type(result).__name__, "on device", result.device)
    else:
        kernel(Array(ones))
    sys.stdout.flush()


if __name__ == "__main__":
    # One buffer for both writers, so that lines stand in the order of the calls.
    ctypes.CDLL(None).setvbuf(ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout"), None, 2, 0)
    sys.stdout.reconfigure(line_buffering=True)
    main(sys.argv[1])
