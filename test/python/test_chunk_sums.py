"""Linear attention over what comes before a token: pairs of one chunk are visited, the keys of other chunks come to a matrix.
Every form is compared with the textbook's, for numbers of tokens about those of whole chunks (96)."""

import re

import numpy as np
import pytest

import attn

torch = pytest.importorskip("torch")
from formula_checks import assert_equals_formula, random_inputs  # noqa: E402

HEADS = "q: f32[B, H, N, D], k: f32[B, H, N, D], v: f32[B, H, N, E]"
WEIGHTS = """fq[b, h, n, d] = exp(q[b, h, n, d])
  fk[b, h, n, d] = exp(k[b, h, n, d])
  w[b, h, m, n] = sum[d](fq[b, h, m, d] * fk[b, h, n, d])"""


def pairs(q, k):
    return q.exp() @ k.exp().transpose(-1, -2)


def normalised(q, k, v):
    weights = pairs(q, k).tril()
    return weights @ v / weights.sum(-1, keepdim=True)


def only_valid(q, k, v, valid):
    weights = pairs(q, k).tril() * (torch.arange(k.shape[-2]) < valid[:, None, None, None])
    return weights @ v


def decayed(q, k, v, decay):
    """decay: of neighbours, for each head."""
    position = torch.arange(q.shape[-2])
    distance = position[:, None] - position
    return (q @ k.transpose(-1, -2) * decay[:, None, None] ** distance.abs()).tril() @ v


def taylor(q, k, v):
    weights = (1 + q @ k.transpose(-1, -2) * 0.5).tril()
    return weights @ v


def grouped(q, k, v, a):
    """Tokens before heads, of which two share a key."""
    weights = torch.einsum("bmhd,bnhd->bhmn", q, k.repeat_interleave(2, 2)).tril()
    return torch.einsum("bhmn,bnhe->bmhe", weights, v.repeat_interleave(2, 2)) * a[..., None]


CASES = {
    "weights": (
        f"""attention linear({HEADS}) {{
  {WEIGHTS}
  out[b, h, m, e] = sum[n](w[b, h, m, n] * v[b, h, n, e] where n <= m) / sum[n](w[b, h, m, n] where n <= m)
  return out
}}""",
        normalised,
    ),
    "a running state": (
        f"""attention linear({HEADS}) {{
  fq[b, h, n, d] = exp(q[b, h, n, d])
  fk[b, h, n, d] = exp(k[b, h, n, d])
  state[b, h, n, d, e] = sum[i: N](fk[b, h, i, d] * v[b, h, i, e] where i <= n)
  total[b, h, n, d] = sum[i: N](fk[b, h, i, d] where i <= n)
  out[b, h, n, e] = sum[d](fq[b, h, n, d] * state[b, h, n, d, e]) / sum[d](fq[b, h, n, d] * total[b, h, n, d])
  return out
}}""",
        normalised,
    ),
    "keys before": (
        f"""attention linear({HEADS}) {{
  out[b, h, m, e] = sum[n](sum[d](q[b, h, m, d] * k[b, h, n, d]) * v[b, h, n, e] where n < m)
  return out
}}""",
        lambda q, k, v: (q @ k.transpose(-1, -2)).tril(-1) @ v,
    ),
    "keys from a row on": (
        f"""attention linear({HEADS}) {{
  out[b, h, m, e] = sum[n](sum[d](q[b, h, m, d] * k[b, h, n, d]) * v[b, h, n, e] where m <= n)
  return out
}}""",
        lambda q, k, v: (q @ k.transpose(-1, -2)).triu() @ v,
    ),
    "keys after": (
        f"""attention linear({HEADS}) {{
  out[b, h, m, e] = sum[n](sum[d](q[b, h, m, d] * k[b, h, n, d]) * v[b, h, n, e] where n > m)
  return out
}}""",
        lambda q, k, v: (q @ k.transpose(-1, -2)).triu(1) @ v,
    ),
    "a constant beside the product": (
        f"""attention linear({HEADS}) {{
  w[b, h, m, n] = 1.0 + sum[d](q[b, h, m, d] * k[b, h, n, d]) * 0.5
  out[b, h, m, e] = sum[n](w[b, h, m, n] * v[b, h, n, e] where n <= m)
  return out
}}""",
        taylor,
    ),
    "tokens first, grouped heads": (
        """attention linear(q: f32[B, N, H, D], k: f32[B, N, G, D], v: f32[B, N, G, E], a: f32[B, N, H]) {
  w[b, h, m, n] = a[b, m, h] * sum[d](q[b, m, h, d] * k[b, n, h // (H // G), d])
  out[b, m, h, e] = sum[n](w[b, h, m, n] * v[b, n, h // (H // G), e] where n <= m)
  return out
}""",
        grouped,
    ),
}

