"""Attention layers for PyTorch with the signatures of textbooks; each runs a spec of the folder `specs`.

    attention = attn.nn.DotProductAttention(dropout=0.1)
    out = attention(queries, keys, values, valid_lens)
    attention.attention_weights

A query that may see no key gives 0, where tutorials that fill masked scores with -1e6 give the average of all values.
Kernels are compiled when a layer is first called.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError("attn.nn: needs PyTorch: pip install torch") from None

from .alignment import BahdanauAttention, LocalAttention
from .masks import masked_softmax
from .multi_head import MultiHeadAttention, MultiHeadSelfAttention
from .scores import (
    AdditiveAttention,
    Attention,
    BilinearAttention,
    DotProductAttention,
    GaussianAttention,
    MLPAttention,
)
from .sequence import Seq2SeqAttentionDecoder, Seq2SeqEncoder

__all__ = [
    "AdditiveAttention",
    "Attention",
    "BahdanauAttention",
    "BilinearAttention",
    "DotProductAttention",
    "GaussianAttention",
    "LocalAttention",
    "MLPAttention",
    "MultiHeadAttention",
    "MultiHeadSelfAttention",
    "Seq2SeqAttentionDecoder",
    "Seq2SeqEncoder",
    "masked_softmax",
]
