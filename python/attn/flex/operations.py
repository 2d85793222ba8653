"""PyTorch's operations on single numbers, as expressions of the language.

Each takes the tracer and the arguments of PyTorch's function, and returns a Symbol; `OPERATIONS` finds them by the
function's name. Kinds follow PyTorch's promotion: bool, integer, float. All floats have the kernel's precision.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable

import torch

from .symbols import OPERATORS, Symbol

if TYPE_CHECKING:
    from .tracing import Tracer

OPERATIONS: dict[str, Callable[..., Any]] = {}


def _operation(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return add


def _constant(value: Any) -> Any:
    """The number of an argument that is a Python number, else None."""
    return value if isinstance(value, (int, float)) else None


def _promoted(tracer: Tracer, *values: Any) -> tuple[list[Symbol], str]:
    """The operands as numbers, and the kind of what is computed from them."""
    symbols = [tracer.number(value) for value in values]
    return symbols, "float" if any(symbol.kind == "float" for symbol in symbols) else "integer"


def _all_nonnegative(symbols: list[Symbol]) -> bool:
    return all(symbol.nonnegative for symbol in symbols)


# Arithmetic


@_operation("add")
def _add(tracer: Tracer, input: Any, other: Any, *, alpha: Any = 1) -> Symbol:
    if alpha != 1:
        other = _mul(tracer, other, alpha)
    symbols, kind = _promoted(tracer, input, other)
    return tracer.symbol("({} + {})", symbols, kind, _all_nonnegative(symbols))


@_operation("sub", "subtract")
def _sub(tracer: Tracer, input: Any, other: Any, *, alpha: Any = 1) -> Symbol:
    if alpha != 1:
        other = _mul(tracer, other, alpha)
    return tracer.symbol("({} - {})", *_promoted(tracer, input, other))


@_operation("mul", "multiply")
def _mul(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = _promoted(tracer, input, other)
    return tracer.symbol("({} * {})", symbols, kind, _all_nonnegative(symbols))


@_operation("div", "divide", "true_divide")
def _div(tracer: Tracer, input: Any, other: Any, *, rounding_mode: str | None = None) -> Symbol:
    if rounding_mode == "floor":
        return _floor_divide(tracer, input, other)
    symbols, kind = _promoted(tracer, input, other)
    if rounding_mode is None:
        return tracer.symbol("({} / {})", symbols, "float")
    if kind == "float":
        return _trunc(tracer, tracer.symbol("({} / {})", symbols, "float"))
    if _all_nonnegative(symbols):
        return _floor_divide(tracer, input, other)
    magnitude = tracer.symbol("(abs({}) // abs({}))", symbols, kind)
    negative = tracer.symbol("(({} < 0) != ({} < 0))", symbols, "bool")
    return tracer.symbol("select({}, -{}, {})", [negative, magnitude, magnitude], kind)


@_operation("floor_divide")
def _floor_divide(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = _promoted(tracer, input, other)
    return tracer.symbol("({} // {})", symbols, kind, _all_nonnegative(symbols))


@_operation("remainder")
def _remainder(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = _promoted(tracer, input, other)
    return tracer.symbol("({} % {})", symbols, kind, symbols[1].nonnegative)


@_operation("fmod")
def _fmod(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = _promoted(tracer, input, other)
    magnitude = tracer.symbol("(abs({}) % abs({}))", symbols, kind)
    return tracer.symbol("select({} < 0, -{}, {})", [symbols[0], magnitude, magnitude], kind)


@_operation("pow", "float_power")
def _pow(tracer: Tracer, input: Any, exponent: Any) -> Symbol:
    (base, power), kind = _promoted(tracer, input, exponent)
    constant = _constant(exponent)
    if isinstance(constant, int) and not isinstance(constant, bool) and 0 <= constant <= 8:
        return tracer.symbol(f"({{}} ** {constant})", [base], base.kind, base.nonnegative)
    if kind == "integer":
        raise tracer.error("an integer to a power is traced for constant powers from 0 to 8; make one of both a float")
    return tracer.symbol("({} ** {})", [base, power], "float")


@_operation("neg", "negative")
def _neg(tracer: Tracer, input: Any) -> Symbol:
    return tracer.symbol("(-{})", *_promoted(tracer, input))


@_operation("positive")
def _positive(tracer: Tracer, input: Any) -> Symbol:
    return tracer.number(input)


@_operation("abs", "absolute")
def _abs(tracer: Tracer, input: Any) -> Symbol:
    return tracer.symbol("abs({})", *_promoted(tracer, input), True)


@_operation("square")
def _square(tracer: Tracer, input: Any) -> Symbol:
    return _pow(tracer, input, 2)


@_operation("sign", "sgn")
def _sign(tracer: Tracer, input: Any) -> Symbol:
    symbol = tracer.number(input)
    return tracer.symbol("select({} > 0, 1, select({} < 0, -1, 0))", [symbol, symbol], symbol.kind)


# Rounding


@_operation("floor")
def _floor(tracer: Tracer, input: Any) -> Symbol:
    symbol = tracer.number(input)
    return symbol if symbol.kind == "integer" else tracer.symbol("floor({})", [symbol], "float")


@_operation("ceil")
def _ceil(tracer: Tracer, input: Any) -> Symbol:
    symbol = tracer.number(input)
    return symbol if symbol.kind == "integer" else tracer.symbol("(-floor(-{}))", [symbol], "float")


@_operation("trunc", "fix")
def _trunc(tracer: Tracer, input: Any) -> Symbol:
    symbol = tracer.number(input)
    if symbol.kind == "integer":
        return symbol
    return tracer.symbol("select({} < 0, -floor(-{}), floor({}))", [symbol] * 3, "float")


@_operation("round")
def _round(tracer: Tracer, input: Any, *, decimals: int = 0) -> Symbol:
    if decimals != 0:
        raise tracer.error(f"round to decimals={decimals} cannot be traced, only to whole numbers")
    symbol = tracer.number(input)
    return symbol if symbol.kind == "integer" else tracer.symbol("round({})", [symbol], "float")


# Choices


@_operation("minimum")
def _minimum(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = _promoted(tracer, input, other)
    return tracer.symbol("min({}, {})", symbols, kind, _all_nonnegative(symbols))


@_operation("maximum")
def _maximum(tracer: Tracer, input: Any, other: Any) -> Symbol:
    symbols, kind = _promoted(tracer, input, other)
    return tracer.symbol("max({}, {})", symbols, kind, any(symbol.nonnegative for symbol in symbols))


@_operation("min")
def _min(tracer: Tracer, input: Any, other: Any = None) -> Symbol:
    return _minimum(tracer, input, input if other is None else other)


@_operation("max")
def _max(tracer: Tracer, input: Any, other: Any = None) -> Symbol:
    return _maximum(tracer, input, input if other is None else other)


@_operation("clamp", "clip")
def _clamp(tracer: Tracer, input: Any, min: Any = None, max: Any = None) -> Symbol:
    result = tracer.number(input)
    if min is not None:
        result = _maximum(tracer, result, min)
    return result if max is None else _minimum(tracer, result, max)


@_operation("clamp_min")
def _clamp_min(tracer: Tracer, input: Any, min: Any) -> Symbol:
    return _maximum(tracer, input, min)


@_operation("clamp_max")
def _clamp_max(tracer: Tracer, input: Any, max: Any) -> Symbol:
    return _minimum(tracer, input, max)


@_operation("where")
def _where(tracer: Tracer, condition: Any, input: Any, other: Any) -> Symbol:
    test = tracer.boolean(condition, "the condition of torch.where")
    branches = [tracer.any(input), tracer.any(other)]
    if all(branch.kind == "bool" for branch in branches):
        return tracer.symbol("select({}, {}, {})", [test, *branches], "bool")
    symbols, kind = _promoted(tracer, *branches)
    return tracer.symbol("select({}, {}, {})", [test, *symbols], kind, _all_nonnegative(symbols))


def _where_method(tracer: Tracer, self: Any, condition: Any, other: Any) -> Symbol:
    return _where(tracer, condition, self, other)


@_operation("masked_fill")
def _masked_fill(tracer: Tracer, input: Any, mask: Any, value: Any) -> Symbol:
    return _where(tracer, mask, value, input)


# Comparisons and logic


def _comparison(operator: str) -> Callable[..., Symbol]:
    def compare(tracer: Tracer, input: Any, other: Any) -> Symbol:
        operands = [tracer.any(input), tracer.any(other)]
        if operator not in ("==", "!=") or not all(operand.kind == "bool" for operand in operands):
            operands, _ = _promoted(tracer, *operands)
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
    _operation(*_names)(_comparison(_operator))


def _connective(name: str, template: str) -> Callable[..., Symbol]:
    def connect(tracer: Tracer, input: Any, other: Any) -> Symbol:
        operands = [tracer.boolean(value, f"an operand of {name}") for value in (input, other)]
        if name == "&" and operands[0].template == "true":  # with it torch's and_masks begins
            return operands[1]
        return tracer.symbol(template, operands, "bool")

    return connect


_and = _connective("&", "({} and {})")
_or = _operation("bitwise_or")(_connective("|", "({} or {})"))
_xor = _operation("bitwise_xor")(_connective("^", "({} != {})"))


@_operation("bitwise_and")
def _bitwise_and(tracer: Tracer, input: Any, other: Any) -> Symbol:
    for value, mask in ((input, _constant(other)), (other, _constant(input))):
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
    _operation(f"logical_{_name}")(_logical(_function))


@_operation("bitwise_not")
def _not(tracer: Tracer, input: Any) -> Symbol:
    symbol = tracer.any(input)
    if symbol.kind == "integer":
        return tracer.symbol("(-{} - 1)", [symbol], "integer")
    return tracer.symbol("(not {})", [tracer.boolean(symbol, "the operand of ~")], "bool")


@_operation("logical_not")
def _logical_not(tracer: Tracer, input: Any) -> Symbol:
    return tracer.symbol("(not {})", [tracer.truth(input)], "bool")


def _shift(operator: str) -> Callable[..., Symbol]:
    def shift(tracer: Tracer, input: Any, other: Any) -> Symbol:
        symbol, places = tracer.number(input), _constant(other)
        if symbol.kind != "integer" or type(places) is not int or not 0 <= places < 63:
            raise tracer.error("a shift is traced for integers and a constant number of places from 0 to 62")
        return tracer.symbol(f"({{}} {operator} {2**places})", [symbol], "integer", symbol.nonnegative)

    return shift


_operation("bitwise_left_shift")(_shift("*"))
_operation("bitwise_right_shift")(_shift("//"))


# Functions of floats


def _function(template: str) -> Callable[..., Symbol]:
    def call(tracer: Tracer, input: Any, inplace: bool = False) -> Symbol:
        symbol = tracer.floating(input)
        return tracer.symbol(template, [symbol] * template.count("{}"), "float")

    return call


for _name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid"):
    _operation(_name)(_function(f"{_name}({{}})"))
for _name, _template in {
    "expit": "sigmoid({})",
    "tan": "(sin({}) / cos({}))",
    "log10": f"(log({{}}) * {1 / math.log(10)!r})",
    "log1p": "log(1.0 + {})",
    "expm1": "(exp({}) - 1.0)",
    "reciprocal": "(1.0 / {})",
    "silu": "({} * sigmoid({}))",
    "log_sigmoid": "(min({}, 0.0) - log(1.0 + exp(-abs({}))))",
    "relu6": "min(max({}, 0.0), 6.0)",
}.items():
    _operation(_name)(_function(_template))
for _name, _template in {"isnan": "isnan({})", "isinf": "(abs({}) == inf)", "isfinite": "(abs({}) < inf)"}.items():

    def _predicate(tracer: Tracer, input: Any, template: str = _template) -> Symbol:
        return tracer.symbol(template, [tracer.floating(input)], "bool")

    _operation(_name)(_predicate)


@_operation("relu")
def _relu(tracer: Tracer, input: Any, inplace: bool = False) -> Symbol:
    return _maximum(tracer, input, 0)


@_operation("gelu")
def _gelu(tracer: Tracer, input: Any, approximate: str = "none") -> Symbol:
    symbol = tracer.floating(input)
    if approximate == "none":
        return tracer.symbol("gelu({})", [symbol], "float")
    inner = f"tanh({math.sqrt(2 / math.pi)!r} * ({{}} + 0.044715 * {{}} ** 3))"
    return tracer.symbol(f"(0.5 * {{}} * (1.0 + {inner}))", [symbol] * 3, "float")


@_operation("softplus")
def _softplus(tracer: Tracer, input: Any, beta: float = 1, threshold: float = 20) -> Symbol:
    scaled = _mul(tracer, tracer.floating(input), float(beta))
    template = f"select({{}} > {float(threshold)!r}, {{}}, log(1.0 + exp({{}})) / {float(beta)!r})"
    return tracer.symbol(template, [scaled, tracer.floating(input), scaled], "float")


# Casts and constants

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


@_operation("to", "type")
def _to(tracer: Tracer, input: Any, *arguments: Any, dtype: Any = None, **_: Any) -> Symbol:
    for argument in (*arguments, dtype):
        found = argument if isinstance(argument, torch.dtype) else getattr(argument, "dtype", None)
        if isinstance(found, torch.dtype):
            return cast(tracer, input, found)
    return tracer.any(input)


@_operation("type_as")
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

    _operation(_name)(_cast_method)


@_operation("detach", "clone", "contiguous", "cpu")
def _same(tracer: Tracer, input: Any, **_: Any) -> Symbol:
    return tracer.any(input)


@_operation("tensor", "scalar_tensor", "as_tensor", "asarray")
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
    _operation(f"{_prefix}zeros{_suffix}")(_filled(0))
    _operation(f"{_prefix}ones{_suffix}")(_filled(1))
    _operation(f"{_prefix}full{_suffix}")(_filled(None))


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
