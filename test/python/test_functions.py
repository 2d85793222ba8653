"""Every function and operator of the language, one by one and at its extremes, against the reference. What the oracle found first."""

import subprocess
import sys

import numpy as np
import pytest

import attn

EXTREMES = [0, -0.0, np.inf, -np.inf, 1e38, -1e38, 1.17549435e-38, -1.17549435e-38, 88.7, 88.73, -87.4, -104, 127.99, 128, -126.5]
EXTREMES += [0.5, 1.5, 2.5, -0.5, -1.5, 65504, 65519, 65520, 3.3e38, 6e-8, 3e-8, 2e-8]
LEAST, GREATEST = -(2**63), 2**63 - 1


def floats(dtype="f"):
    generator = np.random.default_rng(0)
    random = [generator.standard_normal(2000) * scale for scale in (1e-30, 1e-10, 1e-3, 0.1, 1, 5, 30, 100, 1e4)]
    return np.concatenate([*random, np.linspace(-130, 130, 5201), EXTREMES]).astype(dtype)


def pointwise(expr, dtype, *arrays):
    """The kernel's result and the reference's, for x (and y)."""
    parameters = ", ".join(f"{name}: {dtype}[N]" for name, _ in zip("xy", arrays))
    kernel = attn.compile(f"attention f({parameters}) {{\n  result[n] = {expr}\n  return result\n}}\n")
    return kernel(*arrays), kernel.reference(*arrays)


def assert_close(found, expected, ulp, floor):
    """`ulp` units in the last place, or `floor` absolutely; infinities and NaN in the same places."""
    with np.errstate(invalid="ignore"):
        close = np.abs(found.astype("d") - expected) <= np.maximum(ulp * np.spacing(np.abs(expected)).astype("d"), floor)
    same = close | (found == expected) | (np.isnan(found) & np.isnan(expected))
    assert same.all(), (found[~same][:5], expected[~same][:5])


FUNCTIONS = ["exp", "exp2", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "relu", "abs", "floor", "round", "f16", "bf16"]
FUNCTIONS += ["log", "log2", "erf", "gelu"]
ULP = {"erf": 6, "tanh": 6, "log2": 3}  # of the rest: 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_f32(name):
    x = floats()
    assert_close(*pointwise(f"{name}(x[n])", "f32", x), ulp=ULP.get(name, 2), floor=2e-7 if name == "gelu" else 1e-37)


def test_tanh_is_within_1_and_reaches_it():
    x = np.concatenate([np.linspace(7, 12, 100003), [20, 1e30, np.inf]]).astype("f")
    found, _ = pointwise("tanh(x[n])", "f32", x)
    assert found.max() == 1 and (found[x >= 9.05] == 1).all()
    np.testing.assert_array_equal(pointwise("tanh(x[n])", "f32", -x)[0], -found)


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "sqrt", "sin", "tanh", "sigmoid"])
def test_functions_of_f64(name):
    assert_close(*pointwise(f"{name}(x[n])", "f64", floats("d")), ulp=2, floor=1e-300)


@pytest.mark.parametrize("expr", ["erf(x[n])", "gelu(x[n])", "f16(x[n])"])
def test_f64_has_these_functions(expr):
    assert_close(*pointwise(expr, "f64", np.linspace(-3, 3, 100)), ulp=4, floor=1e-15)


def test_a_power_of_infinity():
    assert_close(*pointwise("x[n] ** 0.5", "f32", np.array([np.inf, 4, 0, 1e38], "f")), ulp=8, floor=0)


@pytest.mark.parametrize("name", ["i8", "u8"])
def test_narrow_integers_wrap(name):
    found, expected = pointwise(f"{name}(x[n])", "f32", np.linspace(-1000, 1000, 999).astype("f"))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_rounding_an_integer(name):
    found, expected = pointwise(f"{name}(x[n])", "i32", np.array([0, 1, -7, 53623, 2**31 - 1, -(2**31)], "i4"))
    np.testing.assert_array_equal(found, expected)


