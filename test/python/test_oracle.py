"""The oracle itself: that it sees what is wrong, makes it small, and draws the same from the same seed."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from oracle import check, data, evaluate, generate, gradient, shrink

SPECS = range(200)


class Spoiled:
    """A kernel that behaves, except that `spoil` changes its first output; and that of its reference, if `both` are to."""

    def __init__(self, kernel, spoil, both=False):
        self.kernel, self.inputs, self.outputs, self.spoil = kernel, kernel.inputs, kernel.outputs, spoil
        self.reference = partial(self.spoiled, kernel.reference) if both else kernel.reference

    def __call__(self, **arguments):
        return self.spoiled(self.kernel, **arguments)

    def spoiled(self, method, **arguments):
        outputs = check.as_arrays(method(**arguments))
        self.spoil(outputs[0])
        return tuple(outputs)


@pytest.fixture
def case():
    return data.draw_case(generate.generate(3), 3)


def spoil_with(monkeypatch, spoil):
    compile = check.attn.compile
    monkeypatch.setattr(check.attn, "compile", lambda text: Spoiled(compile(text), spoil))


def one_number(output):
    if output.size:
        output.flat[-1] += 1 if output.dtype.kind != "b" else True


def test_the_same_seed_gives_the_same_spec_sizes_and_values():
    for seed in SPECS:
        first, second = (data.draw_case(generate.generate(seed), seed) for _ in range(2))
        assert first == second and first.spec.text() == second.spec.text()
    a, b = (data.draw_arguments(first) for _ in range(2))
    assert all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)


def test_numpy_evaluates_every_spec():
    for seed in SPECS:
        spec = generate.generate(seed)
        case = data.draw_case(spec, seed)
        inputs = data.with_defaults(spec, data.draw_arguments(case))
        assert len(evaluate.evaluate(spec, case.all_sizes, inputs)) == len(spec.outputs)


def test_an_agreeing_kernel_has_no_failure(case):
    assert check.check(case) is None


def test_one_wrong_number_is_a_difference(case, monkeypatch):
    spoil_with(monkeypatch, one_number)
    failure = check.check(case)
    assert failure.kind == "difference" and "by the kernel" in failure.text


def test_a_wrong_nan_is_a_difference(case, monkeypatch):
    spoil_with(monkeypatch, lambda output: output.fill(np.nan))
    assert check.check(case).kind == "difference"


def test_a_spec_that_the_compiler_refuses_is_a_failure(case, monkeypatch):
    monkeypatch.setattr(type(case.spec), "text", lambda self: "attention fuzz(q: f32[M]) {\n  return out\n}\n")
    assert check.check(case).kind == "refused"


def test_agreeing_gradients_have_no_failure(case):
    assert gradient.check_gradient(case) is None


def spoil_gradients_with(monkeypatch, spoil, both=False):
    compile = gradient.attn.compile

    def compiled(text, lazy):
        kernel = compile(text, lazy=lazy)
        forward, backward = kernel.grad()
        return SimpleNamespace(outputs=kernel.outputs, grad=lambda: (forward, Spoiled(backward, spoil, both)))

    monkeypatch.setattr(gradient.attn, "compile", compiled)


def test_one_wrong_element_of_a_gradient_is_a_difference(case, monkeypatch):
    spoil_gradients_with(monkeypatch, one_number)
    failure = gradient.check_gradient(case)
    assert failure.kind == "difference" and "by the kernel" in failure.text


def test_a_gradient_of_another_function_is_no_reference(case, monkeypatch):
    def double(array):
        array *= 2

    spoil_gradients_with(monkeypatch, double, both=True)
    failure = gradient.check_gradient(case)
    assert failure.kind == "reference" and "by differences" in failure.text


def test_a_failing_case_becomes_small():
    case = next(each for seed in SPECS if "tanh" in (each := data.draw_case(generate.generate(seed), seed)).spec.text())
    small = shrink.shrink(case, lambda each: "tanh" in each.spec.text(), seconds=30)
    assert len(small.spec.statements) == 1 and len(small.spec.outputs) == 1
    assert sum(size for _, size in small.sizes) == 0 and small.plain


def test_philox_is_the_published_one():
    # Random123's known answers for philox4x32-10: a counter and a key of zeros.
    assert evaluate.philox(np.array([0]), 0)[0] == 0x6627E8D5
