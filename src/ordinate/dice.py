"""Randomness that can be had again: numbers that are a function of where they are used."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

# Two rounds of multiply and xor-shift (the constants of murmur3's last mixing) scatter a counter
# over 32 bits well enough that neighbours, seeds and sites are independent (tests/core/test_dice).
FIRST, SECOND, GOLDEN = -2048144789, -1028477387, -1640531527

# The integers as wide as a number of so many bytes.
WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Dice:
    """Dropout that depends on nothing but the seed, the site in the model, the row and the element.

    So it is the same on every device, in a batch split over several, in a captured graph, in
    several trials trained at once, and when a backward pass or a resumed run computes it again.

    seed:  an int32 tensor [], another one for every step
    row:   the first row of this batch, if it is part of a larger one
    """

    seed: Tensor
    row: int = 0

    def at(self, site: int) -> Dice:
        """Other dice for another place in the model."""
        far = ((site + 1) * GOLDEN + 2**31) % 2**32 - 2**31
        # Not a sum: compiled under vmap, torch adds a number to integers in floating point.
        return replace(self, seed=mixed(self.seed ^ far))

    def drop(self, x: Tensor, p: float) -> Tensor:
        """`x` [b, ...] with a share p of its elements zero, and the others larger by 1/(1-p)."""
        return x if p == 0 else x * self.kept(x, p)

    def kept(self, x: Tensor, p: float) -> Tensor:
        """What `drop` multiplies `x` with; p is held to one part in 32,768."""
        rows, width = x.shape[0], x[0].numel()
        # One number of 32 bits serves two elements.
        pairs = (width + 1) // 2
        first = self.row * pairs
        index = torch.arange(first, first + rows * pairs, device=x.device, dtype=torch.int32)
        bits = mixed(index ^ self.seed).view(rows, pairs)
        made = by_bits if x.device.type == "cpu" else by_numbers
        return made(bits, width, p, x.dtype).reshape(x.shape)


def by_bits(bits: Tensor, width: int, p: float, dtype: torch.dtype) -> Tensor:
    """0 or 1/(1-p) [rows, width] from bits [rows, pairs], by reading numbers as other numbers.

    For CPUs, on which booleans and selections cost ten times as much.
    """
    halves = bits.view(torch.int16)[:, :width]
    # All bits where an element stays, none where it goes: the sign of a difference, halved so
    # that it fits.
    stays = (halves >> 1).sub_(round(p * 32768) - 16384).bitwise_right_shift_(15).bitwise_not_()
    whole = WHOLE[dtype.itemsize]
    scale = torch.full((), 1 / (1 - p), dtype=dtype, device=bits.device).view(whole)
    return stays.to(whole).bitwise_and_(scale).view(dtype)


def by_numbers(bits: Tensor, width: int, p: float, dtype: torch.dtype) -> Tensor:
    """The same, by arithmetic alone, which torch 2.11 can stack and inductor fuse."""
    halves = torch.stack([bits & 0xFFFF, _shifted(bits, 16, 0xFFFF)], -1).flatten(1)[:, :width]
    goes = ((halves ^ 0x8000) >> 1).sub_(round(p * 32768)).bitwise_right_shift_(31)
    return goes.add_(1).to(dtype).mul_(1 / (1 - p))


def mixed(x: Tensor) -> Tensor:
    """Each int32 scattered over all 32 bits, in place."""
    x.bitwise_xor_(_shifted(x, 16, 0xFFFF)).mul_(FIRST)
    x.bitwise_xor_(_shifted(x, 13, 0x7FFFF)).mul_(SECOND)
    return x.bitwise_xor_(_shifted(x, 16, 0xFFFF))


def _shifted(x: Tensor, by: int, mask: int) -> Tensor:
    """A shift that draws in zeros, where torch's copies the sign."""
    return (x >> by).bitwise_and_(mask)
