"""PyTorch's operations on single numbers, as expressions of the language.

Each takes the tracer and the arguments of PyTorch's function, and returns a Symbol; `OPERATIONS` finds them by the
function's name. Kinds follow PyTorch's promotion: bool, integer, float. All floats have the kernel's precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import torch

from .symbols import OPERATORS, Symbol

if TYPE_CHECKING:
    from .tracing import Tracer

OPERATIONS: dict[str, Callable[..., Any]] = {}


def operation(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return add


def constant_of(value: Any) -> Any:
    """The number of an argument that is a Python number, else None."""
    return value if isinstance(value, (int, float)) else None


def promoted(tracer: Tracer, *values: Any) -> tuple[list[Symbol], str]:
    """The operands as numbers, and the kind of what is computed from them."""
    symbols = [tracer.number(value) for value in values]
    return symbols, "float" if any(symbol.kind == "float" for symbol in symbols) else "integer"


def all_nonnegative(symbols: list[Symbol]) -> bool:
    """Whether none of them can be less than 0."""
    return all(symbol.nonnegative for symbol in symbols)


# Arithmetic


@operation("add")
def _add(tracer: Tracer, input: Any, other: Any, *, alpha: Any = 1) -> Symbol:
    if alpha != 1:
        other = mul(tracer, other, alpha)
    symbols, kind = promoted(tracer, input, other)
    return tracer.symbol("({} + {})", symbols, kind, all_nonnegative(symbols))


@operation("sub", "subtract")
def _sub(tracer: Tracer, input: Any, other: Any, *, alpha: Any = 1) -> Symbol:
    if alpha != 1:
        other = mul(tracer, other, alpha)
    return tracer.symbol("({} - {})", *promoted(tracer, input, other))


@operation("mul", "multiply")
def mul(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = promoted(tracer, input, other)
    return tracer.symbol("({} * {})", symbols, kind, all_nonnegative(symbols))


@operation("div", "divide", "true_divide")
def _div(tracer: Tracer, input: Any, other: Any, *, rounding_mode: str | None = None) -> Symbol:
    if rounding_mode == "floor":
        return _floor_divide(tracer, input, other)
    symbols, kind = promoted(tracer, input, other)
    if rounding_mode is None:
        return tracer.symbol("({} / {})", symbols, "float")
    if kind == "float":
        return _trunc(tracer, tracer.symbol("({} / {})", symbols, "float"))
    if all_nonnegative(symbols):
        return _floor_divide(tracer, input, other)
    magnitude = tracer.symbol("(abs({}) // abs({}))", symbols, kind)
    negative = tracer.symbol("(({} < 0) != ({} < 0))", symbols, "bool")
    return tracer.symbol("select({}, -{}, {})", [negative, magnitude, magnitude], kind)


@operation("floor_divide")
def _floor_divide(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = promoted(tracer, input, other)
    return tracer.symbol("({} // {})", symbols, kind, all_nonnegative(symbols))


@operation("remainder")
def _remainder(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = promoted(tracer, input, other)
    return tracer.symbol("({} % {})", symbols, kind, symbols[1].nonnegative)


@operation("fmod")
def _fmod(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = promoted(tracer, input, other)
    magnitude = tracer.symbol("(abs({}) % abs({}))", symbols, kind)
    return tracer.symbol("select({} < 0, -{}, {})", [symbols[0], magnitude, magnitude], kind)


@operation("pow", "float_power")
def _pow(tracer: Tracer, input: Any, exponent: Any) -> Symbol:
    (base, power), kind = promoted(tracer, input, exponent)
    constant = constant_of(exponent)
    if isinstance(constant, int) and not isinstance(constant, bool) and 0 <= constant <= 8:
        return tracer.symbol(f"({{}} ** {constant})", [base], base.kind, base.nonnegative)
    if kind == "integer":
        raise tracer.error("an integer to a power is traced for constant powers from 0 to 8; make one of both a float")
    return tracer.symbol("({} ** {})", [base, power], "float")


@operation("neg", "negative")
def _neg(tracer: Tracer, input: Any) -> Symbol:
    return tracer.symbol("(-{})", *promoted(tracer, input))


@operation("positive")
def _positive(tracer: Tracer, input: Any) -> Symbol:
    return tracer.number(input)


@operation("abs", "absolute")
def _abs(tracer: Tracer, input: Any) -> Symbol:
    return tracer.symbol("abs({})", *promoted(tracer, input), True)


@operation("square")
def _square(tracer: Tracer, input: Any) -> Symbol:
    return _pow(tracer, input, 2)


@operation("sign", "sgn")
def _sign(tracer: Tracer, input: Any) -> Symbol:
    symbol = tracer.number(input)
    return tracer.symbol("select({} > 0, 1, select({} < 0, -1, 0))", [symbol, symbol], symbol.kind)


# Rounding


@operation("floor")
def _floor(tracer: Tracer, input: Any) -> Symbol:
    symbol = tracer.number(input)
    return symbol if symbol.kind == "integer" else tracer.symbol("floor({})", [symbol], "float")


@operation("ceil")
def _ceil(tracer: Tracer, input: Any) -> Symbol:
    symbol = tracer.number(input)
    return symbol if symbol.kind == "integer" else tracer.symbol("(-floor(-{}))", [symbol], "float")


@operation("trunc", "fix")
def _trunc(tracer: Tracer, input: Any) -> Symbol:
    symbol = tracer.number(input)
    if symbol.kind == "integer":
        return symbol
    return tracer.symbol("select({} < 0, -floor(-{}), floor({}))", [symbol] * 3, "float")


@operation("round")
def _round(tracer: Tracer, input: Any, *, decimals: int = 0) -> Symbol:
    if decimals != 0:
        raise tracer.error(f"round to decimals={decimals} cannot be traced, only to whole numbers")
    symbol = tracer.number(input)
    return symbol if symbol.kind == "integer" else tracer.symbol("round({})", [symbol], "float")


def operation_of(function: Any) -> Callable[..., Any] | None:
    """The operation of one of PyTorch's functions, methods or operators, if it has one."""
    name = getattr(function, "__name__", "")
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        reflected = name.removeprefix("r")
        if name not in OPERATORS and reflected in (*OPERATORS, "div"):
            operation = OPERATIONS[OPERATORS.get(reflected, "div")]
            return lambda tracer, input, other: operation(tracer, other, input)
        name = {**OPERATORS, "div": "div", "invert": "bitwise_not"}.get(name, name)
    if name == "where" and function is torch.Tensor.where:
        return OPERATIONS["where_method"]
    return OPERATIONS.get(name)
