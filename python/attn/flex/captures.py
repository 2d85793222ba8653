"""What a score_mod or mask_mod captures: it tells whether a function would be traced as one before was."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable

import torch

_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
#: Their functions and constants do not change while a program runs.
_FIXED_PACKAGES = frozenset({"torch", "math", "operator", "builtins", "numpy", "functools", "itertools"})
_ABSENT = object()
_NAMES: dict[types.CodeType, tuple[str, ...]] = {}


class Captures:
    """A walk over functions and all that they reach by closures, default values and global names.

    parts: equal for functions that are traced alike. Code counts by its identity, numbers and strings by type and
        value, tensors by dtype and rank and by which of them are the same; lists and dictionaries by what they hold.
    tensors, names: the tensors in the order in which they were reached, each once, and what the user calls them.
    complete: false if something was reached whose state the parts cannot stand for, such as an object's attributes.
    kept: what the parts have identities of; they are valid as long as it is kept.
    """

    __slots__ = ("parts", "tensors", "names", "complete", "kept", "_positions")

    def __init__(self, *functions: Callable[..., Any] | None):
        self.parts: list[Any] = []
        self.tensors: list[torch.Tensor] = []
        self.names: list[str] = []
        self.complete = True
        self.kept: list[Any] = []
        self._positions: dict[int, int] = {}
        for function in functions:
            self._add("function", function)

    def _add(self, name: str, value: Any) -> None:
        parts = self.parts
        kind = type(value)
        if kind in _CONSTANTS:
            # The text of a float tells 0.0 from -0.0, and NaN is equal to itself there.
            parts += (kind, repr(value) if kind is float else value)
        elif isinstance(value, torch.Tensor):
            position = self._positions.setdefault(id(value), len(self.tensors))
            if position == len(self.tensors):
                self.tensors.append(value)
                self.names.append(name)
            parts += (value.dtype, value.ndim, position)
        elif kind is types.FunctionType:
            self._add_function(value)
        elif kind in (tuple, list):
            parts += (kind, len(value))
            for number, element in enumerate(value):
                self._add(f"{name}_{number}", element)
        elif kind is dict:
            parts += (kind, len(value))
            for label, element in value.items():
                self._add(name, label)
                self._add(f"{name}_{label}", element)
        elif kind is functools.partial:
            self._add(name, [value.func, value.args, value.keywords])
        elif _is_fixed(value):
            self._add_identity(value)
        else:
            self.complete = False

    def _add_identity(self, value: Any) -> None:
        self.parts.append(id(value))
        self.kept.append(value)

    def _add_function(self, function: types.FunctionType) -> None:
        code = function.__code__
        seen = id(function) in self._positions
        self._add_identity(code)
        if seen:  # it calls itself
            return
        self._positions[id(function)] = -1
        if function.__dict__:  # attributes of its own
            self.complete = False
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                self._add(name, cell.cell_contents)
            except ValueError:  # the variable has no value yet
                self.parts.append(_ABSENT)
        if function.__defaults__ is not None:
            self._add("default", function.__defaults__)
        if function.__kwdefaults__ is not None:
            self._add("default", function.__kwdefaults__)
        if _is_torchs(function):
            return
        names = _NAMES.get(code)
        if names is None:
            names = _NAMES[code] = tuple(_names(code))
        namespace = function.__globals__
        for name in names:
            value = namespace.get(name, _ABSENT)
            if value is not _ABSENT:
                self.parts.append(name)
                self._add(name, value)


def _names(code: types.CodeType) -> list[str]:
    """The global names of a code, and of the functions within it; names of attributes are not told from them."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _names(constant)
    return list(dict.fromkeys(names))


def _is_torchs(function: Any) -> bool:
    return (getattr(function, "__module__", None) or "").partition(".")[0] == "torch"


def _is_fixed(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in _FIXED_PACKAGES
    if isinstance(value, (types.BuiltinFunctionType, type)):
        return (getattr(value, "__module__", None) or "builtins").partition(".")[0] in _FIXED_PACKAGES
    return False
