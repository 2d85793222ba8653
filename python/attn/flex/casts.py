"""Casts and new constants, as expressions of the language. Importing this adds them to `OPERATIONS`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import torch

from .operations import operation
from .symbols import Symbol

if TYPE_CHECKING:
    from .tracing import Tracer


_CASTS = {torch.int64: "i64", torch.int32: "i32", torch.int8: "i8", torch.uint8: "u8"}
_ROUNDED = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def cast(tracer: Tracer, input: Any, dtype: torch.dtype) -> Symbol:
    """`input` as a number of this dtype: floats are rounded to it, and computed with as the kernel's floats."""
    symbol = tracer.any(input)
    if dtype == torch.bool:
        return tracer.truth(symbol)
    symbol = tracer.number(symbol)
    if symbol.kind == "float" and dtype in (torch.float64, tracer.working_dtype):
        return symbol
    if dtype in _ROUNDED:
        return tracer.symbol(f"{_ROUNDED[dtype]}({{}})", [symbol], "float", symbol.nonnegative)
    if dtype not in _CASTS:
        raise tracer.error(f"dtype {dtype} has no counterpart in a kernel")
    if symbol.kind == "integer" and dtype == torch.int64:
        return symbol
    keeps_sign = dtype in (torch.int64, torch.int32) and symbol.kind == "integer" and symbol.nonnegative
    return tracer.symbol(f"{_CASTS[dtype]}({{}})", [symbol], "integer", keeps_sign or dtype == torch.uint8)


@operation("to", "type")
def _to(tracer: Tracer, input: Any, *arguments: Any, dtype: Any = None, **_: Any) -> Symbol:
    for argument in (*arguments, dtype):
        found = argument if isinstance(argument, torch.dtype) else getattr(argument, "dtype", None)
        if isinstance(found, torch.dtype):
            return cast(tracer, input, found)
    return tracer.any(input)


@operation("type_as")
def _type_as(tracer: Tracer, input: Any, other: Any) -> Symbol:
    return cast(tracer, input, other.dtype)


for _name, _dtype in {
    "long": torch.int64,
    "int": torch.int32,
    "bool": torch.bool,
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
}.items():

    def _cast_method(tracer: Tracer, input: Any, dtype: torch.dtype = _dtype) -> Symbol:
        return cast(tracer, input, dtype)

    operation(_name)(_cast_method)


@operation("detach", "clone", "contiguous", "cpu")
def _same(tracer: Tracer, input: Any, **_: Any) -> Symbol:
    return tracer.any(input)


@operation("tensor", "scalar_tensor", "as_tensor", "asarray")
def _tensor(tracer: Tracer, data: Any, dtype: torch.dtype | None = None, **_: Any) -> Symbol:
    return tracer.any(data) if dtype is None else cast(tracer, data, dtype)


def _filled(value: float | None) -> Callable[..., Symbol]:
    """zeros_like, new_zeros and so on, of the shape of a single number."""

    def fill(tracer: Tracer, input: Any, *arguments: Any, dtype: torch.dtype | None = None, **keywords: Any) -> Symbol:
        number = value
        if value is None:
            number = keywords["fill_value"] if "fill_value" in keywords else arguments[-1]
        size = keywords.get("size", arguments[0] if len(arguments) > (value is None) else ())
        if tuple(size) != ():
            raise tracer.error(f"a new tensor of shape {tuple(size)}: only single numbers, of shape (), can be traced")
        return cast(tracer, number, dtype or tracer.any(input).dtype)

    return fill


for _prefix, _suffix in (("new_", ""), ("", "_like")):
    operation(f"{_prefix}zeros{_suffix}")(_filled(0))
    operation(f"{_prefix}ones{_suffix}")(_filled(1))
    operation(f"{_prefix}full{_suffix}")(_filled(None))
