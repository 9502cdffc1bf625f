"""Attention with any method, for everyone else's model."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from ordinate import backends
from ordinate.attend import Attend
from ordinate.checks import beside, check, located, shapes
from ordinate.describe import describe
from ordinate.masks import Mask
from ordinate.names import make
from ordinate.position import Position
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
    position_ids: Tensor | Space | None = None,
    key_position_ids: Tensor | Space | None = None,
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

    position_ids: [m], [b, m] or [b, m, axes], whole or real numbers, or a `Space`, which may have
        special tokens; of the queries alone if `key_position_ids` are given
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
    position_ids: Tensor | Space | None = None,
    key_position_ids: Tensor | Space | None = None,
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
    shapes(q, k, v, layout)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is at least 0 and below 1, got {dropout}")
    if isinstance(position, str):
        name, position = position, make(position, heads=q.shape[1], head_dim=q.shape[3])
        if next(position.parameters(), None) is not None:
            raise ValueError(
                f"{name} learns, and by its name every call would begin anew: "
                f'make it once with od.make("{name}", …) and give that'
            )
    if not isinstance(position, Position):
        raise ValueError(f"position is a name or a method from od.make, got {position!r}")
    b, h, n, d = q.shape
    m = k.shape[2]
    mask = _mask(mask, (b, h, n, m), q.device)
    valid = mask.valid
    documents = None if cu_seqlens is None else _documents(cu_seqlens, b, m)
    if key_position_ids is not None and documents is not None:
        raise ValueError("cu_seqlens pack one sequence: they mean nothing between two")
    if key_position_ids is None and n > m:
        raise ValueError(
            f"{n} queries for {m} keys: in self-attention the queries are the last keys"
        )
    space, space_q = located(position_ids, key_position_ids, b, n, m, q.device)
    if space is None:
        space = Space.line(m, device=q.device, valid=valid, documents=documents)
    else:
        space = space.but(valid=valid, documents=documents)
    a = Attend(
        q, k, v, space,
        scale=d**-0.5 if scale is None else scale,
        mask=mask & Mask(causal=causal, documents=documents),
        space_q=space_q, layer=layer, dropout=dropout,
    )  # fmt: skip
    require(position, frozenset(), "od.attention")
    check(position, a)
    with exactly(q):
        return position.attend(a)


def explain(*problem_or_arguments: Any, **options: Any) -> str:
    """A problem in words, which engine would run it, and why the others refuse.

    Takes a problem, or what `attention` takes.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 8, 128, 64)
    >>> print(od.explain(q, q, q, "alibi", causal=True))  # doctest: +ELLIPSIS
    batch 1, 8 heads of 64, 128 queries × 128 keys, float32 on cpu; causal: q·k × 0.125 → ...
    → sdpa       runs it
      reference  could run it
    """
    a = _stated(problem_or_arguments, options)
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


def weights(*problem_or_arguments: Any, **options: Any) -> Tensor:
    """The attention maps [b, h, n, m] of a problem, or of what `attention` takes."""
    return backends.reference.weights(_stated(problem_or_arguments, options))


def _stated(given: tuple[Any, ...], options: dict[str, Any]) -> Attend:
    if len(given) == 1 and isinstance(given[0], Attend) and not options:
        return given[0]
    if not all(name in options or len(given) > i for i, name in enumerate("qkv")):
        raise ValueError("give one problem from od.problem, or q, k, v and a method")
    if "backend" in options:
        raise ValueError("a problem is stated before an engine is chosen: leave out backend")
    return problem(*given, **options)


def _mask(
    mask: Tensor | Mask | None, shape: tuple[int, int, int, int], device: torch.device
) -> Mask:
    """What a user gave as a mask, with tensors of the shapes that masks have."""
    b, _, n, m = shape
    if mask is None:
        return Mask()
    if isinstance(mask, Tensor):
        if mask.is_floating_point():
            raise ValueError(
                "mask is boolean, True where a query may look; an additive mask is a bias"
            )
        mask = Mask(valid=mask.bool()) if mask.ndim == 2 else Mask(dense=mask.bool())
    dense, valid, ids = mask.dense, mask.valid, mask.documents
    for t in (dense, valid, ids):
        if t is not None:
            beside(t, "mask", device)
    if valid is not None and list(valid.shape) != [b, m]:
        raise ValueError(
            f"a mask of two dimensions is padding, [b, m] = {[b, m]}, got {list(valid.shape)}"
        )
    if ids is not None and (ids.shape[-1:] != (m,) or len(ids) not in (1, b)):
        raise ValueError(f"documents of a mask are [b, m] = {[b, m]}, got {list(ids.shape)}")
    if dense is not None:
        fits = dense.ndim == 4 and all(x in (1, y) for x, y in zip(dense.shape, shape, strict=True))
        if not fits:
            raise ValueError(
                f"mask is padding [b, m], or has four dimensions that broadcast to [b, h, n, m] = "
                f"{list(shape)}, got {list(dense.shape)}"
            )
        mask = replace(mask, dense=dense.expand(-1, -1, n, m))
    return mask if valid is None else replace(mask, valid=valid.bool())


def _documents(cu_seqlens: Tensor, b: int, m: int) -> Tensor:
    if not isinstance(cu_seqlens, Tensor) or cu_seqlens.ndim != 1:
        raise ValueError("cu_seqlens is a tensor of the borders of documents, [documents + 1]")
    ends = [0, m] if torch.compiler.is_compiling() else cu_seqlens.tolist()
    if b != 1 or ends[:1] != [0] or ends[-1:] != [m] or any(x >= y for x, y in pairwise(ends)):
        raise ValueError(
            f"cu_seqlens are the borders of documents packed into one row, rising from 0 to {m}, "
            f"got {ends} for a batch of {b}"
        )
    index = torch.arange(m, device=cu_seqlens.device)
    return torch.searchsorted(cu_seqlens[1:].contiguous(), index, right=True)[None]
