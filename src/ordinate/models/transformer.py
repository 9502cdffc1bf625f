"""One transformer, whose position is an argument."""

from __future__ import annotations

import torch
from torch import Tensor, cat, nn

from ordinate.dice import Dice
from ordinate.models.cache import Cache, Memory, joined
from ordinate.models.config import Config
from ordinate.models.heads import Head
from ordinate.models.stack import Stack, placed
from ordinate.position import Position
from ordinate.space import Space


class Transformer(nn.Module):
    """An encoder, a decoder, or both, with any method of position.

    `position` is a name, a method, or, for an encoder–decoder, a pair of them; each stack has one
    instance. `cross` is the method of the cross-attention, which has none by default.

    >>> import ordinate as od, torch
    >>> sizes = dict(dim=64, layers=2, heads=4, vocab=100)
    >>> config = od.models.Config(**sizes, kind="decoder", output="tokens")
    >>> model = od.models.Transformer(config, position="rope")
    >>> model(torch.randint(100, (2, 16))).shape
    torch.Size([2, 16, 100])
    """

    def __init__(
        self,
        config: Config,
        position: Position | str | tuple[Position | str, Position | str] = "none",
        *,
        cross: Position | str = "none",
    ) -> None:
        super().__init__()
        self.config = config
        both = config.kind == "encoder-decoder"
        if isinstance(position, Position) and both:
            raise ValueError(
                "an encoder and a decoder have an instance of a method each: "
                "give position=(one, another), or a name"
            )
        if isinstance(position, tuple) and not both:
            raise ValueError(f"kind={config.kind!r} has one stack: give one position, not a pair")
        if not both and cross != "none":
            raise ValueError(f"kind={config.kind!r} has no cross-attention: leave out cross")
        pair = position if isinstance(position, tuple) else (position, position)
        if len(pair) != 2 or (both and isinstance(pair[0], Position) and pair[0] is pair[1]):
            raise ValueError("a pair of positions is two methods, one for each stack")
        first, last = pair
        self.encoder = self.decoder = None
        if config.kind != "decoder":
            self.encoder = Stack(config, first, causal=False)
        if config.kind != "encoder":
            self.decoder = Stack(config, last, causal=True, across=cross if both else None)
        self.head = Head(config)

    def forward(
        self,
        x: Tensor,
        *,
        source: Tensor | None = None,
        valid: Tensor | None = None,
        source_valid: Tensor | None = None,
        documents: Tensor | None = None,
        space: Space | None = None,
        source_space: Space | None = None,
        cache: Cache | None = None,
        memory: Memory | None = None,
        backend: str = "auto",
        dice: Dice | None = None,
    ) -> Tensor:
        """`x`: token ids [b, n], or vectors [b, n, dim]; `source` likewise, for the encoder of an
        encoder–decoder.

        valid:     [b, n], False for padding, left or right
        documents: [b, n] or [1, n], an id per packed document; nothing passes between documents
        space:     where the tokens are, if not on a line; with a cache or memory, of all of them
        cache:     `x` are new tokens after those of earlier calls; `valid` is theirs
        memory:    `x` is the next segment of a long text
        dice:      what dropout is drawn with, so that it can be had again; by default torch's own
        """
        if self.decoder is None:
            assert self.encoder is not None
            if cache is not None or memory is not None:
                raise ValueError("a cache or a memory is for causal models: use kind='decoder'")
            if source is not None or source_valid is not None or source_space is not None:
                raise ValueError("source is for an encoder–decoder: use kind='encoder-decoder'")
            space = placed(self.encoder, x, x, space, valid, documents)
            return self.head(self.encoder(x, space, backend=backend, dice=dice), space)
        if cache is not None:
            # A cache keeps no graph, so an output with a gradient would be a wrong one.
            with torch.no_grad():
                return self._with_cache(
                    x, space, valid, documents, cache, memory, backend,
                    (source, source_space, source_valid),
                )  # fmt: skip
        context = self._context(x, source, source_space, source_valid, backend, dice)
        if context is not None and documents is not None:
            raise ValueError("packed documents would share one source: give them as rows")
        if memory is not None:
            return self._with_memory(x, space, valid, documents, memory, context, backend, dice)
        space = placed(self.decoder, x, x, space, valid, documents)
        hidden = self.decoder(x, space, context=context, backend=backend, dice=dice)
        return self.head(hidden, space)

    def _context(
        self,
        x: Tensor,
        source: Tensor | None,
        space: Space | None,
        valid: Tensor | None,
        backend: str,
        dice: Dice | None = None,
    ) -> tuple[Tensor, Space] | None:
        """What the decoder looks at, and where it is."""
        if self.encoder is None:
            if source is not None or valid is not None or space is not None:
                raise ValueError("source is for an encoder–decoder: use kind='encoder-decoder'")
            return None
        if source is None:
            raise ValueError("an encoder–decoder translates something: give source")
        if len(source) != len(x):
            raise ValueError(f"{len(x)} texts need as many sources, got {len(source)}")
        space = placed(self.encoder, source, source, space, valid, None)
        # The encoder's sites would be those of the decoder.
        dice = None if dice is None else dice.at(-2)
        return self.encoder(source, space, backend=backend, dice=dice), space

    def _with_memory(
        self, x: Tensor, space: Space | None, valid: Tensor | None, documents: Tensor | None,
        memory: Memory, context: tuple[Tensor, Space] | None, backend: str,
        dice: Dice | None,
    ) -> Tensor:  # fmt: skip
        stack = self.decoder
        assert stack is not None
        name = stack.position.name
        if documents is not None:
            raise ValueError("a memory continues one text per row: give documents as rows")
        if not stack.position.facts.relative:
            raise ValueError(
                f"{name} is not relative: remembered tokens would change their places; "
                "use a relative method with a memory"
            )
        whole, m = x, len(memory)
        if m and memory.inputs[0].shape[0] != len(x):
            raise ValueError(
                f"the memory holds {memory.inputs[0].shape[0]} texts, got {len(x)} new segments"
            )
        if m and memory.tokens is not None:
            whole = cat([memory.tokens, x], 1)
        valid = joined(memory.valid, m, valid, x)
        space = placed(stack, x, whole, space, valid, None, size=m + x.shape[1])
        hidden = stack(x, space, memory=memory, context=context, backend=backend, dice=dice)
        return self.head(hidden, space)

    def _with_cache(
        self, x: Tensor, space: Space | None, valid: Tensor | None, documents: Tensor | None,
        cache: Cache, memory: Memory | None, backend: str,
        source: tuple[Tensor | None, Space | None, Tensor | None],
    ) -> Tensor:  # fmt: skip
        stack, n = self.decoder, x.shape[1] if x.ndim > 1 else 0
        assert stack is not None
        if memory is not None:
            raise ValueError("a memory continues one text per row: it does not go with a cache")
        if documents is not None:
            raise ValueError("a cache continues one text per row: give documents as rows")
        if self.head.pool is not None:
            raise ValueError(
                "a pooled output is of a whole text, and a cache gives it piece by piece: "
                "use output='tokens' or 'hidden'"
            )
        if cache.context is not None and source[0] is not None:
            raise ValueError("the cache holds a source already: begin another text with a new one")
        before = len(cache)
        try:
            if cache.context is None:
                cache.context = self._context(x, *source, backend)
            whole, valid = cache.extend(x, valid)
            space = placed(stack, x, whole, space, valid, None, seed=cache.seed, size=len(cache))
            cache.seed, epoch = space.seed, stack.position.epoch(space)
            # None says that a call failed with its keys half computed.
            if before and (
                cache.epoch is None or ((epoch,) != cache.epoch and not cache.approximate)
            ):
                cache.drop_keys()
                x = whole
            cache.epoch = None
            hidden = stack(x, space, cache=cache, context=cache.context, backend=backend)
            cache.epoch = (epoch,)
        except BaseException:
            cache.rewind(before)
            raise
        return self.head(hidden[:, -n:], space)
