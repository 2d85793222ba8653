"""A random well-typed spec from a seed: an attention of parts that meet in the wild, and wilder ones.

The structure (batch, heads, groups, one query, layouts) is drawn first, then the score with its epilogues, the mask, what becomes of
the scores (softmax, several, none), and what is returned. Nothing is drawn that is discontinuous in a computed float, since
a rounding error would then be a difference.
"""

from __future__ import annotations

from dataclasses import replace

from .expression import FLOAT, Expr, Index, binary, call, index, literal, reduce, select, size
from .scores import Scores
from .specification import Spec, Statement, Values


class Generator(Scores):
    """The whole spec."""

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
        self.tokens_first = self.chance(0.25)  # heads lie together at a token
        self.paged = self.chance(0.1)
        if self.paged:
            self.ranges["n"] = "L * S"
        if "h" in self.outer and self.chance(0.15):
            self.declared["H"] = pick([1, 2, 3, 4])
        self.rows = self.outer + self.queries

    def keys(self, name: str, feature: str, permuted: float = 0.15) -> Expr:
        """A new tensor of keys or values, read at n: by head, by group, through a page table, or shared by all heads."""
        dtype = self.storage
        if dtype != "f64" and self.chance(0.06):
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
            head = 4 if self.tokens_first else 2
            order = {"B": 0, "P": 0, "S": 1, "H": head, "G": head}
            dimensions.sort(key=lambda each: 5 if each[1] == index(feature) else order.get(each[0], 3))
        values = Values("integers", "100") if dtype in ("i8", "u8") else Values()
        parameter = self.parameter(name, [each for each, _ in dimensions], values, dtype)
        read = Expr("read", parameter, "integer" if dtype in ("i8", "u8") else FLOAT, tuple(each for _, each in dimensions))
        value = call("f32", read) * literal(0.02) if dtype in ("i8", "u8") else read
        if self.chance(0.1):  # a number for each token, or token and head, as of a quantised cache
            kept = [each for each in dimensions if each[1] != index(feature)]
            scale = self.parameter("token_scale", [each for each, _ in kept], Values("positive"))
            value = value * Expr("read", scale, FLOAT, tuple(each for _, each in kept))
        return value

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

    def combine(self, score: Expr, mask: Expr | None) -> list[Expr]:
        row = self.rows
        outputs = [score] if score.operator == "read" and score.text not in self.parameters else []
        sink = self.loaded("sink", self.some(row)) if self.chance(0.2) else None
        # Where a score of +inf makes a row NaN, what a sum over part of its keys gives is not promised (docs/numerics.md).
        infinite = any(each.values.name == "with -inf" for each in self.parameters.values())
        late = self.chance(0.1) and mask is not None and not infinite
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
        if self.chance(0.1):
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
            summed, kept = (weight, self.outer + ["n"]) if self.queries else (out, [each for each in row if index(each) in out.args])
            over = self.queries or [each.text for each in out.args if each.text not in row]
            outputs.append(self.define("column", kept, reduce("sum", self.over(*over), summed)))
        if self.chance(0.05) and mask is not None and mask.operator == "read" and mask.text not in self.parameters:
            outputs.append(mask)
        if self.chance(0.12) and row:
            outputs += [self.of_neighbours(weight)] * 2
        if self.chance(0.1):
            outputs += [self.placed(weight)] * 2
        return outputs

    def placed(self, weight: Expr) -> Expr:
        """Sums whose terms are at the places that numbers say: segments, an element of a table, a softmax of each segment."""
        self.ranges["z"] = "Z"
        rows, gate = self.some(self.rows), self.loaded("place_gate", ["z"])
        number = self.loaded("place", [*self.some(rows), "n"], Values("index", "Z"), self.random.choice(["i32", "i64"]))
        there = binary("==", number + literal(self.random.choice([0, 0, 1])), index("z"))
        kind = self.random.choice(["segments", "element", "softmax"])
        if kind == "segments":
            term, rows = (weight, self.rows) if self.chance(0.5) else (self.loaded("x3", [*rows, "n"]), rows)
            return self.define("placed", [*rows, "z"], reduce("sum", self.over("n"), term, there) * gate)
        if kind == "element":
            term = gate * self.loaded("x3", [*self.some(rows), "z"])
            return self.define("placed", [*rows, "n"], reduce("sum", self.over("z"), term, there))
        own = self.fresh("own")
        names = [*rows, "z", "n"]
        self.random.shuffle(names)
        softmax = reduce("softmax", self.over("n"), self.loaded("x3", [*self.some(rows), "n"]), there)
        self.statements.append(Statement(own, tuple(Index(each, self.ranges[each], True) for each in names), softmax, ""))
        read = Expr("read", own, FLOAT, tuple(map(index, names)))
        return self.define("placed", [*rows, "z"], reduce("sum", self.over("n"), read * self.loaded("x4", [*self.some(rows), "n"])) * gate)

    def of_neighbours(self, weight: Expr) -> Expr:
        """Sums of the weights of other heads, sequences or queries than a statement's own."""
        row = index(self.random.choice(self.rows))
        self.ranges["r"] = self.random.choice(["2", "3"])
        place = self.random.choice([row + index("r") - literal(1), row * size(self.ranges["r"]) + index("r"), row // literal(2) + index("r")])
        moved = weight.map(lambda node: place if node == row else node)
        return self.define("neighbours", [*self.rows, "n"], reduce("sum", self.over("r"), moved))

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


def generate(seed: int) -> Spec:
    """The spec of a seed."""
    return Generator(seed).spec()
