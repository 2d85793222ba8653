"""Kernels as operators of PyTorch: opcheck, torch.compile, torch.export, autocast, autograd."""

import pickle
import subprocess
import sys

import numpy
import pytest
from conftest import EXAMPLES

torch = pytest.importorskip("torch")

import attn  # noqa: E402
from attn import sizes  # noqa: E402

SPEC = """
attention heads(q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, E], valid: i32[B], scale: f32 = 0.5, past: i64 = 0) {
  score[b, m, n]  = sum[d](q[b, m, d] * k[b, n, d]) * scale
  weight[b, m, n] = softmax[n](score[b, m, n] where n < valid[b] and n <= m + past)
  out[b, m, e]    = sum[n](weight[b, m, n] * v[b, n, e])
  lse[b, m]: f32  = logsumexp[n](score[b, m, n] where n < valid[b] and n <= m + past)
  return out, lse
}
"""


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(SPEC)


@pytest.fixture(scope="module")
def operator(kernel):
    return attn.torch_operator(kernel)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(6)


def tensors(m=5, n=7, dtype=torch.float32):
    return (
        torch.randn(2, m, 4, dtype=dtype),
        torch.randn(2, n, 4, dtype=dtype),
        torch.randn(2, n, 6, dtype=dtype),
        torch.tensor([n, n // 2 + 1], dtype=torch.int32),
    )


def all_tensors(**options):
    return *tensors(**options), torch.tensor(0.5), torch.tensor(2)


def formula(q, k, v, valid, scale=0.5, past=0):
    m, n = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])
    score = (q @ k.mT * scale).masked_fill(~((n < valid[:, None, None]) & (n <= m + past)), -torch.inf)
    return torch.softmax(score, -1) @ v, torch.logsumexp(score, -1)


def test_importing_attn_imports_no_torch():
    code = "import sys, attn; assert 'torch' not in sys.modules, 'torch'; assert 'flex_attention' in attn.__all__"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="^module 'attn' has no attribute 'flash'$"):
        attn.flash  # noqa: B018


def test_an_operator_takes_what_its_kernel_takes(operator, kernel):
    inputs = tensors()
    results = operator(*inputs, past=2)
    torch.testing.assert_close(tuple(results), formula(*inputs, past=2))
    assert type(results).__name__ == "heads_outputs" and results.out is results[0]
    torch.testing.assert_close(operator(*inputs, torch.tensor(0.25), 1), kernel(*inputs, 0.25, 1))
    q, k, v, valid = inputs
    torch.testing.assert_close(operator(v=v, k=k, q=q, valid=valid), kernel(*inputs))
    torch.testing.assert_close(operator(q, k.numpy(), v, valid, numpy.float32(0.5)), kernel(*inputs))
    assert attn.torch_operator(kernel) is operator and operator.kernel is kernel
    assert repr(operator).startswith(f"<attn.Operator torch.ops.attn.{operator.name} of <attn.Kernel heads(")


def test_kernels_of_one_source_with_different_options_are_different_operators(operator):
    other = attn.torch_operator(attn.compile(SPEC, check_bounds=True))
    assert other.name == f"{operator.name}_2" and attn.torch_operator(other.kernel) is other


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f, i: f(*i[:3]), TypeError, "heads() is missing valid: i32[B]"),
        (
            lambda f, i: f(*i, 0.5, 1, 2),
            TypeError,
            "heads() takes 6 inputs (q, k, v, valid, scale, past), but 7 were given",
        ),
        (lambda f, i: f(*i, q=i[0]), TypeError, "heads() got 'q' twice: by position and by name"),
        (
            lambda f, i: f(*i, width=1),
            TypeError,
            "heads() has no input 'width': its inputs are q, k, v, valid, scale, past",
        ),
        (
            lambda f, i: f(i[0].tolist(), *i[1:]),
            TypeError,
            "q: must be an array f32[B, M, D], but is of type list",
        ),
        (lambda f, i: f(*i, "0.5"), TypeError, "scale: must be a number (f32), but is of type str"),
        (lambda f, i: f(*i, past=0.5), TypeError, "past: must be a number that can be i64, but is 0.5"),
    ],
)
def test_arguments_that_do_not_fit(operator, call, error, message):
    with pytest.raises(error) as raised:
        call(operator, tensors())
    assert str(raised.value) == message


def test_opcheck(operator):
    torch.library.opcheck(getattr(torch.ops.attn, operator.name), all_tensors())