# Decays: what each makes of a head's number, and the spec's factor.
DECAYS = {
    "a power": (lambda x: x, "rate[h] ** (m - n)"),
    "an exponential": (torch.exp, "exp(rate[h] * (m - n))"),
    "an exponential of a negative distance": (lambda x: torch.exp(-x), "exp(rate[h] * (n - m))"),
    "an exponential of its magnitude": (lambda x: torch.exp(-x / 4), "exp(-rate[h] * abs(m - n) / 4)"),
    "a power of 2": (torch.exp2, "exp2((m - n) * rate[h])"),
    "two of them": (lambda x: x * torch.exp(x), "(rate[h] ** (m - n) * exp(rate[h] * (m - n)))"),
}


@pytest.mark.parametrize("tokens", (95, 300))
@pytest.mark.parametrize("name", DECAYS)
def test_decays(name, tokens):
    of_neighbours, factor = DECAYS[name]
    spec = f"""attention linear({HEADS}, rate: f32[H]) {{
  w[b, h, m, n] = {factor} * sum[d](q[b, h, m, d] * k[b, h, n, d])
  out[b, h, m, e] = sum[n](w[b, h, m, n] * v[b, h, n, e] where n <= m)
  return out
}}"""
    kernel = attn.compile(spec)
    assert ("// 96" in kernel.emit("plan")) and ("decay" in kernel.emit("simplified"))
    torch.manual_seed(tokens)
    inputs = [torch.randn(2, 4, tokens, size) for size in (9, 9, 17)]
    # They fall, stay, grow a little, or change their sign.
    rates = {
        "a power": torch.tensor([0.5, 1.0, 1.02, -0.9]),
        "two of them": torch.tensor([0.1, 0.2, -0.5, -0.9]),
    }.get(name, torch.tensor([0.3, 0.0, 0.01, 1.0]) * (-1 if "n - m" not in factor and "-rate" not in factor else 1))
    exact = [tensor.double().requires_grad_() for tensor in inputs]
    wanted = decayed(*exact, of_neighbours(rates.double()))
    inputs = [tensor.requires_grad_() for tensor in inputs]
    result = kernel(*inputs, rates)
    torch.testing.assert_close(result.double(), wanted, rtol=0, atol=3e-6 * wanted.abs().max().item())
    direction = torch.randn_like(result)
    result.backward(direction)
    wanted.backward(direction.double())
    for single, double in zip(inputs, exact, strict=True):
        torch.testing.assert_close(single.grad.double(), double.grad, rtol=0, atol=6e-6 * double.grad.abs().max().item())


def test_pairs_that_others_read_are_no_chunks():
    """The gradient of a rate is a sum over all pairs: beside it, sums of chunks would only add to what is computed."""
    kernel = attn.compile(
        f"""attention linear({HEADS}, rate: f32[H]) {{
  w[b, h, m, n] = rate[h] ** (m - n) * sum[d](q[b, h, m, d] * k[b, h, n, d])
  out[b, h, m, e] = sum[n](w[b, h, m, n] * v[b, h, n, e] where n <= m)
  return out
}}"""
    )
    assert "// 96" not in kernel.grad()[1].emit("plan")
    assert "// 96" in kernel.grad(["q", "k", "v"])[1].emit("plan")


