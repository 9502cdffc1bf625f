from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.methods.rotary.rope import rotary_width
from ordinate.position import Position
from ordinate.rotation import Pairing, Rotation, frequencies
from ordinate.terms import Distance


class ExpoSB(Position):
    """Rotary position under three exponential factors, before an ordinary softmax.

        q̃_ic = R_i q_i · (1 + .2 e^(-.001 i)) · (.8 + .4 e^(-(c - d/4)² / 2(d/8)²)) · band_h
        s_ij = ⟨q̃_i, k̃_j⟩ / √d · (.7 + .3 e^(-λ_h |i - j|))

    and k̃_j alike; R is RoPE, c the channel. The band factor and λ = e^`log_decay` are learned per
    head and layer (per head with `shared=true`), from 1 and .005. As in its source the last factor
    multiplies scores, which also raises negative ones; `modulate="weights"` multiplies the weights
    after the softmax and renormalises, which is the same as adding its logarithm to the scores.

    There is no stick-breaking in it, despite its name. The first factor reads the token's own
    position, so it is not relative. In the source λ was declared and never used, and a kernel
    multiplied by cos ± sin where it should turn; neither is repeated. Where queries share keys
    (grouped heads) the query carries the band of both.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 5, 8)
    >>> od.attention(q, q, q, od.make("exposb", heads=2, head_dim=8)).shape
    torch.Size([1, 2, 5, 8])
    """

    variants: ClassVar = ("modulate=weights", "pairing=interleaved", "shared=true", "base=100")

    facts = Facts(paper=("wu2026positional",), relative=False)

    def __init__(
        self,
        *,
        heads: int,
        head_dim: int,
        layers: int = 1,
        base: float = 10000.0,
        pairing: Pairing = "half",
        modulate: Literal["scores", "weights"] = "scores",
        shared: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, rotary_width("exposb", head_dim, None)
        self.layers = None if shared else layers
        self.base, self.modulate, self.shared = base, modulate, shared
        self.pairing: Pairing = pairing
        self.band = nn.Parameter(torch.empty(1 if shared else layers, heads))
        self.log_decay = nn.Parameter(torch.empty_like(self.band))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.band)
        nn.init.constant_(self.log_decay, math.log(0.005))

    def attend(self, a: Attend) -> Attend:
        d, base, add = a.q.shape[3], self.base, self.modulate == "weights"
        grouped = a.k.shape[1] != a.q.shape[1]

        def angles(pos: Tensor, band: Tensor) -> Tensor:
            return pos * frequencies(d, base, pos)

        def gain(pos: Tensor, key: bool, band: Tensor) -> Tensor:
            c = torch.arange(d, dtype=pos.dtype, device=pos.device)
            envelope = 0.8 + 0.4 * (-0.5 * ((c - d / 4) / (d / 8)) ** 2).exp()
            both = (1 + 0.2 * (-0.001 * pos).exp())[:, None] * envelope
            band = band[:, None, None].to(pos.dtype)
            if grouped:
                return both if key else both * band**2
            return both * band

        def modulation(gap: Tensor, log_decay: Tensor) -> Tensor:
            factor = 0.7 + 0.3 * (-log_decay.exp()[:, None] * gap.abs()).exp()
            return factor.log() if add else factor

        layer = 0 if self.shared else a.layer
        decay = self.log_decay[layer].to(a.wide)
        a = a.turn(Rotation(angles, (self.band[layer],), self.pairing, gain))
        return a.add(Distance(modulation, decay, op="add" if add else "mul"))
