"""Scores that multiply queries by a row of a table which query and key have together, as relative positions do."""

import functools

import pytest

import attn

torch = pytest.importorskip("torch")

SPEC = """
attention relative(q: {dtype}[M, D], k: {dtype}[N, D], v: {dtype}[N, E], table: {dtype}[T, D], far: i32) {{
  score[m, n]  = (sum[d](q[m, d] * k[n, d]) + sum[d](q[m, d] * table[{row}, d])) / sqrt(D)
  weight[m, n] = softmax[n](score[m, n] where {mask})
  out[m, e]    = sum[n](weight[m, n] * v[n, e])
  return out
}}
"""
# The row of each pair, in the spec and for PyTorch: m and n are columns and rows of numbers.
ROWS = {
    "m - n + N - 1": lambda m, n, N, far: m - n + N - 1,
    "n - m + M - 1": lambda m, n, N, far: n - m + len(m) - 1,
    "m + n": lambda m, n, N, far: m + n,
    "N - m - n": lambda m, n, N, far: N - m - n,
    "max(m - n, 0)": lambda m, n, N, far: (m - n).clamp(min=0),
    "min(max(n - m, -far), far) + far": lambda m, n, N, far: (n - m).clamp(-far, far) + far,
    # Not in a band: two of these are no sum, the others grow by two, or not at all.
    "max(m, n)": lambda m, n, N, far: torch.maximum(m, n),
    "min(n - m, far) + m": lambda m, n, N, far: (n - m).clamp(max=far) + m,
    "2 * m - n": lambda m, n, N, far: 2 * m - n,
    "n - m // 2": lambda m, n, N, far: n - m // 2,
}
MASKS = {"true": lambda m, n: m + n >= 0, "n <= m": lambda m, n: n <= m, "n >= m - 70": lambda m, n: n >= m - 70}
SIZES = [(1, 1, 1), (1, 300, 9), (7, 9, 20), (65, 63, 127), (20, 700, 100), (600, 520, 1119), (530, 300, 64)]

compiled = functools.cache(attn.compile)  # for all sizes


def relative(row, mask, q, k, v, table, far):
    m, n = torch.arange(len(q))[:, None], torch.arange(len(k))[None, :]
    rows = ROWS[row](m, n, len(k), far).clamp(0, len(table) - 1)
    score = (q @ k.T + torch.einsum("md,mnd->mn", q, table[rows])) / q.shape[1] ** 0.5
    weight = torch.softmax(score.masked_fill(~MASKS[mask](m, n), -torch.inf), -1)
    return torch.nan_to_num(weight) @ v  # a row without keys is 0


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("row", ROWS)
def test_rows(row, mask, sizes):
    M, N, T = sizes
    kernel = compiled(SPEC.format(row=row, mask=mask, dtype="f32"))
    torch.manual_seed(M)
    tensors = [torch.randn(*shape) for shape in ((M, 7), (N, 7), (N, 5), (T, 7))]
    expected = relative(row, mask, *[tensor.double() for tensor in tensors], far=11)
    torch.testing.assert_close(kernel(*tensors, 11), expected.float(), rtol=1e-4, atol=1e-5)


