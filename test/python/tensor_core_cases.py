"""Specs for tensor cores: what one of them may add to a scaled dot product, with numbers for it."""

import random
from dataclasses import dataclass, field
from typing import Callable

import torch

import attn

SPEC = """attention {name}(q: {t}[B, H, M, D], k: {k}, v: {v}{parameters}) {{
  dot[b, h, m, n{range}]    = sum[d](q[b, h, m, d] * k[{key}, d]) / sqrt(D)
  score[b, h, m, n{range}]  = {score}
  weight[b, h, m, n{range}] = softmax[n](score[b, h, m, n]{where})
{statement}  out[b, h, m, e]    = sum[n]({weight} * v[{key}, e]{condition})
{lse}  return out{also}
}}
"""
LSE = "  lse[b, h, m]: f32  = logsumexp[n](score[b, h, m, n]{where})\n"
CAUSAL = "n <= m + (N - M)"
DOT = "dot[b, h, m, n]"


def integers(low, high, shape):
    return torch.randint(low, high + 1, shape, dtype=torch.int32)


def start_of_sequences(s):
    """Keys in three sequences, one of them empty; each query belongs to one."""
    cut = s["N"] // 3
    return {"start": torch.tensor([0, cut, cut, s["N"]], dtype=torch.int32), "sequence": integers(0, 2, (s["M"],))}


def with_missing(values):
    return torch.where(torch.rand(values.shape) < 0.2, -torch.inf, values)


@dataclass(frozen=True)
class Feature:
    """parameters: of the spec, besides q, k and v, where `{t}` is the dtype.
    draw: their values for sizes.
    keys: the shape of k and v without their columns, and the subscripts of a key.
    lse:  whether the log-sum-exp is returned as well.
    """

    parameters: str = ""
    draw: Callable = lambda s, dtype: {}
    score: str = DOT
    mask: str = ""
    sink: str = ""
    weight: str = "weight[b, h, m, n]"
    statement: str = ""
    condition: str = ""
    keys: tuple = ("B, H, N", "b, h, n")
    range: str = ""
    lse: bool = False
    sizes: dict = field(default_factory=dict)

    def spec(self, name, dtype):
        shape, key = self.keys
        where = (f" where {self.mask}" if self.mask else "") + (f", sink = {self.sink}" if self.sink else "")
        return SPEC.format(
            name=name,
            t=dtype,
            k=f"{dtype}[{shape}, D]",
            v=f"{dtype}[{shape}, E]",
            parameters=self.parameters.format(t=dtype),
            key=key,
            range=self.range,
            score=self.score,
            where=where,
            weight=self.weight,
            statement=self.statement,
            condition=f" where {self.condition}" if self.condition else "",
            lse=LSE.format(where=where) if self.lse else "",
            also=", lse" if self.lse else "",
        )

    def sizes_of(self, sizes):
        return sizes | {name: value(sizes) for name, value in self.sizes.items()}

    def arguments(self, sizes, dtype):
        """q, k, v and the other parameters, in torch's tensors."""
        shape = [eval(size, {}, dict(sizes)) for size in self.keys[0].split(",")]
        B, H, M, D, E = (sizes[name] for name in "BHMDE")
        drawn = {
            "q": torch.randn(B, H, M, D),
            "k": torch.randn(*shape, D),
            "v": torch.randn(*shape, E),
        }
        return {name: value.to(dtype) for name, value in drawn.items()} | self.draw(sizes, dtype)


def unseen(seed):
    """A score that nobody has thought of: a random expression of the product, numbers for rows and columns, and indices."""
    draw = random.Random(seed)

    def expression(depth):
        if depth == 0:
            return draw.choice([DOT, DOT, "row[b, m]", "column[h, n]", "(n - m)", "gain", "0.75", "(m % 3)", "(n // 4)"])
        a, b = expression(depth - 1), expression(draw.randrange(depth))
        return draw.choice(
            [
                f"sin({a})",
                f"tanh({a} * 0.5)",
                f"abs({a})",
                f"({a} + {b})",
                f"({a} - {b})",
                f"max({a}, {b})",
                f"log(1.0 + abs({a}))",
                f"select({a} < {b}, {DOT}, {a})",
                f"({a} / (1.0 + abs({b})))",
            ]
        )

    return Feature(
        ", row: f32[B, M], column: {t}[H, N], gain: f32",
        lambda s, dtype: {
            "row": torch.randn(s["B"], s["M"]),
            "column": torch.randn(s["H"], s["N"]).to(dtype),
            "gain": 1.25,
        },
        score=f"{DOT} + 2.0 * tanh({expression(4)}) + sin({expression(3)})",
        mask=draw.choice(["", CAUSAL, "(m + n) % 3 != 1"]),
        lse=True,
    )


