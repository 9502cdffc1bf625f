from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.terms import Lookup, Values


class Shaw(Position):
    """Relative position representations, on keys and values.

        e_ij = q_i · (k_j + a^K_c) / √d,    o_i = Σ_j w_ij (v_j + a^V_c),    c = clip(j - i, ±clip)

    Two tables [2·clip+1, d] per layer, shared over heads. `values=false` keeps the keys' table
    only, as BERT's "relative_key" does. OpenNMT-py shares one table for both; not done here.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 5, 8)
    >>> od.attention(q, q, q, od.make("shaw", head_dim=8, clip=4)).shape
    torch.Size([1, 2, 5, 8])
    """

    variants: ClassVar = ("values=false", "clip=3")

    facts = Facts(
        paper=("shaw2018relative",), relative=True, extrapolates=True, cross=True, integer=True
    )

    def __init__(
        self, *, head_dim: int, layers: int = 1, clip: int = 128, values: bool = True
    ) -> None:
        super().__init__()
        self.head_dim, self.layers, self.clip = head_dim, layers, clip
        self.keys = nn.Parameter(torch.empty(layers, 2 * clip + 1, head_dim))
        self.values = nn.Parameter(torch.empty_like(self.keys)) if values else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for table in self.parameters():
            for layer in table:
                nn.init.xavier_uniform_(layer)

    def attend(self, a: Attend) -> Attend:
        clip = self.clip

        def row(gap: Tensor) -> Tensor:
            return gap.clamp(-clip, clip) + clip

        a = a.add(Lookup(a.q, self.keys[a.layer][None], side="q", row=row, scale=a.scale))
        if self.values is None:
            return a
        return a.but(values=Values(self.values[a.layer][None], row))