def test_heads_that_share_a_table():
    """Batch and heads, a table for all, strides, and a row for each query alone beside."""
    text = """
    attention heads(q: f32[B, H, M, D], k: f32[B, H, N, D], table: f32[M + N - 1, D], own: f32[M, D]) {
      score[b, h, m, n]  = sum[d]((q[b, h, m, d] + own[m, d]) * table[m - n + (N - 1), d])
      weight[b, h, m, n] = softmax[n](score[b, h, m, n] + sum[d](q[b, h, m, d] * k[b, h, n, d]))
      out[b, h, m, d]    = sum[n](weight[b, h, m, n] * k[b, h, n, d])
      return out
    }"""
    torch.manual_seed(0)
    q, k = torch.randn(70, 2, 3, 17).permute(1, 2, 0, 3), torch.randn(2, 3, 290, 17)
    table, own = torch.randn(2 * (70 + 290 - 1), 17)[::2], torch.randn(70, 17)
    rows = torch.arange(70)[:, None] - torch.arange(290)[None, :] + 289
    Q, K, own64, rows64 = q.double(), k.double(), own.double(), table.double()[rows]
    score = torch.einsum("bhmd,mnd->bhmn", Q + own64, rows64) + Q @ K.transpose(-1, -2)
    expected = torch.softmax(score, -1) @ K
    torch.testing.assert_close(attn.compile(text)(q, k, table, own), expected.float(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_sixteen_bits(dtype):
    row, kind = "m - n + N - 1", {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    kernel = attn.compile(SPEC.format(row=row, mask="n <= m", dtype=dtype))
    torch.manual_seed(0)
    tensors = [torch.randn(*shape).to(kind) for shape in ((90, 16), (300, 16), (300, 8), (389, 16))]
    expected = relative(row, "n <= m", *[tensor.double() for tensor in tensors], far=1)
    torch.testing.assert_close(kernel(*tensors, 1).double(), expected, rtol=2e-2, atol=2e-2)


BY_KEYS = """
attention relative(q: {dtype}[H, M, D], k: {dtype}[H, N, D], v: {dtype}[H, N, E], table: {dtype}[H, T, D], far: i32) {{
  row[m: M, n: N] = {row}
  score[h, m, n]  = sum[d](q[h, m, d] * k[h, n, d]) + sum[d](k[h, n, d] * table[h, row[m, n], d])
  weight[h, m, n] = softmax[n](score[h, m, n] where {mask})
  out[h, m, e]    = sum[n](weight[h, m, n] * v[h, n, e])
  return out
}}
"""


def by_keys(row, mask, q, k, v, table, far):
    m, n = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])[None, :]
    rows = ROWS[row](m, n, k.shape[1], far).clamp(0, table.shape[1] - 1)
    score = q @ k.mT + torch.einsum("hnd,hmnd->hmn", k, table[:, rows])
    weight = torch.softmax(score.masked_fill(~MASKS[mask](m, n), -torch.inf), -1)
    return torch.nan_to_num(weight) @ v


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mask", ["true", "n >= m - 70"])
@pytest.mark.parametrize("row", ["m - n + N - 1", "min(max(n - m, -far), far) + far", "max(m, n)", "2 * m - n"])
def test_rows_beside_what_keys_have(row, mask, sizes):
    M, N, T = sizes
    torch.manual_seed(sum(sizes))
    tensors = [torch.randn(2, *shape) / 3 for shape in ((M, 7), (N, 7), (N, 17), (T, 7))]
    found = compiled(BY_KEYS.format(row=row, mask=mask, dtype="f32"))(*tensors, 11)
    wanted = by_keys(row, mask, *(tensor.double() for tensor in tensors), far=11)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2e-6 * wanted.abs().max().item())


def test_rows_of_sixteen_bits_beside_what_keys_have():
    torch.manual_seed(1)
    tensors = [torch.randn(2, *shape).div(3).bfloat16() for shape in ((70, 8), (130, 8), (130, 16), (23, 8))]
    row = "min(max(n - m, -far), far) + far"
    found = compiled(BY_KEYS.format(row=row, mask="true", dtype="bf16"))(*tensors, 11)
    wanted = by_keys(row, "true", *(tensor.double() for tensor in tensors), far=11)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2**-8 * wanted.abs().max().item())


