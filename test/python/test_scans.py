"""Reductions of the terms up to an index: running totals (attn-scan), alone, in scores and in gradients."""

import numpy as np
import pytest
from test_gpu import needs_opencl

import attn

TOTALS = {
    "up to an index": "sum[j: N](x[b, m, j] where j <= n)",
    "before an index": "sum[j: N](x[b, m, j] where n > j)",
    "from an index on": "sum[j: N](x[b, m, j] where n <= j)",
    "after an index": "sum[j: N](exp(x[b, m, j]) where j > n)",
    "some of them": "sum[j: N](log(x[b, m, j]) where j <= n and x[b, m, j] > 0.5)",
    "a range": "sum[j: N](y[j] where n <= j and j <= m)",
    "maximum": "max[j: N](x[b, m, j] where j <= n)",
    "minimum": "min[j: N](x[b, m, j] where j >= n)",
    "integers": "sum[j: N](c[j] where j <= n)",
    "along rows": "sum[i: M](x[b, i, n] where i <= m)",
    "along rows, after": "sum[i: M](x[b, i, n] where m < i)",
    "along the batch": "max[a: B](x[a, m, n] where a >= b)",
    "further than its terms": "sum[i: M](x[b, i, m + 1] where i < n)",
    "not as far as its terms": "sum[j: N](y[j] where m <= j)",
    "in a formula": "x[b, m, n] / (1 + abs(sum[j: N](x[b, m, j] where j <= n)))",
    "of dot products": "sum[j: N](sum[i: M](x[b, i, j] * x[b, m, i + 1]) where n < j) / (1 + N)",
    "of a row": "sum[j: N](y[j] where j <= n)",
}
SHAPES = [(2, 1, 1), (1, 7, 63), (2, 65, 7), (3, 9, 2001), (1, 2001, 3), (2, 130, 129), (2, 0, 3), (2, 3, 0), (0, 2, 2)]


def kernel_of(formula, dtype="f32", **options):
    return attn.compile(
        f"""attention totals(x: {dtype}[B, M, N], y: {dtype}[N], c: i32[N]) {{
              r[b: B, m: M, n: N] = {formula}
              return r }}""",
        **options,
    )


def arrays(generator, shape):
    batch, rows, columns = shape
    x, y = generator.standard_normal((batch, rows, columns), np.float32), generator.standard_normal(columns, np.float32)
    return x, y, generator.integers(-9, 9, columns).astype(np.int32)


def assert_close(found, expected, tolerance):
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    finite = np.isfinite(expected)
    assert np.array_equal(found[~finite], expected[~finite], equal_nan=True)
    scale = np.abs(expected[finite]).max(initial=1e-3)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("formula", TOTALS.values(), ids=TOTALS)
def test_agrees_with_the_reference(generator, formula):
    kernel = kernel_of(formula)
    assert "a running total along" in kernel.emit("plan")
    for shape in SHAPES:
        given = arrays(generator, shape)
        assert_close(kernel(*given), kernel.reference(*given), 2e-6)


@pytest.mark.parametrize("formula", TOTALS.values(), ids=TOTALS)
def test_gradients(generator, formula):
    torch = pytest.importorskip("torch")
    kernel = kernel_of(formula, dtype="f64")
    if kernel.outputs[0].dtype == "i64":
        pytest.skip("integers have no gradient")
    x, y, c = (torch.from_numpy(array) for array in arrays(generator, (2, 6, 5)))
    operator = attn.torch_operator(kernel)
    given = [array.double().requires_grad_() for array in (x, y)]
    assert torch.autograd.gradcheck(lambda x, y: operator(x, y, c), given, fast_mode=True)


