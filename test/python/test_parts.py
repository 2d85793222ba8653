"""Formulas that divide their last index: halves of a row, thirds, and elements side by side (lib/Halide/Parts.h)."""

import numpy as np
import pytest

import attn

WIDTHS = (1, 2, 3, 5, 7, 16, 31, 32, 33, 62, 64, 65, 128, 130)

HALVES = """attention turned(x: f32[N, D], cosine: f32[N, D // 2], sine: f32[N, D // 2]) {
  across[n, d] = select(d < D // 2, -x[n, d + D // 2], x[n, d - D // 2])
  y[n, d]      = x[n, d] * cosine[n, d % (D // 2)] + across[n, d] * sine[n, d % (D // 2)]
  return y
}"""

NEIGHBOURS = """attention turned(x: f32[N, D], cosine: f32[N, D // 2], sine: f32[N, D // 2]) {
  across[n, d] = select(d % 2 == 0, -x[n, d + 1], x[n, d - 1])
  y[n, d]      = x[n, d] * cosine[n, d // 2] + across[n, d] * sine[n, d // 2]
  return y
}"""

# What is read beyond a row is its last element, or its first: no part may leave that out.
SHIFTED = """attention turned(x: f32[N, D], cosine: f32[N, D // 2], sine: f32[N, D // 2]) {
  y[n, d: D] = x[n, d + D // 2] - 2.0 * x[n, d - D // 2] + f32(d // (D // 2)) * cosine[n, d + 1] + sine[n, d % (D // 2) + 1]
  return y
}"""

THIRDS = """attention turned(x: f32[N, D], cosine: f32[N, D // 3], sine: f32[N, D // 3]) {
  y[n, d: D] = select(d // (D // 3) == 1, x[n, d - D // 3], x[n, d + D // 3]) * cosine[n, d % (D // 3)] +
            select(d >= D // 3, sine[n, d % (D // 3)], 1.0)
  return y
}"""


def clamped(x, n, d):
    return x[n, np.clip(d, 0, x.shape[1] - 1)] if x.shape[1] else np.float32(0)


def halves(x, cosine, sine, n, d, half):
    at = d % half if half else 0
    across = -clamped(x, n, d + half) if d < half else clamped(x, n, d - half)
    return x[n, d] * clamped(cosine, n, at) + across * clamped(sine, n, at)


def neighbours(x, cosine, sine, n, d, half):
    across = -clamped(x, n, d + 1) if d % 2 == 0 else clamped(x, n, d - 1)
    return x[n, d] * clamped(cosine, n, d // 2) + across * clamped(sine, n, d // 2)


def shifted(x, cosine, sine, n, d, half):
    quotient, remainder = divmod(d, half)
    return (clamped(x, n, d + half) - 2 * clamped(x, n, d - half) + quotient * clamped(cosine, n, d + 1)
            + clamped(sine, n, remainder + 1))


def thirds(x, cosine, sine, n, d, third):
    other = clamped(x, n, d - third) if d // third == 1 else clamped(x, n, d + third)
    return other * clamped(cosine, n, d % third) + (clamped(sine, n, d % third) if d >= third else 1)


@pytest.mark.parametrize("fixed", [False, True], ids=["any width", "fixed width"])
@pytest.mark.parametrize("source, formula, parts", [
    (HALVES, halves, 2), (NEIGHBOURS, neighbours, 2), (SHIFTED, shifted, 2), (THIRDS, thirds, 3),
], ids=["halves", "neighbours", "shifted", "thirds"])
def test_every_part_of_a_row_is_what_the_formula_says(source, formula, parts, fixed):
    kernel = None if fixed else attn.compile(source)
    for width in (8, 17) if fixed else WIDTHS:
        if width < parts:
            continue  # the tables would be empty
        turned = attn.compile(source, sizes={"D": width}) if fixed else kernel
        random = np.random.default_rng(width)
        x = random.uniform(-1, 1, (5, width + 3)).astype(np.float32)[:, :width]  # rows lie apart
        cosine, sine = random.uniform(-1, 1, (2, 5, width // parts)).astype(np.float32)
        expected = [[formula(x, cosine, sine, n, d, width // parts) for d in range(width)] for n in range(5)]
        np.testing.assert_allclose(turned(x, cosine, sine), expected, rtol=0, atol=2e-6, err_msg=f"width {width}")


def test_a_row_without_elements():
    kernel = attn.compile(HALVES)
    empty = np.zeros((5, 0), np.float32)
    assert kernel(empty, empty, empty).shape == (5, 0)
