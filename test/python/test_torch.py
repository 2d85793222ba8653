"""PyTorch's tensors as arguments, and PyTorch's own attention as the judge."""

import resource

import numpy as np
import pytest

import attn

torch = pytest.importorskip("torch")
sdpa = torch.nn.functional.scaled_dot_product_attention

HEADS = "q: f32[B, H, M, D], k: f32[B, G, N, D], v: f32[B, G, N, E]"


def spec(mask, parameters="", score=""):
    """Grouped attention with a mask expression, and whatever is added to the score."""
    return f"""
        attention heads({HEADS}{parameters}) {{
          score[b, h, m, n]  = sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D){score}
          weight[b, h, m, n] = softmax[n](score[b, h, m, n] where {mask})
          out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
          return out
        }}"""


def heads(b=2, h=4, g=4, m=33, n=70, d=16, e=16):
    torch.manual_seed(7)
    return torch.randn(b, h, m, d), torch.randn(b, g, n, d), torch.randn(b, g, n, e)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def kernel():
    from conftest import EXAMPLES

    return attn.compile(EXAMPLES / "scaled_dot.attn")


def test_outputs_are_tensors(kernel):
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    out, weight = kernel(q, k, v, torch.full((2,), 5, dtype=torch.int32))
    assert isinstance(out, torch.Tensor) and isinstance(weight, torch.Tensor)
    close(out, sdpa(q, k, v))


def test_numpy_and_torch_may_be_mixed(kernel):
    q, k, v = torch.randn(2, 3, 4), np.ones((2, 5, 4), np.float32), torch.randn(2, 5, 6)
    assert isinstance(kernel(q, k, v, np.array([5, 5], np.int32)).out, torch.Tensor)


def test_out_may_be_a_tensor(kernel):
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    out, weight = torch.empty(2, 3, 6), torch.empty(2, 3, 5)
    assert kernel(q, k, v, torch.full((2,), 5, dtype=torch.int32), out=(out, weight)).out is out
    close(out, sdpa(q, k, v))


def test_gradients_are_recorded_where_a_tensor_requires_them(kernel):
    q, k, v = torch.randn(2, 3, 4, requires_grad=True), np.ones((2, 5, 4), np.float32), torch.randn(2, 5, 6)
    valid = torch.full((2,), 5, dtype=torch.int32)
    out = kernel(q, k, v, valid=valid).out
    expected = sdpa(q, torch.as_tensor(k), v)
    close(out, expected)
    gradient = torch.randn(2, 3, 6)
    close(torch.autograd.grad(out, q, gradient), torch.autograd.grad(expected, q, gradient))
    for detached in (q.detach(), q):
        with torch.set_grad_enabled(detached is not q):
            found = kernel(detached, k, v, valid).out
        assert not found.requires_grad
        close(found, out)


def test_gradients_are_recorded_of_scalars():
    kernel = attn.compile("attention scaled(x: f32[N], s: f32 = 2.0) {\n  y[n] = s * x[n]\n  return y\n}\n")
    x, s = torch.randn(4), torch.nn.Parameter(torch.tensor(3.0))
    close(torch.autograd.grad(kernel(x, s).sum(), s)[0], x.sum())
    x.requires_grad_()
    close(torch.autograd.grad(kernel(x).sum(), x)[0], torch.full((4,), 2.0))


def test_gradients_are_not_recorded_where_an_output_is_given_or_by_the_interpreter(kernel):
    q, k, v = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    valid, out = torch.full((2,), 5, dtype=torch.int32), (torch.empty(2, 3, 6), torch.empty(2, 3, 5))
    for call in (lambda: kernel(q, k, v, valid, out=out), lambda: kernel.reference(q, k, v, valid)):
        with pytest.raises(ValueError, match=r"^q: requires grad, but no gradient .* give q.detach\(\), or call under"):
            call()
    with torch.no_grad():
        assert kernel(q, k, v, valid, out=out).out is out[0]


def test_the_kernels_of_a_gradient():
    """An input called `out` may be given by name; and a gradient has no gradient."""
    forward, backward = attn.compile(
        "attention f(x: f32[M, N], v: f32[N]) {\n  out[m] = sum[n](softmax[n](x[m, n]) * v[n])\n  return out\n}\n"
    ).grad(["x"])
    assert "out" in [info.name for info in backward.inputs]
    x, v = torch.randn(3, 5, requires_grad=True), torch.randn(5)
    with torch.no_grad():
        saved = forward(x, v)._asdict()
        gradient = backward(x, v, **saved, grad_out=torch.ones(3))
    close(gradient, torch.autograd.grad((torch.softmax(x, -1) @ v).sum(), x)[0])
    with pytest.raises(ValueError, match="^f_backward: is a kernel of a gradient already; gradients of gradients are not"):
        backward(x, v, **saved, grad_out=torch.ones(3))


