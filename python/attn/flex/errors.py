"""What cannot be traced, with the user's line."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

_PACKAGES = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent))


class TracingError(TypeError):
    """A score_mod or mask_mod does what has no counterpart in a kernel. The text names the operation and the line."""


def tracing_error(role: str, problem: str) -> TracingError:
    """An error of `role` ("score_mod" or "mask_mod") at the innermost line that is neither ours nor PyTorch's."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGES):
        frame = frame.f_back
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}: " if frame is not None else ""
    return TracingError(f"{place}{role}: {problem}")
