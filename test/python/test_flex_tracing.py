"""What a score_mod and a mask_mod become, and what cannot be traced."""

import inspect
import math

import pytest
from flex_cases import causal, check, eager, tensors  # noqa: F401

import attn
import attn.flex.attention as implementation
from attn.flex.tracing import Parameters, trace

torch = pytest.importorskip("torch")
from torch.nn.attention import flex_attention as pytorch  # noqa: E402


OPERATIONS = {
    "reflected": lambda x, m, n: (1 - x) + 2 * x + 1.5 / (x * x + 1) + 2.0**x,
    "floor": lambda x, m, n: x // 0.7 + x % 0.7 + (m - n) // 3 + (m - n) % 3 + (-7) // (n + 1),
    "rounding modes": lambda x, m, n: (
        torch.div(x, 0.3, rounding_mode="trunc")
        + torch.div(m - n, 3, rounding_mode="trunc")
        + torch.div(m - n, 3, rounding_mode="floor")
    ),
    "fmod": lambda x, m, n: torch.fmod(x, 0.3) + torch.fmod(m - n, 3) + torch.remainder(n - m, 4),
    "powers": lambda x, m, n: x**2 + x**3 + (m - n) ** 2 + torch.pow(x.abs() + 0.1, 0.3) + x.square(),
    "alpha": lambda x, m, n: torch.add(x, n, alpha=2) - torch.sub(x, m, alpha=0.5),
    "sign": lambda x, m, n: x.sign() + torch.sign(m - n) + abs(x) - (-x) + (m - n).abs(),
    "rounding": lambda x, m, n: x.floor() + (3 * x).ceil() + (5 * x).trunc() + (7 * x).round() + n.floor(),
    "extremes": lambda x, m, n: (
        torch.minimum(x, x * x) + torch.maximum(m, n) + x.clamp(-0.5, 0.5) + x.clamp_min(0.2) + n.clamp(max=5)
    ),
    "where": lambda x, m, n: torch.where(m > n, x, 0.0) + torch.where(m == n, 1, n) + x.masked_fill(n > 3, 0.25),
    "where of bools": lambda x, m, n: torch.where(torch.where(x > 0, m > n, m < n), x, 1.0),
    "comparisons": lambda x, m, n: (
        (m < n) * 1 + (m <= n) * 2 + (m != n) * x + torch.ge(x, 0.5) + (x == x) + (m > n).int() * 4
    ),
    "logic": lambda x, m, n: torch.where(~((m > n) | (x < 0)) ^ (n > 2), x, 2.0) + torch.logical_and(m, n > 1) * 3.0,
    "bits": lambda x, m, n: (n & 7) + (m >> 1) + (n << 2) + ~m + ((m - n) & 3),
    "exponentials": lambda x, m, n: (
        x.exp() + torch.exp2(x) + torch.log(x.abs() + 1) + torch.log2(n + 1) + torch.log1p(n) + x.expm1()
    ),
    "roots": lambda x, m, n: torch.sqrt(n + 1) + torch.rsqrt(x.abs() + 1) + torch.reciprocal(x.abs() + 1),
    "circle": lambda x, m, n: x.sin() + torch.cos(n) + x.tanh() + torch.erf(x),
    "activations": lambda x, m, n: (
        torch.sigmoid(x) + x.relu() + torch.nn.functional.gelu(x) + torch.nn.functional.silu(x)
    ),
    "more activations": lambda x, m, n: (
        torch.nn.functional.softplus(x)
        + torch.nn.functional.gelu(x, approximate="tanh")
        + torch.nn.functional.logsigmoid(x)
    ),
    "casts": lambda x, m, n: (
        (3 * x).to(torch.int32) + (x > 0).float() + n.to(dtype=torch.float32) / 3 + (3 * x).long() // 2 + m.type_as(x)
    ),
    "constants": lambda x, m, n: (
        x * torch.tensor(0.5) + torch.zeros_like(x) + torch.full_like(x, 2.0) + x.new_ones(()) + torch.ones_like(n)
    ),
    "finite": lambda x, m, n: (
        torch.where(torch.isfinite(x / (n - m)), x, 1.0) + torch.isnan(x) * 1 + torch.isinf(1.0 / (n - m)) * 2
    ),
}


