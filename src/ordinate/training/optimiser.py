"""AdamW on one vector per trial, with a learning rate for each of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class AdamW:
    """torch's fused AdamW over the rows of theta [trials, P].

    Moments are rows of `mean` and `square`, so that checkpoints and stacks cut them like theta.
    """

    def __init__(
        self,
        theta: Tensor,
        rates: Sequence[float],
        *,
        decay: float,
        warmup: int,
        clip: float | None,
    ) -> None:
        self.warmup, self.clip = warmup, clip
        self.mean, self.square = torch.zeros_like(theta), torch.zeros_like(theta)
        self.rows = [nn.Parameter(row) for row in theta]
        self.gradient = torch.zeros_like(theta)
        groups = []
        for rate in dict.fromkeys(rates):
            mine = [row for row, its in zip(self.rows, rates, strict=True) if its == rate]
            groups.append({"params": mine, "lr": torch.tensor(rate, device=theta.device)})
        self.rates = list(dict.fromkeys(rates))
        self.steps = [torch.zeros((), device=theta.device) for _ in self.rows]
        capturable = theta.device.type == "cuda"
        self.inner = torch.optim.AdamW(
            groups, weight_decay=decay, fused=True, capturable=capturable
        )
        for i, row in enumerate(self.rows):
            row.grad = self.gradient[i]
            self.inner.state[row] = {
                "step": self.steps[i], "exp_avg": self.mean[i], "exp_avg_sq": self.square[i],
            }  # fmt: skip

    @torch.no_grad()
    def update(self, step: Tensor) -> None:
        """Follows `gradient`, which may be overwritten; `step` counts from 1."""
        if self.clip is not None:
            length = torch.linalg.vector_norm(self.gradient, dim=1, keepdim=True)
            self.gradient.mul_((self.clip / (length + 1e-6)).clamp_max(1))
        if self.warmup:
            for rate, group in zip(self.rates, self.inner.param_groups, strict=True):
                group["lr"].copy_(rate * (step / self.warmup).clamp_max(1))
        self.inner.step()

    def restore(self, step: int) -> None:
        """Goes on from a step whose moments were put back."""
        for count in self.steps:
            count.fill_(step)
