"""What is read off a model: loss, accuracy, operations, memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ordinate.tasks import IGNORED, Samples
from ordinate.training.outcome import Score


def summed(logits: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of all targets that are not `IGNORED`, in nats, added up."""
    return cross_entropy(
        logits.float().flatten(0, -2), y.flatten(), ignore_index=IGNORED, reduction="sum"
    )


@dataclass
class Tallies:
    """Sums over samples, from which scores follow: (loss, right, targets), in float64."""

    sums: dict[str, Tensor] = field(default_factory=dict)

    def add(self, logits: Tensor, data: Samples, part: slice, device: str) -> None:
        """Takes in the logits of the samples in `part`."""
        y = data.y[part].to(device)
        logits = logits.float()
        loss = cross_entropy(
            logits.flatten(0, -2), y.flatten(), ignore_index=IGNORED, reduction="none"
        ).view_as(y)
        scored = y != IGNORED
        right = (logits.argmax(-1) == y) & scored
        wanted = {"": scored, **{k: m[part].to(device) & scored for k, m in data.parts.items()}}
        for name, mask in wanted.items():
            sums = torch.stack([(loss.double() * mask).sum(), (right & mask).sum(), mask.sum()])
            self.sums[name] = self.sums[name] + sums if name in self.sums else sums

    def score(self) -> Score:
        """The means."""
        parts = {name: _score(sums) for name, sums in self.sums.items() if name}
        return _score(self.sums[""]).model_copy(update={"parts": parts})


def _score(sums: Tensor) -> Score:
    loss, right, targets = sums.tolist()
    if not targets:
        return Score()
    return Score(loss=loss / targets, accuracy=right / targets, targets=int(targets))
