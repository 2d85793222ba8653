"""The text of a kernel in the language, from a traced score and mask."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .symbols import Symbol
from .tracing import DTYPES, Parameters

_RANGES = {"b": "B", "h": "H", "m": "M", "n": "N"}
_LONGEST_REPEATED = 32  # characters of an expression that is written again wherever it is used
_DEEPEST = 24  # brackets, of the 200 that the language allows


class Form(NamedTuple):
    """What a kernel's text depends on beside its score and mask."""

    dtype: torch.dtype  #: of query, key and value
    scale: float | None  #: None: 1 / sqrt(D)
    grouped: bool  #: fewer heads of keys than of queries
    broadcast: bool  #: one batch of keys for all batches of queries
    lse: bool
    max_scores: bool


def kernel_source(form: Form, score: Symbol | None, mask: Symbol | None, parameters: Parameters) -> str:
    """`attention flex(q, k, v, captured tensors…)`, which returns out, and lse and max_scores if asked for."""
    dtype = DTYPES[form.dtype]
    statistics = "f64" if form.dtype == torch.float64 else "f32"
    batch = "0" if form.broadcast else "b"
    head = "h // (H // G)" if form.grouped else "h"
    heads, batches = "G" if form.grouped else "H", "BK" if form.broadcast else "B"
    signature = [
        f"q: {dtype}[B, H, M, D]",
        f"k: {dtype}[{batches}, {heads}, N, D]",
        f"v: {dtype}[{batches}, {heads}, N, E]",
        *parameters.texts,
    ]
    scale = "/ sqrt(D)" if form.scale is None else f"* ({form.scale!r})"
    lines = [f"dot[b, h, m, n] = sum[d](q[b, h, m, d] * k[{batch}, {head}, n, d]) {scale}"]
    score, conditions = _split(score)
    conditions = [each for each in (mask, *conditions) if each is not None and each.template != "true"]
    writer = _Writer(lines)
    texts = writer.write([*conditions, *([score] if score is not None else [])])
    score_text = texts.pop() if score is not None else "dot[b, h, m, n]"
    lines.append(f"score[b: B, h: H, m: M, n: N] = {score_text}")
    row = "score[b, h, m, n]"
    if conditions:
        row += f" where {writer.statement('mask', ' and '.join(texts), conditions)}"
    lines.append(f"weight[b, h, m, n] = softmax[n]({row})")
    lines.append(f"out[b, h, m, e] = sum[n](weight[b, h, m, n] * v[{batch}, {head}, n, e])")
    outputs = ["out"]
    if form.lse:
        lines.append(f"lse[b, h, m]: {statistics} = logsumexp[n]({row})")
        outputs.append("lse")
    if form.max_scores:
        lines.append(f"max_scores[b, h, m]: {statistics} = max[n]({row})")
        outputs.append("max_scores")
    lines.append(f"return {', '.join(outputs)}")
    body = "".join(f"  {line}\n" for line in lines)
    return f"attention flex({', '.join(signature)}) {{\n{body}}}\n"


def _split(score: Symbol | None) -> tuple[Symbol | None, list[Symbol]]:
    """torch.where(condition, score, -inf) is a mask: the score, and the conditions, by which tiles are skipped."""
    conditions: list[Symbol] = []
    while score is not None and score.template == "select({}, {}, {})":
        condition, chosen, other = score.operands
        if other.template == "(-inf)":
            conditions.append(condition)
            score = chosen
        elif chosen.template == "(-inf)":
            conditions.append(Symbol(condition.tracer, "(not {})", (condition,), "bool"))
            score = other
        else:
            break
    return score, conditions


class _Writer:
    """Writes expressions; what is used more than once and is long becomes a statement of its own."""

    def __init__(self, lines: list[str]):
        self._lines = lines
        self._texts: dict[int, str] = {}
        self._indices: dict[int, frozenset[str]] = {}
        self._depths: dict[int, int] = {}

    def write(self, roots: list[Symbol]) -> list[str]:
        symbols = _in_order(roots)
        uses: dict[int, int] = {}
        for symbol in symbols:
            for operand in symbol.operands:
                uses[id(operand)] = uses.get(id(operand), 0) + 1
        for symbol in symbols:
            self._write(symbol, uses.get(id(symbol), 0))
        return [self._texts[id(root)] for root in roots]

    def _write(self, symbol: Symbol, uses: int) -> None:
        operands = [id(operand) for operand in symbol.operands]
        text = symbol.template.format(*(self._texts[operand] for operand in operands))
        indices = frozenset().union(*(self._indices[operand] for operand in operands))
        if not operands:
            indices = (
                frozenset(_RANGES) if symbol.template.startswith("dot[") else frozenset(_RANGES) & {symbol.template}
            )
        depth = 1 + max((self._depths[operand] for operand in operands), default=0)
        if (uses > 1 and len(text) > _LONGEST_REPEATED) or depth > _DEEPEST:
            text, depth = self._statement(f"term_{len(self._lines)}", text, indices), 1
        self._texts[id(symbol)], self._indices[id(symbol)], self._depths[id(symbol)] = text, indices, depth

    def statement(self, name: str, text: str, symbols: list[Symbol]) -> str:
        """A statement `name`, of the indices of symbols that were written; the text that reads it."""
        return self._statement(name, text, frozenset().union(*(self._indices[id(symbol)] for symbol in symbols)))

    def _statement(self, name: str, text: str, indices: frozenset[str]) -> str:
        own = [index for index in _RANGES if index in indices]
        ranges = f"[{', '.join(f'{index}: {_RANGES[index]}' for index in own)}]" if own else ""
        self._lines.append(f"{name}{ranges} = {text}")
        return f"{name}[{', '.join(own)}]" if own else name


def _in_order(roots: list[Symbol]) -> list[Symbol]:
    """All symbols of the roots, each after its operands."""
    order: list[Symbol] = []
    seen: set[int] = set()
    pending = [(root, False) for root in reversed(roots)]
    while pending:
        symbol, done = pending.pop()
        if done:
            order.append(symbol)
        elif id(symbol) not in seen:
            seen.add(id(symbol))
            pending.append((symbol, True))
            pending.extend((operand, False) for operand in reversed(symbol.operands))
    return order
