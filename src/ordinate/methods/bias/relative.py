from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.terms import Distance


class Relative(Position):
    """A learned number per head and clipped signed distance.

        b_h(i, j) = w_h[clip(j - i, ±clip)]

    added after scaling by 1/√d. One table [heads, 2·clip+1] per layer, zero at the start, or one
    for the whole stack with `shared=true`. No buckets: this is T5's bias before its logarithm,
    every distance up to `clip` for itself and all beyond it together.

    >>> import ordinate as od
    >>> od.make("relative", heads=4, clip=8).bias(16).shape
    torch.Size([4, 16, 16])
    """

    variants: ClassVar = ("shared=true", "clip=3")

    facts = Facts(
        paper=("raffel2020t5",), relative=True, extrapolates=True, cross=True, integer=True
    )

    def __init__(
        self, *, heads: int, layers: int = 1, clip: int = 128, shared: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.clip, self.shared = heads, clip, shared
        self.layers = None if shared else layers
        self.weight = nn.Parameter(torch.empty(1 if shared else layers, heads, 2 * clip + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def attend(self, a: Attend) -> Attend:
        clip = self.clip

        def bias(gap: Tensor, weight: Tensor) -> Tensor:
            return embedding(gap.clamp(-clip, clip) + clip, weight.T).T

        return a.add(Distance(bias, self.weight[0 if self.shared else a.layer]))
