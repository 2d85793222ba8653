"""Products of matrices, which take the matrix plan where there are rows and columns enough, against NumPy in float64."""

import numpy as np
import pytest

import attn

PRODUCTS = {
    "x[m, d] * w[d, e]": ("f32[D, E]", "md,de->me"),
    "x[m, d] * w[e, d]": ("f32[E, D]", "md,ed->me"),
}
APART = "attention f(x: f32[B, J, M], w: f32[B, J, E], s: f32[M]) {{\n  y[m{size}, e] = {formula}\n  return y\n}}\n"
SHAPES = [(rows, columns, terms) for rows in (1, 2, 3, 6, 7, 63) for columns in (1, 31, 32, 65) for terms in (1, 25, 193)]


def product(term, parameter, formula="sum[d](TERM)"):
    formula = formula.replace("TERM", term)
    return attn.compile(f"attention f(x: f32[M, D], w: {parameter}) {{\n  y[m, e] = {formula}\n  return y\n}}\n")


def draw(term, rows, columns, terms):
    random = np.random.default_rng(rows * 10_000 + columns * 100 + terms)
    shape = (terms, columns) if "w[d, e]" in term else (columns, terms)
    return random.standard_normal((rows, terms)).astype("f"), random.standard_normal(shape).astype("f")


def check(found, equation, x, w):
    exact = np.einsum(equation, x.astype("d"), w.astype("d"))
    magnitudes = np.einsum(equation, np.abs(x).astype("d"), np.abs(w).astype("d"))
    assert found.shape == exact.shape
    assert (np.abs(found - exact) <= 2e-6 * magnitudes).all()


@pytest.mark.parametrize("term", PRODUCTS)
def test_products_of_every_odd_size(term):
    parameter, equation = PRODUCTS[term]
    kernel = product(term, parameter)
    for rows, columns, terms in [*SHAPES, (2001, 65, 7), (9, 70, 2001), (500, 33, 64)]:
        x, w = draw(term, rows, columns, terms)
        check(kernel(x, w), equation, x, w)


@pytest.mark.parametrize("term", PRODUCTS)
def test_products_without_rows_columns_or_terms(term):
    parameter, equation = PRODUCTS[term]
    kernel = product(term, parameter)
    for rows, columns, terms in [(0, 40, 5), (40, 0, 5), (40, 40, 0), (0, 0, 0)]:
        x, w = draw(term, rows, columns, terms)
        check(kernel(x, w), equation, x, w)


@pytest.mark.parametrize("rows, terms", [(20, 64), (20, 500), (3, 64), (2, 500)])
def test_products_of_sizes_that_are_known(rows, terms):
    x, w = draw("x[m, d] * w[d, e]", rows, 48, terms)
    source = f"attention f(x: f32[{rows}, {terms}], w: f32[{terms}, 48]) {{\n  y[m, e] = sum[d](x[m, d] * w[d, e])\n  return y\n}}\n"
    check(attn.compile(source)(x, w), "md,de->me", x, w)


def test_a_product_reads_strides():
    parameter, equation = PRODUCTS["x[m, d] * w[e, d]"]
    x, w = draw("x[m, d] * w[e, d]", 60, 160, 90)
    x, w = x[::3], w[::2]
    check(product("x[m, d] * w[e, d]", parameter)(x, w), equation, x, w)


def test_the_same_row_has_the_same_bits_in_overlapping_tiles():
    x, w = draw("x[m, d] * w[d, e]", 23, 50, 300)
    x[:] = x[0]
    found = product("x[m, d] * w[d, e]", "f32[D, E]")(x, w)
    np.testing.assert_array_equal(found, np.broadcast_to(found[0], found.shape))


def test_heads_batches_and_a_formula_around_the_sum():
    random = np.random.default_rng(1)
    x, w, bias = (random.standard_normal(shape).astype("f") for shape in [(2, 19, 40), (3, 40, 37), (3, 37)])
    kernel = attn.compile("""attention f(x: f32[B, M, D], w: f32[H, D, E], bias: f32[H, E]) {
  y[b, h, m, e] = relu(sum[d](x[b, m, d] * w[h, d, e]) / sqrt(D) + bias[h, e])
  return y
}
""")
    exact = np.maximum(np.einsum("bmd,hde->bhme", x.astype("d"), w.astype("d")) / np.sqrt(40) + bias[:, None], 0)
    np.testing.assert_allclose(kernel(x, w, bias), exact, atol=5e-6)


