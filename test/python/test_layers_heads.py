"""Bahdanau's module, local and multi-head attention and the sequence-to-sequence decoder, beside PyTorch and loops."""

import math

import pytest
from test_layers import attend, close, rows, seed  # noqa: F401

torch = pytest.importorskip("torch")

from attn import nn  # noqa: E402


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
