"""Rotations of queries and keys, stated as data; an engine or the cache applies them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Pairing = Literal["half", "interleaved"]


@dataclass(frozen=True, eq=False)
class Rotation:
    """Turns pairs of channels by angles that depend on the position.

    angles:  fn(pos [b|1, n, axes], *tensors) -> [b|1, n, r/2] or [b|1, h, n, r/2]; the first r
             channels are turned, the others pass through
    gain:    fn(pos, key: bool, *tensors) -> factor on the channels after turning, broadcastable
             to [b, h, n, d]
    pairing: "half" pairs channels (c, c + r/2), "interleaved" pairs (2c, 2c + 1)

    Positions reach both functions as float32, or float64 for float64 inputs, never narrower.
    """

    angles: Callable[..., Tensor]
    tensors: tuple[Tensor, ...] = ()
    pairing: Pairing = "half"
    gain: Callable[..., Tensor] | None = None

    def turn(self, x: Tensor, pos: Tensor, *, key: bool, special: Tensor | None = None) -> Tensor:
        """`x` [b, h, n, d] at positions `pos` [b|1, n, axes]; special tokens [b|1, n] stay put."""
        wide = torch.promote_types(x.dtype, torch.float32)
        pos = pos.to(wide)
        angle = self.angles(pos, *self.tensors)
        if angle.ndim == 3:
            angle = angle.unsqueeze(1)
        # Joined, so that a compiler keeps them in memory and does not compute them for every head.
        cos, sin = torch.cat([angle.cos(), angle.sin()], -1).chunk(2, -1)
        # With a gain, rounding waits until both have acted.
        out = rotate(x.to(wide) if self.gain else x, cos, sin, self.pairing)
        if self.gain is not None:
            out = (out * self.gain(pos, key, *self.tensors)).to(x.dtype)
        return out if special is None else torch.where(special[:, None, :, None], x, out)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, pairing: Pairing) -> Tensor:
    """`x` [..., d] with its first r channels turned by angles given as cos and sin [..., r/2].

    Computed in the type of `cos`, returned in the type of `x`.
    """
    r = 2 * cos.shape[-1]
    head = x[..., :r].to(cos.dtype)
    if pairing == "half":
        a, b = head.chunk(2, -1)
        turned = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
    else:
        a, b = head[..., ::2], head[..., 1::2]
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    turned = turned.to(x.dtype)
    return turned if r == x.shape[-1] else torch.cat([turned, x[..., r:]], -1)


def frequencies(width: int, base: float, like: Tensor, *, over: int | None = None) -> Tensor:
    """base^(-2k/over) for k = 0 … width/2-1, in the type and place of `like`, exact to it."""
    if base <= 0:
        raise ValueError(f"frequencies are powers of a base above 0, got base={base:g}")
    # float64 costs nothing at this size and keeps angles right at large positions.
    fine = torch.float32 if like.device.type == "mps" else torch.float64
    k = torch.arange(width // 2, dtype=fine, device=like.device)
    return (base ** (-2 * k / (over or width))).to(like.dtype)
