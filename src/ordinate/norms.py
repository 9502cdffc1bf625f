"""How scores become weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from ordinate.masks import Mask
from ordinate.terms import Tile


@dataclass(frozen=True, eq=False)
class Softmax:
    """exp(s_ij) / (Σ_j exp(s_ij) + exp(sink)), the sink [h] optional; a row without keys is 0."""

    sink: Tensor | None = None

    def weights(self, s: Tensor, tile: Tile, mask: Mask) -> Tensor:
        """Masked scores (-inf) [b, h, n, m] to weights."""
        if self.sink is not None:
            sink = self.sink.to(s.dtype)[:, None, None].expand(*s.shape[:3], 1)
            return torch.cat([s, sink], -1).softmax(-1)[..., :-1]
        if mask.fills_rows and tile.low is not None:
            return s.softmax(-1)
        nothing = s == -torch.inf
        return s.clamp_min(torch.finfo(s.dtype).min).softmax(-1).masked_fill(nothing, 0)


@dataclass(frozen=True, eq=False)
class StickBreaking:
    """β_ij ∏_{t before j} (1 - β_it) with β = σ(s): each key takes its part of what is left.

    order: "nearest" takes keys by |gap|, at equal distance the earlier position first;
           "first" takes keys by their positions, the earliest first
    Keys at the same place go by index. Exact, in log space; a masked key takes nothing. What
    nobody takes, 1 - Σ_j, is dropped.
    """

    order: Literal["nearest", "first"]

    def weights(self, s: Tensor, tile: Tile, mask: Mask) -> Tensor:
        """Masked scores (-inf) [b, h, n, m] to weights."""
        if tile.low is not None and self.order == "first":
            return _break(s)
        if tile.low is not None and mask.causal:
            return _break(s.flip(-1)).flip(-1)
        turn = self._turn(tile).expand(s.shape)
        return torch.empty_like(s).scatter(-1, turn, _break(s.gather(-1, turn)))

    def _turn(self, tile: Tile) -> Tensor:
        """The keys in the order in which they take their part, [b|1, 1, n|1, m]."""
        turn = tile.pos_k[..., 0].argsort(dim=-1, stable=True).unsqueeze(1)
        if self.order == "nearest":
            far = tile.gap().abs()
            turn = turn.expand(far.shape)
            turn = turn.gather(-1, far.gather(-1, turn).argsort(dim=-1, stable=True))
        return turn.unsqueeze(1)


def _break(s: Tensor) -> Tensor:
    left = logsigmoid(-s).cumsum(-1)
    # Shifted by one key, never "sum minus own": the difference would cancel.
    return (logsigmoid(s) + pad(left[..., :-1], (1, 0))).exp()


Norm = Softmax | StickBreaking
