"""Runs the backward pass of one case: compiled against the reference interpreter, and the reference against differences of what
NumPy computes in double precision, by each input along a random direction.

The values are ordinary ones: here wrong formulas and wrong lowerings are looked for, not roundings, so the tolerances are wide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator

import numpy as np

import attn

from .check import ROUNDING, Failure, as_arrays, as_passed, step_rounding
from .data import Case, draw_arguments, with_defaults, with_random_strides
from .evaluate import evaluate
from .specification import Values

TOLERANCE = {"f32": 1e-4, "f64": 1e-8, "bf16": 2.0**-6, "f16": 2.0**-9}  # of the largest number of a gradient
DIFFERENCES = 1e-5  # how far from the gradient a difference quotient may be, relative to both
STEP = 1e-5
UNDERFLOW = 1e-30  # what may be lost where a pass stores numbers that are too small for f32
ALLOWANCE = 32  # how often worse than a random disturbance roundings may be: many, which have one cause, add up
DISTURBANCES = 6

Gradients = dict[str, np.ndarray]


def check_gradient(case: Case) -> Failure | None:
    """None where all agree, and where no output has a gradient."""
    case = _with_small_offsets(case)
    try:
        kernel = attn.compile(case.spec.text(), lazy=True)
        if not any(each.dtype in TOLERANCE for each in kernel.outputs):
            return None
        forward, backward = kernel.grad()
    except attn.CompileError as error:
        return Failure("refused", str(error))
    generator = np.random.default_rng(case.seed)
    arguments = draw_arguments(replace(case, plain=True))
    if not case.plain:
        arguments = {name: with_random_strides(generator, each) if isinstance(each, np.ndarray) else each for name, each in arguments.items()}
    inputs = with_defaults(case.spec, arguments)
    outputs = dict(zip(case.spec.outputs, evaluate(case.spec, case.all_sizes, inputs)))
    if any(np.isnan(each).any() for each in outputs.values() if each.dtype.kind == "f"):  # so are gradients, then
        return None
    weights = {  # of the elements of the outputs in the objective; bf16 holds them
        name: np.where(np.isfinite(value), np.rint(generator.standard_normal(value.shape) * 16) / 16, 0.0)
        for name, value in outputs.items()
        if value.dtype.kind == "f"
    }
    try:
        backward_pass = _BackwardPass(case, forward, backward, inputs, as_passed(case, arguments), weights)
        found, expected = backward_pass.run(lambda kernel: kernel), backward_pass.run(_reference)
    except Exception as error:  # whatever a call raises is a finding: the arguments fit
        return Failure("error", f"{type(error).__name__}: {error}")
    text = _unlike(backward_pass, found, expected)
    if text:
        return Failure("difference", text)
    text = _unlike_differences(backward_pass, expected, generator)
    return Failure("reference", text) if text else None


def _with_small_offsets(case: Case) -> Case:
    """What all scores of a row have in common costs gradients as much as its last bit: docs/gradients.md."""
    parameters = tuple(replace(each, values=Values()) if each.values.name == "large" else each for each in case.spec.parameters)
    return replace(case, spec=replace(case.spec, parameters=parameters))


def _reference(kernel: attn.Kernel):
    return kernel.reference


class _BackwardPass:
    """The gradients by the names of the inputs."""

    def __init__(self, case: Case, forward: attn.Kernel, backward: attn.Kernel, inputs: dict, passed: dict, weights: dict):
        self.case, self.forward, self.backward = case, forward, backward
        self.inputs, self.passed, self.weights = inputs, passed, weights
        self.dtypes = {each.name.removeprefix("grad_"): each.dtype for each in backward.outputs}
        self.others: list[Gradients] | None = None

    def disturbed(self) -> list[Gradients]:
        """What the reference finds when what the backward pass takes is off by roundings. Found only when asked for."""
        if self.others is None:
            self.others = [self.run(_reference, seed + 1) for seed in range(DISTURBANCES)]
        return self.others

    def run(self, method, disturbance: int = 0) -> Gradients:
        results = method(self.forward)(**self.passed)
        results = results if isinstance(results, tuple) else (results,)
        known = {**self.passed, **{info.name: each for info, each in zip(self.forward.outputs, results)}}
        for info, result in zip(self.forward.outputs, results):
            if info.name in self.weights:
                known[f"grad_{info.name}"] = _like(result, self.weights[info.name])
        taken = {info.name: known[info.name] for info in self.backward.inputs if info.name in known}
        if disturbance:
            taken = self.disturb(taken, disturbance)
        gradients = as_arrays(method(self.backward)(**taken))
        return {name: each.astype(np.float64) for name, each in zip(self.dtypes, gradients)}

    def outputs(self, changed: dict, noise: float = 0.0, seed: int = 0) -> dict[str, np.ndarray]:
        """What NumPy computes where some inputs are `changed`."""
        values = evaluate(self.case.spec, self.case.all_sizes, self.inputs | changed, noise, seed)
        return dict(zip(self.case.spec.outputs, values))

    def disturb(self, taken: dict, seed: int) -> dict:
        """Outputs as after roundings at every step, all else off by one."""
        generator = np.random.default_rng(seed)
        outputs = self.outputs({}, step_rounding(self.case), seed)
        for info in self.backward.inputs:
            if info.name in taken and info.dtype in ROUNDING:
                value = taken[info.name]
                value = _like(value, outputs[info.name]) if info.name in outputs else value
                taken[info.name] = _off(value, info.dtype, generator)
        return taken


def _off(value, dtype: str, generator: np.random.Generator):
    """The value off by a rounding of its dtype, or all of it by one: a factor that a kernel folds into it is rounded once."""
    if isinstance(value, float):
        return value * (1 + ROUNDING[dtype] * generator.choice([-1, 1]))
    factor = 1 + ROUNDING[dtype] * generator.uniform(-1, 1, tuple(value.shape) if generator.random() < 0.5 else ())
    return _like(value, as_arrays(value)[0].astype(np.float64) * factor)


def _like(result, values: np.ndarray):
    """The values in the dtype and library of `result`."""
    if isinstance(result, np.ndarray):
        return values.astype(result.dtype)
    import torch

    return torch.from_numpy(values).to(result.dtype)


def _unlike(backward_pass: _BackwardPass, found: Gradients, expected: Gradients) -> str:
    largest = max((np.abs(each[np.isfinite(each)]).max(initial=0) for each in expected.values()), default=0)
    for name, dtype in backward_pass.dtypes.items():
        a, b = found[name], expected[name]
        if a.shape != b.shape:
            return f"grad_{name}: has the shape {a.shape}, but {b.shape} by the reference"
        finite = np.isfinite(a) & np.isfinite(b)
        special = ~finite & ~((a == b) | (np.isnan(a) & np.isnan(b)))
        error = np.where(special, np.inf, np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)))
        # The slope of a tanh that is nearly 1 is a rounding.
        allowed = TOLERANCE[dtype] * np.abs(b[np.isfinite(b)]).max(initial=0) + ALLOWANCE * ROUNDING[dtype] * largest + UNDERFLOW
        if (error > allowed).any():
            allowed += ALLOWANCE * max(np.abs(np.nan_to_num(each[name] - b, posinf=0, neginf=0)).max(initial=0) for each in backward_pass.disturbed())
        if (error > allowed).any():
            worst = np.unravel_index(np.argmax(error), a.shape)
            place = ", ".join(map(str, worst))
            return (
                f"grad_{name}: {np.count_nonzero(error > allowed)} of {a.size} elements differ; the worst grad_{name}[{place}] = {a[worst]!r} "
                f"by the kernel, {b[worst]!r} by the reference, {error[worst] / allowed:.3g} × what is allowed"
            )
    return ""


def _unlike_differences(backward_pass: _BackwardPass, gradients: Gradients, generator: np.random.Generator) -> str:
    def terms(changed: dict) -> Iterator[np.ndarray]:
        values = backward_pass.outputs(changed)
        for name, weight in backward_pass.weights.items():
            yield weight * np.where(np.isfinite(values[name]), values[name], 0)

    def objective(changed: dict) -> float:
        return sum(each.sum() for each in terms(changed))

    noise = UNDERFLOW + 1e-10 * sum(np.abs(each).sum() for each in terms({}))  # of an objective in double precision, over STEP
    for name, dtype in backward_pass.dtypes.items():
        value = np.asarray(backward_pass.inputs[name], np.float64)
        gradient = gradients[name]
        for _ in range(3):  # a direction may lead across a place without a derivative
            direction = np.where(np.isfinite(value), generator.standard_normal(value.shape), 0)

            def quotient(step: float) -> float:
                ahead, behind = (objective({name: value + sign * step * direction}) for sign in (1, -1))
                return (ahead - behind) / (2 * step)

            coarse, fine = quotient(2 * STEP), quotient(STEP)
            if not abs(coarse - fine) <= 1e-6 * (abs(fine) + np.linalg.norm(gradient)) + noise:
                continue
            along = np.vdot(gradient, direction)
            allowed = (DIFFERENCES + TOLERANCE[dtype]) * (np.linalg.norm(gradient) + abs(fine)) + noise
            if not abs(along - fine) <= allowed:
                allowed += ALLOWANCE * max(np.linalg.norm(each[name] - gradient) for each in backward_pass.disturbed())
            if not abs(along - fine) <= allowed:
                return f"grad_{name}: {along!r} along a direction by the reference, {fine!r} by differences, {abs(along - fine) / allowed:.3g} × what is allowed"
            break
    return ""
