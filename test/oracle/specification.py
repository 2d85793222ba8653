"""A spec as data: parameters, statements and outputs, and its text."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .expression import Expr, Index, render


@dataclass(frozen=True)
class Values:
    """How a parameter's elements are drawn: see data.py."""

    name: str = "normal"
    limit: str = ""  #: the size expression that integers reach, and now and then leave


@dataclass(frozen=True)
class Parameter:
    name: str
    dtype: str
    shape: tuple[str, ...] = ()
    default: str = ""
    values: Values = Values()


@dataclass(frozen=True)
class Statement:
    name: str
    indices: tuple[Index, ...]
    expr: Expr
    dtype: str = ""


@dataclass(frozen=True)
class Function:
    name: str
    parameters: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Spec:
    parameters: tuple[Parameter, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    declared: tuple[tuple[str, int], ...] = ()  #: sizes in brackets
    functions: tuple[Function, ...] = ()

    def text(self) -> str:
        shapes = {each.name: each.shape for each in self.parameters}
        shapes |= {each.name: tuple(index.range for index in each.indices) for each in self.statements}
        elsewhere = _ranges_of_parameters(self, shapes)
        lines = [f"def {each.name}({', '.join(each.parameters)}) = {each.text}" for each in self.functions]
        brackets = f"[{', '.join(f'{name} = {value}' for name, value in self.declared)}]" if self.declared else ""
        lines.append(f"attention fuzz{brackets}({', '.join(map(_declaration, self.parameters))}) {{")
        for statement in self.statements:

            def introduce(index: Index, scope: Expr, softmax_aware: bool = True) -> str:
                if softmax_aware and scope.operator == "reduce" and scope.text == "softmax":
                    return index.name
                found = _alone(index.name, scope, shapes) or elsewhere.get(index.name, set())
                return index.name if found == {index.range} and not index.explicit else f"{index.name}: {index.range}"

            left = ", ".join(introduce(index, statement.expr, False) for index in statement.indices)
            left = f"{statement.name}[{left}]" if statement.indices else statement.name
            annotation = f": {statement.dtype}" if statement.dtype else ""
            lines.append(f"  {left}{annotation} = {render(statement.expr, introduce)}")
            for index in statement.indices:
                elsewhere.setdefault(index.name, set()).add(index.range)
        return "\n".join([*lines, f"  return {', '.join(self.outputs)}", "}", ""])

    def without_the_unused(self) -> Spec:
        """Only what the outputs need. A size that no parameter has any more gets one, which is not read."""
        needed = set(self.outputs)
        statements = []
        for statement in reversed(self.statements):
            if statement.name in needed:
                statements.append(statement)
                needed |= {node.text for node in statement.expr.walk() if node.operator == "read"}
        parameters = tuple(each for each in self.parameters if each.name in needed)
        calls = {node.text for each in statements for node in each.expr.walk() if node.operator == "call"}
        functions = tuple(each for each in self.functions if each.name in calls)
        used = {name for each in statements for name in _sizes_of(each)}
        used |= {name for each in parameters for size in each.shape for name in names_in(size)}
        given = {size for each in parameters for size in each.shape} | {name for name, _ in self.declared}
        anchors = tuple(Parameter(f"anchor_{name.lower()}", "f32", (name,)) for name in sorted(used - given))
        return replace(self, parameters=parameters + anchors, statements=tuple(reversed(statements)), functions=functions)


def names_in(size: str) -> list[str]:
    """The names in a size expression."""
    return re.findall(r"[A-Z]\w*", size)


def _sizes_of(statement: Statement) -> list[str]:
    sizes = [each.range for each in statement.indices]
    for node in statement.expr.walk():
        sizes += [node.text] if node.operator == "size" else [each.range for each in node.indices]
    return [name for size in sizes for name in names_in(size)]


def _declaration(parameter: Parameter) -> str:
    shape = f"[{', '.join(parameter.shape)}]" if parameter.shape else ""
    default = f" = {parameter.default}" if parameter.default else ""
    return f"{parameter.name}: {parameter.dtype}{shape}{default}"


def _alone(name: str, expr: Expr, shapes: dict[str, tuple[str, ...]]) -> set[str]:
    """The sizes of the dimensions that the index `name` subscripts alone in `expr`, except where a reduction has a `name` of its own."""
    found = set()
    if expr.operator == "read":
        for subscript, size in zip(expr.args, shapes[expr.text]):
            if subscript.operator == "index" and subscript.text == name:
                found.add(size)
    for child in expr.children():
        hidden = child.operator == "reduce" and child.text != "softmax" and any(each.name == name for each in child.indices)
        if not hidden:
            found |= _alone(name, child, shapes)
    return found


def _ranges_of_parameters(spec: Spec, shapes: dict[str, tuple[str, ...]]) -> dict[str, set[str]]:
    """What each index name subscripts alone in parameters anywhere in the kernel."""
    parameters = {each.name for each in spec.parameters}
    found: dict[str, set[str]] = {}
    for statement in spec.statements:
        for node in statement.expr.walk():
            if node.operator == "read" and node.text in parameters:
                for subscript, size in zip(node.args, shapes[node.text]):
                    if subscript.operator == "index":
                        found.setdefault(subscript.text, set()).add(size)
    return found
