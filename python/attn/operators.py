"""Kernels as operators of PyTorch: under autograd, torch.compile, torch.export and autocast."""

from __future__ import annotations

import atexit
import hashlib
import keyword
import threading
from typing import Any, Sequence

import torch
from torch import Tensor

from . import sizes
from .kernel import Kernel, TensorInfo

_LIBRARY = torch.library.Library("attn", "FRAGMENT")
_OPERATORS: dict[str, Operator] = {}  # by name; PyTorch keeps an operator as long as the process runs
_KERNELS: dict[
    str, Kernel
] = {}  # what each operator runs; nothing else keeps them, so that the last are freed at the end
atexit.register(_KERNELS.clear)
_LOCK = threading.RLock()  # held while operators are registered

_DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}


class Operator:
    """A kernel that PyTorch knows as `torch.ops.attn.NAME`; `torch_operator` makes it."""

    def __init__(self, kernel: Kernel, name: str):
        self.name = name  #: of the operator: the kernel's, and a hash of its source
        self._inputs = kernel.inputs
        self._single = len(kernel.outputs) == 1
        self._results = kernel._results
        self._differentiable = tuple(_DTYPES[info.dtype].is_floating_point for info in kernel.inputs)
        self._gradients: dict[tuple[bool, ...], _Gradient] = {}
        self._function = _define(name, kernel, _function_of(self))

    @property
    def kernel(self) -> Kernel:
        return _KERNELS[self.name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the kernel on tensors by position or by name, in the order and the shapes of `kernel.inputs`.

        A scalar is a tensor of rank 0 or a number, and may be left out where it has a default. Tensors may have any
        strides. Inside autocast, tensors of floats are converted to the dtype that the kernel declares for them.

        Returns the output, or a named tuple of them where there are several. Raises TypeError and ValueError as the
        kernel does, and RuntimeError where an input requires grad but attn has no backward kernels.
        """
        if kwargs or len(args) != len(self._inputs) or not all([isinstance(argument, Tensor) for argument in args]):
            args = self._tensors(args, kwargs)
        results = self._function(*args)
        return results if self._single else self._results(*results)

    def __repr__(self) -> str:
        return f"<attn.Operator torch.ops.attn.{self.name} of {self.kernel!r}>"

    def _tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        names = ", ".join(info.name for info in self._inputs)
        if len(args) > len(self._inputs):
            raise TypeError(
                f"{self.kernel.name}() takes {len(self._inputs)} inputs ({names}), but {len(args)} were given"
            )
        given = dict(zip([info.name for info in self._inputs], args))
        for name, value in kwargs.items():
            if name in given:
                raise TypeError(f"{self.kernel.name}() got '{name}' twice: by position and by name")
            given[name] = value
        tensors = []
        for info in self._inputs:
            value = given.pop(info.name, info.default)
            if value is None:
                raise TypeError(f"{self.kernel.name}() is missing {info}")
            tensors.append(_as_tensor(info, value))
        if given:
            raise TypeError(f"{self.kernel.name}() has no input '{next(iter(given))}': its inputs are {names}")
        return tensors

    def _gradient(self, needed: tuple[bool, ...]) -> _Gradient:
        """The kernels that give the gradients of the inputs that `needed` marks; compiled once."""
        needed = tuple(wanted and differentiable for wanted, differentiable in zip(needed, self._differentiable))
        with _LOCK:
            if needed not in self._gradients:
                self._gradients[needed] = _Gradient(self, needed)
            return self._gradients[needed]


class _Gradient:
    """The operators that save what the backward pass needs, and that compute the gradients of some inputs."""

    def __init__(self, operator: Operator, needed: tuple[bool, ...]):
        kernel = operator.kernel
        if not hasattr(kernel, "grad"):
            raise RuntimeError(
                f"{kernel.name}: an input requires grad, but this version of attn has no backward kernels"
            )
        self.inputs = [info.name for info in kernel.inputs]
        names = [name for name, wanted in zip(self.inputs, needed) if wanted]
        forward, backward = kernel.grad(names)
        wanted = "".join("01"[wanted] for wanted in needed)
        self.forward = _define(f"{operator.name}_forward_{wanted}", forward, None)
        self.backward = _define(f"{operator.name}_backward_{wanted}", backward, None)
        self.outputs = [info.name for info in kernel.outputs]
        self.non_differentiable = [not _DTYPES[info.dtype].is_floating_point for info in kernel.outputs]
        self._saved = [info.name for info in forward.outputs]
        self._parameters = [info.name for info in backward.inputs]
        self._results = [info.name.removeprefix("grad_") for info in backward.outputs]

    def run_forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The kernel's outputs, then what the backward pass needs beside them."""
        results = self.forward(*inputs)
        return (results,) if isinstance(results, Tensor) else tuple(results)

    def run_backward(
        self, inputs: Sequence[Tensor], saved: Sequence[Tensor], gradients: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """The gradient of each input; None for those that were not asked for."""
        named = dict(zip(self.inputs, inputs))
        named.update(zip(self._saved, saved))
        named.update((f"grad_{name}", gradient) for name, gradient in zip(self.outputs, gradients))
        results = self.backward(*[named[name] for name in self._parameters])
        found = dict(zip(self._results, (results,) if isinstance(results, Tensor) else results))
        return [found.get(name) for name in self.inputs]


def torch_operator(kernel: Kernel) -> Operator:
    """`kernel` as an operator that PyTorch knows: it works under autograd, torch.compile, torch.export and autocast.

    Takes and returns tensors in the CPU's memory, as the kernel does; torch.library.opcheck takes
    `torch.ops.attn.NAME`, where NAME is the operator's `name`. The same kernel gives the same operator. The backward
    kernels are compiled when a gradient is first needed, for the inputs that require it.
    """
    signature = "\n".join([kernel._source, *map(str, kernel.inputs), *map(str, kernel.outputs)])
    name = f"{kernel.name}_{hashlib.sha256(signature.encode()).hexdigest()[:12]}"
    variant, number = name, 1  # kernels of one source may differ by options that its signature does not show
    with _LOCK:
        while variant in _OPERATORS and _OPERATORS[variant].kernel is not kernel:
            number += 1
            variant = f"{name}_{number}"
        if variant not in _OPERATORS:
            _OPERATORS[variant] = Operator(kernel, variant)
        return _OPERATORS[variant]


def _define(name: str, kernel: Kernel, function: type[torch.autograd.Function] | None) -> Any:
    """Registers a kernel as torch.ops.attn.NAME; `function` computes it with gradients, without one it has none."""
    _KERNELS[name] = kernel
    inputs = kernel.inputs
    arguments = ", ".join(f"Tensor {info.name}{'_' if keyword.iskeyword(info.name) else ''}" for info in kernel.inputs)
    results = ", ".join("Tensor" for _ in kernel.outputs)
    _LIBRARY.define(
        f"{name}({arguments}) -> {results if len(kernel.outputs) == 1 else f'({results})'}",
        tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
    )
    operator = getattr(torch.ops.attn, name).default

    def run(*tensors: Tensor) -> Any:
        results = _KERNELS[name](*[tensor.detach() if tensor.requires_grad else tensor for tensor in tensors])
        return results if isinstance(results, Tensor) else tuple(results)

    def run_with_gradients(keys: Any, *tensors: Tensor) -> Any:
        if torch.is_grad_enabled() and any([tensor.requires_grad for tensor in tensors]):
            if function is None:
                raise RuntimeError(f"attn::{name} has no backward pass: gradients of gradients are not computed")
            return function.apply(*tensors)
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keys & torch._C._after_autograd_keyset, *tensors)

    def run_with_autocast(*tensors: Tensor) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
            return operator(*[_declared(info, tensor) for info, tensor in zip(inputs, tensors)])

    _LIBRARY.impl(name, run, "CPU")
    _LIBRARY.impl(name, run_with_gradients, "Autograd", with_keyset=True)
    _LIBRARY.impl(name, run_with_autocast, "AutocastCPU")
    torch.library.register_fake(f"attn::{name}", lambda *tensors: _fake(_KERNELS[name], tensors), lib=_LIBRARY)
    return operator


def _function_of(operator: Operator) -> type[torch.autograd.Function]:
    class Differentiated(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Any:
            ctx.gradient = gradient = operator._gradient(ctx.needs_input_grad)
            with torch._C._AutoDispatchBelowAutograd():
                saved = gradient.run_forward(inputs)
            ctx.save_for_backward(*inputs, *saved)
            outputs = saved[: len(gradient.outputs)]
            ctx.mark_non_differentiable(*[output for output, none in zip(outputs, gradient.non_differentiable) if none])
            return outputs[0] if len(outputs) == 1 else outputs

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            tensors = ctx.saved_tensors
            count = len(ctx.gradient.inputs)
            return tuple(ctx.gradient.run_backward(tensors[:count], tensors[count:], gradients))

    return Differentiated


def _fake(kernel: Kernel, tensors: Sequence[Tensor]) -> Any:
    """Outputs without elements, of the shapes that the kernel gives for inputs of these shapes."""
    for info, tensor in zip(kernel.inputs, tensors):
        if tensor.dtype != _DTYPES[info.dtype]:
            raise TypeError(f"{info.name}: dtype must be {info.dtype}, but is {tensor.dtype}")

    def check(condition: Any, message: str) -> None:
        torch._check_value(condition, lambda: f"{kernel.name}: {message}")

    found = sizes.bind(kernel.inputs, [tensor.shape for tensor in tensors], check)
    outputs = [
        tensors[0].new_empty(
            [sizes.evaluate(expression, found) for expression in info.shape], dtype=_DTYPES[info.dtype]
        )
        for info in kernel.outputs
    ]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _as_tensor(info: TensorInfo, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if not info.shape and isinstance(value, (bool, int, float)):
        if isinstance(value, float) and not value.is_integer() and not _DTYPES[info.dtype].is_floating_point:
            raise TypeError(f"{info.name}: must be a number that can be {info.dtype}, but is {value!r}")
        return torch.tensor(value, dtype=_DTYPES[info.dtype])
    expected = f"a torch.Tensor {info.dtype}[{', '.join(info.shape)}]" if info.shape else f"a number ({info.dtype})"
    raise TypeError(f"{info.name}: must be {expected}, but is of type {type(value).__name__}")


def _declared(info: TensorInfo, tensor: Tensor) -> Tensor:
    dtype = _DTYPES[info.dtype]
    return tensor.to(dtype) if tensor.is_floating_point() and dtype.is_floating_point else tensor
