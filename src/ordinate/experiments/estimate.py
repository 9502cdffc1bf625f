"""How long a plan will take here: a few steps of each kind of trial, times how many there are."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ordinate.experiments.work import settle
from ordinate.training import Trial
from ordinate.training.loop import Run

STEPS = 2


def seconds(trials: Sequence[Trial], *, jobs: int, device: str) -> float:
    """The time of all steps and looks, if none stops early; one method stands for all of a depth.

    What cannot even start is left out: it will fail at once.
    """
    settle()
    shares: dict[tuple[str, int], float | None] = {}
    total = 0.0
    for trial in trials:
        kind = (trial.task, trial.sizes.layers)
        if shares.get(kind) is None:
            shares[kind] = _step(trial, device)
        total += (shares[kind] or 0.0) * trial.recipe.epochs
    return total / jobs


def _step(trial: Trial, device: str) -> float | None:
    """Seconds of an epoch of this trial, with its share of looks."""
    try:
        run = Run([trial], None, device, (0, 1))
        run.prepare(None)
        run.learner.step(0)
        _wait(device)
        start = time.perf_counter()
        for step in range(1, 1 + STEPS):
            run.learner.step(step)
        _wait(device)
        step = (time.perf_counter() - start) / STEPS
        start = time.perf_counter()
        run.learner.scores(run.held_out, run.learner.theta)
        look = (time.perf_counter() - start) / trial.recipe.every
    except Exception:
        return None
    return (step + look) * run.learner.per_epoch


def _wait(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def said(seconds: float) -> str:
    """A time for people: 40 s, 7 min, 2 h 20 min, 3 days."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest and hours < 10 else f"{hours} h"
    return f"{round(hours / 24)} days"
