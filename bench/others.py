"""Workloads with formulas of their own."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import torch

import attn

from .attention import ELEMENTS, spec
from .variants import PLAIN
from .workload import Call, Workload

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.attn").read_text(encoding="utf-8")


def normal(**shapes: tuple[int, ...]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


def paged(dtype: str, tokens: int = 8192) -> Workload:
    """Decoding with keys and values in pages, beside our own kernel for the same tokens without pages."""
    size, heads, groups, width = 16, 32, 8, 128
    pages = tokens // size

    def draw():
        floats = normal(q=(1, heads, width), k=(pages, size, groups, width), v=(pages, size, groups, width))
        page = torch.randperm(pages, generator=torch.Generator().manual_seed(0)).int()[None]
        return {name: each.to(ELEMENTS[dtype]) for name, each in floats.items()} | {"page": page, "length": torch.tensor([tokens]).int()}

    def tokens_in_order(x, page):
        return x[page[0].long()].flatten(0, 1).transpose(0, 1)[None]

    def formula(q, k, v, page, length):
        scores = q.view(1, groups, -1, width) @ tokens_in_order(k, page).mT / math.sqrt(width)
        return (torch.softmax(scores, -1) @ tokens_in_order(v, page)).view(q.shape)

    def contiguous(q, k, v, page, length) -> Call:
        kernel = attn.compile(spec(PLAIN), dtype=None if dtype == "f32" else dtype)
        k, v = (tokens_in_order(x, page).contiguous() for x in (k, v))
        return lambda: kernel(q[:, :, None], k, v)

    return Workload(
        f"decode 32/8 N{tokens}, pages of {size}", example("paged"), draw, formula, {"attn without pages": contiguous},
        read_bytes=2 * tokens * groups * width * ELEMENTS[dtype].itemsize, dtype=dtype,
    )  # fmt: skip


def additive(name: str, batch: int, queries: int, keys: int) -> Workload:
    text = """attention additive(hq: f32[B, M, U], hk: f32[B, N, U], wv: f32[U], v: f32[B, N, E]) {
  weight[b, m, n] = softmax[n](sum[u](wv[u] * tanh(hq[b, m, u] + hk[b, n, u])))
  out[b, m, e] = sum[n](weight[b, m, n] * v[b, n, e])
  return out
}
"""
    draw = partial(normal, hq=(batch, queries, 64), hk=(batch, keys, 64), wv=(64,), v=(batch, keys, 64))

    def formula(hq, hk, wv, v):
        return torch.softmax(torch.tanh(hq[:, :, None] + hk[:, None]) @ wv, -1) @ v

    return Workload(name, text, draw, formula)


def gaussian() -> Workload:
    shape = (8, 2048, 64)
    return Workload(
        "gaussian", example("gaussian"), lambda: normal(q=shape, k=shape, v=shape) | {"width": 8.0},
        lambda q, k, v, width: torch.softmax(-0.5 * torch.cdist(q, k) ** 2 / width**2, -1) @ v,
        flops=4 * 8 * 2048 * 2048 * 64,
    )  # fmt: skip


def bilinear() -> Workload:
    shape = (8, 2048, 64)

    def draw():
        inputs = normal(q=shape, k=shape, v=shape, w=(64, 64))
        return inputs | {"w": inputs["w"] / 64}

    return Workload(
        "bilinear", example("bilinear"), draw,
        lambda q, k, v, w: torch.softmax(q @ w @ k.transpose(-1, -2), -1) @ v,
        flops=4 * 8 * 2048 * 2048 * 64 + 2 * 8 * 2048 * 64 * 64,
    )  # fmt: skip


def rotary(name: str, queries: int, keys: int) -> Workload:
    """Keys come without positions, also those of a cache."""
    heads, width = 8, 64

    def draw():
        angle = torch.arange(keys)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
        inputs = normal(q=(1, heads, queries, width), k=(1, heads, keys, width), v=(1, heads, keys, width))
        return inputs | {"cosine": angle.cos(), "sine": angle.sin()}

    def turned(x, cosine, sine):
        first, second = x.chunk(2, -1)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)

    def formula(q, k, v, cosine, sine):
        q, k = turned(q, cosine[keys - queries :], sine[keys - queries :]), turned(k, cosine, sine)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=queries > 1)

    pairs = queries * (keys - (queries - 1) / 2)
    return Workload(name, example("rotary"), draw, formula, flops=4 * heads * pairs * width if queries > 1 else 0)


def pair_bias(tokens: int) -> Workload:
    """A bias that is a linear layer of pairs, as in AlphaFold."""
    heads, width = 8, 64
    head = (1, heads, tokens, width)

    def draw():
        inputs = normal(q=head, k=head, v=head, pair=(tokens, tokens, width), w=(heads, width), gate=head)
        return inputs | {"w": inputs["w"] / math.sqrt(width)}

    def formula(q, k, v, pair, w, gate):
        bias = torch.einsum("hc,mnc->hmn", w, pair)[None]
        return torch.sigmoid(gate) * torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    return Workload("bias of pairs", example("pair_bias"), draw, formula, flops=6 * heads * tokens * tokens * width)


def self_attention(tokens: int) -> Workload:
    heads, width = 12, 64
    model = heads * width
    text = """attention block[H = 12](x: f32[B, N, J], wq: f32[H * D, J], wk: f32[H * D, J], wv: f32[H * D, J], wo: f32[O, H * D]) {
  q[b, h: H, m, d: D] = sum[j](x[b, m, j] * wq[h * D + d, j]) / sqrt(D)
  k[b, h: H, n, d: D] = sum[j](x[b, n, j] * wk[h * D + d, j])
  v[b, h: H, n, d: D] = sum[j](x[b, n, j] * wv[h * D + d, j])
  weight[b, h, m, n]  = softmax[n](sum[d](q[b, h, m, d] * k[b, h, n, d]))
  context[b, h, m, d] = sum[n](weight[b, h, m, n] * v[b, h, n, d])
  y[b, m, o]          = sum[h, d](wo[o, h * D + d] * context[b, h, m, d])
  return y
}
"""

    def draw():
        inputs = normal(x=(1, tokens, model), **{name: (model, model) for name in ("wq", "wk", "wv", "wo")})
        return {name: each if name == "x" else each / math.sqrt(model) for name, each in inputs.items()}

    def split(y):
        return y.unflatten(-1, (heads, width)).transpose(1, 2)

    def formula(x, wq, wk, wv, wo):
        q, k, v = (split(x @ w.T) for w in (wq, wk, wv))
        context = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(width), -1) @ v
        return context.transpose(1, 2).flatten(2) @ wo.T

    flops = 8 * tokens * model * model + 4 * tokens * tokens * model
    return Workload(f"self-attention of {tokens} tokens", text, draw, formula, flops=flops)


def textbook() -> Workload:
    def draw():
        v, valid = torch.arange(80.0).reshape(2, 10, 4), torch.tensor([2, 6], dtype=torch.int32)
        return dict(q=torch.ones(2, 1, 2), k=torch.ones(2, 10, 2), v=v, valid=valid)

    def formula(q, k, v, valid):
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        mask = torch.arange(k.shape[1]) < valid[:, None, None]
        return torch.softmax(scores.masked_fill(~mask, -1e6), -1) @ v

    return Workload("textbook (2,1,2) x (2,10,2)", example("demo/attend"), draw, formula)
