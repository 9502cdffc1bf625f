"""What a model keeps between calls: keys and values for decoding, hidden states for segments."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch
from torch import Tensor, cat

from ordinate.attend import Attend
from ordinate.space import Space


class Keys:
    """One layer's keys, values and what `Position.remember` returned, in buffers that grow.

    Keys are kept with their rotation, so that a step turns only the new ones, unless something
    reads keys that a rotation would change. Nothing here carries a gradient.
    """

    def __init__(self) -> None:
        self.length = 0
        self.turned = 0
        self._buffers: dict[str, Tensor] = {}

    def extend(
        self, k: Tensor, v: Tensor, kept: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Appends keys and values [b, h, n, d] and returns all."""
        kept = {name: self._append(f"kept.{name}", t, 1) for name, t in kept.items()}
        k, v = self._append("k", k, 2), self._append("v", v, 2)
        self.length = k.shape[2]
        return k, v, kept

    def stored(self) -> tuple[Tensor, Tensor]:
        k, v = (self._buffers[name][:, :, : self.length] for name in ("k", "v"))
        return k, v

    def settle(self, a: Attend) -> Attend:
        """Stores the rotation of the new keys of a stated problem, if it may be stored."""
        if not a.rotations or a.needs_raw_keys:
            return a
        with torch.no_grad():
            a.k[:, :, self.turned :] = a.fresh_keys()
        self.turned = self.length
        return a.but(turned=self.turned)

    def _append(self, name: str, new: Tensor, dim: int) -> Tensor:
        new = new.detach()
        end = self.length + new.shape[dim]
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape[dim] < end:
            # Doubling makes a long text cost a constant number of copies per token.
            shape = list(new.shape)
            shape[dim] = max(end, 2 * self.length)
            grown = new.new_empty(shape)
            if buffer is not None:
                grown.narrow(dim, 0, self.length).copy_(buffer.narrow(dim, 0, self.length))
            self._buffers[name] = buffer = grown
        buffer.narrow(dim, self.length, end - self.length).copy_(new)
        return buffer.narrow(dim, 0, end)


class Cache:
    """Hand one to every call of a causal model, with only the new tokens, and decoding equals
    one pass over all of them. It is for inference: nothing that comes out carries a gradient.

    Some methods change what is cached as the text grows (`facts.length_dependent`): then the
    text so far is computed again. `Cache(approximate=True)` keeps the old keys instead.

    >>> import ordinate as od, torch
    >>> config = od.models.Config(dim=16, layers=1, heads=2, vocab=9, kind="decoder", output="tokens")
    >>> model, cache = od.models.Transformer(config, "rope"), od.models.Cache()
    >>> logits = model(torch.tensor([[1, 5, 2]]), cache=cache)
    >>> logits = model(logits[:, -1:].argmax(-1), cache=cache)
    >>> len(cache)
    4
    """

    def __init__(self, *, approximate: bool = False) -> None:
        self.approximate = approximate
        self.seed: int | None = None
        self.clear()

    def clear(self) -> None:
        """Forgets the text, and the source of an encoder–decoder."""
        self.inputs: Tensor | None = None
        self.valid: Tensor | None = None
        self.context: tuple[Tensor, Space] | None = None
        self.epoch: Hashable = None
        self._layers: dict[tuple[int, str], Keys] = {}

    def __len__(self) -> int:
        return 0 if self.inputs is None else self.inputs.shape[1]

    def layer(self, layer: int, kind: str = "self") -> Keys:
        """The keys of one layer."""
        return self._layers.setdefault((layer, kind), Keys())

    def rewind(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        if not 0 <= length <= len(self):
            raise ValueError(f"the cache holds {len(self)} tokens, it cannot go back to {length}")
        if length == 0:
            self.clear()
        if self.inputs is not None:
            self.inputs = self.inputs[:, :length]
        if self.valid is not None:
            self.valid = self.valid[:, :length]
        for (_, kind), keys in self._layers.items():
            if kind == "self":
                keys.length, keys.turned = min(keys.length, length), min(keys.turned, length)

    def drop_keys(self) -> None:
        """Forgets the keys and keeps the text, to compute it again."""
        self._layers = {key: keys for key, keys in self._layers.items() if key[1] == "across"}

    def extend(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The whole text, and which of it is valid, with `x` at the end."""
        old = self.inputs
        if old is not None and old.shape[0] != x.shape[0]:
            raise ValueError(f"the cache holds {old.shape[0]} texts, got {x.shape[0]} new ones")
        if valid is not None and list(valid.shape) != [*x.shape[:2]]:
            raise ValueError(
                f"beside a cache valid is that of the new tokens, {[*x.shape[:2]]}, got "
                f"{list(valid.shape)}"
            )
        whole = joined(self.valid, len(self), valid, x)
        if valid is not None and whole is not None and (whole[:, :-1] & ~whole[:, 1:]).any():
            raise ValueError(
                "a cache goes on behind the last token: pad texts in front, not behind"
            )
        self.valid = whole
        self.inputs = x.detach() if old is None else cat([old, x.detach()], 1)
        return self.inputs, self.valid


class Memory:
    """Segment memory (Transformer-XL): the last `length` inputs of every layer, detached.

    Hand one to every call of a causal model with a relative method, one segment at a time. The
    layers project what is remembered again, so that the projections get their gradient from it.
    """

    def __init__(self, length: int) -> None:
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"a memory keeps a whole number of tokens, 1 or more, got {length!r}")
        self.length = length
        self.clear()

    def clear(self) -> None:
        """Forgets everything; for the first segment of a new text."""
        self.inputs: list[Tensor] = []
        self.tokens: Tensor | None = None
        self.valid: Tensor | None = None

    def __len__(self) -> int:
        return self.inputs[0].shape[1] if self.inputs else 0

    def behind(self, layer: int) -> Tensor | None:
        """What a layer remembers, [b, ≤length, dim]."""
        return self.inputs[layer] if self.inputs else None

    def update(self, inputs: list[Tensor], space: Space) -> None:
        """Takes in what entered each layer, and the space of memory and segment."""
        if self.inputs:
            inputs = [cat([a, b], 1) for a, b in zip(self.inputs, inputs, strict=True)]
        self.inputs = [x[:, -self.length :].detach() for x in inputs]
        self.tokens, self.valid = (
            None if t is None else t[:, -self.length :] for t in (space.tokens, space.valid)
        )


def joined(old: Tensor | None, m: int, new: Tensor | None, x: Tensor) -> Tensor | None:
    """Which of m earlier tokens and those of `x` are valid, [b, m + n]; None for all."""
    if old is None and new is None:
        return None
    old, new = (
        x.new_ones(len(x), size, dtype=torch.bool) if part is None else part
        for part, size in ((old, m), (new, x.shape[1]))
    )
    return cat([old, new], 1)
