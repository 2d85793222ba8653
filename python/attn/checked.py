"""Options of functions, checked and as the extension module takes them."""

from __future__ import annotations

import operator
from typing import Any, Mapping

from . import arrays

_DTYPES = {arrays.DTYPE_NAMES[dtype]: dtype for dtype in ("f32", "bf16", "f16")}


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: must be a text, but is of type {type(value).__name__}")
    return value


def flag(name: str, value: Any) -> bool:
    if value not in (True, False):  # NumPy's among them
        raise TypeError(f"{name}: must be True or False, but is {value!r}")
    return bool(value)


def integer(name: str, value: Any) -> int:
    """Of 64 bits, also where it is NumPy's."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: must be an integer, but is {value!r} of type {type(value).__name__}") from None
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{name}: must have 64 bits, but is {number}")
    return number


def integers(name: str, value: Any) -> dict[str, int]:
    """Integers by their names."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}: must be a dict of names and integers, but is of type {type(value).__name__}")
    return {text(f"{name}: a name", key): integer(f"{name}: {key}", number) for key, number in value.items()}


def dtype(value: Any) -> str:
    """The language's name of a dtype, which may be PyTorch's, NumPy's or JAX's."""
    if isinstance(value, str):
        return value
    name = getattr(value, "__name__", None) or getattr(value, "name", None) or str(value).removeprefix("torch.")
    if name not in _DTYPES:
        raise TypeError(f"dtype: must be f32, bf16 or f16, or such a dtype of PyTorch or NumPy, but is {value!r}")
    return _DTYPES[name]
