"""`attn.flex_attention`: attentions written as PyTorch functions of a score and its indices, traced and compiled."""

from .attention import flex_attention
from .errors import TracingError

__all__ = ["TracingError", "flex_attention"]
