from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.terms import Distance, Local, Tile


class DA(Position):
    """DA-Transformer: positive scores, multiplied by a learned sigmoid of the distance.

        s_ij ← relu(s_ij) · R_h(|i - j|),   R_h(t) = (1 + e^(v_h)) / (1 + e^(v_h - w_h t))

    on scores already scaled by 1/√d. R(0) is 1 whatever the parameters; with distance R goes to
    1 + e^v where w > 0, so that the head prefers what is far, and to 0 where w < 0. Two numbers
    per head and layer, starting at 0, where R is 1 everywhere and only the relu is left.

    The direction of the distance is not seen. No code was published; the start is our choice.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 5, 8)
    >>> od.attention(q, q, q, od.make("da", heads=2)).shape
    torch.Size([1, 2, 5, 8])
    """

    facts = Facts(paper=("wu2021da",), relative=True, cross=True)

    def __init__(self, *, heads: int, layers: int = 1) -> None:
        super().__init__()
        self.heads, self.layers = heads, layers
        self.w = nn.Parameter(torch.empty(layers, heads))
        self.v = nn.Parameter(torch.empty(layers, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.w)
        nn.init.zeros_(self.v)

    def attend(self, a: Attend) -> Attend:
        def positive(s: Tensor, tile: Tile) -> Tensor:
            return s.relu()

        def factor(gap: Tensor, w: Tensor, v: Tensor) -> Tensor:
            w, v = w[:, None], v[:, None]
            # ln(1 + e^x) is -logsigmoid(-x): nothing overflows, and R(0) is 1 to the last bit.
            return (logsigmoid(w * gap.abs() - v) - logsigmoid(-v)).exp()

        w, v = (p[a.layer].to(a.wide) for p in (self.w, self.v))
        return a.add(Local(positive), Distance(factor, w, v, op="mul"))
