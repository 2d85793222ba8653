"""An evaluator of specs that shares nothing with attn: NumPy in double precision, one axis for each index variable.

With `noise` every result is off by a random relative error, as if it had been rounded to fewer digits: how far the outputs
move then is how far an honest kernel in f32 may be off.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .expression import FLOAT, INTEGER, Expr
from .specification import Function, Spec, Statement

_erf = np.vectorize(math.erf, otypes=[np.float64])
_FUNCTIONS = {
    "abs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))),
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "floor": np.floor,
    "round": np.rint,
    "isnan": np.isnan,
    "select": np.where,
    "f32": lambda x: x,
    "f64": lambda x: x,
    "i64": lambda x: np.trunc(x).astype(np.int64),
    "i32": lambda x: np.trunc(x).astype(np.int32).astype(np.int64),
}
_BINARY = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": lambda a, b: np.asarray(a, np.float64) / b,
    "**": lambda a, b: np.power(np.asarray(a, np.float64), b),
    "//": lambda a, b: np.where(b == 0, 0, a // np.where(b == 0, 1, b)) if _integers(a, b) else np.floor(a / b),
    "%": lambda a, b: np.where(b == 0, 0, a % np.where(b == 0, 1, b)) if _integers(a, b) else np.mod(a, b),
    "and": np.logical_and,
    "or": np.logical_or,
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def _integers(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype.kind in "iu" and b.dtype.kind in "iu"


def evaluate(spec: Spec, sizes: dict[str, int], inputs: dict[str, Any], noise: float = 0.0, seed: int = 0) -> list[np.ndarray]:
    """The outputs of `spec`, in double precision. `sizes` has the declared ones too, `inputs` the defaults."""
    generator = np.random.default_rng(seed) if noise else None
    tensors = {}
    for parameter in spec.parameters:
        array = np.asarray(inputs[parameter.name])
        tensors[parameter.name] = array.astype(np.float64 if array.dtype.kind == "f" else np.int64 if array.dtype.kind in "iu" else bool)
    with np.errstate(all="ignore"):
        for statement in spec.statements:
            tensors[statement.name] = _Evaluation(spec, sizes, tensors, statement, noise, generator).result()
    return [tensors[name] for name in spec.outputs]


def philox(number: np.ndarray, seed: int) -> np.ndarray:
    """The first word of Philox4x32-10 of the counter `number` with the key `seed` (Salmon et al., SC 2011)."""
    low, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    number = number.astype(np.uint64)
    counter = [number & mask, number >> low, np.zeros_like(number), np.zeros_like(number)]
    key = [seed % 2**32, seed // 2**32 % 2**32]
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * counter[0], np.uint64(0xCD9E8D57) * counter[2]
        counter = [second >> low ^ counter[1] ^ np.uint64(key[0]), second & mask, first >> low ^ counter[3] ^ np.uint64(key[1]), first & mask]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter[0]


class _Evaluation:
    """One statement. Every value has all axes: those of the statement, then one for each index of each reduction."""

    def __init__(self, spec, sizes, tensors, statement: Statement, noise: float, generator):
        self.sizes, self.tensors, self.statement = sizes, tensors, statement
        self.noise, self.generator = noise, generator
        self.halves = any(each.dtype == "bf16" for each in spec.parameters)
        self.functions: dict[str, Function] = {each.name: each for each in spec.functions}
        own = sum(len(node.indices) for node in statement.expr.walk() if node.operator == "reduce" and node.text != "softmax")
        self.axes = len(statement.indices) + own
        self.free = len(statement.indices)

    def size(self, text: str) -> int:
        return int(eval(text, {"__builtins__": {}}, self.sizes))

    def result(self) -> np.ndarray:
        scope = {each.name: (axis, self.size(each.range)) for axis, each in enumerate(self.statement.indices)}
        shape = [size for _, size in scope.values()]
        value = self.value(self.statement.expr, scope)
        if self.statement.dtype in ("f32", "f64") and value.dtype.kind != "f":
            value = value.astype(np.float64)
        return np.broadcast_to(value, shape + [1] * (self.axes - len(shape))).reshape(shape).copy()

    def along(self, axis: int, size: int) -> np.ndarray:
        return np.arange(size).reshape([-1 if each == axis else 1 for each in range(self.axes)])

    def value(self, expr: Expr, scope: dict[str, tuple[int, int]]) -> np.ndarray:
        if expr.operator == "index":
            return self.along(*scope[expr.text])
        if expr.operator == "reduce":
            return self.noisy(self.reduction(expr, scope))
        arguments = [self.value(argument, scope) for argument in expr.args]
        if expr.operator == "literal":
            values = {"true": True, "false": False, "inf": math.inf, "pi": math.pi}
            value = values.get(expr.text)
            return self.constant((float if expr.kind == FLOAT else int)(expr.text) if value is None else value)
        if expr.operator == "size":
            return self.constant(self.size(expr.text))
        if expr.operator == "unary":
            return np.logical_not(*arguments) if expr.text == "not" else -arguments[0]
        if expr.operator == "read":
            return self.read(self.tensors[expr.text], arguments)
        if expr.text == "dropout":
            return self.dropout(*arguments)
        if expr.operator == "call" and expr.text in self.functions:
            return self.noisy(self.applied(self.functions[expr.text], arguments))
        function = (_BINARY if expr.operator == "binary" else _FUNCTIONS)[expr.text]
        value = np.asarray(function(*arguments))
        if expr.text == "gelu":  # by its definition: 1 + erf cancels far left of zero
            value = arguments[0] / 2 * self.noisy(1 + self.noisy(_erf(arguments[0] / math.sqrt(2))))
        if expr.kind == INTEGER and value.dtype.kind == "f":
            return value.astype(np.int64)
        if expr.kind == FLOAT and value.dtype.kind != "f":
            value = value.astype(np.float64)
        exact = expr.text in ("select", "abs", "min", "max", "relu", "floor", "round")
        return value if exact else self.noisy(value)

    def constant(self, number: float) -> np.ndarray:
        return np.full([1] * self.axes, number)

    def noisy(self, value: np.ndarray) -> np.ndarray:
        if not self.noise or value.dtype.kind != "f":
            return value
        return value * (1 + self.noise * self.generator.uniform(-1, 1, value.shape))

    def noisy_sum(self, terms: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        """Partial sums are rounded too. Kernels add at most 64 terms in order (a block of keys): where they are equal, their
        roundings may all go the same way. Beyond that their error does not grow with how many there are."""
        total = terms.sum(axes, keepdims=True)
        if not self.noise or total.dtype.kind != "f":
            return total
        count = math.prod(terms.shape[axis] for axis in axes)
        error = self.noise * np.abs(terms).sum(axes, keepdims=True) * max(1, min(count, 64) / 32)
        return total + self.generator.uniform(-1, 1, total.shape) * error

    def applied(self, function: Function, arguments: list[np.ndarray]) -> np.ndarray:
        return np.asarray(eval(function.text, {"__builtins__": {}, **_FUNCTIONS}, dict(zip(function.parameters, arguments))))

    def dropout(self, value: np.ndarray, probability: np.ndarray, seed: np.ndarray) -> np.ndarray:
        """The element's number in the statement's tensor, and the seed, decide. Only for statements that are a dropout as a whole."""
        shape = [self.size(each.range) for each in self.statement.indices]
        number = np.arange(math.prod(shape)).reshape(shape + [1] * (self.axes - len(shape)))
        dropped = philox(number, int(seed.flat[0])) < probability * 2.0**32
        return np.where(dropped, 0.0, value / (1 - probability))

    def read(self, tensor: np.ndarray, subscripts: list[np.ndarray]) -> np.ndarray:
        if not subscripts:
            return self.constant(tensor[()])
        shape = np.broadcast_shapes(*(each.shape for each in subscripts))
        if 0 in shape or 0 in tensor.shape:
            return np.zeros(shape, tensor.dtype)
        return tensor[tuple(np.clip(each, 0, extent - 1) for each, extent in zip(subscripts, tensor.shape))]

    def reduction(self, expr: Expr, scope: dict[str, tuple[int, int]]) -> np.ndarray:
        inside = dict(scope)
        if expr.text != "softmax":
            for each in expr.indices:
                inside[each.name] = (self.free, self.size(each.range))
                self.free += 1
        reduced = [inside[each.name] for each in expr.indices]
        body = self.value(expr.args[0], inside)
        where = self.value(expr.args[1], inside) if expr.args[1] is not None else np.array(True)
        shape = np.broadcast_shapes(body.shape, where.shape, *(self.along(*each).shape for each in reduced))
        body, where = np.broadcast_to(body, shape), np.broadcast_to(where, shape)
        axes = tuple(axis for axis, _ in reduced)
        if expr.text == "sum":
            terms = np.where(where, body, 0)
            return self.noisy_sum(terms, axes)
        if expr.text in ("max", "min"):
            lowest = expr.text == "max"
            if body.dtype.kind == "f":
                empty = -np.inf if lowest else np.inf
            else:
                empty = np.iinfo(np.int64).min if lowest else np.iinfo(np.int64).max
            function = np.max if lowest else np.min
            return function(np.where(where, body, empty), axes, keepdims=True, initial=empty)
        body = np.where(where, body, -np.inf)
        highest = np.max(body, axes, keepdims=True, initial=-np.inf)
        if expr.args[2] is not None:
            sink = self.value(expr.args[2], scope).astype(np.float64)
            highest = np.maximum(highest, sink)
        highest = np.where(np.isinf(highest) & (highest < 0), 0, highest)
        powers = self.noisy(np.where(where, np.exp(self.noisy(body - highest)), 0))
        total = self.noisy_sum(powers, axes)
        if expr.args[2] is not None:
            total = self.noisy(total + np.exp(sink - highest))
        if expr.text == "logsumexp":
            return np.log(total) + highest
        weights = np.where(np.isneginf(body), 0, powers / np.where(total == 0, 1, total))  # also in rows of NaN
        if self.noise and self.halves:
            # Rounded to bf16 for a bf16 sum, where the processor multiplies pairs of such numbers. Values may cancel in it.
            weights = weights * (1 + 2.0**-9 * self.generator.uniform(-1, 1, weights.shape))
        return weights
