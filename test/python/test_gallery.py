"""Every file of examples/ against its formula: float64 NumPy, and PyTorch where it has the same thing."""

import inspect

import formulas
import gallery_formulas
import numpy as np
import pytest
from conftest import EXAMPLES
from gallery_cases import CASES, SIZES
from oracle.memory import beside_unreadable_memory

import attn

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.attn"))
NARROW = {name: ("bf16", "f16")[number % 2] for number, name in enumerate(NAMES)}  # each name in one of the two
NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "i64": np.int64, "i32": np.int32, "i8": np.int8, "bool": np.bool_}

# What an element may differ by, relative to its row. In f32 a score of some units has an error of some 1e-7, which its weight
# inherits as a relative error, and sums over 2000 keys in another order add as much again. Narrow outputs are rounded once
# (half a unit in the last place: 2^-9 and 2^-12), and a kernel may round its weights to the same dtype before it multiplies.
TOLERANCE = {"f32": 2e-6, "bf16": 2.0**-8, "f16": 2.0**-11, "f64": 1e-13}
# Means of values are as exact as the values are large: a mean near 0 is no more exact than the numbers that it is made of.
VALUES = {"v", "pattern", "x", "part"}
WEIGHTS = {"weight", "kept"}


def compile_example(name, dtype):
    return attn.compile(EXAMPLES / f"{name}.attn", kernel=name, dtype=dtype, sizes=CASES[name].fixed, lazy=False)


# Arguments with a structure that independent random numbers do not have.


def draw_sequence(sizes, generator):
    """T tokens in S sequences, some of them empty: the sequence of each token, and where the sequences start."""
    start = np.sort(np.concatenate([[0, sizes["T"]], generator.integers(0, sizes["T"] + 1, sizes["S"] - 1)]))
    return {"start": start, "sequence": np.repeat(np.arange(sizes["S"]), np.diff(start))}


def draw_tree(sizes, generator):
    tokens = np.arange(sizes["M"])
    return {"parent": np.stack([generator.integers(0, np.maximum(tokens, 1)) for _ in range(sizes["B"])])}