@pytest.mark.parametrize("dtype, tolerance", [("f64", 1e-14), ("bf16", 5e-3), ("f16", 6e-4)])
@pytest.mark.parametrize("name", ["up to an index", "along rows", "some of them"])
def test_dtypes(generator, name, dtype, tolerance):
    torch = pytest.importorskip("torch")
    kernel = kernel_of(TOTALS[name], dtype=dtype)
    type_of = {"f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    x, y, c = (torch.from_numpy(array) for array in arrays(generator, (2, 33, 65)))
    given = x.to(type_of), y.to(type_of), c
    assert_close(kernel(*given).double(), kernel.reference(*given).double(), tolerance)


def test_long_totals_are_as_exact_as_their_last_rounding():
    x = np.full((1, 1, 100_000), 0.1, np.float32)
    total = kernel_of(TOTALS["up to an index"])(x, x[0, 0], np.zeros(100_000, np.int32))
    np.testing.assert_allclose(total, np.cumsum(x, axis=-1, dtype=np.float64), rtol=1.2e-7)


def test_any_strides(generator):
    kernel = kernel_of(TOTALS["from an index on"])
    x, y, c = arrays(generator, (2, 33, 40))
    expected = kernel.reference(x, y, c)
    for turned in (np.asfortranarray(x), np.repeat(x, 2, axis=2)[:, :, ::2], x[::-1][::-1]):
        assert_close(kernel(turned, y, c), expected, 2e-6)


@needs_opencl
@pytest.mark.parametrize("name", ["up to an index", "a range", "along rows, after", "of dot products"])
def test_on_a_device(generator, name):
    kernel = kernel_of(TOTALS[name], target="opencl")
    given = arrays(generator, (2, 9, 33))
    assert_close(kernel(*given), kernel.reference(*given), 4e-6)


# Attention that is made of running totals: its spec, and the same in PyTorch.

HEADS = "q: {0}[B, H, N, D], k: {0}[B, H, N, D], v: {0}[B, H, N, E]"
DOT = "sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D)"


def scores(q, k):
    return q @ k.mT / q.shape[-1] ** 0.5


def causal(q):
    size = q.shape[-2]
    return q.new_ones(size, size).tril().bool()


def from_last(x):
    return x.flip(-1).cumsum(-1).flip(-1)


def stick_breaking(torch, q, k, v):
    z, before = scores(q, k), causal(q).tril(-1)
    left = torch.nn.functional.logsigmoid(-z) * before
    return (torch.exp(torch.nn.functional.logsigmoid(z) + from_last(left) - left) * before) @ v


def contextual(torch, q, k, v, table):
    s, visible = q @ k.mT, causal(q)
    position = from_last(torch.sigmoid(s) * visible).clamp(max=table.shape[0] - 1)
    rows = q @ table.T
    low, high = position.floor().long(), position.ceil().long()
    bias = rows.gather(-1, low) * (1 - position + low) + rows.gather(-1, high) * (position - low)
    return (s / q.shape[-1] ** 0.5 + bias).masked_fill(~visible, -torch.inf).softmax(-1) @ v


def selective(torch, q, k, v):
    s, visible = scores(q, k), causal(q)
    chosen = s[:, :1].relu() * visible.tril(-1)
    return (s - (chosen.cumsum(-2) - chosen)).masked_fill(~visible, -torch.inf).softmax(-1) @ v


def forgetting(torch, q, k, v, gate):
    total = torch.nn.functional.logsigmoid(gate).cumsum(-1)
    return (scores(q, k) + total[..., None] - total[..., None, :]).masked_fill(~causal(q), -torch.inf).softmax(-1) @ v


ATTENTION = {
    "stick-breaking": (
        f"""def logsigmoid(x) = min(x, 0) - log(1 + exp(-abs(x)))
            attention a({HEADS}) {{
              z[b, h, m: N, n: N] = {DOT}
              rest[b, h, m: N, n: N] = sum[j: N](logsigmoid(-z[b, h, m, j]) where n < j and j < m)
              out[b, h, m, e] = sum[n: N](exp(logsigmoid(z[b, h, m, n]) + rest[b, h, m, n]) * v[b, h, n, e] where n < m)
              return out }}""",
        stick_breaking,
    ),
    "contextual positions": (
        f"""attention a({HEADS}, table: {{0}}[P, D]) {{
              s[b, h, m: N, n: N] = sum[d](q[b, h, m, d] * k[b, h, n, d])
              position[b, h, m: N, n: N] = min(sum[j: N](sigmoid(s[b, h, m, j]) where n <= j and j <= m), P - 1)
              row[b, h, m, p] = sum[d](q[b, h, m, d] * table[p, d])
              part[b, h, m: N, n: N] = position[b, h, m, n] - floor(position[b, h, m, n])
              bias[b, h, m: N, n: N] = (1 - part[b, h, m, n]) * row[b, h, m, i64(position[b, h, m, n])] +
                                       part[b, h, m, n] * row[b, h, m, i64(position[b, h, m, n]) + 1]
              w[b, h, m: N, n: N] = softmax[n](s[b, h, m, n] / sqrt(D) + bias[b, h, m, n] where n <= m)
              out[b, h, m, e] = sum[n: N](w[b, h, m, n] * v[b, h, n, e])
              return out }}""",
        contextual,
    ),
    "selective": (
        f"""attention a({HEADS}) {{
              s[b, h, m: N, n: N] = {DOT}
              f[b, m: N, n: N] = sum[i: N](relu(s[b, 0, i, n]) where n < i and i < m)
              w[b, h, m: N, n: N] = softmax[n](s[b, h, m, n] - f[b, m, n] where n <= m)
              out[b, h, m, e] = sum[n: N](w[b, h, m, n] * v[b, h, n, e])
              return out }}""",
        selective,
    ),
    "forgetting": (
        f"""attention a({HEADS}, gate: {{0}}[B, H, N]) {{
              w[b, h, m: N, n: N] = softmax[n]({DOT} - sum[j: N](log(1 + exp(-gate[b, h, j])) where n < j and j <= m) where n <= m)
              out[b, h, m, e] = sum[n: N](w[b, h, m, n] * v[b, h, n, e])
              return out }}""",
        forgetting,
    ),
}


def tensors_for(torch, kernel, sizes, seed):
    torch.manual_seed(seed)
    return [torch.randn([sizes[size] for size in info.shape], dtype=torch.float64) for info in kernel.inputs]


@pytest.mark.parametrize("length", [0, 1, 7, 65, 130])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_and_its_gradients(name, length):
    torch = pytest.importorskip("torch")
    source, formula = ATTENTION[name]
    kernel = attn.compile(source.replace("{0}", "f32"))
    exact = tensors_for(torch, kernel, {"B": 2, "H": 3, "N": length, "D": 9, "E": 5, "P": 8}, length)
    exact = [tensor.bfloat16().double().requires_grad_() for tensor in exact]
    given = [tensor.detach().float().requires_grad_() for tensor in exact]
    found, expected = kernel(*given), formula(torch, *exact)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)
    direction = torch.randn(found.shape)
    found.backward(direction)
    expected.backward(direction.double())
    for own, wanted in zip(given, exact):
        scale = wanted.grad.abs().max().item() if wanted.numel() else 0
        torch.testing.assert_close(own.grad.double(), wanted.grad, rtol=0, atol=2e-5 * scale + 1e-6)


