"""Where the examples are, where compiled kernels are kept, and the fixed seed of every test that draws numbers."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import attn

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(ROOT / "test"))  # for the oracle


@pytest.fixture(scope="session", autouse=True)
def kernels_of_this_run():
    """Each run compiles every kernel, and none twice: many tests call the same ones."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as environment:
        environment.setenv("ATTN_CACHE_DIR", folder)
        yield


@pytest.fixture
def generator():
    return np.random.default_rng(20)


@pytest.fixture(scope="session")
def examples():
    return EXAMPLES


@pytest.fixture(autouse=True)
def only_what_runs(monkeypatch):
    """Most tests call a kernel with sizes of one kind: the functions for others are compiled by the gallery and the oracle."""
    monkeypatch.setattr(attn.compile, "__defaults__", attn.compile.__defaults__[:-1] + (True,))
