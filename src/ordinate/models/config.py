"""The sizes and the shape of a model, checked when they are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ordinate.names import head_width, nearest

Kind = Literal["encoder", "decoder", "encoder-decoder"]
Output = Literal["tokens", "classes", "numbers", "hidden"]
Norm = Literal["pre", "post"]
Pool = Literal["mean", "first", "last"]
Activation = Literal["gelu", "relu", "silu"]

CHOICES = {"kind": Kind, "output": Output, "norm": Norm, "pool": Pool, "activation": Activation}


@dataclass(frozen=True, kw_only=True)
class Config:
    """What a `Transformer` is; the position is an argument of its own.

    vocab:      number of token ids; None if the model is given vectors [b, n, dim]
    kv_heads:   number of key and value heads, each shared by heads/kv_heads query heads
    head_dim:   width of a head; dim/heads by default
    hidden:     width of the feed-forward layer; 4·dim by default
    max_len:    for methods that have a longest length
    norm:       "pre" normalises what enters each sublayer, "post" what leaves it
    output:     "tokens" gives [b, n, vocab]; "classes" and "numbers" give [b, outputs] from the
                pooled tokens; "hidden" gives [b, n, dim]
    pool:       "mean" over valid tokens, the "first" or the "last" valid one
    checkpoint: keep only what enters each block, and compute it again in the backward pass
    """

    dim: int
    layers: int
    heads: int
    vocab: int | None = None
    kind: Kind = "encoder"
    output: Output = "hidden"
    outputs: int | None = None
    pool: Pool = "mean"
    kv_heads: int | None = None
    head_dim: int | None = None
    hidden: int | None = None
    max_len: int | None = None
    norm: Norm = "pre"
    activation: Activation = "gelu"
    dropout: float = 0.0
    checkpoint: bool = False

    def __post_init__(self) -> None:
        for name in ("dim", "layers", "heads"):
            _whole(name, getattr(self, name))
        for name in ("vocab", "outputs", "kv_heads", "head_dim", "hidden", "max_len"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name))
        for name, choice in CHOICES.items():
            value, allowed = getattr(self, name), get_args(choice)
            if value not in allowed:
                hint = nearest(str(value), allowed)
                raise ValueError(f"{name} is one of {', '.join(allowed)}, got {value!r}{hint}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is at least 0 and below 1, got {self.dropout}")
        if self.head_dim is None:
            head_width(self.dim, self.heads)
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(
                f"{self.heads} query heads do not group over {self.kv_heads} key heads: "
                f"kv_heads must divide heads"
            )
        if self.output == "tokens" and self.vocab is None:
            raise ValueError("output='tokens' gives a score to every token id: give vocab")
        pooled = self.output in ("classes", "numbers")
        if pooled and self.outputs is None:
            raise ValueError(f"output={self.output!r} needs to know how many: give outputs")
        if not pooled and self.outputs is not None:
            raise ValueError(
                f"outputs={self.outputs} is for output='classes' or 'numbers', got {self.output!r}"
            )

    @property
    def width(self) -> int:
        """The width of a head."""
        return self.head_dim or head_width(self.dim, self.heads)


def _whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is a whole number of at least 1, got {value!r}")
