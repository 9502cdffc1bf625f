from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.rotation import frequencies
from ordinate.terms import Lookup


class TransformerXL(Position):
    """Sinusoids of the distance, projected and met by the query; two biases stand for its content.

        s_ij = ((q_i + u) · k_j + (q_i + v) · W R_{i-j}) / √d

    R_t = [sin tω | cos tω] has the model's width, ω_k = base^(-2k/dim). W [heads·d, dim] is per
    layer; u and v [heads, d] are shared by all layers, or per layer with `untied=true`. They are
    `r_w_bias` and `r_r_bias` in the authors' code. All start as N(0, .02).

    R looks both ways, so that it serves encoders too; the authors' shift trick computes the past
    only and leaves rubbish above the diagonal. Segment memory is not the method's business: it
    is a model that hands in more keys than queries.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 5, 8)
    >>> od.attention(q, q, q, od.make("transformer-xl", dim=16, heads=2)).shape
    torch.Size([1, 2, 5, 8])
    """

    variants: ClassVar = ("untied=true", "base=100")

    facts = Facts(
        paper=("dai2019transformerxl",), relative=True, extrapolates=True, cross=True, integer=True
    )

    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        head_dim: int,
        layers: int = 1,
        untied: bool = False,
        base: float = 10000.0,
    ) -> None:
        super().__init__()
        if dim % 2:
            raise ValueError(f"transformer-xl pairs sines with cosines: its dim is even, got {dim}")
        self.dim, self.heads, self.head_dim, self.layers = dim, heads, head_dim, layers
        self.untied, self.base = untied, base
        self.u = nn.Parameter(torch.empty(layers if untied else 1, heads, head_dim))
        self.v = nn.Parameter(torch.empty_like(self.u))
        self.w = nn.Parameter(torch.empty(layers, heads * head_dim, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def attend(self, a: Attend) -> Attend:
        low, high = a.reach()

        def row(gap: Tensor) -> Tensor:
            return gap - low

        back = -torch.arange(low, high + 1, dtype=a.wide, device=a.q.device)[:, None]
        angles = back * frequencies(self.w.shape[2], self.base, back)
        waves = torch.cat([angles.sin(), angles.cos()], -1)
        table = (waves @ self.w[a.layer].to(a.wide).mT).unflatten(-1, (-1, a.q.shape[3]))
        u, v = (p[a.layer if self.untied else 0].unsqueeze(1) for p in (self.u, self.v))
        return a.add(
            Lookup(a.k, u, side="k", row=torch.zeros_like, scale=a.scale),
            Lookup(a.q + v, table.transpose(0, 1), side="q", row=row, scale=a.scale),
        )