def test_division_of_integers_by_all_signs_and_zero():
    x, y = (each.ravel() for each in np.meshgrid(np.arange(-9, 10), np.arange(-4, 5)))
    for operator in ("//", "%"):
        found, expected = pointwise(f"x[n] {operator} y[n]", "i64", x.astype("q"), y.astype("q"))
        np.testing.assert_array_equal(found, expected)
        wanted = np.where(y == 0, 0, (np.floor_divide if operator == "//" else np.mod)(x, np.where(y == 0, 1, y)))
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("operator", ["//", "%"])
def test_division_in_lanes(operator):
    """Integers that 32 bits hold: every pair of i8, and indices by sizes."""
    x, y = (each.ravel().astype("i1") for each in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    found, expected = pointwise(f"x[n] {operator} y[n]", "i8", x, y)
    np.testing.assert_array_equal(found, expected)
    kernel = attn.compile(f"attention f(x: u8[N], blocks: u8[S]) {{\n  r[n] = i32((n - x[n]) {operator} S)\n  return r\n}}\n")
    x = np.arange(2**20 + 5).astype("u1")
    for size in (1, 2, 3, 7, 1000, 65537, 2**20 + 4, 2**20 + 5):
        place = np.arange(len(x)) - x
        expected = place // size if operator == "//" else place % size
        np.testing.assert_array_equal(kernel(x, np.zeros(size, "u1")), expected)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_remainder_of_floats_is_exact_and_has_the_sign_of_the_divisor(dtype):
    values = np.array([0, 0.1, 1, 2.5, 3, 7, 1e3, 123456.7, 16777213, 1e8, 3e9, 1e20, 3.4e38, 1e-40, np.inf, np.nan])
    x, y = (each.ravel().astype({"f32": "f", "f64": "d"}[dtype]) for each in np.meshgrid(*[np.concatenate([values, -values])] * 2))
    found, expected = pointwise("x[n] % y[n]", dtype, x, y)
    with np.errstate(invalid="ignore", over="ignore"):
        np.testing.assert_array_equal(found, np.mod(x, y))  # NumPy's is made of fmod, too
        finite = np.isfinite(x) & np.isfinite(y)
        np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-7)  # the reference adds the divisor in double


def test_the_inverse_of_the_integer_0():
    found, _ = pointwise("x[n] ** -1", "i32", np.array([0, 2], "i4"))
    np.testing.assert_array_equal(found, [np.inf, 0.5])


@pytest.mark.parametrize("dtype, limit", [("i32", 2**31 - 1), ("i64", 2**31 - 1), ("i8", 127), ("u8", 255)])
def test_integers_are_reduced_in_64_bits(dtype, limit):
    x = np.full(1000, limit, {"i32": "i4", "i64": "i8", "i8": "i1", "u8": "u1"}[dtype])
    kernel = attn.compile(
        f"attention f(x: {dtype}[N], none: bool[N]) {{\n  total = sum[n](x[n])\n  most = max[n](x[n] where none[n])\n"
        "  least = min[n](x[n] where none[n])\n  return total, most, least\n}\n"
    )
    assert tuple(map(int, kernel(x, np.zeros(1000, bool)))) == (1000 * limit, LEAST, GREATEST)


@pytest.mark.parametrize("expr", ["max(x[n], 1.5)", "min(1.5, x[n])", "max(x[n], 0.0)", "min(x[n], 0.0)", "min(max(x[n], -1.5), 1.5)", "exp(min(max(x[n], -87.0), 87.0))"])
def test_bounds_keep_nan_and_infinities(expr):
    kernel = attn.compile(f"attention f(x: f32[N]) {{\n  r[n] = {expr}\n  return r\n}}\n")
    x = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -2.0, 100.0, -100.0] * 4, "f")  # whole vectors, and what is left
    np.testing.assert_allclose(kernel(x), kernel.reference(x), rtol=2e-6)


def test_logsumexp_of_infinities_and_nan():
    x = np.array([[-np.inf, np.nan, 1], [np.inf, 1, 2], [-np.inf] * 3, [np.nan] * 3, [5, np.nan, np.nan], [0, 1, 1e9]], "f")
    kernel = attn.compile("attention f(x: f32[M, N]) {\n  lse[m] = logsumexp[n](x[m, n])\n  return lse\n}\n")
    np.testing.assert_allclose(kernel(x), [np.nan, np.nan, -np.inf, np.nan, np.nan, 1e9])


