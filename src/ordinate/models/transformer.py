"""One transformer, whose position is an argument."""

from __future__ import annotations

from torch import Tensor, cat, nn

from ordinate.models.cache import Cache, Memory
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
        first, last = position if isinstance(position, tuple) else (position, position)
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
    ) -> Tensor:
        """`x`: token ids [b, n], or vectors [b, n, dim]; `source` likewise, for the encoder of an
        encoder–decoder.

        valid:     [b, n], False for padding, left or right
        documents: [b, n] or [1, n], an id per packed document; nothing passes between documents
        space:     where the tokens are, if not on a line; with a cache or memory, of all of them
        cache:     `x` are new tokens after those of earlier calls
        memory:    `x` is the next segment of a long text
        """
        if self.decoder is None:
            assert self.encoder is not None
            if cache is not None or memory is not None:
                raise ValueError("a cache or a memory is for causal models: use kind='decoder'")
            space = placed(self.encoder, x, x, space, valid, documents)
            return self.head(self.encoder(x, space, backend=backend), space)
        context = None
        if self.encoder is not None:
            context = self._context(source, source_space, source_valid, cache, backend)
        elif source is not None:
            raise ValueError("source is for an encoder–decoder: use kind='encoder-decoder'")
        if memory is not None:
            return self._with_memory(x, space, valid, documents, memory, cache, context, backend)
        if cache is not None:
            return self._with_cache(x, space, valid, documents, cache, context, backend)
        space = placed(self.decoder, x, x, space, valid, documents)
        return self.head(self.decoder(x, space, context=context, backend=backend), space)

    def _context(
        self,
        source: Tensor | None,
        space: Space | None,
        valid: Tensor | None,
        cache: Cache | None,
        backend: str,
    ) -> tuple[Tensor, Space]:
        assert self.encoder is not None
        if cache is not None and cache.context is not None:
            return cache.context
        if source is None:
            raise ValueError("an encoder–decoder translates something: give source")
        space = placed(self.encoder, source, source, space, valid, None)
        context = (self.encoder(source, space, backend=backend), space)
        if cache is not None:
            cache.context = context
        return context

    def _with_memory(
        self, x: Tensor, space: Space | None, valid: Tensor | None, documents: Tensor | None,
        memory: Memory, cache: Cache | None, context: tuple[Tensor, Space] | None, backend: str,
    ) -> Tensor:  # fmt: skip
        stack = self.decoder
        assert stack is not None
        name = stack.position.name
        if cache is not None or documents is not None:
            what = "a cache" if cache is not None else "packed documents"
            raise ValueError(f"a memory continues one text per row: it does not go with {what}")
        if not stack.position.facts.relative:
            raise ValueError(
                f"{name} is not relative: remembered tokens would change their places; "
                "use a relative method with a memory"
            )
        whole, m = x, len(memory)
        if m and memory.tokens is not None:
            whole = cat([memory.tokens, x], 1)
        if valid is not None or memory.valid is not None:
            old = memory.valid if memory.valid is not None else x.new_ones(len(x), m).bool()
            new = valid if valid is not None else x.new_ones(x.shape[:2]).bool()
            valid = cat([old, new], 1)
        space = placed(stack, x, whole, space, valid, None, size=m + x.shape[1])
        return self.head(stack(x, space, memory=memory, context=context, backend=backend), space)

    def _with_cache(
        self, x: Tensor, space: Space | None, valid: Tensor | None, documents: Tensor | None,
        cache: Cache, context: tuple[Tensor, Space] | None, backend: str,
    ) -> Tensor:  # fmt: skip
        stack, n = self.decoder, x.shape[1]
        assert stack is not None
        if documents is not None:
            raise ValueError("a cache continues one text per row: give documents as rows")
        before = len(cache)
        try:
            whole, valid = cache.extend(x, valid)
            space = placed(stack, x, whole, space, valid, None, seed=cache.seed, size=len(cache))
            cache.seed = space.seed
            epoch = stack.position.epoch(space)
            if before and epoch != cache.epoch and not cache.approximate:
                cache.drop_keys()
                x = whole
            cache.epoch = epoch
            space = space.but(new=x.shape[1])
            hidden = stack(x, space, cache=cache, context=context, backend=backend)
        except BaseException:
            cache.rewind(before)
            raise
        return self.head(hidden[:, -n:], space)
