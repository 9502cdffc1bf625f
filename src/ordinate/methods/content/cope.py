from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.terms import Local, Tile


class CoPE(Position):
    """Contextual positions: a query counts the keys back to j that its gates find worth counting.

        s_ij ← s_ij + q_i · e[p_ij],   p_ij = min(Σ_{t=j…i} σ(s_it), positions - 1)

    where e at a fraction lies on the line between its two neighbours. The gates read the scores
    as they are (scaled, masked, after all other terms); q_i · e is not scaled, as published. One
    table [positions, d] per layer, shared over heads, zero at the start.

    The sum includes key j and the query itself, so that e[0] is next to never read: with open
    gates p is i - j + 1. Tokens are counted in the order they stand in; positions are not read.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 5, 8)
    >>> od.attention(q, q, q, od.make("cope", head_dim=8), causal=True).shape
    torch.Size([1, 2, 5, 8])
    """

    variants: ClassVar = ("positions=4",)

    facts = Facts(paper=("golovneva2024cope",), relative=True, extrapolates=True, causal_only=True)

    def __init__(self, *, head_dim: int, layers: int = 1, positions: int = 64) -> None:
        super().__init__()
        self.head_dim, self.layers, self.positions = head_dim, layers, positions
        self.weight = nn.Parameter(torch.empty(layers, positions, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def attend(self, a: Attend) -> Attend:
        last = self.positions - 1

        def contextual(s: Tensor, tile: Tile, q: Tensor, weight: Tensor) -> Tensor:
            # Masked scores are -inf: their gates are shut.
            counts = s.sigmoid().flip(-1).cumsum(-1).flip(-1).clamp_max(last)
            below, above = counts.floor(), counts.ceil()
            whole = q.to(s.dtype) @ weight.to(s.dtype).mT
            low, high = whole.gather(3, below.long()), whole.gather(3, above.long())
            return s + low.lerp(high, counts - below)

        term = Local(contextual, query=(a.q,), whole=(self.weight[a.layer],), reach="row")
        return a.add(term)