@pytest.mark.parametrize("operator", ["//", "%"])
def test_the_quotient_that_fits_no_integer(operator):
    """−2⁶³ by −1 wraps. In a process of its own, since the processor may raise a signal for it."""
    program = (
        "import attn, numpy as np, sys\n"
        f"kernel = attn.compile('attention f(x: i64[N], y: i64[N]) {{\\n  r[n] = x[n] {operator} y[n]\\n  return r\\n}}\\n')\n"
        "values = np.array([-2**63, 2**63 - 1, 0, 1, -1, 2, 7, -7])\nx, y = (each.ravel().copy() for each in np.meshgrid(values, values))\n"
        "print(*kernel(x, y))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.returncode
    assert int(done.stdout.split()[32]) == (LEAST if operator == "//" else 0)  # row -1 of y, column −2⁶³ of x


def test_a_weighted_sum_without_a_value_index():
    kernel = attn.compile(
        "attention f(q: f32[B, M, D], k: f32[B, N, D], y: f32[B, N], valid: i32[B]) {\n"
        "  w[b, m, n] = softmax[n](sum[d](q[b, m, d] * k[b, n, d]) where n < valid[b])\n"
        "  out[b, m] = sum[n](w[b, m, n] * y[b, n] where n <= m)\n  return out\n}\n"
    )
    assert "keys of out_sum" in kernel.emit("plan")
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype("f") for shape in [(2, 70, 5), (2, 300, 5), (2, 300)]]
    arrays.append(np.array([0, 211], "i4"))
    np.testing.assert_allclose(kernel(*arrays), kernel.reference(*arrays), atol=1e-6)


def test_a_score_that_is_a_constant_on_whole_chunks():
    kernel = attn.compile(
        "attention f(x: f32[M, N], v: f32[N, E], window: i64) {\n"
        "  w[m, n] = softmax[n](select((n - m) % 1 == 0, 0.0, x[m, n]) where n <= m + (N - M) and m + (N - M) - n < window)\n"
        "  out[m, e] = sum[n](w[m, n] * v[n, e])\n  return out\n}\n"
    )
    x, v = np.ones((64, 63), "f"), np.arange(63 * 4, dtype="f").reshape(63, 4)
    np.testing.assert_allclose(kernel(x, v, 9), kernel.reference(x, v, 9), rtol=1e-6)


@pytest.mark.parametrize("d", [0, 1, 3, 100])
def test_what_is_reduced_need_not_depend_on_the_index(d):
    kernel = attn.compile("""
        attention counted(x: f32[M, D], y: f32[M], v: f32[N, E], flag: i32) {
          count[m]     = sum[d: D](1.0) + 0 * y[m]
          integers[m]  = sum[d: D](2) + 0 * flag
          least[m]     = min[d: D](flag) + 0 * sum[d](x[m, d])
          chosen[m]    = sum[d](x[m, d] where flag > 0)
          weight[m, n] = softmax[n](sum[d: D](v[n, 0]) + sum[d: D](y[m]))
          out[m, e]    = sum[n](weight[m, n] * v[n, e])
          return count, integers, least, chosen, out
        }""")
    generator = np.random.default_rng(d)
    x, y, v = (generator.standard_normal(shape, np.float32) for shape in ((3, d), 3, (7, 2)))
    for flag in (0, 1):
        for found, expected in zip(kernel(x, y, v, flag), kernel.reference(x, y, v, flag), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_an_output_that_is_read_in_the_kernel_may_be_empty(n):
    kernel = attn.compile("""
        attention returned(q: f64[M, D], k: f64[N, D], v: f64[N, E]) {
          part[m, n] = sum[d](q[m, d] * k[n, d])
          out[m, e]  = sum[n](relu(part[m, n]) * v[n, e])
          return part, out
        }""")
    generator = np.random.default_rng(n)
    q, k, v = (generator.standard_normal(shape) for shape in ((63, 2), (n, 2), (n, 4)))
    part, out = kernel(q, k, v)
    np.testing.assert_allclose(part, q @ k.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(out, np.maximum(q @ k.T, 0) @ v, rtol=1e-12, atol=1e-12)
