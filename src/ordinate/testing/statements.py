"""Contracts about what a method states: what it declares, how finely, and in company."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ordinate.attend import Attend
from ordinate.facts import NEUTRAL
from ordinate.masks import Mask
from ordinate.names import make as od_make
from ordinate.position import Chain, Position
from ordinate.space import Space
from ordinate.terms import Distance
from ordinate.testing.case import FULL, B, Case, D, H, N, demand, skip_if


def declared_tensors(case: Case) -> None:
    """Rules read learned numbers only through the tensors that they declare, in full precision."""
    position, layers = case.make(), case.layers()
    x, space = position.embed(case.x(), case.space(), 0)
    a = stated(case, position, layers, x.detach(), space)
    tile = a.tile
    for rotation in a.rotations:
        angle = rotation.angles(a.pos_q.to(a.wide), *(t.detach() for t in rotation.tensors))
        demand(angle.dtype.itemsize >= 4, f"a rotation has its angles in {angle.dtype}")
        demand(not angle.requires_grad, "a rotation closes over a tensor, whose gradient is lost")
        for key in (False, True):
            if rotation.gain is None:
                continue
            gain = rotation.gain(a.pos_q.to(a.wide), key, *(t.detach() for t in rotation.tensors))
            demand(not gain.requires_grad, "a gain closes over a tensor, whose gradient is lost")
    s = torch.zeros(B, H, *tile.shape, device=case.device, dtype=a.wide)
    for term in a.terms:
        tensors = [held.tensor.detach() for held in term.held]
        if isinstance(term, Distance):
            bias = term.fn(torch.arange(-3, 4, device=case.device), *tensors)
            demand(bias.dtype.itemsize >= 4, f"a bias is computed in {bias.dtype}")
        out = term.at(s, tile, *tensors)
        kind = type(term).__name__
        demand(
            not out.requires_grad,
            f"the rule of a {kind} term closes over a tensor: an engine that computes scores again "
            "would lose its gradient; pass it to the term",
        )
    if a.score is not None:
        q = case.tensor(B, H, N, D)
        out = a.score.fn(q, q, tile, *(t.detach() for t in a.score.tensors))
        demand(not out.requires_grad, "the score closes over a tensor, whose gradient is lost")


def stated(
    case: Case,
    position: Position,
    layers: nn.ModuleList,
    x: Tensor,
    space: Space,
    *,
    dropout: float = 0.0,
) -> Attend:
    """The problem of the first layer, for queries, keys and values as `layers` round them."""
    layer: Any = layers[0]
    rounded = x.to(layer.q.weight.dtype)
    q, k, v = (
        p(rounded).transpose(1, 2).detach().to(x.dtype)
        for p in (layer.project_q, layer.project_k, layer.project_v)
    )
    kept = {key: t.detach() for key, t in position.remember(x, space, 0).items()}
    mask = Mask(causal=case.facts.causal_only)
    return position.attend(
        Attend(
            q, k, v, space, scale=D**-0.5, mask=mask, kept=kept, dropout=dropout,
            project_q=lambda t: layer.project_q(t.to(rounded.dtype)).detach().to(t.dtype),
            project_k=lambda t: layer.project_k(t.to(rounded.dtype)).detach().to(t.dtype),
        )
    )  # fmt: skip


def stated_precision(case: Case) -> None:
    """What is stated for bfloat16 queries and keys, angles and terms, is as fine as float32."""
    narrow, exact = case.at(torch.bfloat16), case.at(torch.float64)
    n = 12 if case.grid else min(case.facts.max_len or 300, 300)
    x, layers = narrow.x(n), narrow.layers()
    problems = []
    for world, wide in ((narrow, False), (exact, True)):
        position, space = world.make(), world.space(n)
        # Both begin from the same rounded hidden states, queries and keys.
        problems.append(stated(world, position, layers, x.double() if wide else x, space))
    ours, want = problems
    for mine, theirs in zip(ours.rotations, want.rotations, strict=True):
        got, fine = (
            r.angles(p.pos_q.to(p.wide), *r.tensors) for r, p in ((mine, ours), (theirs, want))
        )
        _as_fine(got, fine, "angles")
    s = torch.zeros(B, H, n, n, device=case.device)
    rows = torch.ones(n, n, dtype=torch.bool, device=case.device).tril()
    for mine, theirs in zip(ours.terms, want.terms, strict=True):
        bias = mine.at(s + 1, ours.tile, *(h.tensor for h in mine.held))
        exactly = theirs.at(s.double() + 1, want.tile, *(h.tensor for h in theirs.held))
        bias, exactly = (b.masked_fill(~rows, 0) for b in (bias, exactly))
        _as_fine(bias, exactly, f"{type(mine).__name__} term")


def _as_fine(got: Tensor, want: Tensor, what: str) -> None:
    seen = want.isfinite()
    got, want = got.detach().double()[seen], want.detach()[seen]
    far = float((got - want).abs().max() / (1 + want.abs().max()))
    demand(far <= 1e-4, f"for bfloat16 inputs the {what} is {far:.1e} from float64")


def chain_with_none(case: Case) -> None:
    """Composing with "none" on either side changes nothing."""
    plain = case.run(case.make(), case.x(), case.space())
    for chain in (Chain(Chain(), case.make()), Chain(case.make(), Chain())):
        demand(chain.facts == case.facts, "the facts change in a chain with none")
        got = case.run(chain, case.x(), case.space())
        demand(torch.equal(got, plain), "a chain with none gives something else")


def chain_with_a_rotation(case: Case) -> None:
    """In a chain with a rotation both act, in either order alike: terms read what is not turned."""
    method = od_make("axial-rope" if case.grid else "rope", head_dim=D).to(case.device)
    layers, x, space = case.layers(), case.x(), case.space()
    alone, turned = case.make(), case.run(method, x, space, layers=layers, causal=True)
    problem = stated(case, alone, layers, x, alone.embed(x, space, 0)[1])
    skip_if(bool(problem.rotations), "it turns queries and keys itself")
    skip_if(alone.facts == NEUTRAL, "it is none")
    first, last = (
        case.run(Chain(*parts), x, space, layers=layers, causal=True)
        for parts in ((method, alone), (alone, method))
    )
    case.same(first, last, "before and after a rotation")
    case.differ(first, turned, "behind a rotation the method does nothing")
    own = case.run(alone, x, space, layers=layers, causal=True)
    case.differ(first, own, "with the method a rotation does nothing")


def fine_positions(case: Case) -> None:
    """In narrow precision angles and tables stay float32: far positions are told apart."""
    skip_if(case.grid, "positions of a grid are small")
    narrow = case.at(torch.bfloat16)
    position, as_made = narrow.make().bfloat16(), narrow.make()
    for p, q in zip(position.parameters(), as_made.parameters(), strict=True):
        demand(p.dtype == torch.float32 and torch.equal(p, q), ".bfloat16() narrows a parameter")
    try:
        torch.set_default_dtype(torch.bfloat16)
        dtypes = {p.dtype for p in case.subject.make(**FULL).parameters()}
    finally:
        torch.set_default_dtype(torch.float32)
    demand(dtypes <= {torch.float32}, "a narrow default type narrows its parameters")
    exact = case.at(torch.float64)

    def error(places: Tensor) -> float:
        got = narrow.run(position, narrow.x(12), narrow.points(places), layers=narrow.layers())
        layers, x = narrow.layers().double(), narrow.x(12).double()
        want = exact.run(exact.make(), x, exact.points(places), layers=layers)
        return float((got.double() - want).norm().detach() / want.norm().detach())

    near = torch.arange(12)[:, None]
    far = near + case.facts.max_len - 12 if case.facts.max_len else 1000 + 31 * near
    at_near, at_far = error(near), error(far)
    demand(
        at_far <= 3 * at_near + 0.02,
        f"bfloat16 is {at_near:.3f} from float64 at positions 0 … 11, and {at_far:.3f} "
        f"at {int(far[0])} … {int(far[-1])}",
    )


CONTRACTS = (
    declared_tensors,
    stated_precision,
    chain_with_none,
    chain_with_a_rotation,
    fine_positions,
)
