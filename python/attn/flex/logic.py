"""Choices, comparisons and logic, as expressions of the language. Importing this adds them to `OPERATIONS`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from .operations import all_nonnegative, constant_of, operation, promoted
from .symbols import Symbol

if TYPE_CHECKING:
    from .tracing import Tracer


# Choices


@operation("minimum")
def _minimum(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = promoted(tracer, input, other)
    return tracer.symbol("min({}, {})", symbols, kind, all_nonnegative(symbols))


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
    return tracer.symbol("select({}, {}, {})", [test, *symbols], kind, all_nonnegative(symbols))


@operation("where_method")  # the condition is the second argument of the method
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
