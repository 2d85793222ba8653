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


@pytest.mark.parametrize("with_bias", [False, True])
def test_additive_attention(examples, generator, with_bias):
    kernel = attn.compile(examples / "additive.attn")
    queries = generator.standard_normal((2, 1, 20), np.float32)
    wq, wk = generator.standard_normal((8, 20), np.float32), generator.standard_normal((8, 2), np.float32)
    bias = generator.standard_normal(8, np.float32) * with_bias
    wv = generator.standard_normal(8, np.float32)
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


def test_bilinear_attention_with_a_bias(generator):
    """Luong's "general" score as a linear layer over the encoder: dec · (W enc + b), against plain loops."""
    kernel = attn.compile("""
        attention general(dec: f32[B, Q], enc: f32[B, N, K], w: f32[Q, K], bias: f32[Q]) {
          mapped[b, n, i] = sum[j](w[i, j] * enc[b, n, j]) + bias[i]
          score[b, n]     = sum[i](dec[b, i] * mapped[b, n, i])
          weight[b, n]    = softmax[n](score[b, n])
          out[b, j]       = sum[n](weight[b, n] * enc[b, n, j])
          return out, weight, score
        }""")
    dec, enc, w, bias = (generator.standard_normal(s, np.float32) for s in ((2, 5), (2, 7, 4), (5, 4), (5,)))
    score = np.zeros((2, 7))
    for b, n in np.ndindex(2, 7):
        for i in range(5):
            score[b, n] += float(dec[b, i]) * (sum(float(w[i, j]) * float(enc[b, n, j]) for j in range(4)) + float(bias[i]))
    weight = formulas.softmax(score)
    expected = np.einsum("bn,bnj->bj", weight, enc.astype(np.float64)), weight, score
    for found, wanted in zip(kernel(dec, enc, w, bias), expected):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)


def test_gaussian_attention_with_a_width(examples, generator):
    """Against plain loops: a narrow Gaussian gives the value of the nearest key, a wide one the mean of all."""
    q, k, v = (generator.standard_normal(s, np.float32) for s in ((1, 3, 5), (1, 7, 5), (1, 7, 6)))
    kernel = attn.compile(examples / "gaussian.attn")
    distance = np.array([[sum((float(a) - float(b)) ** 2 for a, b in zip(x, y)) for y in k[0]] for x in q[0]])
    for width in (0.5, 1.0, 3.0):
        weight = np.exp(-distance / (2 * width**2))
        expected = weight / weight.sum(-1, keepdims=True) @ v[0]
        np.testing.assert_allclose(kernel(q, k, v, width)[0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(kernel(q, k, v, 0.01)[0], v[0, distance.argmin(-1)], rtol=1e-5)
    np.testing.assert_allclose(kernel(q, k, v, 1e4)[0], v[0].mean(0, keepdims=True).repeat(3, 0), rtol=1e-4, atol=1e-6)


def test_gaussian_attention_is_a_dot_product_less_half_the_keys_norm(examples, generator):
    q, k, v = (generator.standard_normal(s, np.float32) for s in ((2, 3, 5), (2, 7, 5), (2, 7, 6)))
    score = q.astype(np.float64) @ k.swapaxes(1, 2) - 0.5 * (k.astype(np.float64) ** 2).sum(-1)[:, None]
    out = attn.compile(examples / "gaussian.attn")(q, k, v)
    np.testing.assert_allclose(out, formulas.softmax(score) @ v, rtol=1e-4, atol=1e-5)


WORDS = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]], np.float32)
WORD_WEIGHTS = [
    np.array([[2, 0, 2], [2, 0, 0], [2, 1, 2]], np.float32),  # W_Q
    np.array([[2, 2, 2], [0, 2, 1], [0, 1, 1]], np.float32),  # W_K
    np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0]], np.float32),  # W_V
]
WORD_CONTEXTS = [
    [0.98522025, 1.74174051, 0.75652026],
    [0.90965265, 1.40965265, 0.5],
    [0.99851226, 1.75849334, 0.75998108],
    [0.99560386, 1.90407309, 0.90846923],
]


