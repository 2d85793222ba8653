"""The workloads, by group."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Callable, Iterator

from .attention import attention, spec
from .others import additive, bilinear, gaussian, paged, pair_bias, rotary, self_attention, textbook
from .pytorch import SWITCHES, flex, sdpa_by
from .training import causal_flex, training
from .tuned import tuned
from .variants import (
    ALIBI,
    BIAS,
    CAUSAL,
    DOCUMENTS,
    DROPOUT,
    EVERYTHING,
    GIVEN,
    NUMBERED,
    PLAIN,
    RAGGED,
    SINK,
    SOFTCAP,
    TABLE,
    WEIGHTS,
    WINDOW,
    Variant,
)
from .workload import Workload

DTYPES = ("f32", "bf16")


def prefill() -> Iterator[Workload]:
    for name, sizes in {
        "H8 N2048 D64": {},
        "H8 N1024 D128": dict(queries=1024, width=128),
        "H4 N4096 D64": dict(heads=4, queries=4096),
        "H2 N16384 D64": dict(heads=2, queries=16384),
        "32/8 N1024 D128": dict(heads=32, groups=8, queries=1024, width=128),
    }.items():
        for mask, variant in (("full", PLAIN), ("causal", CAUSAL)):
            for dtype in DTYPES:
                yield attention(f"{name} {mask}", variant, dtype=dtype, **sizes)
    for width, value_width in ((40, 40), (80, 80), (96, 96), (192, 128), (256, 256)):
        yield attention(f"H8 N1024 D{width}/{value_width}", queries=1024, width=width, value_width=value_width)


def masks_and_scores() -> Iterator[Workload]:
    yield attention("window 256 of 2048", WINDOW)
    yield attention("window 256 of 8192", WINDOW, queries=8192)
    yield attention("ALiBi", ALIBI)
    yield attention("softcap", SOFTCAP)
    yield attention("softcap ALiBi window", EVERYTHING)
    yield attention("dense bias", BIAS)
    yield attention("ragged batch of 8", RAGGED, batch=8, queries=512)
    yield attention("documents", DOCUMENTS)
    yield attention("documents by number", NUMBERED)
    yield attention("given mask of documents", GIVEN)
    yield attention("quarter of the blocks", TABLE)
    yield attention("sink and window", SINK)
    yield attention("dropout 0.1", DROPOUT)
    yield attention("weights returned", WEIGHTS)


def decode() -> Iterator[Workload]:
    for heads in (8, 32):
        for keys in (512, 8192, 65536):
            for batch in (1, 8):
                # Keys and values of a batch of 8 with 65536 tokens are 4 GiB in f32, and some peers copy them.
                for dtype in DTYPES if batch == 1 or keys < 65536 else ("bf16",):
                    sizes = dict(batch=batch, heads=heads, groups=8, queries=1, keys=keys, width=128)
                    yield attention(f"decode {heads}/8 N{keys} B{batch}", dtype=dtype, **sizes)
    for dtype in DTYPES:
        yield attention("decode 32/8 N8192, 4 queries", heads=32, groups=8, queries=4, keys=8192, width=128, dtype=dtype)
    for dtype in DTYPES:
        yield paged(dtype)


def others() -> Iterator[Workload]:
    yield additive("additive 512 x 512 x 64", 1, 512, 512)
    yield additive("additive decoder B64 M1 N10", 64, 1, 10)
    yield additive("additive decoder B64 M1 N50", 64, 1, 50)
    yield gaussian()
    yield bilinear()
    yield rotary("rotary, causal", 1024, 1024)
    yield rotary("rotary, one query", 1, 8192)
    yield pair_bias(512)
    yield self_attention(14)
    yield self_attention(128)
    yield textbook()


def steps() -> Iterator[Workload]:
    """Of training: forward and backward."""
    for name, sizes in {"H8 N2048 D64": {}, "H8 N1024 D128": dict(queries=1024, width=128)}.items():
        for mask, variant in (("full", PLAIN), ("causal", CAUSAL)):
            yield training(heads(f"{name} {mask}", variant, **sizes), "qkv", ["sdpa"])
    grouped = attention("32/8 N1024 D128 causal", CAUSAL, heads=32, groups=8, queries=1024, width=128)
    yield training(grouped, "qkv", ["sdpa"])
    yield training(heads("flex_attention, causal", CAUSAL, queries=1024), "qkv", run=causal_flex)
    yield training(heads("ALiBi with learned slopes", ALIBI, queries=1024), [*"qkv", "slope"])
    yield training(rotary("rotary, causal", 1024, 1024), "qkv")
    for name, sizes in {"512 x 512 x 64": (1, 512, 512), "decoder B64 M1 N10": (64, 1, 10), "decoder B64 M1 N50": (64, 1, 50)}.items():
        yield training(additive(f"additive {name}", *sizes), ["hq", "hk", "wv", "v"])


def heads(name: str, variant: Variant, **sizes: int) -> Workload:
    """Attention whose heads have keys of their own, which the spec says too."""
    return dataclasses.replace(attention(name, variant, **sizes), spec=spec(variant, groups=False))


def lengths() -> Iterator[Workload]:
    """For the plot: without peers."""
    for dtype in DTYPES:
        for mask, variant in (("full", PLAIN), ("causal", CAUSAL)):
            for tokens in (128, 256, 512, 1024, 2048, 4096, 8192):
                workload = attention(f"N{tokens} {mask}", variant, queries=tokens, dtype=dtype)
                yield dataclasses.replace(workload, peers={}, races_formula=False)


def plans() -> Iterator[Workload]:
    """Whether the model chooses well: a tuned plan is the only peer."""
    for group in (prefill, masks_and_scores, decode, others):
        yield from map(tuned, group())


def gpu() -> Iterator[Workload]:
    for dtype in ("f32", "f16", "bf16"):
        for name, sizes in {
            "H8 N2048 D64": dict(queries=2048, width=64),
            "H16 N4096 D128": dict(heads=16, queries=4096),
            "64/8 N4096 D128": dict(heads=64, groups=8, queries=4096),
            "64/8 N16384 D128": dict(heads=64, groups=8, queries=16384),
        }.items():
            for mask, variant in (("full", PLAIN), ("causal", CAUSAL)):
                yield on_gpu(f"{name} {mask}", variant, dtype=dtype, **sizes)
        for name, variant in {"window 256 of 4096": WINDOW, "ALiBi": ALIBI, "softcap": SOFTCAP, "dense bias": BIAS}.items():
            yield on_gpu(name, variant, heads=16, queries=4096, dtype=dtype)
        yield on_gpu("ragged batch of 8", RAGGED, batch=8, heads=16, queries=2048, dtype=dtype)
        for keys in (8192, 65536):
            yield on_gpu(f"decode 32/8 N{keys}", heads=32, groups=8, queries=1, keys=keys, dtype=dtype)


def on_gpu(name: str, variant: Variant = PLAIN, *, width: int = 128, **sizes: Any) -> Workload:
    """Attention of a width that is known when it is compiled, beside each implementation that PyTorch has for GPUs."""
    workload = attention(name, variant, width=width, **sizes)
    peers = {"flex": partial(flex, variant)}
    if "sdpa" in workload.peers:
        peers |= {f"sdpa {implementation}": partial(sdpa_by, implementation, variant) for implementation in SWITCHES}
    return dataclasses.replace(workload, peers=peers, races_formula=False, constants=dict(D=width, E=width))


GROUPS: dict[str, Callable[[], Iterator[Workload]]] = {
    "prefill": prefill,
    "masks": masks_and_scores,
    "decode": decode,
    "others": others,
    "training": steps,
    "lengths": lengths,
    "plans": plans,
    "gpu": gpu,
}
