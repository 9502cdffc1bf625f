from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import torch
from torch import Tensor

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.methods.rotary.rope import rotary_width
from ordinate.position import Position
from ordinate.rotation import Pairing, Rotation, frequencies
from ordinate.space import Space


class DynamicNTK(Position):
    """Rotary position whose base grows with the sequence, beyond the trained length.

        θ_k = B'^(-2k/r),    B' = base · (s L/L₀ - (s-1))^(r/(r-2)),    L = max(length, L₀)

    with L₀ = max_len and s = factor: the fastest pair stays as trained, and the slowest is slowed
    by exactly the bracket. Up to L₀ it is RoPE. The length is that of each row of the batch: last
    minus first position of its tokens, plus one, without padding and special tokens; packed
    documents share it. As it grows, all angles change: rotated keys cannot be kept (transformers
    keeps them, and so mixes bases; not done here). factor=1 still stretches, by L/L₀.

    No parameters. `pairing` and `width` r: see RoPE; r is more than 2.

    >>> import ordinate as od, torch
    >>> q = k = torch.randn(1, 2, 50, 8)
    >>> q, k = od.make("dynamic-ntk", head_dim=8, max_len=32).rotate(q, k)
    """

    variants: ClassVar = ("pairing=interleaved", "width=4", "factor=4", "base=100")

    facts = Facts(paper=("bloc972023ntk",), relative=True, extrapolates=True, length_dependent=True)

    def __init__(
        self,
        *,
        head_dim: int,
        max_len: int,
        factor: float = 2.0,
        base: float = 10000.0,
        pairing: Pairing = "half",
        width: int | None = None,
    ) -> None:
        super().__init__()
        self.width = rotary_width("dynamic-ntk", head_dim, width)
        if self.width == 2:
            raise ValueError("dynamic-ntk slows all pairs but the first: give a width of 4 or more")
        if factor <= 0:
            raise ValueError(f"factor says how fast the base grows and is above 0, got {factor:g}")
        self.head_dim, self.max_len, self.factor, self.base = head_dim, max_len, factor, base
        self.pairing: Pairing = pairing

    def epoch(self, space: Space) -> Hashable:
        if space.unit and space.idle is None:
            return max(space.size, self.max_len)
        return tuple(extent(space, torch.float32).clamp_min(self.max_len).tolist())

    def attend(self, a: Attend) -> Attend:
        width, base = self.width, self.base
        beyond = extent(a.space, a.wide).clamp_min(self.max_len) / self.max_len - 1
        stretch = 1 + self.factor * beyond

        def angles(pos: Tensor, stretch: Tensor) -> Tensor:
            k = torch.arange(width // 2, dtype=pos.dtype, device=pos.device)
            slower = stretch.to(pos.dtype)[:, None, None] ** (-2 * k / (width - 2))
            return pos * frequencies(width, base, pos) * slower

        return a.turn(Rotation(angles, (stretch,), pairing=self.pairing))


def extent(space: Space, dtype: torch.dtype) -> Tensor:
    """How far the tokens of each row reach, last minus first position plus one, [b|1]."""
    pos = space.positions[..., 0].to(dtype)
    low = high = pos
    if (idle := space.idle) is not None:
        low, high = torch.where(idle, torch.inf, pos), torch.where(idle, -torch.inf, pos)
    return high.amax(-1) - low.amin(-1) + 1
