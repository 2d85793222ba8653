"""The layers of attn.nn that score one way or another: the textbooks' cases, float64, and errors of all layers."""

import math
import subprocess
import sys

import pytest
from test_seeds import WORD_CONTEXTS, WORD_WEIGHTS, WORDS

import attn

torch = pytest.importorskip("torch")

from attn import nn  # noqa: E402
from attn.nn import operators  # noqa: E402

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
    (info,) = operators.SpecOperator("dot_product").operator(("out",)).kernel.outputs
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