def test_expanded_and_transposed_tensors(kernel):
    q, k, v = torch.randn(3, 2, 4).transpose(0, 1), torch.randn(1, 5, 4).expand(2, 5, 4), torch.randn(2, 6, 5).mT
    close(kernel(q, k, v, torch.full((2,), 5, dtype=torch.int32)).out, sdpa(q, k, v))


@pytest.mark.parametrize("shape", [{}, {"m": 1}, {"n": 1}, {"m": 200, "n": 130}, {"d": 40, "e": 24}, {"b": 1, "h": 1, "g": 1}], ids=str)
def test_full_attention(shape):
    q, k, v = heads(**shape)
    close(attn.compile(spec("true"))(q, k, v), sdpa(q, k, v))


@pytest.mark.parametrize("m, n", [(64, 64), (33, 33), (1, 1), (100, 100), (257, 257)])
def test_causal(m, n):
    q, k, v = heads(m=m, n=n)
    close(attn.compile(spec("n <= m"))(q, k, v), sdpa(q, k, v, is_causal=True))


@pytest.mark.parametrize("m, n", [(64, 64), (5, 70), (130, 300)])
def test_causal_that_ends_with_the_keys(m, n):
    """The last query sees all keys, as in decoding with a cache."""
    q, k, v = heads(m=m, n=n)
    mask = torch.ones(m, n, dtype=torch.bool).tril(n - m)
    close(attn.compile(spec("n <= m + (N - M)"))(q, k, v), sdpa(q, k, v, attn_mask=mask))


@pytest.mark.parametrize("h, g", [(8, 2), (6, 3), (4, 1)])
@pytest.mark.parametrize("mask", ["true", "n <= m"])
def test_grouped_queries(h, g, mask):
    q, k, v = heads(h=h, g=g, m=50, n=50)
    close(attn.compile(spec(mask))(q, k, v), sdpa(q, k, v, is_causal=mask != "true", enable_gqa=True))


def test_sliding_window():
    q, k, v = heads(m=150, n=150)
    m, n = torch.arange(150)[:, None], torch.arange(150)
    kernel = attn.compile(spec("n <= m and m - n < window", ", window: i32"))
    for window in (1, 17, 64, 500):
        close(kernel(q, k, v, window), sdpa(q, k, v, attn_mask=(n <= m) & (m - n < window)))


def test_a_dense_boolean_mask():
    q, k, v = heads()
    mask = torch.rand(2, 33, 70) < 0.6
    mask[..., 3] = True  # no row without a key: PyTorch and attn differ there
    close(attn.compile(spec("keep[b, m, n]", ", keep: bool[B, M, N]"))(q, k, v, mask), sdpa(q, k, v, attn_mask=mask[:, None]))


def test_a_dense_bias():
    q, k, v = heads()
    bias = torch.randn(4, 33, 70)
    kernel = attn.compile(spec("true", ", bias: f32[H, M, N]", " + bias[h, m, n]"))
    close(kernel(q, k, v, bias), sdpa(q, k, v, attn_mask=bias))


def test_documents_packed_into_one_sequence():
    q, k, v = heads(m=90, n=90)
    document = torch.repeat_interleave(torch.arange(4, dtype=torch.int32), torch.tensor([10, 41, 1, 38]))
    kernel = attn.compile(spec("document[m] == document[n] and n <= m", ", document: i32[N]").replace("M", "N"))
    m, n = torch.arange(90)[:, None], torch.arange(90)
    mask = (document[:, None] == document) & (n <= m)
    close(kernel(q, k, v, document), sdpa(q, k, v, attn_mask=mask))


def test_float64():
    q, k, v = (tensor.double() for tensor in heads())
    out = attn.compile(spec("true").replace("f32", "f64"))(q, k, v)
    assert out.dtype == torch.float64
    torch.testing.assert_close(out, sdpa(q, k, v), rtol=1e-9, atol=1e-9)


