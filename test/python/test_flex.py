"""attn.flex_attention against PyTorch's, in its eager mode and double precision."""

import functools
import inspect
import math
import timeit
import weakref

import pytest

torch = pytest.importorskip("torch")
from torch.nn.attention import flex_attention as pytorch  # noqa: E402

import attn  # noqa: E402
import attn.flex.attention as implementation  # noqa: E402
from attn.flex.tracing import Parameters, trace  # noqa: E402

needs_gradients = pytest.mark.skipif(not hasattr(attn.Kernel, "grad"), reason="this version has no backward kernels")


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    monkeypatch.setattr(pytorch, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    torch.manual_seed(5)


def tensors(length=65, keys=None, heads=4, key_heads=None, batch=2, size=16, dtype=torch.float32):
    keys, key_heads = keys or length, key_heads or heads
    shapes = (batch, heads, length, size), (batch, key_heads, keys, size), (batch, key_heads, keys, 24)
    return tuple(torch.randn(shape).to(dtype) for shape in shapes)


def mask_of(mask_mod, length, keys):
    return mask_mod and pytorch.create_block_mask(mask_mod, None, None, length, keys, device="cpu")


def expected(query, key, value, score_mod=None, mask_mod=None, **options):
    """PyTorch's out and lse, from double precision."""
    block_mask = mask_of(mask_mod, query.shape[2], key.shape[2])
    double = [tensor.double() for tensor in (query, key, value)]
    out, aux = pytorch.flex_attention(
        *double, score_mod, block_mask, return_aux=pytorch.AuxRequest(lse=True), **options
    )
    return out, aux.lse


def check_rows(found, wanted, tolerance):
    """The error of each row is at most `tolerance` of the row's largest number."""
    finite = torch.where(wanted.isfinite(), wanted, 0)
    assert torch.equal(found.isinf(), wanted.isinf()) and not found.isnan().any()
    error = (torch.where(found.isfinite(), found.double(), 0) - finite).abs().amax(-1)
    assert (error <= tolerance * finite.abs().amax(-1)).all(), (error / finite.abs().amax(-1)).max()


def check(query, key, value, score_mod=None, mask_mod=None, tolerance=2e-6, **options):
    block_mask = mask_of(mask_mod, query.shape[2], key.shape[2])
    out, lse = attn.flex_attention(query, key, value, score_mod, block_mask, return_lse=True, **options)
    wanted, wanted_lse = expected(query, key, value, score_mod, mask_mod, **options)
    assert out.dtype == query.dtype and out.shape == wanted.shape
    assert lse.dtype == (torch.float64 if query.dtype == torch.float64 else torch.float32)
    check_rows(out, wanted, tolerance)
    check_rows(lse, wanted_lse, max(tolerance / 8, 2e-6 if query.dtype != torch.float64 else 0))


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def sliding_window(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 9)


def dilated(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & ((q_idx - kv_idx) % 3 == 0)


def no_key_for_some(b, h, q_idx, kv_idx):
    return (kv_idx < 30) & (q_idx % 5 != b)


def softcap(score, b, h, q_idx, kv_idx):
    return 20.0 * torch.tanh(score / 20.0)


def tanh(score, b, h, q_idx, kv_idx):
    return score.tanh()


def documents(length):
    document = torch.arange(length) // 20

    def same_document(b, h, q_idx, kv_idx):
        return document[q_idx] == document[kv_idx]

    return pytorch.and_masks(causal, same_document)


def prefix_lm(length):
    prefix = torch.tensor([3, 40], dtype=torch.int32)

    def either(b, h, q_idx, kv_idx):
        return kv_idx < prefix[b]

    return pytorch.or_masks(causal, either)


def alibi(heads):
    slopes = torch.exp2(-8 * torch.arange(1, heads + 1) / heads)

    def add_bias(score, b, h, q_idx, kv_idx):
        return score + slopes[h] * (kv_idx - q_idx)

    return add_bias


def relative_bias(heads, length):
    bias = torch.randn(heads, 2 * length - 1)

    def add_bias(score, b, h, q_idx, kv_idx):
        return score + bias[h, kv_idx - q_idx + length - 1]

    return add_bias


@pytest.mark.parametrize("length", [1, 7, 63, 65])
@pytest.mark.parametrize(
    "mask_mod",
    [None, causal, sliding_window, dilated, no_key_for_some],
    ids=lambda each: getattr(each, "__name__", "full"),
)
def test_masks(mask_mod, length):
    check(*tensors(length), mask_mod=mask_mod)


@pytest.mark.parametrize("length", [7, 65])
@pytest.mark.parametrize("make", [documents, prefix_lm])
def test_masks_that_read_captured_tensors(make, length):
    check(*tensors(length), mask_mod=make(length))


@pytest.mark.parametrize(
    "score_mod", [softcap, tanh, alibi(4), relative_bias(4, 65)], ids=["softcap", "tanh", "alibi", "relative_bias"]
)
def test_scores(score_mod):
    for length in (1, 63, 65):
        check(*tensors(length), score_mod)


def test_a_score_and_a_mask_together():
    check(*tensors(63), alibi(4), sliding_window)


def test_queries_and_keys_of_different_lengths():
    check(*tensors(7, keys=63), mask_mod=causal)
    check(*tensors(63, keys=7), mask_mod=causal)


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_grouped_heads(key_heads):
    check(*tensors(63, key_heads=key_heads), alibi(4), enable_gqa=True)


def test_one_batch_of_keys_for_all_queries():
    query, key, value = tensors(63)
    block_mask = pytorch.create_block_mask(causal, 2, None, 63, 63, device="cpu")
    out = attn.flex_attention(query, key[:1], value[:1], block_mask=block_mask)
    wanted = pytorch.flex_attention(query.double(), key[:1].double(), value[:1].double(), block_mask=block_mask)
    check_rows(out, wanted, 2e-6)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)], ids=str
)
def test_dtypes(dtype, tolerance):
    check(*tensors(63, dtype=dtype), mask_mod=causal, tolerance=tolerance)


