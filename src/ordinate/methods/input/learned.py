from __future__ import annotations

from typing import ClassVar

from torch import nn

from ordinate.facts import Facts
from ordinate.methods.input.table import At, Join, Trained


class Learned(Trained):
    """A trained vector per position.

        P_p = E[p],    p = 0 … max_len-1,    E ~ N(0, .02²)

    A position outside the table is an error: nothing is clipped, wrapped or interpolated. Row p
    belongs to position p (OPT's rows begin at 2 and RoBERTa's at padding_idx + 1; not done here).

    At the tokens there is one table. With `at=qk` or `at=qkv` there is one per layer, or one for
    all layers if `shared=true`. `join` and the rest: see Table.

    >>> import ordinate as od
    >>> od.make("learned", dim=16, max_len=32).table(5).shape
    torch.Size([5, 16])
    """

    variants: ClassVar = ("at=qk", "at=qkv,shared=true", "join=concat", "at=qkv,join=concat")

    facts = Facts(
        paper=("gehring2017convs2s",), relative=False, integer=True, needs=frozenset({"embed"})
    )

    def __init__(
        self,
        *,
        dim: int,
        max_len: int,
        layers: int = 1,
        at: At = "tokens",
        join: Join = "add",
        shared: bool = False,
    ) -> None:
        super().__init__(dim=dim, max_len=max_len, layers=layers, at=at, join=join, shared=shared)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.normal_(self.weight, std=0.02)
