"""One transformer for every method: its layers, its cache and its segment memory."""

from ordinate.models.attention import Attention
from ordinate.models.cache import Cache, Memory
from ordinate.models.config import Config
from ordinate.models.transformer import Transformer

__all__ = ["Attention", "Cache", "Config", "Memory", "Transformer"]
