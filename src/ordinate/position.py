"""What a method is, and how methods compose."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from ordinate import readout
from ordinate.attend import Attend
from ordinate.facts import Facts, join
from ordinate.space import Space


class Sources(NamedTuple):
    """What q, k and v are projected from, [b, n, dim]; k and v may be longer (memory before x)."""

    q: Tensor
    k: Tensor
    v: Tensor


class Position(nn.Module):
    """A method: says which attention problem to solve, and never solves it.

    One instance serves a whole stack and is told the layer; parameters that differ per layer have
    a leading axis. Every hook does nothing by default: a method writes the ones it acts in.
    A method has no buffers (tables are computed where they are used) and its parameters are set
    in `reset_parameters`.
    """

    #: Option strings that the contract runs beside the default, e.g. "pairing=interleaved".
    variants: ClassVar[tuple[str, ...]] = ()

    facts: Facts
    name: str = ""
    # The sizes an instance was made for; None where it serves any.
    dim: int | None = None
    heads: int | None = None
    head_dim: int | None = None
    layers: int | None = None

    def embed(self, x: Tensor, space: Space, layer: int) -> tuple[Tensor, Space]:
        """Called with the hidden states [b, n, dim] before each layer; may move tokens too."""
        return x, space

    def before(self, sources: Sources, space: Space, layer: int) -> Sources:
        """Called with what q, k and v are projected from; places are `space.last(length)`."""
        return sources

    def remember(self, x: Tensor, space: Space, layer: int) -> dict[str, Tensor]:
        """What `attend` needs of every key beside k and v, [b, n, ...], from k's source."""
        return {}

    def attend(self, a: Attend) -> Attend:
        """Problem in, problem out."""
        return a

    def epoch(self, space: Space) -> Hashable:
        """What is cached stays valid while this value, for the whole context, stays the same."""
        return 0

    def reset_parameters(self) -> None:
        """Initialises every parameter as the paper does."""

    def domain(self, name: str, value: Tensor) -> Tensor:
        """Any numbers mapped to legal values of the parameter `name`; tests draw with it."""
        return value

    # Plain numbers, for people who have their own model.

    def table(self, n: int) -> Tensor:
        """The vectors that go with the tokens at positions 0 … n-1, [n, dim]."""
        raise ValueError(
            f"{self.name or 'this method'} has no table: it does not give each position a vector"
        )

    def bias(self, n: int, m: int | None = None, *, causal: bool = False, layer: int = 0) -> Tensor:
        """What is added to the scores of n queries (the last of m keys), [heads|1, n, m].

        Causality is stated, not applied: entries for future keys are there too.
        """
        return readout.bias(self, n, n if m is None else m, causal=causal, layer=layer)

    def rotate(
        self,
        q: Tensor,
        k: Tensor,
        *,
        position_ids: Tensor | None = None,
        key_position_ids: Tensor | None = None,
        layer: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """q [b, h, n, d] and k [b, kv, m, d] as this method turns them."""
        return readout.rotate(self, q, k, position_ids, key_position_ids, layer)

    def score_mod(
        self,
        *,
        position_ids: Tensor | None = None,
        offset: int = 0,
        causal: bool = False,
        layer: int = 0,
        reach: int = 8192,
    ) -> Callable[..., Tensor]:
        """A FlexAttention `score_mod(score, b, h, q_idx, kv_idx)`.

        offset: number of keys before the first query
        reach:  the largest distance between two positions that it will meet; beyond it is NaN
        """
        return readout.score_mod(self, position_ids, offset, causal, layer, reach)

    # Positions need float32: made under a narrow default type, or moved by `model.bfloat16()`,
    # this module keeps it.
    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, nn.Parameter) and value.dtype.itemsize < 4:
            value = nn.Parameter(value.float())
        elif isinstance(value, nn.Module) and not isinstance(value, Position):
            narrow = any(p.dtype.itemsize < 4 for p in value.parameters())
            value = value.float() if narrow else value
        super().__setattr__(name, value)  # type: ignore[arg-type]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Position:
        def widened(t: Tensor) -> Tensor:
            out = fn(t)
            narrow = out.is_floating_point() and out.dtype.itemsize < 4
            return t.to(out.device) if narrow else out

        return super()._apply(widened, recurse)

    def extra_repr(self) -> str:
        return self.name


