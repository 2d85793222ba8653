"""What depends on the distance of a query and a key alone is computed once for each distance (attn-tabulate)."""

import numpy as np
import pytest

import attn

BIASES = {
    "powers": "-r[h] * abs(m - n) ** a[h]",
    "logarithms": "-r[h] * log(1.0 + a[h] * abs(m + (N - M) - n))",
    "a sum of cosines": "+ sum[i: 5](cos((n - m) * a[h] / 10.0 ** (i / 5)))",
    "rows of a table": "+ log(2.0 + abs(t[h, n - m + (M - 1)]))",
    "twice the distance": "+ sin(2 * m - 2 * n)",
    "buckets": "+ t[h, i32(4.0 * log(1.0 + abs(m - n)))] * exp(0.1 * r[h])",
}
SPEC = """
attention relative(q: {dtype}[B, H, M, D], k: {dtype}[B, H, N, D], v: {dtype}[B, H, N, E], r: f32[H], a: f32[H], t: f32[H, M + N]) {{
  score[b, h, m, n]  = sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D) {bias}
  weight[b, h, m, n] = softmax[n](score[b, h, m, n]{mask})
  out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h, n, e])
  return out
}}
"""


def arrays(generator, queries, keys):
    def normal(*shape):
        return generator.standard_normal(shape, np.float32)

    q, k, v = normal(2, 3, queries, 8), normal(2, 3, keys, 8), normal(2, 3, keys, 7)
    return q, k, v, generator.uniform(0.1, 1, 3).astype("f4"), generator.uniform(0.1, 1, 3).astype("f4"), normal(3, queries + keys)


@pytest.mark.parametrize("mask", ["", " where n <= m + (N - M)"], ids=["full", "causal"])
@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
def test_agrees_with_the_reference(generator, bias, mask):
    kernel = attn.compile(SPEC.format(dtype="f32", bias=bias, mask=mask))
    assert "_distance" in kernel.emit("simplified")
    for queries, keys in [(1, 1), (1, 65), (7, 7), (12, 63), (65, 1), (130, 131), (0, 3), (3, 0)]:
        given = arrays(generator, queries, keys)
        found, expected = kernel(*given), kernel.reference(*given)
        np.testing.assert_allclose(found, expected, rtol=0, atol=4e-6 * np.abs(expected).max(initial=1))


@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
def test_gradients(generator, bias):
    torch = pytest.importorskip("torch")
    source = SPEC.format(dtype="f64", bias=bias, mask=" where n <= m + (N - M)").replace("f32", "f64")
    operator = attn.torch_operator(attn.compile(source))
    given = [torch.from_numpy(array.astype(np.float64)).requires_grad_() for array in arrays(generator, 5, 9)]
    assert torch.autograd.gradcheck(operator, given, fast_mode=True)


def test_weights_without_a_softmax_and_a_check_of_bounds(generator, examples):
    kernel = attn.compile(examples / "retention.attn", check_bounds=True)
    assert "out_near_distance" in kernel.emit("simplified")
    q, k, v = (generator.standard_normal((2, 3, 33, 5), np.float32) for _ in range(3))
    gamma = np.float32([0.9, 1.0, 0.5])
    np.testing.assert_allclose(kernel(q, k, v, gamma), kernel.reference(q, k, v, gamma), rtol=0, atol=2e-5)


def test_a_part_that_needs_more_than_the_distance_is_left(generator):
    for bias in ["+ log(2.0 + abs(m - n) + m)", "+ exp(r[h] * (m + n) / (M + N))", "+ sin(m * (m - n))", "- t[h, min(abs(m - n), 3)]"]:
        kernel = attn.compile(SPEC.format(dtype="f32", bias=bias, mask=""))
        assert "_distance" not in kernel.emit("simplified")
        given = arrays(generator, 9, 20)
        expected = kernel.reference(*given)
        np.testing.assert_allclose(kernel(*given), expected, rtol=0, atol=4e-6 * np.abs(expected).max())
