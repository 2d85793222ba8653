"""Specs as functions on PyTorch's tensors, with their gradients.

A spec file has everything that a layer may want: all outputs, and dropout. What a call does not want is left out of the
kernel, so that weights nobody looks at are never stored, and no random bits are drawn outside training.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import torch

from ..kernel import Kernel, compile

_DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}


class Operator:
    """A spec of the folder `specs`, compiled when it is first called: once for each dtype and choice of outputs."""

    def __init__(self, spec: str):
        """spec: the file's name without `.attn`."""
        self.spec = spec
        self._kernels: dict[tuple[tuple[str, ...], str, bool], Kernel] = {}

    def __call__(self, *outputs: str, dropout: float = 0.0, **inputs: Any) -> tuple[torch.Tensor, ...]:
        """The named outputs for inputs by name: tensors, or numbers for scalar parameters.

        dropout: a probability; where it is not 0, the seed is drawn from PyTorch's default generator.

        Raises TypeError and ValueError as `attn.Kernel` does, and TypeError for a dtype that no kernel computes with.
        """
        if dropout:
            inputs |= {"p": dropout, "seed": int(torch.randint(2**63 - 1, ()))}
        return _call(self.kernel(outputs, self._dtype(inputs), dropout > 0), inputs)

    def kernel(self, outputs: tuple[str, ...], dtype: str = "f32", dropout: bool = False) -> Kernel:
        """The kernel that returns these outputs, with or without dropout."""
        key = outputs, dtype, dropout
        if key not in self._kernels:
            self._kernels[key] = self._compile(*key)
        return self._kernels[key]

    def _compile(self, outputs: tuple[str, ...], dtype: str, dropout: bool) -> Kernel:
        source = (Path(__file__).parent / "specs" / f"{self.spec}.attn").read_text(encoding="utf-8")
        source = re.sub(r"\breturn .*", f"return {', '.join(outputs)}", source)
        if not dropout:
            source = re.sub(r"\bdropout\((.*), p, seed\)", r"\1", source)
        if dtype == "f64":
            source = re.sub(r"\bf32\b", "f64", source)
        return compile(source, dtype=dtype if dtype in ("bf16", "f16") else None)

    def _dtype(self, inputs: dict[str, Any]) -> str:
        name, dtype = next((name, value.dtype) for name, value in inputs.items() if isinstance(value, torch.Tensor))
        if dtype not in _DTYPES:
            raise TypeError(f"{name}: dtype must be one of {', '.join(map(str, _DTYPES))}, but is {dtype}")
        return _DTYPES[dtype]


def _call(kernel: Kernel, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    differentiated = tuple(
        name for name, value in inputs.items() if isinstance(value, torch.Tensor) and value.requires_grad
    )
    if differentiated and torch.is_grad_enabled():
        return _Differentiable.apply(kernel, differentiated, tuple(inputs), *inputs.values())
    return _as_tuple(kernel(**inputs))


@functools.cache
def _with_gradients(kernel: Kernel, inputs: tuple[str, ...]) -> tuple[Kernel, Kernel]:
    return kernel.grad(inputs=list(inputs))


class _Differentiable(torch.autograd.Function):
    """A kernel and its backward kernel, whose inputs are bound by name."""

    @staticmethod
    def forward(
        ctx: Any, kernel: Kernel, differentiated: tuple[str, ...], names: tuple[str, ...], *values: Any
    ) -> tuple[torch.Tensor, ...]:
        ctx.kernel_name, ctx.differentiated, ctx.names = kernel.name, differentiated, names
        ctx.set_materialize_grads(False)
        inputs = dict(zip(names, values))
        if not hasattr(kernel, "grad"):
            ctx.backward_kernel = None
            return _as_tuple(kernel(**inputs))
        forward, ctx.backward_kernel = _with_gradients(kernel, differentiated)
        results = _as_tuple(forward(**inputs))
        known = inputs | {info.name: result for info, result in zip(forward.outputs, results)}
        wanted = {info.name: known[info.name] for info in ctx.backward_kernel.inputs if info.name in known}
        ctx.saved = [name for name, value in wanted.items() if isinstance(value, torch.Tensor)]
        ctx.save_for_backward(*[wanted.pop(name) for name in ctx.saved])
        ctx.numbers = wanted
        results = results[: len(kernel.outputs)]
        ctx.outputs = [(info.name, result.shape, result.dtype) for info, result in zip(kernel.outputs, results)]
        ctx.mark_non_differentiable(*[result for result in results if not result.is_floating_point()])
        return results

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if ctx.backward_kernel is None:
            raise RuntimeError(
                f"{ctx.kernel_name}: has no backward pass: this build of attn has no Kernel.grad; "
                "call the layer under torch.no_grad()"
            )
        given = dict(zip(ctx.saved, ctx.saved_tensors)) | ctx.numbers
        for (name, shape, dtype), gradient in zip(ctx.outputs, gradients):
            if dtype.is_floating_point:  # an output that the loss does not use costs no memory: one 0, repeated
                given[f"grad_{name}"] = torch.zeros((), dtype=dtype).expand(shape) if gradient is None else gradient
        by_name = dict(zip(ctx.differentiated, _as_tuple(ctx.backward_kernel(**given))))
        return None, None, None, *[by_name.get(name) for name in ctx.names]


def _as_tuple(results: Any) -> tuple[torch.Tensor, ...]:
    """What a kernel returns: one tensor, or a named tuple of several."""
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)
