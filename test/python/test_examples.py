"""Every example that runs, over several random shapes, against its formula in NumPy."""

import formulas
import numpy as np
import pytest

import attn


def normal(generator, *shape):
    return generator.standard_normal(shape, np.float32)


def lengths(generator, shape, highest):
    return generator.integers(0, highest + 1, shape).astype(np.int32)


def draw_scaled_dot(g, b, m, n, d, e):
    return normal(g, b, m, d), normal(g, b, n, d), normal(g, b, n, e), lengths(g, b, n)


def draw_additive(g, b, m, n, d, e):
    weights = normal(g, 6, d), normal(g, 6, d + 1), normal(g, 6), normal(g, 6)
    return normal(g, b, m, d), normal(g, b, n, d + 1), normal(g, b, n, e), *weights, lengths(g, (b, m), n)


def draw_bilinear(g, b, m, n, d, e):
    return normal(g, b, m, d), normal(g, b, n, d + 2), normal(g, b, n, e), 0.3 * normal(g, d, d + 2)


def draw_gaussian(g, b, m, n, d, e):
    return normal(g, b, m, d), normal(g, b, n, d), normal(g, b, n, e), float(g.uniform(0.7, 2))


def draw_everything(g, b, m, n, d, e):
    keys, values = normal(g, b, 2, n, d), normal(g, b, 2, n, e)
    return normal(g, b, 6, m, d), keys, values, 0.1 * normal(g, 6), normal(g, 6), int(g.integers(1, n + 2))


def draw_paged(g, b, m, n, d, e):
    pages, size, table = 7, 4, (n + 3) // 4
    page = g.integers(0, pages, (b, table)).astype(np.int32)
    return normal(g, b, 6, d), normal(g, pages, size, 3, d), normal(g, pages, size, 3, e), page, lengths(g, b, n)


def draw_bmm(g, b, m, n, d, e):
    return normal(g, b, m, d), normal(g, b, d, n)


def draw_sigmoid_attention(g, b, m, n, d, e):
    return normal(g, b, m, d), normal(g, b, n, d), normal(g, b, n, e)


def draw_masked_softmax(g, b, m, n, d, e):
    return normal(g, b, m, n), lengths(g, b, n)


KERNELS = [
    "scaled_dot",
    "additive",
    "bilinear",
    "gaussian",
    "everything",
    "paged",
    "bmm",
    "sigmoid_attention",
    "masked_softmax",
]
SHAPES = [(1, 1, 1, 1, 1), (2, 3, 5, 4, 6), (1, 64, 64, 16, 16), (3, 17, 70, 33, 9), (1, 130, 300, 8, 24)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_agrees_with_its_formula(examples, generator, name, shape):
    kernel = attn.compile(examples / f"{name}.attn", dtype="f32")
    arguments = globals()[f"draw_{name}"](generator, *shape)
    found, expected = kernel(*arguments), getattr(formulas, name)(*arguments)
    if len(kernel.outputs) == 1:
        found, expected = (found,), (expected,)
    assert len(found) == len(expected)
    for info, output, wanted in zip(kernel.outputs, found, expected):
        assert output.shape == wanted.shape
        np.testing.assert_allclose(output, wanted, rtol=2e-4, atol=2e-5, err_msg=info.name)
