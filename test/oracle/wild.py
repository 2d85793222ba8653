"""Random expressions and masks. No float that was computed decides anything discontinuous."""

from __future__ import annotations

from dataclasses import replace

from .expression import FLOAT, Expr, Index, binary, call, index, literal, negation, reduce, select, size
from .draft import Draft
from .specification import Values


class Expressions(Draft):
    """Expressions and conditions of any kind, of the indices that are given."""

    def float_expression(self, names: list[str], depth: int) -> Expr:
        """Any float of moderate size that is continuous in what was computed."""
        if depth == 0 or self.chance(0.15):
            return self.random.choice(
                [
                    lambda: self.loaded("t", self.some(names)),
                    lambda: literal(self.random.choice([0.5, 1.0, 2.0, 0.1])),
                    lambda: call("f32", self.integer_expression(names, 1)) * literal(0.01),
                ]
            )()
        deeper = lambda: self.float_expression(names, depth - 1)
        return self.random.choice(
            [
                lambda: deeper() + deeper(),
                lambda: deeper() - deeper(),
                lambda: deeper() * deeper(),
                lambda: deeper() / (call("abs", deeper()) + literal(1.0)),
                lambda: -deeper(),
                lambda: call(self.random.choice(["tanh", "sin", "cos", "sigmoid", "erf", "abs", "relu", "gelu"]), deeper()),
                lambda: call("exp", -call("abs", deeper())),
                lambda: call("exp2", call("tanh", deeper())),
                lambda: call(self.random.choice(["log", "log2", "sqrt", "rsqrt"]), call("abs", deeper()) + literal(0.5)),
                lambda: call(self.random.choice(["max", "min"]), deeper(), deeper()),
                lambda: binary("**", deeper(), literal(self.random.choice([0, 1, 2, 3]))),
                lambda: binary("**", call("abs", deeper()) + literal(0.5), literal(self.random.choice([0.5, -1, 1.5]))),
                lambda: call("pow", call("abs", deeper()) + literal(0.5), literal(1.25)),
                lambda: select(self.condition(1, names), deeper(), deeper()),
                lambda: call(self.random.choice(["floor", "round"]), self.loaded("t", self.some(names)) * literal(4.0)),
                lambda: reduce(self.random.choice(["sum", "max"]), [Index("c", "C")], self.inside("c", "C", names, depth))
                if "c" not in names
                else deeper(),
            ]
        )()

    def inside(self, name: str, range: str, names: list[str], depth: int) -> Expr:
        self.ranges[name] = range
        anchor = Expr("read", self.parameter("s", [range]), FLOAT, (index(name),))
        return anchor * self.float_expression([*names, name], min(depth - 1, 1))

    def integer_expression(self, names: list[str], depth: int) -> Expr:
        if depth == 0 or self.chance(0.3):
            return self.random.choice(
                [
                    lambda: index(self.random.choice(names)) if names else literal(2),
                    lambda: literal(self.random.choice([0, 1, 2, 3, 5, 16])),
                    lambda: size(self.random.choice(["N", "D"]) if not self.paged else "D"),
                    lambda: self.loaded("number", self.some(names), Values("index", "N" if not self.paged else "S"), "i32"),
                ]
            )()
        deeper = lambda: self.integer_expression(names, depth - 1)
        return self.random.choice(
            [
                lambda: deeper() + deeper(),
                lambda: deeper() - deeper(),
                lambda: deeper() * literal(self.random.choice([2, 3])),
                lambda: deeper() // deeper(),
                lambda: deeper() % deeper(),
                lambda: call(self.random.choice(["min", "max"]), deeper(), deeper(), kind="integer"),
                lambda: call("abs", deeper(), kind="integer"),
                lambda: call("i64", self.loaded("t", self.some(names)) * literal(4.0), kind="integer"),
                lambda: select(self.condition(0, names), deeper(), deeper()),
            ]
        )()

    def mask(self) -> Expr:
        mask = self.condition(self.random.choice([0, 0, 0, 1, 1, 2]))
        if self.chance(0.5):
            used = {node.text for node in mask.walk() if node.operator == "index"}
            names = [each for each in [*self.rows, "n"] if each in used or self.chance(0.1)]
            mask = self.define("mask", names, mask)
        return mask

    def condition(self, depth: int, names: list[str] | None = None) -> Expr:
        names = [*self.rows, "n"] if names is None else names
        if depth > 0:
            left, right = self.condition(depth - 1, names), self.condition(depth - 1, names)
            return self.random.choice(
                [lambda: binary("and", left, right), lambda: binary("or", left, right), lambda: negation(left), lambda: binary("and", left, negation(right))]
            )()
        n = index("n") if "n" in names else literal(1)
        m = index("m") if "m" in names else size("N") - literal(1)
        past = (size("N") if not self.paged else size("L") * size("S")) - (size("M") if self.ranges["m"] == "M" and self.queries else literal(1))
        keys = "N" if not self.paged else "L * S"
        outer = [each for each in self.outer if each in names]
        few = [each for each in self.rows if each in names]
        comparison = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        return self.random.choice(
            [
                lambda: binary("<=", n, m),
                lambda: binary("<=", n, m + past),
                lambda: binary(">", n, m),
                lambda: binary("and", binary("<=", n, m + past), binary("<", m + past - n, self.window())),
                lambda: binary("<=", call("abs", n - m, kind="integer"), self.window()),
                lambda: binary("<", n, self.loaded("valid", outer[:1], Values("index", keys), "i32")),
                lambda: binary("<", n, self.loaded("valid", self.some(few), Values("index", keys), self.random.choice(["i32", "i64"]))),
                lambda: binary(">=", n, self.loaded("start", self.some(few), Values("index", keys), "i32")),
                lambda: binary("or", binary("<=", n, m), binary("<", n, self.loaded("prefix", outer[:1], Values("index", keys), "i32"))),
                lambda: self.documents(names),
                lambda: binary("==", (n - m) % self.window(), literal(0)),
                lambda: binary("==", n // literal(4), m // literal(4)),
                lambda: binary(comparison, n * literal(self.random.choice([2, 3, 16])) + literal(7), m),
                lambda: binary(comparison, n, m * literal(2) - n * literal(self.random.choice([1, 4]))),
                lambda: self.loaded("allowed", [each for each in names if each in ("m", "n")], Values("bool"), "bool"),
                lambda: self.loaded("keep", self.some(names), Values("bool"), "bool"),
                lambda: binary(comparison, self.loaded("t", self.some(names)), literal(0.25)),
                lambda: binary(comparison, self.integer_expression(names, 2), self.integer_expression(names, 1)),
            ]
        )()

    def window(self) -> Expr:
        if self.chance(0.5):
            return literal(self.random.choice([1, 2, 5, 16, 64]))
        return self.scalar("window", self.random.choice(["i32", "i64"]), Values("index", "N" if not self.paged else "S"), self.random.choice(["", "3", "1024"]))

    def documents(self, names: list[str]) -> Expr:
        if self.ranges["m"] != self.ranges["n"] or not {"m", "n"} <= set(names):
            return binary("==", self.loaded("query_document", [each for each in names if each in ("b", "m")], Values("sorted"), "i32"),
                          self.loaded("key_document", [each for each in names if each in ("b", "n")], Values("sorted"), "i32"))
        document = self.loaded("document", [*(["b"] if "b" in names and self.chance(0.5) else []), "n"], Values("sorted"), "i32")
        other = replace(document, args=tuple(index("m") if each == index("n") else each for each in document.args))
        return binary("==", other, document)
