from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.methods.rotary.rope import RoPE
from ordinate.norms import StickBreaking
from ordinate.position import Position
from ordinate.rotation import Pairing
from ordinate.terms import Distance


class RSE(Position):
    """Rotary stick-breaking: each key takes its share of what the keys before it left.

        w_ij = β_ij ∏_{t before j} (1 - β_it),   β_ij = σ(⟨R_i q_i, R_j k_j⟩ / √d - λ |i - j|)

    R is RoPE; λ (`rate`) is one number per layer, or one for all with `shared=true`, from .01.
    `order="first"` takes the keys by their positions, the first key first; "nearest" from the
    query outwards, as stick-breaking attention does. Decoders see j ≤ i, encoders all keys.
    What no key takes is dropped: the weights sum to less than 1, by ∏ (1 - β).

    The source's worked example is the definition. Its code clips scores at ±20 and falls back to
    a softmax on most machines; nothing is clipped here, and there is never a softmax.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 5, 8)
    >>> od.attention(q, q, q, od.make("rse", head_dim=8)).shape
    torch.Size([1, 2, 5, 8])
    """

    variants: ClassVar = (
        "order=nearest",
        "pairing=interleaved",
        "shared=true",
        "base=100",
        "rate=0.5",
    )

    facts = Facts(paper=("wu2026positional",), relative=True)

    def __init__(
        self,
        *,
        head_dim: int,
        layers: int = 1,
        rate: float = 0.01,
        order: Literal["first", "nearest"] = "first",
        base: float = 10000.0,
        pairing: Pairing = "half",
        shared: bool = False,
    ) -> None:
        super().__init__()
        if rate < 0:
            raise ValueError(f"rate says how fast far keys fade and is at least 0, got {rate}")
        self.head_dim, self.layers = head_dim, None if shared else layers
        self.order: Literal["first", "nearest"] = order
        self.start, self.shared = rate, shared
        self.rope = RoPE(head_dim=head_dim, base=base, pairing=pairing)
        self.rate = nn.Parameter(torch.empty(1 if shared else layers))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.rate, self.start)

    def domain(self, name: str, value: Tensor) -> Tensor:
        return value.abs()

    def attend(self, a: Attend) -> Attend:
        def decay(gap: Tensor, rate: Tensor) -> Tensor:
            return -rate * gap.abs()[None]

        rate = self.rate[0 if self.shared else a.layer].to(a.wide)
        return self.rope.attend(a).add(Distance(decay, rate)).but(norm=StickBreaking(self.order))
