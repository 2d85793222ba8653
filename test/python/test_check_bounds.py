"""check_bounds: a call that reads a tensor outside where other tensors say so is an IndexError, if its result depends on it."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import test_gallery
from conftest import EXAMPLES
from gallery_cases import CASES

import attn

INTEGERS = {"i32": np.int32, "i64": np.int64}


def f32(*values):
    return np.array(values, np.float32)


def i32(*values):
    return np.array(values, np.int32)


def paged(dtype="i32", **changes):
    """Two sequences of 5 and 12 tokens on pages of 4."""
    generator = np.random.default_rng(1)
    q, k, v = (generator.standard_normal(shape).astype(np.float32) for shape in [(2, 4, 8), (6, 4, 2, 8), (6, 4, 2, 5)])
    page = np.array([[5, 0, 2], [1, 4, 3]], INTEGERS[dtype])
    return {"q": q, "k": k, "v": v, "page": page, "length": i32(5, 12), **changes}


def compile_paged(dtype="i32", **options):
    source = (EXAMPLES / "paged.attn").read_text().replace("page: i32", f"page: {dtype}")
    return attn.compile(source, **options)


def with_page(arguments, place, value):
    page = arguments["page"].copy()
    page[place] = value
    return {**arguments, "page": page}


def outside(kernel, text, arguments):
    """The call fails with this text, and leaves its outputs as they were."""
    expected = attn.compile(kernel._source)(**arguments)  # without checks: outputs of the right shapes
    expected = expected if isinstance(expected, tuple) else (expected,)
    out = tuple(np.full_like(array, 77) for array in expected)
    with pytest.raises(IndexError) as caught:
        kernel(**arguments, out=out if len(out) > 1 else out[0])
    assert str(caught.value) == text
    assert all((array == 77).all() for array in out)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_paged_within_bounds_is_as_without(dtype):
    arguments = paged(dtype)
    expected = compile_paged(dtype)(**arguments)
    np.testing.assert_array_equal(compile_paged(dtype, check_bounds=True)(**arguments), expected)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("place, value", [((0, 0), 6), ((0, 1), -1), ((1, 2), 2**31 - 1), ((1, 0), -(2**31))])
def test_paged_outside(dtype, place, value):
    text = f"paged: k: dimension 0 (P) is 6, but its subscript in score is {value}"
    outside(compile_paged(dtype, check_bounds=True), text, with_page(paged(dtype), place, value))


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 2, 2**63 - 1])
def test_the_least_and_the_greatest_integers(value):
    text = f"paged: k: dimension 0 (P) is 6, but its subscript in score is {value}"
    outside(compile_paged("i64", check_bounds=True), text, with_page(paged("i64"), (0, 0), value))


def test_masked_pages_may_hold_anything():
    # The first sequence has 5 tokens, so its third page is not used: neither by the scores nor by the values.
    arguments = with_page(paged(), (0, 2), -1)
    expected = compile_paged()(**paged())
    np.testing.assert_array_equal(compile_paged(check_bounds=True)(**arguments), expected)
    outside(
        compile_paged(check_bounds=True),
        "paged: k: dimension 0 (P) is 6, but its subscript in score is -1",
        {**arguments, "length": i32(9, 12)},
    )


def test_a_tensor_without_elements_has_no_subscript_inside():
    kernel = compile_paged(check_bounds=True)
    empty = {"k": np.zeros((0, 4, 2, 8), np.float32), "v": np.zeros((0, 4, 2, 5), np.float32)}
    outside(kernel, "paged: k: dimension 0 (P) is 0, but its subscript in score is 5", paged(**empty))
    np.testing.assert_array_equal(kernel(**paged(**empty, length=i32(0, 0))), np.zeros((2, 4, 5), np.float32))


def test_outputs_without_elements_use_nothing():
    source = "attention two(y: f32[N, E], at: i32[M]) {\n  a[m] = 2.0 * at[m]\n  b[m, e] = y[at[m], e]\n  return a, b\n}"
    kernel = attn.compile(source, check_bounds=True)
    arguments = {"y": np.ones((3, 0), np.float32), "at": i32(7)}
    np.testing.assert_array_equal(kernel(**arguments).a, [14.0])
    outside(kernel, "two: y: dimension 0 (N) is 3, but its subscript in b is 7", {**arguments, "y": np.ones((3, 1), np.float32)})


X = f32(1, 2, 3)
# A formula of y[m] from x: f32[N], at: i32[M], on: bool[M] and other: i32[L], the arguments, and where the subscript 9 is wrong.
FORMULAS = {
    "plain": ("x[at[m]]", i32(0, 9), [1, 1], "x"),
    "negative": ("x[at[m]]", i32(0, -4), [1, 1], "x"),
    "select": ("select(on[m], x[at[m]], 0.0)", i32(0, 9), [1, 0], None),
    "select, taken": ("select(on[m], x[at[m]], 0.0)", i32(0, 9), [0, 1], "x"),
    "select, the other side": ("select(on[m], 0.0, x[at[m]])", i32(0, 9), [0, 1], None),
    "select, the other side taken": ("select(on[m], 0.0, x[at[m]])", i32(0, 9), [1, 0], "x"),
    "guarded": ("select(at[m] >= 0 and at[m] < N, x[at[m]], 0.0)", i32(-4, 9), [1, 1], None),
    "and": ("select(on[m] and x[at[m]] > 1.0, 1.0, 2.0)", i32(0, 9), [1, 0], None),
    "and, the right side": ("select(on[m] and x[at[m]] > 1.0, 1.0, 2.0)", i32(0, 9), [0, 1], "x"),
    "and, the left side": ("select(x[at[m]] > 1.0 and on[m], 1.0, 2.0)", i32(0, 9), [1, 0], "x"),
    "or": ("select(on[m] or x[at[m]] > 1.0, 1.0, 2.0)", i32(0, 9), [0, 1], None),
    "or, the right side": ("select(on[m] or x[at[m]] > 1.0, 1.0, 2.0)", i32(0, 9), [1, 0], "x"),
    "not": ("select(not on[m], 0.0, x[at[m]])", i32(0, 9), [1, 0], None),
    "clamped": ("x[min(max(at[m], 0), N - 1)]", i32(-4, 9), [1, 1], None),
    "a sum": ("sum[j: M](x[at[j]] where on[j] and j <= m)", i32(0, 9), [1, 0], None),
    "a sum, used": ("sum[j: M](x[at[j]] where on[j] and j <= m)", i32(0, 9), [1, 1], "x"),
    "a maximum": ("max[j: M](x[at[j]] where on[j])", i32(0, 9), [1, 0], None),
    "a condition": ("sum[j: M](1.0 where on[j] and x[at[j]] > 0.0)", i32(0, 9), [1, 1], "x"),
    "a logsumexp": ("logsumexp[j: M](x[at[j]] where on[j])", i32(0, 9), [1, 0], None),
    "a sink": ("logsumexp[j: M](1.0, sink = x[at[m]])", i32(0, 9), [1, 1], "x"),
    "a product with 0": ("select(on[m], 1.0, 0.0) * x[at[m]]", i32(0, 9), [1, 0], "x"),
    "not data": ("x[m - 1]", i32(0, 9), [1, 1], None),
    "an expression": ("x[at[m] * 2 - m]", i32(0, 2), [1, 1], "x"),
    "a float": ("x[i64(0.5 * at[m])]", i32(0, 6), [1, 1], "x"),
    "within": ("x[at[at[m]]]", i32(0, 9), [1, 1], "at"),
    "within, the outer one": ("x[at[at[m] - 8]]", i32(8, 9), [1, 1], "x"),
}


@pytest.mark.parametrize("case", FORMULAS)
def test_what_a_result_uses(case):
    formula, at, on, tensor = FORMULAS[case]
    source = f"attention f(x: f32[N], at: i32[M], on: bool[M]) {{\n  y[m: M] = {formula}\n  return y\n}}"
    kernel = attn.compile(source, check_bounds=True)
    arguments = {"x": X, "at": at, "on": np.array(on, bool)}
    if tensor is None:
        np.testing.assert_array_equal(kernel(**arguments), attn.compile(source)(**arguments))
        return
    with pytest.raises(IndexError, match=rf"^f: {tensor}: dimension 0 \({'N' if tensor == 'x' else 'M'}\) is .* in y is "):
        kernel(**arguments)


ATTENTION = """
attention f(q: f32[M], k: f32[N], v: f32[P, E], page: i32[N], length: i32[M]) {
  weight[m, n] = softmax[n](q[m] * k[n] where n < length[m])
  STATEMENT
  return out
}
"""


@pytest.mark.parametrize(
    "statement",
    [
        "out[m, e] = sum[n](weight[m, n] * v[page[n], e])",
        "out[m, e] = sum[n](v[page[n], e] * -weight[m, n] / 2.0)",
        "kept[m, n] = dropout(weight[m, n], 0.5, 1) * q[m]\n  out[m, e] = sum[n](kept[m, n] * v[page[n], e])",
        "far[n, e: E] = v[page[n], e]\n  out[m, e] = sum[n](weight[m, n] * far[n, e])",
        "out[m, e] = sum[n](softmax[n](q[m] * k[n] where n < length[m]) * v[page[n], e])",
    ],
)
def test_values_of_masked_weights_are_not_used(statement):
    kernel = attn.compile(ATTENTION.replace("STATEMENT", statement), check_bounds=True)
    arguments = {"q": f32(1, 2), "k": f32(1, 2, 3), "v": np.ones((2, 3), np.float32), "page": i32(0, 1, 2)}
    kernel(**arguments, length=i32(1, 2))
    outside_in = "far" if "far" in statement else "out"
    outside(
        kernel,
        f"f: v: dimension 0 (P) is 2, but its subscript in {outside_in} is 2",
        {**arguments, "length": i32(1, 3)},
    )


def test_tensors_that_no_output_reads_are_not_checked():
    source = "attention f(x: f32[N], at: i32[M]) {\n  unused[m] = x[at[m]]\n  y[m] = 2.0 * at[m]\n  return y\n}"
    kernel = attn.compile(source, check_bounds=True)
    np.testing.assert_array_equal(kernel(X, i32(9)), [18.0])


def test_a_backward_pass_checks_nothing_again():
    """It has lost the condition that leaves out what is outside, and failed after a forward pass that had not."""
    torch = pytest.importorskip("torch")
    kernel = attn.compile(
        """attention chosen(q: f32[M], k: f32[R], row: i32[N], length: i32) {
          score[m, n] = q[m] * k[row[n]]
          out[m]      = sum[n](score[m, n] where n < length)
          return out }""",
        check_bounds=True,
    )
    q, k = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0, 5.0], requires_grad=True)
    row = torch.tensor([2, 0, 9, -1], dtype=torch.int32)
    kernel(q, k, row, 2).sum().backward()
    assert q.grad.tolist() == [8.0, 8.0] and k.grad.tolist() == [3.0, 0.0, 3.0]
    with pytest.raises(IndexError, match=r"k: dimension 0 \(R\) is 3, but its subscript in score is 9"):
        kernel(q, k, row, 3)


def test_what_a_forward_pass_saves_is_not_checked():
    """The log-sum-exps of pages that no weight reads."""
    kernel = attn.compile(
        """attention pages(q: f32[M], k: f32[R], row: i32[N], v: f32[N, P, E], y: f32[P], z: f32[N], length: i32) {
          inner[m, n, p] = softmax[p](q[m] * k[row[n]] * y[p])
          outer[m, n]    = softmax[n](q[m] * z[n] where n < length)
          out[m, e]      = sum[n](outer[m, n] * sum[p](inner[m, n, p] * v[n, p, e]))
          return out }""",
        check_bounds=True,
    )
    random = np.random.default_rng(0)
    q, k, v, y, z = (random.standard_normal(shape).astype("f") for shape in ((3,), (4,), (5, 2, 3), (2,), (5,)))
    row = i32(0, 2, 3, 9, -1)
    forward, _ = kernel.grad()
    np.testing.assert_allclose(forward(q, k, row, v, y, z, 3)[0], kernel(q, k, row, v, y, z, 3), rtol=0, atol=1e-6)
    with pytest.raises(IndexError, match=r"k: dimension 0 \(R\) is 4, but its subscript in inner is 9"):
        forward(q, k, row, v, y, z, 4)


def test_several_subscripts_and_tensors_between():
    source = """
