"""The cases that pin the systems attn is for, with their numbers."""

import formulas
import numpy as np
import pytest

import attn

KEYS = np.ones((2, 10, 2), np.float32)
VALUES = np.arange(40, dtype=np.float32).reshape(1, 10, 4).repeat(2, 0)
MEANS = [[[2, 3, 4, 5]], [[10, 11, 12, 13]]]  # of the first 2 and the first 6 rows of VALUES


def test_masked_softmax_with_a_length_for_each_batch(examples, generator):
    kernel = attn.compile(examples / "masked_softmax.attn")
    weight = kernel(generator.random((2, 2, 4), np.float32), np.array([2, 3], np.int32))
    assert (weight[0, :, 2:] == 0).all() and (weight[1, :, 3:] == 0).all()
    assert (weight[0, :, :2] > 0).all() and (weight[1, :, :3] > 0).all()
    np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-6)


def test_masked_softmax_with_a_length_for_each_row(generator):
    kernel = attn.compile("""
        attention masked_softmax(x: f32[B, M, N], valid: i32[B, M]) {
          weight[b, m, n] = softmax[n](x[b, m, n] where n < valid[b, m])
          return weight
        }""")
    valid = np.array([[1, 3], [2, 4]], np.int32)
    weight = kernel(generator.random((2, 2, 4), np.float32), valid)
    np.testing.assert_array_equal(weight == 0, np.arange(4) >= valid[..., None])
    np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-6)


def test_masked_softmax_without_lengths(generator):
    kernel = attn.compile("""
        attention plain_softmax(x: f32[B, M, N]) {
          weight[b, m, n] = softmax[n](x[b, m, n])
          return weight
        }""")
    x = generator.random((2, 2, 4), np.float32)
    np.testing.assert_allclose(kernel(x), formulas.softmax(x.astype(np.float64)), rtol=1e-5)


def test_batched_matrix_product(examples):
    out = attn.compile(examples / "bmm.attn")(np.ones((2, 3, 4), np.float32), np.ones((2, 4, 6), np.float32))
    assert out.shape == (2, 3, 6)
    np.testing.assert_array_equal(out, 4)


def test_dot_product_attention(examples, generator):
    kernel = attn.compile(examples / "scaled_dot.attn")
    queries = generator.standard_normal((2, 1, 2), np.float32)
    out, weight = kernel(queries, KEYS, VALUES, np.array([2, 6], np.int32))
    np.testing.assert_allclose(out, MEANS, rtol=1e-6)
    np.testing.assert_allclose(weight[0, 0], [0.5] * 2 + [0] * 8, rtol=1e-6)


def test_additive_attention(examples, generator):
    kernel = attn.compile(examples / "additive.attn")
    queries = generator.standard_normal((2, 1, 20), np.float32)
    wq, wk = generator.standard_normal((8, 20), np.float32), generator.standard_normal((8, 2), np.float32)
    bias, wv = np.zeros(8, np.float32), generator.standard_normal(8, np.float32)
    valid = np.array([[2], [6]], np.int32)
    out, weight, energy = kernel(queries, KEYS, VALUES, wq, wk, bias, wv, valid)
    np.testing.assert_allclose(out, MEANS, rtol=1e-6)
    np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-6)
    assert energy.shape == (2, 1, 10)


def test_bilinear_attention_of_different_widths(examples, generator):
    q, k, v, w = (generator.standard_normal(s, np.float32) for s in ((2, 3, 5), (2, 7, 4), (2, 7, 6), (5, 4)))
    np.testing.assert_allclose(
        attn.compile(examples / "bilinear.attn")(q, k, v, w), formulas.bilinear(q, k, v, w), rtol=1e-4, atol=1e-5
    )


def test_gaussian_attention_is_a_dot_product_less_half_the_keys_norm(examples, generator):
    q, k, v = (generator.standard_normal(s, np.float32) for s in ((2, 3, 5), (2, 7, 5), (2, 7, 6)))
    score = q.astype(np.float64) @ k.swapaxes(1, 2) - 0.5 * (k.astype(np.float64) ** 2).sum(-1)[:, None]
    out = attn.compile(examples / "gaussian.attn")(q, k, v)
    np.testing.assert_allclose(out, formulas.softmax(score) @ v, rtol=1e-4, atol=1e-5)


def test_four_words_step_by_step(examples):
    words = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]], np.float32)
    wq, wk = [[2, 0, 2], [2, 0, 0], [2, 1, 2]], [[2, 2, 2], [0, 2, 1], [0, 1, 1]]
    wv = [[1, 1, 0], [0, 1, 1], [0, 0, 0]]
    q, k, v = ((words @ np.array(w, np.float32))[None] for w in (wq, wk, wv))
    out, weight = attn.compile(examples / "scaled_dot.attn")(q, k, v, np.array([4], np.int32))
    expected = [
        [0.98522025, 1.74174051, 0.75652026],
        [0.90965265, 1.40965265, 0.5],
        [0.99851226, 1.75849334, 0.75998108],
        [0.99560386, 1.90407309, 0.90846923],
    ]
    np.testing.assert_allclose(out[0], expected, atol=1e-6)
    np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-6)


