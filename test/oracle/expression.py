"""Expressions of the language as trees that can be rendered, evaluated and cut down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Iterator

FLOAT, INTEGER, BOOL = "float", "integer", "bool"


@dataclass(frozen=True)
class Index:
    """An index variable where it is introduced. Its range is the text of a size expression."""

    name: str
    range: str
    explicit: bool = False  #: the range is written even where the language would find it


@dataclass(frozen=True)
class Expr:
    """One node. `operator` says what `text` and `args` are:

    literal  text is the number          read    text is the tensor, args its subscripts
    size     text is a size expression   call    text is the function, args its arguments
    index    text is the name            binary  text is the operator, args both sides
    unary    text is - or not            reduce  text is the reduction, args the body, `where` and `sink` (None without)
    """

    operator: str
    text: str
    kind: str
    args: tuple[Expr | None, ...] = ()
    indices: tuple[Index, ...] = ()

    def children(self) -> Iterator[Expr]:
        return (arg for arg in self.args if arg is not None)

    def walk(self) -> Iterator[Expr]:
        yield self
        for child in self.children():
            yield from child.walk()

    def map(self, function: Callable[[Expr], Expr]) -> Expr:
        """`function` of every node, from the leaves up."""
        return function(replace(self, args=tuple(arg and arg.map(function) for arg in self.args)))

    def __add__(self, other: Expr) -> Expr:
        return binary("+", self, other)

    def __sub__(self, other: Expr) -> Expr:
        return binary("-", self, other)

    def __mul__(self, other: Expr) -> Expr:
        return binary("*", self, other)

    def __truediv__(self, other: Expr) -> Expr:
        return binary("/", self, other)

    def __floordiv__(self, other: Expr) -> Expr:
        return binary("//", self, other)

    def __mod__(self, other: Expr) -> Expr:
        return binary("%", self, other)

    def __neg__(self) -> Expr:
        return Expr("unary", "-", self.kind, (self,))


def literal(value: float | int | bool) -> Expr:
    if isinstance(value, bool):
        return Expr("literal", "true" if value else "false", BOOL)
    if value < 0:
        return -literal(-value)
    return Expr("literal", repr(value), FLOAT if isinstance(value, float) else INTEGER)


def size(text: str) -> Expr:
    return Expr("size", text, INTEGER)


def index(name: str) -> Expr:
    return Expr("index", name, INTEGER)


def binary(text: str, left: Expr, right: Expr) -> Expr:
    if text in ("and", "or", "==", "!=", "<", "<=", ">", ">="):
        kind = BOOL
    elif text == "/" or FLOAT in (left.kind, right.kind):
        kind = FLOAT
    else:
        kind = INTEGER
    return Expr("binary", text, kind, (left, right))


def negation(condition: Expr) -> Expr:
    return Expr("unary", "not", BOOL, (condition,))


def call(name: str, *args: Expr, kind: str = FLOAT) -> Expr:
    return Expr("call", name, kind, args)


def select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    return call("select", condition, yes, no, kind=FLOAT if FLOAT in (yes.kind, no.kind) else yes.kind)


def reduce(
    name: str, indices: list[Index] | tuple[Index, ...], body: Expr, where: Expr | None = None, sink: Expr | None = None
) -> Expr:
    kind = FLOAT if name in ("softmax", "logsumexp") else body.kind
    return Expr("reduce", name, kind, (body, where, sink), tuple(indices))


_BINDING = {"or": 1, "and": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6}
_NOT, _NEGATE, _POWER, _ATOM = 3, 7, 8, 9


def render(expr: Expr, introduce: Callable[[Index, Expr], str], minimum: int = 0) -> str:
    """The text of `expr`, with brackets only where precedence asks for them. `introduce` writes the indices of a reduction."""

    def inner(argument: Expr, binding: int) -> str:
        return render(argument, introduce, binding)

    if expr.operator in ("literal", "index"):
        text, own = expr.text, _ATOM
    elif expr.operator == "size":
        text, own = expr.text, _ATOM if expr.text.isidentifier() else 0
    elif expr.operator == "unary":
        own = _NOT if expr.text == "not" else _NEGATE
        text = ("not " if expr.text == "not" else "-") + inner(expr.args[0], own)
    elif expr.operator == "binary":
        if expr.text == "**":
            own = _POWER
            text = f"{inner(expr.args[0], _ATOM)} ** {inner(expr.args[1], _NEGATE)}"
        else:
            own = _BINDING[expr.text]
            left = own + 1 if own == 4 else own
            text = f"{inner(expr.args[0], left)} {expr.text} {inner(expr.args[1], own + 1)}"
    elif expr.operator == "read":
        text, own = expr.text, _ATOM
        if expr.args:
            text += f"[{', '.join(inner(argument, 0) for argument in expr.args)}]"
    elif expr.operator == "call":
        text, own = f"{expr.text}({', '.join(inner(argument, 0) for argument in expr.args)})", _ATOM
    else:
        body, where, sink = expr.args
        names = ", ".join(introduce(each, expr) for each in expr.indices)
        text, own = f"{expr.text}[{names}]({inner(body, 0)}", _ATOM
        if where is not None:
            text += f" where {inner(where, 0)}"
        if sink is not None:
            text += f", sink = {inner(sink, 0)}"
        text += ")"
    return f"({text})" if own < minimum else text