@pytest.mark.parametrize("tokens", (1, 7, 95, 96, 97, 193, 300))
@pytest.mark.parametrize("name", CASES)
def test_equals_the_formula(name, tokens):
    spec, formula = CASES[name]
    kernel = attn.compile(spec)
    torch.manual_seed(tokens)
    inputs = random_inputs(kernel, dict(B=2, H=4, G=2, N=tokens, D=9, E=17))
    assert_equals_formula(kernel, formula, inputs, tolerance=2e-6, gradient_tolerance=4e-6, noise=1e-6)


def test_a_length_ends_the_keys_of_a_chunk():
    spec = f"""attention linear({HEADS}, valid: i32[B]) {{
  {WEIGHTS}
  out[b, h, m, e] = sum[n](w[b, h, m, n] * v[b, h, n, e] where n <= m and n < valid[b])
  return out
}}"""
    kernel = attn.compile(spec)
    torch.manual_seed(0)
    q, k, v = (torch.randn(5, 2, 301, size) for size in (8, 8, 16))
    valid = torch.tensor([0, 5, 96, 200, 301], dtype=torch.int32)
    for row, length in enumerate(valid):  # what comes after is not read
        k[row, :, length:], v[row, :, length:] = float("inf"), float("nan")
    exact = [tensor.double().nan_to_num(nan=0.0, posinf=0.0) for tensor in (q, k, v)]
    expected = only_valid(*exact, valid)
    torch.testing.assert_close(kernel(q, k, v, valid).double(), expected, rtol=0, atol=2e-6 * expected.abs().max().item())


def test_what_is_not_a_number_reaches_later_rows_alone():
    kernel = attn.compile(CASES["keys before"][0])
    q, k, v = (torch.ones(1, 1, 400, 4) for _ in range(3))
    v[0, 0, 150, 2] = float("nan")
    out = kernel(q, k, v)
    assert torch.isnan(out[0, 0, 151:, 2]).all()
    assert not torch.isnan(out[0, 0, :151]).any() and not torch.isnan(out[0, 0, :, [0, 1, 3]]).any()


@pytest.mark.parametrize("shape", ((0, 2, 300), (2, 0, 300), (2, 2, 0)))
def test_without_tokens_there_is_nothing(shape):
    kernel = attn.compile(CASES["weights"][0])
    assert kernel(*(np.zeros((*shape, 4), np.float32) for _ in range(3))).shape == (*shape, 4)


@pytest.mark.parametrize(("dtype", "tolerance"), (("f64", 1e-13), ("bf16", 1e-2), ("f16", 2e-3)))
def test_other_dtypes(dtype, tolerance):
    torch_dtype = {"f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    spec = CASES["weights"][0]
    kernel = attn.compile(spec.replace("f32", "f64")) if dtype == "f64" else attn.compile(spec, dtype=dtype)
    torch.manual_seed(1)
    inputs = [torch.randn(1, 2, 250, 16).to(torch_dtype) for _ in range(3)]
    expected = normalised(*(tensor.double() for tensor in inputs))
    torch.testing.assert_close(kernel(*inputs).double(), expected, rtol=0, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("threads", (1, 3))
def test_is_the_same_with_more_threads_and_in_other_layouts(threads):
    attn.set_num_threads(threads)
    kernel = attn.compile(CASES["weights"][0], check_bounds=True)
    torch.manual_seed(2)
    q, k, v = (torch.randn(2, 230, 3, 24).transpose(1, 2)[..., ::2] for _ in range(3))
    expected = normalised(*(tensor.double() for tensor in (q, k, v)))
    torch.testing.assert_close(kernel(q, k, v).double(), expected, rtol=0, atol=2e-6 * expected.abs().max().item())
    attn.set_num_threads(0)


def test_no_pairs_beyond_a_chunk_are_visited():
    """A row's own chunk bounds the keys, forward and backward, and a running state has no matrix for each token."""
    for name in ("weights", "a running state"):
        kernel = attn.compile(CASES[name][0])
        for each in (kernel, *kernel.grad()):
            first_keys = re.findall(r"keys of .*: visited (.*) <= \w < .*", each.emit("plan"))
            assert first_keys and all("// 96" in first for first in first_keys)
            assert not re.search(r"attn\.tensor[^\n]*%n: N, %d: D, %e: E", each.emit("simplified"))
