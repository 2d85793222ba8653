"""Scores and masks for flex_attention, and as the judge PyTorch's, in its eager mode and double precision."""

import pytest

torch = pytest.importorskip("torch")
from torch.nn.attention import flex_attention as pytorch  # noqa: E402

import attn  # noqa: E402


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """PyTorch's own without torch.compile, and always the same random numbers. Modules of tests import it."""
    monkeypatch.setattr(pytorch, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    torch.manual_seed(5)


def tensors(length=65, keys=None, heads=4, key_heads=None, batch=2, size=16, dtype=torch.float32):
    keys, key_heads = keys or length, key_heads or heads
    shapes = (batch, heads, length, size), (batch, key_heads, keys, size), (batch, key_heads, keys, 24)
    return tuple(torch.randn(shape).to(dtype) for shape in shapes)


def mask_of(mask_mod, length, keys):
    return mask_mod and pytorch.create_block_mask(mask_mod, None, None, length, keys, device="cpu")


def expected(query, key, value, score_mod=None, mask_mod=None, **options):
    """PyTorch's out and lse, from double precision."""
    block_mask = mask_of(mask_mod, query.shape[2], key.shape[2])
    double = [tensor.double() for tensor in (query, key, value)]
    out, aux = pytorch.flex_attention(
        *double, score_mod, block_mask, return_aux=pytorch.AuxRequest(lse=True), **options
    )
    return out, aux.lse


def check_rows(found, wanted, tolerance, least=0.0):
    """The error of each row is at most `tolerance` of the row's largest number, or of `least`.

    A logarithm is as exact as the scores that it is made of, which are of the order of 1, also where it is near 0.
    """
    finite = torch.where(wanted.isfinite(), wanted, 0)
    assert torch.equal(found.isinf(), wanted.isinf()) and not found.isnan().any()
    error = (torch.where(found.isfinite(), found.double(), 0) - finite).abs().amax(-1)
    scale = finite.abs().amax(-1).clamp(min=least)
    assert (error <= tolerance * scale).all(), (error / scale).max()


def check(query, key, value, score_mod=None, mask_mod=None, tolerance=2e-6, **options):
    block_mask = mask_of(mask_mod, query.shape[2], key.shape[2])
    out, lse = attn.flex_attention(query, key, value, score_mod, block_mask, return_lse=True, **options)
    wanted, wanted_lse = expected(query, key, value, score_mod, mask_mod, **options)
    assert out.dtype == query.dtype and out.shape == wanted.shape
    assert lse.dtype == (torch.float64 if query.dtype == torch.float64 else torch.float32)
    check_rows(out, wanted, tolerance)
    check_rows(lse, wanted_lse, max(tolerance / 8, 2e-6 if query.dtype != torch.float64 else 0), least=1.0)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def sliding_window(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 9)


def dilated(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & ((q_idx - kv_idx) % 3 == 0)


def no_key_for_some(b, h, q_idx, kv_idx):
    return (kv_idx < 30) & (q_idx % 5 != b)


def softcap(score, b, h, q_idx, kv_idx):
    return 20.0 * torch.tanh(score / 20.0)


def tanh(score, b, h, q_idx, kv_idx):
    return score.tanh()


def documents(length):
    document = torch.arange(length) // 20

    def same_document(b, h, q_idx, kv_idx):
        return document[q_idx] == document[kv_idx]

    return pytorch.and_masks(causal, same_document)


def prefix_lm(length):
    prefix = torch.tensor([3, 40], dtype=torch.int32)

    def either(b, h, q_idx, kv_idx):
        return kv_idx < prefix[b]

    return pytorch.or_masks(causal, either)


def alibi(heads):
    slopes = torch.exp2(-8 * torch.arange(1, heads + 1) / heads)

    def add_bias(score, b, h, q_idx, kv_idx):
        return score + slopes[h] * (kv_idx - q_idx)

    return add_bias


def relative_bias(heads, length):
    bias = torch.randn(heads, 2 * length - 1)

    def add_bias(score, b, h, q_idx, kv_idx):
        return score + bias[h, kv_idx - q_idx + length - 1]

    return add_bias
