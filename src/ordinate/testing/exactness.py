"""Contracts about numbers: every engine against the reference in float64, and every gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ordinate import backends
from ordinate.attend import Attend
from ordinate.facts import NEUTRAL
from ordinate.masks import Mask
from ordinate.names import make as od_make
from ordinate.position import Chain, Position
from ordinate.space import Space
from ordinate.terms import Distance
from ordinate.testing.case import FULL, LAYERS, B, Broken, Case, D, H, N, demand, skip_if

LENGTHS = (1, 2, 7, 12)


def every_engine(case: Case) -> None:
    """Output and all gradients of every engine are within twice the reference's own error."""
    worlds = [(n, causal) for n in LENGTHS for causal in (False, True)]
    worlds = [w for w in worlds if w[1] or not case.facts.causal_only]
    exact = [_results(case, "reference", *w, torch.float64, True) for w in worlds]
    ours = [_results(case, "reference", *w, case.dtype, True) for w in worlds]
    for engine in backends.ENGINES:
        for gradients in (False, True):
            got = [_results(case, engine, *w, case.dtype, gradients) for w in worlds]
            for key in exact[0]:
                # Where the engine refuses, or no gradient is wanted, there is nothing to compare.
                trio = [
                    (g[key], o[key], e)
                    for g, o, e in zip(got, ours, exact, strict=True)
                    if key in g
                ]
                if not trio:
                    continue
                error = _norm(g - e[key] for g, _, e in trio)
                own = _norm(o - e[key] for _, o, e in trio)
                # What is zero by symmetry is measured against all that comes out.
                scale = _norm(t for _, _, e in trio for t in e.values())
                demand(
                    error <= 2 * own + 256 * torch.finfo(case.dtype).eps * scale,
                    f"{engine}: {key} is {error:.1e} from float64, the reference {own:.1e}",
                )


def _results(
    case: Case, engine: str, n: int, causal: bool, dtype: torch.dtype, gradients: bool
) -> dict[str, Tensor]:
    """Output and gradients by name, nothing if the engine refuses."""
    other = case.at(dtype)
    position = other.make()
    # Inputs rounded to the working precision, so that only the computation differs.
    layers = case.layers().to(dtype)
    x = case.x(n).to(dtype).requires_grad_(gradients)
    with torch.set_grad_enabled(gradients):
        try:
            y = other.run(position, x, other.space(n), layers=layers, causal=causal, backend=engine)
        except ValueError as error:
            if str(error).startswith(f"the {engine} backend refuses"):
                return {}
            raise
    found = {"the output": y.detach()}
    if gradients:
        (y.double() * case.tensor(*y.shape, seed=9).double()).sum().backward()
        named = [("x", x), *position.named_parameters(), *layers.named_parameters()]
        found |= {f"the gradient of {k}": p.grad for k, p in named if p.grad is not None}
    return found


def _norm(parts: Iterable[Tensor]) -> float:
    return math.sqrt(sum(float(p.detach().double().square().sum()) for p in parts))


def gradients(case: Case) -> None:
    """Every parameter and input has the gradient that differences of the output have."""
    exact = case.at(torch.float64)
    position, layers = exact.make(), exact.layers()
    x = exact.x().requires_grad_()
    leaves = {"x": x, **dict(position.named_parameters()), **dict(layers.named_parameters())}
    weight = exact.tensor(B, N, H * D, seed=9)

    def loss() -> Tensor:
        return (exact.run(position, x, exact.space(), layers=layers) * weight).sum()

    before = x.detach().clone()
    loss().backward()
    demand(torch.equal(x.detach(), before), "the method changes its input in place")
    for index, (name, leaf) in enumerate(leaves.items()):
        along = 1e-5 * exact.tensor(*leaf.shape, seed=20 + index)
        with torch.no_grad():
            leaf += along
            high = loss()
            leaf -= 2 * along
            low = loss()
            leaf += along
        measured = float(high - low) / 2
        demand(leaf.grad is not None, f"{name} gets no gradient")
        assert leaf.grad is not None
        stated = float((leaf.grad * along).sum())
        scale = max(abs(measured), float(leaf.grad.norm() * along.norm()) * 0.05)
        demand(
            abs(stated - measured) <= 2e-4 * scale + 1e-11 * max(1.0, abs(float(high))),
            f"{name}: the gradient says {stated:.3e} where the output moves by {measured:.3e}",
        )
        if name in dict(position.named_parameters()):
            demand(bool(leaf.grad.any()), f"{name} never gets a gradient")
            if position.layers == LAYERS == len(leaf):
                for layer, grad in enumerate(leaf.grad):
                    demand(bool(grad.any()), f"{name} gets no gradient from layer {layer}")


