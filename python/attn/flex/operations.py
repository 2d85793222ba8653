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


def _all_nonnegative(symbols: list[Symbol]) -> bool:
    return all(symbol.nonnegative for symbol in symbols)


# Arithmetic


@operation("add")
def _add(tracer: Tracer, input: Any, other: Any, *, alpha: Any = 1) -> Symbol:
    if alpha != 1:
        other = mul(tracer, other, alpha)
    symbols, kind = promoted(tracer, input, other)
    return tracer.symbol("({} + {})", symbols, kind, _all_nonnegative(symbols))


@operation("sub", "subtract")
def _sub(tracer: Tracer, input: Any, other: Any, *, alpha: Any = 1) -> Symbol:
    if alpha != 1:
        other = mul(tracer, other, alpha)
    return tracer.symbol("({} - {})", *promoted(tracer, input, other))


@operation("mul", "multiply")
def mul(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = promoted(tracer, input, other)
    return tracer.symbol("({} * {})", symbols, kind, _all_nonnegative(symbols))


@operation("div", "divide", "true_divide")
def _div(tracer: Tracer, input: Any, other: Any, *, rounding_mode: str | None = None) -> Symbol:
    if rounding_mode == "floor":
        return _floor_divide(tracer, input, other)
    symbols, kind = promoted(tracer, input, other)
    if rounding_mode is None:
        return tracer.symbol("({} / {})", symbols, "float")
    if kind == "float":
        return _trunc(tracer, tracer.symbol("({} / {})", symbols, "float"))
    if _all_nonnegative(symbols):
        return _floor_divide(tracer, input, other)
    magnitude = tracer.symbol("(abs({}) // abs({}))", symbols, kind)
    negative = tracer.symbol("(({} < 0) != ({} < 0))", symbols, "bool")
    return tracer.symbol("select({}, -{}, {})", [negative, magnitude, magnitude], kind)


@operation("floor_divide")
def _floor_divide(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = promoted(tracer, input, other)
    return tracer.symbol("({} // {})", symbols, kind, _all_nonnegative(symbols))


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


# Choices


@operation("minimum")
def _minimum(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = promoted(tracer, input, other)
    return tracer.symbol("min({}, {})", symbols, kind, _all_nonnegative(symbols))


@operation("maximum")
def maximum(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = promoted(tracer, input, other)
    return tracer.symbol("max({}, {})", symbols, kind, any(symbol.nonnegative for symbol in symbols))


@operation("min")
def _min(tracer: Tracer, input: Any, other: Any = None) -> Symbol:
    return _minimum(tracer, input, input if other is None else other)


@operation("max")
def _max(tracer: Tracer, input: Any, other: Any = None) -> Symbol:
    return maximum(tracer, input, input if other is None else other)


@operation("clamp", "clip")
def _clamp(tracer: Tracer, input: Any, min: Any = None, max: Any = None) -> Symbol:
    result = tracer.number(input)
    if min is not None:
        result = maximum(tracer, result, min)
    return result if max is None else _minimum(tracer, result, max)


@operation("clamp_min")
def _clamp_min(tracer: Tracer, input: Any, min: Any) -> Symbol:
    return maximum(tracer, input, min)


@operation("clamp_max")
def _clamp_max(tracer: Tracer, input: Any, max: Any) -> Symbol:
    return _minimum(tracer, input, max)


@operation("where")
def _where(tracer: Tracer, condition: Any, input: Any, other: Any) -> Symbol:
    test = tracer.boolean(condition, "the condition of torch.where")
    branches = [tracer.any(input), tracer.any(other)]
    if all(branch.kind == "bool" for branch in branches):
        return tracer.symbol("select({}, {}, {})", [test, *branches], "bool")
    symbols, kind = promoted(tracer, *branches)
    return tracer.symbol("select({}, {}, {})", [test, *symbols], kind, _all_nonnegative(symbols))


def _where_method(tracer: Tracer, self: Any, condition: Any, other: Any) -> Symbol:
    return _where(tracer, condition, self, other)


@operation("masked_fill")
def _masked_fill(tracer: Tracer, input: Any, mask: Any, value: Any) -> Symbol:
    return _where(tracer, mask, value, input)


# Comparisons and logic


def _comparison(operator: str) -> Callable[..., Symbol]:
    def compare(tracer: Tracer, input: Any, other: Any) -> Symbol:
        operands = [tracer.any(input), tracer.any(other)]
        if operator not in ("==", "!=") or not all(operand.kind == "bool" for operand in operands):
            operands, _ = promoted(tracer, *operands)
        return tracer.symbol(f"({{}} {operator} {{}})", operands, "bool")

    return compare


for _names, _operator in (
    (("lt", "less"), "<"),
    (("le", "less_equal"), "<="),
    (("gt", "greater"), ">"),
    (("ge", "greater_equal"), ">="),
    (("eq",), "=="),
    (("ne", "not_equal"), "!="),
):
    operation(*_names)(_comparison(_operator))


def _connective(name: str, template: str) -> Callable[..., Symbol]:
    def connect(tracer: Tracer, input: Any, other: Any) -> Symbol:
        operands = [tracer.boolean(value, f"an operand of {name}") for value in (input, other)]
        if name == "&" and operands[0].template == "true":  # with it torch's and_masks begins
            return operands[1]
        return tracer.symbol(template, operands, "bool")

    return connect


_and = _connective("&", "({} and {})")
_or = operation("bitwise_or")(_connective("|", "({} or {})"))
_xor = operation("bitwise_xor")(_connective("^", "({} != {})"))


@operation("bitwise_and")
def _bitwise_and(tracer: Tracer, input: Any, other: Any) -> Symbol:
    for value, mask in ((input, constant_of(other)), (other, constant_of(input))):
        symbol = tracer.any(value)
        # The low bits of an integer are its remainder, also below 0.
        if symbol.kind == "integer" and type(mask) is int and mask >= 0 and mask & (mask + 1) == 0:
            return tracer.symbol(f"({{}} % {mask + 1})", [symbol], "integer", True)
    return _and(tracer, input, other)


def _logical(connective: Callable[..., Symbol]) -> Callable[..., Symbol]:
    def connect(tracer: Tracer, input: Any, other: Any) -> Symbol:
        return connective(tracer, tracer.truth(input), tracer.truth(other))

    return connect


for _name, _function in (("and", _and), ("or", _or), ("xor", _xor)):
    operation(f"logical_{_name}")(_logical(_function))


@operation("bitwise_not")
def _not(tracer: Tracer, input: Any) -> Symbol:
    symbol = tracer.any(input)
    if symbol.kind == "integer":
        return tracer.symbol("(-{} - 1)", [symbol], "integer")
    return tracer.symbol("(not {})", [tracer.boolean(symbol, "the operand of ~")], "bool")


@operation("logical_not")
def _logical_not(tracer: Tracer, input: Any) -> Symbol:
    return tracer.symbol("(not {})", [tracer.truth(input)], "bool")


def _shift(operator: str) -> Callable[..., Symbol]:
    def shift(tracer: Tracer, input: Any, other: Any) -> Symbol:
        symbol, places = tracer.number(input), constant_of(other)
        if symbol.kind != "integer" or type(places) is not int or not 0 <= places < 63:
            raise tracer.error("a shift is traced for integers and a constant number of places from 0 to 62")
        return tracer.symbol(f"({{}} {operator} {2**places})", [symbol], "integer", symbol.nonnegative)

    return shift


operation("bitwise_left_shift")(_shift("*"))
operation("bitwise_right_shift")(_shift("//"))


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
        return _where_method
    return OPERATIONS.get(name)
