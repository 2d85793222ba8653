"""Kernels as operators of PyTorch: under autograd, torch.compile, torch.export and autocast."""

from __future__ import annotations

import atexit
import hashlib
import keyword
import threading
from typing import Any, Sequence

import numpy
import torch
from torch import Tensor

from . import arrays, sizes
from .kernel import Kernel, TensorInfo

_LIBRARY = torch.library.Library("attn", "FRAGMENT")
# What each operator runs, by its name: PyTorch keeps an operator as long as the process runs. Nothing else keeps kernels,
# so that all are freed at the end.
_KERNELS: dict[str, Kernel] = {}
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
        self._function = _function_of(self)
        self._registered = _Registered(name, kernel, self._function)

    @property
    def kernel(self) -> Kernel:
        return _KERNELS[self.name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the kernel on tensors by position or by name, in the order and the shapes of `kernel.inputs`.

        A scalar is a tensor of rank 0 or a number, and may be left out where it has a default. Tensors may have any
        strides; arrays of other libraries are viewed as tensors. Inside autocast, tensors of floats are converted to the
        dtype that the kernel declares for them.

        Returns the output, or a named tuple of them where there are several. Raises TypeError and ValueError as the
        kernel does, attn.CompileError where an input requires grad but the kernel has no gradient, and NotImplementedError
        for derivatives in forward mode and inside torch.func.grad.
        """
        if kwargs or len(args) != len(self._inputs) or not all([isinstance(argument, Tensor) for argument in args]):
            args = self._tensors(args, kwargs)
        function = self._function.apply if _needs_gradients(args) and _is_eager(args) else self._registered
        results = function(*args)
        return results if self._single else self._results(*results)

    def __reduce__(self) -> tuple[Any, ...]:
        return torch_operator, (self.kernel,)

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
            value = given.pop(info.name, None)
            if value is None and info.default is not None:  # not given, or as `Kernel` binds what is not
                value = info.default if _DTYPES[info.dtype].is_floating_point else int(info.default)
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
        inputs = [info.name for info in kernel.inputs]
        names = [name for name, wanted in zip(inputs, needed) if wanted]
        # Lazily, whatever the kernel is: a call waits for them in any case.
        forward, backward = kernel._gradient(None if needed == operator._differentiable else names, lazy=True)
        wanted = "".join("01"[wanted] for wanted in needed)
        self.forward = _Registered(f"{operator.name}_forward_{wanted}", forward, None)
        self.backward = _Registered(f"{operator.name}_backward_{wanted}", backward, None)
        self.outputs = len(kernel.outputs)
        self.non_differentiable = [not _DTYPES[info.dtype].is_floating_point for info in kernel.outputs]
        # Where the backward kernel's inputs are among those that `run_backward` gets, and its outputs among its results.
        # Gradients come last, in the outputs' order; they may have other names where an input is called grad_OUTPUT.
        given = [info.name for info in (*kernel.inputs, *forward.outputs)]
        gradients = [len(given) + i for i, unused in enumerate(self.non_differentiable) if not unused]
        others = backward.inputs[: len(backward.inputs) - len(gradients)]
        self._places = [given.index(info.name) for info in others] + gradients
        self._results = [names.index(name) if name in names else None for name in inputs]

    def run_forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The kernel's outputs, then what the backward pass needs beside them."""
        results = self.forward(*inputs)
        return (results,) if isinstance(results, Tensor) else tuple(results)

    def run_backward(
        self, inputs: Sequence[Tensor], saved: Sequence[Tensor], gradients: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """The gradient of each input; None for those that were not asked for."""
        # An output that the loss does not use costs no memory: one 0, repeated.
        gradients = [
            output.new_zeros(()).expand(output.shape) if gradient is None else gradient
            for output, gradient in zip(saved, gradients)
        ]
        given = [*inputs, *saved, *gradients]
        results = self.backward(*[given[place] for place in self._places])
        results = (results,) if isinstance(results, Tensor) else results
        return [None if place is None else results[place] for place in self._results]


def torch_operator(kernel: Kernel) -> Operator:
    """`kernel` as an operator that PyTorch knows: it works under autograd, torch.compile, torch.export and autocast.

    Takes and returns tensors in the CPU's memory, as the kernel does; torch.library.opcheck takes
    `torch.ops.attn.NAME`, where NAME is the operator's `name`. The same kernel gives the same operator. The backward
    kernels are compiled when a gradient is first needed, for the inputs that require it.
    """
    if kernel._operator is None:
        with _LOCK:
            if kernel._operator is None:
                kernel._operator = _new_operator(kernel)
    return kernel._operator


def _new_operator(kernel: Kernel) -> Operator:
    signature = "\n".join([kernel._source, *map(str, kernel.inputs), *map(str, kernel.outputs)])
    name = f"{kernel.name}_{hashlib.sha256(signature.encode()).hexdigest()[:12]}"
    variant, number = name, 1  # kernels of one source may differ by options that its signature does not show
    while variant in _KERNELS:
        number += 1
        variant = f"{name}_{number}"
    return Operator(kernel, variant)


class _Registered:
    """A kernel that PyTorch knows as torch.ops.attn.NAME; where there is a `function`, it computes gradients."""

    def __init__(self, name: str, kernel: Kernel, function: type[torch.autograd.Function] | None):
        self._name, self._inputs, self._function = name, kernel.inputs, function
        _KERNELS[name] = kernel
        arguments = [f"Tensor {info.name}{'_' if keyword.iskeyword(info.name) else ''}" for info in kernel.inputs]
        results = ", ".join("Tensor" for _ in kernel.outputs)
        _LIBRARY.define(
            f"{name}({', '.join(arguments)}) -> {results if len(kernel.outputs) == 1 else f'({results})'}",
            tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
        )
        self._operator = getattr(torch.ops.attn, name).default
        _LIBRARY.impl(name, self._run, "CPU")
        _LIBRARY.impl(name, self._run_with_gradients, "Autograd", with_keyset=True)
        _LIBRARY.impl(name, self._run_with_autocast, "AutocastCPU")
        torch.library.register_fake(f"attn::{name}", lambda *tensors: _fake(_KERNELS[name], tensors), lib=_LIBRARY)

    def __call__(self, *tensors: Tensor) -> Any:
        """The output or a tuple of them; where it may, past PyTorch's dispatcher, which takes as long as a small kernel."""
        if _is_eager(tensors) and not _needs_gradients(tensors):
            return self._run(*tensors)
        if not torch.compiler.is_compiling():
            arrays.refuse_transforms([info.name for info in self._inputs], tensors, of_kernel=False)
        return self._operator(*tensors)

    def _run(self, *tensors: Tensor) -> Any:
        results = _KERNELS[self._name](*[tensor.detach() if tensor.requires_grad else tensor for tensor in tensors])
        return results if isinstance(results, Tensor) else tuple(results)

    def _run_with_gradients(self, keys: Any, *tensors: Tensor) -> Any:
        if _needs_gradients(tensors):
            if self._function is None:
                raise RuntimeError(f"attn::{self._name} has no backward pass: gradients of gradients are not computed")
            return self._function.apply(*tensors)
        with torch._C._AutoDispatchBelowAutograd():
            return self._operator.redispatch(keys & torch._C._after_autograd_keyset, *tensors)

    def _run_with_autocast(self, *tensors: Tensor) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
            return self._operator(*[_declared(info, tensor) for info, tensor in zip(self._inputs, tensors)])


def _needs_gradients(tensors: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and any([tensor.requires_grad for tensor in tensors])


def _is_eager(tensors: Sequence[Tensor]) -> bool:
    """Whether nothing of PyTorch's but autograd has to see a call: no trace, no mode, no transform, no autocast."""
    return (
        not torch.compiler.is_compiling()
        and all([type(tensor) in (Tensor, torch.nn.Parameter) and tensor.is_cpu for tensor in tensors])
        and not torch.is_autocast_enabled("cpu")
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch.autograd.forward_ad._current_level < 0
        and torch._C._get_tracing_state() is None
    )


def _function_of(operator: Operator) -> type[torch.autograd.Function]:
    class Differentiated(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Any:
            ctx.gradient = gradient = operator._gradient(ctx.needs_input_grad)
            ctx.set_materialize_grads(False)
            with torch._C._AutoDispatchBelowAutograd():
                saved = gradient.run_forward(inputs)
            ctx.save_for_backward(*inputs, *saved)
            outputs = saved[: gradient.outputs]
            ctx.mark_non_differentiable(*[output for output, none in zip(outputs, gradient.non_differentiable) if none])
            return outputs[0] if len(outputs) == 1 else outputs

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor | None) -> Any:
            tensors = ctx.saved_tensors
            count = len(ctx.needs_input_grad)
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
    arrays.check_elements(info.name, value)
    number = value.item() if isinstance(value, numpy.generic) else value
    if not info.shape and isinstance(number, (bool, int, float)):
        if isinstance(number, float) and not _DTYPES[info.dtype].is_floating_point:
            raise TypeError(f"{info.name}: must be a number that can be {info.dtype}, but is {number!r}")
        try:
            return torch.tensor(number, dtype=_DTYPES[info.dtype])
        except RuntimeError:
            raise ValueError(f"{info.name}: {number} does not fit {info.dtype}") from None
    if arrays.is_array(value):
        return torch.as_tensor(value) if isinstance(value, numpy.ndarray) else torch.from_dlpack(value)
    expected = f"an array {info.dtype}[{', '.join(info.shape)}]" if info.shape else f"a number ({info.dtype})"
    raise TypeError(f"{info.name}: must be {expected}, but is of type {type(value).__name__}")


def _declared(info: TensorInfo, tensor: Tensor) -> Tensor:
    dtype = _DTYPES[info.dtype]
    return tensor.to(dtype) if tensor.is_floating_point() and dtype.is_floating_point else tensor