def gradients_alone(case: Case) -> None:
    """A tensor's gradient is the same whether it is wanted alone or with all others."""
    position, layers, weight = case.make(), case.layers(), case.tensor(B, N, H * D, seed=9)
    leaves = {"x": case.x().requires_grad_(), **dict(position.named_parameters())}

    def grads() -> dict[str, Tensor | None]:
        for leaf in leaves.values():
            leaf.grad = None
        (case.run(position, leaves["x"], case.space(), layers=layers) * weight).sum().backward()
        return {name: leaf.grad for name, leaf in leaves.items()}

    together = grads()
    for name, leaf in leaves.items():
        for other in leaves.values():
            other.requires_grad_(other is leaf)
        alone = grads()[name]
        both = together[name]
        if alone is not None and both is not None:
            case.same(alone, both, f"the gradient of {name} alone")
        else:
            demand(alone is both, f"{name} has a gradient only in company")


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


def twice(case: Case) -> None:
    """Two runs give the same bits, outputs and gradients."""

    def once() -> list[Tensor]:
        position, layers = case.make(), case.layers()
        x = case.x(12).requires_grad_()
        y = case.run(position, x, case.space(12), layers=layers)
        y.square().sum().backward()
        grads = [p.grad for p in (x, *position.parameters()) if p.grad is not None]
        return [y.detach(), *grads]

    for a, b in zip(once(), once(), strict=True):
        demand(torch.equal(a, b), "two runs of the same thing differ")


def any_sequence_of_calls(case: Case) -> None:
    """What an instance was used for before changes nothing: lengths, precisions, gradients."""
    used = case.make()
    wide = case.at(torch.float64)
    for n, world, grad in ((5, case, False), (12, case, True), (3, wide, False), (7, case, True)):
        with torch.set_grad_enabled(grad):
            got = world.run(used, world.x(n), world.space(n))
            # Training is another call too, unless it draws.
            fresh = case.make().train("seed" not in case.facts.needs)
            fresh = world.run(fresh, world.x(n), world.space(n))
        demand(torch.equal(got, fresh), f"a call with {n} tokens depends on the calls before it")


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


def checkpointing(case: Case) -> None:
    """Activation checkpointing changes neither the output nor a gradient."""
    results = []
    for checkpoint in (False, True):
        model = case.model(case.make(), checkpoint=checkpoint).train()
        model.decoder.position.eval()  # type: ignore[union-attr]
        y = model(case.tokens(), space=case.space())
        y.square().sum().backward()
        results.append([y.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for a, b in zip(*results, strict=True):
        demand(torch.equal(a, b), "activation checkpointing changes a result")


def finite(case: Case) -> None:
    """Four times the trained length gives finite numbers, unless the method says what its end is."""
    skip_if(case.grid, "a grid has no length")
    position, end = case.make(), case.facts.max_len
    n = 4 * FULL["max_len"] if end is None else min(end, 512)
    for causal in (True,) if case.facts.causal_only else (True, False):
        y = case.run(position, case.x(n), case.space(n), causal=causal)
        demand(y.isfinite().all(), f"not finite at {n} tokens ({causal=})")
    if end is not None:
        x = case.tensor(1, end + 1, FULL["dim"])
        tokens = torch.zeros(1, end + 1, dtype=torch.long, device=case.device)
        try:
            case.run(position, x, case.space(end + 1, 1, tokens=tokens), causal=True)
        except ValueError:
            return
        raise Broken(f"{end + 1} tokens are accepted where facts.max_len is {end}")


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
    every_engine,
    gradients,
    gradients_alone,
    declared_tensors,
    stated_precision,
    twice,
    any_sequence_of_calls,
    chain_with_none,
    chain_with_a_rotation,
    checkpointing,
    finite,
    fine_positions,
)