def draw_angles(sizes, generator):
    angle = np.arange(sizes["N"])[:, None] * 10000.0 ** (-2 * np.arange(sizes["D"] // 2) / sizes["D"])
    return {"cosine": np.cos(angle), "sine": np.sin(angle)}


def draw_missing(name, shape):
    """Normal numbers, one in five of them −inf."""

    def draw(sizes, generator):
        wanted = [sizes[letter] for letter in shape]
        return {name: np.where(generator.random(wanted) < 0.2, -np.inf, generator.standard_normal(wanted))}

    return draw


def draw_edges(sizes, generator):
    return {"edge": (generator.random((sizes["N"], sizes["N"])) < 0.3) | np.eye(sizes["N"], dtype=bool)}


STRUCTURED = {
    "ragged": draw_sequence,
    "tree": draw_tree,
    "rotary": draw_angles,
    "dense_bias": draw_missing("bias", "BHMN"),
    "merge": draw_missing("lse", "SBHM"),
    "graph": draw_edges,
}


def draw_values(case, info, shape, sizes, generator):
    if info.name in case.values:
        low, high = (eval(bound, {"__builtins__": {}}, sizes) for bound in case.values[info.name])
        if isinstance(low, float):
            return generator.uniform(low, high, shape)
        return generator.integers(low, high, shape, endpoint=True)
    if info.dtype == "bool":
        return generator.random(shape) < 0.6
    return case.scale.get(info.name, 1.0) * generator.standard_normal(shape)


def stored(values, dtype, narrow):
    """An array of the kernel's dtype, and its numbers as the formula sees them. bf16 is PyTorch's; then all arrays are."""
    if narrow != "bf16":
        array = np.asarray(values, NUMPY[dtype])
        return array, array.astype(np.float64) if array.dtype.kind == "f" else array
    import torch

    array = torch.from_numpy(np.asarray(values, NUMPY.get(dtype, np.float32)))
    if dtype == "bf16":
        array = array.to(torch.bfloat16)
    return array, array.double().numpy() if array.is_floating_point() else array.numpy()


def draw(name, kernel, number, narrow="f32"):
    """Arguments for the kernel, which can read nothing after them, or before them, and the same for the formula."""
    case, generator = CASES[name], np.random.default_rng(number)
    sizes = case.sizes_of(number)
    structured = STRUCTURED.get(name, lambda *_: {})(sizes, generator)
    arguments, numbers = {}, {}
    for info in kernel.inputs:
        if not info.shape and info.name not in case.values:
            continue  # its default
        shape = [eval(size, {"__builtins__": {}}, sizes) for size in info.shape]
        values = structured.get(info.name)
        if values is None:
            values = draw_values(case, info, shape, sizes, generator)
        if info.shape:
            array, numbers[info.name] = stored(values, info.dtype, narrow)
            arguments[info.name] = beside_unreadable_memory(array, begins=number % 2 == 1)
        else:
            arguments[info.name] = numbers[info.name] = values.item() if isinstance(values, np.ndarray) else values
            if info.dtype == "f32":
                numbers[info.name] = float(np.float32(arguments[info.name]))
    return arguments, numbers


def formula(name):
    return getattr(gallery_formulas, name, None) or getattr(formulas, name)


def expected_of(name, numbers):
    function = formula(name)
    fixed = {key: value for key, value in CASES[name].fixed.items() if key in inspect.signature(function).parameters}
    result = function(**numbers, **fixed)
    return result if isinstance(result, tuple) else (result,)


def as_numpy(array):
    return array.astype(np.float64) if isinstance(array, np.ndarray) else array.double().numpy()


def assert_close(info, found, expected, numbers, worse=1.0):
    found = as_numpy(found)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    exact = found == expected  # infinities too
    finite = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    row = finite.max(-1, keepdims=True, initial=0.0) if expected.ndim else finite
    if info.name in WEIGHTS:
        least = 0.0
    else:
        least = max([np.abs(numbers[value]).max(initial=0.0) for value in VALUES & set(numbers)], default=1.0)
        least = least if info.name in ("out", "y", "new") else 1.0
    with np.errstate(invalid="ignore"):
        error = np.where(exact, 0.0, np.abs(found - expected) / np.maximum(row, least))
    worst = np.unravel_index(np.argmax(error), error.shape) if error.size else ()
    largest = error[worst] if error.size else 0.0
    place = list(map(int, worst))
    limit = worse * TOLERANCE[info.dtype]
    assert largest <= limit, f"{info}: error {largest:.3g} at {place}: {found[worst]}, not {expected[worst]}"


def check(name, kernel, number, narrow, expected_of=expected_of):
    arguments, numbers = draw(name, kernel, number, narrow)
    found, expected = kernel(**arguments), expected_of(name, numbers)
    found = (found,) if len(kernel.outputs) == 1 else found
    assert len(found) == len(expected) == len(kernel.outputs)
    for info, output, wanted in zip(kernel.outputs, found, expected):
        assert_close(info, output, wanted, numbers, CASES[name].worse)


def test_every_example_is_in_the_table():
    assert NAMES == sorted(CASES)


WITH_FORMULA = [name for name in NAMES if name != "dropout"]  # which has a test of its own


@pytest.mark.parametrize("number", range(len(SIZES)), ids=["ones", "odd", "few_keys", "many_keys"])
@pytest.mark.parametrize("name", WITH_FORMULA)
def test_agrees_with_its_formula(name, number):
    check(name, compile_example(name, "f32"), number, "f32")


@pytest.mark.parametrize("name", WITH_FORMULA)
def test_agrees_with_its_formula_in_16_bits(name):
    if NARROW[name] == "bf16":
        pytest.importorskip("torch")
    kernel = compile_example(name, NARROW[name])
    for number in range(len(SIZES)):
        check(name, kernel, number, NARROW[name])


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_dropout_keeps_or_drops_every_weight(number):
    kernel = compile_example("dropout", "f32")
    arguments, numbers = draw("dropout", kernel, number)
    out, kept = kernel(**arguments)
    weight = formulas.softmax(gallery_formulas.dot(numbers["q"], numbers["k"]))
    drops = kept == 0
    assert_close(kernel.outputs[1], kept, np.where(drops, 0.0, weight / (1 - numbers["p"])), numbers)
    assert_close(kernel.outputs[0], out, kept.astype(np.float64) @ numbers["v"], numbers)
    deviation = np.sqrt(numbers["p"] * (1 - numbers["p"]) / drops.size)
    assert abs(drops.mean() - numbers["p"]) <= 5 * deviation
    again = kernel(**arguments)
    np.testing.assert_array_equal(again[0], out)
    assert drops.size < 9 or (kernel(**{**arguments, "seed": 1000})[1] != kept).any()


# The same thing in PyTorch, in double precision.


def sdpa(mask=None, **options):
    def function(numbers):
        import torch

        q, k, v = (torch.from_numpy(numbers[name]) for name in "qkv")
        found = mask(numbers, torch) if mask else None
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=found, **options)

    return function


def flex(score=None, mask=None):
    """score(numbers, past): a score_mod; mask(numbers, past): a mask_mod. past = N − M."""

    def function(numbers):
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        numbers = {key: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for key, value in numbers.items()}
        q, k, v = (numbers[name] for name in "qkv")
        m, n = q.shape[-2], k.shape[-2]
        blocks = create_block_mask(mask(numbers, n - m), q.shape[0], q.shape[1], m, n, device="cpu") if mask else None
        change = score(numbers, n - m) if score else None
        return flex_attention(q, k, v, score_mod=change, block_mask=blocks, enable_gqa=q.shape[1] != k.shape[1])

    return function


def torch_softcap(numbers, past):
    import torch

    return lambda s, b, h, m, n: numbers["cap"] * torch.tanh(s / numbers["cap"])


def torch_causal(numbers, past):
    return lambda b, h, m, n: n <= m + past


PYTORCH = {
    "cross": sdpa(lambda numbers, torch: torch.from_numpy(numbers["keep"])[:, None, None]),
    "dense_bias": sdpa(lambda numbers, torch: torch.from_numpy(numbers["bias"])),
    "causal": flex(mask=torch_causal),
    "grouped_query": flex(mask=torch_causal),
    "softcap": flex(score=torch_softcap, mask=torch_causal),
    "alibi": flex(
        score=lambda numbers, past: lambda s, b, h, m, n: s - numbers["slope"][h] * (m + past - n), mask=torch_causal
    ),
    "sliding_window": flex(
        mask=lambda numbers, past: lambda b, h, m, n: (n <= m + past) & (m + past - n < numbers["window"])
    ),
    "documents": flex(
        mask=lambda numbers, past: lambda b, h, m, n: (n <= m) & (numbers["document"][b, m] == numbers["document"][b, n])
    ),
    "prefix_lm": flex(mask=lambda numbers, past: lambda b, h, m, n: (n <= m) | (n < numbers["prefix"][b])),
    "dilated": flex(
        mask=lambda numbers, past: lambda b, h, m, n: (n <= m)
        & (m - n < numbers["window"] * numbers["step"])
        & ((m - n) % numbers["step"] == 0)
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", sorted(PYTORCH))
def test_agrees_with_pytorch(name):
    pytest.importorskip("torch")
    kernel = compile_example(name, "f32")
    for number in (0, 1, 2):
        check(name, kernel, number, "f32", lambda name, numbers: (np.nan_to_num(PYTORCH[name](numbers).numpy()),))