@pytest.mark.parametrize("name", ["stick-breaking", "contextual positions"])
def test_blocks_of_rows_have_the_keys_that_they_need(name):
    """Rows enough for several blocks, whose masks leave out the keys after them."""
    torch = pytest.importorskip("torch")
    source, formula = ATTENTION[name]
    kernel = attn.compile(source.replace("{0}", "f64"))
    tensors = tensors_for(torch, kernel, {"B": 1, "H": 1, "N": 1301, "D": 3, "E": 2, "P": 6}, 1)
    given = [tensor.clone().requires_grad_() for tensor in tensors]
    exact = [tensor.clone().requires_grad_() for tensor in tensors]
    found, expected = kernel(*given), formula(torch, *exact)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    for result in (found, expected):
        (result**2).sum().backward()
    for own, wanted in zip(given, exact):
        torch.testing.assert_close(own.grad, wanted.grad, rtol=1e-8, atol=1e-9)


PAIRS = "q: f64[H, M, D], k: f64[H, N, D], v: f64[H, N, E]"
FROM_BLOCK_TO_BLOCK = {
    "from query to query": (
        f"""attention a({PAIRS}) {{
              s[h, m, n] = sum[d](q[h, m, d] * k[h, n, d])
              f[h, m, n] = sum[i](sigmoid(s[h, i, n]) where i < m) / M
              out[h, m, e] = sum[n](exp(f[h, m, n]) * v[h, n, e] where n <= m)
              return out }}""",
        lambda torch, s, seen: torch.exp((torch.sigmoid(s).cumsum(1) - torch.sigmoid(s)) / s.shape[1]) * seen,
    ),
    "a maximum, of zeros where keys are left out": (
        f"""attention a({PAIRS}) {{
              s[h, m, n] = select(n >= m, -abs(sum[d](q[h, m, d] * k[h, n, d])) - 0.1, 0)
              f[h, m, n] = max[j](s[h, m, j] where j <= n)
              out[h, m, e] = sum[n](exp(f[h, m, n]) * v[h, n, e] where n >= m)
              return out }}""",
        lambda torch, s, seen: torch.exp(torch.where(seen.mT, -s.abs() - 0.1, 0.0).cummax(2).values) * seen.mT,
    ),
}


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", FROM_BLOCK_TO_BLOCK)
def test_totals_are_those_of_all_rows_and_keys_whatever_a_block_has(name, heads):
    torch = pytest.importorskip("torch")
    source, weights = FROM_BLOCK_TO_BLOCK[name]
    kernel = attn.compile(source)
    # Blocks of 3 MB, for the three tensors of pairs, have some 200 rows. The gradient of a maximum takes time like N³.
    tensors = tensors_for(torch, kernel, {"H": heads, "M": 601, "N": 601, "D": 2, "E": 2}, heads)
    given = [tensor.clone().requires_grad_() for tensor in tensors]
    exact = [tensor.clone().requires_grad_() for tensor in tensors]
    q, k, v = exact
    found, expected = kernel(*given), weights(torch, q @ k.mT, causal(q)) @ v
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    for result in (found, expected):
        (result**2).sum().backward()
    for own, wanted in zip(given, exact):
        torch.testing.assert_close(own.grad, wanted.grad, rtol=1e-8, atol=1e-8)


def test_stick_breaking_stores_no_pairs_as_a_whole():
    source, _ = ATTENTION["stick-breaking"]
    plan = attn.compile(source.replace("{0}", "f32")).emit("plan")
    assert "blocks of b, h, m: z stored, rest stored, out_pairs stored, out" in plan
    assert "keys of z: visited 0 <= n < m" in plan
