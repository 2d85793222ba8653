"""Sizes and arrays for a spec: odd sizes, odd strides, and values that are hard."""

from __future__ import annotations

import math
import random
import zlib
from dataclasses import dataclass, replace

import numpy as np

from .specification import Parameter, Spec, names_in

SIZES = [0, 1, 1, 2, 2, 3, 5, 7, 8, 16, 17, 31, 48, 49, 63, 64, 65, 127, 129, 255, 256, 257, 600]
FEATURES = [0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 32, 33, 48, 64, 65]
FEW = [0, 1, 1, 1, 2, 2, 3, 4, 5, 7]
DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "i64": np.int64, "i32": np.int32, "i8": np.int8, "u8": np.uint8, "bool": np.bool_}
MOST_WORK = 500_000  # the elements of all statements with the terms of their reductions: a fraction of a second for the reference
FLOAT_KINDS = ["normal"] * 8 + ["zeros", "hundreds", "ten thousands", "subnormal", "ties"]


@dataclass(frozen=True)
class Case:
    """A spec with everything that decides its results."""

    spec: Spec
    sizes: tuple[tuple[str, int], ...]
    seed: int  #: of the values
    plain: bool = False  #: contiguous arrays of ordinary values

    @property
    def all_sizes(self) -> dict[str, int]:
        return dict(self.spec.declared) | dict(self.sizes)


def size_names(spec: Spec) -> list[str]:
    """The sizes that the shapes of the arguments give."""
    declared = {name for name, _ in spec.declared}
    return sorted({name for each in spec.parameters for size in each.shape for name in names_in(size)} - declared)


def value_of(size: str, sizes: dict[str, int]) -> int:
    return int(eval(size, {"__builtins__": {}}, sizes))


def _limit(parameter: Parameter, case: Case) -> int:
    """What integers of the parameter reach. Shrinking may have dropped the size that says so."""
    return value_of(parameter.values.limit, dict.fromkeys(names_in(parameter.values.limit), 5) | case.all_sizes)


