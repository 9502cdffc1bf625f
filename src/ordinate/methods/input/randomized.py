from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position, Sources
from ordinate.space import Space


class Randomized(Position):
    """Any method at random, ordered positions.

        p ↦ r_p,    r_0 < r_1 < … < r_{n-1} drawn from 0 … draw_from-1 without replacement

    so that a model trained on short sequences has met every position of long ones. n is the
    length of the context. One draw, from the space's seed, serves the whole batch and all
    layers, in training and at test, as in the authors' code; draw_from = n changes nothing.

    The drawn positions are handed on with the space, so methods after this one in a chain see
    them too. As the draw depends on n, a growing context is drawn anew: nothing cached stays
    valid. Between two sequences, each with its own draw, it means nothing.

    of:        the method that is given the positions: "randomized(alibi)"
    draw_from: how many positions there are to draw from

    >>> import ordinate as od
    >>> od.make("randomized(rope):draw_from=512", head_dim=8).facts.paper
    ('ruoss2023randomized', 'su2021roformer')
    """

    variants: ClassVar = (
        "(rope):draw_from=512", "(relative):draw_from=300", "(sinusoidal):draw_from=64",
    )  # fmt: skip

    facts = Facts(
        paper=("ruoss2023randomized",), relative=False, extrapolates=True, integer=True,
        length_dependent=True, needs=frozenset({"embed", "seed"}),
    )  # fmt: skip

    def __init__(self, *, of: Position, draw_from: int = 2048) -> None:
        super().__init__()
        if draw_from < 1:
            raise ValueError(f"draw_from is at least 1, got {draw_from}")
        if of.facts.max_len is not None and of.facts.max_len < draw_from:
            raise ValueError(
                f"randomized draws positions 0 … {draw_from - 1}, {of.name} was made for "
                f"max_len={of.facts.max_len}: give no larger draw_from, or a larger max_len"
            )
        self.of, self.draw_from = of, draw_from
        self.dim, self.heads, self.head_dim, self.layers = of.dim, of.heads, of.head_dim, of.layers
        own = type(self).facts
        self.facts = replace(
            of.facts, paper=own.paper + of.facts.paper, relative=False, extrapolates=True,
            cross=False, integer=True, length_dependent=True, max_len=draw_from,
            needs=own.needs | of.facts.needs,
        )  # fmt: skip

    def embed(self, x: Tensor, space: Space, layer: int) -> tuple[Tensor, Space]:
        return self.of.embed(x, self._drawn(space) if layer == 0 else space, layer)

    def before(self, sources: Sources, space: Space, layer: int) -> Sources:
        return self.of.before(sources, space, layer)

    def remember(self, x: Tensor, space: Space, layer: int) -> dict[str, Tensor]:
        return self.of.remember(x, space, layer)

    def attend(self, a: Attend) -> Attend:
        return self.of.attend(a)

    def epoch(self, space: Space) -> Hashable:
        return space.size

    def reset_parameters(self) -> None:
        self.of.reset_parameters()

    def _drawn(self, space: Space) -> Space:
        pos, n = space.positions, space.size
        if space.seed is None:
            raise ValueError("randomized draws positions: give the space a seed")
        if pos.is_floating_point():
            raise ValueError(f"randomized counts whole steps: its positions are not {pos.dtype}")
        if not space.unit:
            low, high = (int(end) for end in pos.aminmax())
            if low < 0:
                raise ValueError(f"randomized counts positions from 0, got {low}: shift them")
            n = high + 1
        if n > self.draw_from:
            raise ValueError(
                f"randomized draws {n} positions from {self.draw_from}: give draw_from={n} or more"
            )
        generator = torch.Generator().manual_seed(space.seed)
        numbers = torch.randperm(self.draw_from, generator=generator)[:n].sort().values
        return space.but(positions=numbers.to(pos.device)[pos], unit=False)
