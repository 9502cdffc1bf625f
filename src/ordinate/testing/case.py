"""What the contracts run on: one method, in one precision, on one device."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.masks import Mask
from ordinate.models import Attention, Config, Transformer
from ordinate.names import SIZES
from ordinate.position import Position
from ordinate.space import Space

# Batch, heads, tokens and widths all differ, and heads are no power of two.
B, H, N, D = 2, 3, 7, 8
LAYERS = 2
VOCAB = 40
FULL = {"dim": H * D, "heads": H, "head_dim": D, "layers": LAYERS, "max_len": 64}
GRID = 4  # cells in a row of the grid for methods with two axes
SEED = 5


class Skipped(Exception):
    """A contract that says nothing about this method, and why."""


class Broken(AssertionError):
    """A contract that this method breaks, and how."""


def demand(holds: bool | Tensor, why: str) -> None:
    if not holds:
        raise Broken(why)


def skip_if(condition: bool, why: str) -> None:
    if condition:
        raise Skipped(why)


@dataclass(frozen=True)
class Subject:
    """A method under test: `make(**sizes)` gives a new instance, and takes the sizes it needs.

    `base` makes the method without the option that this variant of it has.
    """

    make: Callable[..., Position]
    name: str
    base: Callable[..., Position] | None = None


class Case:
    """A subject in one precision on one device, and the small worlds it is put into."""

    def __init__(self, subject: Subject, dtype: torch.dtype, device: str = "cpu") -> None:
        self.subject, self.dtype, self.device = subject, dtype, torch.device(device)
        self.facts = self.make().facts

    @property
    def directions(self) -> tuple[bool, ...]:
        """The values of `causal` that the method may be run with."""
        return (True,) if self.facts.causal_only else (True, False)

    @property
    def tolerance(self) -> float:
        """How far apart two ways to the same number may be, relative to the largest."""
        return {torch.float64: 1e-10, torch.float32: 2e-4}.get(self.dtype, 0.1)

    @property
    def visible(self) -> float:
        """How far apart two results are, relative to the largest, if not by rounding.

        Anything in narrow precision, where a small effect and rounding look alike.
        """
        return {torch.float64: 2e-10, torch.float32: 4e-4}.get(self.dtype, 0.0)

    def at(self, dtype: torch.dtype) -> Case:
        """The same subject and device in another precision."""
        return Case(self.subject, dtype, str(self.device))

    # The method.

    def make(self, *, drawn: bool = True, **sizes: Any) -> Position:
        """An instance whose parameters are drawn, so that none is zero and passes by doing nothing."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            position = self.subject.make(**{**FULL, **sizes})
        if drawn:
            draw(position)
        position = position.double() if self.dtype == torch.float64 else position
        return position.to(self.device).eval()

    # Its surroundings.

    def tensor(self, *shape: int, seed: int = 0) -> Tensor:
        """Numbers that are the same in every precision, up to rounding."""
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        return x.to(self.device, self.dtype)

    def x(self, n: int = N, b: int = B) -> Tensor:
        """Hidden states [b, n, dim]; a shorter or smaller batch is the beginning of a larger one."""
        return self.tensor(4, 600, FULL["dim"])[:b, :n].clone()

    def tokens(self, n: int = N, b: int = B) -> Tensor:
        """Token ids [b, n] that go with `x`."""
        generator = torch.Generator().manual_seed(1)
        return torch.randint(VOCAB, (4, 600), generator=generator)[:b, :n].to(self.device)

    def place(self, index: Tensor) -> Tensor:
        """Positions [n, axes] of the tokens with these indices."""
        index = index.to(self.device)
        return torch.stack([index // GRID, index % GRID], -1) if self.grid else index[:, None]

    @property
    def grid(self) -> bool:
        return self.facts.axes == 2

    def space(self, n: int = N, b: int = B, **rest: Any) -> Space:
        """`n` tokens on a line, or in rows of a grid."""
        rest = {"tokens": self.tokens(n, b), "seed": SEED, **rest}
        if self.grid:
            return Space.points(self.place(torch.arange(n))[None], **rest)
        line = {key: rest.pop(key) for key in ("valid", "documents") if key in rest}
        return Space.line(n, device=self.device, **line).but(**rest)

    def points(self, positions: Tensor, b: int = B, **rest: Any) -> Space:
        """Tokens at the given positions [n, axes] or [b, n, axes]."""
        n = positions.shape[-2]
        rest = {"tokens": self.tokens(n, b), "seed": SEED, **rest}
        positions = positions if positions.ndim == 3 else positions[None]
        return Space.points(positions.to(self.device), **rest)

    def layers(self, *, heads: int = H, kv_heads: int | None = None) -> nn.ModuleList:
        """Two attention layers with projections large enough to make attention uneven."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            parts = nn.ModuleList(
                Attention(
                    heads * D, heads, kv_heads=kv_heads, key_projection=self.facts.key_projection
                )
                for _ in range(LAYERS)
            ).double()
            for p in parts.parameters():
                nn.init.normal_(p, std=1.5 * (heads * D) ** -0.5)
        return parts.to(self.device, self.dtype)

    def run(
        self,
        position: Position,
        x: Tensor,
        space: Space,
        *,
        layers: nn.ModuleList | None = None,
        causal: bool | None = None,
        mask: Mask | None = None,
        backend: str = "reference",
    ) -> Tensor:
        """Two attention layers with the method in all the places where it may act."""
        causal = self.facts.causal_only if causal is None else causal
        mask = Mask(causal=causal) & (mask or Mask())
        for index, layer in enumerate(layers or self.layers()):
            x, space = position.embed(x, space, index)
            x = x + layer(x, position, space, mask=mask, layer=index, backend=backend)
        return x

    def model(self, position: Position, **config: Any) -> Transformer:
        """A causal transformer of two layers, with token ids as input."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            sizes = {"dim": H * D, "heads": H, "layers": LAYERS, "vocab": VOCAB, "hidden": 16}
            model = Transformer(Config(**{"kind": "decoder", **sizes, **config}), position)
        model.to(self.device, self.dtype)
        return model.eval()

    # What is said of numbers.

    def distance(self, a: Tensor, b: Tensor) -> float:
        """The largest difference, relative to the largest number."""
        if not (a.isfinite().all() and b.isfinite().all()):
            return float("inf")
        a, b = a.detach().double(), b.detach().double()
        return float((a - b).abs().max() / b.abs().max().clamp_min(1e-3))

    def same(self, a: Tensor, b: Tensor, what: str) -> None:
        """Demands equality up to rounding."""
        demand(a.shape == b.shape, f"{what}: shapes {list(a.shape)} and {list(b.shape)}")
        far = self.distance(a, b)
        demand(
            far <= self.tolerance,
            f"{what}: {far:.1e} apart, at most {self.tolerance:.0e}{self.hint(far)}",
        )

    def hint(self, far: float) -> str:
        """What a difference of the size of float32's rounding means in float64."""
        if self.dtype != torch.float64 or not far < 1e-6:
            return ""
        return "; something on the way is float32, such as a function of whole gaps: use gap.to(a.wide)"

    def differ(self, a: Tensor, b: Tensor, what: str) -> None:
        """Demands a difference that rounding does not explain."""
        demand(self.distance(a, b) > self.visible, what)


def own(position: Position) -> list[tuple[str, nn.Parameter]]:
    """The parameters of a method without those of methods inside it."""
    inside = [
        f"{name}." for name, m in position.named_modules() if name and isinstance(m, Position)
    ]
    return [(n, p) for n, p in position.named_parameters() if not n.startswith(tuple(inside))]


def draw(position: Position, seed: int = SEED) -> None:
    """Every parameter from N(0, 0.5), mapped into its domain."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in position.modules():
            if isinstance(module, Position):
                for name, p in own(module):
                    value = 0.5 * torch.randn(p.shape, generator=generator)
                    p.copy_(module.domain(name, value.to(p.device)))


def taking(make: Callable[..., Position]) -> Callable[..., Position]:
    """A class, or a function, called with those of the sizes that it has arguments for."""
    names = inspect.signature(make).parameters

    def made(**sizes: Any) -> Position:
        return make(**{k: v for k, v in sizes.items() if k in names or k not in SIZES})

    return made