def draw_case(spec: Spec, seed: int) -> Case:
    generator = random.Random(seed)
    sizes = dict(spec.declared)
    zeros = generator.random() < 0.12
    for name in size_names(spec):
        choices = FEW if name in "BHGPLC" else FEATURES if name in "DEIUOK" else SIZES
        sizes[name] = generator.choice([each for each in choices if each or zeros])
    if "G" in sizes and "H" in sizes and generator.random() < 0.9:
        groups = [each for each in range(1, sizes["H"] + 1) if sizes["H"] % each == 0] or [0]
        sizes["G"] = generator.choice(groups)
    drawn = [name for name in sizes if name not in dict(spec.declared)]
    while work(spec, sizes) > MOST_WORK:
        largest = max(drawn, key=lambda name: sizes[name] if name not in "N" else sizes[name] / 3)
        sizes[largest] = max(1, sizes[largest] * 2 // 3)
    return Case(spec, tuple((name, sizes[name]) for name in drawn), seed, generator.random() < 0.25)


def work(spec: Spec, sizes: dict[str, int]) -> int:
    """How many elements the statements have, counting each term of each reduction."""
    total = 0
    for statement in spec.statements:
        elements = math.prod(max(1, value_of(each.range, sizes)) for each in statement.indices)
        inner = 1
        for node in statement.expr.walk():
            if node.operator == "reduce" and node.text != "softmax":
                inner = max(inner, math.prod(max(1, value_of(each.range, sizes)) for each in node.indices))
        total += elements * inner
    return total


def draw_arguments(case: Case) -> dict[str, np.ndarray | float | int]:
    """Arguments by name. What is drawn for a parameter depends on the case's seed and its name only."""
    arguments = {}
    for parameter in case.spec.parameters:
        generator = np.random.default_rng([case.seed, zlib.crc32(parameter.name.encode())])
        if not parameter.shape:
            if not parameter.default or generator.random() < 0.5:
                arguments[parameter.name] = _scalar(generator, parameter, case)
            continue
        shape = [value_of(size, case.all_sizes) for size in parameter.shape]
        values = np.asarray(_values(generator, parameter, shape, case))
        values = bfloat16(values) if parameter.dtype == "bf16" else values.astype(DTYPES[parameter.dtype])
        arguments[parameter.name] = values if case.plain else with_random_strides(generator, values)
    return arguments


def bfloat16(values: np.ndarray) -> np.ndarray:
    """What bf16 holds of the values, toward zero, as f32."""
    return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def with_defaults(spec: Spec, arguments: dict) -> dict:
    defaults = {each.name: eval(each.default, {"__builtins__": {}}) for each in spec.parameters if each.default}
    return defaults | arguments


def _scalar(generator: np.random.Generator, parameter: Parameter, case: Case) -> bool | float | int | np.ndarray:
    if parameter.dtype[0] == "f":
        value = np.dtype(DTYPES[parameter.dtype]).type(generator.uniform(0.25, 2))
        return float(value) if generator.random() < 0.5 else np.asarray(value)
    if parameter.dtype == "bool":
        return bool(generator.random() < 0.7)
    if parameter.values.name == "sorted":
        return int(generator.integers(0, 4))
    return int(generator.integers(-1, _limit(parameter, case) + 2))


def _values(generator: np.random.Generator, parameter: Parameter, shape: list[int], case: Case) -> np.ndarray:
    kind = parameter.values.name
    if kind == "bool":
        return generator.random(shape) < generator.choice([0.0, 0.1, 0.5, 0.9, 1.0])
    if kind == "index":
        limit = _limit(parameter, case)
        values = generator.integers(0, max(1, limit), shape)
        wrong = generator.random(shape) < (0 if case.plain else 0.1)
        return np.where(wrong, generator.integers(-3, limit + 4, shape), values)
    if kind == "integers":
        limit = int(parameter.values.limit)
        return generator.integers(0 if parameter.dtype == "u8" else -limit, limit, shape)
    if kind == "sorted":
        return np.sort(generator.integers(0, 4, shape), axis=-1) if shape else generator.integers(0, 4)
    scale = {"large": 50.0, "small": 0.1}.get(kind, 1.0)
    values = generator.standard_normal(shape) * scale
    special = "normal" if case.plain else generator.choice(FLOAT_KINDS)
    if special == "zeros":
        values = np.zeros(shape)
    elif special == "hundreds":
        values = values * 100
    elif special == "ten thousands" and parameter.name in ("q", "x", "bias", "v"):
        values = np.clip(values, -1, 1) * 1e4
    elif special == "subnormal":
        values = np.where(generator.random(shape) < 0.5, values * 1e-39, values)
    elif special == "ties":
        values = np.rint(values)
    if kind == "with -inf":
        values = np.where(generator.random(shape) < generator.choice([0.05, 0.5, 1.0]), -np.inf, values)
    return np.abs(values) + 0.25 if kind == "positive" else values


def with_random_strides(generator: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """The same array lying otherwise in memory: permuted, with gaps, backwards, or broadcast along an axis (then its first values)."""
    if array.ndim == 0 or generator.random() < 0.4:
        return array
    if generator.random() < 0.15:
        axis = int(generator.integers(array.ndim))
        if array.shape[axis]:
            return np.broadcast_to(np.take(array, [0], axis), array.shape)
    order = generator.permutation(array.ndim)
    steps = generator.choice([1, 1, 1, 2, -1], array.ndim)
    room = np.zeros([array.shape[axis] * abs(steps[axis]) for axis in order], array.dtype)
    view = room.transpose(np.argsort(order))[tuple(slice(None, None, int(step)) for step in steps)]
    view[...] = array
    return view


def smaller_sizes(case: Case) -> list[Case]:
    """The case with one size made smaller, the boldest first."""
    found = []
    for position, (name, size) in enumerate(case.sizes):
        for less in dict.fromkeys([0, 1, 2, 3, size // 2, size - 1]):
            if 0 <= less < size:
                found.append(replace(case, sizes=(*case.sizes[:position], (name, less), *case.sizes[position + 1 :])))
    return found
