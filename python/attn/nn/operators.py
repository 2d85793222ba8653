"""The specs of the layers, as operators of PyTorch.

A spec file has everything that a layer may want: all outputs, and dropout. What a call does not want is left out of the
kernel, so that weights nobody looks at are never stored, and no random bits are drawn outside training.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from ..kernel import compile
from ..operators import Operator, torch_operator

_DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}


class SpecOperator:
    """A spec of the folder `specs`, compiled when it is first called: once for each dtype and choice of outputs."""

    def __init__(self, spec: str):
        """spec: the file's name without `.attn`."""
        self.spec = spec
        self._operators: dict[tuple[tuple[str, ...], str, bool], Operator] = {}

    def __call__(self, *outputs: str, dropout: float = 0.0, **inputs: Any) -> tuple[torch.Tensor, ...]:
        """The named outputs for inputs by name: tensors, or numbers for scalar parameters.

        dropout: a probability; where it is not 0, the seed is drawn from PyTorch's default generator.

        Raises TypeError and ValueError as `attn.Operator` does, and TypeError for a dtype that no kernel computes with.
        """
        if dropout:
            inputs |= {"p": dropout, "seed": torch.randint(2**63 - 1, ())}
        results = self.operator(outputs, self._dtype(inputs), dropout > 0)(**inputs)
        return results if isinstance(results, tuple) else (results,)

    def operator(self, outputs: tuple[str, ...], dtype: str = "f32", dropout: bool = False) -> Operator:
        """The operator that returns these outputs, with or without dropout."""
        key = outputs, dtype, dropout
        if key not in self._operators:
            self._operators[key] = self._compile(*key)
        return self._operators[key]

    def _compile(self, outputs: tuple[str, ...], dtype: str, dropout: bool) -> Operator:
        source = (Path(__file__).parent / "specs" / f"{self.spec}.attn").read_text(encoding="utf-8")
        source = re.sub(r"\breturn .*", f"return {', '.join(outputs)}", source)
        if not dropout:
            source = re.sub(r",\s*p: f32 = 0.0, seed: i64 = 0", "", source)
            source = re.sub(r"\bdropout\((.*), p, seed\)", r"\1", source)
        if dtype == "f64":
            source = re.sub(r"\bf32\b", "f64", source)
        return torch_operator(compile(source, dtype=dtype if dtype in ("bf16", "f16") else None, lazy=True))

    def _dtype(self, inputs: dict[str, Any]) -> str:
        name, dtype = next((name, value.dtype) for name, value in inputs.items() if isinstance(value, torch.Tensor))
        if dtype not in _DTYPES:
            raise TypeError(f"{name}: dtype must be one of {', '.join(map(str, _DTYPES))}, but is {dtype}")
        return _DTYPES[dtype]
