"""What came of a trial: the part that is the same on every run, and what it cost here."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field

from ordinate.training.trial import Frozen, Trial


class Score(Frozen):
    """Mean cross-entropy (nats) and accuracy over the scored targets, and how many there were.

    refused: the sentence of a method that has no answer at this length; the numbers are then None
    """

    loss: float | None = None
    accuracy: float | None = None
    targets: int = 0
    parts: dict[str, Score] = Field(default_factory=dict)
    refused: str | None = None


class Point(Frozen):
    """A look at the validation samples while training."""

    step: int
    train_loss: float
    loss: float
    accuracy: float


class Result(Frozen):
    """What a trial computes, bit for bit the same on the same machine.

    stop:        why it ended: "goal" (it reached the goal), "patience" (no better loss for so many
                 looks) or "budget" (the epochs were over)
    best:        the step whose weights had the best validation loss, which are the ones tested
    test:        scores by length, the one trained at and those beyond
    digest:      SHA-256 of the weights tested
    """

    stop: Literal["goal", "patience", "budget"]
    steps: int
    best: int
    curve: list[Point]
    validation: Score
    test: dict[int, Score]
    digest: str


class Cost(Frozen):
    """What it took, which is never the same twice.

    parameters, of_position:  how many are learned, and how many of them by the method
    flops:        floating-point operations of a training step, as torch counts them
    saved:        bytes kept for the backward pass of one step
    peak:         the most bytes the device held; None where it cannot be told
    seconds:      training, looks and all, summed over resumed parts
    step_seconds: of a training step alone, the mean; of a stacked one, its share
    """

    parameters: int
    of_position: int
    flops: int
    saved: int
    peak: int | None
    seconds: float
    step_seconds: float


class Made(Frozen):
    """How and on what it was made."""

    engine: str
    device: str
    threads: int
    attention: str
    graph: bool
    stacked: int
    note: str = ""
    resumed: int = 0
    ordinate: str
    torch: str
    python: str
    machine: str
    commit: str | None
    started: str


class Outcome(Frozen):
    """A finished trial, or one that failed and why: a row of the store.

    status:  "done"; "failed" if it would fail again (a refusal, NaN), which is final; "lost" if
             something around it failed (memory, a killed worker, a full disk), so that the next
             run tries it again
    """

    trial: Trial
    status: Literal["done", "failed", "lost"]
    reason: str = ""
    result: Result | None = None
    cost: Cost | None = None
    made: Made | None = None

    def text(self) -> str:
        """As JSON, for `Outcome.model_validate(json.loads(text))`."""
        # Not model_dump_json, which writes NaN as null.
        return json.dumps(self.model_dump())
