"""Gradients through the layers of attn.nn, beside PyTorch's autograd in float64."""

import math

import pytest
from test_layers import close, rows, seed  # noqa: F401

import attn

torch = pytest.importorskip("torch")

from attn import nn  # noqa: E402

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


def test_gradients_of_masked_softmax():
    x, valid = torch.randn(2, 3, 9), torch.tensor([[3, 9, 4], [1, 7, 2]])
    keep, module = torch.arange(9) < valid[..., None], torch.nn.Module()
    (found,) = gradients(module, lambda x: nn.masked_softmax(x, valid), x)
    (expected,) = gradients(module, lambda x: torch.softmax(x.masked_fill(~keep, -torch.inf), -1), x.double())
    close(found, expected)


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


def test_layers_train_inside_autocast():
    """In the dtype that the projections have there; gradients have that of the parameters."""
    layer = nn.AdditiveAttention(8, query_size=5, key_size=5)
    q, k, v, valid, _ = rows(5, 5)
    expected = layer(q, k, v, valid)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(q, k, v, valid)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.05)
    out.float().sum().backward()
    assert layer.W_q.weight.grad.dtype == torch.float32 and layer.W_q.weight.grad.isfinite().all()
