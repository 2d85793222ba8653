"""Arrays of any library as the kernel's tensors, and outputs in the library of the inputs.

Inputs travel through DLPack, so nothing is copied, whether they are in the CPU's memory or on a GPU. torch and jax are never
imported here: an argument can only be one of their arrays where the caller has imported them.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Iterable, Protocol

import numpy as np

from . import _attn

_NUMPY_DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i8": np.int8,
    "u8": np.uint8,
    "bool": np.bool_,
}
#: PyTorch's names of the dtypes, and NumPy's.
DTYPE_NAMES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i8": "int8",
    "u8": "uint8",
    "bool": "bool",
}


_CUDA = 2  # DLPack's number


class Library(Protocol):
    """Where the outputs of a call are made."""

    def empty(self, shape: list[int], dtype: str) -> Any:
        """A new array of this shape and dtype ("f32"), its elements undefined."""

    def finish(self, array: Any) -> Any:
        """What the caller gets for an array of `empty`, once the kernel has filled it."""


class _NumPy:
    def empty(self, shape: list[int], dtype: str) -> Any:
        if dtype == "bf16":
            return np.empty(shape, _bfloat16())
        return np.empty(shape, _NUMPY_DTYPES[dtype])

    def finish(self, array: Any) -> Any:
        return array


class _Torch:
    def __init__(self, torch: Any, device: Any):
        self.torch, self.device = torch, device

    def empty(self, shape: list[int], dtype: str) -> Any:
        return self.torch.empty(shape, dtype=getattr(self.torch, DTYPE_NAMES[dtype]), device=self.device)

    def finish(self, array: Any) -> Any:
        return array


class _ArrayAPI(_NumPy):
    """Any other library of the array API standard, such as JAX: it takes over NumPy arrays without a copy."""

    def __init__(self, namespace: Any):
        self.namespace = namespace

    def empty(self, shape: list[int], dtype: str) -> Any:
        """Aligned for any vector: JAX copies what is not."""
        kind = np.dtype(_bfloat16() if dtype == "bf16" else _NUMPY_DTYPES[dtype])
        count = math.prod(shape) * kind.itemsize
        memory = np.empty(count + _ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        return memory[start : start + count].view(kind).reshape(shape)

    def finish(self, array: Any) -> Any:
        if array.dtype.kind == "V":  # bf16, which NumPy cannot export
            return self.namespace.asarray(array)
        return self.namespace.from_dlpack(array)


class _ArrayAPIOnDevice:
    """The same for arrays on a GPU, where NumPy has none."""

    def __init__(self, namespace: Any, device: Any):
        self.namespace, self.device = namespace, device

    def empty(self, shape: list[int], dtype: str) -> Any:
        try:
            kind = getattr(self.namespace, DTYPE_NAMES[dtype])
        except AttributeError:
            raise TypeError(f"{self.namespace.__name__} has no dtype {dtype}: give `out`") from None
        return self.namespace.empty(tuple(shape), dtype=kind, device=self.device)

    def finish(self, array: Any) -> Any:
        return array


_NUMPY = _NumPy()
_ALIGNMENT = 64


def library_of(arrays: list[Any]) -> Library:
    """The library of the first array that is not NumPy's own; NumPy where there is none."""
    torch = sys.modules.get("torch")
    for array in arrays:
        if torch is not None and isinstance(array, torch.Tensor):
            return _Torch(torch, _device(torch, arrays))
        if not isinstance(array, np.ndarray) and hasattr(array, "__array_namespace__"):
            namespace = array.__array_namespace__()
            return _ArrayAPIOnDevice(namespace, array.device) if _is_on_cuda(array) else _ArrayAPI(namespace)
    return _NUMPY


def _device(torch: Any, arrays: list[Any]) -> Any:
    """That of the first of PyTorch's tensors which is on a GPU, or else the CPU. Scalars may be in the CPU's memory anyway."""
    devices = [array.device for array in arrays if isinstance(array, torch.Tensor) and array.is_cuda]
    return devices[0] if devices else torch.device("cpu")


def cuda_stream(arrays: list[Any]) -> int | None:
    """The stream that PyTorch works on where the first of its tensors on a GPU is; None where there is none."""
    torch = sys.modules.get("torch")
    for array in arrays:
        if torch is not None and isinstance(array, torch.Tensor) and array.is_cuda:
            return torch.cuda.current_stream(array.device).cuda_stream
    return None


def _is_on_cuda(array: Any) -> bool:
    return hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == _CUDA


def is_number(value: Any) -> bool:
    """Python's numbers and NumPy's scalars."""
    return isinstance(value, (bool, int, float, np.generic))


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")


def check_elements(name: str, value: Any) -> None:
    """Raises TypeError for what stands for an array that has no elements yet: inside jax.jit, jax.grad and jax.vmap."""
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"{name}: is traced by jax.jit, jax.grad or jax.vmap, but a kernel needs its elements: "
            "call the kernel through jax.pure_callback"
        )


def need_gradients(values: list[Any]) -> bool:
    """Whether PyTorch records what is computed from a tensor among them, in the CPU's memory."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and torch.is_grad_enabled()
        and any([isinstance(value, torch.Tensor) and value.requires_grad and value.is_cpu for value in values])
    )


def are_cast(values: list[Any]) -> bool:
    """Whether PyTorch converts the tensors among them, in the CPU's memory, to what an operator takes: inside autocast."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and torch.is_autocast_enabled("cpu")
        and any([isinstance(value, torch.Tensor) and value.is_cpu for value in values])
    )


