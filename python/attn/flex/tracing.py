"""score_mod and mask_mod as expressions: they run once, on symbols, and what they do to them is written down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from . import casts, functions, logic  # noqa: F401  (they add their operations)
from .errors import TracingError, tracing_error
from .operations import OPERATIONS, operation_of
from .symbols import Captured, Symbol

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
}
#: What PyTorch says of a captured tensor itself. It is the same for all tensors that share a kernel.
_PROPERTIES = ("dtype", "device", "ndim", "dim", "ndimension", "is_floating_point")


@dataclass
class Parameters:
    """The captured tensors that a kernel reads, in the order in which the functions use them."""

    names: Mapping[int, str]  #: what the user calls a tensor, by its id
    tensors: list[torch.Tensor] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  #: of the kernel's signature
    _declared: dict[int, str] = field(default_factory=dict)

    def declare(self, tensor: torch.Tensor) -> str:
        """The parameter's name."""
        name = self._declared.get(id(tensor))
        if name is None:
            name = self._declared[id(tensor)] = self._new_name(tensor)
            self.tensors.append(tensor)
            shape = ", ".join(size_of(name, dimension) for dimension in range(tensor.ndim))
            self.texts.append(f"{name}: {DTYPES[tensor.dtype]}" + (f"[{shape}]" if shape else ""))
        return name

    def _new_name(self, tensor: torch.Tensor) -> str:
        users = self.names.get(id(tensor), "tensor")
        name = "captured_" + "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in users)
        unique, number = name, 1
        while unique in self._declared.values():
            number += 1
            unique = f"{name}_{number}"
        return unique


def size_of(parameter: str, dimension: int) -> str:
    """The size that a dimension of a captured tensor has in the kernel."""
    return f"{parameter.upper()}_{dimension}"


