"""The layers of attn.nn: the textbooks' cases, PyTorch's layers with the same parameters, and float64."""

import math
import subprocess
import sys
from collections import namedtuple

import pytest
from test_seeds import WORD_CONTEXTS, WORD_WEIGHTS, WORDS

import attn

torch = pytest.importorskip("torch")

from attn import nn  # noqa: E402
from attn.nn import operators  # noqa: E402

needs_gradients = pytest.mark.skipif(not hasattr(attn.Kernel, "grad"), reason="this build has no Kernel.grad")

KEYS = torch.ones(2, 10, 2)
VALUES = torch.arange(40.0).reshape(1, 10, 4).repeat(2, 1, 1)
LENGTHS = torch.tensor([2, 6])
MEANS = torch.tensor([[[2.0, 3, 4, 5]], [[10, 11, 12, 13]]])  # of the first 2 and the first 6 rows of VALUES


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(11)


def close(found, expected, rtol=1e-4, atol=1e-5):
    torch.testing.assert_close(
        found.detach().double(), torch.as_tensor(expected).detach().double(), rtol=rtol, atol=atol
    )


def attend(score, values, keep=None):
    """softmax(score) values in float64, and the weights."""
    score = score.detach().double()
    if keep is not None:
        score = score.masked_fill(~keep, -torch.inf)
    weight = torch.softmax(score, -1).nan_to_num(0)
    return weight @ values.double(), weight


# Masked softmax.


def test_masked_softmax_with_a_length_for_each_batch_element():
    weight = nn.masked_softmax(torch.rand(2, 2, 4), torch.tensor([2, 3]))
    assert (weight[0, :, 2:] == 0).all() and (weight[1, :, 3:] == 0).all()
    assert (weight[0, :, :2] > 0).all() and (weight[1, :, :3] > 0).all()
    close(weight.sum(-1), torch.ones(2, 2))


