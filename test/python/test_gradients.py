"""Backward kernels: every differentiable example against finite differences in f64, and in f32 against f64."""

import re

import numpy as np
import pytest
from conftest import EXAMPLES
from gallery_cases import CASES
from test_gallery import NAMES, draw

import attn

ONE_PLAN = {"split.queries": 0, "narrow.queries": 0}  # compiles sooner; other tests have the other plans
STEP = 1e-6  # of central differences: their error is of the order of its square


def compile_in(dtype, name):
    source = re.sub(r"\b(f32|bf16|f16)\b", dtype, (EXAMPLES / f"{name}.attn").read_text())
    return attn.compile(source, kernel=name, sizes=CASES[name].fixed, plan=ONE_PLAN)


def run(kernel, arguments):
    """The outputs by name."""
    results = kernel(*arguments.values())
    return dict(zip((info.name for info in kernel.outputs), results if isinstance(results, tuple) else (results,)))


def gradients(kernel, arguments, output_gradients, inputs=None):
    forward, backward = kernel.grad(inputs)
    known = {**arguments, **run(forward, arguments), **{f"grad_{name}": each for name, each in output_gradients.items()}}
    return run(backward, {info.name: known[info.name] for info in backward.inputs})


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_an_example_are_those_of_finite_differences(name, number):
    kernel = compile_in("f64", name)
    generator = np.random.default_rng(number)
    drawn, _ = draw(name, kernel, number)
    arguments = {
        info.name: drawn.get(info.name, info.default if info.dtype[0] == "f" else int(info.default or 0))
        for info in kernel.inputs
    }
    outputs = run(kernel, arguments)
    weights = {key: generator.standard_normal(value.shape) for key, value in outputs.items() if value.dtype.kind == "f"}

    def objective(changed):
        results = run(kernel, {**arguments, **changed})
        return sum(np.vdot(weights[key], np.where(np.isfinite(results[key]), results[key], 0)) for key in weights)

    weights = {key: np.where(np.isfinite(outputs[key]), value, 0) for key, value in weights.items()}
    found = gradients(kernel, arguments, weights)
    for info in kernel.inputs:
        if info.dtype != "f64" or info.name == "p":  # the probability of a dropout has no gradient
            continue
        value = np.asarray(arguments[info.name])
        gradient = found[f"grad_{info.name}"]
        assert gradient.shape == value.shape
        direction = np.where(np.isfinite(value), generator.standard_normal(value.shape), 0)
        value = value.astype(np.float64)
        change = {sign: objective({info.name: value + sign * STEP * direction}) for sign in (1, -1)}
        expected = (change[1] - change[-1]) / (2 * STEP)
        scale = np.linalg.norm(gradient) + abs(expected) + abs(change[1])  # the last for the noise of the differences
        assert abs(np.vdot(gradient, direction) - expected) < 1e-6 * scale, info.name