class Chain(Position):
    """Methods one after the other; the empty chain is "none" and changes nothing."""

    def __init__(self, *parts: Position) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.facts = join(p.facts for p in parts)
        self.name = "+".join(p.name for p in parts) or "none"

    def __iter__(self) -> Iterator[Position]:
        return iter(self.parts)  # type: ignore[arg-type]

    def embed(self, x: Tensor, space: Space, layer: int) -> tuple[Tensor, Space]:
        for part in self:
            x, space = part.embed(x, space, layer)
        return x, space

    def before(self, sources: Sources, space: Space, layer: int) -> Sources:
        for part in self:
            sources = part.before(sources, space, layer)
        return sources

    def remember(self, x: Tensor, space: Space, layer: int) -> dict[str, Tensor]:
        return {
            f"{i}.{key}": value
            for i, part in enumerate(self)
            for key, value in part.remember(x, space, layer).items()
        }

    def attend(self, a: Attend) -> Attend:
        whole = a.kept
        for i, part in enumerate(self):
            own = {k.removeprefix(f"{i}."): v for k, v in whole.items() if k.startswith(f"{i}.")}
            a = part.attend(a.but(kept=own))
        return a.but(kept=whole)

    def epoch(self, space: Space) -> Hashable:
        return tuple(part.epoch(space) for part in self)

    def table(self, n: int) -> Tensor:
        own = [part for part in self if type(part).table is not Position.table]
        return own[0].table(n) if len(own) == 1 else super().table(n)

    def reset_parameters(self) -> None:
        for part in self:
            part.reset_parameters()


class Only(Position):
    """A method in some layers of the stack only: "0-5", "0 2", "every 4th", "not every 4th"."""

    def __init__(self, inner: Position, layers: str) -> None:
        super().__init__()
        self.inner = inner
        self.on = layers
        self.facts = inner.facts
        self.name = f"{inner.name} on layers {layers}"
        if "embed" in inner.facts.needs:
            raise ValueError(
                f"{inner.name} acts on the tokens before the first layer: on={layers!r} means "
                "nothing for it"
            )
        self.acts(0)

    def acts(self, layer: int) -> bool:
        """Whether the method acts in this layer; "every 4th" are layers 3, 7, 11 … from 0."""
        if match := re.fullmatch(r"(not )?every ([1-9]\d*)(st|nd|rd|th)?", self.on):
            return ((layer + 1) % int(match[2]) == 0) is (match[1] is None)
        ranges = [re.fullmatch(r"(\d+)(?:-(\d+))?", part) for part in self.on.split()]
        if not all(r and int(r[1]) <= int(r[2] or r[1]) for r in ranges):
            raise ValueError(
                f"on={self.on!r} names no layers: write on=0-5, on=0 2, on=every 4th "
                "or on=not every 4th"
            )
        return any(int(r[1]) <= layer <= int(r[2] or r[1]) for r in ranges if r)

    def table(self, n: int) -> Tensor:
        return self.inner.table(n)

    def before(self, sources: Sources, space: Space, layer: int) -> Sources:
        return self.inner.before(sources, space, layer) if self.acts(layer) else sources

    def remember(self, x: Tensor, space: Space, layer: int) -> dict[str, Tensor]:
        return self.inner.remember(x, space, layer) if self.acts(layer) else {}

    def attend(self, a: Attend) -> Attend:
        return self.inner.attend(a) if self.acts(a.layer) else a

    def epoch(self, space: Space) -> Hashable:
        return self.inner.epoch(space)

    def reset_parameters(self) -> None:
        self.inner.reset_parameters()


def leaves(position: Position) -> list[Position]:
    """The methods inside chains and restrictions."""
    if isinstance(position, Chain):
        return [leaf for part in position for leaf in leaves(part)]
    return leaves(position.inner) if isinstance(position, Only) else [position]
