"""What is traced and compiled again, and what a call costs."""

import functools
import sys
import weakref

import pytest
from flex_cases import alibi, causal, check_rows, eager, expected, mask_of, tensors  # noqa: F401

import attn
import attn.flex.attention as implementation

torch = pytest.importorskip("torch")


class Counter:
    """How many functions were traced and how many kernels compiled since it was last asked."""

    def __init__(self, monkeypatch):
        self.traced = self.compiled = 0
        for name, module, count in (
            ("trace", implementation, "traced"),
            ("compile", implementation.kernels, "compiled"),
        ):
            monkeypatch.setattr(module, name, functools.partial(self._call, count, getattr(module, name)))

    def _call(self, count, function, *args, **kwargs):
        setattr(self, count, getattr(self, count) + 1)
        return function(*args, **kwargs)

    def __call__(self):
        counts = self.traced, self.compiled
        self.traced = self.compiled = 0
        return counts


@pytest.fixture
def empty_caches(monkeypatch):
    monkeypatch.setattr(implementation, "_COMPILED", {})
    monkeypatch.setattr(implementation, "_OPERATORS", {})


@pytest.fixture
def counts(monkeypatch, empty_caches):
    return Counter(monkeypatch)


@pytest.fixture
def inputs_of_kernels(monkeypatch, empty_caches):
    """Nothing is compiled: a kernel returns its inputs."""
    monkeypatch.setattr(implementation.kernels, "compile", lambda source, lazy: source)
    monkeypatch.setattr(implementation, "torch_operator", lambda source: lambda *tensors: tensors)
    return Counter(monkeypatch)


def test_new_lengths_and_values_compile_nothing(counts):
    attn.flex_attention(*tensors(63), alibi(4), causal)
    assert counts() == (2, 1)
    for length in (1, 7, 64):
        inputs, score_mod = tensors(length), alibi(4)
        check_rows(attn.flex_attention(*inputs, score_mod, causal), expected(*inputs, score_mod, causal)[0], 2e-6)
    attn.flex_attention(*tensors(7, heads=8, batch=1, size=32), alibi(8), mask_of(causal, 7, 7))
    assert counts() == (0, 0)


def window(size):
    return lambda b, h, q_idx, kv_idx: q_idx - kv_idx < size


def test_a_captured_number_is_a_constant(inputs_of_kernels):
    inputs, counts = tensors(7), inputs_of_kernels
    attn.flex_attention(*inputs, None, window(2))
    attn.flex_attention(*inputs, None, window(2))
    assert counts() == (1, 1)
    attn.flex_attention(*inputs, None, window(3))
    attn.flex_attention(*inputs, None, window(3.0))
    assert counts() == (2, 2)
    attn.flex_attention(*inputs, None, window(torch.tensor(2)))
    assert counts() == (1, 1)
    assert attn.flex_attention(*inputs, None, window(torch.tensor(3)))[3] == 3
    assert counts() == (0, 0)
    attn.flex_attention(*inputs, None, window(torch.tensor(3.0)))
    attn.flex_attention(*inputs, None, window(torch.tensor(3)), scale=0.5)
    assert counts() == (2, 2)


FACTOR = 2.0


def test_a_global_number_is_a_constant(inputs_of_kernels, monkeypatch):
    def scaled(score, b, h, q_idx, kv_idx):
        return score * FACTOR

    for factor, expected_counts in ((2.0, (1, 1)), (2.0, (0, 0)), (-0.0, (1, 1)), (0.0, (1, 1)), (2.0, (0, 0))):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        attn.flex_attention(*tensors(7), scaled)
        assert inputs_of_kernels() == expected_counts


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.ones(4), requires_grad=False)

    def score_mod(self, score, b, h, q_idx, kv_idx):
        return score - self.slopes[h] * (q_idx - kv_idx).abs()


def test_what_is_reached_through_an_object_is_traced_each_time(inputs_of_kernels):
    model, inputs = Model(), tensors(7)
    assert attn.flex_attention(*inputs, model.score_mod)[3] is model.slopes
    assert inputs_of_kernels() == (1, 1)
    model.slopes = torch.nn.Parameter(torch.zeros(4), requires_grad=False)
    assert attn.flex_attention(*inputs, model.score_mod)[3] is model.slopes
    assert inputs_of_kernels() == (1, 0)


def test_partial_functions_lists_and_functions_within(inputs_of_kernels):
    def score_mod(slopes, limits, score, b, h, q_idx, kv_idx):
        def distance():
            return torch.minimum(q_idx - kv_idx, limits["most"][0])

        return score - slopes[h] * distance()

    for slopes, limit in ((torch.ones(4), torch.tensor(3)), (torch.zeros(4), torch.tensor(4))):
        found = attn.flex_attention(*tensors(7), functools.partial(score_mod, slopes, {"most": [limit]}))
        assert found[3] is slopes and found[4] is limit
    assert inputs_of_kernels() == (1, 1)


def test_one_tensor_in_two_places_is_one_parameter(inputs_of_kernels):
    def same(first, second):
        return lambda b, h, q_idx, kv_idx: first[q_idx] == second[kv_idx]

    first, second = torch.arange(7), torch.zeros(7, dtype=torch.int64)
    assert len(attn.flex_attention(*tensors(7), None, same(first, first))) == 4
    found = attn.flex_attention(*tensors(7), None, same(first, second))
    assert found[3] is first and found[4] is second
    assert inputs_of_kernels() == (2, 2)


def test_nothing_captured_is_kept_alive(inputs_of_kernels):
    table = torch.zeros(9)
    attn.flex_attention(*tensors(7), lambda score, b, h, q_idx, kv_idx: score + table[q_idx])
    reference = weakref.ref(table)
    del table
    assert reference() is None


def calls_of(function):
    """How many functions, of Python and of C, a call of `function` calls."""
    events = []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    function()
    sys.setprofile(None)
    return events.count("call") + events.count("c_call")


def test_a_later_call_costs_little_over_the_kernel(empty_caches):
    query, key, value = tensors(8, heads=1, batch=1)
    score_mod = alibi(1)
    slopes = score_mod.__closure__[0].cell_contents

    def call():
        attn.flex_attention(query, key, value, score_mod, causal)

    assert calls_of(call) > 1000  # the first traces and compiles
    compiled = list(implementation._COMPILED.values())[-1]
    assert calls_of(call) - calls_of(lambda: compiled.operator.kernel(query, key, value, slopes)) < 100