def is_transformed() -> bool:
    """Whether PyTorch may have to see a call: in torch.compile, torch.func, or for derivatives in forward mode."""
    torch = sys.modules.get("torch")
    return torch is not None and (
        torch.autograd.forward_ad._current_level >= 0
        or torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def refuse_transforms(names: Iterable[str], values: Iterable[Any], of_kernel: bool) -> None:
    """Raises NotImplementedError for the tensors that such a transform has wrapped, where they would lose it.

    An operator of PyTorch's (not `of_kernel`) can be mapped by vmap, and be part of a graph. torch.compile ends its graph where
    the error is raised, and calls the kernel then; with fullgraph=True the error is its caller's.
    """
    torch = sys.modules["torch"]
    if of_kernel and torch.compiler.is_compiling():
        raise NotImplementedError("torch.compile cannot trace a kernel: call attn.torch_operator(kernel), made before")
    functorch = torch._C._functorch
    for name, value in zip(names, values):
        if not isinstance(value, torch.Tensor):
            continue
        if torch.autograd.forward_ad.unpack_dual(value).tangent is not None:
            raise NotImplementedError(
                f"{name}: has a tangent, but derivatives in forward mode are not computed: use torch.autograd.grad"
            )
        while functorch.is_functorch_wrapped_tensor(value):
            if functorch.is_gradtrackingtensor(value):
                raise NotImplementedError(f"{name}: torch.func has no gradients of a kernel: use torch.autograd.grad")
            if of_kernel:
                raise NotImplementedError(f"{name}: vmap cannot map a kernel: call attn.torch_operator(kernel)")
            value = functorch.get_unwrapped(value)


def as_scalar(name: str, value: Any, dtype: str) -> _attn.Tensor:
    """A number, or an array of rank 0, for a scalar parameter: converted to its dtype if that keeps the value's kind."""
    number = value.item() if hasattr(value, "item") else value
    if dtype == "bool" or not isinstance(number, bool):
        try:
            return _attn.Tensor.scalar(number, dtype)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        except TypeError:
            pass
    raise TypeError(f"{name}: must be a number that can be {dtype}, but is {number!r}")


def as_tensor(name: str, array: Any, writable: bool = False) -> _attn.Tensor:
    """A view of `array`. Raises TypeError or ValueError where it cannot be viewed, with the reason."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if writable and jax is not None and isinstance(array, jax.Array):
        raise ValueError(f"{name}: is a jax.Array, which nobody may write to; give NumPy arrays, or no `out`")
    view, dtype = array, ""
    if torch is not None and isinstance(array, torch.Tensor):
        array = _exact_elements(torch, name, array, writable)
        # For strided tensors `__dlpack__` does the same, five times as slowly.
        view = torch.utils.dlpack.to_dlpack(array) if _is_strided(torch, array) else array
    elif isinstance(array, np.ndarray) and array.dtype.kind == "V" and array.dtype.name == "bfloat16":
        view, dtype = array.view(np.uint16), "bf16"
    elif not isinstance(array, np.ndarray) and _is_on_cuda(array):
        # DLPack calls the default stream 1. The producer makes it wait for what writes the elements.
        view = array.__dlpack__(stream=_attn.cuda_stream() or 1)
    try:
        return _attn.Tensor(view, writable, dtype)
    except BufferError as error:
        reason = _refusal(array, writable) or error
        raise (ValueError if writable else TypeError)(f"{name}: {reason}") from None


def _exact_elements(torch: Any, name: str, array: Any, writable: bool) -> Any:
    """A tensor without what DLPack has no words for: gradients, and elements that are yet to be negated (`x.conj().imag`)."""
    if array.requires_grad:
        if writable or torch.is_grad_enabled():
            raise ValueError(
                f"{name}: requires grad, but no gradient is recorded with `out`, on a GPU, or by `reference`: "
                f"give {name}.detach(), or call under torch.no_grad()"
            )
        array = array.detach()
    if array.is_neg():
        if writable:
            raise ValueError(f"{name}: is a view with negated elements, but the kernel would write to it")
        array = array.resolve_neg()
    return array


def _is_strided(torch: Any, array: Any) -> bool:
    return array.layout is torch.strided and (array.is_cpu or array.is_cuda) and not array.is_quantized


def _refusal(array: Any, writable: bool) -> str | None:
    """Why `array` cannot be viewed, where its library says so."""
    if isinstance(array, np.ndarray):
        if writable and not array.flags.writeable:
            return "is read-only, but the kernel would write to it"
        if array.dtype.str[0] not in "=<|" or array.dtype.kind not in "biufc":
            return f"dtype {array.dtype} cannot be passed through DLPack"
    try:
        array.__dlpack__()
    except Exception as error:  # whatever another library raises is the reason we are looking for
        return f"{type(array).__name__} cannot be passed through DLPack: {error}"
    return None


def _bfloat16() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError("NumPy has no bf16 of its own: install ml_dtypes, or pass PyTorch tensors") from None
    return ml_dtypes.bfloat16