def test_operations_are_pytorchs():
    """All in one kernel: a captured tensor says which one counts."""
    chosen = torch.zeros(len(OPERATIONS))

    def score_mod(score, b, h, q_idx, kv_idx):
        total = score
        for number, operation in enumerate(OPERATIONS.values()):
            total = total + torch.where(chosen[number] > 0, operation(score, q_idx, kv_idx), 0.0)
        return total

    query, key, value = tensors(9, heads=1, batch=1)
    score = (query.double() @ key.double().mT) / 4
    m, n = torch.arange(9)[:, None], torch.arange(9)
    for number, (name, operation) in enumerate(OPERATIONS.items()):
        chosen.zero_()[number] = 1
        found = attn.flex_attention(query, key, value, score_mod, return_lse=True)[1]
        wanted = torch.logsumexp(score + operation(score, m, n), -1)
        torch.testing.assert_close(found.double(), wanted, rtol=2e-5, atol=2e-5, msg=lambda text: f"{name}: {text}")


def source_of(score_mod=None, mask_mod=None):
    """The text of the kernel."""
    form = implementation.Form(torch.float32, None, False, False, False, False)
    parameters = Parameters({})
    score, mask = (
        function and trace(role, function, parameters, torch.float32)
        for role, function in (("score_mod", score_mod), ("mask_mod", mask_mod))
    )
    return implementation.kernel_source(form, score, mask, parameters)


def test_the_text_of_a_kernel():
    slopes = torch.ones(4)
    assert source_of(lambda score, b, h, q_idx, kv_idx: score + slopes[h] * (kv_idx - q_idx), causal) == (
        "attention flex(q: f32[B, H, M, D], k: f32[B, H, N, D], v: f32[B, H, N, E], "
        "captured_tensor: f32[CAPTURED_TENSOR_0]) {\n"
        "  dot[b, h, m, n] = sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D)\n"
        "  score[b: B, h: H, m: M, n: N] = (dot[b, h, m, n] + (captured_tensor[h] * (n - m)))\n"
        "  mask[m: M, n: N] = (m >= n)\n"
        "  weight[b, h, m, n] = softmax[n](score[b, h, m, n] where mask[m, n])\n"
        "  out[b, h, m, e] = sum[n](weight[b, h, m, n] * v[b, h, n, e])\n"
        "  return out\n"
        "}\n"
    )


def test_what_is_used_twice_is_computed_once():
    def score_mod(score, b, h, q_idx, kv_idx):
        for _ in range(40):
            score = score * torch.sigmoid(score)
        return score

    source = source_of(score_mod)
    assert len(source) < 8000 and "term_1[b: B, h: H, m: M, n: N] = " in source


def test_negative_subscripts_count_from_the_end():
    bias = torch.randn(9)

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[kv_idx - q_idx] + bias[-2]

    check(*tensors(9), score_mod)


def test_subscripts_one_at_a_time_and_sizes_of_captured_tensors():
    bias, offset = torch.randn(4, 2, 80), torch.tensor(2)

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[h][b, kv_idx + offset] * (q_idx / bias.shape[2]) + bias[0, 1, bias.size(-1) - 1 - kv_idx]

    check(*tensors(63), score_mod)


@pytest.mark.parametrize(
    "dtype", [torch.int32, torch.int8, torch.uint8, torch.bool, torch.bfloat16, torch.float16, torch.float64], ids=str
)
def test_dtypes_of_captured_tensors(dtype):
    table = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    source = source_of(lambda score, b, h, q_idx, kv_idx: score + table[kv_idx % 5] * 2)
    name = implementation.DTYPES[dtype]
    assert f"captured_tensor: {name}[" in source and ("select(captured_tensor[" in source) == (dtype == torch.bool)


def line_of(function, text):
    """Where the line of a function's source that has `text` is."""
    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{first + next(number for number, line in enumerate(lines) if text in line)}: "


def branch(score, b, h, q_idx, kv_idx):
    if q_idx > kv_idx:
        return score
    return -score


def unknown_function(score, b, h, q_idx, kv_idx):
    return score + torch.cumsum(score, 0)


def unknown_method(score, b, h, q_idx, kv_idx):
    return score.erfinv()


def whole_tensor(score, b, h, q_idx, kv_idx):
    return score + TABLE


def too_many_subscripts(score, b, h, q_idx, kv_idx):
    return score + TABLE[h, q_idx, kv_idx]


def slices(score, b, h, q_idx, kv_idx):
    return score + TABLE[h, :]


def python_number(score, b, h, q_idx, kv_idx):
    return score * math.exp(q_idx)


def float_subscript(score, b, h, q_idx, kv_idx):
    return score + TABLE[h, q_idx / 2]


def unknown_dtype(score, b, h, q_idx, kv_idx):
    return score + COMPLEX[h]


def item(score, b, h, q_idx, kv_idx):
    return score * TABLE.sum().item()