attention f(x: f32[M, N], row: i32[K], column: i64[K], shift: i32 = 0) {
  twice[m, n] = 2.0 * x[m, n]
  y[k: K]     = twice[row[k], column[k] + shift]
  z[k: K]     = x[row[k], 0]
  return y, z
}
"""
    kernel = attn.compile(source, check_bounds=True)
    arguments = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "row": i32(0, 1), "column": np.array([2, 0])}
    np.testing.assert_array_equal(kernel(**arguments).y, [4.0, 6.0])
    outside(kernel, "f: twice: dimension 0 (M) is 2, but its subscript in y is 2", {**arguments, "row": i32(0, 2)})
    outside(kernel, "f: twice: dimension 1 (N) is 3, but its subscript in y is 4", {**arguments, "column": np.array([4, 0])})
    outside(kernel, "f: twice: dimension 1 (N) is 3, but its subscript in y is -1", {**arguments, "shift": -1})


def test_fixed_sizes():
    source = "attention f(x: f32[N], at: i32[M]) {\n  y[m] = x[at[m]]\n  return y\n}"
    kernel = attn.compile(source, check_bounds=True, sizes={"N": 3})
    with pytest.raises(IndexError, match="^f: x: dimension 0 is 3, but its subscript in y is 3$"):
        kernel(X, i32(3))


def test_chunks_are_counted_all_the_same():
    kernel = attn.compile(ATTENTION.replace("STATEMENT", "out[m, e] = sum[n](weight[m, n] * v[page[n], e])"), check_bounds=True)
    counting = attn.compile(kernel._source, check_bounds=True, count_chunks=True)
    arguments = {"q": f32(1, 2), "k": f32(1, 2), "v": np.ones((2, 3), np.float32), "page": i32(0, 5), "length": i32(1, 1)}
    np.testing.assert_array_equal(counting(**arguments)[0], kernel(**arguments))
    with pytest.raises(IndexError):
        counting(**{**arguments, "length": i32(1, 2)})


def test_a_kernel_without_such_subscripts_is_as_without():
    path = EXAMPLES / "scaled_dot.attn"
    assert attn.compile(path, check_bounds=True).emit("simplified") == attn.compile(path).emit("simplified")


def test_many_lengths_against_numpy(generator):
    """Whether a call is rejected, as NumPy says it, for tables with a wrong entry here and there."""
    kernel = compile_paged(check_bounds=True)
    rejected = 0
    for _ in range(100):
        arguments = paged(length=generator.integers(0, 13, 2).astype(np.int32))
        arguments["page"] = np.where(generator.random((2, 3)) < 0.2, generator.integers(-2, 9, (2, 3)), arguments["page"])
        arguments["page"] = arguments["page"].astype(np.int32)
        used = arguments["page"][np.arange(3)[None, :] * 4 < arguments["length"][:, None]]
        if ((used >= 0) & (used < 6)).all():
            kernel(**arguments)
            continue
        rejected += 1
        found = used.min() if used.min() < 0 else used.max()
        with pytest.raises(IndexError, match=rf" is {found}$"):
            kernel(**arguments)
    assert 10 < rejected < 90


def simplified(name, *options):
    """The text of an example after the passes, without compiling it."""
    tool = Path(os.environ["ATTN_BUILD"]) / "bin" / "attnc"
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    command = [tool, EXAMPLES / f"{name}.attn", "--emit=simplified", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


WITH_SUBSCRIPTS = ["contextual", "graph_edges", "paged", "ragged", "selected_blocks", "t5_bias", "tree"]


@pytest.mark.parametrize("name", [name for name in test_gallery.NAMES if name not in WITH_SUBSCRIPTS])
def test_examples_with_nothing_to_check_are_the_same(name):
    assert simplified(name, "--check-bounds") == simplified(name)


@pytest.mark.parametrize("name", WITH_SUBSCRIPTS)
def test_examples_with_subscripts_to_check_give_the_same(name):
    path, sizes = EXAMPLES / f"{name}.attn", CASES[name].fixed
    plain, checked = (attn.compile(path, kernel=name, sizes=sizes, check_bounds=check) for check in (False, True))
    assert "attn.bounds" in checked.emit("simplified")
    for number in (0, 1, 2):
        arguments, _ = test_gallery.draw(name, plain, number)
        np.testing.assert_array_equal(checked(**arguments), plain(**arguments))
