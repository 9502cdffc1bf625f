"""What a method says about itself; the contract holds it to its word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

#: What a method may need beyond q, k and v, and how a sentence names it.
NEEDS = {
    "embed": "the embedding stage (it acts on the tokens before the first layer)",
    "hidden": "the hidden states that q, k and v are projected from",
    "projections": "the layer's own query and key projections",
    "tokens": "the token ids",
    "seed": "a seed for the positions it draws",
}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Statements about one instance of a method.

    `paper` are keys of the bibliography. `relative` means that adding one constant to every
    position changes nothing. `extrapolates` means that the literature reports useful results
    beyond the trained length. `cross` means that it has a meaning between two sequences.
    `integer` means that positions are counted, not measured. `length_dependent` means that a row
    depends on the length of the whole, so that cached work goes stale as it grows.
    """

    paper: tuple[str, ...]
    relative: bool
    extrapolates: bool = False
    causal_only: bool = False
    cross: bool = False
    integer: bool = False
    length_dependent: bool = False
    key_projection: bool = True
    axes: int = 1
    max_len: int | None = None
    needs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        unknown = self.needs - NEEDS.keys()
        assert not unknown, f"needs {sorted(unknown)}: not one of {sorted(NEEDS)}"


#: The facts of "none", and so of an empty chain: the identity under `join`.
NEUTRAL = Facts(paper=("haviv2022nopos",), relative=True, extrapolates=True, cross=True)


def join(parts: Iterable[Facts]) -> Facts:
    """The facts of a chain, from those of its parts."""
    parts = [p for p in parts if p != NEUTRAL] or [NEUTRAL]
    if len({p.axes for p in parts}) > 1:
        axes = " and ".join(str(p.axes) for p in parts)
        raise ValueError(f"a chain needs parts for the same space, got parts for {axes} axes")
    every = {"relative", "extrapolates", "cross", "key_projection"}
    joined: dict[str, object] = {}
    for field in fields(Facts):
        values = [getattr(p, field.name) for p in parts]
        if field.name == "paper":
            joined[field.name] = tuple(dict.fromkeys(key for v in values for key in v))
        elif field.name == "needs":
            joined[field.name] = frozenset().union(*values)
        elif field.name == "max_len":
            joined[field.name] = min((v for v in values if v is not None), default=None)
        elif field.name == "axes":
            joined[field.name] = values[0]
        else:
            joined[field.name] = all(values) if field.name in every else any(values)
    return Facts(**joined)  # type: ignore[arg-type]
