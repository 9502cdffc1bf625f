"""What may happen to a score.

A term is data that declares its tensors, so that an engine which recomputes scores block by block
can return their gradients (a rule that closes over a tensor would lose it; the contract finds
that), and one traceable method `at(s, tile, *tensors)` on a block of scores
[b, h, nq, nk] with all heads. `gap` is key minus query position everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ordinate.tensors import toeplitz

Axis = Literal["query", "key", "pair", "whole"]


class Held(NamedTuple):
    """A tensor of a term, and how a block takes its part.

    Dim 2 runs along queries or keys; a "pair" tensor has queries at dim 2 and keys at dim 3.
    """

    tensor: Tensor
    axis: Axis

    def of(self, rows: Tensor, cols: Tensor) -> Tensor:
        if self.axis == "whole":
            return self.tensor
        if self.axis == "pair":
            return self.tensor.index_select(2, rows).index_select(3, cols)
        return self.tensor.index_select(2, rows if self.axis == "query" else cols)


@dataclass(frozen=True, eq=False)
class Tile:
    """A block of the score matrix: queries × keys.

    pos_q, pos_k: [b|1, nq|nk, axes]
    low:          if not None, positions go in unit steps and this is the gap of the bottom-left
                  corner, so that the block's gaps are the line low … low+nq+nk-2
    special:      [b|1, 1, nq, nk], True where either token is outside the order
    """

    pos_q: Tensor
    pos_k: Tensor
    low: int | None = None
    special: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.pos_q.shape[1], self.pos_k.shape[1]

    def gap(self, coord: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Key minus query position, [b|1, nq, nk]."""
        q, k = (p[..., 0] if coord is None else coord(p) for p in (self.pos_q, self.pos_k))
        return k[:, None, :] - q[:, :, None]

    def line(self) -> Tensor:
        """The gaps of the block's diagonals, lowest first, [nq + nk - 1]."""
        assert self.low is not None
        n, m = self.shape
        return torch.arange(self.low, self.low + n + m - 1, device=self.pos_q.device)

    def spread(self, fn: Callable[[Tensor], Tensor], coord: Any = None) -> Tensor:
        """`fn` of a list of gaps, [..., gaps], on every pair: [..., b|1, nq, nk]."""
        n, m = self.shape
        if self.low is not None and coord is None:
            return toeplitz(fn(self.line()), n, m).unsqueeze(-3)
        gap = self.gap(coord)
        return fn(gap.reshape(-1)).unflatten(-1, gap.shape)


