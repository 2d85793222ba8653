"""Calls `decode` of a library with keys and queries of the dtype given, and compares with NumPy.

    narrow_vectors.py LIBRARY f4|f8

Prints "right" if every size agrees.
"""

import ctypes
import sys

import numpy


class Tensor(ctypes.Structure):
    """A DLTensor on the CPU."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]

    def __init__(self, array):
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        super().__init__(array.ctypes.data, (1, 0), array.ndim, 2, array.itemsize * 8, 1, shape, None, 0)


library, dtype = ctypes.CDLL(sys.argv[1]), sys.argv[2]
library.attn_last_error.restype = ctypes.c_char_p
tolerance = {"f4": 2e-6, "f8": 1e-13}[dtype]
generator = numpy.random.default_rng(0)
for heads in (2, 8):  # with keys of their own, and that share them
    for n, d, e in ((1, 1, 1), (17, 5, 3), (2500, 16, 40)):
        q, k, v = (generator.standard_normal(shape).astype(dtype) for shape in ((heads, d), (2, n, d), (2, n, e)))
        out = numpy.full((heads, e), numpy.nan, dtype)
        code = library.decode(*(ctypes.byref(Tensor(each)) for each in (q, k, v, out)))
        assert code == 0, library.attn_last_error().decode()
        keys, values = (numpy.repeat(each, heads // 2, axis=0).astype("f8") for each in (k, v))
        weight = numpy.exp(numpy.einsum("hd,hnd->hn", q, keys))
        expected = numpy.einsum("hn,hne->he", weight / weight.sum(axis=1, keepdims=True), values)
        assert numpy.abs(out - expected).max() <= tolerance * max(1, numpy.abs(expected).max()), (heads, n, d, e)
print("right")
