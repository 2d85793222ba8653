"""Makes a failing case small: fewer outputs, statements, subexpressions, dimensions and elements, as long as it fails in the same way."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Callable, Iterator

from .data import Case, size_names, smaller_sizes
from .expression import BOOL, FLOAT, Expr, literal
from .specification import Parameter, Spec, Statement, Values


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float) -> Case:
    """The smallest case found in `seconds` for which `fails` holds, from one for which it does."""
    end = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for candidate in _candidates(case):
            if time.monotonic() > end:
                return case
            if _cost(candidate) < _cost(case) and fails(candidate):
                case, progress = candidate, True
                break
    return case


def _cost(case: Case) -> tuple[int, int, int]:
    nodes = sum(1 for each in case.spec.statements for _ in each.expr.walk())
    spec = 10 * nodes + 30 * len(case.spec.statements) + 5 * len(case.spec.outputs) + sum(5 + len(each.shape) for each in case.spec.parameters)
    return spec + sum(len(each.dtype) for each in case.spec.statements), sum(value for _, value in case.sizes), not case.plain


def _candidates(case: Case) -> Iterator[Case]:
    for spec in _specs(case.spec):
        spec = spec.without_the_unused()
        names = size_names(spec)
        sizes = dict(case.sizes)
        yield replace(case, spec=spec, sizes=tuple((name, sizes.get(name, 2)) for name in names))
    if not case.plain:
        yield replace(case, plain=True)
    yield from smaller_sizes(case)


def _specs(spec: Spec) -> Iterator[Spec]:
    if len(spec.outputs) > 1:
        for output in spec.outputs:
            yield replace(spec, outputs=(output,))
        for output in spec.outputs:
            yield replace(spec, outputs=tuple(each for each in spec.outputs if each != output))
    for statement in spec.statements[:-1]:  # what leads to a statement's values may not matter
        yield _loaded(spec, statement)
    for statement in spec.statements:
        if statement.name not in spec.outputs:
            yield replace(spec, outputs=(statement.name,))
    for name in {each.range for statement in spec.statements for each in statement.indices if each.range.isidentifier()}:
        dropped = _without_size(spec, name)
        if dropped is not None:
            yield dropped
    for position, statement in enumerate(spec.statements):
        for expr in _simpler(statement.expr):
            yield _with(spec, position, replace(statement, expr=expr))
        if statement.dtype:
            yield _with(spec, position, replace(statement, dtype=""))
    if spec.declared:
        yield replace(spec, declared=())


def _with(spec: Spec, position: int, statement: Statement) -> Spec:
    return replace(spec, statements=(*spec.statements[:position], statement, *spec.statements[position + 1 :]))


def _loaded(spec: Spec, statement: Statement) -> Spec:
    """`statement` becomes a parameter."""
    dtype = {FLOAT: "f32", BOOL: "bool"}.get(statement.expr.kind, "i32")
    values = {"f32": Values(), "bool": Values("bool"), "i32": Values("index", "5")}[dtype]
    parameter = Parameter(statement.name, dtype, tuple(each.range for each in statement.indices), "", values)
    rest = tuple(each for each in spec.statements if each is not statement)
    outputs = tuple(each for each in spec.outputs if each != statement.name)
    return replace(spec, parameters=(*spec.parameters, parameter), statements=rest, outputs=outputs or (rest[-1].name,))


def _simpler(expr: Expr) -> Iterator[Expr]:
    """`expr` with one node replaced by a part of it or by a constant, from the top down."""
    if expr.operator != "literal":
        for node in expr.walk():
            if node is not expr and node.kind == expr.kind:
                yield node
        yield {FLOAT: literal(1.0), BOOL: literal(True)}.get(expr.kind, literal(1))
    if expr.operator == "reduce":
        for position in (1, 2):
            if expr.args[position] is not None:
                yield replace(expr, args=(*expr.args[:position], None, *expr.args[position + 1 :]))
    for position, child in enumerate(expr.args):
        if child is not None:
            for simpler in _simpler(child):
                yield replace(expr, args=(*expr.args[:position], simpler, *expr.args[position + 1 :]))


def _without_size(spec: Spec, name: str) -> Spec | None:
    """The spec without the dimensions of size `name`, their indices being 0; None where a reduction needs one."""
    shapes = {each.name: each.shape for each in spec.parameters}
    shapes |= {each.name: tuple(index.range for index in each.indices) for each in spec.statements}

    def kept(tensor: str) -> list[int]:
        return [axis for axis, size in enumerate(shapes[tensor]) if size != name]

    statements = []
    for statement in spec.statements:
        gone = {each.name for each in statement.indices if each.range == name}
        if any(each.range == name for node in statement.expr.walk() for each in node.indices):
            return None

        def cut(node: Expr) -> Expr:
            if node.operator == "read":
                return replace(node, args=tuple(node.args[axis] for axis in kept(node.text)))
            return literal(0) if node.operator == "index" and node.text in gone else node

        expr = statement.expr.map(cut)
        statements.append(replace(statement, expr=expr, indices=tuple(each for each in statement.indices if each.range != name)))
    parameters = tuple(replace(each, shape=tuple(each.shape[axis] for axis in kept(each.name))) for each in spec.parameters)
    return replace(spec, parameters=parameters, statements=tuple(statements))
