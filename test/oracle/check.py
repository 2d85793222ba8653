"""Runs one case: compiled against the reference interpreter, and the reference against NumPy.

A float may be off by 2e-6 of the largest number of its row (1e-6 relative steps are what f32 leaves after a few operations). Where a
formula cancels or amplifies, that is too strict for any kernel: then the allowance grows by what NumPy finds when every operation
is disturbed by an f32 rounding error. Infinities and NaN must be where the reference has them.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

import numpy as np

import attn

from .data import Case, draw_arguments, with_defaults
from .evaluate import evaluate
from .memory import beside_unreadable_memory

TOLERANCE = {"f32": 2e-6, "f64": 1e-13, "bf16": 2.0**-7, "f16": 2.0**-10}
ROUNDING = {"f32": 2.0**-23, "f64": 2.0**-52, "bf16": 2.0**-8, "f16": 2.0**-11}
# What may be lost where a weight too small for f32 meets a large value; and the step between numbers of f16 that are small.
UNDERFLOW = {"f32": 1e-30, "f64": 1e-30, "bf16": 1e-30, "f16": 2.0**-24}
ALLOWANCE = 8  # how often worse than a random disturbance a rounding may be
DISTURBANCES = 12  # fewer may all be small by chance, where a row has few elements


@dataclass(frozen=True)
class Failure:
    kind: str  #: "refused", "error", "difference", "reference", and of pool.py: "crash", "hang"
    text: str

    @property
    def signature(self) -> str:
        """Equal for failures that are likely to have one cause."""
        return self.kind + (re.sub(r"`[^`]*`|'[^']*'|\d+", "…", self.text.splitlines()[0]) if self.kind in ("refused", "error") else "")


def check(case: Case) -> Failure | None:
    """None where all agree."""
    try:
        kernel = attn.compile(case.spec.text())
    except attn.CompileError as error:
        return Failure("refused", str(error))
    arguments = draw_arguments(case)
    try:
        passed = as_passed(case, arguments)
        found, expected, again = (as_arrays(method(**passed)) for method in (kernel, kernel.reference, kernel))
    except Exception as error:  # whatever a call raises is a finding: the arguments fit
        return Failure("error", f"{type(error).__name__}: {error}")
    dtypes = [each.dtype for each in kernel.outputs]
    inputs = with_defaults(case.spec, arguments)
    allowance = _Allowance(case, inputs)
    numpy = [_stored(each, dtype) for each, dtype in zip(evaluate(case.spec, case.all_sizes, inputs), dtypes)]
    text = _differences(kernel, numpy, expected, allowance, "NumPy")
    if text:
        return Failure("reference", text)
    text = _differences(kernel, found, expected, allowance, "the kernel")
    if not text:
        same = all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(found, again))
        text = "" if same else "a second run gives other bits"
    return Failure("difference", text) if text else None


def as_passed(case: Case, arguments: dict) -> dict:
    """The arguments as the kernel takes them, with nothing to be read before or after them. NumPy has no bf16: those are PyTorch's."""
    narrow = [each.name for each in case.spec.parameters if each.dtype == "bf16"]

    def converted(array: np.ndarray):
        import torch

        return torch.from_numpy(array if min(array.strides, default=0) > 0 else array.copy()).to(torch.bfloat16)

    def passed(name: str, value):
        if not isinstance(value, np.ndarray) or value.ndim == 0:
            return value
        array = converted(value) if name in narrow else value
        return beside_unreadable_memory(array, begins=(case.seed + zlib.crc32(name.encode())) % 2 == 1)

    return {name: passed(name, value) for name, value in arguments.items()}


def as_arrays(outputs) -> list[np.ndarray]:
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [each if isinstance(each, np.ndarray) else _array(each) for each in outputs]


def _array(tensor) -> np.ndarray:
    """A tensor of PyTorch's; bf16 becomes f32."""
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def _stored(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))).astype(np.uint32) & np.uint32(0xFFFF0000)
        return np.where(np.isnan(values), np.float32(np.nan), rounded.view(np.float32))
    names = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bool": np.bool_, "i64": np.int64, "i32": np.int32}
    with np.errstate(over="ignore"):
        return values.astype(names[dtype])


def step_rounding(case: Case) -> float:
    """What each step of a kernel may be off by: it computes in f32, or in f64 where it has inputs of that."""
    return ROUNDING["f64" if any(each.dtype == "f64" for each in case.spec.parameters) else "f32"]


class _Allowance:
    """How far each output may be off beyond the tolerance, row by row. Found only when asked for."""

    def __init__(self, case: Case, inputs: dict):
        self.case, self.inputs, self.disturbed = case, inputs, None

    def of(self, output: int) -> np.ndarray:
        if self.disturbed is None:
            clean = evaluate(self.case.spec, self.case.all_sizes, self.inputs)
            self.disturbed = [np.zeros_like(each, np.float64) for each in clean]
            for seed in range(DISTURBANCES):
                noisy = evaluate(self.case.spec, self.case.all_sizes, self.inputs, step_rounding(self.case), seed + 1)
                for most, a, b in zip(self.disturbed, noisy, clean):
                    with np.errstate(invalid="ignore"):
                        np.maximum(most, np.nan_to_num(np.abs(np.asarray(a, np.float64) - b), posinf=0), out=most)
        return ALLOWANCE * _row_maximum(self.disturbed[output])


def _row_maximum(values: np.ndarray) -> np.ndarray:
    return np.max(values, axis=-1, keepdims=True, initial=0) if values.ndim else values


def _differences(kernel: attn.Kernel, found: list[np.ndarray], expected: list[np.ndarray], allowance: _Allowance, whose: str) -> str:
    """What is wrong, with the first and the worst place; empty where nothing is."""
    for position, (info, a, b) in enumerate(zip(kernel.outputs, found, expected)):
        if a.shape != b.shape:
            return f"{info.name}: {whose} has the shape {a.shape}, the reference {b.shape}"
        if a.dtype.kind != "f":
            wrong, how = a != b, a != b
        else:
            a, b = a.astype(np.float64), b.astype(np.float64)
            finite = np.isfinite(a) & np.isfinite(b)
            special = ~finite & ~((a == b) | (np.isnan(a) & np.isnan(b)))
            error = np.where(finite, np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)), 0)
            tolerance = TOLERANCE[info.dtype] * _row_maximum(np.where(np.isfinite(b), np.abs(b), 0)) + UNDERFLOW[info.dtype]
            if (error > tolerance).any():
                tolerance = tolerance + allowance.of(position)
            wrong, how = special | (error > tolerance), np.where(special, np.inf, error / tolerance)
        if wrong.any():
            worst = np.unravel_index(np.argmax(how), a.shape)
            first = np.unravel_index(np.argmax(wrong), a.shape)
            return (
                f"{info.name}: {np.count_nonzero(wrong)} of {a.size} elements differ; the first is {info.name}{_place(first)}; the worst "
                f"{info.name}{_place(worst)} = {a[worst]!r} by {whose}, {b[worst]!r} by the reference, {float(how[worst]):.3g} × what is allowed"
            )
    return ""


def _place(index: tuple) -> str:
    return f"[{', '.join(map(str, index))}]"
