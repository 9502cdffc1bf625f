"""What comes out of a model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ordinate.models.config import Config
from ordinate.space import Space


class Head(nn.Module):
    """Hidden states [b, n, dim] to what `config.output` names."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.pool = None if config.output in ("tokens", "hidden") else config.pool
        width = config.vocab if config.output == "tokens" else config.outputs
        self.out = nn.Identity() if config.output == "hidden" else nn.Linear(config.dim, width or 0)

    def forward(self, x: Tensor, space: Space) -> Tensor:
        if self.pool is not None:
            if space.documents is not None:
                raise ValueError(
                    "a pooled output is one per row: give documents as rows, not packed"
                )
            x = pooled(x, space.valid, self.pool)
        return self.out(x)


def pooled(x: Tensor, valid: Tensor | None, how: str) -> Tensor:
    """One vector per row, [b, dim], from the valid tokens of x [b, n, dim]."""
    if valid is None:
        return x.mean(1) if how == "mean" else x[:, 0 if how == "first" else -1]
    valid = valid[:, -x.shape[1] :]
    if how == "mean":
        mine = valid[..., None].to(x.dtype)
        return (x * mine).sum(1) / mine.sum(1).clamp_min(1)
    index = torch.arange(x.shape[1], device=x.device)
    score = torch.where(valid, index if how == "last" else -index, -x.shape[1])
    return x[torch.arange(len(x), device=x.device), score.argmax(1)]
