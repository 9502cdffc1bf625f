from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from ordinate.position import Position, Sources
from ordinate.space import Space

At = Literal["tokens", "qk", "qkv"]
Join = Literal["add", "concat"]


class Table(Position):
    """A vector P_p for every position p: what its subclasses, the table methods, share.

        x' = x + P        (join=add)
        x' = M [x ; P]    (join=concat; M is `mix`, dim × 2·dim, without a bias)

    `at` says where: on the "tokens", once, before the first layer; or in every layer on what q
    and k ("qk") or q, k and v ("qkv") are projected from, each source at the places of its own
    tokens. P is computed in float32 or wider whatever x is. Special tokens get P = 0.

    A subclass writes `vectors`; if it has a `max_len`, its positions are 0 … max_len-1. Tokens
    are not multiplied by √dim first, as some papers do: that belongs to the model's embedding.
    """

    def __init__(
        self, *, dim: int, at: At, join: Join, layers: int, max_len: int | None = None
    ) -> None:
        super().__init__()
        self.dim, self.at, self.join = dim, at, join
        needs = frozenset({"embed" if at == "tokens" else "hidden"})
        self.facts = replace(self.facts, needs=needs, max_len=max_len)
        copies = 1 if at == "tokens" else layers
        if join == "concat" and at != "tokens":
            self.layers = layers
        self.mix = nn.Parameter(torch.empty(copies, dim, 2 * dim)) if join == "concat" else None

    def reset_parameters(self) -> None:
        for layer in () if self.mix is None else self.mix:
            nn.init.xavier_uniform_(layer)

    def domain(self, name: str, value: Tensor) -> Tensor:
        # A projection keeps the size of what it projects.
        return value * (2 / value.shape[-1]) ** 0.5 if name == "mix" else value

    def vectors(self, pos: Tensor, layer: int) -> Tensor:
        """P at `pos` [b|1, n]: [b|1, n, dim]; whole if the facts say so, else float32 or wider."""
        raise NotImplementedError

    def embed(self, x: Tensor, space: Space, layer: int) -> tuple[Tensor, Space]:
        here = self.at == "tokens" and layer == 0
        return (self._joined(x, space, layer) if here else x), space

    def before(self, sources: Sources, space: Space, layer: int) -> Sources:
        if self.at == "tokens":
            return sources
        q = self._joined(sources.q, space, layer)
        k = q if sources.k is sources.q else self._joined(sources.k, space, layer)
        if self.at == "qk":
            return Sources(q, k, sources.v)
        return Sources(q, k, k if sources.v is sources.k else self._joined(sources.v, space, layer))

    def table(self, n: int) -> Tensor:
        if n < 1:
            raise ValueError(f"a table is for 1 or more positions, got n={n}")
        like = next(self.parameters(), torch.empty(0))
        return self.vectors(self._places(Space.line(n, device=like.device), n, like.dtype), 0)[0]

    def _joined(self, x: Tensor, space: Space, layer: int) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        p = self.vectors(self._places(space, x.shape[1], wide), layer).to(wide)
        if space.special is not None:
            p = torch.where(space.special[:, -x.shape[1] :, None], 0.0, p)
        if self.mix is None:
            return (x + p).to(x.dtype)
        both = torch.cat([x.to(wide), p.expand(x.shape)], -1)
        return (both @ self.mix[layer].mT.to(wide)).to(x.dtype)

    def _places(self, space: Space, n: int, wide: torch.dtype) -> Tensor:
        """The positions of the last n tokens, [b|1, n], checked if there is an end to them."""
        pos, size = space.last(n)[..., 0], self.facts.max_len
        if size is None:
            return pos.to(wide)
        name = self.name or type(self).__name__
        if pos.is_floating_point():
            raise ValueError(f"{name} counts whole steps: its positions are not {pos.dtype}")
        rule = f"{name} has a vector for positions 0 … {size - 1}, got"
        advice = "give a larger max_len, or shorter sequences"
        if space.unit and space.valid is None and space.documents is None:
            if space.size > size:
                raise ValueError(f"{rule} position {space.size - 1}: {advice}")
            return pos
        # Padding and special tokens may sit anywhere: nothing reads their vectors.
        if (idle := space.idle) is not None:
            pos = torch.where(idle[:, -n:], pos.clamp(0, size - 1), pos)
        # A line that is short enough needs no look, which would make a GPU wait.
        if not (space.unit and space.size <= size) and not torch.compiler.is_compiling():
            outside = pos[(pos < 0) | (pos >= size)]
            if len(outside):
                raise ValueError(f"{rule} position {int(outside[0])}: {advice}")
        return pos


class Trained(Table):
    """A table E [copies, max_len, dim] of trained vectors; a subclass says how they start.

    At the tokens there is one copy; in the layers one for each, or one for all if `shared`.
    """

    def __init__(
        self, *, dim: int, max_len: int, layers: int, at: At, join: Join, shared: bool
    ) -> None:
        super().__init__(dim=dim, at=at, join=join, layers=layers, max_len=max_len)
        self.shared = shared or at == "tokens"
        if not self.shared:
            self.layers = layers
        self.weight = nn.Parameter(torch.empty(1 if self.shared else layers, max_len, dim))

    def vectors(self, pos: Tensor, layer: int) -> Tensor:
        return embedding(pos, self.weight[0 if self.shared else layer])
