"""Contracts about numbers: every engine against the reference in float64, and every gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ordinate import backends
from ordinate.testing.case import FULL, LAYERS, B, Broken, Case, D, H, N, demand, skip_if

LENGTHS = (1, 2, 7, 12)


def every_engine(case: Case) -> None:
    """Output and all gradients of every engine are within twice the reference's own error."""
    worlds = [(n, causal) for n in LENGTHS for causal in (False, True)]
    # Padding in front makes rows that see nothing, where kernels differ.
    worlds += [] if case.grid else [(-64, True)]
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
    """Output and gradients by name, nothing if the engine refuses; n < 0 asks for padding."""
    other = case.at(dtype)
    position = other.make()
    # Inputs rounded to the working precision, so that only the computation differs.
    layers = case.layers().to(dtype)
    x, space = case.x(abs(n)).to(dtype).requires_grad_(gradients), other.space(abs(n))
    if n < 0:
        valid = torch.ones(B, -n, dtype=torch.bool, device=case.device)
        valid[0, :5] = False
        space = other.space(-n, valid=valid)
    with torch.set_grad_enabled(gradients):
        try:
            y = other.run(position, x, space, layers=layers, causal=causal, backend=engine)
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
    for causal in case.directions:
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


CONTRACTS = (
    every_engine,
    gradients,
    gradients_alone,
    twice,
    any_sequence_of_calls,
    checkpointing,
    finite,
)
