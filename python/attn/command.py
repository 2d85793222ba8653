"""The program `attnc` of the installed package: objects and C headers from specs, ahead of time."""

import signal
import sys

from . import _attn, nvrtc


def main() -> None:
    """Does what the command line says, as the attnc of a build does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing of Python's runs until it has ended
    nvrtc.locate()
    sys.exit(_attn.attnc(sys.argv))
