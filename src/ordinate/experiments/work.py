"""One piece of work, wherever it runs: train, write the result down, or say why there is none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ordinate.experiments.store import write_result
from ordinate.training import Outcome, Trial, checkpoint, train
from ordinate.training.loop import Failure, Progress
from ordinate.training.outcome import Made

# glibc's names for two of its settings, and a size that no tensor of a trial exceeds.
TRIM, MMAP, LARGE = -1, -3, 1 << 30


def settle(threads: int = 1) -> None:
    """Makes this process one that trains: so many threads, and memory that is kept.

    By default malloc gives large blocks back to the system at once, and every step then pays for
    fresh pages: that is a tenth of a small step.
    """
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high")  # TF32 products, where there is a GPU
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(MMAP, LARGE)
        libc.mallopt(TRIM, LARGE)
    except (OSError, AttributeError):
        pass  # no glibc: only slower


def work(
    trials: Sequence[Trial],
    folder: Path,
    *,
    engine: str,
    device: str = "cpu",
    progress: Callable[[Progress], None] = lambda _: None,
) -> list[Outcome]:
    """Trains trials of one shape; each ends as a result file in its folder under `folder`.

    Several are trained stacked; what cannot be stacked is trained alone, and its record says so.
    """
    try:
        outcomes = train(trials, folder=folder, device=device, engine=engine, progress=progress)
    except Exception as error:
        if len(trials) > 1:
            why = f"trained alone: {_sentence(error)}"
            alone = [
                work([t], folder, engine=engine, device=device, progress=progress)[0]
                for t in trials
            ]
            return [
                o if o.made is None else o.model_copy(update={"made": noted(o.made, why)})
                for o in alone
            ]
        outcomes = [failed(trials[0], error)]
    for outcome in outcomes:
        write(folder, outcome)
    return outcomes


def noted(made: Made, why: str) -> Made:
    """The record of how, with one more note."""
    return made.model_copy(update={"note": "; ".join(filter(None, (made.note, why)))})


def write(folder: Path, outcome: Outcome) -> None:
    """The result file of a trial, instead of its checkpoint; what would be tried again has none."""
    if outcome.status == "lost":
        return
    write_result(folder, outcome)
    checkpoint.remove(folder / outcome.trial.id)


def failed(trial: Trial, error: BaseException) -> Outcome:
    """What an exception means: the trial would fail again, or something around it failed."""
    around = isinstance(error, MemoryError | torch.OutOfMemoryError | OSError) or (
        "can't allocate memory" in str(error)
    )
    if around and not isinstance(error, OSError):
        return Outcome(trial=trial, status="lost", reason=f"out of memory: {_sentence(error)}")
    status = "lost" if around else "failed"
    return Outcome(trial=trial, status=status, reason=_sentence(error))


def _sentence(error: BaseException) -> str:
    """The first line of an exception; those meant for people come without their type."""
    first = (str(error).splitlines() or [""])[0]
    if isinstance(error, ValueError | Failure):
        return first
    return f"{type(error).__name__}: {first}"
