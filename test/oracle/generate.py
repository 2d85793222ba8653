"""A random well-typed spec from a seed: an attention of parts that meet in the wild, and wilder ones.

The structure (batch, heads, groups, one query, layouts) is drawn first, then the score with its epilogues, the mask, what becomes of
the scores (softmax, several, none), and what is returned. Nothing is drawn that is discontinuous in a computed float, since
a rounding error would then be a difference.
"""

from __future__ import annotations

import random
from dataclasses import replace

from .expression import BOOL, FLOAT, Expr, Index, binary, call, index, literal, negation, reduce, select, size
from .specification import Function, Parameter, Spec, Statement, Values


class Generator:
    def __init__(self, seed: int, features: frozenset[str] = frozenset()):
        """`features` are the optional ones that the compiler has: dtypes, and dropout."""
        self.random = random.Random(seed)
        self.features = features
        self.parameters: dict[str, Parameter] = {}
        self.statements: list[Statement] = []
        self.functions: list[Function] = []
        self.declared: dict[str, int] = {}
        self.float = "f64" if "f64" in features and self.chance(0.08) else "f32"
        narrow = sorted(features & {"bf16", "f16"})
        self.storage = self.random.choice(narrow) if narrow and self.float == "f32" and self.chance(0.2) else self.float

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def fresh(self, name: str) -> str:
        taken = self.parameters.keys() | {each.name for each in self.statements}
        return next(each for each in [name, *(f"{name}{number}" for number in range(2, 99))] if each not in taken)

    # Parameters, statements and reads of them.

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

    # The spec, from its structure to its outputs.

    def spec(self) -> Spec:
        self.draw_structure()
        self.draw_operands()
        score = self.score()
        mask = self.mask() if self.chance(0.75) else None
        outputs = self.combine(score, mask)
        names = list(dict.fromkeys(each.text for each in self.random.sample(outputs, self.random.randint(1, min(4, len(outputs))))))
        spec = Spec((), tuple(self.statements), tuple(names), tuple(self.declared.items()), tuple(self.functions))
        parameters = list(self.parameters.values())
        if self.chance(0.3):
            self.random.shuffle(parameters)
        return self.annotated(replace(spec, parameters=tuple(parameters)).without_the_unused())

    def annotated(self, spec: Spec) -> Spec:
        """Some statements are annotated."""
        statements = tuple(
            replace(each, dtype=self.float) if each.expr.kind == FLOAT and not each.dtype and self.chance(0.08) else each
            for each in spec.statements
        )
        return replace(spec, statements=statements)

    def draw_structure(self) -> None:
        pick = self.random.choice
        self.outer = ["b"] * self.chance(0.75) + ["h"] * self.chance(0.6)
        self.grouped = "h" in self.outer and self.chance(0.4)
        self.queries = ["m"] * self.chance(0.88)
        self.ranges = {"b": "B", "h": "H", "g": "G", "m": "M", "n": "N", "d": "D", "e": "E", "i": "I", "u": "U", "o": "O"}
        if self.queries and self.chance(0.15):
            self.ranges["m"] = "N"  # self attention
        if self.chance(0.1):
            self.ranges["e"] = "D"
        self.paged = self.chance(0.1)
        if self.paged:
            self.ranges["n"] = "L * S"
        if "h" in self.outer and self.chance(0.15):
            self.declared["H"] = pick([1, 2, 3, 4])
        self.rows = self.outer + self.queries

    def keys(self, name: str, feature: str, permuted: float = 0.15) -> Expr:
        """A new tensor of keys or values, read at n: by head, by group, through a page table, or shared by all heads."""
        dtype = self.storage
        if dtype != "f64" and "i8" in self.features and self.chance(0.06):
            dtype = self.random.choice(["i8", "u8"])
        names, subscripts, shape = [], [], []
        if self.paged:
            if "page" not in self.parameters:
                self.parameter("page", [self.ranges[each] for each in self.outer if each == "b"] + ["L"], Values("index", "P"), "i32")
            page = Expr("read", "page", "integer", (*map(index, ["b"] * ("b" in self.outer)), index("n") // size("S")))
            shape, subscripts = ["P", "S"], [page, index("n") % size("S")]
        elif "b" in self.outer and self.chance(0.93):
            names = ["b"]
        if self.grouped:
            ratio = size("H") // size("G")
            shape.append("G")
            subscripts.append(index("h") // ratio)
        elif "h" in self.outer and self.chance(0.8):
            names.append("h")
        if not self.paged:
            names.append("n")
        names.append(feature)
        dimensions = [(self.ranges[each], index(each)) for each in names] + list(zip(shape, subscripts))
        if self.chance(permuted):
            self.random.shuffle(dimensions)
        else:
            order = {"B": 0, "P": 0, "S": 1, "H": 2, "G": 2}
            dimensions.sort(key=lambda each: 4 if each[1] == index(feature) else order.get(each[0], 3))
        values = Values("integers", "100") if dtype in ("i8", "u8") else Values()
        parameter = self.parameter(name, [each for each, _ in dimensions], values, dtype)
        read = Expr("read", parameter, "integer" if dtype in ("i8", "u8") else FLOAT, tuple(each for _, each in dimensions))
        return call("f32", read) * literal(0.02) if dtype in ("i8", "u8") else read

    def draw_operands(self) -> None:
        names = [*self.outer, *self.queries, "d"]
        if self.chance(0.15):
            self.random.shuffle(names)
        self.query = Expr("read", self.parameter("q", [self.ranges[each] for each in names], dtype=self.storage), FLOAT, tuple(map(index, names)))
        if self.chance(0.12):  # a projection before
            inner = self.loaded("x", [*self.rows[:1], *self.rows[1:], "i"])
            weights = self.loaded("wq", ["d", "i"])
            self.query = self.define("hq", [*self.rows, "d"], reduce("sum", self.over("i"), inner * weights))
        if self.chance(0.08):  # normalised queries
            self.ranges["r"] = self.ranges["d"]
            again = replace(self.query, args=tuple(index("r") if each == index("d") else each for each in self.query.args))
            norm = reduce("sum", self.over("r"), binary("**", again, literal(2)))
            self.query = self.define("qn", [*self.rows, "d"], self.query * call("rsqrt", norm / size("D") + literal(1e-3)))
        if self.chance(0.06):  # pairs turned, as by rotary embeddings
            read, last = self.query, self.query.args[:-1]
            if read.args[-1] == index("d"):
                after, before = (replace(read, args=(*last, index("d") + literal(step))) for step in (1, -1))
                turned = select(binary("==", index("d") % literal(2), literal(0)), -after, before)
                angle = self.loaded("angle", [*self.queries, "d"])
                self.query = self.define("qr", [*self.rows, "d"], read * call("cos", angle) + turned * call("sin", angle))
        self.key = self.keys("k", "d")

    # Scores.

    def score(self) -> Expr:
        kinds = [self.dot] * 8 + [self.bilinear, self.distance, self.absolute, self.additive, self.additive, self.given, self.position]
        kinds += [self.two_dots, self.tropical]
        value = self.random.choice(kinds)()
        if self.chance(0.3):
            value = self.define("dot", [*self.rows, "n"], value)
        epilogues = [self.scaled, self.scaled, self.capped, self.alibi, self.biased, self.biased, self.bucketed, self.squashed]
        epilogues += [self.switched, self.multiplied, self.wild]
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

    # Epilogues.

    def scaled(self, value: Expr) -> Expr:
        return self.random.choice(
            [
                lambda: value / call("sqrt", size("D")),
                lambda: value * call("rsqrt", size("D") + literal(1)),
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

    def wild(self, value: Expr) -> Expr:
        return value + self.float_expression([*self.rows, "n"], 3)

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

    # Masks.

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

    # What becomes of the scores.

    def combine(self, score: Expr, mask: Expr | None) -> list[Expr]:
        row = self.rows
        outputs = [score] if score.operator == "read" and score.text not in self.parameters else []
        sink = self.loaded("sink", self.some(row)) if self.chance(0.2) else None
        late = self.chance(0.1) and mask is not None
        axes = [Index("n", self.ranges["n"])]
        kind = self.random.choice(["softmax"] * 8 + ["pointwise", "pointwise", "two", "whole"])
        where = None if late else mask
        if kind == "pointwise":
            weight = call(self.random.choice(["sigmoid", "relu", "tanh"]), score)
            late = mask is not None
        elif kind == "two":
            other = reduce("softmax", axes, self.loaded("x2", [*row, "n"]) + literal(0.5) * score, where)
            other = self.define("other", [*row, "n"], other)
            factor = self.scalar("factor", self.float, Values("positive"), "0.5")
            weight = reduce("softmax", axes, score, where, sink)
            weight = weight - factor * other if self.chance(0.5) else self.define("first", [*row, "n"], weight) - factor * other
        elif kind == "whole" and self.queries:
            weight = reduce("softmax", [Index("m", self.ranges["m"]), *axes], score, where)
        else:
            weight = reduce("softmax", axes, score, where, sink)
        if self.chance(0.15):
            weight = weight * self.loaded("factor", self.some([*row, "n"]))
        if "dropout" in self.features and self.chance(0.1):
            weight = self.define("weight", [*row, "n"], weight)
            seed = self.scalar("seed", "i64", Values("index", "99"), "7")
            weight = call("dropout", weight, literal(self.random.choice([0.0, 0.1, 0.5])), seed)
        weight = self.define("weight", [*row, "n"], weight)
        outputs.append(weight)
        if self.chance(0.15):
            weight = self.define("scaled", [*row, "n"], weight * self.loaded("row_gate", self.some(row)))
            outputs.append(weight)
        value = self.keys("v", "e")
        for _ in range(1 + self.chance(0.1)):
            out = self.output(weight, value, mask if late or self.chance(0.08) else None)
            outputs += [out] * 3
        if self.chance(0.3):
            outputs.append(self.define("lse", row, reduce("logsumexp", self.over("n"), score, where, sink), "f32" if self.chance(0.5) else ""))
        if self.chance(0.15):
            outputs.append(self.define("most", row, reduce(self.random.choice(["max", "min", "sum"]), self.over("n"), score, where)))
        if self.chance(0.08) and mask is not None:
            outputs.append(self.define("count", row, reduce("sum", self.over("n"), select(mask, literal(1), literal(0)))))
        if self.chance(0.05):
            outputs.append(self.define("column", self.outer + ["n"], reduce("sum", self.over(*(self.queries or [out.args[-1].text])), weight if self.queries else out)))
        if self.chance(0.05) and mask is not None and mask.operator == "read" and mask.text not in self.parameters:
            outputs.append(mask)
        return outputs

    def output(self, weight: Expr, value: Expr, where: Expr | None) -> Expr:
        product = weight * value if self.chance(0.75) else value * weight
        if self.chance(0.12):
            product = product * self.loaded("factor", self.some([*self.rows, "n"]))
        names = [*self.rows, "e"]
        if self.chance(0.1):
            self.random.shuffle(names)
        kind = "sum" if self.chance(0.93) else self.random.choice(["max", "min"])
        out = self.define("out", names, reduce(kind, self.over("n"), product, where))
        if self.chance(0.1):
            out = self.define("gated", names, out * call("sigmoid", self.loaded("gate", self.some(names))))
        if self.chance(0.12):
            flat = "h" in self.outer
            inner = ["h", "e"] if flat else ["e"]
            shape = f"H * {self.ranges['e']}" if flat and self.chance(0.5) else ""
            if shape:
                weights = Expr("read", self.parameter("wo", ["O", shape]), FLOAT, (index("o"), index("h") * size(self.ranges["e"]) + index("e")))
            else:
                weights = self.loaded("wo", ["o", *inner])
            rest = [each for each in self.rows if each not in inner]
            out = self.define("y", [*rest, "o"], reduce("sum", self.over(*inner), weights * out) + self.loaded("bo", ["o"]))
        return out


def generate(seed: int, features: frozenset[str] = frozenset()) -> Spec:
    return Generator(seed, features).spec()