def test_two_sums_and_two_summed_indices():
    random = np.random.default_rng(2)
    x, w = (random.standard_normal(shape).astype("f") for shape in [(19, 5, 40), (5, 40, 37)])
    kernel = attn.compile("""attention f(x: f32[M, C, D], w: f32[C, D, E]) {
  y[m, e] = sum[c, d](x[m, c, d] * w[c, d, e]) - sum[c, d](abs(x[m, c, d]) * w[c, d, e])
  return y
}
""")
    x64, w64 = x.astype("d"), w.astype("d")
    exact = np.einsum("mcd,cde->me", x64, w64) - np.einsum("mcd,cde->me", np.abs(x64), w64)
    np.testing.assert_allclose(kernel(x, w), exact, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_products_of_other_dtypes(dtype):
    torch = pytest.importorskip("torch")
    wide = {"f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    x, w = (torch.from_numpy(each).to(wide) for each in draw("x[m, d] * w[e, d]", 30, 70, 200))
    source = "attention f(x: DTYPE[M, D], w: DTYPE[E, D]) {\n  y[m, e]: f64 = sum[d](x[m, d] * w[e, d])\n  return y\n}\n"
    found = attn.compile(source.replace("DTYPE", dtype))(x, w)
    exact = x.double() @ w.double().T
    assert (found - exact).abs().max() <= (1e-12 if dtype == "f64" else 2e-4)


@pytest.mark.parametrize("m, n", [(0, 5), (5, 0), (1, 1), (7, 1), (8, 33), (70, 65)])
def test_a_product_of_which_a_part_is_read(m, n):
    """The part does not begin where a tile does; sums of index variables are chosen between by index."""
    kernel = attn.compile("""
        attention parts(x: f32[M, D], w: f32[D, N]) {
          y[m, n]       = sum[d](x[m, d] * w[d, n])
          shifted[m, n] = y[m + 1, n + 1] + y[M - 1 - m, n]
          lower[m, n]   = select(n > m, sum[d](x[m, d] * w[d, n]), 1.0)
          least[m]      = min[n](y[m, n] * 2)
          return shifted, lower, least
        }""")
    random = np.random.default_rng(m + n)
    x, w = random.standard_normal((m, 9)).astype("f"), random.standard_normal((9, n)).astype("f")
    for found, expected in zip(kernel(x, w), kernel.reference(x, w), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


TRIANGLES = {
    "outgoing edges": ("a: DTYPE[M, K, C], b: DTYPE[N, K, C]", "sum[k](a[m, k, c] * b[n, k, c])", "mkc,nkc->mnc"),
    "incoming edges": ("a: DTYPE[K, M, C], b: DTYPE[K, N, C]", "sum[k](a[k, m, c] * b[k, n, c])", "kmc,knc->mnc"),
    "channels first": ("a: DTYPE[C, M, K], b: DTYPE[C, N, K]", "sum[k](a[c, m, k] * b[c, n, k])", "cmk,cnk->mnc"),
}


def triangle(edges, dtype="f32"):
    parameters, term, equation = TRIANGLES[edges]
    source = f"""attention triangle({parameters}, gate: DTYPE[M, N, C]) {{
                   out[m, n, c] = gate[m, n, c] * {term}
                   return out }}"""
    return attn.compile(source.replace("DTYPE", dtype)), equation


def draw_triangle(kernel, torch, sizes):
    torch.manual_seed(sum(sizes))
    known = dict(zip("MNKC", sizes))
    return [torch.randn([known[size] for size in info.shape]) for info in kernel.inputs]


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (7, 5, 25, 16), (6, 4, 1, 3), (63, 65, 193, 17), (13, 50, 30, 33), (0, 3, 4, 5), (3, 3, 0, 5)], ids=str)
@pytest.mark.parametrize("edges", TRIANGLES)
def test_columns_that_both_factors_have(edges, sizes):
    """The triangle multiplication of AlphaFold, and its gradients, which have two factors for the rows."""
    torch = pytest.importorskip("torch")
    kernel, equation = triangle(edges)
    inputs = [tensor.requires_grad_() for tensor in draw_triangle(kernel, torch, sizes)]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    result = kernel(*inputs)
    wanted = exact[2] * torch.einsum(equation, *exact[:2])
    bound = exact[2].abs() * torch.einsum(equation, *(tensor.abs() for tensor in exact[:2]))
    assert ((result - wanted).abs() <= 2e-6 * bound + 1e-30).all()
    direction = torch.randn_like(result)
    result.backward(direction)
    wanted.backward(direction.double())
    for single, double in zip(inputs, exact):
        scale = double.grad.abs().max().item() if double.numel() else 0
        torch.testing.assert_close(single.grad.double(), double.grad, rtol=0, atol=3e-6 * scale)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_columns_that_both_factors_have_in_other_dtypes(dtype):
    torch = pytest.importorskip("torch")
    kernel, equation = triangle("outgoing edges", dtype)
    wide = {"f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    a, b, gate = (tensor.to(wide) for tensor in draw_triangle(kernel, torch, (13, 9, 40, 21)))
    wanted = gate.double() * torch.einsum(equation, a.double(), b.double())
    tolerance = {"f64": 1e-12, "f16": 1e-3, "bf16": 8e-3}[dtype]
    assert (kernel(a, b, gate).double() - wanted).abs().max() <= tolerance * wanted.abs().max()


def test_columns_that_both_factors_have_by_strides():
    torch = pytest.importorskip("torch")
    kernel, equation = triangle("outgoing edges")
    a, b = torch.randn(21, 40, 13).permute(2, 1, 0), torch.randn(9, 40, 42)[:, :, ::2]
    gate = torch.randn(1, 9, 21).expand(13, 9, 21)
    wanted = gate.double() * torch.einsum(equation, a.double(), b.double())
    torch.testing.assert_close(kernel(a, b, gate).double(), wanted, rtol=0, atol=4e-6 * wanted.abs().max().item())


@pytest.mark.parametrize("target", ["host", "x86-64-linux-avx-avx2-fma-f16c-sse41"])
def test_rows_that_lie_apart(target):
    formula = "sum[b, j](exp(x[b, j, m]) * w[b, j, e]) * s[m] + sum[b, j](x[b, j, m] * w[b, j, e])"
    kernel = attn.compile(APART.format(size="", formula=formula), target=target)
    shapes = [(1, 1, 1, 1), (2, 7, 5, 3), (1, 300, 97, 33), (3, 65, 6, 16), (1, 2001, 13, 64), (2, 1000, 200, 40), (1, 50000, 9, 9)]
    for batch, terms, rows, columns in [*shapes, (0, 4, 4, 4), (2, 0, 4, 4), (2, 4, 0, 4), (2, 4, 4, 0)]:
        random = np.random.default_rng(terms)
        x, w = random.standard_normal((batch, terms, rows)).astype("f"), random.standard_normal((batch, terms, columns)).astype("f")
        s = random.standard_normal(rows).astype("f")
        factor = np.exp(x.astype("d")) * s + x
        magnitude = np.exp(x.astype("d")) * abs(s) + abs(x)
        exact, scale = np.einsum("bjm,bje->me", factor, w), np.einsum("bjm,bje->me", magnitude, abs(w.astype("d")))
        for given in (x, np.asfortranarray(x), x[:, :, ::-1].copy()[:, :, ::-1]):
            assert (np.abs(kernel(given, w, s) - exact) <= 2e-6 * scale).all()


@pytest.mark.parametrize("target", ["host", "x86-64-linux-avx-avx2-fma-f16c-sse41"])
def test_rows_that_lie_apart_in_a_part_of_a_tensor(target):
    kernel = attn.compile(APART.format(size=": M - 3", formula="s[m] + sum[b, j](x[b, j, m + 2] * w[b, j, e])"), target=target)
    random = np.random.default_rng(0)
    x, w, s = (random.standard_normal(shape).astype("f") for shape in ((2, 70, 40), (2, 70, 19), (40,)))
    exact = s[:37, None] + np.einsum("bjm,bje->me", x[:, :, 2:39].astype("d"), w)
    scale = abs(s[:37, None]) + np.einsum("bjm,bje->me", abs(x[:, :, 2:39].astype("d")), abs(w))
    assert (np.abs(kernel(x, w, s) - exact) <= 2e-6 * scale).all()
