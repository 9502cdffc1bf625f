from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.terms import Local, Tile


class FIRE(Position):
    """A learned function of the distance relative to the query's position.

        b_h(i, j) = f_h( ψ(|i - j|) / (ψ(max(i, |m·length|)) + 1e-6) ),   ψ(t) = ln(1 + |c t|)
        f(x) = W₂ relu(w₁ x + b₁) + b₂

    added after scaling by 1/√d. c, m and the network f are per layer; c starts at 0.1, m at 1 and
    f as `nn.Linear` does. Up to the threshold |m·length| the distance is divided by a constant,
    beyond it by the query's position i, so that f never leaves the interval it was trained on.

    It reads the query's own position and is therefore not relative. The paper is about causal
    models, where i - j ≥ 0; the future is treated as the past, as in the code that is public
    (McLeish et al.; the authors' own is not).

    >>> import ordinate as od
    >>> od.make("fire", heads=8).bias(128, causal=True).shape
    torch.Size([8, 128, 128])
    """

    variants: ClassVar = ("hidden=5", "length=4")

    facts = Facts(paper=("li2024fire",), relative=False, extrapolates=True)

    def __init__(self, *, heads: int, layers: int = 1, hidden: int = 32, length: int = 512) -> None:
        super().__init__()
        self.heads, self.layers, self.length = heads, layers, length
        self.w1 = nn.Parameter(torch.empty(layers, hidden))
        self.b1 = nn.Parameter(torch.empty(layers, hidden))
        self.w2 = nn.Parameter(torch.empty(layers, heads, hidden))
        self.b2 = nn.Parameter(torch.empty(layers, heads))
        self.c = nn.Parameter(torch.empty(layers))
        self.m = nn.Parameter(torch.empty(layers))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # nn.Linear draws weights and biases from ±1/√inputs.
        inputs = self.w2.shape[-1]
        for parameter, bound in (
            (self.w1, 1), (self.b1, 1), (self.w2, inputs**-0.5), (self.b2, inputs**-0.5),
        ):  # fmt: skip
            nn.init.uniform_(parameter, -bound, bound)
        nn.init.constant_(self.c, 0.1)
        nn.init.ones_(self.m)

    def attend(self, a: Attend) -> Attend:
        length, wide = self.length, a.wide

        def bias(
            tile: Tile, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, c: Tensor, m: Tensor
        ) -> Tensor:
            def psi(t: Tensor) -> Tensor:
                return (c * t).abs().log1p()

            last = torch.maximum(tile.pos_q.to(wide), (m * length).abs())
            x = psi(tile.gap().abs().to(wide)) / (psi(last) + 1e-6)
            inner = (x[..., None] * w1 + b1).relu()
            return (inner @ w2.mT + b2).permute(0, 3, 1, 2)

        whole = (self.w1, self.b1, self.w2, self.b2, self.c, self.m)
        return a.add(Local(bias, whole=[p[a.layer].to(wide) for p in whole], op="add"))