def test_scale():
    check(*tensors(63), mask_mod=causal, scale=0.5)


def test_a_query_that_sees_no_key():
    out, lse = attn.flex_attention(*tensors(7), None, no_key_for_some, return_lse=True)
    for batch in (0, 1):
        rows = torch.arange(7) % 5 == batch
        assert (
            (out[batch, :, rows] == 0).all()
            and (lse[batch, :, rows] == -math.inf).all()
            and lse[batch, :, ~rows].isfinite().all()
        )


def test_a_mask_that_is_written_into_the_score():
    """It becomes a mask, so that tiles can be skipped."""
    masked = source_of(mask_mod=causal)
    assert source_of(lambda score, b, h, q_idx, kv_idx: torch.where(q_idx >= kv_idx, score, -float("inf"))) == masked
    assert source_of(mask_mod=pytorch.and_masks(pytorch.noop_mask, causal)) == masked
    assert "where" not in source_of(mask_mod=pytorch.noop_mask)
    inverted = source_of(lambda score, b, h, q_idx, kv_idx: score.masked_fill(q_idx < kv_idx, -torch.inf))
    assert "mask[m: M, n: N] = (not (m < n))" in inverted


def test_what_is_returned():
    query, key, value = tensors(63)
    wanted, wanted_lse = expected(query, key, value)
    request = pytorch.AuxRequest(lse=True, max_scores=True)  # PyTorch itself has max_scores on GPUs only
    out, aux = attn.flex_attention(query, key, value, return_aux=request)
    assert isinstance(aux, pytorch.AuxOutput)
    check_rows(out, wanted, 2e-6)
    check_rows(aux.lse, wanted_lse, 2e-6)
    check_rows(aux.max_scores, (query.double() @ key.double().mT / 4).amax(-1), 2e-6)
    assert isinstance(attn.flex_attention(query, key, value), torch.Tensor)
    out, aux = attn.flex_attention(query, key, value, return_aux=pytorch.AuxRequest())
    assert aux == pytorch.AuxOutput(lse=None, max_scores=None)
    with pytest.raises(ValueError, match="return_lse: must not be given with return_aux"):
        attn.flex_attention(query, key, value, return_lse=True, return_aux=request)


