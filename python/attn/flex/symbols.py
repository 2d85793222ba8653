"""Stand-ins for the numbers and tensors that a score_mod or mask_mod computes with while it is traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .tracing import Tracer

#: Python's operators, and the operation of `operations.py` that each is.
OPERATORS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
UNARY = {"neg": "neg", "pos": "positive", "abs": "abs", "invert": "bitwise_not"}
#: What Python does with a number only when its value is known, and what the user probably wrote.
_NEEDS_VALUE = {
    "__bool__": "`if`, `and`, `or`, `not`, min() and max() need its value, which only the kernel knows; "
    "use torch.where, &, |, ~, torch.minimum and torch.maximum",
    "__int__": "int() needs its value, which only the kernel knows; use .to(torch.int64)",
    "__float__": "float() and the functions of math need its value, which only the kernel knows; use torch's",
    "__index__": "range() and the subscripts of lists need its value, which only the kernel knows; subscript a tensor",
    "__len__": "len() needs more than a single number",
    "__iter__": "a loop over it needs more than a single number",
    "__getitem__": "a subscript needs more than a single number",
}


_CPU = torch.device("cpu")


class Symbol:
    """A number that the kernel computes: an expression of indices, the score, and elements of captured tensors."""

    __slots__ = ("tracer", "template", "operands", "kind", "nonnegative")

    def __init__(
        self, tracer: Tracer, template: str, operands: tuple[Symbol, ...], kind: str, nonnegative: bool = False
    ):
        self.tracer = tracer
        self.template = template  #: text of the language, with a pair of braces for each operand
        self.operands = operands
        self.kind = kind  #: "float", "integer" or "bool"
        self.nonnegative = nonnegative  #: known not to be below 0, so that it may subscript a tensor as it is

    @property
    def dtype(self) -> torch.dtype:
        return {"float": self.tracer.working_dtype, "integer": torch.int64, "bool": torch.bool}[self.kind]

    @property
    def device(self) -> torch.device:
        return _CPU

    @property
    def shape(self) -> torch.Size:
        return torch.Size()

    @property
    def ndim(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.tracer.method(self, name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """PyTorch's functions accept what has this method; while a function is traced, a mode comes before it."""
        return NotImplemented

    __hash__ = object.__hash__


class Captured:
    """A captured tensor with the subscripts it has got so far: fewer than its dimensions."""

    def __init__(self, tracer: Tracer, name: str, tensor: torch.Tensor, subscripts: tuple[str | Symbol, ...] = ()):
        self.tracer, self.name, self.tensor, self.subscripts = tracer, name, tensor, subscripts

    def __getitem__(self, index: Any) -> Symbol | Captured:
        return self.tracer.subscript(self, index)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As for Symbol."""
        return NotImplemented


def _add_operators() -> None:
    for name, operation in OPERATORS.items():
        setattr(
            Symbol, f"__{name}__", lambda self, other, operation=operation: self.tracer.apply(operation, self, other)
        )
        setattr(
            Symbol, f"__r{name}__", lambda self, other, operation=operation: self.tracer.apply(operation, other, self)
        )
    for name in COMPARISONS:
        setattr(Symbol, f"__{name}__", lambda self, other, operation=name: self.tracer.apply(operation, self, other))
    for name, operation in UNARY.items():
        setattr(Symbol, f"__{name}__", lambda self, operation=operation: self.tracer.apply(operation, self))
    for name, reason in _NEEDS_VALUE.items():

        def refuse(self: Symbol, *_: Any, reason: str = reason) -> Any:
            raise self.tracer.error(f"a traced {self.kind} has no value yet: {reason}")

        setattr(Symbol, name, refuse)


_add_operators()