def test_opcheck_of_tensors_that_are_not_contiguous(operator):
    q, k, v, valid, scale, past = all_tensors()
    inputs = q.mT.contiguous().mT, k[:1].expand(2, -1, -1), v.flip(1)[..., ::2], valid, scale, past
    torch.library.opcheck(getattr(torch.ops.attn, operator.name), inputs)
    torch.testing.assert_close(tuple(operator(*inputs)), formula(*inputs))


@pytest.mark.parametrize("dynamic", [None, True])
def test_compile(operator, dynamic):
    calls = 0

    def count(graph, inputs):
        nonlocal calls
        calls += 1
        return graph

    @torch.compile(fullgraph=True, dynamic=dynamic, backend=count)
    def model(q, k, v, valid):
        return operator(2 * q, k, v, valid, past=1).out + 1

    for m in (5, 6, 9):
        q, k, v, valid = tensors(m)
        torch.testing.assert_close(model(q, k, v, valid), formula(2 * q, k, v, valid, past=1)[0] + 1)
    assert calls <= (1 if dynamic else 2)


class Model(torch.nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, q, k, v, valid):
        return self.operator(self.linear(q), k, v, valid).out.sum(-1)


def test_export(operator):
    model, length = Model(operator).eval().requires_grad_(False), torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(model, tensors(), dynamic_shapes=({1: length}, None, None, None))
    assert f"torch.ops.attn.{operator.name}.default" in program.graph_module.code
    for m in (5, 9):
        inputs = tensors(m)
        torch.testing.assert_close(program.module()(*inputs), model(*inputs))


def test_autocast_converts_floats_to_what_the_kernel_declares(operator):
    q, k, v, valid = tensors()
    with torch.autocast("cpu", torch.bfloat16):
        product = torch.nn.functional.linear(q, torch.eye(4))
        assert product.dtype == torch.bfloat16
        out = operator(product, k, v.double(), valid).out
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, formula(product.float(), k, v, valid)[0])


def test_autocast_of_a_kernel_with_gradients_and_without(kernel):
    q, k, v, valid = tensors()
    for tensor in (q, q.requires_grad_()):
        with torch.autocast("cpu", torch.bfloat16):
            product = torch.nn.functional.linear(tensor, torch.eye(4))
            assert product.dtype == torch.bfloat16
            out = kernel(product, k, v, valid).out
        torch.testing.assert_close(out, formula(product.float(), k, v, valid)[0])


def test_an_integer_that_does_not_fit():
    kernel = attn.compile("attention a(x: f32[N], t: i32) {\n  y[n] = x[n] * t\n  return y\n}")
    for x in (torch.ones(3), torch.ones(3, requires_grad=True)):
        with pytest.raises(ValueError, match="t: 1099511627776 does not fit i32"):
            kernel(x, 2**40)


def test_operators_are_pickled(operator):
    again = pickle.loads(pickle.dumps(operator))
    inputs = tensors()
    torch.testing.assert_close(again(*inputs).out, operator(*inputs).out)


def test_shapes_without_elements(operator):
    shapes = [tensor.to("meta") for tensor in all_tensors()]
    out, lse = operator(*shapes)
    assert out.device.type == "meta" and out.shape == (2, 5, 6) and lse.shape == (2, 5)
    with pytest.raises(ValueError, match="^heads: k: dimension 0 must be B, which is 2, but is 3$"):
        operator(shapes[0], torch.empty(3, 7, 4, device="meta"), *shapes[2:])
    with pytest.raises(ValueError, match=r"^k: must have 3 dimensions, \[B, N, D\], but has 2$"):
        operator(shapes[0], torch.empty(7, 4, device="meta"), *shapes[2:])
    with pytest.raises(TypeError, match="^q: dtype must be f32, but is torch.float64$"):
        operator(shapes[0].double(), *shapes[1:])


def test_sizes_are_solved():
    info = attn.TensorInfo
    shapes = {"w": ("12 * D", "J"), "x": ("U - V + 1",), "y": ("V",), "z": ("U // 2",)}
    inputs = [info(name, "f32", shape) for name, shape in shapes.items()]
    failed = []
    found = sizes.bind(
        inputs, [(48, 5), (8,), (2,), (4,)], lambda condition, message: condition or failed.append(message)
    )
    assert found == {"D": 4, "J": 5, "V": 2, "U": 9} and not failed
    assert sizes.evaluate("D * J + U // 2", found) == 24
    sizes.bind(inputs, [(50, 5), (8,), (2,), (3,)], lambda condition, message: condition or failed.append(message))
    assert failed == [
        "w: dimension 0 must be 12 * D, which is 48, but is 50",
        "z: dimension 0 must be U // 2, which is 4, but is 3",
    ]