def bits_of_a_float(score, b, h, q_idx, kv_idx):
    return torch.where(score & (q_idx > kv_idx), score, 0)


def new_tensor(score, b, h, q_idx, kv_idx):
    return score + torch.zeros_like(score).new_zeros((3,))


def short_integer(score, b, h, q_idx, kv_idx):
    return score + q_idx.to(torch.int16)


def shift_by_an_index(score, b, h, q_idx, kv_idx):
    return score + (q_idx << kv_idx)


def integer_power(score, b, h, q_idx, kv_idx):
    return score + 2**q_idx


def decimals(score, b, h, q_idx, kv_idx):
    return torch.round(score, decimals=2)


def nan(score, b, h, q_idx, kv_idx):
    return torch.where(q_idx < kv_idx, math.nan, score)


def no_number(score, b, h, q_idx, kv_idx):
    return score * [0.5]


def unknown_argument(score, b, h, q_idx, kv_idx):
    return torch.exp(score, out=score)


TABLE = torch.randn(4, 65)
COMPLEX = torch.randn(4, dtype=torch.complex64)


@pytest.mark.parametrize(
    ("score_mod", "line", "problem"),
    [
        (
            branch,
            "if q_idx",
            "a traced bool has no value yet: `if`, `and`, `or`, `not`, min() and max() need its value",
        ),
        (unknown_function, "cumsum", "torch.cumsum cannot be traced; arithmetic, comparisons,"),
        (unknown_method, "erfinv", "torch.Tensor.erfinv cannot be traced; arithmetic, comparisons,"),
        (
            whole_tensor,
            "TABLE",
            "captured_TABLE, a tensor of rank 2 with 0 subscripts, is used as a number: give it 2 subscripts",
        ),
        (too_many_subscripts, "TABLE", "captured_TABLE has more subscripts than its rank, which is 2"),
        (
            slices,
            "TABLE",
            "captured_TABLE is subscripted with slice(None, None, None); only single numbers can be traced",
        ),
        (python_number, "math", "a traced integer has no value yet: float() and the functions of math need its value"),
        (float_subscript, "TABLE", "captured_TABLE is subscripted with a float; only integers can be traced"),
        (unknown_dtype, "COMPLEX", "a captured tensor has dtype torch.complex64; a kernel reads float64, float32,"),
        (item, ".item()", "torch.Tensor.sum cannot be traced"),
        (bits_of_a_float, "score &", "an operand of & must be a bool, but is a float"),
        (short_integer, "int16", "dtype torch.int16 has no counterpart in a kernel"),
        (shift_by_an_index, "<<", "a shift is traced for integers and a constant number of places from 0 to 62"),
        (integer_power, "2**", "an integer to a power is traced for constant powers from 0 to 8; make one of both a float"),
        (decimals, "decimals=", "round to decimals=2 cannot be traced, only to whole numbers"),
        (nan, "math.nan", "the constant NaN cannot be traced"),
        (no_number, "[0.5]", "a number is expected, but [0.5] is of type list"),
        (unknown_argument, "out=", "torch.exp cannot be traced with these arguments: "),
        (new_tensor, "new_zeros", "a new tensor of shape (3,): only single numbers, of shape (), can be traced"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_cannot_be_traced(score_mod, line, problem):
    with pytest.raises(attn.TracingError) as error:
        attn.flex_attention(*tensors(7), score_mod)
    assert str(error.value).startswith(f"{line_of(score_mod, line)}score_mod: {problem}")
    assert isinstance(error.value, TypeError)


def test_a_mask_must_be_a_bool():
    with pytest.raises(
        attn.TracingError, match=r"test_flex_tracing.py:\d+: mask_mod: must return a bool, but returns an integer$"
    ):
        attn.flex_attention(*tensors(7), None, lambda b, h, q_idx, kv_idx: q_idx - kv_idx)


def test_a_mask_that_is_written_into_the_score():
    """It becomes a mask, so that tiles can be skipped."""
    masked = source_of(mask_mod=causal)
    assert source_of(lambda score, b, h, q_idx, kv_idx: torch.where(q_idx >= kv_idx, score, -float("inf"))) == masked
    assert source_of(mask_mod=pytorch.and_masks(pytorch.noop_mask, causal)) == masked
    assert "where" not in source_of(mask_mod=pytorch.noop_mask)
    inverted = source_of(lambda score, b, h, q_idx, kv_idx: score.masked_fill(q_idx < kv_idx, -torch.inf))
    assert "mask[m: M, n: N] = (not (m < n))" in inverted
