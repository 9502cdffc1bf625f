from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.methods.rotary.rope import rotary_width
from ordinate.position import Position
from ordinate.rotation import Pairing, Rotation


class LRoPE(Position):
    """Rotary position with learned frequencies.

        q̃_k ← q̃_k e^(i m θ_k),    θ_k = exp(φ_k),    φ_k = -(2k/r) ln base at initialisation

    The parameters φ, `log_freqs`, are logarithms, so that a frequency stays positive and one
    learning rate suits the fast and the slow. It is RoPE at initialisation, and exactly relative
    whatever it learns. The frequencies do not depend on the content, nor the angle on anything
    but the position. No paper has this name: ours.

    `per="layer"` learns one set per layer, shared by its heads; "head" one per layer and head;
    "model" a single one. As "head" turns each query head and its key head alike, it needs as many
    key heads as query heads. `pairing` and `width`: see RoPE.

    >>> import ordinate as od
    >>> od.make("lrope", head_dim=8, layers=6).log_freqs.shape
    torch.Size([6, 4])
    """

    variants: ClassVar = ("pairing=interleaved", "width=4", "per=head", "per=model", "base=100")

    facts = Facts(paper=("ordinate2026",), relative=True, cross=True)

    def __init__(
        self,
        *,
        head_dim: int,
        layers: int = 1,
        heads: int | None = None,
        base: float = 10000.0,
        pairing: Pairing = "half",
        width: int | None = None,
        per: Literal["layer", "head", "model"] = "layer",
    ) -> None:
        super().__init__()
        self.head_dim, self.base, self.per = head_dim, base, per
        self.pairing: Pairing = pairing
        pairs = rotary_width("lrope", head_dim, width) // 2
        shape = (1 if per == "model" else layers, pairs)
        if per != "model":
            self.layers = layers
        if per == "head":
            if heads is None:
                raise ValueError(
                    'lrope with per=head needs heads: write od.make("lrope:per=head", heads=8)'
                )
            self.heads = heads
            shape = (layers, heads, pairs)
        self.log_freqs = nn.Parameter(torch.empty(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        pairs = self.log_freqs.shape[-1]
        k = torch.arange(pairs, dtype=self.log_freqs.dtype, device=self.log_freqs.device)
        with torch.no_grad():
            self.log_freqs.copy_(k * (-math.log(self.base) / pairs))

    def attend(self, a: Attend) -> Attend:
        if self.per == "head" and a.k.shape[1] != a.q.shape[1]:
            raise ValueError(
                f"lrope with per=head turns each query head with its own key head, got "
                f"{a.q.shape[1]} query heads and {a.k.shape[1]} key heads: use per=layer"
            )

        def angles(pos: Tensor, log_freqs: Tensor) -> Tensor:
            theta = log_freqs.to(pos.dtype).exp()
            return pos * theta if theta.ndim == 1 else pos[:, None] * theta[:, None]

        own = self.log_freqs[0 if self.per == "model" else a.layer]
        return a.turn(Rotation(angles, (own,), pairing=self.pairing))
