from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from ordinate.facts import Facts
from ordinate.methods.input.table import At, Join, Table
from ordinate.rotation import frequencies

Layout = Literal["interleaved", "split", "tensor2tensor", "conformer"]


class Sinusoidal(Table):
    """Sines and cosines of the position at geometric frequencies.

        P_p = [sin ω_0 p, cos ω_0 p, sin ω_1 p, cos ω_1 p, …],    ω_k = base^(-2k/d)

    No parameters; any real position. Four layouts, not compatible with each other, are in use:
    "interleaved"    as above: the paper. An odd d drops the last cosine.
    "split"          sines, then cosines: RoFormer, Transformer-XL. An odd d drops the last cosine.
    "tensor2tensor"  split, with ω_k = base^(-k/(⌊d/2⌋-1)), so that the slowest is exactly 1/base:
                     fairseq, Whisper. An odd d leaves the last column zero.
    "conformer"      interleaved; its `table(n)` lists the distances n-1 … -(n-1), [2n-1, d].
    Positions start at 0 (fairseq's start at padding_idx + 1; not done here).

    `at`, `join` and `layers` (of `mix` only): see Table.

    >>> import ordinate as od
    >>> od.make("sinusoidal", dim=16).table(5).shape
    torch.Size([5, 16])
    """

    variants: ClassVar = (
        "layout=split", "layout=tensor2tensor",
        "at=qk", "at=qkv", "join=concat", "at=qk,join=concat", "base=100")  # fmt: skip

    facts = Facts(paper=("vaswani2017attention",), relative=False, needs=frozenset({"embed"}))

    def __init__(
        self,
        *,
        dim: int,
        layers: int = 1,
        layout: Layout = "interleaved",
        base: float = 10000.0,
        at: At = "tokens",
        join: Join = "add",
    ) -> None:
        super().__init__(dim=dim, at=at, join=join, layers=layers)
        self.width, self.base = dim, base
        self.layout: Layout = layout
        self.reset_parameters()

    def vectors(self, pos: Tensor, layer: int) -> Tensor:
        return sinusoid(pos, self.width, self.layout, self.base)

    def table(self, n: int) -> Tensor:
        if self.layout != "conformer":
            return super().table(n)
        return self.vectors(torch.arange(n - 1, -n, -1, dtype=torch.float32), 0)


def sinusoid(pos: Tensor, dim: int, layout: Layout, base: float) -> Tensor:
    """The vectors of real positions [...], in their type: [..., dim]."""
    pos = pos.unsqueeze(-1)
    if layout == "tensor2tensor":
        half = dim // 2
        angle = pos * frequencies(2 * half, base, pos, over=2 * max(half - 1, 1))
        return pad(torch.cat([angle.sin(), angle.cos()], -1), (0, dim % 2))
    angle = pos * frequencies(dim + dim % 2, base, pos, over=dim)
    if layout == "split":
        return torch.cat([angle.sin(), angle.cos()], -1)[..., :dim]
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., :dim]
