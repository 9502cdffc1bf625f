"""A stack of blocks, with the one instance of the method that serves them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ordinate.dice import Dice
from ordinate.facts import NEEDS
from ordinate.masks import Mask
from ordinate.models.attention import Attention
from ordinate.models.cache import Cache, Memory
from ordinate.models.config import Config
from ordinate.names import make
from ordinate.position import Position, leaves
from ordinate.space import Space
from ordinate.tensors import exactly

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}


class Block(nn.Module):
    """Self-attention, cross-attention in a decoder that has a context, and a feed-forward layer."""

    def __init__(self, config: Config, position: Position, between: Position | None) -> None:
        super().__init__()
        dim, hidden = config.dim, config.hidden or 4 * config.dim
        sizes = {
            "kv_heads": config.kv_heads, "head_dim": config.width, "dropout": config.dropout,
        }  # fmt: skip
        self.pre = config.norm == "pre"

        def layer(method: Position) -> Attention:
            return Attention(dim, config.heads, key_projection=method.facts.key_projection, **sizes)

        self.attention = layer(position)
        self.across = None if between is None else layer(between)
        self.feed = nn.Sequential(
            nn.Linear(dim, hidden), ACTIVATIONS[config.activation](), nn.Linear(hidden, dim)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2 if between is None else 3))
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        position: Position,
        space: Space,
        mask: Mask,
        layer: int,
        backend: str,
        memory: Tensor | None = None,
        cache: Cache | None = None,
        context: tuple[Tensor, Space, Position] | None = None,
        dice: Dice | None = None,
    ) -> Tensor:
        pre = self.pre
        y = self.norms[0](x) if pre else x
        if memory is not None and pre:
            memory = self.norms[0](memory)
        keys = None if cache is None else cache.layer(layer)
        y = self.attention(
            y, position, space, mask=mask, layer=layer, memory=memory, keys=keys,
            backend=backend, dice=_at(dice, 6 * layer + 1),
        )  # fmt: skip
        x = x + self.dropout(y, _at(dice, 6 * layer + 2))
        x = x if pre else self.norms[0](x)
        if self.across is not None and context is not None:
            source, space_source, between = context
            y = self.norms[2](x) if pre else x
            keys = None if cache is None else cache.layer(layer, "across")
            y = self.across.across(
                y, source, between, space, space_source, layer=layer, keys=keys,
                backend=backend, dice=_at(dice, 6 * layer + 3),
            )  # fmt: skip
            x = x + self.dropout(y, _at(dice, 6 * layer + 4))
            x = x if pre else self.norms[2](x)
        y = self.feed(self.norms[1](x) if pre else x)
        x = x + self.dropout(y, _at(dice, 6 * layer + 5))
        return x if pre else self.norms[1](x)


class Dropout(nn.Dropout):
    """Torch's, or by dice."""

    def forward(self, x: Tensor, dice: Dice | None = None) -> Tensor:
        if dice is None or not self.training:
            return super().forward(x)
        return dice.drop(x, self.p)


def _at(dice: Dice | None, site: int) -> Dice | None:
    return None if dice is None else dice.at(site)