def test_bahdanau_context_from_given_weights(examples):
    """Energies whose softmax is 0.7, 0.2, 0.1, over the encoder outputs [1, 2], [2, 1], [1, 1]."""
    kernel = attn.compile("""
        attention context(energy: f32[B, N], v: f32[B, N, E]) {
          weight[b, n] = softmax[n](energy[b, n])
          out[b, e]    = sum[n](weight[b, n] * v[b, n, e])
          return out, weight
        }""")
    out, weight = kernel(np.log([[0.7, 0.2, 0.1]]).astype(np.float32), np.array([[[1, 2], [2, 1], [1, 1]]], np.float32))
    np.testing.assert_allclose(weight, [[0.7, 0.2, 0.1]], rtol=1e-5)
    np.testing.assert_allclose(out, [[1.2, 1.7]], rtol=1e-5)


def test_bahdanau_module_returns_weights_and_energy(examples, generator):
    shapes = ((2, 1, 6), (2, 5, 4), (2, 5, 4), (8, 6), (8, 4), (8,), (8,))
    arguments = [generator.standard_normal(shape, np.float32) for shape in shapes] + [np.full((2, 1), 5, np.int32)]
    for found, expected in zip(attn.compile(examples / "additive.attn")(*arguments), formulas.additive(*arguments)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_local_attention_around_a_centre(generator):
    """Luong's local attention: a window around a predicted position, each weight times a Gaussian of the distance."""
    kernel = attn.compile("""
        attention local(q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, E], centre: f32[B, M], radius: f32 = 2.0) {
          weight[b, m, n] = softmax[n](sum[d](q[b, m, d] * k[b, n, d]) where abs(n - centre[b, m]) <= radius)
          near[b, m, n]   = weight[b, m, n] * exp(-2.0 * (n - centre[b, m]) ** 2 / radius ** 2)
          out[b, m, e]    = sum[n](near[b, m, n] * v[b, n, e])
          return out
        }""")
    q, k, v = (generator.standard_normal(s, np.float32) for s in ((2, 3, 5), (2, 9, 5), (2, 9, 4)))
    centre = generator.uniform(0, 8, (2, 3)).astype(np.float32)
    distance = np.arange(9) - centre[..., None].astype(np.float64)
    weight = formulas.softmax(q.astype(np.float64) @ k.swapaxes(1, 2), np.abs(distance) <= 2)
    expected = weight * np.exp(-2 * distance**2 / 4) @ v
    np.testing.assert_allclose(kernel(q, k, v, centre), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keep", ["all", "some"])
def test_multi_head_self_attention(generator, keep):
    """Batch 1, 14 tokens, width 768, 12 heads of 64, against PyTorch's MultiheadAttention with the same parameters."""
    torch = pytest.importorskip("torch")
    kernel = attn.compile("""
        attention mha[H = 12](x: f32[B, N, J], wq: f32[H * D, J], wk: f32[H * D, J], wv: f32[H * D, J], wo: f32[O, H * D],
                              bq: f32[H * D], bk: f32[H * D], bv: f32[H * D], bo: f32[O],
                              keep: bool[B, N], head_mask: f32[H]) {
          q[b, h: H, m, d: D] = (sum[j](x[b, m, j] * wq[h * D + d, j]) + bq[h * D + d]) / sqrt(D)
          k[b, h: H, n, d: D] = sum[j](x[b, n, j] * wk[h * D + d, j]) + bk[h * D + d]
          v[b, h: H, n, d: D] = sum[j](x[b, n, j] * wv[h * D + d, j]) + bv[h * D + d]
          weight[b, h, m, n]  = softmax[n](sum[d](q[b, h, m, d] * k[b, h, n, d]) where keep[b, n])
          context[b, h, m, d] = sum[n](weight[b, h, m, n] * head_mask[h] * v[b, h, n, d])
          y[b, m, o]          = sum[h, d](wo[o, h * D + d] * context[b, h, m, d]) + bo[o]
          return y, weight
        }""")
    torch.manual_seed(3)
    layer = torch.nn.MultiheadAttention(768, 12, batch_first=True).eval()
    kept = torch.ones(1, 14, dtype=torch.bool)
    if keep == "some":
        kept[0, 9:] = False
    x = torch.randn(1, 14, 768)
    with torch.no_grad():
        layer.in_proj_bias.normal_(0, 0.1)
        layer.out_proj.bias.normal_(0, 0.1)
        expected, expected_weight = layer(x, x, x, key_padding_mask=~kept, average_attn_weights=False)
        wq, wk, wv = layer.in_proj_weight.chunk(3)
        bq, bk, bv = layer.in_proj_bias.chunk(3)
        y, weight = kernel(
            x, wq, wk, wv, layer.out_proj.weight, bq, bk, bv, layer.out_proj.bias, kept, torch.ones(12)
        )
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weight, expected_weight, rtol=1e-4, atol=1e-5)
