from __future__ import annotations

import re
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.space import Space


class Abacus(Position):
    """A trained vector per place of a digit inside its number.

        x_t ← x_t + E[c_t],    c_t = 1, 2, 3 … along a run of digits, 0 for any other token

    so that digits of equal significance share a vector; numbers must be written least significant
    digit first (the reversal is the data's business, not done here). Row 0 is trained too, as in
    the authors' code, not zero. A run ends at a document border, at padding and at special tokens.

    In training one number k from 0 … offset-1, drawn with the space's seed, is added to every
    non-zero c of the whole batch, so that rows for longer numbers are trained; without a seed, or
    in evaluation, nothing is added.

    rows:   of the table; a number that leaves it is an error
    digits: token ids of the digits: "0-9", or "3 5 7-9"

    >>> import ordinate as od, torch
    >>> space = od.Space.line(6).but(tokens=torch.tensor([[3, 4, 10, 5, 6, 7]]))
    >>> od.make("abacus", dim=8).index(space)
    tensor([[1, 2, 0, 1, 2, 3]])
    """

    variants: ClassVar = ("digits=3 5 7-9", "offset=7")

    facts = Facts(
        paper=("mcleish2024abacus",),
        relative=True,
        extrapolates=True,
        needs=frozenset({"embed", "tokens", "seed"}),
    )

    def __init__(
        self, *, dim: int, rows: int = 1024, digits: str = "0-9", offset: int = 100
    ) -> None:
        super().__init__()
        self.dim, self.offset = dim, offset
        found = [re.fullmatch(r"(\d+)(?:-(\d+))?", part) for part in str(digits).split()]
        self.digits = [(int(r[1]), int(r[2] or r[1])) for r in found if r]
        if not found or not all(found) or any(low > high for low, high in self.digits):
            raise ValueError(f"digits={digits!r} names no token ids: write 0-9, or 3 5 7-9")
        if offset < 1:
            raise ValueError(f"offset is at least 1, which adds nothing, got {offset}")
        self.weight = nn.Parameter(torch.empty(rows, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)

    def embed(self, x: Tensor, space: Space, layer: int) -> tuple[Tensor, Space]:
        if layer:
            return x, space
        p = embedding(self.index(space)[:, -x.shape[1] :], self.weight)
        if space.special is not None:
            p = torch.where(space.special[:, -x.shape[1] :, None], 0.0, p)
        return (x + p).to(x.dtype), space

    def index(self, space: Space) -> Tensor:
        """The table's row for every token of the context, [b, m]."""
        tokens, rows = space.tokens, len(self.weight)
        if tokens is None:
            raise ValueError("abacus reads the token ids: give the space its tokens")
        digit = torch.zeros_like(tokens, dtype=torch.bool)
        for low, high in self.digits:
            digit = digit | ((tokens >= low) & (tokens <= high))
        if (idle := space.idle) is not None:
            digit = digit & ~idle
        place = torch.arange(space.size, device=tokens.device)
        before = torch.where(digit, -1, place)
        if space.documents is not None:
            border = pad(space.documents[:, 1:] != space.documents[:, :-1], (1, 0))
            before = torch.where(digit & border, place - 1, before)
        index = place - before.cummax(-1).values
        if self.training and space.seed is not None:
            generator = torch.Generator().manual_seed(space.seed)
            k = torch.randint(self.offset, (1,), generator=generator).to(index.device)
            index = torch.where(index > 0, index + k, 0)
        # Only a context this long can leave the table: the others need not wait for the device.
        far = space.size + self.offset > rows and not torch.compiler.is_compiling()
        if far and (top := int(index.max())) >= rows:
            raise ValueError(f"abacus has rows 0 … {rows - 1}, got index {top}: give more rows")
        return index