@pytest.mark.parametrize("queries", [1, 20, 100])
def test_squares_of_a_key_and_a_row(queries):
    """They were taken for the sum of the squares of each."""
    kernel = compiled(
        """attention squares(q: f32[M, D], k: f32[N, D], v: f32[N, E], r: f32[T, D]) {
          weight[m, n] = softmax[n](sum[d](q[m, d] * (k[n, d] + r[n - m + M - 1, d]) ** 2))
          out[m, e]    = sum[n](weight[m, n] * v[n, e])
          return out }"""
    )
    torch.manual_seed(0)
    q, k, v, r = (torch.randn(shape) / 2 for shape in ((queries, 5), (30, 5), (30, 4), (queries + 29, 5)))
    rows = torch.arange(30)[None, :] - torch.arange(queries)[:, None] + queries - 1
    score = torch.einsum("md,mnd->mn", q.double(), (k[None] + r[rows]).double() ** 2)
    torch.testing.assert_close(kernel(q, k, v, r).double(), score.softmax(-1) @ v.double(), rtol=0, atol=2e-6)


WITH_VALUES = """
attention relative(q: {dtype}[H, M, D], k: {dtype}[H, N, D], v: {dtype}[H, N, E], table: {dtype}[T, E], far: i32) {{
  row[m: M, n: N] = {row}
  weight[h, m, n] = softmax[n](sum[d](q[h, m, d] * k[h, n, d]) where {mask})
  out[h, m, e]    = sum[n](weight[h, m, n] * (v[h, n, e] {sign} table[row[m, n], e]))
  return out
}}
"""
SIGNS = {"-": lambda value, row: value - row, "*": lambda value, row: value * row}


def with_values(row, mask, sign, q, k, v, table, far):
    m, n = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])[None, :]
    rows = ROWS[row](m, n, k.shape[1], far).clamp(0, len(table) - 1)
    weight = torch.softmax((q @ k.mT).masked_fill(~MASKS[mask](m, n), -torch.inf), -1)
    return torch.einsum("hmn,hmne->hme", torch.nan_to_num(weight), SIGNS[sign](v[:, None], table[rows]))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("row", ["m - n + N - 1", "min(max(n - m, -far), far) + far", "max(m, n)", "2 * m - n"])
def test_rows_beside_what_values_have(row, sign, mask, sizes):
    M, N, T = sizes
    torch.manual_seed(sum(sizes))
    tensors = [torch.randn(shape) / 3 for shape in ((2, M, 7), (2, N, 7), (2, N, 17), (T, 17))]
    found = compiled(WITH_VALUES.format(row=row, mask=mask, sign=sign, dtype="f32"))(*tensors, 11)
    wanted = with_values(row, mask, sign, *(tensor.double() for tensor in tensors), far=11)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2e-6 * wanted.abs().max().item())


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_rows_of_sixteen_bits_beside_what_values_have(dtype):
    torch.manual_seed(1)
    shapes = (2, 70, 8), (2, 130, 8), (2, 130, 16), (23, 16)
    tensors = [torch.randn(shape).div(3).to({"bf16": torch.bfloat16, "f16": torch.float16}[dtype]) for shape in shapes]
    row = "min(max(n - m, -far), far) + far"
    kernel = compiled(WITH_VALUES.format(row=row, mask="n <= m", sign="-", dtype=dtype))
    for queries in (1, 20, 70):  # by each of the plans
        given = [tensors[0][:, :queries], *tensors[1:]]
        wanted = with_values(row, "n <= m", "-", *(tensor.double() for tensor in given), far=11)
        torch.testing.assert_close(kernel(*given, 11).double(), wanted, rtol=0, atol=2**-8 * wanted.abs().max().item())


def test_rows_beside_values_are_read_by_tiles():
    """The query is in no tensor that values are read from: in the table's subscript alone."""
    target = "x86-64-linux-avx-avx2-f16c-fma-sse41-avx512-avx512_skylake-avx512_zen4"
    kernel = attn.compile(WITH_VALUES.format(row="m - n + N - 1", mask="true", sign="-", dtype="f32"), lazy=True, target=target)
    assert "sum out: split for at most 8 m, else narrow" in kernel.emit("plan")
    beside = attn.compile(WITH_VALUES.format(row="max(m, n)", mask="true", sign="-", dtype="f32"), lazy=True, target=target)
    assert "sum out: split\n" in beside.emit("plan")


