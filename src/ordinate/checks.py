"""Refusals of what a method or an engine could not make sense of, a sentence each."""

from __future__ import annotations

import torch
from torch import Tensor

from ordinate.attend import Attend
from ordinate.facts import NEUTRAL
from ordinate.position import Position, leaves
from ordinate.space import Space


def check(position: Position, a: Attend) -> None:
    """Refuses, in a sentence, a problem that a method does not mean anything in."""
    facts, name = position.facts, position.name
    m = a.mask
    if a.cross and (m.causal or m.window is not None or not m.current or m.documents is not None):
        raise ValueError(
            "between two sequences no token is before, near or the same as another: "
            "causal, window, current and documents mean nothing there, use mask"
        )
    if facts.causal_only and not (a.mask.causal and not a.cross):
        raise ValueError(
            f"{name} is for causal attention only: give causal=True, or another method"
        )
    if a.cross and not facts.cross:
        raise ValueError(
            f"{name} means nothing between two sequences: use it in self-attention, "
            "and another method, or none, in cross-attention"
        )
    axes = {s.axes for s in (a.space, a.space_q) if s is not None} - {facts.axes}
    if axes and facts != NEUTRAL:
        raise ValueError(
            f"{name} places tokens by {facts.axes} coordinate{'s' * (facts.axes > 1)}, "
            f"got positions with {axes.pop()}"
        )
    if facts.integer and a.pos_k.is_floating_point():
        raise ValueError(
            f"{name} counts whole steps: its positions are integers, got {a.pos_k.dtype}"
        )
    for part in leaves(position):
        for size, found in (("heads", a.q.shape[1]), ("head_dim", a.q.shape[3])):
            made = getattr(part, size)
            if made is not None and made != found:
                raise ValueError(
                    f"{part.name} was made with {size}={made}, the queries have {found}: "
                    f"make it with {size}={found}"
                )
        if a.layer < 0:
            raise ValueError(f"layers are counted from 0, got layer {a.layer}")
        if part.layers is not None and a.layer >= part.layers:
            raise ValueError(
                f"{part.name} was made for {part.layers} layers, got layer {a.layer}: "
                f"make it with layers={a.layer + 1}"
            )
        for p in part.parameters():
            beside(p, part.name, a.q.device)


def shapes(q: Tensor, k: Tensor, v: Tensor, layout: str = "bhnd") -> None:
    """Refuses queries, keys and values that do not go together."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise ValueError(f"{name} is a tensor, got {type(x).__name__}")
        if x.ndim != 4:
            raise ValueError(f"{name} is [b, h, n, d] (layout={layout!r}), got {list(x.shape)}")
        if 0 in x.shape:
            raise ValueError(f"{name} is empty: its shape is {list(x.shape)}")
    kinds = {x.dtype for x in (q, k, v)}
    if len(kinds) > 1 or not q.is_floating_point():
        got = " and ".join(sorted(str(kind) for kind in kinds))
        raise ValueError(f"q, k and v are real numbers of one type, got {got}")
    given = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if q.shape[0] != k.shape[0] or k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q is [b, h, n, d], k [b, kv, m, d], v [b, kv, m, dv] (layout={layout!r}), got {given}"
        )
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{q.shape[1]} query heads do not group over {k.shape[1]} key heads: {given}"
        )


def beside(x: Tensor, name: str, device: torch.device) -> None:
    """Refuses a tensor that is not where the queries are."""
    if x.device != device:
        raise ValueError(
            f'{name} is on {x.device} and the queries on {device}: move it with .to("{device}")'
        )


def located(
    position_ids: Tensor | Space | None,
    key_position_ids: Tensor | Space | None,
    b: int,
    n: int,
    m: int,
    device: torch.device,
) -> tuple[Space | None, Space | None]:
    """Where m keys are, and n queries if that is somewhere else, as far as a user has said."""
    if key_position_ids is None:
        if position_ids is None:
            return None, None
        return _places(position_ids, "position_ids", b, m, device), None
    if position_ids is None:
        raise ValueError(
            "key_position_ids say where the keys are: give position_ids of the queries"
        )
    keys = _places(key_position_ids, "key_position_ids", b, m, device)
    return keys, _places(position_ids, "position_ids", b, n, device)


def _places(ids: Tensor | Space, name: str, b: int, n: int, device: torch.device) -> Space:
    if not isinstance(ids, Tensor | Space):
        raise ValueError(
            f"{name} is a tensor of positions, or an od.Space, got {type(ids).__name__}"
        )
    space = ids if isinstance(ids, Space) else Space.points(ids)
    shape = list(space.positions.shape)
    if shape[0] not in (1, b) or shape[1] != n:
        raise ValueError(f"{name} is [{n}], [{b}, {n}] or [{b}, {n}, axes], got shape {shape}")
    beside(space.positions, name, device)
    return space
