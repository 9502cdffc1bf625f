"""Engines: each solves any problem it does not refuse, and knows no method by name."""

from __future__ import annotations

from torch import Tensor

from ordinate.attend import Attend
from ordinate.backends import reference, sdpa
from ordinate.tensors import exactly

#: In the order in which `auto` asks them. An engine is a module with two functions:
#: `refuses(a) -> str`, empty or one sentence that says why not, and
#: `run(a) -> Tensor`, the outputs [b, h, n, dv] of a problem it does not refuse.
ENGINES = {"sdpa": sdpa, "reference": reference}

# Up to this many scores per head the dense reference is faster than torch's fused kernels.
SMALL = 64 * 64


def refuses(a: Attend, name: str) -> str:
    """Why the engine `name` does not solve this problem, or nothing."""
    if name not in ENGINES:
        raise ValueError(f"no backend is called {name!r}: choose auto, {', '.join(ENGINES)}")
    return ENGINES[name].refuses(a)


def choose(a: Attend) -> str:
    """What `auto` means for this problem."""
    if a.q.shape[2] * a.k.shape[2] <= SMALL:
        return "reference"
    return next(name for name in ENGINES if not refuses(a, name))


def run(a: Attend, name: str = "auto") -> Tensor:
    """Solves a problem with the engine named, which never falls back silently."""
    if name == "auto":
        name = choose(a)
    elif why := refuses(a, name):
        raise ValueError(f"the {name} backend refuses: {why}")
    with exactly(a.q):
        return ENGINES[name].run(a)
