"""The guarantees of docs/numerics.md, each under its name there."""

import re
import sys

import numpy as np
import pytest
from conftest import ROOT

import attn

sys.path.insert(0, str(ROOT / "docs"))
import write_numerics

ATTENTION = """attention f(q: DTYPE[B, M, D], k: DTYPE[B, N, D], v: DTYPE[B, N, E], valid: i32[B]) {
  score[b, m, n]  = sum[d](q[b, m, d] * k[b, n, d]) / sqrt(D)
  weight[b, m, n] = softmax[n](score[b, m, n] where n < valid[b])
  out[b, m, e]    = sum[n](weight[b, m, n] * v[b, n, e])
  lse[b, m]: f32  = logsumexp[n](score[b, m, n] where n < valid[b])
  return RETURN
}
"""


def attention(outputs="out", dtype="f32"):
    return attn.compile(ATTENTION.replace("RETURN", outputs).replace("DTYPE", dtype))


def draw(batch=2, queries=70, keys=600, features=33, seed=0):
    random = np.random.default_rng(seed)
    shapes = [(batch, queries, features), (batch, keys, features), (batch, keys, 17)]
    return [random.standard_normal(shape).astype("f") for shape in shapes] + [np.full(batch, keys, "i4")]


def error(found, expected):
    """The worst error of an element, relative to the largest of its row."""
    found, expected = np.asarray(found, "d"), np.asarray(expected, "d")
    return (np.abs(found - expected) / np.abs(expected).max(-1, keepdims=True)).max()


def pointwise(expr, *arrays):
    parameters = ", ".join(f"{name}: f32[N]" for name, _ in zip("xy", arrays))
    return attn.compile(f"attention f({parameters}) {{\n  r[n] = {expr}\n  return r\n}}\n")(*arrays)


def test_every_guarantee_names_tests_that_exist():
    named = re.findall(r"`(test_\w+)`", write_numerics.PAGE.read_text(encoding="utf-8"))
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "test" / "python").glob("test_*.py"))
    assert len(named) >= 14
    assert [name for name in named if f"def {name}(" not in tests] == []
    assert [name for name in globals() if name.startswith("test_") and name not in named] == [
        "test_every_guarantee_names_tests_that_exist",
        "test_the_table_has_every_example_and_dtype",
    ]


def test_the_table_has_every_example_and_dtype():
    write_numerics.check()


def test_outputs_in_f32_are_within_2e_6_of_their_rows_scale():
    kernel, arrays = attention(), draw()
    assert error(kernel(*arrays), kernel.reference(*arrays)) < 2e-6


@pytest.mark.parametrize("terms", [1, 31, 600, 20_000, 1_000_000])
@pytest.mark.parametrize("alike", [False, True])
def test_a_sum_is_exact_to_2e_6_of_its_terms_however_many(terms, alike):
    random = np.random.default_rng(terms)
    x = np.full((2, terms), 0.1, "f") if alike else random.uniform(0, 1, (2, terms)).astype("f")
    along = attn.compile("attention f(x: f32[M, N]) {\n  r[m] = sum[n](x[m, n])\n  return r\n}\n")(x)
    across = attn.compile("attention f(x: f32[N, M]) {\n  r[m] = sum[n](x[n, m])\n  return r\n}\n")(np.ascontiguousarray(x.T))
    denominator = attn.compile("attention f(x: f32[M, N]) {\n  r[m] = logsumexp[n](log(x[m, n]))\n  return r\n}\n")(x)
    exact = x.astype("d").sum(-1)
    np.testing.assert_allclose(along, exact, rtol=2e-6)
    np.testing.assert_allclose(across, exact, rtol=2e-6)
    np.testing.assert_allclose(np.exp(denominator.astype("d")), exact, rtol=1e-5)  # the logarithm is rounded, too


@pytest.mark.parametrize("queries", [3, 20])  # split and tiled
def test_equal_weights_do_not_add_up_roundings(queries):
    # The first key's weight is 1; each of the others, added to it by itself, would be lost.
    bias = np.full((1, 256), np.log(0.9 * 2.0**-24), "f")
    bias[0, 0] = 0
    v = np.stack([np.ones_like(bias), np.where(bias < 0, -1, 1)], -1).astype("f")  # columns where sum and weighted sum are off alike, and not
    kernel = attn.compile(
        "attention f(q: f32[B, M], bias: f32[B, N], v: f32[B, N, E]) {\n  weight[b, m, n] = softmax[n](q[b, m] + bias[b, n])\n"
        "  out[b, m, e] = sum[n](weight[b, m, n] * v[b, n, e])\n  return out\n}\n"
    )
    weights = np.exp(bias.astype("d"))
    exact = (weights[..., None] * v).sum(1) / weights.sum()
    np.testing.assert_allclose(kernel(np.zeros((1, queries), "f"), bias, v)[0], np.broadcast_to(exact, (queries, 2)), rtol=5e-6)


