"""Arrays as they come: any strides, read-only, empty, from other libraries; and never copied."""

import resource

import formulas
import numpy as np
import pytest

import attn


@pytest.fixture(scope="module")
def kernel():
    from conftest import EXAMPLES

    return attn.compile(EXAMPLES / "scaled_dot.attn")


def draw(generator, *shape):
    return generator.standard_normal(shape, np.float32)


def check(kernel, q, k, v, valid):
    for found, wanted in zip(kernel(q, k, v, valid), formulas.scaled_dot(q, k, v, valid), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def layouts(generator):
    def dense(b, n, d):
        return draw(generator, b, n, d)

    yield "transposed", lambda b, n, d: draw(generator, n, b, d).transpose(1, 0, 2)
    yield "last dimension not unit", lambda b, n, d: draw(generator, b, d, n).transpose(0, 2, 1)
    yield "every second", lambda b, n, d: draw(generator, b, 2 * n, 2 * d)[:, ::2, 1::2]
    yield "backwards", lambda b, n, d: dense(b, n, d)[:, ::-1, ::-1]
    yield "broadcast", lambda b, n, d: np.broadcast_to(draw(generator, 1, n, d), (b, n, d))
    yield "all the same element", lambda b, n, d: np.broadcast_to(draw(generator, 1), (b, n, d))
    yield "part of a row", lambda b, n, d: draw(generator, b, n, d + 3)[:, :, 3:]


LAYOUTS = dict(layouts(np.random.default_rng(5)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("which", ["q", "k", "v", "all"])
def test_strides(kernel, generator, layout, which):
    shapes = {"q": (2, 19, 12), "k": (2, 37, 12), "v": (2, 37, 20)}
    arrays = {
        name: LAYOUTS[layout](*shape) if which in (name, "all") else draw(generator, *shape)
        for name, shape in shapes.items()
    }
    lengths = np.array([37, 0, 11, 0], np.int32)[::2]
    check(kernel, *arrays.values(), lengths)


def test_read_only_inputs(kernel, generator):
    arrays = [draw(generator, 2, 3, 4), draw(generator, 2, 5, 4), draw(generator, 2, 5, 6), np.array([5, 2], np.int32)]
    for array in arrays:
        array.flags.writeable = False
    check(kernel, *arrays)


@pytest.mark.parametrize("shape", [(0, 3, 5, 4, 6), (2, 0, 5, 4, 6), (2, 3, 0, 4, 6), (2, 3, 5, 0, 6), (2, 3, 5, 4, 0)])
def test_empty_dimensions(kernel, generator, shape):
    b, m, n, d, e = shape
    q, k, v = draw(generator, b, m, d), draw(generator, b, n, d), draw(generator, b, n, e)
    valid = np.full(b, n, np.int32)
    out, weight = kernel(q, k, v, valid)
    assert out.shape == (b, m, e) and weight.shape == (b, m, n)
    with np.errstate(invalid="ignore"):  # D = 0: the score is 0 / sqrt(0), NaN in IEEE's arithmetic and here
        check(kernel, q, k, v, valid)


def test_an_empty_output_that_others_read():
    kernel = attn.compile(
        "attention f(x: f32[B, H, M, N]) {\n  w[b, h, m, n] = x[b, h, m, n] * 2.0\n  y[b, m, n] = sum[h](w[b, h, m, n])\n  return y, w\n}\n"
    )
    y, w = kernel(np.ones((3, 0, 5, 70), "f"))
    assert w.shape == (3, 0, 5, 70)
    np.testing.assert_array_equal(y, np.zeros((3, 5, 70)))


def test_rows_without_keys_are_zero(kernel, generator):
    out, weight = kernel(draw(generator, 1, 3, 4), draw(generator, 1, 5, 4), draw(generator, 1, 5, 6), np.zeros(1, np.int32))
    assert (out == 0).all() and (weight == 0).all()


def test_inputs_are_not_copied():
    """An array that repeats one row would take 2 GiB if it were copied."""
    kernel = attn.compile("attention last(x: f32[N, D]) { y[d] = 2.0 * x[N - 1, d]\n return y }")
    rows = np.broadcast_to(np.arange(4, dtype=np.float32), (2**27, 4))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    np.testing.assert_array_equal(kernel(rows), [0, 2, 4, 6])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_anything_with_dlpack(kernel, generator):
    class Wrapped:
        """A library of its own, which knows nothing of NumPy."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    q, k, v = draw(generator, 2, 3, 4), draw(generator, 2, 5, 4), draw(generator, 2, 5, 6)
    valid = np.array([5, 2], np.int32)
    out = kernel(Wrapped(q), Wrapped(k), Wrapped(v), Wrapped(valid)).out
    assert isinstance(out, np.ndarray)
    np.testing.assert_array_equal(out, kernel(q, k, v, valid).out)


def test_outputs_are_in_the_library_of_the_array_api_that_the_inputs_have(generator):
    class Namespace:
        @staticmethod
        def from_dlpack(array):
            return "taken over", array

    class Foreign:
        def __init__(self, array):
            self.array = array

        def __array_namespace__(self):
            return Namespace

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

    kernel = attn.compile("attention twice(x: f32[N]) { y[n] = 2.0 * x[n]\n return y }")
    how, array = kernel(Foreign(np.ones(3, np.float32)))
    assert how == "taken over" and array.tolist() == [2, 2, 2]


def test_inputs_live_as_long_as_the_call(kernel, generator):
    for _ in range(50):
        out, weight = kernel(
            draw(generator, 2, 30, 16), draw(generator, 2, 40, 16), np.ones((2, 40, 8), np.float32), np.full(2, 40, np.int32)
        )
        np.testing.assert_allclose(out, 1, rtol=1e-5)
