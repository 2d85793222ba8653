"""Backward kernels: every differentiable example against finite differences in f64, and in f32 against f64."""

import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import EXAMPLES
from gallery_cases import CASES
from test_gallery import NAMES, draw

import attn

ONE_PLAN = {"split.queries": 0, "narrow.queries": 0}  # compiles sooner; other tests have the other plans
STEP = 1e-6  # of central differences: their error is of the order of its square


def compile_in(dtype, name):
    source = re.sub(r"\b(f32|bf16|f16)\b", dtype, (EXAMPLES / f"{name}.attn").read_text())
    return attn.compile(source, kernel=name, sizes=CASES[name].fixed, plan=ONE_PLAN)


def run(kernel, arguments):
    """The outputs by name."""
    results = kernel(*arguments.values())
    return dict(zip((info.name for info in kernel.outputs), results if isinstance(results, tuple) else (results,)))


def gradients(kernel, arguments, output_gradients, inputs=None):
    forward, backward = kernel.grad(inputs)
    known = {**arguments, **run(forward, arguments), **{f"grad_{name}": each for name, each in output_gradients.items()}}
    return run(backward, {info.name: known[info.name] for info in backward.inputs})


def narrowed(values):
    """f64 arrays as f32."""
    return {
        name: value.astype(np.float32) if getattr(value, "dtype", None) == np.float64 else value
        for name, value in values.items()
    }


def draw_with_defaults(name, kernel, number):
    drawn, _ = draw(name, kernel, number)
    default = {info.name: info.default if info.dtype[0] == "f" else int(info.default or 0) for info in kernel.inputs}
    return {key: drawn.get(key, value) for key, value in default.items()}


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_an_example(name):
    """In f64 as finite differences along a random direction have them, and in f32 (every third) within 1e-5 of f64."""
    kernel = compile_in("f64", name)
    generator = np.random.default_rng(1)
    arguments = draw_with_defaults(name, kernel, 1)
    outputs = run(kernel, arguments)
    weights = {
        key: np.where(np.isfinite(value), generator.standard_normal(value.shape), 0)
        for key, value in outputs.items()
        if value.dtype.kind == "f"
    }

    def objective(changed):
        results = run(kernel, {**arguments, **changed})
        return sum(np.vdot(weights[key], np.where(np.isfinite(results[key]), results[key], 0)) for key in weights)

    found = gradients(kernel, arguments, weights)
    in_f32 = found
    if NAMES.index(name) % 3 == 0:
        in_f32 = gradients(compile_in("f32", name), narrowed(arguments), narrowed(weights))
    for info in kernel.inputs:
        if info.dtype != "f64" or info.name == "p":  # the probability of a dropout has no gradient
            continue
        value = np.asarray(arguments[info.name], np.float64)
        gradient = found[f"grad_{info.name}"]
        assert gradient.shape == value.shape
        direction = np.where(np.isfinite(value), generator.standard_normal(value.shape), 0)
        change = {sign: objective({info.name: value + sign * STEP * direction}) for sign in (1, -1)}
        expected = (change[1] - change[-1]) / (2 * STEP)
        scale = np.linalg.norm(gradient) + abs(expected) + abs(change[1])  # the last for the noise of the differences
        assert abs(np.vdot(gradient, direction) - expected) < 1e-6 * scale, info.name
        noise = max(np.abs(each).max(initial=0) for each in found.values())  # of gradients that cancel to nothing
        largest = max(np.abs(gradient).max(initial=0), 0.1 * noise)
        assert np.abs(in_f32[f"grad_{info.name}"] - gradient).max(initial=0) < 1e-5 * largest, info.name


def test_gradients_by_some_inputs_are_in_their_order_and_dtype():
    kernel = attn.compile(EXAMPLES / "everything.attn")
    forward, backward = kernel.grad(["slope", "q"])
    assert [(info.name, info.dtype) for info in backward.outputs] == [("grad_slope", "f32"), ("grad_q", "bf16")]
    assert [info.name for info in forward.outputs][: len(kernel.outputs)] == [info.name for info in kernel.outputs]
    assert {info.name for info in backward.inputs} >= {"q", "k", "v", "slope", "sink", "grad_out", "grad_lse"}


def test_an_input_that_the_outputs_do_not_depend_on_has_gradient_zero():
    kernel = attn.compile("attention first(x: f32[N], y: f32[M]) {\n z[n] = x[n] * 2\n return z\n}")
    _, backward = kernel.grad(["y"])
    x, y = np.ones(3, np.float32), np.ones(2, np.float32)
    assert backward(x=x, y=y, grad_z=x).tolist() == [0, 0]


