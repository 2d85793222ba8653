"""Weights that are summed over heads or queries, beside what values they give: computed again, a block of rows at a time."""

import functools

import numpy as np
import pytest

import attn

torch = pytest.importorskip("torch")

compiled = functools.cache(attn.compile)
SPEC = """
attention summed(q: {t}[B, H, M, D], k: {t}[B, G, N, D], v: {t}[B, G, N, E], valid: i32[B]) {{
  weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D){where})
  out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
  {statement}
  return out, result
}}
"""
SUMS = {
    "average": "result[b, m, n] = sum[h](weight[b, h, m, n]) / H",
    "heavy": "result[b, h, n] = sum[m](weight[b, h, m, n])",
    "all": "result[b, n] = sum[h, m](weight[b, h, m, n])",
    "groups": "result[b, g: G, m, n] = sum[r: H // G](weight[b, g * (H // G) + r, m, n])",
    "recent": "result[b, h, n] = sum[m](weight[b, h, m, n] where m >= M - 16)",
    "transposed": "result[b, n, m] = sum[h](weight[b, h, m, n])",
    "shares": "result[b, m, n] = sum[h](weight[b, h, m, n] * k[b, h // (H // G), 0, 0])",
}
MASKS = {
    "none": "",
    "causal": " where n <= m + (N - M)",
    "ragged": " where n < valid[b], sink = 0.5",
    "strided": " where 2 * n <= m",
}
SIZES = [(0, 5), (5, 0), (1, 1), (1, 301), (2, 63), (7, 65), (65, 2001), (450, 31)]


def inputs(queries, keys, dtype=torch.float32):
    torch.manual_seed(1000 * queries + keys)
    shapes = (2, 4, queries, 33), (2, 2, keys, 33), (2, 2, keys, 21)
    tensors = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]
    return [*tensors, torch.tensor([keys, keys // 3], dtype=torch.int32)]


def check(results, expected, tolerance):
    for result, exact in zip(results, expected, strict=True):
        exact = torch.as_tensor(exact)
        assert result.shape == exact.shape
        if exact.numel():
            scale = exact.abs().amax(-1, keepdim=True).clamp(min=1e-30)
            assert ((result.double() - exact).abs() / scale).max() < tolerance


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SUMS)
def test_sums_are_those_of_the_oracle(name, mask):
    kernel = compiled(SPEC.format(t="f32", where=MASKS[mask], statement=SUMS[name]))
    for queries, keys in SIZES:
        if name != "shares" or keys > 0:
            given = inputs(queries, keys)
            check(kernel(*given), kernel.reference(*given), 2e-6)


@pytest.mark.parametrize("name", SUMS)
def test_no_row_is_computed_for_each_of_its_elements(name):
    plan = compiled(SPEC.format(t="f32", where="", statement=SUMS[name])).emit("plan")
    assert "weight_again stored, weight_again_total, result" in plan


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", ["average", "heavy", "groups"])
def test_results_do_not_depend_on_threads(name, threads):
    kernel = compiled(SPEC.format(t="f32", where=MASKS["causal"], statement=SUMS[name]))
    given = inputs(450, 450)
    attn.set_num_threads(threads)
    try:
        results = kernel(*given)
    finally:
        attn.set_num_threads(0)
    for result, again in zip(results, kernel(*given)):
        np.testing.assert_array_equal(result, again)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_sums_of_sixteen_bits_are_rounded_once(dtype):
    element = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    kernel = compiled(SPEC.format(t=dtype, where="", statement=SUMS["average"]))
    q, k, v, valid = inputs(70, 130, element)
    _, average = kernel(q, k, v, valid)
    exact = (q.double() @ k.double().repeat_interleave(2, 1).mT / 33**0.5).softmax(-1).mean(1)
    assert average.dtype == element
    assert ((average.double() - exact).abs() <= exact * torch.finfo(element).eps * 0.51 + 1e-7).all()


@pytest.mark.parametrize("name", SUMS)
def test_gradients(name):
    kernel = attn.compile(SPEC.format(t="f64", where=MASKS["causal"], statement=SUMS[name]), lazy=True)
    q, k, v, valid = inputs(9, 13, torch.float64)
    q, k, v = (each.requires_grad_() for each in (q[..., :5], k[..., :5], v[..., :3]))
    torch.autograd.gradcheck(lambda q, k, v: kernel(q, k, v, valid), (q, k, v))


@pytest.mark.parametrize("keys", [1, 3])
def test_large_scores_leave_no_error(keys):
    """The log-sum-exp of scores of a thousand is off by more than 2e-6 of a weight."""
    kernel = compiled(SPEC.format(t="f32", where="", statement=SUMS["average"]))
    q, k, v, valid = inputs(65, keys)
    k = 300 * k[:, :, :1].expand(-1, -1, keys, -1)  # equal scores
    _, average = kernel(q, k, v, valid)
    torch.testing.assert_close(average, torch.full_like(average, 1 / keys), rtol=2e-7, atol=0)


def test_rows_without_keys_weigh_nothing():
    kernel = compiled(SPEC.format(t="f32", where=" where n < valid[b]", statement=SUMS["average"]))
    q, k, v, _ = inputs(20, 40)
    out, average = kernel(q, k, v, torch.zeros(2, dtype=torch.int32))
    assert not out.any() and not average.any()