def test_masked_softmax_with_a_length_for_each_row():
    valid = torch.tensor([[1, 3], [2, 4]])
    weight = nn.masked_softmax(torch.rand(2, 2, 4), valid)
    assert ((weight == 0) == (torch.arange(4) >= valid[..., None])).all()
    close(weight.sum(-1), torch.ones(2, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_masked_softmax_without_lengths(dtype):
    x = torch.rand(2, 2, 4, dtype=dtype)
    weight = nn.masked_softmax(x, None)
    assert weight.dtype == dtype
    close(weight, torch.softmax(x.double(), -1), rtol=2 * torch.finfo(dtype).eps)


def test_a_row_without_an_element_is_zero():
    """Tutorials that fill masked scores with -1e6 have the average there."""
    weight = nn.masked_softmax(torch.rand(2, 2, 4), torch.tensor([0, -3]))
    assert (weight == 0).all()
    out = nn.DotProductAttention()(torch.randn(2, 1, 2), KEYS, VALUES, torch.tensor([0, 6]))
    close(out, torch.stack([torch.zeros(1, 4), MEANS[1]]))


def test_lengths_beyond_the_row_are_the_row():
    x = torch.rand(1, 2, 4)
    close(nn.masked_softmax(x, torch.tensor([2**40])), torch.softmax(x, -1))


@pytest.mark.parametrize(
    ("x", "valid", "error", "message"),
    [
        (torch.rand(2, 4), None, ValueError, r"X: must have 3 dimensions \(B, M, N\), but has shape \(2, 4\)"),
        (
            torch.rand(2, 3, 4),
            torch.tensor([1, 2, 3]),
            ValueError,
            r"valid_lens: shape must be \(2,\) or \(2, 3\), but is \(3,\)",
        ),
        (
            torch.rand(2, 3, 4),
            torch.rand(2),
            TypeError,
            "valid_lens: must be a tensor of integers, but is torch.float32",
        ),
        (torch.rand(2, 3, 4), [1, 2], TypeError, "valid_lens: must be a tensor of integers, but is list"),
        (
            torch.ones(2, 3, 4, dtype=torch.int32),
            None,
            TypeError,
            "x: dtype must be one of torch.float32, .*, but is torch.int32",
        ),
    ],
)
def test_errors_of_masked_softmax(x, valid, error, message):
    with pytest.raises(error, match=message):
        nn.masked_softmax(x, valid)


# Attention by its score.


@pytest.mark.parametrize(
    ("layer", "width"),
    [
        (lambda: nn.DotProductAttention(dropout=0.5), 2),
        (lambda: nn.AdditiveAttention(num_hiddens=8, dropout=0.1), 20),
        (lambda: nn.MLPAttention(8, 0.1, bias=True), 20),
        (lambda: nn.BilinearAttention(20, 0.1), 20),
        (lambda: nn.BilinearAttention(20, 0.1, bias=True), 20),
        (lambda: nn.GaussianAttention(0.7, 0.1), 2),
    ],
    ids=["dot product", "additive", "MLP", "bilinear", "bilinear with a bias", "Gaussian"],
)
def test_equal_keys_give_the_mean_of_the_valid_values(layer, width):
    layer = layer().eval()
    with torch.no_grad():
        close(layer(torch.randn(2, 1, width), KEYS, VALUES, LENGTHS), MEANS)
    expected = torch.zeros(2, 1, 10)
    expected[0, :, :2], expected[1, :, :6] = 1 / 2, 1 / 6
    close(layer.attention_weights, expected)


def rows(query_width=5, key_width=4):
    """Queries, keys and values of odd sizes, lengths for each query (one of them 0), and which keys those keep."""
    valid = torch.tensor([[0, 9, 4], [1, 7, 30]])
    keep = torch.arange(9) < valid[..., None]
    return torch.randn(2, 3, query_width), torch.randn(2, 9, key_width), torch.randn(2, 9, 6), valid, keep


def test_dot_product_attention_beside_float64():
    q, k, v, valid, keep = rows(5, 5)
    expected, weight = attend(q.double() @ k.double().mT / math.sqrt(5), v, keep)
    layer = nn.DotProductAttention(dropout=0)
    close(layer(q, k, v, valid), expected)
    close(layer.attention_weights, weight)


def test_four_words_step_by_step():
    words, *weights = map(torch.from_numpy, (WORDS, *WORD_WEIGHTS))
    q, k, v = ((words @ weight)[None] for weight in weights)
    close(nn.DotProductAttention()(q, k, v)[0], WORD_CONTEXTS, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_additive_attention_beside_float64(bias):
    q, k, v, valid, keep = rows()
    layer = nn.AdditiveAttention(8, bias=bias).eval()
    with torch.no_grad():
        out = layer(q, k, v, valid)
        hidden = torch.tanh(layer.W_q(q)[:, :, None] + layer.W_k(k)[:, None])
        expected, weight = attend(layer.w_v(hidden)[..., 0], v, keep)
    close(out, expected)
    close(layer.attention_weights, weight)


@pytest.mark.parametrize("bias", [False, True])
def test_bilinear_attention_beside_float64(bias):
    q, k, v, valid, keep = rows()
    layer = nn.BilinearAttention(5, bias=bias).eval()
    with torch.no_grad():
        out = layer(q, k, v, valid)
        expected, weight = attend(q @ layer.W(k).mT, v, keep)
    close(out, expected)
    close(layer.attention_weights, weight)


@pytest.mark.parametrize("width", [0.5, 1.0, 3.0])
def test_gaussian_attention_beside_float64(width):
    q, k, v, valid, keep = rows(5, 5)
    score = -0.5 * torch.cdist(q.double(), k.double()) ** 2 / width**2
    close(nn.GaussianAttention(width)(q, k, v, valid), attend(score, v, keep)[0])


def test_gaussian_attention_is_a_dot_product_less_half_the_keys_norm():
    q, k, v, *_ = rows(5, 5)
    score = q.double() @ k.double().mT - 0.5 * (k.double() ** 2).sum(-1)[:, None]
    close(nn.GaussianAttention()(q, k, v), attend(score, v)[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_layers_in_other_dtypes(dtype):
    q, k, v, valid, keep = rows()
    layer = nn.AdditiveAttention(8, query_size=5, key_size=4).eval().to(dtype)
    q, k, v = (each.to(dtype) for each in (q, k, v))
    with torch.no_grad():
        out = layer(q, k, v, valid)
        exact = layer.double()
        expected = attend(
            exact.w_v(torch.tanh(exact.W_q(q.double())[:, :, None] + exact.W_k(k.double())[:, None]))[..., 0], v, keep
        )[0]
    assert out.dtype == dtype
    tolerance = 1e-9 if dtype == torch.float64 else 0.02
    close(out, expected, rtol=tolerance, atol=tolerance)


def test_widths_are_learned_in_the_first_call():
    layer = nn.AdditiveAttention(8)
    with torch.no_grad():
        layer(*rows()[:3])
    assert {name: tuple(each.shape) for name, each in layer.named_parameters()} == {
        "W_q.weight": (8, 5), "W_k.weight": (8, 4), "w_v.weight": (1, 8),
    }  # fmt: skip
    other = nn.AdditiveAttention(8, query_size=5, key_size=4)
    other.load_state_dict(layer.state_dict())
    with torch.no_grad():
        q, k, v, *_ = rows()
        close(other(q, k, v), layer(q, k, v), 0, 0)


def test_weights_are_kept_only_where_they_are_wanted():
    q, k, v, valid, _ = rows(5, 5)
    layer = nn.DotProductAttention(keep_weights=False)
    close(layer(q, k, v, valid), nn.DotProductAttention()(q, k, v, valid))
    assert layer.attention_weights is None
    (info,) = operators.Operator("dot_product").kernel(("out",)).outputs
    assert info.name == "out"


def test_dropout_is_drawn_from_pytorchs_generator_in_training_only():
    q, k, v = torch.randn(4, 32, 8), torch.randn(4, 64, 8), torch.randn(4, 64, 8)
    layer, exact = nn.DotProductAttention(dropout=0.5), nn.DotProductAttention()(q, k, v)
    torch.manual_seed(1)
    first, second = layer(q, k, v), layer(q, k, v)
    torch.manual_seed(1)
    assert torch.equal(first, layer(q, k, v)) and not torch.equal(first, second)
    mean = torch.stack([layer(q, k, v) for _ in range(400)]).mean(0)
    assert (mean - exact).abs().max() < 0.15
    close(layer.eval()(q, k, v), exact, 0, 0)
    close(nn.DotProductAttention(dropout=1.0)(q, k, v), torch.zeros(4, 32, 8), 0, 0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q, k, v: nn.DotProductAttention(1.5), ValueError, "dropout: must be between 0 and 1, but is 1.5"),
        (lambda q, k, v: nn.GaussianAttention(0), ValueError, "width: must be greater than 0, but is 0"),
        (lambda q, k, v: nn.LocalAttention(5, 8, radius=-1), ValueError, "radius: must be greater than 0, but is -1"),
        (
            lambda q, k, v: nn.DotProductAttention()(q[0], k, v),
            ValueError,
            r"queries: must have 3 dimensions .*, but has shape \(3, 5\)",
        ),
        (
            lambda q, k, v: nn.DotProductAttention()(q, k, v),
            ValueError,
            r"keys: dimension 2 \(D\) is 4, but queries: dimension 2 made D = 5",
        ),
        (lambda q, k, v: nn.AdditiveAttention(8)(q, k, v.double()), TypeError, "values: dtype is f64, but must be f32"),
        (
            lambda q, k, v: nn.AdditiveAttention(8, query_size=4)(q, k, v),
            ValueError,
            r"queries: width must be 4, but shape is \(2, 3, 5\)",
        ),
        (
            lambda q, k, v: nn.MultiHeadSelfAttention(8, 2)(k, k, k),
            ValueError,
            r"query: width must be 8, but shape is \(2, 9, 4\)",
        ),
        (
            lambda q, k, v: nn.MultiHeadAttention(10, 3),
            ValueError,
            "num_hiddens: must be a multiple of num_heads = 3, but is 10",
        ),
        (lambda q, k, v: nn.MultiHeadAttention(10, 2, 2), ValueError, "dropout: must be between 0 and 1, but is 2"),
        (
            lambda q, k, v: nn.MultiHeadSelfAttention(10, 0),
            ValueError,
            "dim: must be a multiple of n_heads = 0, but is 10",
        ),
        (
            lambda q, k, v: nn.MultiHeadSelfAttention(4, 2)(k, k, k, torch.ones(9)),
            ValueError,
            r"mask: shape must be \(2, 9\), but is \(9,\)",
        ),
        (
            lambda q, k, v: nn.MultiHeadSelfAttention(4, 2)(k, k, k, head_mask=torch.ones(3)),
            ValueError,
            r"head_mask: shape must be \(2,\), but is \(3,\)",
        ),
        (
            lambda q, k, v: nn.BahdanauAttention(5, 4)(q, k),
            ValueError,
            r"hidden: must have 2 dimensions .*, but has shape \(2, 3, 5\)",
        ),
        (
            lambda q, k, v: nn.Seq2SeqEncoder(9, 4, 4, 1, cell="rnn"),
            ValueError,
            "cell: must be one of gru, lstm, but is 'rnn'",
        ),
    ],
)
def test_errors_of_the_layers(call, error, message):
    q, k, v, *_ = rows()
    with pytest.raises(error, match=message), torch.no_grad():
        call(q, k, v)


# Bahdanau's module, and local attention.


def test_bahdanau_attention_returns_weights_and_energy():
    hidden, encoder = torch.randn(3, 6), torch.randn(3, 7, 4)
    layer = nn.BahdanauAttention(6, 4, 8)
    torch.nn.init.normal_(layer.bias)
    with torch.no_grad():
        weights, energy = layer(hidden, encoder)
        joined = torch.cat([hidden[:, None].expand(3, 7, 6), encoder], -1)
        expected = torch.tanh(layer.attn(joined) + layer.bias) @ layer.v
    close(energy, expected)
    close(weights, torch.softmax(expected, -1))
    close(weights.sum(-1), torch.ones(3))
    close(layer.context(weights, encoder), torch.bmm(weights[:, None], encoder)[:, 0])


def test_bahdanau_attention_with_lengths():
    hidden, encoder = torch.randn(2, 6), torch.randn(2, 5, 6)
    layer = nn.BahdanauAttention(6)
    with torch.no_grad():
        weights, energy = layer(hidden, encoder, torch.tensor([2, 5]))
        whole, unmasked = layer(hidden, encoder)
    assert (weights[0, 2:] == 0).all()
    close(weights[0, :2], torch.softmax(energy[0, :2], -1))
    close(energy, unmasked)
    close(weights[1], whole[1])


def test_bahdanau_context_from_given_weights():
    encoder = torch.tensor([[[1.0, 2], [2, 1], [1, 1]]])
    close(nn.BahdanauAttention(2).context(torch.tensor([[0.7, 0.2, 0.1]]), encoder), [[1.2, 1.7]])


def test_local_attention_beside_loops():
    q, k, v, valid, _ = rows()
    layer = nn.LocalAttention(5, 8, radius=2.0).eval()
    with torch.no_grad():
        out = layer(q, k, v, valid)
        centre = valid * torch.sigmoid(layer.v_p(torch.tanh(layer.W_p(q)))[..., 0])
        score = q @ layer.W(k).mT
    weights = torch.zeros(2, 3, 9, dtype=torch.float64)
    for b in range(2):
        for m in range(3):
            p = centre[b, m].item()
            window = [n for n in range(min(9, valid[b, m])) if abs(n - p) <= 2]
            total = sum(math.exp(score[b, m, n]) for n in window)
            for n in window:
                weights[b, m, n] = math.exp(score[b, m, n]) / total * math.exp(-2 * (n - p) ** 2 / 2**2)
    close(layer.centres[valid <= 9], centre[valid <= 9])
    close(layer.attention_weights[valid <= 9], weights[valid <= 9])
    close(out[valid <= 9], (weights @ v.double())[valid <= 9])


# Multi-head attention.


@pytest.mark.parametrize("kept", [14, 9])
def test_self_attention_beside_pytorchs(kept):
    """DistilBERT's sizes: batch 1, 14 tokens, width 768, 12 heads of 64."""
    theirs = torch.nn.MultiheadAttention(768, 12, batch_first=True).eval()
    ours = nn.MultiHeadSelfAttention(768, 12, attention_dropout=0.1).eval()
    x, keep = torch.randn(1, 14, 768), torch.arange(14)[None] < kept
    with torch.no_grad():
        theirs.in_proj_bias.normal_(0, 0.1)
        theirs.out_proj.bias.normal_(0, 0.1)
        for layer, weight, bias in zip(
            (ours.q_lin, ours.k_lin, ours.v_lin, ours.out_lin),
            (*theirs.in_proj_weight.chunk(3), theirs.out_proj.weight),
            (*theirs.in_proj_bias.chunk(3), theirs.out_proj.bias),
        ):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        expected, expected_weights = theirs(x, x, x, key_padding_mask=~keep, average_attn_weights=False)
        context, weights = ours(x, x, x, keep, output_attentions=True)
        (alone,) = ours(x, x, x, mask=keep.float())
        (without,) = ours(x, x, x, keep, head_mask=torch.zeros(12))
        one_less, _ = ours(x, x, x, keep, torch.arange(12).clamp(max=1), True)
    close(context, expected)
    close(weights, expected_weights)
    close(alone, expected)
    close(without, ours.out_lin.bias.expand(1, 14, 768))
    assert (ours.attention_weights[:, 0] == 0).all() and not torch.equal(one_less, context)


def test_self_attention_without_a_key_is_the_bias():
    layer, x = nn.MultiHeadSelfAttention(8, 2).eval(), torch.randn(2, 3, 8)
    with torch.no_grad():
        (context,) = layer(x, x, x, torch.tensor([[0, 0, 0], [1, 1, 0]]))
    close(context[0], layer.out_lin.bias.expand(3, 8))


def test_self_attention_drops_weights_in_training():
    layer, x = nn.MultiHeadSelfAttention(8, 2, 0.5), torch.randn(2, 30, 8)
    with torch.no_grad():
        _, weights = layer(x, x, x, output_attentions=True)
        assert 0.4 < (weights == 0).float().mean() < 0.6
        _, weights = layer.eval()(x, x, x, output_attentions=True)
    assert (weights > 0).all()


@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention_of_different_widths(bias):
    layer = nn.MultiHeadAttention(12, 3, 0.5, bias).eval()
    q, k, v, valid = torch.randn(2, 4, 5), torch.randn(2, 6, 7), torch.randn(2, 6, 8), torch.tensor([3, 6])
    with torch.no_grad():
        out = layer(q, k, v, valid)
        heads = [
            each.unflatten(-1, (3, 4)).transpose(1, 2).double() for each in (layer.W_q(q), layer.W_k(k), layer.W_v(v))
        ]
        context, weight = attend(
            heads[0] @ heads[1].mT / 2, heads[2], (torch.arange(6) < valid[:, None])[:, None, None]
        )
        expected = layer.W_o(context.transpose(1, 2).flatten(2).float())
    assert out.shape == (2, 4, 12)
    close(out, expected)
    close(layer.attention_weights, weight)


def test_multi_head_attention_has_the_textbooks_shape():
    """The book's case: 100 hidden units, 5 heads, 4 queries, 6 keys."""
    layer = nn.MultiHeadAttention(100, 5, 0.5).eval()
    with torch.no_grad():
        assert layer(
            torch.ones(2, 4, 100), torch.ones(2, 6, 100), torch.ones(2, 6, 100), torch.tensor([3, 2])
        ).shape == (2, 4, 100)


# Sequence to sequence.


class TorchAdditiveAttention(torch.nn.Module):
    """The same layer in PyTorch's operations."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, queries, keys, values, valid_lens):
        hidden = torch.tanh(self.layer.W_q(queries)[:, :, None] + self.layer.W_k(keys)[:, None])
        energy = self.layer.w_v(hidden)[..., 0].masked_fill(
            torch.arange(keys.shape[1]) >= valid_lens[:, None, None], -torch.inf
        )
        self.attention_weights = torch.softmax(energy, -1)
        return self.attention_weights @ values


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_decoder_beside_pytorch(cell):
    """Batch 4, 7 steps, 16 hidden units, 2 layers."""
    encoder = nn.Seq2SeqEncoder(10, 8, 16, 2, cell=cell).eval()
    decoder = nn.Seq2SeqAttentionDecoder(10, 8, 16, 2, cell=cell).eval()
    plain = nn.Seq2SeqAttentionDecoder(
        10, 8, 16, 2, cell=cell, attention=TorchAdditiveAttention(decoder.attention)
    ).eval()
    plain.load_state_dict(
        decoder.state_dict()
        | {f"attention.layer.{name}": each for name, each in decoder.attention.state_dict().items()},
        strict=False,
    )
    source, valid = torch.randint(10, (4, 7)), torch.tensor([7, 3, 1, 5])
    with torch.no_grad():
        outputs, state = decoder(source, decoder.init_state(encoder(source), valid))
        expected, _ = plain(source, plain.init_state(encoder(source), valid))
    assert outputs.shape == (4, 7, 10) and state[0].shape == (4, 7, 16)
    assert (state[1][0] if cell == "lstm" else state[1]).shape == (2, 4, 16)
    close(outputs, expected)
    assert len(decoder.attention_weights) == 7
    for weights, wanted in zip(decoder.attention_weights, plain.attention_weights):
        close(weights, wanted)
    assert (decoder.attention_weights[0][1, :, 3:] == 0).all()


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_an_encoder_with_lengths_does_not_read_padding(cell):
    encoder = nn.Seq2SeqEncoder(10, 8, 16, 2, cell=cell).eval()
    source = torch.randint(10, (2, 7))
    with torch.no_grad():
        outputs, state = encoder(source, torch.tensor([3, 7]))
        alone, alone_state = encoder(source[:1, :3])
        whole, _ = encoder(source)
    close(outputs[:3, :1], alone)
    assert (outputs[3:, 0] == 0).all()
    close(outputs[:, 1], whole[:, 1])
    for found, expected in zip(state, alone_state) if cell == "lstm" else [(state, alone_state)]:
        close(found[:, :1], expected)


def test_decoder_goes_on_where_it_was():
    encoder, decoder = nn.Seq2SeqEncoder(10, 8, 16, 1).eval(), nn.Seq2SeqAttentionDecoder(10, 8, 16, 1).eval()
    source = torch.randint(10, (2, 5))
    with torch.no_grad():
        whole, _ = decoder(source, decoder.init_state(encoder(source), None))
        first, state = decoder(source[:, :2], decoder.init_state(encoder(source), None))
        second, _ = decoder(source[:, 2:], state)
    close(torch.cat([first, second], 1), whole)


# Gradients.


@pytest.mark.skipif(hasattr(attn.Kernel, "grad"), reason="this build has Kernel.grad")
def test_a_backward_pass_says_that_there_is_none():
    q, k, v, valid, _ = rows(5, 5)
    out = nn.DotProductAttention()(q.requires_grad_(), k, v, valid)
    with pytest.raises(RuntimeError, match=r"dot_product: has no backward pass: this build of attn has no Kernel.grad"):
        out.sum().backward()


Info = namedtuple("Info", "name")


class StandInKernel:
    """z = scale · x · y, count = how many x are positive, w = x + 1; the forward kernel also saves `twice` = 2 y."""

    name = "stand_in"
    outputs = (Info("z"), Info("count"), Info("w"))

    def grad(self, inputs):
        def forward(x, y, scale):
            return scale * x * y, (x > 0).sum(), x + 1, 2 * y

        def backward(scale, twice, z, x, grad_z, grad_w):
            grads = {"x": scale * grad_z * twice / 2 + grad_w, "y": grad_z * z * twice * 0 + scale * grad_z * x}
            results = [grads[name] for name in inputs]
            return results[0] if len(results) == 1 else tuple(results)

        forward.outputs = (*self.outputs, Info("twice"))
        backward.inputs = tuple(map(Info, ("scale", "twice", "z", "x", "grad_z", "grad_w")))
        return forward, backward


@pytest.mark.parametrize("differentiated", ["x", "y", "xy"])
def test_gradient_kernels_are_bound_by_name(differentiated):
    values = {name: torch.randn(3, requires_grad=name in differentiated) for name in "xy"}
    z, count, _ = operators._call(StandInKernel(), {**values, "scale": 3.0})
    assert count.item() == (values["x"] > 0).sum() and not count.requires_grad
    weight = torch.randn(3)
    (z * weight).sum().backward()
    for name, other in (("x", "y"), ("y", "x")):
        if name in differentiated:
            close(values[name].grad, 3 * weight * values[other])
        else:
            assert values[name].grad is None


def additive_score(layer, q, k):
    return layer.w_v(torch.tanh(layer.W_q(q)[:, :, None] + layer.W_k(k)[:, None]))[..., 0]


def gaussian_score(layer, q, k):
    return -0.5 * ((q[:, :, None] - k[:, None]) ** 2).sum(-1) / layer.width**2


def by_score(score):
    """The formula of a layer in PyTorch's operations, given its score."""

    def formula(layer, q, k, v, valid):
        keep = torch.arange(k.shape[1]) < valid[..., None]
        return torch.softmax(score(layer, q, k).masked_fill(~keep, -torch.inf), -1) @ v

    return formula


def local_formula(layer, q, k, v, valid):
    centre = valid * torch.sigmoid(layer.v_p(torch.tanh(layer.W_p(q)))[..., 0])
    distance = torch.arange(k.shape[1]) - centre[..., None]
    keep = (torch.arange(k.shape[1]) < valid[..., None]) & (distance.abs() <= layer.radius)
    share = torch.softmax((q @ layer.W(k).mT).masked_fill(~keep, -torch.inf), -1)
    return share * torch.exp(-2 * distance**2 / layer.radius**2) @ v


def multi_head_formula(layer, q, k, v, valid):
    heads = [rows.unflatten(-1, (2, -1)).transpose(1, 2) for rows in (layer.W_q(q), layer.W_k(k), layer.W_v(v))]
    keep = (torch.arange(k.shape[1]) < valid[..., None])[:, None]
    score = heads[0] @ heads[1].mT / math.sqrt(heads[0].shape[-1])
    context = torch.softmax(score.masked_fill(~keep, -torch.inf), -1) @ heads[2]
    return layer.W_o(context.transpose(1, 2).flatten(2))


def gradients(layer, function, *tensors):
    """Of all tensors and parameters, in float64."""
    layer.zero_grad()
    tensors = [each.detach().clone().requires_grad_() for each in tensors]
    out = function(*tensors)
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)).sum().backward()
    return [each.grad.double() for each in (*tensors, *layer.parameters())]


@needs_gradients
@pytest.mark.parametrize(
    ("layer", "formula"),
    [
        (lambda: nn.DotProductAttention(), by_score(lambda layer, q, k: q @ k.mT / math.sqrt(5))),
        (lambda: nn.AdditiveAttention(8, query_size=5, key_size=5, bias=True), by_score(additive_score)),
        (lambda: nn.BilinearAttention(5, key_size=5, bias=True), by_score(lambda layer, q, k: q @ layer.W(k).mT)),
        (lambda: nn.GaussianAttention(1.5, learned=True), by_score(gaussian_score)),
        (lambda: nn.LocalAttention(5, 8, 2.5, key_size=5), local_formula),
        (lambda: nn.MultiHeadAttention(8, 2, query_size=5, key_size=5, value_size=6), multi_head_formula),
    ],
    ids=["dot product", "additive", "bilinear", "Gaussian", "local", "multi-head"],
)
def test_gradients_beside_autograd(layer, formula):
    layer = layer()
    q, k, v, valid, _ = rows(5, 5)
    valid = valid.clamp(2, 9)  # autograd has NaN for an empty row
    found = gradients(layer, lambda *tensors: layer(*tensors, valid), q, k, v)
    layer.double()
    expected = gradients(layer, lambda *tensors: formula(layer, *tensors, valid), q.double(), k.double(), v.double())
    for ours, theirs in zip(found, expected, strict=True):
        close(ours, theirs)


@needs_gradients
def test_gradients_of_masked_softmax():
    x, valid = torch.randn(2, 3, 9), torch.tensor([[3, 9, 4], [1, 7, 2]])
    keep, module = torch.arange(9) < valid[..., None], torch.nn.Module()
    (found,) = gradients(module, lambda x: nn.masked_softmax(x, valid), x)
    (expected,) = gradients(module, lambda x: torch.softmax(x.masked_fill(~keep, -torch.inf), -1), x.double())
    close(found, expected)


@needs_gradients
def test_gradients_of_bahdanau_attention():
    """Through the weights, the energies and the context."""
    layer, hidden, encoder = nn.BahdanauAttention(6, 4, 8), torch.randn(3, 6), torch.randn(3, 7, 4)

    def ours(hidden, encoder):
        weights, energy = layer(hidden, encoder)
        return torch.cat([weights, energy, layer.context(weights, encoder)], 1)

    def formula(hidden, encoder):
        joined = torch.cat([hidden[:, None].expand(3, 7, 6), encoder], -1)
        energy = torch.tanh(layer.attn(joined) + layer.bias) @ layer.v
        weights = torch.softmax(energy, -1)
        return torch.cat([weights, energy, (weights[:, None] @ encoder)[:, 0]], 1)

    found = gradients(layer, ours, hidden, encoder)
    layer.double()
    for each, expected in zip(found, gradients(layer, formula, hidden.double(), encoder.double()), strict=True):
        close(each, expected)


@needs_gradients
def test_gradients_of_self_attention_beside_pytorchs():
    """Also through the weights that it returns."""
    ours, theirs = nn.MultiHeadSelfAttention(8, 2), torch.nn.MultiheadAttention(8, 2, batch_first=True).double()
    with torch.no_grad():
        for layer, weight, bias in zip(
            (ours.q_lin, ours.k_lin, ours.v_lin, ours.out_lin),
            (*theirs.in_proj_weight.chunk(3), theirs.out_proj.weight),
            (*theirs.in_proj_bias.chunk(3), theirs.out_proj.bias),
            strict=True,
        ):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    x, keep = torch.randn(2, 5, 8), torch.arange(5) < torch.tensor([[3], [5]])

    def join(context, weights):
        return torch.cat([context.flatten(1), weights.flatten(1)], 1)

    (found, *parameters) = gradients(ours, lambda x: join(*ours(x, x, x, keep, output_attentions=True)), x)
    (expected, *_) = gradients(
        theirs,
        lambda x: join(*theirs(x, x, x, key_padding_mask=~keep, average_attn_weights=False)),
        x.double(),
    )
    close(found, expected)
    close(torch.cat(parameters[0:6:2]), theirs.in_proj_weight.grad)
    close(torch.cat(parameters[1:6:2]), theirs.in_proj_bias.grad)
    close(parameters[6], theirs.out_proj.weight.grad)


@needs_gradients
def test_gradients_replay_dropout():
    """What was dropped has no gradient."""
    layer, v = nn.DotProductAttention(0.5), torch.ones(1, 40, 1, requires_grad=True)
    q, k = torch.zeros(1, 1, 3), torch.zeros(1, 40, 3)
    layer(q, k, v).sum().backward()
    assert set(v.grad.flatten().mul(20).round().tolist()) == {0, 1}
    torch.manual_seed(3)
    kept = layer(q, k, torch.eye(40)[None])
    torch.manual_seed(3)
    v.grad = None
    layer(q, k, v).sum().backward()
    close(v.grad[0, :, 0], kept[0, 0])


@needs_gradients
def test_the_decoder_learns():
    """Copying a sequence: the loss falls."""
    encoder, decoder = nn.Seq2SeqEncoder(12, 16, 32, 1), nn.Seq2SeqAttentionDecoder(12, 16, 32, 1)
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 0.01)
    source, valid = torch.randint(12, (16, 6)), torch.full((16,), 6)
    losses = []
    for _ in range(60):
        scores, _ = decoder(source.roll(1, 1), decoder.init_state(encoder(source), valid))
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), source.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


# The package.


def test_attn_itself_imports_neither_torch_nor_matplotlib():
    code = """if True:
        import sys, attn
        assert not {'torch', 'matplotlib'} & set(sys.modules)
        attn.nn, attn.plot
        print({'torch', 'matplotlib'} <= set(sys.modules))"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_without_torch_there_is_an_error_that_says_so():
    code = "import sys; sys.modules['torch'] = None; import attn; attn.nn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: attn.nn: needs PyTorch: pip install torch" in done.stderr


def test_unknown_names_of_the_package_are_errors():
    with pytest.raises(AttributeError, match="module 'attn' has no attribute 'optim'"):
        attn.optim
