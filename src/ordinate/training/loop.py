"""From the first step to the outcome: looks, early stopping, checkpoints, tests."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ordinate.tasks import Samples, Task
from ordinate.training import build, checkpoint, looks
from ordinate.training.capture import captured, compiled, seconds
from ordinate.training.cost import Meter, made
from ordinate.training.learner import Learner
from ordinate.training.outcome import Outcome, Point, Result, Score
from ordinate.training.trial import Trial

#: Seconds of training from which compiling pays, which itself takes about forty.
LONG = 120.0
#: Seconds between two checkpoints; they are written at looks.
PAUSE = float(os.environ.get("ORDINATE_PAUSE", "5"))

#: What `checkpoint.read` finds.
Kept = tuple[dict[str, torch.Tensor], dict[str, Any]]


@dataclass(frozen=True)
class Progress:
    """What a running trial says of itself now and then."""

    trial: str
    step: int
    steps: int
    accuracy: float | None = None
    loss: float | None = None


@dataclass
class State:
    """Where one trial stands, besides its tensors; what a checkpoint keeps."""

    step: int = 0
    curve: list[Point] = field(default_factory=list)
    best: int = 0
    best_loss: float = math.inf
    stale: int = 0
    agreed: int = 0
    stop: str = ""
    seconds: float = 0.0
    training: float = 0.0
    resumed: int = 0

    def look(self, point: Point, trial: Trial) -> bool:
        """Takes in a look; True if its weights are the best so far."""
        recipe = trial.recipe
        self.step = point.step
        self.curve.append(point)
        better = point.loss < self.best_loss
        self.stale = 0 if better else self.stale + 1
        if better:
            self.best, self.best_loss = point.step, point.loss
        reached = recipe.goal is not None and point.accuracy >= recipe.goal
        self.agreed = self.agreed + 1 if reached else 0
        if self.agreed >= recipe.agree:
            self.stop = "goal"
        elif recipe.patience is not None and self.stale >= recipe.patience:
            self.stop = "patience"
        return better

    def dump(self) -> dict[str, object]:
        return {**vars(self), "curve": [point.model_dump() for point in self.curve]}

    @classmethod
    def load(cls, kept: dict) -> State:  # type: ignore[type-arg]
        return cls(**{**kept, "curve": [Point(**point) for point in kept["curve"]]})


class Failure(Exception):
    """A trial that cannot go on; the message is its row's reason."""


def train(
    trials: Sequence[Trial],
    *,
    folder: Path | None = None,
    device: str = "cpu",
    engine: str = "in process",
    graph: bool | None = None,
    share: tuple[int, int] = (0, 1),
    progress: Callable[[Progress], None] = lambda _: None,
) -> list[Outcome]:
    """Trains trials of one shape, stacked if there are several, and tests them.

    folder:  where checkpoints are, a folder per trial; a killed run goes on from there, and
             computes what it would have computed
    graph:   capture the step as a CUDA graph; by default on CUDA, where the method allows it
    share:   (rank, ranks) if several processes split each batch
    """
    run = Run(trials, folder, device, share)
    run.prepare(graph)
    run.resume()
    run.train(progress)
    return [run.outcome(i, engine) for i in range(len(trials))]


