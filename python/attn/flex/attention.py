"""`flex_attention`: PyTorch's function of that name, as a kernel compiled for the functions that it is given."""

from __future__ import annotations

import threading
from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxOutput, AuxRequest, BlockMask

from .. import kernel as kernels
from ..operators import Operator, torch_operator
from .captures import Captures
from .source import Form, kernel_source
from .tracing import DTYPES, Parameters, trace

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class _Compiled(NamedTuple):
    operator: Operator
    positions: tuple[int, ...]  #: of the tensors that it reads, among those that the functions capture
    kept: tuple[Any, ...]  #: what the key has identities of


_COMPILED: dict[Any, _Compiled] = {}
_OPERATORS: dict[str, Operator] = {}  # by source
_LOCK = threading.Lock()  # held while a kernel is compiled


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | MaskMod | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: dict[str, Any] | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, AuxOutput]:
    """softmax(score_mod(query · keyᵀ · scale) where mask) · value on the CPU: `torch.nn.attention.flex_attention`.

    query: [B, H, M, D], of float64, float32, bfloat16 or float16; computed in float32, or float64 if an input is.
    key, value: [B, G, N, D] and [B, G, N, E], of query's dtype; or [1, …], for all batches. G is H, or divides it where
        enable_gqa is true.
    score_mod: score_mod(score, b, h, q_idx, kv_idx) gives the score of a query and a key, from numbers that are traced.
    block_mask: a BlockMask, of which only mask_mod is used, or mask_mod itself: mask_mod(b, h, q_idx, kv_idx) is true
        for the keys that a query sees. A query that sees none has the output 0, and -inf for lse and max_scores.
    scale: by default 1 / sqrt(D).
    kernel_options: PyTorch's, for GPUs; they are ignored.

    Returns out, [B, H, M, E] in query's dtype; with return_lse also lse, [B, H, M], the natural logarithm of the sum of
    the exponentials of the scores; with return_aux (of PyTorch) out and an AuxOutput of the lse and max_scores that it
    asks for. lse and max_scores are float32, or float64 where query is.

    The functions are traced: they run once, on stand-ins for the numbers. They are traced again, and where the kernel's
    text changes compiled again, when their code, a captured number, or the dtype or rank of a captured tensor is
    another; new values and lengths of tensors change nothing. Inside autocast, query, key and value are converted to
    its dtype. torch.compile breaks its graph here; torch.export has the kernel as one operator.

    Raises attn.TracingError, a TypeError, for what cannot be traced, with the operation and the line; ValueError and
    TypeError for shapes and dtypes that do not fit.
    """
    if torch.compiler.is_dynamo_compiling():
        return _outside_graphs()(
            query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux=return_aux
        )
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if return_lse and return_aux is not None:
        raise ValueError("return_lse: must not be given with return_aux; use return_aux=AuxRequest(lse=True)")
    form = Form(
        query.dtype,
        None if scale is None else float(scale),
        *_grouped_and_broadcast(query, key, value, enable_gqa),
        return_lse or (return_aux is not None and return_aux.lse),
        return_aux is not None and return_aux.max_scores,
    )
    mask_mod = block_mask.mask_mod if isinstance(block_mask, BlockMask) else block_mask
    captures = Captures(score_mod, mask_mod)
    identity = (form, *captures.parts)
    compiled = _COMPILED.get(identity) if captures.complete else None
    if compiled is None:
        operator, tensors = _traced(form, score_mod, mask_mod, captures)
        positions = {id(tensor): position for position, tensor in enumerate(captures.tensors)}
        if captures.complete and all(id(tensor) in positions for tensor in tensors):
            used = tuple(positions[id(tensor)] for tensor in tensors)
            _COMPILED[identity] = _Compiled(operator, used, tuple(captures.kept))
    else:
        operator, tensors = compiled.operator, [captures.tensors[position] for position in compiled.positions]
    results = operator(query, key, value, *tensors)
    if return_aux is not None:
        out, *statistics = results if isinstance(results, tuple) else (results,)
        lse = statistics.pop(0) if form.lse else None
        return out, AuxOutput(lse=lse, max_scores=statistics.pop(0) if form.max_scores else None)
    return tuple(results) if return_lse else results


_OUTSIDE: Any = None


def _outside_graphs() -> Any:
    """`flex_attention` as torch.compile must see it. (A decorator would import Dynamo, which takes a second.)"""
    global _OUTSIDE
    if _OUTSIDE is None:
        _OUTSIDE = torch.compiler.disable(
            flex_attention, reason="attn.flex_attention traces score_mod and mask_mod itself"
        )
    return _OUTSIDE


def _grouped_and_broadcast(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> tuple[bool, bool]:
    """Whether heads of queries share heads of keys, and batches of queries one batch of keys."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: must be a torch.Tensor, but is of type {type(tensor).__name__}")
        if tensor.ndim != 4:
            raise ValueError(f"{name}: must have 4 dimensions, (batch, heads, length, size), but has {tensor.ndim}")
        if tensor.dtype != query.dtype or not tensor.dtype.is_floating_point or tensor.dtype not in DTYPES:
            expected = (
                "float64, float32, bfloat16 or float16, as query" if tensor is query else f"query's, {query.dtype}"
            )
            raise TypeError(f"{name}: dtype must be {expected.removesuffix(', as query')}, but is {tensor.dtype}")
    heads, key_heads = query.shape[1], key.shape[1]
    if heads != key_heads and not enable_gqa:
        raise ValueError(
            f"key: must have query's {heads} heads, but has {key_heads}; give enable_gqa=True where heads share keys"
        )
    if heads != key_heads and (key_heads == 0 or heads % key_heads != 0):
        raise ValueError(f"key: the number of its heads must divide query's, {heads}, but is {key_heads}")
    if value.shape[1] != key_heads:
        raise ValueError(f"value: must have key's {key_heads} heads, but has {value.shape[1]}")
    return heads != key_heads, query.shape[0] != key.shape[0] and key.shape[0] == 1


def _traced(
    form: Form, score_mod: ScoreMod | None, mask_mod: MaskMod | None, captures: Captures
) -> tuple[Operator, list[Tensor]]:
    """The kernel for the functions, and the captured tensors that it reads after query, key and value."""
    names = {id(tensor): name for tensor, name in zip(captures.tensors, captures.names)}
    parameters = Parameters(names)
    precise = form.dtype == torch.float64
    dtype = torch.float64 if precise else torch.float32
    score = None if score_mod is None else trace("score_mod", score_mod, parameters, dtype)
    mask = None if mask_mod is None else trace("mask_mod", mask_mod, parameters, dtype)
    source = kernel_source(form, score, mask, parameters)
    with _LOCK:
        if source not in _OPERATORS:
            _OPERATORS[source] = torch_operator(kernels.compile(source, lazy=True))
        return _OPERATORS[source], parameters.tensors