@pytest.mark.parametrize("dtype, unit", [("f16", 2.0**-11), ("bf16", 2.0**-8)])
def test_narrow_dtypes_are_computed_in_f32_and_rounded_once(dtype, unit):
    torch = pytest.importorskip("torch")
    wide = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    # Of weights that are rounded, too (the next test), as much as of the output.
    weights = np.abs(draw()[2]).max() * 2.0**-9 if dtype == "bf16" else 0
    arrays = [torch.from_numpy(each).to(wide) for each in draw()[:3]] + [torch.tensor([600, 600], dtype=torch.int32)]
    found = attention(dtype=dtype)(*arrays).double().numpy()
    exact = attention()(*(each.float() for each in arrays[:3]), arrays[3]).double().numpy()
    # Half a unit in the last place, and what f32 was off by before: at a tie that decides.
    assert (np.abs(found - exact) <= unit * np.abs(exact) * 1.01 + 2e-6 * np.abs(exact).max() + weights).all()


@pytest.mark.parametrize("sizes", [(9, 1, 1, 1), (17, 7, 3, 5), (65, 63, 64, 65), (70, 2001, 63, 17), (64, 256, 128, 128)])
def test_bf16_attention_loses_no_more_than_its_weights_and_outputs_are_rounded(sizes):
    torch = pytest.importorskip("torch")
    queries, keys, width, columns = sizes
    random = np.random.default_rng(keys)
    q, k, v = (torch.from_numpy(random.standard_normal(s).astype("f")).to(torch.bfloat16) for s in [(2, queries, width), (2, keys, width), (2, keys, columns)])
    text = "attention f(q: bf16[B, M, D], k: bf16[B, N, D], v: bf16[B, N, E]) {\n  out[b, m, e] = sum[n](softmax[n](sum[d](q[b, m, d] * k[b, n, d]) / sqrt(D)) * v[b, n, e])\n  return out\n}\n"
    found = attn.compile(text)(q, k, v).double()
    weights = torch.softmax(q.double() @ k.double().transpose(1, 2) / width**0.5, -1)
    exact, magnitude = weights @ v.double(), weights @ v.double().abs()
    assert ((found - exact).abs() <= 2.0**-9 * (exact.abs() + magnitude) * 1.02 + 1e-5 * magnitude).all()


def test_f64_is_computed_in_double():
    kernel = attention("out", "f64")
    arrays = [each.astype("d") for each in draw()[:3]] + [np.array([600, 411], "i4")]
    assert error(kernel(*arrays), kernel.reference(*arrays)) < 1e-13


def test_masked_rows_are_zero_and_their_logsumexp_is_minus_infinity():
    *arrays, _ = draw(batch=3)
    out, weight, lse = attention("out, weight, lse")(*arrays, np.array([0, -5, 1], "i4"))
    assert (out[:2] == 0).all() and (weight[:2] == 0).all() and (lse[:2] == -np.inf).all()
    assert (weight[2, :, 0] == 1).all() and (weight[2, :, 1:] == 0).all()
    np.testing.assert_array_equal(out[2], np.broadcast_to(arrays[2][2, 0], out[2].shape))


def test_what_is_masked_never_matters_whatever_it_is():
    kernel, (q, k, v, valid) = attention("out, lse"), draw()
    valid[:] = [300, 77]
    expected = kernel(q, k, v, valid)
    for b, length in enumerate(valid):
        k[b, length:] = np.nan
    for a, b in zip(kernel(q, k, v, valid), expected):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("queries", [1, 20, 600])  # split, narrow and wide tiles
@pytest.mark.parametrize("weight", ["sigmoid(sum[d](q[m, d] * k[n, d]))", "softmax[n](sum[d](q[m, d] * k[n, d]))"])
@pytest.mark.parametrize("condition, seen", [("n < valid", 133), ("n <= m + valid - M", None)])
def test_what_a_sum_leaves_out_never_matters_whatever_it_is(queries, weight, condition, seen):
    kernel = attn.compile(f"""attention f(q: f32[M, D], k: f32[N, D], v: f32[N, E], valid: i32) {{
        w[m, n]   = {weight}
        out[m, e] = sum[n](w[m, n] * v[n, e] where {condition})
        return out
    }}""")
    generator = np.random.default_rng(3)
    q, k, v = (generator.standard_normal((rows, 24), np.float32) for rows in (queries, 700, 700))
    expected = kernel(q, k, v, 133)
    for m in [queries - 1, 0] if seen is None else [queries - 1]:  # the last query sees most
        first = seen or m + 133 - queries + 1
        v[max(first, 0) :] = np.nan
        np.testing.assert_array_equal(kernel(q, k, v, 133)[: m + 1], expected[: m + 1])