def test_elements_that_are_yet_to_be_negated_are_negated(kernel):
    complex_numbers = torch.randn(2, 5, 6, dtype=torch.complex64)
    q, k, valid = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.tensor([5, 2], dtype=torch.int32)
    view = complex_numbers.conj().imag
    assert view.is_neg()
    torch.testing.assert_close(kernel(q, k, view, valid)[0], -kernel(q, k, complex_numbers.imag, valid)[0])
    with pytest.raises(ValueError, match="out: is a view with negated elements, but the kernel would write to it"):
        kernel(q, k, complex_numbers.imag, valid, out=(torch._neg_view(torch.zeros(2, 3, 6)), torch.zeros(2, 3, 5)))


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (lambda: torch.ones(2, 3, 4).to_sparse(), "layout other than torch.strided"),
        (lambda: torch.ones(2, 3, 4, device="meta"), "meta"),
        (lambda: torch.quantize_per_tensor(torch.ones(2, 3, 4), 0.1, 0, torch.qint8), "not supported by dlpack"),
    ],
)
def test_what_dlpack_cannot_view_is_refused(kernel, tensor, reason):
    with pytest.raises(TypeError, match=f"q: Tensor cannot be passed through DLPack: .*{reason}"):
        kernel(tensor(), torch.ones(2, 5, 4), torch.ones(2, 5, 6), torch.tensor([5, 2], dtype=torch.int32))


def exchanged(kernel, *arrays):
    return kernel._kernel.run_exchanged(arrays)


def test_tensors_are_exchanged_by_dlpacks_c_functions():
    kernel = attn.compile("attention f(x: f32[M, N], y: f32[N]) {\n  r[m] = sum[n](x[m, n] * y[n])\n  d[n] = y[n] + y[n]\n  return r, d\n}\n")
    x, y = torch.randn(3, 5), torch.randn(5)
    results = exchanged(kernel, x, y)
    assert [type(each) for each in results] == [torch.Tensor] * 2 and not results[0].requires_grad
    torch.testing.assert_close(results[0], x @ y)
    torch.testing.assert_close(kernel(x, y).d, y + y)
    turned = exchanged(kernel, torch.randn(5, 3).T, y.flip(0))
    assert turned[0].shape == (3,)
    assert exchanged(kernel, torch.empty(0, 5), y)[0].shape == (0,)


def test_what_needs_more_care_is_not_exchanged():
    kernel = attn.compile("attention f(x: f32[N]) {\n  r[n] = 2.0 * x[n]\n  return r\n}\n")
    x = torch.randn(4)
    negated = torch.complex(x, x).conj().imag
    with torch.no_grad():
        for array in (torch.nn.Parameter(x), negated, x.numpy(), x.clone().requires_grad_()):
            assert exchanged(kernel, array) is None
            np.testing.assert_allclose(np.asarray(kernel(array)), 2 * np.asarray(array.detach().resolve_neg() if torch.is_tensor(array) else array))
    assert exchanged(kernel) is None and exchanged(kernel, x, x) is None and exchanged(kernel, x.to_sparse()) is None
    assert exchanged(kernel, x.clone().requires_grad_()) is None and kernel(x.clone().requires_grad_()).requires_grad


@pytest.mark.parametrize("arrays", [(torch.ones(3, dtype=torch.float64), torch.ones(3)), (torch.ones(3), torch.ones(4)), (torch.ones(3, 1), torch.ones(3))])
def test_errors_are_the_same_however_tensors_are_passed(arrays):
    kernel = attn.compile("attention f(x: f32[N], y: f32[N]) {\n  r[n] = x[n] + y[n]\n  return r\n}\n")
    messages = []
    for call in (lambda: kernel(*arrays), lambda: kernel(arrays[0], y=arrays[1])):
        with pytest.raises((TypeError, ValueError)) as error:
            call()
        messages.append((error.type, str(error.value)))
    assert messages[0] == messages[1]


def test_an_exchanged_output_for_which_there_is_no_memory():
    kernel = attn.compile("attention f(x: f32[N]) {\n  cube[i: N, j: N, k: N] = x[i] + x[j] + x[k]\n  return cube\n}\n")
    with pytest.raises(MemoryError, match="^cube: cannot be allocated: .*can't allocate memory"):
        kernel(torch.ones(1 << 17))  # 8 PiB, more than there are addresses


def test_exchanged_outputs_are_given_back():
    kernel = attn.compile("attention f(x: f32[N]) {\n  r[n] = 2.0 * x[n]\n  return r\n}\n")
    x = torch.ones(1 << 20)
    kernel(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        kernel(x)
        with pytest.raises(TypeError):
            kernel(x.double())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB; 800 MiB of outputs were made
