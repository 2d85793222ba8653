"""JAX's arrays as arguments: results are JAX's, nothing is copied, and what has no elements or must not be written is an error."""

import subprocess
import sys

import numpy as np
import pytest

import attn

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

TWICE = "attention twice(x: f32[N]) { y[n] = 2.0 * x[n]\n return y }"
SPEC = """
    attention attend(q: f32[M, D], k: f32[N, D], v: f32[N, E], sharpness: f32 = 1.0) {
      weight[m, n] = softmax[n](sharpness * sum[d](q[m, d] * k[n, d]) / sqrt(D))
      out[m, e]    = sum[n](weight[m, n] * v[n, e])
      return out, weight
    }"""


@pytest.fixture(scope="module")
def twice():
    return attn.compile(TWICE)


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(SPEC.replace("out, weight", "out"))


@pytest.fixture
def inputs(generator):
    return [jnp.asarray(generator.standard_normal(shape, np.float32)) for shape in ((5, 4), (7, 4), (7, 6))]


def formula(q, k, v, sharpness=1.0):
    return jax.nn.softmax(sharpness * q @ k.T / q.shape[1] ** 0.5) @ v


def close(found, wanted):
    assert isinstance(found, jax.Array)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_outputs_are_jaxs(inputs):
    kernel = attn.compile(SPEC)
    out, weight = kernel(*inputs)
    close(out, formula(*inputs))
    close(weight, jax.nn.softmax(inputs[0] @ inputs[1].T / 2))
    close(kernel(*inputs, sharpness=2.0).out, formula(*inputs, 2.0))
    close(kernel(*inputs, jnp.float32(2.0)).out, formula(*inputs, 2.0))
    close(kernel(np.asarray(inputs[0]), *inputs[1:]).out, formula(*inputs))
    close(kernel.reference(*inputs).out, formula(*inputs))


def test_inputs_are_read_once_jax_has_computed_them(twice):
    x = jnp.full((1500, 1500), 1 / 1500)
    for _ in range(3):
        later = (x @ x @ x).ravel()
        np.testing.assert_array_equal(twice(later), 2 * np.asarray(later))


@pytest.mark.parametrize("length", [0, 3, 4096])
def test_outputs_are_not_copied(twice, monkeypatch, length):
    taken = []
    from_dlpack = jnp.from_dlpack
    monkeypatch.setattr(jnp, "from_dlpack", lambda array: taken.append(array.ctypes.data) or from_dlpack(array))
    y = twice(jnp.ones(length))
    assert y.shape == (length,) and (length == 0 or y.unsafe_buffer_pointer() == taken[0])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_floats(dtype):
    kernel = attn.compile(TWICE, dtype={"bfloat16": "bf16", "float16": "f16"}[dtype])
    y = kernel(jnp.arange(5, dtype=dtype))
    assert isinstance(y, jax.Array) and y.dtype == dtype
    np.testing.assert_array_equal(y.astype("float32"), [0, 2, 4, 6, 8])


def test_integers_and_bools():
    kernel = attn.compile("attention f(x: i32[N], b: bool[N]) {\n  y[n] = select(b[n], x[n], -1)\n  z[n] = x[n] > 0\n  return y, z\n}")
    y, z = kernel(jnp.arange(3), jnp.array([True, False, True]))
    assert y.dtype == jnp.int32 and y.tolist() == [0, -1, 2]
    assert z.dtype == jnp.bool_ and z.tolist() == [False, True, True]


def test_64_bits_are_jaxs_where_it_has_them(inputs):
    kernel = attn.compile(TWICE.replace("f32", "f64"))
    with pytest.raises(TypeError, match="x: dtype is f32, but must be f64"):
        kernel(jnp.ones(3))
    with jax.enable_x64(True):
        y = kernel(jnp.ones(3))
        assert y.dtype == jnp.float64 and y.tolist() == [2, 2, 2]


def test_an_array_of_jaxs_is_not_written_to(twice):
    x, y = jnp.ones(3), jnp.zeros(3)
    with pytest.raises(ValueError, match="^y: is a jax.Array, which nobody may write to; give NumPy arrays, or no `out`$"):
        twice(x, out=y)
    assert y.tolist() == [0, 0, 0]
    given = np.empty(3, np.float32)
    assert twice(x, out=given) is given and given.tolist() == [2, 2, 2]


TRACED = "x: is traced by jax.jit, jax.grad or jax.vmap, but a kernel needs its elements: call the kernel through jax.pure_callback"


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, lambda function: jax.grad(lambda x: function(x).sum())])
@pytest.mark.parametrize("spec", [TWICE, "attention twice(x: f32) { y = 2.0 * x\n return y }"])
def test_a_tracer_has_no_elements(spec, transform):
    kernel = attn.compile(spec)
    x = jnp.ones(3 if "[N]" in spec else ())
    with pytest.raises(TypeError, match=f"^{TRACED}"):
        transform(kernel)(x[None] if transform is jax.vmap else x)


def test_an_operator_takes_jaxs_arrays_but_no_tracers(twice):
    torch = pytest.importorskip("torch")
    operator = attn.torch_operator(twice)
    torch.testing.assert_close(operator(jnp.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(TypeError, match=f"^{TRACED}"):
        jax.jit(operator)(jnp.ones(3))


def test_gradients_are_those_of_the_formula(kernel, inputs, generator):
    """`kernel.grad` as a rule of JAX's: docs/tutorials/06-arrays.md has it inside jax.jit."""
    forward, backward = kernel.grad(["q", "k", "v"])

    @jax.custom_vjp
    def attend(q, k, v):
        return kernel(q, k, v)

    def run_forward(q, k, v):
        out, saved = forward(q, k, v)
        return out, (q, k, v, 1.0, saved, out)

    attend.defvjp(run_forward, lambda saved, grad_out: tuple(backward(*saved, grad_out)))
    factor = jnp.asarray(generator.standard_normal((5, 6), np.float32))
    found, wanted = (
        jax.grad(lambda *arguments: (function(*arguments) * factor).sum(), (0, 1, 2))(*inputs) for function in (attend, formula)
    )
    for each in zip(found, wanted, strict=True):
        close(*each)


def test_heatmaps_of_jaxs_arrays():
    pytest.importorskip("matplotlib")
    weights = jnp.ones((2, 3))
    np.testing.assert_array_equal(attn.plot.heatmaps(weights).axes[0].images[0].get_array(), weights)


def test_a_kernel_does_not_import_jax():
    code = (
        f"import sys, numpy, attn\nattn.compile({TWICE!r})(numpy.ones(3, 'f4'))\n"
        "assert 'jax' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
