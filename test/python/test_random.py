"""Random shapes, strides and lengths for every example, against the reference interpreter."""

import numpy as np
import pytest
from conftest import EXAMPLES
from drawing import draw_arguments

import attn

ROUNDS = 12


def kernel_names(path):
    return [line.split()[1].split("(")[0].split("[")[0] for line in path.read_text().splitlines() if line.startswith("attention ")]


CASES = [(path.name, name) for path in sorted(EXAMPLES.glob("*.attn")) for name in kernel_names(path)]


@pytest.mark.parametrize("file, name", CASES)
def test_agrees_with_the_reference(file, name):
    kernel = attn.compile(EXAMPLES / file, kernel=name, dtype="f32")
    for seed in range(ROUNDS):
        arguments = draw_arguments(np.random.default_rng(seed), kernel)
        found, expected = kernel(**arguments), kernel.reference(**arguments)
        if len(kernel.outputs) == 1:
            found, expected = (found,), (expected,)
        shapes = {key: getattr(value, "shape", value) for key, value in arguments.items()}
        for info, output, wanted in zip(kernel.outputs, found, expected):
            np.testing.assert_allclose(
                output, wanted, rtol=2e-4, atol=3e-5, err_msg=f"{name}, seed {seed}, output {info.name}, {shapes}"
            )