def test_tensors_that_are_not_contiguous():
    query, key, value = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors(63))
    check(query, key, value.flip(-1), mask_mod=causal)


def test_autocast():
    query, key, value = tensors(63)
    with torch.autocast("cpu", torch.bfloat16):
        out, lse = attn.flex_attention(query, key, value, block_mask=causal, return_lse=True)
    assert lse.dtype == torch.float32 and out.dtype == torch.bfloat16
    check_rows(out, expected(query, key, value, mask_mod=causal)[0], 2e-2)


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
        attn.TracingError, match=r"test_flex.py:\d+: mask_mod: must return a bool, but returns an integer$"
    ):
        attn.flex_attention(*tensors(7), None, lambda b, h, q_idx, kv_idx: q_idx - kv_idx)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda q, k, v: (q[0], k, v),
            ValueError,
            "query: must have 4 dimensions, (batch, heads, length, size), but has 3",
        ),
        (
            lambda q, k, v: (q, k[:, :2], v[:, :2]),
            ValueError,
            "key: must have query's 4 heads, but has 2; give enable_gqa=True where heads share keys",
        ),
        (lambda q, k, v: (q, k, v[:, :2]), ValueError, "value: must have key's 4 heads, but has 2"),
        (
            lambda q, k, v: (q, k.double(), v),
            TypeError,
            "key: dtype must be query's, torch.float32, but is torch.float64",
        ),
        (
            lambda q, k, v: (q.int(), k, v),
            TypeError,
            "query: dtype must be float64, float32, bfloat16 or float16, but is torch.int32",
        ),
        (lambda q, k, v: (q, k.numpy(), v), TypeError, "key: must be a torch.Tensor, but is of type ndarray"),
    ],
)
def test_inputs_that_do_not_fit(change, error, message):
    with pytest.raises(error) as raised:
        attn.flex_attention(*change(*tensors(7)))
    assert str(raised.value) == message


def test_heads_must_divide():
    with pytest.raises(ValueError, match="^key: the number of its heads must divide query's, 4, but is 3$"):
        attn.flex_attention(*tensors(7, key_heads=3), enable_gqa=True)


def test_a_captured_tensor_that_is_too_short():
    with pytest.raises(ValueError, match="captured_slopes"):
        attn.flex_attention(*tensors(7), alibi(3), return_lse=True)


class Counter:
    """How many functions were traced and how many kernels compiled since it was last asked."""

    def __init__(self, monkeypatch):
        self.traced = self.compiled = 0
        for name, module, count in (
            ("trace", implementation, "traced"),
            ("compile", implementation.kernels, "compiled"),
        ):
            monkeypatch.setattr(module, name, functools.partial(self._call, count, getattr(module, name)))

    def _call(self, count, function, *args):
        setattr(self, count, getattr(self, count) + 1)
        return function(*args)

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
    monkeypatch.setattr(implementation.kernels, "compile", lambda source: source)
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


def test_a_later_call_costs_little_over_the_kernel():
    query, key, value = tensors(8, heads=1, batch=1)
    score_mod = alibi(1)
    slopes = score_mod.__closure__[0].cell_contents

    def fastest(call):
        return min(timeit.repeat(call, number=200, repeat=15)) / 200

    total = fastest(lambda: attn.flex_attention(query, key, value, score_mod, causal))
    compiled = list(implementation._COMPILED.values())[-1]
    assert (
        total - fastest(lambda: compiled.operator.kernel(query, key, value, slopes)) < 100e-6
    )  # 25 µs on an idle machine


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("slopes", torch.rand(4))

    def forward(self, query, key, value):
        def score_mod(score, b, h, q_idx, kv_idx):
            return score + self.slopes[h] * (kv_idx - q_idx)

        return 2 * attn.flex_attention(2 * query, key, value, score_mod)


def test_compile_and_export():
    model, inputs = Attention(), tensors(7)
    wanted = model(*inputs)
    torch.testing.assert_close(torch.compile(model, backend="eager")(*inputs), wanted)
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(model, inputs, dynamic_shapes=({2: length}, None, None), strict=False)
    assert "torch.ops.attn.flex_" in program.graph_module.code
    torch.testing.assert_close(program.module()(*inputs), wanted)


