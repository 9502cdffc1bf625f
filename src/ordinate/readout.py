"""What a method does, as plain numbers: for people who have their own attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from ordinate.attend import Attend
from ordinate.facts import NEEDS
from ordinate.masks import Mask
from ordinate.space import Space
from ordinate.terms import Dense, Distance, Local, Product, Term

if TYPE_CHECKING:
    from ordinate.position import Position

SEE = "use od.attention, or a model of ours"


def stated(
    position: Position,
    space: Space,
    n: int,
    *,
    causal: bool,
    layer: int,
) -> Attend:
    """The problem that a method states for n queries of nothing in particular."""
    require(position, frozenset(), "plain numbers")
    if position.facts.axes != space.axes:
        raise ValueError(
            f"{position.name} places tokens by {position.facts.axes} coordinates, and a line has "
            "one: use od.problem and od.weights with position_ids"
        )
    device = next((p.device for p in position.parameters()), space.positions.device)
    space = space.but(positions=space.positions.to(device))
    shape = (1, position.heads or 1, space.size, position.head_dim or 2)
    wide = next((p.dtype for p in position.parameters()), torch.float32)
    k = torch.zeros(shape, device=device, dtype=wide)
    mask = Mask(causal=causal or position.facts.causal_only)
    a = Attend(k[:, :, k.shape[2] - n :], k, k, space, 1.0, mask, layer=layer)
    return position.attend(a)


def require(position: Position, given: frozenset[str], where: str) -> None:
    """Refuses, in a sentence, a method that needs more than `where` can give."""
    if missing := sorted(position.facts.needs - given):
        what = " and ".join(NEEDS[name] for name in missing)
        raise ValueError(
            f"{position.name} needs {what}, which {where} cannot give: use a model of ours"
        )


def bias(position: Position, n: int, m: int, *, causal: bool, layer: int) -> Tensor:
    if not 1 <= n <= m:
        raise ValueError(f"a bias is for 1 or more queries among the keys, got n={n} and m={m}")
    a = stated(position, Space.line(m), n, causal=causal, layer=layer)
    if not a.terms:
        raise ValueError(f"{position.name} adds nothing to the scores, so it has no bias")
    s = torch.zeros(1, 1, n, m, device=a.q.device, dtype=a.wide)
    for term in a.terms:
        if why := _not_added(term):
            raise ValueError(f"{position.name} is no plain bias: it {why}; {SEE}")
        s = term.at(s, a.tile, *(h.tensor for h in term.held))
    return s[0]


def rotate(
    position: Position,
    q: Tensor,
    k: Tensor,
    position_ids: Tensor | None,
    key_position_ids: Tensor | None,
    layer: int,
) -> tuple[Tensor, Tensor]:
    from ordinate.checks import check, located, shapes

    require(position, frozenset(), "plain q and k")
    shapes(q, k, k)
    n, m = q.shape[2], k.shape[2]
    if n > m and key_position_ids is None:
        raise ValueError(f"{n} queries for {m} keys: give position_ids and key_position_ids")
    if position_ids is not None and key_position_ids is None and n != m:
        raise ValueError(
            f"{n} queries and {m} keys need positions each: give position_ids and key_position_ids"
        )
    space, space_q = located(position_ids, key_position_ids, len(q), n, m, k.device)
    space = Space.line(m, device=k.device) if space is None else space
    # Turning asks for no mask; causal ones let the methods pass that want it.
    mask = Mask(causal=position.facts.causal_only and space_q is None)
    a = Attend(q, k, k, space, 1.0, mask, space_q=space_q, layer=layer)
    if space_q is None:
        check(position, a)
    a = position.attend(a)
    if not a.rotations:
        raise ValueError(f"{position.name} does not turn queries and keys: it has no rotation")
    return a.rotated()


def score_mod(
    position: Position,
    position_ids: Tensor | None,
    offset: int,
    causal: bool,
    layer: int,
    reach: int,
) -> Callable[..., Tensor]:
    a = stated(position, Space.line(2), 2, causal=causal, layer=layer)
    if why := _beyond_score_mod(a):
        raise ValueError(f"{position.name} cannot be a score_mod: it {why}; {SEE}")
    if position_ids is not None and position_ids.is_floating_point():
        raise ValueError(
            f"a score_mod reads a table of whole steps, got positions in {position_ids.dtype}; {SEE}"
        )
    # FlexAttention compiles reads of a table, and no rule that gives all heads at once.
    gap = torch.arange(-reach, reach + 1, device=a.q.device)
    tables = []
    for term in a.terms:
        assert isinstance(term, Distance)
        # Beyond the table is NaN: loud, where a wrong number would be silent.
        values = pad(term.fn(gap, *term.tensors), (1, 1), value=torch.nan)
        tables.append((values if len(values) > 1 else values[0], term.op))

    def mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        if position_ids is None:
            row = kv_idx - q_idx - offset
        elif position_ids.ndim == 1:
            row = position_ids[kv_idx] - position_ids[q_idx + offset]
        else:
            row = position_ids[b, kv_idx] - position_ids[b, q_idx + offset]
        row = (row + reach + 1).clamp(0, 2 * reach + 2)
        for table, op in tables:
            value = table[row] if table.ndim == 1 else table[h, row]
            score = score + value if op == "add" else score * value
        return score

    return mod


def _not_added(term: Term) -> str:
    """Why a term is not a bias of positions alone, or nothing."""
    if isinstance(term, Distance):
        return "" if term.op == "add" else "multiplies the scores"
    if isinstance(term, Product | Dense):
        return ""
    if isinstance(term, Local) and term.op == "add" and not (term.query or term.key):
        return ""
    return "depends on the content of queries and keys"


def _beyond_score_mod(a: Attend) -> str:
    """What of a problem a function of one score and two indices cannot do, or nothing."""
    if a.rotations:
        return "turns queries and keys (see rotate)"
    if a.score is not None or a.values is not None:
        return "replaces the product or adds to the values"
    if a.norm is not None:
        return "replaces the softmax"
    if other := next((t for t in a.terms if not isinstance(t, Distance)), None):
        return f"needs a {type(other).__name__} term, which reads more than two indices"
    if any(t.coord is not None for t in a.terms if isinstance(t, Distance)):
        return "measures distance on a grid"
    return "" if a.terms else "does nothing to the scores"
