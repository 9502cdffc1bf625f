"""Randomness by name, so that a method changes nothing but itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from ordinate.position import Position

M = TypeVar("M", bound=nn.Module)


def derived(seed: int, *words: object) -> int:
    """A seed for one purpose, the same on every machine."""
    text = ":".join(map(str, (seed, *words)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") >> 1


def seeded(build: Callable[[], M], seed: int) -> M:
    """A model whose modules are drawn each from a seed of its own name.

    Drawn one after the other, a method with parameters would shift all that come after it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived(seed, "position"))
        model = build()
        methods = [name for name, module in model.named_modules() if isinstance(module, Position)]
        for name, module in model.named_modules():
            mine = any(name == m or name.startswith(f"{m}.") for m in methods)
            draw = getattr(module, "reset_parameters", None)
            if draw is not None and not mine:
                torch.manual_seed(derived(seed, "init", name))
                draw()
    return model


def order(seed: int, epoch: int, samples: int) -> torch.Tensor:
    """In which order an epoch takes the samples."""
    generator = torch.Generator().manual_seed(derived(seed, "order", epoch))
    return torch.randperm(samples, generator=generator)