def test_gathers_add_up_where_several_read_the_same_element():
    source = "attention gather(x: f32[N], index: i32[M]) {\n y[m] = x[index[m]]\n return y\n}"
    _, backward = attn.compile(source).grad()
    index = np.array([2, 0, 2, 7, -3], np.int32)  # clamped to 3 and 0
    result = backward(x=np.zeros(4, np.float32), index=index, grad_y=np.array([1, 2, 4, 8, 16], np.float32))
    assert result.tolist() == [18, 0, 5, 8]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_sigmoid_far_from_0_has_a_gradient(dtype):
    source = f"attention gate(x: {dtype}[N]) {{\n y[n] = sigmoid(x[n])\n return y\n}}"
    _, backward = attn.compile(source).grad()
    kind = np.float32 if dtype == "f32" else np.float64
    x = np.array([-1e4, -800, -89, -1, 0, 1, 89, 800, 1e4], kind)
    found = backward(x=x, grad_y=np.full(x.shape, 2, kind))
    assert found == pytest.approx(0.5 / np.cosh(np.clip(x, -80, 80) / 2) ** 2, rel=1e-6, abs=1e-30)


def test_groups_that_do_not_divide_the_heads():
    source = "attention repeat(x: f32[G], h: f32[H]) {\n y[i: H] = x[i // (H // G)] * h[i]\n return y\n}"
    _, backward = attn.compile(source).grad(["x"])
    h = np.arange(1, 6, dtype=np.float32)  # 5 heads in 2 groups of 2: the fifth reads the last group, clamped
    assert backward(x=np.ones(2, np.float32), h=h, grad_y=np.ones(5, np.float32)).tolist() == [3, 12]


def test_masked_keys_have_no_part_in_a_gradient():
    kernel = attn.compile(EXAMPLES / "scaled_dot.attn")
    forward, backward = kernel.grad()
    generator = np.random.default_rng(3)
    q, k, v = (generator.standard_normal(shape, np.float32) for shape in [(2, 3, 4), (2, 5, 4), (2, 5, 6)])
    valid = np.array([2, 0], np.int32)
    k[0, 2:] = v[0, 2:] = k[1] = v[1] = 1e30
    known = dict(q=q, k=k, v=v, valid=valid)
    known |= run(forward, known)
    known |= {"grad_out": np.ones((2, 3, 6), np.float32), "grad_weight": np.zeros((2, 3, 5), np.float32)}
    found = run(backward, {info.name: known[info.name] for info in backward.inputs})
    assert np.isfinite(found["grad_q"]).all() and not found["grad_q"][1].any()
    assert np.isfinite(found["grad_v"]).all() and not found["grad_v"][0, 2:].any() and not found["grad_v"][1].any()


def test_an_input_is_the_mask_of_a_sum_inside_a_score():
    torch = pytest.importorskip("torch")
    kernel = attn.compile(
        """attention near(q: f32[M, D], k: f32[N, D], v: f32[N, E], near: bool[M, N], bias: f32[M, N]) {
  score[m, n] = select(near[m, n], 1.0, bias[m, n]) + sum[d](q[m, d] * k[n, d] * bias[m, n] where near[m, n])
  out[m, e] = sum[n](softmax[n](score[m, n]) * v[n, e])
  return out
}"""
    )
    torch.manual_seed(0)
    near = torch.rand(37, 50) > 0.5
    inputs = [torch.randn(shape).requires_grad_() for shape in ((37, 8), (50, 8), (50, 9), (37, 50))]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    q, k, v, bias = exact
    wanted = torch.where(near, 1.0 + q @ k.T * bias, bias).softmax(-1) @ v
    result = kernel(*inputs[:3], near, inputs[3])
    direction = torch.randn_like(result)
    result.backward(direction)
    wanted.backward(direction.double())
    for single, double in zip(inputs, exact, strict=True):
        torch.testing.assert_close(single.grad.double(), double.grad, rtol=0, atol=4e-6 * double.grad.abs().max().item())


def test_an_unknown_input_is_an_error_that_names_those_there_are():
    kernel = attn.compile(EXAMPLES / "causal.attn")
    with pytest.raises(attn.CompileError, match="kernel `causal` has no input `query`: its floating-point inputs are q, k, v"):
        kernel.grad(["query"])


def test_results_do_not_depend_on_the_number_of_threads():
    kernel = attn.compile(EXAMPLES / "causal.attn")
    generator = np.random.default_rng(4)
    arguments = {name: generator.standard_normal((1, 3, 130, 20), np.float32) for name in "qkv"}
    results = []
    try:
        for threads in (1, 2, 5):
            attn.set_num_threads(threads)
            results.append(gradients(kernel, arguments, {"out": np.ones((1, 3, 130, 20), np.float32)}))
    finally:
        attn.set_num_threads(0)
    for other in results[1:]:
        for name, value in results[0].items():
            np.testing.assert_array_equal(other[name], value)


