"""Attention with any method, for everyone else's model."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from ordinate import backends
from ordinate.attend import Attend
from ordinate.describe import describe
from ordinate.facts import NEUTRAL
from ordinate.masks import Mask
from ordinate.names import make
from ordinate.position import Chain, Only, Position
from ordinate.readout import require
from ordinate.space import Space
from ordinate.tensors import exactly


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: Position | str = "none",
    *,
    causal: bool = False,
    position_ids: Tensor | None = None,
    key_position_ids: Tensor | None = None,
    mask: Tensor | Mask | None = None,
    cu_seqlens: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    layer: int = 0,
    layout: Literal["bhnd", "bnhd"] = "bhnd",
    backend: str = "auto",
) -> Tensor:
    """softmax(q kᵀ/√d) v with a method of position stated into it.

    q [b, h, n, d], k and v [b, h or fewer, m, d]. With n < m the queries are the last n of the m
    tokens, as when decoding, unless `key_position_ids` are given: then queries and keys are
    different sequences (cross-attention).

    position_ids: [m], [b, m] or [b, m, axes], whole or real numbers; of the queries alone if
        `key_position_ids` are given
    mask: [b, m], False for padding (positions then start at the first valid token), or anything
        that broadcasts to [b, h, n, m], True where a query may look, or a `Mask`
    cu_seqlens: [documents + 1], where packed documents begin, in a batch of one; masks them from
        each other and restarts positions
    """
    a = problem(
        q, k, v, position, causal=causal, position_ids=position_ids,
        key_position_ids=key_position_ids, mask=mask, cu_seqlens=cu_seqlens, scale=scale,
        dropout=dropout, layer=layer, layout=layout,
    )  # fmt: skip
    out = backends.run(a, backend)
    return out if layout == "bhnd" else out.transpose(1, 2)


def problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: Position | str = "none",
    *,
    causal: bool = False,
    position_ids: Tensor | None = None,
    key_position_ids: Tensor | None = None,
    mask: Tensor | Mask | None = None,
    cu_seqlens: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    layer: int = 0,
    layout: Literal["bhnd", "bnhd"] = "bhnd",
) -> Attend:
    """The problem that `attention` solves with the same arguments, stated but not solved."""
    if layout == "bnhd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    elif layout != "bhnd":
        raise ValueError(f"layout is 'bhnd' or 'bnhd', got {layout!r}")
    _check_shapes(q, k, v, layout)
    if isinstance(position, str):
        name, position = position, make(position, heads=q.shape[1], head_dim=q.shape[3])
        if next(position.parameters(), None) is not None:
            raise ValueError(
                f"{name} learns, and by its name every call would begin anew: "
                f'make it once with od.make("{name}", …) and give that'
            )
    b, _, n, d = q.shape
    m = k.shape[2]
    mask, valid = _mask(mask, b, m, q.device)
    documents = None if cu_seqlens is None else _documents(cu_seqlens, b, m)
    cross = key_position_ids is not None
    ids = key_position_ids if cross else position_ids
    if ids is None:
        space = Space.line(m, device=q.device, valid=valid, documents=documents)
    else:
        space = Space.points(ids, valid=valid, documents=documents)
        _check_places(space, "key_position_ids" if cross else "position_ids", b, m, q.device)
    space_q = None
    if cross:
        if position_ids is None:
            raise ValueError(
                "key_position_ids say where the keys are: give position_ids of the queries"
            )
        space_q = Space.points(position_ids)
        _check_places(space_q, "position_ids", b, n, q.device)
        if causal or documents is not None:
            raise ValueError(
                "with key_position_ids queries and keys are different sequences: "
                "causal and cu_seqlens mean nothing there, use mask"
            )
    elif n > m:
        raise ValueError(
            f"{n} queries for {m} keys: in self-attention the queries are the last keys"
        )
    a = Attend(
        q, k, v, space,
        scale=d**-0.5 if scale is None else scale,
        mask=mask & Mask(causal=causal, valid=valid, documents=documents),
        space_q=space_q, layer=layer, dropout=dropout,
    )  # fmt: skip
    require(position, frozenset(), "od.attention")
    check(position, a)
    with exactly(q):
        return position.attend(a)


def check(position: Position, a: Attend) -> None:
    """Refuses, in a sentence, a problem that a method does not mean anything in."""
    facts, name = position.facts, position.name
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
                    f'make it with od.make("{part.name}", {size}={found})'
                )
        if part.layers is not None and not 0 <= a.layer < part.layers:
            raise ValueError(
                f"{part.name} was made for {part.layers} layers, got layer {a.layer}: "
                f'make it with od.make("{part.name}", layers={a.layer + 1})'
            )
        for p in part.parameters():
            if p.device != a.q.device:
                raise ValueError(
                    f"{part.name} is on {p.device} and the queries on {a.q.device}: "
                    f'move it with .to("{a.q.device}")'
                )


def leaves(position: Position) -> list[Position]:
    """The methods inside chains and restrictions."""
    if isinstance(position, Chain):
        return [leaf for part in position for leaf in leaves(part)]
    return leaves(position.inner) if isinstance(position, Only) else [position]


def explain(a: Attend) -> str:
    """A problem in words, which engine would run it, and why the others refuse.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 8, 128, 64)
    >>> print(od.explain(od.problem(q, q, q, "alibi", causal=True)))  # doctest: +ELLIPSIS
    batch 1, 8 heads of 64, 128 queries × 128 keys, float32 on cpu; causal: q·k × 0.125 → ...
    → sdpa       runs it
      reference  could run it
    """
    return "\n".join(
        [describe(a), *(f"{mark} {name:<10} {says}" for name, mark, says in engines(a))]
    )


def engines(a: Attend) -> list[tuple[str, str, str]]:
    """Each engine, a mark (→ runs it, × refuses), and what it says to a problem."""
    chosen, said = backends.choose(a), []
    for name in backends.ENGINES:
        if why := backends.refuses(a, name):
            said.append((name, "×", f"refuses: {why}"))
        elif name == chosen:
            said.append((name, "→", "runs it"))
        else:
            small = chosen == "reference" and name != chosen
            said.append(
                (name, " ", "could run it" + "; the reference is faster this small" * small)
            )
    return said


def weights(a: Attend) -> Tensor:
    """The attention maps [b, h, n, m] of a problem, by the reference."""
    from ordinate.backends import reference

    return reference.weights(a)


def _check_shapes(q: Tensor, k: Tensor, v: Tensor, layout: str) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4:
            raise ValueError(f"{name} is [b, h, n, d] (layout={layout!r}), got {list(x.shape)}")
        if 0 in x.shape:
            raise ValueError(f"{name} is empty: its shape is {list(x.shape)}")
    shapes = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if q.shape[0] != k.shape[0] or k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q is [b, h, n, d], k [b, kv, m, d], v [b, kv, m, dv] (layout={layout!r}), got {shapes}"
        )
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{q.shape[1]} query heads do not group over {k.shape[1]} key heads: {shapes}"
        )


def _check_places(space: Space, name: str, b: int, n: int, device: torch.device) -> None:
    shape = list(space.positions.shape)
    if shape[0] not in (1, b) or shape[1] != n:
        raise ValueError(f"{name} is [{n}], [{b}, {n}] or [{b}, {n}, axes], got shape {shape}")
    if space.positions.device != device:
        raise ValueError(
            f"{name} is on {space.positions.device} and the queries on {device}: "
            f'move it with .to("{device}")'
        )


def _mask(
    mask: Tensor | Mask | None, b: int, m: int, device: torch.device
) -> tuple[Mask, Tensor | None]:
    if mask is None or isinstance(mask, Mask):
        return mask or Mask(), None if mask is None else mask.valid
    if mask.device != device:
        raise ValueError(
            f'mask is on {mask.device} and the queries on {device}: move it with .to("{device}")'
        )
    if mask.is_floating_point():
        raise ValueError("mask is boolean, True where a query may look; an additive mask is a bias")
    if mask.ndim == 2 and mask.shape == (b, m):
        return Mask(), mask.bool()
    if mask.ndim != 4:
        raise ValueError(
            f"mask is [b, m] = [{b}, {m}] for padding, or has four dimensions that broadcast to "
            f"[b, h, n, m], got {list(mask.shape)}"
        )
    return Mask(dense=mask.bool()), None


def _documents(cu_seqlens: Tensor, b: int, m: int) -> Tensor:
    ends = cu_seqlens.tolist()
    if b != 1 or ends[:1] != [0] or ends[-1:] != [m] or any(x >= y for x, y in pairwise(ends)):
        raise ValueError(
            f"cu_seqlens are the borders of documents packed into one row, rising from 0 to {m}, "
            f"got {ends} for a batch of {b}"
        )
    index = torch.arange(m, device=cu_seqlens.device)
    return torch.searchsorted(cu_seqlens[1:].contiguous(), index, right=True)[None]
