"""Where the tokens are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Space:
    """The places of a batch of sequences; an immutable value.

    Positions are given, never assumed: they may repeat, jump, run backwards or be real numbers.
    When decoding, a space still describes the whole context; `new` says how many of its last
    tokens are the ones being computed.

    positions: [b|1, m, axes]
    unit:      certifies that for any two tokens that may see each other the difference of their
               positions is the difference of their indices, so that tables per distance can be
               read along diagonals
    new:       the number of tokens being computed now; None for all
    documents: [b|1, m], an id per packed document; tokens of different documents never meet
    valid:     [b, m], False for padding
    tokens:    [b, m], token ids, for methods that read them
    special:   [b|1, m], True for class, prefix and other tokens that are outside the order
    seed:      for methods that draw positions
    shared:    what a method computed once for this forward, by method
    """

    positions: Tensor
    unit: bool = False
    new: int | None = None
    documents: Tensor | None = None
    valid: Tensor | None = None
    tokens: Tensor | None = None
    special: Tensor | None = None
    seed: int | None = None
    shared: Mapping[Any, Any] = field(default_factory=dict)

    @staticmethod
    def line(
        n: int,
        *,
        device: torch.device | str | None = None,
        valid: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Space:
        """`n` tokens one step apart. Padding in front and document borders reset the count."""
        index = torch.arange(n, device=device)
        if documents is not None:
            index = index - _first(documents[..., None, :] == documents[..., :, None])
        elif valid is not None:
            # Padding sits at the first position: its rows and columns are masked anyway.
            index = (index - _first(valid)[:, None]).clamp_min(0)
        return Space(index.reshape(-1, n, 1), unit=True, valid=valid, documents=documents)

    @staticmethod
    def grid(
        height: int, width: int, *, prefix: int = 0, device: torch.device | str | None = None
    ) -> Space:
        """`height` × `width` patches by rows, as (y, x), after `prefix` special tokens."""
        y = torch.arange(height, device=device).repeat_interleave(width)
        x = torch.arange(width, device=device).repeat(height)
        cells = torch.stack([y, x], -1)
        positions = torch.cat([cells.new_zeros(prefix, 2), cells])[None]
        special = torch.arange(len(positions[0]), device=device)[None] < prefix if prefix else None
        return Space(positions, special=special)

    @staticmethod
    def points(positions: Tensor, **rest: Any) -> Space:
        """Any positions: [m], [b, m] or [b, m, axes], whole or real numbers."""
        if positions.ndim not in (1, 2, 3):
            shape = list(positions.shape)
            raise ValueError(f"positions are [m], [b, m] or [b, m, axes], got shape {shape}")
        if positions.is_floating_point() and positions.dtype.itemsize < 4:
            raise ValueError(
                f"positions in {positions.dtype} cannot tell 256 from 257: give integers or float32"
            )
        readable = not (positions.is_meta or torch.compiler.is_compiling())
        if positions.is_floating_point() and readable and not positions.isfinite().all():
            raise ValueError("positions hold NaN or infinity: every token needs a place")
        if positions.ndim == 1:
            positions = positions[None]
        return Space(positions if positions.ndim == 3 else positions[..., None], **rest)

    @property
    def size(self) -> int:
        """The number of tokens of the whole context."""
        return self.positions.shape[1]

    @property
    def axes(self) -> int:
        return self.positions.shape[2]

    def last(self, n: int) -> Tensor:
        """The positions of the last `n` tokens, [b|1, n, axes]."""
        return self.positions[:, self.size - n :]

    def but(self, **changes: Any) -> Space:
        return replace(self, **changes)

    def keep(self, key: Any, value: Any) -> Space:
        """The same space with something that `key`, a method, computed once for this forward."""
        return replace(self, shared={**self.shared, key: value})


def _first(mask: Tensor) -> Tensor:
    """The index of the first True along the last axis."""
    return mask.to(torch.int8).argmax(-1)