FORWARD = """
attention scaled_forward(x: f32[N, D], s: f32[D], t: i64[N]) {
  y[n, d]: f32 = x[n, d] * s[d]
  u[n]         = t[n] + 1
  kept[d]: f32 = 2.0 * s[d]
  return y, u, kept
}
"""
BACKWARD = """
attention scaled_backward(x: f32[N, D], s: f32[D], t: i64[N], kept: f32[D], grad_y: f32[N, D]) {
  grad_x[n, d]: f32 = grad_y[n, d] * kept[d] / 2.0
  grad_s[d]: f32    = sum[n](grad_y[n, d] * x[n, d])
  return grad_x, grad_s
}
"""


@pytest.fixture(scope="module")
def scaled():
    """A kernel whose backward kernels are written by hand."""
    source = FORWARD.replace("scaled_forward", "scaled").replace("  return y, u, kept", "  return y, u")
    return attn.compile(source), attn.compile(FORWARD), attn.compile(BACKWARD)


@pytest.fixture
def differentiated(monkeypatch, scaled):
    asked = []

    def gradient(self, inputs, lazy):
        asked.append(inputs)
        return scaled[1:]

    monkeypatch.setattr(attn.Kernel, "_gradient", gradient)
    operator = attn.torch_operator(scaled[0])
    yield operator, asked


def scaled_inputs():
    return torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True), torch.arange(3)


def test_gradients_come_from_the_backward_kernel(differentiated):
    operator, asked = differentiated
    x, s, t = scaled_inputs()
    y, u = operator(x, s, t)
    assert asked == [None] and y.requires_grad and not u.requires_grad and torch.equal(u, t + 1)
    gradient = torch.randn(3, 4)
    found = torch.autograd.grad(y, (x, s), gradient)
    torch.testing.assert_close(found, torch.autograd.grad(x * s, (x, s), gradient))
    with torch.no_grad():
        assert not operator(x, s, t).y.requires_grad
    operator(*scaled_inputs())
    assert len(asked) == 1  # the backward kernels are compiled once


def test_gradients_of_gradients_are_refused(differentiated):
    x, s, t = scaled_inputs()
    y = differentiated[0](x, s, t).y
    with pytest.raises(RuntimeError, match="attn::scaled_.*_backward_110 has no backward pass: gradients of gradients"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_opcheck_with_gradients(differentiated):
    torch.library.opcheck(getattr(torch.ops.attn, differentiated[0].name), scaled_inputs())


def test_compile_with_gradients(differentiated):
    operator, _ = differentiated

    @torch.compile(fullgraph=True, backend="aot_eager")
    def loss(x, s, t):
        return (operator(x.sin(), s, t).y ** 2).sum()

    x, s, t = scaled_inputs()
    torch.testing.assert_close(
        torch.autograd.grad(loss(x, s, t), (x, s)), torch.autograd.grad(((x.sin() * s) ** 2).sum(), (x, s))
    )


def test_autocast_with_gradients(differentiated):
    x, s, t = scaled_inputs()
    with torch.autocast("cpu", torch.bfloat16):
        y = differentiated[0](x.bfloat16(), s, t).y
    assert y.dtype == torch.float32
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], s.detach().expand(3, 4), rtol=1e-2, atol=1e-2)


def test_gradients(operator):
    q, k, v, valid = tensors()
    leaves = [each.requires_grad_() for each in (q, k, v, torch.tensor(0.5))]
    found = operator(q, k, v, valid, leaves[3])
    wanted = formula(q, k, v, valid, leaves[3])
    weights = [torch.randn(result.shape) for result in wanted]
    for one, other in zip(*(torch.autograd.grad(results, leaves, weights) for results in (tuple(found), wanted))):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_gradcheck():
    operator = attn.torch_operator(attn.compile(SPEC.replace("f32", "f64")))
    q, k, v, valid = tensors(3, 5, torch.float64)
    scale = torch.tensor(0.5, dtype=torch.float64)
    leaves = [each.requires_grad_() for each in (q, k, v, scale)]
    assert torch.autograd.gradcheck(
        lambda q, k, v, scale: tuple(operator(q, k, v, valid, scale, torch.tensor(2))), leaves
    )