HEADS = "q: f32[B, H, M, D], k: f32[B, H, N, D], v: f32[B, H, N, E], captured_slopes: f32[S]"
SCORE = "sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D) + captured_slopes[h] * (n - m)"
BY_HAND = (
    f"""
attention flex_forward({HEADS}) {{
  score[b, h: H, m, n] = {SCORE}
  weight[b, h: H, m, n] = softmax[n](score[b, h, m, n])
  out[b, h, m, e] = sum[n](weight[b, h, m, n] * v[b, h, n, e])
  saved[b, h: H, m]: f32 = logsumexp[n](score[b, h, m, n])
  return out, saved
}}
""",
    f"""
attention flex_backward({HEADS}, out: f32[B, H, M, E], saved: f32[B, H, M], grad_out: f32[B, H, M, E]) {{
  weight[b, h: H, m, n] = exp({SCORE} - saved[b, h, m])
  delta[b, h, m] = sum[e](grad_out[b, h, m, e] * out[b, h, m, e])
  grad_score[b, h: H, m, n] = weight[b, h, m, n] * (sum[e](grad_out[b, h, m, e] * v[b, h, n, e]) - delta[b, h, m])
  grad_q[b, h, m, d] = sum[n](grad_score[b, h, m, n] * k[b, h, n, d]) / sqrt(D)
  grad_captured_slopes[h: S] = sum[b, m, n](grad_score[b, h, m, n] * (n - m))
  return grad_q, grad_captured_slopes
}}
""",
)


def test_gradients_come_from_the_kernels_grad(monkeypatch):
    """Of a query and a captured tensor, by backward kernels that are written by hand."""
    asked = []

    def grad(self, inputs=None):
        asked.append(inputs)
        return tuple(map(attn.compile, BY_HAND))

    monkeypatch.setattr(attn.Kernel, "grad", grad, raising=False)
    query, key, value = tensors(9, size=8)
    score_mod = alibi(4)
    slopes = score_mod.__closure__[0].cell_contents.requires_grad_()
    query.requires_grad_()
    weight = torch.randn(2, 4, 9, 24)
    out = attn.flex_attention(query, key, value, score_mod)
    found = torch.autograd.grad((out * weight).sum(), (query, slopes))
    distance = torch.arange(9) - torch.arange(9)[:, None]
    score = query @ key.mT / math.sqrt(8) + slopes[:, None, None] * distance
    wanted = torch.autograd.grad(((torch.softmax(score, -1) @ value) * weight).sum(), (query, slopes))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert asked == [["q", "captured_slopes"]]


@needs_gradients
@pytest.mark.parametrize("case", ["causal", "alibi", "relative_bias", "softcap", "no_key"])
def test_gradients(case):
    query, key, value = inputs = tensors(33, dtype=torch.float64)
    score_mods = {"alibi": alibi(4), "relative_bias": relative_bias(4, 33), "softcap": softcap}
    score_mod = score_mods.get(case)
    mask_mod = {"causal": causal, "no_key": no_key_for_some}.get(case)
    learned = [cell.cell_contents for cell in (score_mod.__closure__ or ())] if score_mod else []
    leaves = [*inputs, *(each for each in learned if isinstance(each, torch.Tensor))]
    for leaf in leaves:
        leaf.requires_grad_()
    weight = torch.randn(2, 4, 33, 24, dtype=torch.float64)
    found = torch.autograd.grad((attn.flex_attention(query, key, value, score_mod, mask_mod) * weight).sum(), leaves)
    b, h, m, n = (torch.arange(size).reshape([-1] + [1] * after) for size, after in ((2, 3), (4, 2), (33, 1), (33, 0)))
    score = query @ key.mT / 4
    score = score_mod(score, b, h, m, n) if score_mod else score
    if mask_mod:
        score = score.masked_fill(~mask_mod(b, h, m, n), -math.inf)
    wanted = torch.autograd.grad(((torch.softmax(score, -1).nan_to_num() @ value) * weight).sum(), leaves)
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
