"""One attention problem, stated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ordinate.dice import Dice
from ordinate.masks import Mask
from ordinate.norms import Norm
from ordinate.rotation import Rotation
from ordinate.space import Space
from ordinate.terms import Local, Lookup, Product, Score, Term, Tile, Values


@dataclass(frozen=True, eq=False)
class Attend:
    """o_i = Σ_j w_ij (v_j + u_{j-i}),  w = norm(terms(scale · ⟨R_i q_i, R_j k_j⟩)),  j allowed.

    An immutable value that methods add to and engines solve.

    q, k, v:   [b, h, n, d], [b, h|kv, m, d], [b, h|kv, m, dv]
    space:     where the keys are; in self-attention the queries are its last n tokens
    space_q:   where the queries are, if that is somewhere else (cross-attention)
    norm:      how scores become weights; None is the softmax
    kept:      what `Position.remember` returned, for all keys, [b, m, ...]
    project_q, project_k: send [..., dim] through the layer's projections: [..., h|kv, d]
    dice:      where dropout gets its numbers from; torch's own generator by default
    turned:    how many of the first keys already carry the rotations (a cache keeps them so)
    """

    q: Tensor
    k: Tensor
    v: Tensor
    space: Space
    scale: float
    mask: Mask
    space_q: Space | None = None
    layer: int = 0
    rotations: tuple[Rotation, ...] = ()
    score: Score | None = None
    terms: tuple[Term, ...] = ()
    norm: Norm | None = None
    values: Values | None = None
    dropout: float = 0.0
    dice: Dice | None = None
    kept: Mapping[str, Tensor] = field(default_factory=dict)
    project_q: Callable[[Tensor], Tensor] | None = None
    project_k: Callable[[Tensor], Tensor] | None = None
    turned: int = 0

    # What methods say.

    def add(self, *terms: Term) -> Attend:
        """The problem with more terms; they act in order."""
        return replace(self, terms=self.terms + terms)

    def turn(self, rotation: Rotation) -> Attend:
        """The problem with one more rotation of queries and keys."""
        return replace(self, rotations=(*self.rotations, rotation))

    def but(self, **changes: Any) -> Attend:
        """The problem with other fields; what may be replaced once may not be replaced twice."""
        for name in ("score", "values", "norm"):
            if name in changes and getattr(self, name) is not None:
                raise ValueError(f"two methods of this chain both replace the {name}: keep one")
        scaled = any(isinstance(term, Lookup | Product) for term in self.terms)
        if scaled and changes.get("scale", self.scale) != self.scale:
            raise ValueError(
                "a method of this chain changes the scale that one before it has used: put it first"
            )
        return replace(self, **changes)

    # What methods and engines read.

    @property
    def cross(self) -> bool:
        return self.space_q is not None

    @property
    def unit(self) -> bool:
        """Whether gaps of positions are gaps of indices."""
        return self.space.unit and not self.cross

    @property
    def wide(self) -> torch.dtype:
        """The type to compute angles, tables and slopes in: float32, or float64 for float64."""
        return torch.promote_types(self.q.dtype, torch.float32)

    @property
    def offset(self) -> int:
        """The index among the keys of the first query."""
        return 0 if self.cross else self.k.shape[2] - self.q.shape[2]

    @property
    def pos_q(self) -> Tensor:
        """[b|1, n, axes]"""
        return self.space.last(self.q.shape[2]) if self.space_q is None else self.space_q.positions

    @property
    def pos_k(self) -> Tensor:
        """[b|1, m, axes]"""
        return self.space.positions

    @property
    def special_q(self) -> Tensor | None:
        if self.space_q is not None:
            return self.space_q.special
        special = self.space.special
        return None if special is None else special[:, self.offset :]

    @property
    def tile(self) -> Tile:
        """The whole square as one block."""
        n, m = self.q.shape[2], self.k.shape[2]
        special = None
        sq, sk = self.special_q, self.space.special
        if sq is not None or sk is not None:
            q, k = (
                torch.zeros(1, size, dtype=torch.bool, device=self.q.device) if s is None else s
                for s, size in ((sq, n), (sk, m))
            )
            special = (q[:, :, None] | k[:, None, :])[:, None]
        low = -(n - 1 + self.offset) if self.unit else None
        # Real positions keep their precision until gaps are taken, and enter as wide as scores.
        q, k = (
            p.to(self.wide) if p.dtype == torch.float32 else p for p in (self.pos_q, self.pos_k)
        )
        return Tile(q, k, low, special)

    @property
    def fills_rows(self) -> bool:
        """True if every query is certain to see a key: itself."""
        return self.mask.fills_rows and not self.cross

    def allowed(self) -> Tensor | None:
        """Who may look at whom, [b|1, h|1, n, m]; None for everyone."""
        rows, cols = (torch.arange(x.shape[2], device=self.q.device) for x in (self.q, self.k))
        return self.mask.allowed(rows, cols, self.offset)

    def reach(self) -> tuple[int, int]:
        """The lowest and highest gap, as whole numbers, for methods that tabulate distances."""
        n, m = self.q.shape[2], self.k.shape[2]
        if self.unit:
            return -(n - 1 + self.offset), m - 1 - self.offset
        q, k = self.pos_q[..., 0], self.pos_k[..., 0]
        return int((k.amin(1) - q.amax(1)).min()), int((k.amax(1) - q.amin(1)).max())

    # What engines do before they start.

    def rotated(self) -> tuple[Tensor, Tensor]:
        """q and k carrying all rotations."""
        if not self.rotations:
            return self.q, self.k
        q = self._turned(self.q, self.pos_q, self.special_q, key=False)
        if self.turned == self.k.shape[2]:
            return q, self.k
        fresh = self.fresh_keys()
        return q, torch.cat([self.k[:, :, : self.turned], fresh], 2) if self.turned else fresh

    def fresh_keys(self) -> Tensor:
        """The keys that do not carry the rotations yet, now with them."""
        special, start = self.space.special, self.turned
        special = None if special is None else special[:, start:]
        return self._turned(self.k[:, :, start:], self.pos_k[:, start:], special, key=True)

    def _turned(self, x: Tensor, pos: Tensor, special: Tensor | None, *, key: bool) -> Tensor:
        for rotation in self.rotations:
            x = rotation.turn(x, pos, key=key, special=special)
        return x

    @property
    def rows(self) -> tuple[Local, ...]:
        """The terms that must see whole rows of masked scores; they run last."""
        return tuple(t for t in self.terms if isinstance(t, Local) and t.reach == "row")

    @property
    def needs_raw_keys(self) -> bool:
        """True if something reads keys that a rotation would change."""
        from_k = any(h.tensor is self.k for t in self.terms for h in t.held)
        return bool(self.rotations) and (from_k or self.score is not None)