FEATURES = {
    "plain": Feature(lse=True),
    "causal": Feature(mask=CAUSAL, lse=True),
    "window": Feature(
        ", window: i32", lambda s, dtype: {"window": 40}, mask=f"{CAUSAL} and m + (N - M) - n < window"
    ),
    "blocks": Feature(mask="n // 24 <= m // 16 and n // 24 >= m // 16 - 2"),
    "stride": Feature(", last: i64", lambda s, dtype: {"last": 2**33}, mask="3 * n + 7 <= m + 40 and 4 * n < last"),
    "softcap": Feature(", cap: f32", lambda s, dtype: {"cap": 3.0}, score=f"cap * tanh({DOT} / cap)", mask=CAUSAL),
    "alibi": Feature(
        ", slope: f32[H]",
        lambda s, dtype: {"slope": torch.rand(s["H"]) * 0.2},
        score=f"{DOT} - slope[h] * (m + (N - M) - n)",
        mask=CAUSAL,
    ),
    "bias": Feature(
        ", bias: {t}[B, H, M, N]",
        lambda s, dtype: {"bias": with_missing(torch.randn(s["B"], s["H"], s["M"], s["N"])).to(dtype)},
        score=f"{DOT} + bias[b, h, m, n]",
        mask="score[b, h, m, n] > -inf",
    ),
    "padding": Feature(
        ", valid: i32[B], keep: bool[B, N]",
        lambda s, dtype: {"valid": integers(0, s["N"], (s["B"],)), "keep": torch.rand(s["B"], s["N"]) < 0.8},
        mask="n < valid[b] and keep[b, n]",
        lse=True,
    ),
    "grouped": Feature(
        ", sink: f32[H]",
        lambda s, dtype: {"sink": torch.randn(s["H"])},
        mask=CAUSAL,
        sink="sink[h]",
        keys=("B, G, N", "b, h // (H // G), n"),
        lse=True,
        sizes={"G": lambda s: s["H"] // 2},
    ),
    "shared": Feature(mask=CAUSAL, keys=("B, N", "b, n"), score=f"1.5 * {DOT}"),
    "ragged": Feature(
        ", start: i32[S + 1], sequence: i32[M]",
        lambda s, dtype: start_of_sequences(s),
        mask="start[sequence[m]] <= n and n < start[sequence[m] + 1]",
        lse=True,
        sizes={"S": lambda s: 3},
    ),
    "paged": Feature(
        ", page: i32[B, L], length: i32[B]",
        lambda s, dtype: {"page": integers(0, s["P"] - 1, (s["B"], s["L"])), "length": integers(1, s["N"], (s["B"],))},
        mask="n < length[b]",
        keys=("P, S, H", "page[b, n // S], n % S, h"),
        range=": L * S",
        sizes={"S": lambda s: 8, "P": lambda s: 40, "L": lambda s: (s["N"] + 7) // 8},
    ),
    "dropout": Feature(
        ", seed: i64, p: f32",
        lambda s, dtype: {"seed": 12345678901, "p": 0.3},
        statement="  kept[b, h, m, n]   = dropout(weight[b, h, m, n], p, seed)\n",
        weight="kept[b, h, m, n]",
    ),
    "factor": Feature(
        ", width: f32",
        lambda s, dtype: {"width": 9.0},
        weight="weight[b, h, m, n] * exp(-((m - n) / width) ** 2)",
        condition="n % 5 != 2",
    ),
    "unseen_1": unseen(1),
    "unseen_3": unseen(3),
    "unseen_6": unseen(6),
}
DECODING = dict(B=2, H=8, M=1, N=300)
# Features whose heads share keys, shapes for them, and the members of a row's position.
SHARED = {
    "constant": (
        Feature(keys=("B, (H + 3) // 4, N", "b, h // 4, n"), lse=True),
        [DECODING, dict(B=1, H=10, M=33, N=70)],
        "int query, h;",
    ),
    # All but the range of keys changes with the head.
    "of_heads": (
        Feature(
            ", bias: {t}[B, H, M, N], keep: bool[H, N], cap: f32[H], sink: f32[H]",
            lambda s, dtype: {
                "bias": with_missing(torch.randn(s["B"], s["H"], s["M"], s["N"])).to(dtype),
                "keep": torch.rand(s["H"], s["N"]) < 0.8,
                "cap": 1 + torch.rand(s["H"]),
                "sink": torch.randn(s["H"]),
            },
            score=f"cap[h] * tanh({DOT} / cap[h]) + bias[b, h, m, n]",
            mask=f"keep[h, n] and {CAUSAL} and bias[b, h, m, n] > -inf",
            sink="sink[h]",
            weight="weight[b, h, m, n] * (1.0 + (h % 3) * 0.5)",
            keys=("B, G, N", "b, h // (H // G), n"),
            lse=True,
            sizes={"G": lambda s: s["H"] // 4},
        ),
        [DECODING, dict(B=1, H=8, M=33, N=120)],
        "int query, h;",
    ),
    # Three groups of two, and a seventh head, which reads the last keys as well.
    "uneven": (
        Feature(mask=CAUSAL, keys=("B, G, N", "b, h // (H // G), n"), sizes={"G": lambda s: 3}, lse=True),
        [dict(B=2, H=7, M=40, N=65), dict(B=1, H=2, M=5, N=33)],
        "int query, h;",
    ),
    # Of which each head has pages of its group's own.
    "pages": (
        Feature(
            ", page: i32[B, G, L], length: i32[B]",
            lambda s, dtype: {
                "page": integers(0, s["P"] - 1, (s["B"], s["G"], s["L"])),
                "length": integers(1, s["N"], (s["B"],)),
            },
            mask="n < length[b]",
            keys=("P, S", "page[b, h // (H // G), n // S], n % S"),
            range=": L * S",
            sizes={
                "G": lambda s: s["H"] // 4,
                "S": lambda s: 8,
                "P": lambda s: 40,
                "L": lambda s: (s["N"] + 7) // 8,
            },
        ),
        [DECODING, dict(B=1, H=4, M=9, N=100)],
        "int query, h;",
    ),
    # The range of keys is that of a group.
    "lengths": (
        Feature(
            ", length: i32[B, G]",
            lambda s, dtype: {"length": integers(0, s["N"], (s["B"], s["G"]))},
            mask="n < length[b, h // (H // G)]",
            keys=("B, G, N", "b, h // (H // G), n"),
            sizes={"G": lambda s: s["H"] // 4},
            lse=True,
        ),
        [DECODING, dict(B=2, H=4, M=33, N=150)],
        "int query, h;",
    ),
    # The last index that has no part in the keys.
    "all": (
        Feature(
            ", seed: i64, p: f32",
            lambda s, dtype: {"seed": 77, "p": 0.2},
            statement="  kept[b, h, m, n]   = dropout(weight[b, h, m, n], p, seed)\n",
            weight="kept[b, h, m, n]",
            mask=CAUSAL,
            keys=("N", "n"),
        ),
        [DECODING, dict(B=2, H=3, M=50, N=60)],
        "int query, h;",
    ),
    # Each head has keys of its own.
    "none": (
        Feature(mask=CAUSAL, keys=("B, H, N", "b, h, n"), score=f"{DOT} * (1.0 + h // 4)"),
        [dict(B=1, H=8, M=3, N=65)],
        "int query;",
    ),
    # Each head has a range of keys: a tile of several would visit those of all.
    "windows": (
        Feature(
            ", window: i32[H]",
            lambda s, dtype: {"window": integers(1, 90, (s["H"],))},
            mask=f"{CAUSAL} and m + (N - M) - n < window[h]",
            keys=("B, G, N", "b, h // (H // G), n"),
            sizes={"G": lambda s: s["H"] // 4},
        ),
        [dict(B=1, H=8, M=3, N=165)],
        "int query;",
    ),
}
# Projections before and after, which Halide's kernels compute: `mixed` is stored in f32.
LAYER = """attention layer(x: bf16[B, M, C], y: bf16[B, N, C], wq: bf16[H, C, D], wk: bf16[G, C, D], wv: bf16[G, C, E],
                wo: bf16[H, E, C], gate: f32[N]) {
  q[b, h, m, d]: bf16    = sum[c](x[b, m, c] * wq[h, c, d])
  k[b, g, n, d]: bf16    = sum[c](y[b, n, c] * wk[g, c, d])
  v[b, g, n, e]: bf16    = sum[c](y[b, n, c] * wv[g, c, e])
  most: f32              = max[n](gate[n])
  score[b, h, m, n]      = sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D) / most + log(gate[n])
  weight[b, h, m, n]     = softmax[n](score[b, h, m, n] where n <= m + (N - M))
  lse[b, h, m]: f32      = logsumexp[n](score[b, h, m, n] where n <= m + (N - M))
  mixed[b, h, m, e]: f32 = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
  out[b, m, c]           = sum[h, e](mixed[b, h, m, e] * wo[h, e, c])
  return out, lse
}
"""


def arguments_of_layer(s):
    shapes = {"x": "BMC", "y": "BNC", "wq": "HCD", "wk": "GCD", "wv": "GCE", "wo": "HEC"}
    drawn = {name: torch.randn(*(s[size] for size in shape)) for name, shape in shapes.items()}
    scaled = {name: (value / s["C"] ** 0.5 if name[0] == "w" else value).bfloat16() for name, value in drawn.items()}
    return scaled | {"gate": 0.5 + torch.rand(s["N"])}


def statements_of_layer(arguments):
    """What the statements compute that the attention reads, in their order."""
    names = ["q", "k", "v", "most"]
    found = attn.compile(LAYER.replace("return out, lse", f"return {', '.join(names)}")).reference(**arguments)
    types = [torch.bfloat16] * 3 + [torch.float32]
    computed = {name: torch.as_tensor(value).to(type) for name, value, type in zip(names, found, types)}
    return computed | {"weight_score_key": arguments["gate"].log()}


# The columns of queries and keys, and of values; 20 and 17 are copied element by element.
WIDTHS = [(16, 16), (64, 64), (128, 128), (32, 48), (80, 80), (20, 17), (96, 64), (192, 128), (256, 256), (40, 33)]
