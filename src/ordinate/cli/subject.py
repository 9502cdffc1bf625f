"""A method made to be looked at: with sizes, with what it cannot do without, with a problem."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ordinate.attend import Attend
from ordinate.checks import check
from ordinate.cite import reference
from ordinate.facts import NEEDS
from ordinate.masks import Mask
from ordinate.methods import INDEX, find
from ordinate.names import SIZES, convert, head_width, make, parse, split
from ordinate.position import Position, Sources, leaves
from ordinate.space import Space
from ordinate.testing.case import draw as draw_parameters

#: The sizes at which the command makes every method, unless told others.
MADE = {"dim": 512, "heads": 8, "head_dim": 64, "layers": 6, "max_len": 2048}


def said(sizes: dict[str, int]) -> str:
    """Sizes in words."""
    return (
        f"dim {sizes['dim']}, {sizes['heads']} heads of {sizes['head_dim']}, "
        f"{sizes['layers']} layers, max_len {sizes['max_len']}"
    )


SAID = said(MADE)

# What some methods cannot do without and no size gives: a method to wrap, a grid to cover.
INNER = "sinusoidal"
SIDE = 14


@dataclass(frozen=True, kw_only=True)
class Scene:
    """How to look: how many tokens, which direction, which layer, which seed."""

    length: int = 128
    causal: bool = False
    layer: int = 0
    batch: int = 1
    seed: int = 0
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    #: Every token the same, seen through one projection for q and k: only places are left to tell.
    alike: bool = False
    sizes: dict[str, int] = field(default_factory=MADE.copy)


def complete(name: str) -> str:
    """The name with what it cannot do without: swin becomes swin:height=14,width=14."""
    pieces = []
    for piece in split(name):
        head, inner, options = parse(piece)
        if head != "none":
            for key, parameter in inspect.signature(find(head)).parameters.items():
                if parameter.default is not parameter.empty or key in SIZES or key in options:
                    continue
                if key == "of":
                    inner = complete(inner or INNER)
                else:
                    options[key] = str(SIDE)
        tail = ",".join(f"{key}={value}" for key, value in options.items())
        pieces.append(head + (f"({inner})" if inner else "") + (f":{tail}" if tail else ""))
    return "+".join(pieces)


def made(name: str, sizes: dict[str, int] | None = None, *, draw: bool = False) -> Position:
    """A method at the sizes of the command, or others; `draw` draws what it learns at random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        position = make(complete(name), **{**MADE, **(sizes or {})})
    if draw:
        draw_parameters(position)
    return position


def sized(text: str) -> dict[str, int]:
    """ "dim=64,heads=4" as all sizes; the width of a head follows from the two."""
    written = parse(f"sizes:{text}")[2]
    if unknown := [key for key in written if key not in SIZES]:
        raise ValueError(f"{unknown[0]} is no size: --sizes takes {', '.join(SIZES)}")
    sizes = {**MADE, **{key: convert(key, value, int) for key, value in written.items()}}
    if "head_dim" not in written:
        sizes["head_dim"] = head_width(sizes["dim"], sizes["heads"])
    return sizes


