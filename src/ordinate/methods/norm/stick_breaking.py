from __future__ import annotations

from typing import ClassVar, Literal

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.masks import Mask
from ordinate.norms import StickBreaking
from ordinate.position import Position


class Stick(Position):
    """Stick-breaking attention: the nearest key takes its share first, the next of what is left.

        w_ij = β_ij ∏_{t nearer than j} (1 - β_it),   β_ij = σ(q_i · k_j / √d)

    in place of the softmax; recency comes from the order alone and there are no parameters. The
    paper is about causal models. In an encoder keys come by distance |i - j|, at equal distance
    the earlier position first. `order="first"` takes keys from the first position on.

    A token does not attend to itself, as published, unless `current=true`; the first token of a
    causal model then sees nothing and gets 0. What no key takes, 1 - Σ_j w_ij, is dropped; the
    authors' code can add it times v_i, which is not done here.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 5, 8)
    >>> od.attention(q, q, q, "stick-breaking", causal=True)[0, 0, 0].norm()
    tensor(0.)
    """

    variants: ClassVar = ("current=true", "order=first", "order=first,current=true")

    facts = Facts(paper=("tan2024stickbreaking",), relative=True, extrapolates=True)

    def __init__(
        self, *, order: Literal["nearest", "first"] = "nearest", current: bool = False
    ) -> None:
        super().__init__()
        self.order: Literal["nearest", "first"] = order
        self.current = current

    def attend(self, a: Attend) -> Attend:
        return a.but(norm=StickBreaking(self.order), mask=a.mask & Mask(current=self.current))
