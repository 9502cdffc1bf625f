from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from ordinate.facts import Facts
from ordinate.methods.input.table import At, Join, Table


class Continuous(Table):
    """A small network of the normalised position.

        P_p = W₂ gelu(W₁ t + b₁) + b₂,    t = p / (max_len-1)  or  2p / (max_len-1) - 1

    for `range="unit"` (0 … 1) and "centred" (-1 … 1), with the exact gelu. `max_len` is a scale,
    fixed when the method is made, and no limit: positions are real numbers, and beyond max_len
    the network is simply read further out. It is never the length of the sequence at hand, which
    would make a token's vector depend on the tokens after it. No canonical paper: ours.

    `hidden` is the width of the network, by default dim. One network, `inner` and `outer`, serves
    all layers; `at`, `join` and `layers` (of `mix` only): see Table.

    >>> import ordinate as od
    >>> od.make("continuous", dim=16, max_len=32).table(5).shape
    torch.Size([5, 16])
    """

    variants: ClassVar = ("range=centred", "hidden=5", "at=qk", "at=qkv", "join=concat")

    facts = Facts(paper=("ordinate2026",), relative=False, needs=frozenset({"embed"}))

    def __init__(
        self,
        *,
        dim: int,
        max_len: int,
        layers: int = 1,
        hidden: int | None = None,
        range: Literal["unit", "centred"] = "unit",
        at: At = "tokens",
        join: Join = "add",
    ) -> None:
        super().__init__(dim=dim, at=at, join=join, layers=layers)
        self.span, self.range = max(max_len - 1, 1), range
        self.inner = nn.Linear(1, hidden or dim)
        self.outer = nn.Linear(hidden or dim, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.inner.reset_parameters()
        self.outer.reset_parameters()

    def vectors(self, pos: Tensor, layer: int) -> Tensor:
        t = pos.unsqueeze(-1) / self.span
        if self.range == "centred":
            t = 2 * t - 1
        inner, outer = self.inner, self.outer
        # Autocast would round t to bfloat16, which cannot tell neighbouring positions apart.
        with torch.autocast(pos.device.type, enabled=False):
            middle = gelu(linear(t, inner.weight.to(t.dtype), inner.bias.to(t.dtype)))
            return linear(middle, outer.weight.to(t.dtype), outer.bias.to(t.dtype))