def learn(position: Position, path: str) -> None:
    """Loads what a method learnt: its own state dict, or that of a model it is part of."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"--state: {error.strerror}: {path}") from None
    except Exception:
        # What is no state dict fails in as many ways as there are files.
        raise ValueError(f"--state: {path} is no state dict saved by torch.save") from None
    own = position.state_dict()
    tensors = isinstance(state, dict) and all(isinstance(t, Tensor) for t in state.values())
    if not own:
        raise ValueError("--state has no use here: this method learns nothing")
    if not tensors:
        raise ValueError(f"--state: {path} holds more than tensors: save model.state_dict()")
    first = next(iter(own))
    fits = {}
    for key in (key for key in state if key.endswith(first)):
        prefix = key.removesuffix(first)
        found = {name: state.get(prefix + name) for name in own}
        if all(t is not None and t.shape == own[name].shape for name, t in found.items()):
            fits[prefix] = found
    if len(fits) > 1:
        several = ", ".join(prefix.removesuffix(".") for prefix in fits)
        raise ValueError(f"--state: {path} holds several: save the state of one of {several}")
    if fits:
        position.load_state_dict(fits.popitem()[1])
        return
    shapes = ", ".join(f"{name} {list(t.shape)}" for name, t in own.items())
    raise ValueError(f"--state: {path} holds no {shapes}: give the model's sizes with --sizes")


def family(name: str) -> str:
    """The folder a method lives in."""
    return INDEX[name].split(".")[0] if name in INDEX else "-"


def about(position: Position, sizes: dict[str, int] = MADE) -> dict[str, str]:
    """The facts in words, for people."""
    facts = position.facts
    count = sum(p.numel() for p in position.parameters())
    needs = [NEEDS[name] for name in sorted(facts.needs)]
    given = {
        "relative": "yes: only differences of positions matter" if facts.relative else "no",
        "causal only": "yes" if facts.causal_only else "no",
        "extrapolates": "yes, as published" if facts.extrapolates else "not known to",
        "between two sequences": "yes" if facts.cross else "no",
        "positions": ("whole steps" if facts.integer else "any numbers")
        + (f" on {facts.axes} axes" if facts.axes > 1 else ""),
        "longest": f"{facts.max_len} positions" if facts.max_len else "no limit",
        "parameters": f"{count:,}" + (f" ({said(sizes)})" if count else ""),
        "needs": ", ".join(needs) or "q and k only",
        "papers": "; ".join(f"{r.by} {r.year}, {r.title}" for r in map(reference, facts.paper)),
    }
    if facts.length_dependent:
        given["cache"] = "goes stale as the context grows"
    return given


def one_line(position: Position) -> str:
    """The facts in brief."""
    facts = position.facts
    count = sum(p.numel() for p in position.parameters())
    said = ["relative" if facts.relative else "absolute"]
    said += ["causal only"] if facts.causal_only else []
    said += ["extrapolates"] if facts.extrapolates else []
    said += [f"{count:,} parameters" if count else "no parameters"]
    papers = "; ".join(f"{p.by} {p.year}" for p in map(reference, facts.paper))
    return ", ".join([*said, papers])


def space(position: Position, scene: Scene) -> Space:
    """Tokens on a line, or on the method's own grid; with ids and a seed for methods that ask."""
    if position.facts.axes == 2:
        sides = [parse(leaf.name)[2] for leaf in leaves(position)]
        height, width = (
            next((int(side[key]) for side in sides if key in side), SIDE)
            for key in ("height", "width")
        )
        return Space.grid(height, width, device=scene.device).but(seed=scene.seed)
    # Numbers of four digits, with something between them.
    place = torch.arange(scene.length, device=scene.device) % 6
    tokens = torch.where(place < 4, place, 99)[None]
    return Space.line(scene.length, device=scene.device).but(seed=scene.seed, tokens=tokens)


def vectors(position: Position, scene: Scene) -> Tensor | None:
    """What the method adds to tokens, or to what q comes from, [n, dim]; None if nothing."""
    where = space(position, scene)
    x = torch.zeros(1, where.size, scene.sizes["dim"])
    x, where = position.embed(x, where, 0)
    q = position.before(Sources(x, x, x), where, scene.layer).q
    return q[0] if q.any() else None


def problem(
    position: Position, scene: Scene, q: Tensor | None = None, k: Tensor | None = None
) -> Attend:
    """The problem a method states for q and k, or for random ones, hidden states and all.

    This walks the same hooks as a model does, so it serves the methods that od.attention cannot.
    """
    if position.facts.causal_only and not scene.causal:
        raise ValueError(f"{position.name} is for causal attention only: give --causal")
    generator = torch.Generator().manual_seed(scene.seed)
    dim, heads, head_dim = (scene.sizes[key] for key in ("dim", "heads", "head_dim"))
    where = space(position, scene)
    n = where.size

    def normal(*shape: int) -> Tensor:
        # The same numbers in every type and on every device, up to rounding.
        x = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return x.to(scene.device, scene.dtype)

    x = (
        normal(1, 1, dim).expand(scene.batch, n, dim)
        if scene.alike
        else normal(scene.batch, n, dim)
    )
    for layer in {0, scene.layer}:
        x, where = position.embed(x, where, layer)
    sources = position.before(Sources(x, x, x), where, scene.layer)
    kept = position.remember(sources.k, where, scene.layer)
    project_q, project_k = (
        _projection(normal(dim, heads * head_dim) / dim**0.5, heads) for _ in range(2)
    )
    if scene.alike:
        project_k = project_q
        # Only the last query looks, so that long contexts are cheap.
        q, k = project_q(sources.q[:, -1:]).transpose(1, 2), project_k(sources.k).transpose(1, 2)
    q = normal(scene.batch, heads, n, head_dim) if q is None else q
    k = normal(scene.batch, heads, n, head_dim) if k is None else k
    a = Attend(
        q, k, normal(*k.shape), where,
        scale=head_dim**-0.5, mask=Mask(causal=scene.causal), layer=scene.layer,
        kept=kept, project_q=project_q, project_k=project_k,
    )  # fmt: skip
    check(position, a)
    return position.attend(a)


def _projection(weight: Tensor, heads: int) -> Callable[[Tensor], Tensor]:
    return lambda x: (x @ weight).unflatten(-1, (heads, -1))
