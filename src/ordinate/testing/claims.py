"""Contracts about what a method says of itself, and about what it keeps.

`relative`, `length_dependent`, `max_len` and `cross` are tested both ways. `causal_only`, `integer`,
`needs` and `axes` restrict: what lies outside is refused, and inside it must work.
"""

from __future__ import annotations

import itertools

import torch

from ordinate.facts import NEUTRAL, Facts
from ordinate.names import SIZES
from ordinate.position import Chain, Position, leaves
from ordinate.solve import attention
from ordinate.testing.case import FULL, B, Broken, Case, D, H, N, demand, skip_if


def paper(case: Case) -> None:
    """`facts` name a paper, which is in our bibliography if the method is ours."""
    demand(isinstance(case.facts, Facts), "facts are not od.Facts")
    demand(bool(case.facts.paper), "facts name no paper")
    if all(type(p).__module__.startswith("ordinate.methods.") for p in leaves(case.make())):
        from ordinate.cite import references

        missing = [key for key in case.facts.paper if key not in references()]
        demand(not missing, f"not in the bibliography: {missing}")


def relative(case: Case) -> None:
    """Adding one constant to every position changes nothing, or something, as `relative` says."""
    position, start = case.make(), torch.arange(N)
    if case.grid:
        start = torch.tensor([0, 1, 2, 4, 5, 6, 6])
        shifts: tuple[float, ...] = (5,)
    else:
        shifts = (40,) if case.facts.max_len else (1000, 3)
        shifts = shifts if case.facts.integer else (*shifts, 2.25)
    base = case.run(position, case.x(), case.points(case.place(start)))
    apart = []
    for shift in shifts:
        places = case.place(start + shift) if case.grid else case.place(start) + shift
        got = case.run(position, case.x(), case.points(places))
        apart.append(case.distance(got, base))
    if case.facts.relative:
        # Angles at a thousand are a thousand times less fine.
        allowed = min(10 * case.tolerance, 0.1)
        far = max(apart)
        demand(
            far <= allowed, f"relative, but a shift changes results by {far:.1e}{case.hint(far)}"
        )
    else:
        demand(max(apart) > case.visible, "not relative, but no shift changes anything")


def causal_only(case: Case) -> None:
    """Encoders are refused exactly by methods that say they are for causal models only."""
    position = case.make()
    if case.facts.causal_only:
        _refused(
            case, lambda: case.run(position, case.x(), case.space(), causal=False), "an encoder"
        )
        _refused(case, lambda: case.model(position, kind="encoder"), "a model that is an encoder")
        return
    base = case.run(position, case.x(), case.space(), causal=False)
    x = case.x()
    x[:, -1] = 3
    got = case.run(position, x, case.space(), causal=False)
    case.differ(got[:, :-1], base[:, :-1], "in an encoder no token sees what follows it")


def cross(case: Case) -> None:
    """Between two sequences the method acts, or refuses, as `cross` says."""
    if case.facts.needs:
        return demand(not case.facts.cross, "cross-attention cannot give what the method needs")
    skip_if(case.facts == NEUTRAL, "it is none")
    position = case.make()
    q, k, v = case.tensor(B, H, 4, D, seed=1), *(case.tensor(B, H, N, D, seed=s) for s in (2, 3))
    there, here = case.place(torch.arange(N)), case.place(torch.arange(4) + 1)

    def out(method: Position, shift: int = 0) -> torch.Tensor:
        return attention(
            q, k, v, method, position_ids=here[None] + shift, key_position_ids=there[None],
            backend="reference",
        )  # fmt: skip

    if not case.facts.cross:
        return _refused(case, lambda: out(position), "cross-attention")
    case.differ(
        out(position), out(position, 1), "in cross-attention the queries' places mean nothing"
    )
    return None


def integer(case: Case) -> None:
    """Real positions are refused, or mean what whole ones mean where they agree."""
    position, whole = case.make(), case.place(torch.arange(N))
    real = whole.to(torch.promote_types(case.dtype, torch.float32))
    if case.facts.integer:
        return _refused(
            case, lambda: case.run(position, case.x(), case.points(real)), "a real number"
        )
    base = case.run(position, case.x(), case.points(whole))
    case.same(case.run(position, case.x(), case.points(real)), base, "whole positions as reals")
    half = case.run(position, case.x(), case.points(real * 0.5))
    demand(half.isfinite().all(), "half steps give numbers that are not finite")
    if _reads_places(case):
        floor = case.run(position, case.x(), case.points((real * 0.5).floor()))
        case.differ(half, floor, "half steps are rounded down: say integer=True to refuse them")
    return None


