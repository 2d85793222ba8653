"""Scores: products, distances, networks, positions, and their epilogues."""

from __future__ import annotations

from dataclasses import replace

from .expression import FLOAT, Expr, binary, call, index, literal, reduce, select, size
from .specification import Function, Values
from .wild import Expressions


class Scores(Expressions):
    """The score of a query and a key, and what is done to it before the softmax."""

    def score(self) -> Expr:
        kinds = [self.dot] * 8 + [self.bilinear, self.distance, self.absolute, self.additive, self.additive, self.given, self.position]
        kinds += [self.two_dots, self.tropical]
        value = self.random.choice(kinds)()
        if self.chance(0.3):
            value = self.define("dot", [*self.rows, "n"], value)
        epilogues = [self.scaled, self.scaled, self.capped, self.alibi, self.biased, self.biased, self.bucketed, self.squashed]
        epilogues += [self.switched, self.multiplied, self.wild, self.totals]
        for _ in range(self.random.choice([0, 1, 1, 1, 2, 2, 3])):
            value = self.random.choice(epilogues)(value)
            if self.chance(0.15):
                value = self.define("part", [*self.rows, "n"], value)
        if value.operator != "read" and self.chance(0.6) or value.kind != FLOAT:
            value = self.define("score", [*self.rows, "n"], value * literal(1.0) if value.kind != FLOAT else value)
        return value

    def dot(self) -> Expr:
        product = self.query * self.key if self.chance(0.7) else self.key * self.query
        return reduce("sum", self.over("d"), product)

    def bilinear(self) -> Expr:
        weights = self.loaded("w", ["d", "i"])
        projected = self.define("qw", [*self.rows, "i"], reduce("sum", self.over("d"), self.query * weights))
        return reduce("sum", self.over("i"), projected * self.keys("kk", "i"))

    def distance(self) -> Expr:
        squared = reduce("sum", self.over("d"), binary("**", self.query - self.key, literal(2)))
        width = self.scalar("width", self.float, Values("positive"), "1.0")
        return literal(-0.5) * squared / binary("**", width, literal(2))

    def absolute(self) -> Expr:
        return -reduce("sum", self.over("d"), call("abs", self.query - self.key))

    def additive(self) -> Expr:
        weights = self.loaded("wq", ["u", "d"])
        hq = self.define("hq", [*self.rows, "u"], reduce("sum", self.over("d"), weights * self.query))
        keys = [*("b" for _ in range("b" in self.outer)), "n", "u"]
        hk = self.loaded("kx", keys)
        if self.chance(0.5):
            hk = self.define("hk", keys, hk + self.loaded("bias", ["u"]))
        inner = call(self.random.choice(["tanh", "tanh", "tanh", "sigmoid", "relu", "gelu", "sin"]), hq + hk)
        return reduce("sum", self.over("u"), self.loaded("wv", ["u"]) * inner)

    def given(self) -> Expr:
        return self.loaded("x", [*self.rows, "n"])

    def position(self) -> Expr:
        distance = index("n") - (index("m") if self.queries else literal(3))
        slope = self.loaded("slope", self.some(self.outer), Values("small"))
        return slope * (call("abs", distance, kind="integer") if self.chance(0.4) else distance)

    def two_dots(self) -> Expr:
        other = reduce("sum", self.over("e"), self.loaded("q2", [*self.rows, "e"]) * self.keys("k2", "e"))
        return self.dot() * other if self.chance(0.5) else self.dot() + other

    def tropical(self) -> Expr:
        return reduce(self.random.choice(["max", "min"]), self.over("d"), self.query + self.key)

    def scaled(self, value: Expr) -> Expr:
        return self.random.choice(
            [
                lambda: value / call("sqrt", size("D")),
                lambda: value * call("rsqrt", size("D") + literal(1)),
                lambda: value * self.define("inverse", [], call("rsqrt", size("D") + literal(1))),
                lambda: literal(self.random.choice([0.125, 0.3, -1.0, 2.0])) * value,
                lambda: value * self.scalar("scale", self.float, Values("positive"), self.random.choice(["", "1 / 8", "0.5"])),
                lambda: value - call("log", size("N") + literal(1)),
            ]
        )()

    def capped(self, value: Expr) -> Expr:
        if not self.functions:
            self.functions.append(Function("softcap", ("x", "c"), "c * tanh(x / c)"))
        return call("softcap", value, literal(self.random.choice([0.5, 5.0, 30.0])))

    def alibi(self, value: Expr) -> Expr:
        return value + self.position()

    def biased(self, value: Expr) -> Expr:
        values = self.random.choice([Values(), Values(), Values("large"), Values("with -inf")])
        names = self.random.choice([["h"], ["m", "n"], ["n"], ["m"], ["h", "m", "n"], ["b", "n"], [*self.rows, "n"], ["b", "h"]])
        bias = self.loaded("bias", [each for each in names if each in (*self.rows, "n")], values)
        return value + bias if self.chance(0.7) else value - bias if values.name != "with -inf" else bias + value

    def bucketed(self, value: Expr) -> Expr:
        bucket = self.loaded("bucket", self.queries + ["n"], Values("index", "K"), self.random.choice(["i32", "i64"]))
        if self.chance(0.3):
            bucket = bucket + literal(1)
        table = self.parameter("table", [*(self.ranges[each] for each in self.outer if each == "h"), "K"])
        return value + Expr("read", table, FLOAT, (*(index(each) for each in self.outer if each == "h"), bucket))

    def squashed(self, value: Expr) -> Expr:
        name = self.random.choice(["tanh", "sigmoid", "relu", "gelu", "sin", "cos", "abs", "erf"])
        return call(name, value) * literal(self.random.choice([1.0, 4.0]))

    def switched(self, value: Expr) -> Expr:
        return select(self.condition(1), value, literal(self.random.choice([0.0, -1.0, -100.0])))

    def multiplied(self, value: Expr) -> Expr:
        return value * self.loaded("gate", self.some([*self.rows, "n"]))

    def totals(self, value: Expr) -> Expr:
        """What is before or after a key, or a query, is added up."""
        term = self.define("term", [*self.rows, "n"], call("sigmoid", value))
        along = "m" if self.queries and self.chance(0.3) else "n"
        self.ranges["j"] = self.ranges[along]
        there = replace(term, args=tuple(index("j") if each == index(along) else each for each in term.args))
        kind = self.random.choice(["sum", "sum", "sum", "max", "min"])
        where = binary(self.random.choice(["<", "<=", ">", ">="]), index("j"), index(along))
        total = reduce(kind, self.over("j"), there, where)
        if self.chance(0.5):
            total = self.define("total", [*self.rows, "n"], total)
        # Where there are no terms the maximum is -inf, and so is the score.
        return value - literal(0.1) * total if kind == "sum" else value + call("relu" if kind == "max" else "sigmoid", total)

    def wild(self, value: Expr) -> Expr:
        return value + self.float_expression([*self.rows, "n"], 3)
