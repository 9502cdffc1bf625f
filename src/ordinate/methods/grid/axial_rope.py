from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.rotation import Rotation, frequencies


class AxialRoPE(Position):
    """Rotary position on a grid: half of the pairs turn by x, half by y.

        q̃_k ← q̃_k e^(i x θ_k),    q̃_{D/4+k} ← q̃_{D/4+k} e^(i y θ_k)

        θ_k = base^(-4k/D),    k = 0 … D/4-1

    The score of two patches depends on the difference of their rows and that of their columns.
    Positions are (y, x), as `Space.grid` gives them, whole or real; x turns the first pairs, as
    in the authors' code (DINOv3 puts y first, halves its channels and normalises coordinates; not
    done here). Pairs are interleaved, (2c, 2c + 1). Class tokens, `special`, are not turned.

    No parameters. `base` is 100, not RoPE's 10000, as a side of a grid is short.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 12, 8)
    >>> grid = od.Space.grid(3, 4).positions
    >>> od.attention(q, q, q, "axial-rope", position_ids=grid).shape
    torch.Size([1, 2, 12, 8])
    """

    variants: ClassVar = ("base=10000",)

    facts = Facts(paper=("heo2024ropevit",), relative=True, extrapolates=True, cross=True, axes=2)

    def __init__(self, *, head_dim: int, base: float = 100.0) -> None:
        super().__init__()
        if head_dim % 4:
            raise ValueError(
                f"axial-rope gives each axis pairs of channels: head_dim is a multiple of 4, "
                f"got {head_dim}"
            )
        self.head_dim, self.base = head_dim, base

    def attend(self, a: Attend) -> Attend:
        width, base = a.q.shape[3] // 2, self.base

        def angles(pos: Tensor) -> Tensor:
            theta = frequencies(width, base, pos)
            y, x = pos.split(1, -1)
            return torch.cat([x * theta, y * theta], -1)

        return a.turn(Rotation(angles, pairing="interleaved"))
