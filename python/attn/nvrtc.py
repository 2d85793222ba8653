"""Where NVRTC is installed, which compiles kernels for tensor cores."""

import importlib.util
import os
from pathlib import Path


def locate() -> None:
    """Lets the variable ATTN_NVRTC name the library of PyPI's nvidia-cuda-nvrtc, where that is installed and the variable is not set."""
    if "ATTN_NVRTC" in os.environ:
        return
    nvidia = importlib.util.find_spec("nvidia")
    for folder in (nvidia and nvidia.submodule_search_locations) or ():
        found = sorted(Path(folder).glob("*/lib/libnvrtc.so.1[23]"))
        if found:
            os.environ["ATTN_NVRTC"] = str(found[-1])
            return