#: Prints by how many KiB the process grows when it computes the gradients for 6000 queries and keys, of which the pairs are 140625.
GROWTH = """
import resource, sys
import numpy as np
import attn
forward, backward = attn.compile(sys.argv[1]).grad()

def step(tokens):
    sizes = {"M": tokens, "N": tokens, "D": 8, "E": 8}
    shape = lambda info: [sizes.get(size, int(size) if size.isdigit() else 1) for size in info.shape]
    known = {info.name: np.ones(shape(info), np.float32) for info in (*forward.inputs, *backward.inputs)}
    results = forward(*[known[info.name] for info in forward.inputs])
    known |= zip([info.name for info in forward.outputs], results if isinstance(results, tuple) else (results,))
    backward(*[known[info.name] for info in backward.inputs])

step(8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
step(6000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("name", ["causal", "differential", "sigmoid_attention", "relu_attention", "retention", "alibi"])
def test_a_backward_pass_stores_no_pairs_as_a_whole(name):
    program = [sys.executable, "-c", GROWTH, EXAMPLES / f"{name}.attn"]
    growth = int(subprocess.run(program, capture_output=True, text=True, check=True).stdout)
    assert growth < 40_000


def gradients_of_sum(source, *inputs):
    torch = pytest.importorskip("torch")
    tensors = [torch.tensor(value, requires_grad=True) for value in inputs]
    attn.compile(source)(*tensors).sum().backward()
    return [tensor.grad.numpy() for tensor in tensors]


@pytest.mark.parametrize(
    "formula, x, expected",
    [
        ("select(x[n] > 0, sqrt(x[n]), 0)", [-1.0, 0, 4], [0, 0, 0.25]),
        ("select(x[n] > 0, x[n] + 1, exp(x[n]))", [0.0, 4, 100], [1, 1, 1]),
        ("select(x[n] > 0, 2 / x[n], 0)", [0.0, 2], [0, -0.5]),
        ("select(x[n] > 0, x[n] ** 0.5, 0)", [-1.0, 0, 4], [0, 0, 0.25]),
        ("3 * select(x[n] > 0, select(x[n] > 2, log(x[n] - 2), 1 / x[n]), -x[n])", [-1.0, 0, 2, 4], [-3, -3, -0.75, 1.5]),
    ],
)
def test_what_is_not_chosen_has_no_gradient(formula, x, expected):
    (gradient,) = gradients_of_sum(f"attention a(x: f32[N]) {{\n  y[n] = {formula}\n  return y\n}}", x)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_powers_that_are_not_chosen():
    source = """attention retention(x: f32[N], gamma: f32) {
      decay[m: N, n: N] = select(n <= m, gamma ** (m - n), 0)
      out[m: N] = sum[n: N](decay[m, n] * x[n])
      return out
    }"""
    _, gradient = gradients_of_sum(source, [1.0] * 512, 0.8)
    distance = np.arange(512)
    np.testing.assert_allclose(gradient, ((512 - distance) * distance * 0.8 ** (distance - 1.0)).sum(), rtol=1e-5)


def test_inputs_that_are_no_list_of_names():
    kernel = attn.compile("attention a(q: f32[N]) {\n  y[n] = q[n] * q[n]\n  return y\n}")
    with pytest.raises(TypeError, match=re.escape("inputs: must be a list of names, as ['q'], but is the text 'q'")):
        kernel.grad("q")
    with pytest.raises(attn.CompileError, match="the gradient by `q` is asked for twice"):
        kernel.grad(["q", "q"])


@pytest.mark.parametrize("rows", [2, 20, 100])
def test_a_row_whose_scores_are_all_infinite_adds_nothing(rows):
    torch = pytest.importorskip("torch")
    kernel = attn.compile("""attention a(q: f32[M, D], k: f32[N, D], v: f32[N, E], bias: f32[M, N], s: f32) {
      weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]) + bias[m, n], sink = s)
      out[m, e] = sum[n](weight[m, n] * v[n, e])
      return out
    }""")
    torch.manual_seed(rows)
    bias = torch.zeros(rows, 3)
    bias[0] = -torch.inf
    for sink in (0.5, -torch.inf):
        given = [torch.randn(rows, 4), torch.randn(3, 4), torch.randn(3, 2), bias.clone(), torch.tensor(sink)]
        tensors = [tensor.requires_grad_() for tensor in given]
        kernel(*tensors).square().sum().backward()
        exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
        q, k, v, b, s = exact
        scores = torch.cat([(q @ k.T + b)[1:], s.expand(rows - 1, 1)], -1)
        (torch.softmax(scores, -1)[:, :3] @ v).square().sum().backward()
        for single, double in zip(tensors, exact):
            wanted = double.grad.nan_to_num().float()
            torch.testing.assert_close(single.grad, wanted, rtol=1e-4, atol=1e-5 * wanted.abs().max().item() + 1e-7)
