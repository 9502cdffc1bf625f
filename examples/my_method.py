"""A method of one's own, to be compared with the others by its name "my_method.py:Fade".

ordinate check my_method.py:Fade
ordinate compare my_method.py:Fade my_method.py:Fade:start=0.5 alibi none
"""

import torch
from torch import nn

import ordinate as od


class Fade(od.Position):
    """A bias that fades with the square root of distance, at a rate that each head learns.

    b_h(i, j) = -|r_h| √|j - i|
    """

    facts = od.Facts(paper=("me2026fade",), relative=True, cross=True)

    def __init__(self, *, heads: int, start: float = 0.1) -> None:
        super().__init__()
        self.heads, self.start = heads, start
        self.rate = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.rate, self.start)

    def attend(self, a: od.Attend) -> od.Attend:
        def bias(gap: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
            return -rate.abs()[:, None] * gap.abs().to(a.wide).sqrt()

        return a.add(od.Distance(bias, self.rate))
