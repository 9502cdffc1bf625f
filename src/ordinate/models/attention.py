"""The attention layer: projections around a problem that the method states and an engine solves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, cat, nn

from ordinate import backends
from ordinate.attend import Attend
from ordinate.checks import check
from ordinate.dice import Dice
from ordinate.masks import Mask
from ordinate.models.cache import Keys
from ordinate.names import head_width
from ordinate.position import Position, Sources
from ordinate.space import Space
from ordinate.tensors import exactly


class Attention(nn.Module):
    """Multi-head attention of `dim` wide tokens, with grouped key heads if `kv_heads` is given.

    `key_projection=False` takes the tokens themselves as keys, cut into heads (TENER).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        key_projection: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if heads % (kv_heads or heads):
            raise ValueError(f"{heads} query heads do not group over {kv_heads} key heads")
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.head_dim, self.dropout = head_dim or head_width(dim, heads), dropout
        wide, narrow = self.heads * self.head_dim, self.kv_heads * self.head_dim
        if not key_projection and dim != narrow:
            raise ValueError(
                f"without a key projection the keys are the tokens: dim={dim} must be "
                f"kv_heads·head_dim = {self.kv_heads}·{self.head_dim}"
            )
        #: The engine that solved the last problem, for records.
        self.solved_by = ""
        #: Told of every problem before it is solved; see `watched`.
        self.watch: Callable[[Attend], None] | None = None
        self.q = nn.Linear(dim, wide)
        self.k = nn.Linear(dim, narrow) if key_projection else nn.Identity()
        self.v = nn.Linear(dim, narrow)
        self.out = nn.Linear(wide, dim)

    def forward(
        self,
        x: Tensor,
        position: Position,
        space: Space,
        *,
        mask: Mask | None = None,
        layer: int = 0,
        memory: Tensor | None = None,
        keys: Keys | None = None,
        backend: str = "auto",
        dice: Dice | None = None,
    ) -> Tensor:
        """Self-attention of `x` [b, n, dim], the last n tokens of `space`.

        The keys before them come from `memory` [b, m-n, dim], which is projected here, or from
        `keys`, this layer's part of a cache.
        """
        behind = x if memory is None else cat([memory, x], 1)
        with exactly(x):
            sources = position.before(Sources(x, behind, behind), space, layer)
            kept = position.remember(sources.k, space, layer)
        q, k, v = self.project_q(sources.q), self.project_k(sources.k), self.project_v(sources.v)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        turned = 0
        if keys is not None:
            turned, (k, v, kept) = keys.turned, keys.extend(k, v, kept)
        a = self._problem(q, k, v, space, mask, layer, kept, dice, turned=turned)
        check(position, a)
        with exactly(x):
            a = position.attend(a)
            a = a if keys is None else keys.settle(a)
        return self._solve(a, backend)

    def across(
        self,
        x: Tensor,
        context: Tensor,
        position: Position,
        space: Space,
        space_context: Space,
        *,
        mask: Mask | None = None,
        layer: int = 0,
        keys: Keys | None = None,
        backend: str = "auto",
        dice: Dice | None = None,
    ) -> Tensor:
        """Cross-attention from `x` [b, n, dim], the last of `space`, to `context` [b, m, dim]."""
        q = self.project_q(x).transpose(1, 2)
        if keys is not None and keys.length:
            k, v = keys.stored()
        else:
            k, v = (p(context).transpose(1, 2) for p in (self.project_k, self.project_v))
            if keys is not None:
                keys.extend(k, v, {})
        here = space.last(x.shape[1])
        special = None if space.special is None else space.special[:, -x.shape[1] :]
        a = self._problem(
            q, k, v, space_context, mask, layer, {}, dice, space_q=Space(here, special=special)
        )
        check(position, a)
        with exactly(x):
            a = position.attend(a)
        return self._solve(a, backend)

    def project_q(self, x: Tensor) -> Tensor:
        """[..., dim] to [..., heads, head_dim]."""
        return self.q(x).unflatten(-1, (self.heads, self.head_dim))

    def project_k(self, x: Tensor) -> Tensor:
        """[..., dim] to [..., kv_heads, head_dim]."""
        return self.k(x).unflatten(-1, (self.kv_heads, self.head_dim))

    def project_v(self, x: Tensor) -> Tensor:
        """[..., dim] to [..., kv_heads, head_dim]."""
        return self.v(x).unflatten(-1, (self.kv_heads, self.head_dim))

    def _problem(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        space: Space,
        mask: Mask | None,
        layer: int,
        kept: Mapping[str, Tensor],
        dice: Dice | None,
        *,
        space_q: Space | None = None,
        turned: int = 0,
    ) -> Attend:
        return Attend(
            q, k, v, space,
            scale=self.head_dim**-0.5,
            mask=(mask or Mask()) & Mask(valid=space.valid, documents=space.documents),
            space_q=space_q, layer=layer, kept=kept, turned=turned,
            dropout=self.dropout if self.training else 0.0, dice=dice,
            project_q=self.project_q, project_k=self.project_k,
        )  # fmt: skip

    def _solve(self, a: Attend, backend: str) -> Tensor:
        if self.watch is not None:
            self.watch(a)
        backend = backends.choose(a) if backend == "auto" else backend
        if not torch.compiler.is_compiling():
            self.solved_by = backend
        return self.out(backends.run(a, backend).transpose(1, 2).flatten(-2))


@contextmanager
def watched(model: nn.Module) -> Iterator[list[Attend]]:
    """The problems that the attention layers of a model state meanwhile, in their order.

    >>> with watched(model) as problems:                                     # doctest: +SKIP
    ...     model(tokens)
    >>> maps = [ordinate.backends.reference.weights(a) for a in problems]    # doctest: +SKIP
    """
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    problems: list[Attend] = []
    for layer in layers:
        layer.watch = problems.append
    try:
        yield problems
    finally:
        for layer in layers:
            layer.watch = None
