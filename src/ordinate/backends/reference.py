"""The dense reference: every term, mask and norm, in any dtype. The specification of all others."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import dropout

from ordinate.attend import Attend
from ordinate.norms import Softmax
from ordinate.terms import Term, Tile


def refuses(a: Attend) -> str:
    return ""


def run(a: Attend) -> Tensor:
    w, v = weights(a), repeated(a.v, a.q.shape[1])
    if a.dropout:
        w = dropout(w, a.dropout) if a.dice is None else a.dice.drop(w, a.dropout)
    out = w @ v.to(w.dtype)
    if a.values is not None:
        tile = a.tile
        placed = w if tile.special is None else w.masked_fill(tile.special, 0)
        out = out + a.values.read(placed, tile)
    return out.to(a.v.dtype)


def weights(a: Attend) -> Tensor:
    """The attention maps [b, h, n, m], before dropout, in float32 or wider."""
    tile = a.tile
    s = scores(a, tile)
    rows, allowed = a.rows, a.allowed()
    hidden = None if allowed is None else ~allowed

    def masked(s: Tensor) -> Tensor:
        return s if hidden is None else s.masked_fill(hidden, -torch.inf)

    for term in a.terms:
        if term not in rows:
            s = step(term, s, tile)
    s = masked(s)
    for term in rows:
        s = masked(step(term, s, tile))
    return (a.norm or Softmax()).weights(s, tile, a.mask)


def scores(a: Attend, tile: Tile) -> Tensor:
    """scale · ⟨R q, R k⟩, or what replaces it."""
    q, k = (x.to(a.wide) for x in a.rotated())
    k = repeated(k, q.shape[1])
    # Scaling q rather than the scores touches n·d numbers instead of n·m.
    if a.score is None:
        return (q * a.scale) @ k.mT
    s = a.scale * a.score.fn(q, k, tile, *a.score.tensors)
    return s if tile.special is None else torch.where(tile.special, (q * a.scale) @ k.mT, s)


def step(term: Term, s: Tensor, tile: Tile) -> Tensor:
    """A term applied to scores; pairs with a special token keep theirs."""
    out = term.at(s, tile, *(held.tensor for held in term.held))
    return out if tile.special is None else torch.where(tile.special, s, out)


def repeated(x: Tensor, heads: int) -> Tensor:
    """Keys or values [b, kv, m, d] with each head repeated for its group of query heads."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)
