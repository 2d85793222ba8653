"""A kernel's sizes, from the shapes of its inputs: in Python, also for symbolic shapes, as torch.compile has them."""

from __future__ import annotations

import functools
import re
from types import CodeType
from typing import Any, Callable, Sequence

from .kernel import TensorInfo


@functools.lru_cache(maxsize=None)
def _compiled(expression: str) -> CodeType:
    return compile(expression, expression, "eval")


def evaluate(expression: str, sizes: dict[str, Any]) -> Any:
    """The value of a size expression such as "H * D"."""
    return eval(_compiled(expression), {"__builtins__": {}}, sizes)


def bind(
    inputs: Sequence[TensorInfo], shapes: Sequence[Sequence[Any]], check: Callable[[Any, str], None]
) -> dict[str, Any]:
    """The sizes that the inputs' shapes give.

    A dimension that is an expression is solved for its one unknown size; everything that is known already is checked:
    `check(condition, message)`. Raises ValueError where a shape has the wrong rank.
    """
    dimensions = []
    for info, shape in zip(inputs, shapes):
        if len(shape) != len(info.shape):
            expected = f"{len(info.shape)} dimensions, [{', '.join(info.shape)}]" if info.shape else "no dimensions"
            raise ValueError(f"{info.name}: must have {expected}, but has {len(shape)}")
        dimensions += [
            (info, number, expression, size) for number, (expression, size) in enumerate(zip(info.shape, shape))
        ]
    sizes: dict[str, Any] = {}
    pending = len(dimensions) + 1
    while len(dimensions) < pending:
        pending = len(dimensions)
        dimensions = [dimension for dimension in dimensions if not _settle(*dimension, sizes, check)]
    return sizes


def _settle(info: TensorInfo, number: int, expression: str, found: Any, sizes: dict[str, Any], check: Any) -> bool:
    """Checks a dimension, or takes its one unknown size from it; false where that cannot be done yet."""
    unknown = [name for name in _compiled(expression).co_names if name not in sizes]
    if len(unknown) > 1 or (unknown and not _is_linear(expression, unknown[0])):
        return False
    if unknown:
        (name,) = unknown
        constant = evaluate(expression, {**sizes, name: 0})
        factor = evaluate(expression, {**sizes, name: 1}) - constant
        sizes[name] = found if expression == name else (found - constant) // factor
    expected = evaluate(expression, sizes)
    if expression not in unknown:
        check(
            found == expected,
            f"{info.name}: dimension {number} must be {expression}, which is {expected}, but is {found}",
        )
    return True


def _is_linear(expression: str, name: str) -> bool:
    """Whether the language solves an expression for this size: it is there once, and not divided."""
    return "//" not in expression and len(re.findall(rf"\b{name}\b", expression)) == 1