def needs(case: Case) -> None:
    """What the method needs is said: od.attention refuses it, or it acts there."""
    skip_if(case.facts == NEUTRAL, "it is none")
    position = case.make()
    q, k, v = (case.tensor(B, H, N, D, seed=s) for s in (1, 2, 3))
    ids = case.place(torch.arange(N))[None] if case.grid else None

    def out() -> torch.Tensor:
        return attention(q, k, v, position, causal=True, position_ids=ids, backend="reference")

    if case.facts.needs:
        return _refused(case, out, "plain q, k and v")
    plain = attention(q, k, v, "none", causal=True, backend="reference")
    case.differ(out(), plain, "with plain q, k and v the method does nothing, and does not say so")
    return None


def acts(case: Case) -> None:
    """The method changes something."""
    skip_if(case.facts == NEUTRAL, "it is none")
    ours = case.run(case.make(), case.x(), case.space(), causal=True)
    layers = case.layers()
    none = case.run(Chain(), case.x(), case.space(), causal=True, layers=layers)
    case.differ(ours, none, "the method does nothing at all")


def axes(case: Case) -> None:
    """Positions with a wrong number of coordinates are refused."""
    places = torch.zeros(N, case.facts.axes + 1, dtype=torch.long)
    position = case.make()
    skip_if(not _reads_places(case), "it reads no positions")
    _refused(case, lambda: case.run(position, case.x(), case.points(places)), "an axis too many")


def _reads_places(case: Case) -> bool:
    """Whether positions, beyond the order of the tokens, change anything."""
    step = torch.tensor([0, 2, 3, 6, 7, 10, 11])
    base = case.run(case.make(), case.x(), case.points(case.place(torch.arange(N))))
    return (
        case.distance(case.run(case.make(), case.x(), case.points(case.place(step))), base) > 1e-6
    )


def options(case: Case) -> None:
    """The option of a variant changes the result, and an unknown one is refused."""
    if case.subject.base is not None:
        base = Case(type(case.subject)(case.subject.base, "base"), case.dtype, str(case.device))
        # Some options act beyond the trained length, in training or at initialisation only.
        worlds = itertools.product((True, False), (True, False), (True, False))
        max_len, apart = 12 if case.facts.max_len else 8, 0.0
        for drawn, training, causal in worlds:
            if causal or not case.facts.causal_only:
                ours, theirs = (
                    c.run(c.make(drawn=drawn, max_len=max_len).train(training), c.x(12), c.space(12),
                          causal=causal)
                    for c in (case, base)
                )  # fmt: skip
                apart = max(apart, case.distance(ours, theirs))
        demand(apart > case.visible, "its option changes nothing")
    try:
        case.subject.make(**{**{k: 8 for k in SIZES}, "no_such_option": 1})
    except (ValueError, TypeError):
        return
    raise Broken("an option that does not exist is accepted")


def no_buffers(case: Case) -> None:
    """Nothing but parameters is kept, so nothing can go stale, and `to_empty` can be undone."""
    names = [name for name, _ in case.make().named_buffers()]
    demand(not names, f"it has buffers: {', '.join(names)}; compute tables where they are used")


def state(case: Case) -> None:
    """A state dict holds everything: loaded into another instance it gives the same results."""
    ours = case.make()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        theirs = case.subject.make(**FULL)
    theirs.to(case.device, case.dtype).eval()
    theirs.load_state_dict(ours.state_dict())
    a, b = (case.run(p, case.x(), case.space()) for p in (ours, theirs))
    demand(torch.equal(a, b), "after loading its state another instance gives something else")


def reset(case: Case) -> None:
    """Made on "meta", given memory and reset, it is what it would have been."""
    with torch.device("meta"):
        hollow = case.subject.make(**FULL)
    hollow.to_empty(device=case.device)
    fresh = case.make(drawn=False).float()
    results = []
    for position in (hollow, fresh):
        with torch.no_grad():
            for p in position.parameters():
                p.fill_(torch.nan)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            position.reset_parameters()
        results.append(dict(position.named_parameters()))
        # Parts of torch reset themselves; ours must not leave them out.
        missed = [n for n, p in position.named_parameters() if not p.isfinite().all()]
        demand(not missed, f"reset_parameters leaves out {', '.join(missed)}")
    for name, value in results[0].items():
        demand(torch.equal(value, results[1][name]), f"{name} is not what a fresh instance has")


def _refused(case: Case, call: object, what: str) -> None:
    try:
        call()  # type: ignore[operator]
    except ValueError:
        return
    raise Broken(f"{what} is accepted, against its facts")


CONTRACTS = (
    paper,
    acts,
    relative,
    causal_only,
    cross,
    integer,
    needs,
    axes,
    options,
    no_buffers,
    state,
    reset,
)
