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
                self.log_slopes.copy_(torch.tensor(self._published()).log())

    def _published(self) -> list[float]:
        ahead = self.heads // 2
        if self.sides == "split":
            return slopes(self.heads - ahead) + (slopes(ahead) if ahead else [])
        return slopes(self.heads)

    def attend(self, a: Attend) -> Attend:
        sides, back = self.sides, self.heads - self.heads // 2
        if self.log_slopes is None:
            m = torch.tensor(self._published(), dtype=a.wide, device=a.q.device)
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


def slopes(heads: int) -> list[float]:
    """The published slopes for any number of heads."""
    n = 2 ** math.floor(math.log2(heads))
    regular = [2 ** (-8 * h / n) for h in range(1, n + 1)]
    return regular + [2 ** (-4 * h / n) for h in range(1, 2 * (heads - n), 2)]
