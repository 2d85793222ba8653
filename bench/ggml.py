"""ggml's flash attention as a peer, through its C interface, where the package libggml-python is installed."""

from __future__ import annotations

import ctypes
import functools
import math
from ctypes import c_bool, c_float, c_int, c_int64, c_size_t, c_void_p
from importlib.util import find_spec
from pathlib import Path

import torch

from .workload import Call

TYPES = {torch.float32: 0, torch.float16: 1}  # enum ggml_type
FUNCTIONS = {  # what they return, and what they take
    "ggml_init": (c_void_p, None),
    "ggml_free": (None, [c_void_p]),
    "ggml_tensor_overhead": (c_size_t, []),
    "ggml_graph_overhead": (c_size_t, []),
    "ggml_new_tensor_4d": (c_void_p, [c_void_p, c_int] + [c_int64] * 4),
    "ggml_flash_attn_ext": (c_void_p, [c_void_p] * 5 + [c_float] * 3),
    "ggml_new_graph": (c_void_p, [c_void_p]),
    "ggml_build_forward_expand": (None, [c_void_p] * 2),
    "ggml_backend_cpu_buffer_from_ptr": (c_void_p, [c_void_p, c_size_t]),
    "ggml_backend_buffer_free": (None, [c_void_p]),
    "ggml_backend_tensor_alloc": (c_int, [c_void_p] * 3),
    "ggml_backend_cpu_init": (c_void_p, []),
    "ggml_backend_cpu_set_n_threads": (None, [c_void_p, c_int]),
    "ggml_backend_graph_compute": (c_int, [c_void_p] * 2),
    "ggml_backend_free": (None, [c_void_p]),
    "ggml_cpu_has_avx512": (c_int, []),
}


class Parameters(ctypes.Structure):
    """struct ggml_init_params"""

    _fields_ = [("bytes", c_size_t), ("memory", c_void_p), ("no_tensors", c_bool)]


@functools.cache
def library() -> ctypes.CDLL:
    """Its CPU back end. Raises ImportError where there is none, or none for this processor."""
    package = find_spec("libggml")
    found = sorted(Path(package.origin).parent.glob("lib*/libggml-cpu.so")) if package and package.origin else []
    if not found:
        raise ImportError("libggml-python is not installed (requirements-bench.txt)")
    loaded = ctypes.CDLL(str(found[0]))
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    loaded.ggml_init.argtypes = [Parameters]
    if torch.backends.cpu.get_cpu_capability() == "AVX512" and not loaded.ggml_cpu_has_avx512():
        raise ImportError("libggml-python was compiled without AVX-512 (requirements-bench.txt says how it is compiled here)")
    return loaded


class Attention:
    """`softmax(q kᵀ / sqrt(D)) v` as a graph of one node, on tensors that stay where they are."""

    def __init__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
        self.ggml = library()
        self.tensors = [q, k, v, torch.empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3])]
        overhead = 8 * self.ggml.ggml_tensor_overhead() + self.ggml.ggml_graph_overhead()
        self.context = self.ggml.ggml_init(Parameters(overhead, None, True))
        # Its dimensions are in the order of strides, the innermost first.
        nodes = [self.ggml.ggml_new_tensor_4d(self.context, TYPES[each.dtype], *reversed(each.shape)) for each in (q, k, v)]
        nodes.append(self.ggml.ggml_flash_attn_ext(self.context, *nodes, None, 1 / math.sqrt(q.shape[3]), 0, 0))
        self.buffers = [self.ggml.ggml_backend_cpu_buffer_from_ptr(each.data_ptr(), each.nbytes) for each in self.tensors]
        for node, buffer, each in zip(nodes, self.buffers, self.tensors):
            self.ggml.ggml_backend_tensor_alloc(buffer, node, each.data_ptr())
        self.graph = self.ggml.ggml_new_graph(self.context)
        self.ggml.ggml_build_forward_expand(self.graph, nodes[-1])
        self.backend = self.ggml.ggml_backend_cpu_init()
        self.ggml.ggml_backend_cpu_set_n_threads(self.backend, torch.get_num_threads())

    def __call__(self) -> torch.Tensor:
        if self.ggml.ggml_backend_graph_compute(self.backend, self.graph):
            raise RuntimeError("ggml could not compute its graph")
        return self.tensors[-1].transpose(1, 2)

    def __del__(self):
        for buffer in getattr(self, "buffers", []):
            self.ggml.ggml_backend_buffer_free(buffer)
        if hasattr(self, "backend"):
            self.ggml.ggml_backend_free(self.backend)
        if hasattr(self, "context"):
            self.ggml.ggml_free(self.context)


def ggml(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    """Keys and values are f32 or f16, its type of 16 bits for them; queries and results are f32. On PyTorch's number of threads."""
    cached = torch.float32 if k.dtype == torch.float32 else torch.float16
    return Attention(q.float(), k.to(cached), v.to(cached))
