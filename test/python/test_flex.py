"""attn.flex_attention against PyTorch's."""

import math
import subprocess
import sys

import pytest
from flex_cases import (
    alibi,
    causal,
    check,
    check_rows,
    dilated,
    documents,
    eager,  # noqa: F401  (a fixture)
    expected,
    no_key_for_some,
    prefix_lm,
    relative_bias,
    sliding_window,
    softcap,
    tanh,
    tensors,
)

import attn

torch = pytest.importorskip("torch")
from torch.nn.attention import flex_attention as pytorch  # noqa: E402


@pytest.mark.parametrize("length", [1, 7, 63, 65])
@pytest.mark.parametrize(
    "mask_mod",
    [None, causal, sliding_window, dilated, no_key_for_some],
    ids=lambda each: getattr(each, "__name__", "full"),
)
def test_masks(mask_mod, length):
    check(*tensors(length), mask_mod=mask_mod)


@pytest.mark.parametrize("length", [7, 65])
@pytest.mark.parametrize("make", [documents, prefix_lm])
def test_masks_that_read_captured_tensors(make, length):
    check(*tensors(length), mask_mod=make(length))


@pytest.mark.parametrize(
    "score_mod", [softcap, tanh, alibi(4), relative_bias(4, 65)], ids=["softcap", "tanh", "alibi", "relative_bias"]
)
def test_scores(score_mod):
    for length in (1, 63, 65):
        check(*tensors(length), score_mod)


def test_a_score_and_a_mask_together():
    check(*tensors(63), alibi(4), sliding_window)


def test_queries_and_keys_of_different_lengths():
    check(*tensors(7, keys=63), mask_mod=causal)
    check(*tensors(63, keys=7), mask_mod=causal)


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_grouped_heads(key_heads):
    check(*tensors(63, key_heads=key_heads), alibi(4), enable_gqa=True)


def test_one_batch_of_keys_for_all_queries():
    query, key, value = tensors(63)
    block_mask = pytorch.create_block_mask(causal, 2, None, 63, 63, device="cpu")
    out = attn.flex_attention(query, key[:1], value[:1], block_mask=block_mask)
    wanted = pytorch.flex_attention(query.double(), key[:1].double(), value[:1].double(), block_mask=block_mask)
    check_rows(out, wanted, 2e-6)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)], ids=str
)
def test_dtypes(dtype, tolerance):
    check(*tensors(63, dtype=dtype), mask_mod=causal, tolerance=tolerance)


def test_scale():
    check(*tensors(63), mask_mod=causal, scale=0.5)


def test_a_query_that_sees_no_key():
    out, lse = attn.flex_attention(*tensors(7), None, no_key_for_some, return_lse=True)
    for batch in (0, 1):
        rows = torch.arange(7) % 5 == batch
        assert (
            (out[batch, :, rows] == 0).all()
            and (lse[batch, :, rows] == -math.inf).all()
            and lse[batch, :, ~rows].isfinite().all()
        )


def test_what_is_returned():
    query, key, value = tensors(63)
    wanted, wanted_lse = expected(query, key, value)
    request = pytorch.AuxRequest(lse=True, max_scores=True)  # PyTorch itself has max_scores on GPUs only
    out, aux = attn.flex_attention(query, key, value, return_aux=request)
    assert isinstance(aux, pytorch.AuxOutput)
    check_rows(out, wanted, 2e-6)
    check_rows(aux.lse, wanted_lse, 2e-6, least=1.0)
    check_rows(aux.max_scores, (query.double() @ key.double().mT / 4).amax(-1), 2e-6)
    assert isinstance(attn.flex_attention(query, key, value), torch.Tensor)
    out, aux = attn.flex_attention(query, key, value, return_aux=pytorch.AuxRequest())
    assert aux == pytorch.AuxOutput(lse=None, max_scores=None)
    with pytest.raises(ValueError, match="return_lse: must not be given with return_aux"):
        attn.flex_attention(query, key, value, return_lse=True, return_aux=request)


def test_tensors_that_are_not_contiguous():
    query, key, value = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors(63))
    check(query, key, value.flip(-1), mask_mod=causal)


def test_autocast():
    query, key, value = tensors(63)
    with torch.autocast("cpu", torch.bfloat16):
        out, lse = attn.flex_attention(query, key, value, block_mask=causal, return_lse=True)
    assert lse.dtype == torch.float32 and out.dtype == torch.bfloat16
    check_rows(out, expected(query, key, value, mask_mod=causal)[0], 2e-2)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda q, k, v: (q[0], k, v),
            ValueError,
            "query: must have 4 dimensions, (batch, heads, length, size), but has 3",
        ),
        (
            lambda q, k, v: (q, k[:, :2], v[:, :2]),
            ValueError,
            "key: must have query's 4 heads, but has 2; give enable_gqa=True where heads share keys",
        ),
        (lambda q, k, v: (q, k, v[:, :2]), ValueError, "value: must have key's 4 heads, but has 2"),
        (
            lambda q, k, v: (q, k.double(), v),
            TypeError,
            "key: dtype must be query's, torch.float32, but is torch.float64",
        ),
        (
            lambda q, k, v: (q.int(), k, v),
            TypeError,
            "query: dtype must be float64, float32, bfloat16 or float16, but is torch.int32",
        ),
        (lambda q, k, v: (q, k.numpy(), v), TypeError, "key: must be a torch.Tensor, but is of type ndarray"),
    ],
)
def test_inputs_that_do_not_fit(change, error, message):
    with pytest.raises(error) as raised:
        attn.flex_attention(*change(*tensors(7)))
    assert str(raised.value) == message


