from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.terms import Score, Tile


class Huang3(Position):
    """Huang et al.'s method 3: a vector per distance inside the product of query and key.

        s_ij = Σ_c q_ic k_jc a_c[clip(j - i, ±(clip-1))] / √d

    One table [2·clip-1, d] per layer, shared over heads, ones at the start, where it is plain
    attention. It replaces the score, so no other method of a chain may. Only method 3 of the
    paper is here: 1 and 2 have a number where this has a vector, 4 adds and does not multiply.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 5, 8)
    >>> od.attention(q, q, q, od.make("huang3", head_dim=8, clip=4)).shape
    torch.Size([1, 2, 5, 8])
    """

    variants: ClassVar = ("clip=3",)

    facts = Facts(paper=("huang2020improve",), relative=True, cross=True, integer=True)

    def __init__(self, *, head_dim: int, layers: int = 1, clip: int = 128) -> None:
        super().__init__()
        self.head_dim, self.layers, self.clip = head_dim, layers, clip
        if clip < 1:
            raise ValueError(f"huang3 has a vector for distance 0 at least: clip >= 1, got {clip}")
        self.weight = nn.Parameter(torch.empty(layers, 2 * clip - 1, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def attend(self, a: Attend) -> Attend:
        last = self.clip - 1

        def product(q: Tensor, k: Tensor, tile: Tile, weight: Tensor) -> Tensor:
            rows = tile.spread(lambda gap: gap.clamp(-last, last) + last)
            between = embedding(rows, weight).unsqueeze(1).to(q.dtype)
            return ((between * k.unsqueeze(2)) @ q.unsqueeze(4)).squeeze(4)

        return a.but(score=Score(product, self.weight[a.layer]))
