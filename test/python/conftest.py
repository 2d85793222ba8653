"""Where the examples are, and the fixed seed of every test that draws numbers."""

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def generator():
    return np.random.default_rng(20)


@pytest.fixture(scope="session")
def examples():
    return EXAMPLES