def test_heads_must_divide():
    with pytest.raises(ValueError, match="^key: the number of its heads must divide query's, 4, but is 3$"):
        attn.flex_attention(*tensors(7, key_heads=3), enable_gqa=True)


def test_a_captured_tensor_that_is_too_short():
    with pytest.raises(ValueError, match="captured_slopes"):
        attn.flex_attention(*tensors(7), alibi(3), return_lse=True)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("slopes", torch.rand(4))

    def forward(self, query, key, value):
        def score_mod(score, b, h, q_idx, kv_idx):
            return score + self.slopes[h] * (kv_idx - q_idx)

        return 2 * attn.flex_attention(2 * query, key, value, score_mod)


def test_compile_and_export():
    model, inputs = Attention(), tensors(7)
    wanted = model(*inputs)
    torch.testing.assert_close(torch.compile(model, backend="eager")(*inputs), wanted)
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(model, inputs, dynamic_shapes=({2: length}, None, None), strict=False)
    assert "torch.ops.attn.flex_" in program.graph_module.code
    torch.testing.assert_close(program.module()(*inputs), wanted)


FIRST_CALL = """
import sys, torch, attn
query, key, value = (torch.ones(1, 2, 3, 4, requires_grad=True) for _ in range(3))
attn.flex_attention(query, key, value, lambda score, b, h, q_idx, kv_idx: 2 * score).sum().backward()
assert "torch._dynamo" not in sys.modules
"""


def test_a_call_does_not_import_what_compiles_graphs():
    """That takes a second. torch.compile imports it, and sees a graph break."""
    subprocess.run([sys.executable, "-c", FIRST_CALL], check=True)


HEADS = "q: f32[B, H, M, D], k: f32[B, H, N, D], v: f32[B, H, N, E], captured_slopes: f32[S]"
SCORE = "sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D) + captured_slopes[h] * (n - m)"
BY_HAND = (
    f"""
attention flex_forward({HEADS}) {{
  score[b, h: H, m, n] = {SCORE}
  weight[b, h: H, m, n] = softmax[n](score[b, h, m, n])
  out[b, h, m, e] = sum[n](weight[b, h, m, n] * v[b, h, n, e])
  saved[b, h: H, m]: f32 = logsumexp[n](score[b, h, m, n])
  return out, saved
}}
""",
    f"""
attention flex_backward({HEADS}, out: f32[B, H, M, E], saved: f32[B, H, M], grad_out: f32[B, H, M, E]) {{
  weight[b, h: H, m, n] = exp({SCORE} - saved[b, h, m])
  delta[b, h, m] = sum[e](grad_out[b, h, m, e] * out[b, h, m, e])
  grad_score[b, h: H, m, n] = weight[b, h, m, n] * (sum[e](grad_out[b, h, m, e] * v[b, h, n, e]) - delta[b, h, m])
  grad_q[b, h, m, d] = sum[n](grad_score[b, h, m, n] * k[b, h, n, d]) / sqrt(D)
  grad_captured_slopes[h: S] = sum[b, m, n](grad_score[b, h, m, n] * (n - m))
  return grad_q, grad_captured_slopes
}}
""",
)


def test_gradients_come_from_the_kernels_grad(monkeypatch):
    """Of a query and a captured tensor, by backward kernels that are written by hand."""
    asked = []

    def gradient(self, inputs, lazy):
        asked.append(inputs)
        return tuple(map(attn.compile, BY_HAND))

    monkeypatch.setattr(attn.Kernel, "_gradient", gradient)
    query, key, value = tensors(9, size=8)
    score_mod = alibi(4)
    slopes = score_mod.__closure__[0].cell_contents.requires_grad_()
    query.requires_grad_()
    weight = torch.randn(2, 4, 9, 24)
    out = attn.flex_attention(query, key, value, score_mod)
    found = torch.autograd.grad((out * weight).sum(), (query, slopes))
    distance = torch.arange(9) - torch.arange(9)[:, None]
    score = query @ key.mT / math.sqrt(8) + slopes[:, None, None] * distance
    wanted = torch.autograd.grad(((torch.softmax(score, -1) @ value) * weight).sum(), (query, slopes))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert asked == [["q", "captured_slopes"]]


@pytest.mark.parametrize("case", ["causal", "alibi", "relative_bias", "softcap", "no_key"])
def test_gradients(case):
    query, key, value = inputs = tensors(33, dtype=torch.float64)
    score_mods = {"alibi": alibi(4), "relative_bias": relative_bias(4, 33), "softcap": softcap}
    score_mod = score_mods.get(case)
    mask_mod = {"causal": causal, "no_key": no_key_for_some}.get(case)
    learned = [cell.cell_contents for cell in (score_mod.__closure__ or ())] if score_mod else []
    leaves = [*inputs, *(each for each in learned if isinstance(each, torch.Tensor))]
    for leaf in leaves:
        leaf.requires_grad_()
    weight = torch.randn(2, 4, 33, 24, dtype=torch.float64)
    found = torch.autograd.grad((attn.flex_attention(query, key, value, score_mod, mask_mod) * weight).sum(), leaves)
    b, h, m, n = (torch.arange(size).reshape([-1] + [1] * after) for size, after in ((2, 3), (4, 2), (33, 1), (33, 0)))
    score = query @ key.mT / 4
    score = score_mod(score, b, h, m, n) if score_mod else score
    if mask_mod:
        score = score.masked_fill(~mask_mod(b, h, m, n), -math.inf)
    wanted = torch.autograd.grad(((torch.softmax(score, -1).nan_to_num() @ value) * weight).sum(), leaves)
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
