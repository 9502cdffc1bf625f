from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.terms import Distance


class Swin(Position):
    """A trained bias for every offset inside a window.

        b_h(i, j) = E_h[(Δy + height-1)(2·width-1) + Δx + width-1],    Δ = query - key

    added after scaling by 1/√d, with one table [(2·height-1)(2·width-1), heads] per layer, drawn
    from a truncated normal of deviation .02. Only offsets count, so a window may lie anywhere, but
    tokens that see each other must fit into one: else it is an error, never clipped. To cut an
    image into windows, and to shift them, is the model's business. Pairs with a class token,
    `special`, get no bias (BEiT trains three for them; not done here).

    Positions are (y, x), as `Space.grid` gives them, whole numbers.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 12, 8)
    >>> swin = od.make("swin", heads=2, height=3, width=4)
    >>> od.attention(q, q, q, swin, position_ids=od.Space.grid(3, 4).positions).shape
    torch.Size([1, 2, 12, 8])
    """

    variants: ClassVar = ("height=9,width=7",)

    facts = Facts(paper=("liu2021swin",), relative=True, cross=True, integer=True, axes=2)

    def __init__(self, *, heads: int, height: int, width: int, layers: int = 1) -> None:
        super().__init__()
        if height < 1 or width < 1:
            raise ValueError(f"a window is at least 1 × 1, got {height} × {width}")
        self.heads, self.layers, self.height, self.width = heads, layers, height, width
        rows = (2 * height - 1) * (2 * width - 1)
        self.weight = nn.Parameter(torch.empty(layers, rows, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.weight, std=0.02)

    def attend(self, a: Attend) -> Attend:
        if not torch.compiler.is_compiling():
            self._check(a)
        rows, step = self.weight.shape[1], 2 * self.width - 1

        # Inside a window y·step + x tells all offsets apart, so one coordinate does for two.
        def coord(pos: Tensor) -> Tensor:
            return pos[..., 0] * step + pos[..., 1]

        def bias(gap: Tensor, table: Tensor) -> Tensor:
            # Beyond the table are only pairs that never meet, or that have a special token.
            return table[(rows // 2 - gap).clamp(0, rows - 1)].mT

        return a.add(Distance(bias, self.weight[a.layer], coord=coord))

    def _check(self, a: Attend) -> None:
        """Refuses tokens that see each other from different windows."""
        far = (a.pos_q[:, :, None] - a.pos_k[:, None]).abs()
        outside = ((far[..., 0] >= self.height) | (far[..., 1] >= self.width))[:, None]
        allowed, special, valid = a.allowed(), a.tile.special, a.space.valid
        if allowed is not None:
            outside = outside & allowed
        if special is not None:
            outside = outside & ~special
        if valid is not None and not a.cross:
            outside = outside & valid[:, None, a.offset :, None]
        if outside.any():
            b, _, i, j = outside.nonzero()[0].tolist()
            q, k = (p[b % len(p), at].tolist() for p, at in ((a.pos_q, i), (a.pos_k, j)))
            raise ValueError(
                f"swin has offsets inside a window of {self.height} × {self.width}, got positions "
                f"{q} and {k}: give a larger window, or keep the tokens of different ones apart"
            )
