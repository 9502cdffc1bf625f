"""Where the tokens are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, eq=False)
class Space:
    """The places of a batch of sequences; an immutable value.

    Positions are given, never assumed: they may repeat, jump, run backwards or be real numbers.
    When decoding, a space still describes the whole context.

    positions: [b|1, m, axes]
    unit:      certifies that for any two tokens that may see each other the difference of their
               positions is the difference of their indices, so that tables per distance can be
               read along diagonals
    documents: [b|1, m], an id per packed document; tokens of different documents never meet
    valid:     [b, m], False for padding
    tokens:    [b, m], token ids, for methods that read them
    special:   [b|1, m], True for class, prefix and other tokens that are outside the order
    seed:      for methods that draw positions
    """

    positions: Tensor
    unit: bool = False
    documents: Tensor | None = None
    valid: Tensor | None = None
    tokens: Tensor | None = None
    special: Tensor | None = None
    seed: int | None = None

    @staticmethod
    def line(
        n: int,
        *,
        device: torch.device | str | None = None,
        valid: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Space:
        """`n` tokens one step apart, counted from the first valid one of each document.

        The tokens of a document stand together.
        """
        if n < 1:
            raise ValueError(f"a line has 1 or more tokens, got n={n}")
        index = torch.arange(n, device=device)
        if documents is None and valid is None:
            return Space(index[None, :, None], unit=True)
        start = torch.zeros_like(index)[None]
        if documents is not None:
            border = documents[:, 1:] != documents[:, :-1]
            start = torch.where(pad(border, (1, 0)), index, 0).cummax(-1).values
        if valid is not None:
            # The first valid token of each document, later than where the document starts.
            count = valid.cumsum(-1)
            start = start.expand(count.shape)
            count = count - (count - valid.long()).gather(-1, start)
            first = torch.where(valid & (count == 1), index, 0).cummax(-1).values
            # Padding before it sits where it does: rows and columns of padding are masked anyway.
            start = torch.where(count == 0, index, torch.maximum(start, first))
        positions = (index - start)[..., None]
        return Space(positions, unit=True, valid=valid, documents=documents)

    @staticmethod
    def grid(
        height: int, width: int, *, prefix: int = 0, device: torch.device | str | None = None
    ) -> Space:
        """`height` × `width` patches by rows, as (y, x), after `prefix` special tokens."""
        if height < 1 or width < 1 or prefix < 0:
            raise ValueError(
                f"a grid has 1 or more rows and columns, got {height} × {width} after {prefix}"
            )
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

    @property
    def idle(self) -> Tensor | None:
        """[b|1, m], True for padding and special tokens, whose positions nothing reads."""
        padding = None if self.valid is None else ~self.valid
        if padding is None or self.special is None:
            return self.special if padding is None else padding
        return padding | self.special

    def last(self, n: int) -> Tensor:
        """The positions of the last `n` tokens, [b|1, n, axes]."""
        return self.positions[:, self.size - n :]

    def but(self, **changes: Any) -> Space:
        return replace(self, **changes)
