from __future__ import annotations

from typing import ClassVar, Literal

import torch

from ordinate.facts import Facts
from ordinate.methods.input.sinusoidal import sinusoid
from ordinate.methods.input.table import At, Join, Trained


class SinInit(Trained):
    """A trained vector per position that starts as the sinusoid.

        P_p = E[p],    E[p] = sinusoid(p) at initialisation, in every layer,    p = 0 … max_len-1

    Before the first step it equals "sinusoidal" with the same `layout` and `base`; from then on
    it is "learned", with the same rules: no position outside the table, one table at the tokens,
    one per layer with `at=qk` or `at=qkv` unless `shared=true`. There is no trained factor in
    front of the sinusoid (that is SpeechT5's scaled encoding, another method).

    `join` and the rest: see Table.

    >>> import ordinate as od
    >>> od.make("sininit", dim=16, max_len=32).table(5).shape
    torch.Size([5, 16])
    """

    variants: ClassVar = (
        "layout=split",
        "layout=tensor2tensor",
        "at=qk",
        "at=qkv,shared=true",
        "base=100",
        "join=concat",
    )

    facts = Facts(
        paper=("vaswani2017attention",), relative=False, integer=True, needs=frozenset({"embed"})
    )

    def __init__(
        self,
        *,
        dim: int,
        max_len: int,
        layers: int = 1,
        layout: Literal["interleaved", "split", "tensor2tensor"] = "interleaved",
        base: float = 10000.0,
        at: At = "tokens",
        join: Join = "add",
        shared: bool = False,
    ) -> None:
        super().__init__(dim=dim, max_len=max_len, layers=layers, at=at, join=join, shared=shared)
        self.layout: Literal["interleaved", "split", "tensor2tensor"] = layout
        self.base = base
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        _, size, dim = self.weight.shape
        pos = torch.arange(size, dtype=self.weight.dtype, device=self.weight.device)
        with torch.no_grad():
            self.weight.copy_(sinusoid(pos, dim, self.layout, self.base))