class Tracer:
    """Makes the symbols of one function. `role` is "score_mod" or "mask_mod"; a traced float has `working_dtype`."""

    def __init__(self, role: str, parameters: Parameters, working_dtype: torch.dtype):
        self.role, self.parameters, self.working_dtype = role, parameters, working_dtype

    def error(self, problem: str) -> TracingError:
        return tracing_error(self.role, problem)

    def symbol(self, template: str, operands: Sequence[Symbol], kind: str, nonnegative: bool = False) -> Symbol:
        return Symbol(self, template, tuple(operands), kind, nonnegative)

    def any(self, value: Any) -> Symbol:
        """A symbol, a number, or a tensor of rank 0, as a symbol."""
        if isinstance(value, Symbol):
            return value
        if isinstance(value, bool):
            return self.symbol("true" if value else "false", (), "bool")
        if isinstance(value, int):
            return self.symbol(str(value) if value >= 0 else f"({value})", (), "integer", value >= 0)
        if isinstance(value, float):
            if value != value:
                raise self.error("the constant NaN cannot be traced")
            return self.symbol(repr(value) if value >= 0 else f"({value!r})", (), "float", value >= 0)
        if isinstance(value, torch.Tensor):
            value = self.captured(value)
        if isinstance(value, Captured):
            if len(value.subscripts) < value.tensor.ndim:
                raise self.error(
                    f"{value.name}, a tensor of rank {value.tensor.ndim} with {len(value.subscripts)} subscripts, is "
                    f"used as a number: give it {value.tensor.ndim} subscripts, or compute with whole tensors before"
                )
            subscripts = [each for each in value.subscripts if isinstance(each, Symbol)]
            text = ", ".join("{}" if isinstance(each, Symbol) else each for each in value.subscripts)
            dtype = value.tensor.dtype
            kind = "float" if dtype.is_floating_point else "bool" if dtype == torch.bool else "integer"
            return self.symbol(f"{value.name}[{text}]" if text else value.name, subscripts, kind, dtype == torch.uint8)
        if hasattr(value, "item"):  # NumPy's numbers
            return self.any(value.item())
        raise self.error(f"a number is expected, but {value!r} is of type {type(value).__name__}")

    def number(self, value: Any) -> Symbol:
        """As PyTorch's arithmetic takes it: a bool is 0 or 1."""
        symbol = self.any(value)
        return symbol if symbol.kind != "bool" else self.symbol("select({}, 1, 0)", [symbol], "integer", True)

    def floating(self, value: Any) -> Symbol:
        symbol = self.number(value)
        if symbol.kind == "float":
            return symbol
        precision = "f64" if self.working_dtype == torch.float64 else "f32"
        return self.symbol(f"{precision}({{}})", [symbol], "float", symbol.nonnegative)

    def boolean(self, value: Any, what: str) -> Symbol:
        symbol = self.any(value)
        if symbol.kind != "bool":
            raise self.error(f"{what} must be a bool, but is {'an' if symbol.kind == 'integer' else 'a'} {symbol.kind}")
        return symbol

    def truth(self, value: Any) -> Symbol:
        symbol = self.any(value)
        if symbol.kind == "bool":
            return symbol
        if symbol.template.isdigit():
            return self.any(int(symbol.template) != 0)
        return self.symbol("({} != 0)", [symbol], "bool")

    def captured(self, tensor: torch.Tensor) -> Captured:
        if tensor.dtype not in DTYPES:
            expected = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
            raise self.error(f"a captured tensor has dtype {tensor.dtype}; a kernel reads {expected}")
        return Captured(self, self.parameters.declare(tensor), tensor)

    def subscript(self, tensor: torch.Tensor | Captured, index: Any) -> Symbol | Captured:
        """tensor[index], of one subscript or a tuple of them; negative ones count from the end, as PyTorch's do."""
        captured = self.captured(tensor) if isinstance(tensor, torch.Tensor) else tensor
        subscripts = list(captured.subscripts)
        for each in index if isinstance(index, tuple) else (index,):
            if each is Ellipsis or each is None or isinstance(each, (slice, list)):
                raise self.error(f"{captured.name} is subscripted with {each!r}; only single numbers can be traced")
            symbol = self.any(each)
            if symbol.kind != "integer":
                raise self.error(f"{captured.name} is subscripted with a {symbol.kind}; only integers can be traced")
            if len(subscripts) == captured.tensor.ndim:
                raise self.error(f"{captured.name} has more subscripts than its rank, which is {captured.tensor.ndim}")
            size = size_of(captured.name, len(subscripts))
            if isinstance(each, int) and each < 0:
                subscripts.append(f"{size} - {-each}")
            elif symbol.nonnegative:
                subscripts.append(symbol)
            else:
                subscripts.append(self.symbol(f"select({{}} < 0, {{}} + {size}, {{}})", [symbol] * 3, "integer"))
        result = Captured(self, captured.name, captured.tensor, tuple(subscripts))
        return self.any(result) if len(subscripts) == captured.tensor.ndim else result

    def shape(self, tensor: torch.Tensor) -> tuple[Symbol, ...]:
        """A captured tensor's sizes, which differ from call to call."""
        name = self.captured(tensor).name
        return tuple(self.symbol(size_of(name, dimension), (), "integer", True) for dimension in range(tensor.ndim))

    def method(self, symbol: Symbol, name: str) -> Callable[..., Any]:
        """A tensor's method, on a symbol."""
        function = getattr(torch.Tensor, name, None)
        if name == "dim":
            return lambda: 0
        if function is None:
            raise AttributeError(f"'Tensor' object has no attribute '{name}'")
        if name not in OPERATIONS:
            raise self._unsupported(f"torch.Tensor.{name}")
        return lambda *args, **kwargs: self.call(function, (symbol, *args), kwargs)

    def apply(self, operation: str, *operands: Any) -> Symbol:
        """One of Python's operators."""
        return OPERATIONS[operation](self, *operands)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """One of PyTorch's functions."""
        name = getattr(function, "__name__", "")
        if name == "__get__":  # of a property
            name = function.__self__.__name__
        if args and isinstance(args[0], torch.Tensor):
            if name == "__getitem__":
                return self.subscript(args[0], args[1])
            if name in ("shape", "size"):
                sizes = self.shape(args[0])
                return sizes[args[1]] if len(args) > 1 else sizes
            if name in _PROPERTIES:
                return function(*args, **kwargs)
        if function is torch.device:
            return function(*args, **kwargs)
        operation = operation_of(function)
        if operation is None:
            raise self._unsupported(resolve_name(function) or name)
        try:
            return operation(self, *args, **kwargs)
        except TracingError:
            raise
        except TypeError as error:
            raise self.error(
                f"{resolve_name(function) or name} cannot be traced with these arguments: {error}"
            ) from None

    def _unsupported(self, name: str) -> TracingError:
        return self.error(
            f"{name} cannot be traced; arithmetic, comparisons, functions of single numbers, torch.where and "
            "subscripts of captured tensors can"
        )


class _Mode(TorchFunctionMode):
    """Hands all calls of PyTorch's functions to the tracer."""

    def __init__(self, tracer: Tracer):
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.tracer.call(function, args, kwargs or {})


def trace(role: str, function: Callable[..., Any], parameters: Parameters, working_dtype: torch.dtype) -> Symbol:
    """What `function` returns: a float for the score and the indices b, h, m and n, or a bool for the indices.

    `role` is "score_mod" or "mask_mod". The tensors that the function captures are added to `parameters`. Raises
    TracingError where it does what a kernel cannot.
    """
    tracer = Tracer(role, parameters, working_dtype)
    arguments = [tracer.symbol(name, (), "integer", True) for name in ("b", "h", "m", "n")]
    if role == "score_mod":
        arguments.insert(0, tracer.symbol("dot[b, h, m, n]", (), "float"))
    with _Mode(tracer):
        result = function(*arguments)
        if role == "score_mod":
            return tracer.floating(result)
        symbol = tracer.any(result)
    if symbol.kind != "bool":
        code = getattr(function, "__code__", None)
        place = f"{code.co_filename}:{code.co_firstlineno}: " if code else ""
        kind = f"{'an' if symbol.kind == 'integer' else 'a'} {symbol.kind}"
        raise TracingError(f"{place}{role}: must return a bool, but returns {kind}")
    return symbol