class Stack(nn.Module):
    """Embedding, blocks and the one instance of the method that serves them."""

    def __init__(
        self,
        config: Config,
        position: Position | str,
        *,
        causal: bool,
        across: Position | str | None = None,
    ) -> None:
        super().__init__()
        self.config, self.causal = config, causal
        self.tokens = None if config.vocab is None else nn.Embedding(config.vocab, config.dim)
        self.position = _made(position, config)
        self.between = None if across is None else _made(across, config)
        facts = self.position.facts
        if facts.causal_only and not causal:
            raise ValueError(
                f"{self.position.name} is for causal attention only and an encoder looks both "
                "ways: use kind='decoder', or another method"
            )
        if self.between is not None and not self.between.facts.cross:
            raise ValueError(
                f"{self.between.name} means nothing between two sequences: "
                "use cross='none', or a method that does"
            )
        self.blocks = nn.ModuleList(
            Block(config, self.position, self.between) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.dim) if config.norm == "pre" else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        space: Space,
        *,
        backend: str = "auto",
        memory: Memory | None = None,
        cache: Cache | None = None,
        context: tuple[Tensor, Space] | None = None,
        dice: Dice | None = None,
    ) -> Tensor:
        """`x`, token ids [b, n] or vectors [b, n, dim], are the last n of `space`."""
        across = None if context is None or self.between is None else (*context, self.between)
        x = self.dropout(self.embedded(x), _at(dice, 0))
        mask, inputs = Mask(causal=self.causal), []
        for layer, block in enumerate(self.blocks):
            # Outside the block: a method may hand on another space.
            with exactly(x):
                x, space = self.position.embed(x, space, layer)
            inputs.append(x)
            behind = None if memory is None else memory.behind(layer)
            args = (x, self.position, space, mask, layer, backend, behind, cache, across, dice)
            if self.config.checkpoint and self.training and cache is None:
                x = checkpoint(block, *args, use_reentrant=False)  # type: ignore[assignment]
            else:
                x = block(*args)
        if memory is not None:
            memory.update(inputs, space)
        return self.norm(x)

    def embedded(self, x: Tensor) -> Tensor:
        """Token ids to vectors; vectors pass."""
        if x.is_floating_point():
            if x.ndim != 3 or x.shape[2] != self.config.dim:
                width = self.config.dim
                raise ValueError(f"vectors are [b, n, dim] with dim={width}, got {list(x.shape)}")
            return x
        if self.tokens is None:
            raise ValueError(
                "this model takes vectors [b, n, dim]: give its Config a vocab for ids"
            )
        if x.ndim != 2:
            raise ValueError(f"token ids are [b, n], got {list(x.shape)}")
        if torch.compiler.is_compiling() or x.device.type != "cpu":
            return self.tokens(x)
        try:
            return self.tokens(x)
        except IndexError:
            size = self.tokens.num_embeddings
            raise ValueError(
                f"token ids are 0 … {size - 1} (vocab={size}), got {int(x.min())} … {int(x.max())}"
            ) from None


def placed(
    stack: Stack,
    x: Tensor,
    whole: Tensor,
    space: Space | None,
    valid: Tensor | None,
    documents: Tensor | None,
    *,
    size: int | None = None,
    seed: int | None = None,
) -> Space:
    """The space of a stack's input: the one given, or a line, with what the method needs."""
    if x.ndim not in (2, 3) or 0 in x.shape:
        raise ValueError(f"a batch is [b, n] or [b, n, dim] and not empty, got {list(x.shape)}")
    size = size or x.shape[1]
    if space is None:
        for name, t in (("valid", valid), ("documents", documents)):
            wrong = t is not None and (
                t.ndim != 2 or t.shape[1] != size or len(t) not in (1, len(x))
            )
            if t is not None and wrong:
                raise ValueError(f"{name} is [{len(x)}, {size}] here, got {list(t.shape)}")
        valid = None if valid is None else valid.bool()
        space = Space.line(size, device=x.device, valid=valid, documents=documents)
    elif valid is not None or documents is not None:
        space = space.but(
            valid=space.valid if valid is None else valid,
            documents=space.documents if documents is None else documents,
        )
    if space.size != size:
        raise ValueError(f"space places {space.size} tokens, the text has {size}")
    needs = stack.position.facts.needs
    if "tokens" in needs and space.tokens is None:
        if whole.is_floating_point():
            raise ValueError(f"{stack.position.name} needs {NEEDS['tokens']}, got vectors")
        space = space.but(tokens=whole)
    if "seed" in needs and space.seed is None:
        # Drawn only for methods that draw, so that the others leave the random state alone.
        space = space.but(seed=int(torch.randint(2**31, ())) if seed is None else seed)
    return space


def _made(position: Position | str, config: Config) -> Position:
    if isinstance(position, str):
        return make(
            position, dim=config.dim, heads=config.heads, head_dim=config.width,
            layers=config.layers, max_len=config.max_len,
        )  # fmt: skip
    if not isinstance(position, Position):
        raise ValueError(f"position is a name or a method from od.make, got {position!r}")
    for part in leaves(position):
        if part.layers is not None and part.layers < config.layers:
            raise ValueError(
                f"{part.name} was made for {part.layers} layers, the model has {config.layers}: "
                f"make it with layers={config.layers}"
            )
        if part.dim is not None and part.dim != config.dim:
            raise ValueError(
                f"{part.name} was made with dim={part.dim}, the model has {config.dim}: "
                f"make it with dim={config.dim}"
            )
    return position
