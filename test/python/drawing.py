"""Random arguments for any kernel: sizes, strides and values drawn for its parameters."""

import math
import re

import numpy as np

DTYPES = {"f64": np.float64, "f32": np.float32, "i64": np.int64, "i32": np.int32, "i8": np.int8, "u8": np.uint8, "bool": np.bool_}
SIZES = [0, 1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 33]


MOST_WORK = 300_000  # of all sizes multiplied: what the reference interpreter does in well under a second


def extents(shape, sizes):
    return [eval(size, {"__builtins__": {}}, sizes) for size in shape]  # size expressions are Python's too


def draw_sizes(generator, kernel):
    """A value for each size name, small enough together for plain loops."""
    names = sorted({name for info in kernel.inputs for size in info.shape for name in re.findall(r"[A-Z]\w*", size)})
    sizes = {name: int(generator.choice(SIZES)) for name in names}
    while math.prod(max(1, size) for size in sizes.values()) > MOST_WORK:
        largest = max(sizes, key=sizes.get)
        sizes[largest] = (sizes[largest] + 1) // 2
    # Where 0 makes a dimension negative (2 * S - 1), there is no such call.
    if any(extent < 0 for info in kernel.inputs for extent in extents(info.shape, sizes)):
        sizes = {name: max(1, size) for name, size in sizes.items()}
    return sizes


def with_random_strides(generator, array):
    """An equal array that lies otherwise in memory: permuted, with gaps, or backwards along an axis."""
    if array.ndim == 0:
        return array
    order = generator.permutation(array.ndim)
    steps = generator.choice([1, 1, 1, 2, -1], array.ndim)
    room = np.zeros([array.shape[axis] * max(1, abs(steps[axis])) for axis in order], array.dtype)
    view = room.transpose(np.argsort(order))
    view = view[tuple(slice(None, None, int(step)) for step in steps)]
    view[...] = array
    return view


def draw_values(generator, dtype, shape, highest):
    if dtype == "bool":
        return generator.random(shape) < 0.7
    if dtype in ("f32", "f64"):
        return (0.7 * generator.standard_normal(shape)).astype(DTYPES[dtype])
    # One past what can be: it must be harmless.
    return generator.integers(0, min(highest + 2, np.iinfo(DTYPES[dtype]).max), shape).astype(DTYPES[dtype])


def draw_arguments(generator, kernel):
    """Arguments by name. Scalars with a default are left out in half of the draws."""
    sizes = draw_sizes(generator, kernel)
    arguments = {}
    for info in kernel.inputs:
        shape = extents(info.shape, sizes)
        if not shape and info.default is not None and generator.random() < 0.5:
            continue
        if not shape:
            arguments[info.name] = float(generator.uniform(0.5, 2)) if info.dtype[0] == "f" else int(generator.integers(1, 9))
            continue
        values = draw_values(generator, info.dtype, shape, max(sizes.values()))
        arguments[info.name] = with_random_strides(generator, np.asarray(values))
    return arguments