class Run:
    """Trials in lock-step: their learner, their samples, and where each of them stands."""

    def __init__(
        self, trials: Sequence[Trial], folder: Path | None, device: str, share: tuple[int, int]
    ) -> None:
        self.trials, self.device, self.share = list(trials), device, share
        self.folders = [None if folder is None else folder / trial.id for trial in trials]
        self.task: Task = build.task(trials[0])
        models = [build.model(trial, self.task) for trial in trials]
        data = [build.samples(trial, self.task, "train") for trial in trials]
        self.held_out = [build.samples(trial, self.task, "validation") for trial in trials]
        if len(data[0]) < trials[0].recipe.batch:
            raise Failure(
                f"a batch of {trials[0].recipe.batch} is more than {len(data[0])} samples"
            )
        self.learner = Learner(trials, models, data, device, grid=self.task.grid, share=share)
        self.meter = Meter(device)
        if len(trials) > 1:
            # Under vmap torch cannot see what is kept: a step of the first one alone is counted.
            self.meter.count(Learner(trials[:1], models[:1], data[:1], device, grid=self.task.grid))
        else:
            self.meter.count(self.learner)
        self.best = self.learner.theta.clone()
        self.states = [State() for _ in trials]
        self.failures: dict[int, str] = {}
        self.tests: dict[int, list[Score]] = {}
        self.note, self.saved = "", time.monotonic()

    def prepare(self, graph: bool | None) -> None:
        """Captures the step as a graph, where that is wanted."""
        if graph or (graph is None and torch.device(self.device).type == "cuda"):
            self.note = captured(self.learner)
            if self.learner.replay and seconds(self.learner) * self.learner.steps > LONG:
                self.note = compiled(self.learner)

    def resume(self) -> None:
        """Goes on from checkpoints, if all trials have one of the same step."""
        found = [None if f is None else self._fitting(checkpoint.read(f)) for f in self.folders]
        whole = [f for f in found if f is not None]
        if len(whole) < len(found) or len({state["step"] for _, state in whole}) != 1:
            return
        learner = self.learner
        for i, (tensors, state) in enumerate(whole):
            learner.theta[i].copy_(tensors["theta"])
            learner.optimiser.mean[i].copy_(tensors["mean"])
            learner.optimiser.square[i].copy_(tensors["square"])
            self.best[i].copy_(tensors["best"])
            self.states[i] = State.load(state)
            self.states[i].resumed += 1
        step = max(state.step for state in self.states)
        learner.step_count.fill_(step)
        learner.optimiser.restore(step)

    def _fitting(self, found: Kept | None) -> Kept | None:
        """A checkpoint, if it is of this model and of this trainer; others are started anew."""
        if found is None:
            return None
        tensors, state = found
        sizes = {name: t.shape for name, t in tensors.items()}
        row = self.learner.theta[0].shape
        fits = sizes == dict.fromkeys(("theta", "mean", "square", "best"), row)
        return found if fits and state.keys() == vars(State()).keys() else None

    def train(self, progress: Callable[[Progress], None]) -> None:
        """From where the trials stand to the end of them all."""
        learner, every = self.learner, self.learner.recipe.every
        steps = learner.steps
        step = int(learner.step_count)
        progress(Progress(self.trials[0].id, step, steps))
        begun = time.monotonic()
        while step < steps and self.running:
            due = min(step + every - step % every, steps)
            count = due - step
            while step < due:
                learner.step(step)
                step += 1
            train_loss = (learner.losses / count).tolist()
            learner.losses.zero_()
            trained = time.monotonic() - begun
            self.look(step, train_loss)
            now = time.monotonic()
            for state in self.states:
                state.training += trained / len(self.states)
                state.seconds += (now - begun) / len(self.states)
            begun = now
            if now - self.saved > PAUSE and step < steps and self.running:
                self.save()
            for i, state in enumerate(self.states):
                point = state.curve[-1] if state.curve else None
                seen = (None, None) if point is None else (point.accuracy, point.loss)
                progress(Progress(self.trials[i].id, step, steps, *seen))
        for state in self.states:
            state.stop = state.stop or "budget"

    @property
    def running(self) -> list[int]:
        """The trials that neither stopped nor failed."""
        every = range(len(self.trials))
        return [i for i in every if not self.states[i].stop and i not in self.failures]

    def look(self, step: int, train_loss: list[float]) -> None:
        """Scores the validation samples, and keeps the weights of those that are at their best."""
        tallies = self.learner.scores(self.held_out, self.learner.theta)
        for i in self.running:
            score = tallies[i].score()
            if not math.isfinite(train_loss[i]) or not math.isfinite(score.loss or 0.0):
                self.failures[i] = f"the loss was no longer a number by step {step}"
                continue
            assert score.loss is not None and score.accuracy is not None
            point = Point(
                step=step, train_loss=train_loss[i], loss=score.loss, accuracy=score.accuracy
            )
            if self.states[i].look(point, self.trials[i]):
                self.best[i].copy_(self.learner.theta[i])

    def save(self) -> None:
        """Writes a checkpoint of each trial; a full disk costs the checkpoint, not the run."""
        learner = self.learner
        if self.share[0]:
            return
        for i, folder in enumerate(self.folders):
            if folder is None:
                continue
            tensors = {
                "theta": learner.theta[i],
                "mean": learner.optimiser.mean[i],
                "square": learner.optimiser.square[i],
                "best": self.best[i],
            }
            with suppress(OSError):
                checkpoint.write(folder, tensors, self.states[i].dump())
        self.saved = time.monotonic()

    def outcome(self, i: int, engine: str) -> Outcome:
        """A finished trial as a record."""
        trial, state, task = self.trials[i], self.states[i], self.task
        cost = self.meter.cost(self.learner, state.seconds, state.training / max(1, state.step))
        how = made(self.learner, engine=engine, note=self.note, resumed=state.resumed)
        if i in self.failures:
            return Outcome(
                trial=trial, status="failed", reason=self.failures[i], cost=cost, made=how
            )
        lengths = sorted({task.length, *trial.lengths})
        answered = [n for n in lengths if not self.tested(n)[i].refused]
        if trial.seed == 0 and (folder := self.folders[i]) and not self.share[0]:
            why = looks.keep(folder, self.learner, trial, task, self.best[i], answered)
            how = how.model_copy(update={"note": "; ".join(filter(None, (self.note, why)))})
        result = Result(
            stop=state.stop,  # type: ignore[arg-type]
            steps=state.step,
            best=state.best,
            curve=state.curve,
            validation=self.validated[i],
            test={n: self.tested(n)[i] for n in lengths},
            digest=hashlib.sha256(self.best[i].cpu().numpy().tobytes()).hexdigest(),
        )
        return Outcome(trial=trial, status="done", result=result, cost=cost, made=how)

    def tested(self, length: int) -> list[Score]:
        """Test scores of all trials at a length, or why there are none."""
        if length not in self.tests:
            own = None if length == self.task.length else length
            try:
                data = [build.samples(trial, self.task, "test", own) for trial in self.trials]
                self.tests[length] = self.score(data)
            except ValueError as why:
                self.tests[length] = [Score(refused=str(why)) for _ in self.trials]
        return self.tests[length]

    @cached_property
    def validated(self) -> list[Score]:
        """Validation scores of all trials, once all are trained."""
        return self.score(self.held_out)

    def score(self, data: list[Samples]) -> list[Score]:
        """Scores with the best weights of each trial; long samples a few at a time."""
        tokens = 256 * self.task.length
        rows = max(1, min(256, tokens // data[0].x.shape[1]))
        return [t.score() for t in self.learner.scores(data, self.best, rows)]