def test_four_words_step_by_step(examples):
    q, k, v = ((WORDS @ weight)[None] for weight in WORD_WEIGHTS)
    out, weight = attn.compile(examples / "scaled_dot.attn")(q, k, v, np.array([4], np.int32))
    np.testing.assert_allclose(out[0], WORD_CONTEXTS, atol=1e-6)
    np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-6)


def test_four_words_in_one_kernel():
    kernel = attn.compile("""
        attention words(x: f32[N, J], wq: f32[J, D], wk: f32[J, D], wv: f32[J, E]) {
          q[m, d]      = sum[j](x[m, j] * wq[j, d])
          k[n, d]      = sum[j](x[n, j] * wk[j, d])
          v[n, e]      = sum[j](x[n, j] * wv[j, e])
          weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]) / sqrt(D))
          out[m, e]    = sum[n](weight[m, n] * v[n, e])
          return out
        }""")
    np.testing.assert_allclose(kernel(WORDS, *WORD_WEIGHTS), WORD_CONTEXTS, atol=1e-6)


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
def test_multi_head_self_attention(examples, keep):
    """Batch 1, 14 tokens, width 768, 12 heads of 64, against PyTorch's MultiheadAttention with the same parameters."""
    torch = pytest.importorskip("torch")
    kernel = attn.compile(examples / "mha.attn")
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
        parameters = *layer.in_proj_weight.chunk(3), layer.out_proj.weight, *layer.in_proj_bias.chunk(3), layer.out_proj.bias
        y, weight = kernel(x, *parameters, kept, torch.ones(12))
        without, _ = kernel(x, *parameters, kept, torch.zeros(12))
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weight, expected_weight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(without, layer.out_proj.bias.detach().expand(1, 14, 768))  # all heads masked


def test_sequence_to_sequence_decoder(examples):
    """Batch 4, 7 steps, 16 hidden units, 2 layers: the query is the decoder's last state, keys and values are the encoder's outputs.

    Beside the same model with its attention in plain PyTorch.
    """
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    batch, steps, hidden, vocabulary, embedded = 4, 7, 16, 10, 8
    embed = torch.nn.Embedding(vocabulary, embedded)
    encoder = torch.nn.GRU(embedded, hidden, 2)
    decoder = torch.nn.GRU(embedded + hidden, hidden, 2)
    dense = torch.nn.Linear(hidden, vocabulary)
    wq, wk, wv = torch.randn(hidden, hidden), torch.randn(hidden, hidden), torch.randn(hidden)
    valid = torch.tensor([7, 3, 1, 5], dtype=torch.int32)
    kernel = attn.compile(examples / "additive.attn")

    def by_kernel(query, memory):
        return kernel(query, memory, memory, wq, wk, torch.zeros(hidden), wv, valid[:, None].contiguous())[:2]

    def by_torch(query, memory):
        energy = torch.tanh((query @ wq.T)[:, :, None] + (memory @ wk.T)[:, None]) @ wv
        energy = energy.masked_fill(torch.arange(memory.shape[1]) >= valid[:, None, None], -torch.inf)
        weight = torch.softmax(energy, -1)
        return weight @ memory, weight

    def decode(attention):
        memory, state = encoder(embed(source).transpose(0, 1))
        memory, outputs, weights = memory.transpose(0, 1).contiguous(), [], []
        for token in embed(target).unbind(1):
            context, weight = attention(state[-1][:, None].contiguous(), memory)
            output, state = decoder(torch.cat([context[:, 0], token], -1)[None], state)
            outputs.append(output[0])
            weights.append(weight[:, 0])
        return dense(torch.stack(outputs, 1)), state, torch.stack(weights, 1)

    source, target = torch.randint(vocabulary, (2, batch, steps))
    with torch.no_grad():
        found, expected = decode(by_kernel), decode(by_torch)
    assert [x.shape for x in found] == [(batch, steps, vocabulary), (2, batch, hidden), (batch, steps, steps)]
    for x, wanted in zip(found, expected):
        torch.testing.assert_close(x, wanted, rtol=1e-4, atol=1e-5)
    assert (found[2][1, :, 3:] == 0).all()