@pytest.mark.parametrize("name", ["additive", "gaussian", "causal"])
def test_opcheck_of_examples_with_gradients(name):
    kernel = attn.compile(EXAMPLES / f"{name}.attn")
    operator = attn.torch_operator(kernel)
    lengths = dict(zip("BHMNDEQKU", (2, 2, 5, 5, 4, 6, 4, 3, 7)))
    inputs = []
    for info in kernel.inputs:
        shape = [sizes.evaluate(expression, lengths) for expression in info.shape]
        dtype = getattr(torch, {"f32": "float32", "i32": "int32", "i64": "int64"}[info.dtype])
        inputs.append(
            torch.randn(shape).requires_grad_() if dtype == torch.float32 else torch.full(shape, 3, dtype=dtype)
        )
    torch.library.opcheck(getattr(torch.ops.attn, operator.name), tuple(inputs))


def test_modes_see_the_operator(operator):
    """Without one, a call does not pass PyTorch's dispatcher."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen, inputs = [], tensors()
    wanted = operator(*inputs)
    with Record():
        found = operator(*inputs)
    assert f"attn.{operator.name}.default" in seen
    torch.testing.assert_close(found, wanted)


def test_an_output_that_the_loss_does_not_use(operator):
    q, k, v, valid = tensors()
    q.requires_grad_()
    for number in range(2):
        found, wanted = (torch.autograd.grad(f(q, k, v, valid)[number].sum(), q)[0] for f in (operator, formula))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_transforms_that_a_kernel_cannot_take_part_in():
    """A derivative is refused where it would be lost, by name."""
    kernel = attn.compile("attention f(x: f32[N]) {\n y[n] = 2 * x[n]\n return y\n}")
    x = torch.randn(4)
    forward_ad = torch.autograd.forward_ad
    for function in (kernel, attn.torch_operator(kernel)):
        with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="^x: has a tangent"):
            function(forward_ad.make_dual(x, torch.ones(4)))
        with pytest.raises(NotImplementedError, match="^x: torch.func has no gradients"):
            torch.func.grad(lambda x: function(x).sum())(x)
    with forward_ad.dual_level():
        torch.testing.assert_close(kernel(x), 2 * x)
    with pytest.raises(NotImplementedError, match=r"^x: vmap cannot map a kernel: call attn.torch_operator\(kernel\)"):
        torch.func.vmap(kernel)(torch.randn(3, 4))
    torch.testing.assert_close(torch.func.vmap(attn.torch_operator(kernel))(x.expand(3, 4)), 2 * x.expand(3, 4))


def test_compiled_code_may_call_a_kernel():
    kernel = attn.compile("attention f(x: f32[N]) {\n y[n] = 2 * x[n]\n return y\n}")
    compiled = torch.compile(lambda x: kernel(x + 1) * 3, backend="aot_eager")
    x = torch.randn(4, requires_grad=True)
    torch.testing.assert_close(compiled(x), 6 * (x + 1))
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 6))
    with pytest.raises(Exception, match="torch.compile cannot trace a kernel: call attn.torch_operator"):
        torch.compile(lambda x: kernel(x + 1), backend="aot_eager", fullgraph=True)(x)


def test_numbers_are_what_the_kernel_takes():
    """Operator and kernel have one rule: no float for an integer."""
    kernel = attn.compile("attention f(x: f32[N], shift: i32 = 1) {\n y[n] = x[n] + shift\n return y\n}")
    for x in (torch.ones(2), torch.ones(2, requires_grad=True)):
        torch.testing.assert_close(kernel(x), torch.full((2,), 2.0), check_stride=False)
        with pytest.raises(TypeError, match="^shift: must be a number that can be i32, but is 2.0"):
            kernel(x, 2.0)


def test_inputs_whose_names_begin_as_gradients_do():
    kernel = attn.compile("""attention named(grad_out: f32[M, D], grad_grad_out: f32[N, D], v: f32[N, E]) {
      weight[m, n] = softmax[n](sum[d](grad_out[m, d] * grad_grad_out[n, d]))
      out[m, e]    = sum[n](weight[m, n] * v[n, e])
      return out
    }""")
    torch.manual_seed(1)
    x = [torch.randn(shape, requires_grad=True) for shape in ((2, 3), (4, 3), (4, 5))]
    wanted = torch.autograd.grad((torch.softmax(x[0] @ x[1].T, -1) @ x[2]).square().sum(), x)
    for got, expected in zip(torch.autograd.grad(kernel(*x).square().sum(), x), wanted):
        torch.testing.assert_close(got, expected)
    for number, expected in enumerate(wanted):
        one = [tensor.detach().requires_grad_(i == number) for i, tensor in enumerate(x)]
        (got,) = torch.autograd.grad(kernel(*one).square().sum(), one[number])
        torch.testing.assert_close(got, expected)
