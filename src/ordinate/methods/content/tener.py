from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.rotation import frequencies
from ordinate.terms import Lookup

Mode = Literal["paper", "code"]


class TENER(Position):
    """Transformer-XL's terms with a fixed sinusoid as wide as a head, unscaled, keys unprojected.

        s_ij = q_i · k_j + q_i · R_{i-j} + u · k_j + v · R_{i-j}

    R_t = [sin tω | cos tω] with ω_k = 10000^(-k/(d/2-1)), tensor2tensor's frequencies (for odd d
    the last channel is 0); sines change sign with direction, cosines do not. u and v [d] are per
    head and layer, Xavier-normal. The keys are the hidden states themselves, which is a fact that
    models obey: `facts.key_projection` is False.

    The published code is not the equation: it has R_{j-i} in both terms and k_j · R_{i-j} besides.
    `mode="code"` does that, but for the row of zeros that the code puts at its furthest distance.
    `scaled=true` multiplies everything by 1/√d.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 5, 8)
    >>> od.attention(q, q, q, od.make("tener", heads=2, head_dim=8)).shape
    torch.Size([1, 2, 5, 8])
    """

    variants: ClassVar = ("mode=code", "scaled=true", "mode=code,scaled=true")

    facts = Facts(
        paper=("yan2019tener",), relative=True, cross=True, integer=True, key_projection=False
    )

    def __init__(
        self,
        *,
        heads: int,
        head_dim: int,
        layers: int = 1,
        mode: Mode = "paper",
        scaled: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.head_dim, self.layers = heads, head_dim, layers
        self.mode, self.scaled = mode, scaled
        self.u = nn.Parameter(torch.empty(layers, heads, head_dim))
        self.v = nn.Parameter(torch.empty(layers, heads, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            for layer in parameter:
                nn.init.xavier_normal_(layer)

    def attend(self, a: Attend) -> Attend:
        low, high = a.reach()

        def row(gap: Tensor) -> Tensor:
            return gap - low

        gap = torch.arange(low, high + 1, dtype=a.wide, device=a.q.device)[:, None]
        ahead, back = (waves(t, a.q.shape[3]) for t in (gap, -gap))
        u, v = (p[a.layer].unsqueeze(1).to(a.wide) for p in (self.u, self.v))
        a = a.but(scale=a.scale if self.scaled else 1.0)
        if self.mode == "code":
            return a.add(
                Lookup(a.q + v, ahead[None], side="q", row=row, scale=a.scale),
                Lookup(a.k, u + back, side="k", row=row, scale=a.scale),
            )
        return a.add(
            Lookup(a.q + v, back[None], side="q", row=row, scale=a.scale),
            Lookup(a.k, u, side="k", row=torch.zeros_like, scale=a.scale),
        )


def waves(t: Tensor, width: int) -> Tensor:
    """[sin tω | cos tω] for numbers [g, 1], with tensor2tensor's ω, [g, width]."""
    half = width // 2
    angles = t * frequencies(width, 10000.0, t, over=2 * max(half - 1, 1))
    return pad(torch.cat([angles.sin(), angles.cos()], -1), (0, width - 2 * half))
