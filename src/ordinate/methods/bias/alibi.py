from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.terms import Distance

Sides = Literal["symmetric", "offset", "split"]


class ALiBi(Position):
    """Attention with linear biases.

        b_h(i, j) = -m_h |i - j|

    added after scaling by 1/√d. For H a power of two m_h = 2^(-8h/H), h = 1 … H; for other H the
    slopes of the next lower power of two, then every other slope of twice that (appended, not
    sorted), as the authors' code does. In a causal model only the past matters.

    In an encoder `sides` says what the future gets: "symmetric" the same as the past; "offset"
    the same, with m_h/2 added on the past side so that the two differ (as published for encoders
    with randomized positions); "split" lets the first half of the heads look back only and the
    others ahead only, each half with the slopes for that many heads, as code by the authors does.
    `trainable=true` makes the logarithms of the slopes parameters, one per head.

    >>> import ordinate as od
    >>> od.make("alibi", heads=8).bias(128).shape
    torch.Size([8, 128, 128])
    """

    variants: ClassVar = ("sides=offset", "sides=split", "trainable=true")

    facts = Facts(paper=("press2022alibi",), relative=True, extrapolates=True, cross=True)

    def __init__(self, *, heads: int, sides: Sides = "symmetric", trainable: bool = False) -> None:
        super().__init__()
        self.heads: int = heads
        self.sides = sides
        # One-sided heads may find no key at all in another sequence.
        self.facts = replace(ALiBi.facts, cross=sides != "split")
        self.log_slopes = nn.Parameter(torch.empty(heads)) if trainable else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.log_slopes is not None:
            with torch.no_grad():
                self.log_slopes.copy_(self._published(self.log_slopes).log())

    def _published(self, like: Tensor) -> Tensor:
        ahead = self.heads // 2
        if self.sides == "split" and ahead:
            return torch.cat([slopes(self.heads - ahead, like), slopes(ahead, like)])
        return slopes(self.heads, like)

    def attend(self, a: Attend) -> Attend:
        sides, back = self.sides, self.heads - self.heads // 2
        if self.log_slopes is None:
            m = self._published(a.q.new_empty(0, dtype=a.wide))
        else:
            m = self.log_slopes.exp()

        def bias(gap: Tensor, m: Tensor) -> Tensor:
            m = m[:, None]
            b = -m * gap.abs()
            if sides == "offset":
                b = b + 0.5 * m * (gap < 0)
            if sides == "split":
                ahead = torch.arange(len(m), device=gap.device)[:, None] >= back
                b = b.masked_fill(torch.where(ahead, gap < 0, gap > 0), -torch.inf)
            return b

        return a.add(Distance(bias, m))


def slopes(heads: int, like: Tensor) -> Tensor:
    """The published slopes for any number of heads, of the type and on the device of `like`."""
    n = 2 ** math.floor(math.log2(heads))

    def exponents(first: int, end: int, step: int) -> Tensor:
        return torch.arange(first, end, step, dtype=like.dtype, device=like.device)

    # Made on the device: a copy from a list would make every call wait, and break a graph.
    halves = torch.cat([-8 * exponents(1, n + 1, 1), -4 * exponents(1, 2 * (heads - n) + 1, 2)])
    return torch.exp2(halves / n)
