"""What every part of the generator draws with: parameters, statements, and reads of them."""

from __future__ import annotations

import random
from importlib.util import find_spec

from .expression import BOOL, FLOAT, Expr, Index, index
from .specification import Function, Parameter, Statement, Values

NARROW = ["bf16", "f16"] if find_spec("torch") else ["f16"]  # arrays of bf16 are PyTorch's


class Draft:
    """A spec while it is drawn: its random numbers, parameters and statements. Names of indices stand for their ranges."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.parameters: dict[str, Parameter] = {}
        self.statements: list[Statement] = []
        self.functions: list[Function] = []
        self.declared: dict[str, int] = {}
        self.float = "f64" if self.chance(0.08) else "f32"
        self.storage = self.random.choice(NARROW) if self.float == "f32" and self.chance(0.2) else self.float

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def fresh(self, name: str) -> str:
        taken = self.parameters.keys() | {each.name for each in self.statements}
        return next(each for each in [name, *(f"{name}{number}" for number in range(2, 99))] if each not in taken)

    def parameter(self, name: str, shape: list[str], values: Values = Values(), dtype: str = "", default: str = "") -> str:
        name = self.fresh(name)
        self.parameters[name] = Parameter(name, dtype or self.float, tuple(shape), default, values)
        return name

    def loaded(self, name: str, names: list[str], values: Values = Values(), dtype: str = "") -> Expr:
        """A new parameter with a dimension for each of the index names, read there. Now and then its dimensions are permuted."""
        names = list(names)
        if self.chance(0.2):
            self.random.shuffle(names)
        parameter = self.parameter(name, [self.ranges[each] for each in names], values, dtype)
        kind = BOOL if dtype == "bool" else "integer" if dtype[:1] in ("i", "u") and dtype else FLOAT
        return Expr("read", parameter, kind, tuple(map(index, names)))

    def scalar(self, name: str, dtype: str, values: Values, default: str = "") -> Expr:
        kind = FLOAT if dtype[0] == "f" else "integer"
        return Expr("read", self.parameter(name, [], values, dtype, default), kind)

    def define(self, name: str, names: list[str], expr: Expr, dtype: str = "") -> Expr:
        """A new statement, and a read of it at the same indices."""
        name = self.fresh(name)
        indices = tuple(Index(each, self.ranges[each], self.chance(0.1)) for each in names)
        self.statements.append(Statement(name, indices, expr, dtype))
        return Expr("read", name, expr.kind, tuple(map(index, names)))

    def over(self, *names: str) -> list[Index]:
        return [Index(each, self.ranges[each], self.chance(0.1)) for each in names]

    def some(self, names: list[str]) -> list[str]:
        return [each for each in names if self.chance(0.5)]