def assert_gradients_are_equal(kernel, formula, tensors):
    weight = torch.randn_like(formula(*tensors))
    for found, wanted in zip(*(torch.autograd.grad(each(*tensors), tensors, weight) for each in (kernel, formula))):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 9, 20), (65, 130, 23)])
@pytest.mark.parametrize("row", ["m - n + N - 1", "max(m - n, 0)", "min(max(n - m, -far), far) + far", "n - m // 2"])
def test_gradients(row, sizes):
    """In double precision. Where the distance says which row it is, all rows are multiplied (attn-table-products)."""
    M, N, T = sizes
    torch.manual_seed(0)
    random = lambda *shape: torch.randn(*shape, dtype=torch.float64).requires_grad_()
    mask = "n >= m - 70"
    kernel = compiled(SPEC.format(row=row, mask=mask, dtype="f64"), lazy=True)
    tensors = random(M, 7), random(N, 7), random(N, 5), random(T, 7)
    assert_gradients_are_equal(lambda *t: kernel(*t, 11), lambda *t: relative(row, mask, *t, far=11), tensors)
    keyed = compiled(BY_KEYS.format(row=row, mask=mask, dtype="f64"), lazy=True)
    tensors = random(2, M, 7), random(2, N, 7), random(2, N, 5), random(2, T, 7)
    assert_gradients_are_equal(lambda *t: keyed(*t, 11), lambda *t: by_keys(row, mask, *t, far=11), tensors)


SHIFTED = """
attention shifted(q: f64[H, M, D], k: f64[H, N, D], v: f64[H, N, E], r: f64[T, D], s: f64[T, E], far: i32) {{
  weight[h, m, n] = softmax[n](sum[d](q[h, m, d] * (k[h, n, d] - r[{row}, d])) where n >= m - 70)
  out[h, m, e]    = sum[n](weight[h, m, n] * (v[h, n, e] - s[{row}, e]))
  return out
}}
"""


@pytest.mark.parametrize("rows", ["T", "M + N - 1"])
@pytest.mark.parametrize("row", ["min(max(n - m, -far), far) + far", "n - m + M - 1", "max(m, n)"])
def test_gradients_of_rows_that_are_added_to_keys_and_values(row, rows):
    def formula(q, k, v, r, s):
        m, n = torch.arange(9)[:, None], torch.arange(13)[None, :]
        chosen = ROWS[row](m, n, 13, 4).clamp(0, 20)
        score = q @ k.mT - torch.einsum("hmd,mnd->hmn", q, r[chosen])
        weight = torch.softmax(score.masked_fill(~(n >= m - 70), -torch.inf), -1)
        return weight @ v - torch.einsum("hmn,mne->hme", weight, s[chosen])

    torch.manual_seed(2)
    kernel = compiled(SHIFTED.format(row=row).replace("[T,", f"[{rows},"), lazy=True)
    shapes = (2, 9, 5), (2, 13, 5), (2, 13, 7), (21, 5), (21, 7)
    tensors = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    torch.testing.assert_close(kernel(*tensors, 4), formula(*tensors), rtol=1e-12, atol=1e-12)
    assert_gradients_are_equal(lambda *t: kernel(*t, 4), formula, tensors)


def test_a_backward_pass_multiplies_all_rows_of_a_table_once():
    kernel = attn.compile(BY_KEYS.format(row="min(max(n - m, -far), far) + far", mask="true", dtype="f64"), lazy=True)
    text = kernel.grad()[1].emit("simplified")
    assert '"score_table"(%h: H, %n: N, %row: T)' in text
    assert "attn.pairs" in text


def test_a_backward_pass_adds_up_the_weights_of_a_row_before_it_multiplies():
    kernel = attn.compile(SHIFTED.format(row="min(max(n - m, -far), far) + far"), lazy=True)
    text = kernel.grad()[1].emit("simplified")
    assert 'attn.tensor "grad_s_table"(%h: H, %m: M, %at: T)' in text
    assert "scatter grad_s_table: each term of n is added" in kernel.grad()[1].emit("plan")
