from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.methods.rotary.rope import rotary_width
from ordinate.position import Position
from ordinate.rotation import Pairing, Rotation, frequencies


class XPos(Position):
    """Rotary position whose pairs also decay with distance, the fast ones most.

        ⟨q_m, k_n⟩ = Σ_k ζ_k^((m-n)/scale_base) Re[q̃_k k̃_k* e^(i(m-n)θ_k)]

        θ_k = base^(-2k/D),    ζ_k = (2k/D + γ) / (1 + γ)

    Queries are multiplied by ζ^((p - c)/scale_base) and keys by the inverse, with c = max_len//2,
    which cancels between them; positions so far from c that a factor leaves the range of the type
    are refused. The angles are not centred, as in the authors' code. For the past only: a key
    ahead of the query would grow, not decay. The blockwise attention that the paper uses at test
    time is a mask, not done here.

    No parameters. `pairing` as in RoPE, but interleaved by default, as the authors'. `gamma` is
    how far the fastest pair keeps: ζ → 1, plain RoPE, as it grows.

    >>> import ordinate as od, torch
    >>> q = k = torch.randn(1, 2, 5, 8)
    >>> q, k = od.make("xpos", head_dim=8).rotate(q, k)
    """

    variants: ClassVar = ("pairing=half", "scale_base=64", "gamma=0.01", "base=100")

    facts = Facts(paper=("sun2023xpos",), relative=True, extrapolates=True, causal_only=True)

    def __init__(
        self,
        *,
        head_dim: int,
        max_len: int = 2048,
        base: float = 10000.0,
        scale_base: float = 512.0,
        gamma: float = 0.4,
        pairing: Pairing = "interleaved",
    ) -> None:
        super().__init__()
        self.head_dim = rotary_width("xpos", head_dim, None)
        self.base, self.scale_base, self.gamma = base, scale_base, gamma
        if not (scale_base > 0 and gamma > 0):
            raise ValueError(
                f"xpos needs scale_base and gamma above 0, got {scale_base:g} and {gamma:g}"
            )
        self.centre = max_len // 2
        self.pairing: Pairing = pairing

    def attend(self, a: Attend) -> Attend:
        self._check(a)
        width, base, gamma = a.q.shape[3], self.base, self.gamma
        centre, scale_base, pairing = self.centre, self.scale_base, self.pairing

        def angles(pos: Tensor) -> Tensor:
            return pos * frequencies(width, base, pos)

        def gain(pos: Tensor, key: bool) -> Tensor:
            k = torch.arange(width // 2, dtype=pos.dtype, device=pos.device)
            zeta = (2 * k / width + gamma) / (1 + gamma)
            power = (pos - centre) / scale_base
            g = (zeta ** (-power if key else power)).unsqueeze(1)
            return g.repeat(1, 1, 1, 2) if pairing == "half" else g.repeat_interleave(2, -1)

        return a.turn(Rotation(angles, pairing=pairing, gain=gain))

    def _check(self, a: Attend) -> None:
        """Refuses positions at which the fastest pair's factor would overflow."""
        space, size = a.space, math.log(torch.finfo(a.q.dtype).max)
        # A fifth of the exponents is left to q and k themselves.
        reach = 0.8 * size * self.scale_base / math.log((1 + self.gamma) / self.gamma)
        if space.unit:
            far = max(self.centre, space.size - 1 - self.centre)
        elif torch.compiler.is_compiling():
            return
        else:
            far = float((space.positions.to(a.wide) - self.centre).abs().max())
        if far > reach:
            raise ValueError(
                f"xpos in {a.q.dtype} reaches {reach:.0f} positions from max_len/2 = {self.centre}, "
                f"got one {far:.0f} away: give max_len near twice their middle, or a wider type"
            )