def test_a_score_of_infinity_or_nan_makes_its_row_nan_but_for_what_is_masked():
    x = np.zeros((4, 600), "f")
    x[0, 5], x[1, 7], x[2, 500] = np.inf, np.nan, np.inf  # the last one is masked
    kernel = attn.compile("attention f(x: f32[M, N]) {\n  w[m, n] = softmax[n](x[m, n] where n < 400)\n  return w\n}\n")
    weight = kernel(x)
    assert np.isnan(weight[:2, :400]).all() and (weight[:, 400:] == 0).all()
    np.testing.assert_allclose(weight[2:, :400], 1 / 400, rtol=1e-6)


def test_a_score_of_minus_infinity_has_weight_zero():
    x = np.zeros((2, 600), "f")
    x[0, ::2] = x[1] = -np.inf
    weight = attn.compile("attention f(x: f32[M, N]) {\n  w[m, n] = softmax[n](x[m, n])\n  return w\n}\n")(x)
    assert (weight[0, ::2] == 0).all() and (weight[1] == 0).all()
    np.testing.assert_allclose(weight[0, 1::2], 1 / 300, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_large_scores_do_not_overflow(scale):
    x = np.linspace(-scale, scale, 600, dtype="f").reshape(2, 300)
    kernel = attn.compile("attention f(x: f32[M, N]) {\n  w[m, n] = softmax[n](x[m, n])\n  l[m] = logsumexp[n](x[m, n])\n  return w, l\n}\n")
    weight, lse = kernel(x)
    np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(lse, x[:, -1], rtol=1e-6)


def test_subnormal_numbers_are_numbers():
    x = np.array([1e-45, 1e-40, -3e-39, 1.1754942e-38], "f")
    np.testing.assert_array_equal(pointwise("x[n] + x[n]", x), x + x)
    np.testing.assert_array_equal(pointwise("max(x[n], 0.0)", x), np.maximum(x, 0))


def test_zero_has_a_sign():
    x = np.array([0.0, -0.0, -1.0], "f")
    assert list(np.signbit(pointwise("-x[n]", x))) == [True, False, False]
    np.testing.assert_array_equal(pointwise("1.0 / x[n]", x), [np.inf, -np.inf, -1])


def test_exp2_is_within_two_units_in_the_last_place():
    x = np.concatenate([np.linspace(-126, 127.99, 200_001), np.linspace(-1, 1, 100_001), np.linspace(-150, -126, 5000)]).astype("f")
    exact = np.exp2(x.astype("d"))
    assert (np.abs(pointwise("exp2(x[n])", x) - exact) <= 2 * np.spacing(exact.astype("f")).astype("d")).all()
    special = pointwise("exp2(x[n])", np.array([np.inf, -np.inf, np.nan, 128, -151, 0], "f"))
    np.testing.assert_array_equal(special, [np.inf, 0, np.nan, np.inf, 0, 1])


def test_two_runs_give_the_same_bits_on_any_number_of_threads():
    kernel, arrays = attention("out, weight, lse"), draw(batch=5)
    try:
        runs = []
        for threads in (1, 2, 3, 1):
            attn.set_num_threads(threads)
            runs.append(kernel(*arrays))
    finally:
        attn.set_num_threads(0)
    for run in runs[1:]:
        for a, b in zip(run, runs[0]):
            np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


def test_a_row_does_not_depend_on_the_rows_beside_it():
    kernel, (q, k, v, valid) = attention(), draw(batch=1)
    all_rows = kernel(q, k, v, valid)
    for first in (1, 37):
        np.testing.assert_array_equal(kernel(q[:, first:], k, v, valid), all_rows[:, first:])


def test_a_division_by_a_constant_zero_is_that_of_a_number():
    kernel = attn.compile("attention a(x: f32[N]) {\n  y[n] = x[n] / 0.0\n  return y\n}")
    np.testing.assert_array_equal(kernel(np.float32([1, -1, 0])), np.float32([np.inf, -np.inf, np.nan]))
