"""One number per distance as a matrix, and numbers as exact as they are meant to be."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def toeplitz(line: Tensor, n: int, m: int) -> Tensor:
    """n+m-1 numbers per diagonal, lowest first, [..., n+m-1], as the matrix [..., n, m].

    Entry (i, j) is `line[j - i + n - 1]`. Copies are skewed rather than gathered, so that the
    gradient is a plain sum over each diagonal: no scatter, the same bits every time.
    """
    if n == 1:
        return line.unsqueeze(-2)
    length = n + m - 1
    copies = line.unsqueeze(-2).expand(*line.shape[:-1], n, length).flatten(-2)
    # Each row of length-1 entries starts one entry earlier on the line than the row above.
    return copies[..., n - 1 : n - 1 + n * (length - 1)].unflatten(-1, (n, length - 1))[..., :m]


def hankel(line: Tensor, n: int, m: int) -> Tensor:
    """The rows of `toeplitz` in reverse order, as a view without a copy (not for gradients).

    Entry (i, j) is `line[i + j]`: both strides are 1, and nothing of size n × m exists.
    """
    line = line.contiguous()
    return line.as_strided((*line.shape[:-1], n, m), (*line.stride()[:-1], 1, 1))


def exactly(x: Tensor) -> AbstractContextManager[object]:
    """A context in which automatic mixed precision is off: positions choose their precision."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def usable(device: str) -> str:
    """A device that this torch can put a number on."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        has = "cpu and cuda" if torch.cuda.is_available() else "cpu"
        raise ValueError(f"this torch cannot use the device {device!r}: it has {has}") from None
    return device