@dataclass(frozen=True, eq=False)
class Distance:
    """A number per head and signed distance, `fn(gap [g], *tensors) -> [h|1, g]`.

    `coord(pos [b, n, axes]) -> [b, n]` names the scalar coordinate that gaps are taken of, if it
    is not the only axis.
    """

    fn: Callable[..., Tensor]
    tensors: tuple[Tensor, ...] = ()
    op: Literal["add", "mul"] = "add"
    coord: Callable[[Tensor], Tensor] | None = None

    def __init__(
        self,
        fn: Callable[..., Tensor],
        *tensors: Tensor,
        op: Literal["add", "mul"] = "add",
        coord: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        _set(self, fn=fn, tensors=tensors, op=op, coord=coord)

    @property
    def held(self) -> tuple[Held, ...]:
        return tuple(Held(t, "whole") for t in self.tensors)

    def at(self, s: Tensor, tile: Tile, *tensors: Tensor) -> Tensor:
        value = (
            tile.spread(lambda gap: self.fn(gap, *tensors), self.coord).movedim(0, 1).to(s.dtype)
        )
        return s + value if self.op == "add" else s * value


@dataclass(frozen=True, eq=False)
class Lookup:
    """Content × distance: `scale · ⟨left, table[row(gap)]⟩`.

    left:  [b, h, n, e] for side "q", [b, h|kv, m, e] for side "k"; unrotated
    table: [h|1, R, e]
    row:   fn(gap [g]) -> table rows [g]
    """

    left: Tensor
    table: Tensor
    side: Literal["q", "k"]
    row: Callable[[Tensor], Tensor]
    scale: float

    @property
    def held(self) -> tuple[Held, ...]:
        return Held(self.left, "query" if self.side == "q" else "key"), Held(self.table, "whole")

    def at(self, s: Tensor, tile: Tile, left: Tensor, table: Tensor) -> Tensor:
        if left.shape[1] != s.shape[1]:
            left = left.repeat_interleave(s.shape[1] // left.shape[1], 1)
        products = (left.to(s.dtype) * self.scale) @ table.to(s.dtype).mT
        rows = tile.spread(self.row).unsqueeze(1)
        if self.side == "k":
            rows = rows.mT
        value = products.gather(3, rows.expand(*products.shape[:2], *rows.shape[2:]))
        return s + (value if self.side == "q" else value.mT)


@dataclass(frozen=True, eq=False)
class Product:
    """Position × position: `scale · ⟨left_i, right_j⟩`, [b|1, h|1, n, e] and [b|1, h|1, m, e]."""

    left: Tensor
    right: Tensor
    scale: float

    @property
    def held(self) -> tuple[Held, ...]:
        return Held(self.left, "query"), Held(self.right, "key")

    def at(self, s: Tensor, tile: Tile, left: Tensor, right: Tensor) -> Tensor:
        return s + (left.to(s.dtype) * self.scale) @ right.to(s.dtype).mT


@dataclass(frozen=True, eq=False)
class Dense:
    """A bias for every pair, [b|1, h|1, n, m]; for graphs and the like."""

    bias: Tensor

    @property
    def held(self) -> tuple[Held, ...]:
        return (Held(self.bias, "pair"),)

    def at(self, s: Tensor, tile: Tile, bias: Tensor) -> Tensor:
        return s + bias.to(s.dtype)


@dataclass(frozen=True, eq=False)
class Local:
    """Any other rule on a block of scores.

    `op="add"`: `fn(tile, *query, *key, *whole)` is a bias that does not read the scores.
    `op="map"`: `fn(s, tile, *query, *key, *whole)` returns new scores.
    `query` and `key` are tensors with their token axis at dim 2 (a block gets its part), `whole`
    are tensors every block gets whole.
    `reach` says what `fn` must see at once: "pair", all "heads" of a pair, or a whole "row" of
    masked scores (such terms run last).
    """

    fn: Callable[..., Tensor]
    query: Sequence[Tensor] = ()
    key: Sequence[Tensor] = ()
    whole: Sequence[Tensor] = ()
    op: Literal["add", "map"] = "map"
    reach: Literal["pair", "heads", "row"] = "pair"

    @property
    def held(self) -> tuple[Held, ...]:
        parts: tuple[tuple[Sequence[Tensor], Axis], ...] = (
            (self.query, "query"), (self.key, "key"), (self.whole, "whole"),
        )  # fmt: skip
        return tuple(Held(t, axis) for tensors, axis in parts for t in tensors)

    def at(self, s: Tensor, tile: Tile, *tensors: Tensor) -> Tensor:
        return s + self.fn(tile, *tensors) if self.op == "add" else self.fn(s, tile, *tensors)


@dataclass(frozen=True, eq=False)
class Score:
    """Replaces the product: `fn(q [b,h,nq,d], k [b,h,nk,d], tile, *tensors)`, scaled afterwards."""

    fn: Callable[..., Tensor]
    tensors: tuple[Tensor, ...] = ()

    def __init__(self, fn: Callable[..., Tensor], *tensors: Tensor) -> None:
        _set(self, fn=fn, tensors=tensors)


@dataclass(frozen=True, eq=False)
class Values:
    """What a distance adds to the values: `o_i += Σ_j w_ij table[row(gap)]`, table [h|1, R, dv]."""

    table: Tensor
    row: Callable[[Tensor], Tensor]

    def read(self, weights: Tensor, tile: Tile) -> Tensor:
        """Weights [b, h, n, m] gathered per table row, times the table: [b, h, n, dv]."""
        rows = tile.spread(self.row).unsqueeze(1).expand_as(weights)
        size = (*weights.shape[:3], self.table.shape[1])
        per_row = weights.new_zeros(size).scatter_add(3, rows, weights)
        return per_row @ self.table.to(weights.dtype)


Term = Distance | Lookup | Product | Dense | Local


def _set(obj: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(obj, name, value)
