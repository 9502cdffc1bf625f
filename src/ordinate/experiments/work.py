"""One piece of work, wherever it runs: train, write the result down, or say why there is none."""

from __future__ import annotations

import ctypes
import gc
import re
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from ordinate.experiments.store import write_result
from ordinate.files import NAMED, digest
from ordinate.training import Outcome, Trial, checkpoint, train
from ordinate.training.loop import Failure, Progress

# glibc's names for two of its settings, and a size that no tensor of a trial exceeds.
TRIM, MMAP, LARGE = -1, -3, 1 << 30
MEMORY, ADVICE = "out of memory", "give smaller batches, or fewer jobs at once"
# Where several processes train one trial.
PARTED = "another process of the trial ended"
# How torch says what it asked for, on a CPU and on a GPU.
WANTED = re.compile(r"tried to allocate ([\d.]+) (\w+)", re.IGNORECASE)


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
    share: tuple[int, int] = (0, 1),
    note: str = "",
    progress: Callable[[Progress], None] = lambda _: None,
) -> list[Outcome]:
    """Trains trials of one shape; each ends as a result file in its folder under `folder`.

    Several are trained stacked; what cannot be stacked is trained alone, or fewer at once if the
    memory was too little, and their records say so.

    share:  (rank, ranks) of several processes that train one trial together; rank 0 writes
    note:   what else the records say
    """
    rank, ranks = share
    if ranks > 1:
        note = f"{ranks} processes"
    try:
        _same_files(trials[0])
        # Collectives and captured graphs do not go together everywhere.
        graph = False if ranks > 1 else None
        outcomes = train(
            trials, folder=folder, device=device, engine=engine, graph=graph, share=share,
            progress=progress,
        )  # fmt: skip
    except Exception as error:
        # Only its words: the error itself holds on to the tensors that were too many.
        outcomes = [failed(trial, error) for trial in trials]
    if len(trials) > 1 and not any(outcome.made for outcome in outcomes):
        return _fewer(outcomes, folder, engine=engine, device=device, progress=progress)
    return [kept(folder, noted(outcome, note), write=rank == 0) for outcome in outcomes]


def _fewer(stacked: list[Outcome], folder: Path, **how: Any) -> list[Outcome]:
    """Trials that could not be trained together, half as many at once or each alone."""
    trials, why = [outcome.trial for outcome in stacked], stacked[0].reason
    size = len(trials) // 2 if why.startswith(MEMORY) else 1
    said = f"{size} trained at once" if size > 1 else "trained alone"
    gc.collect()
    parts = [trials[i : i + size] for i in range(0, len(trials), size)]
    return [o for part in parts for o in work(part, folder, note=f"{said}: {why}", **how)]


def noted(outcome: Outcome, note: str) -> Outcome:
    """With one more note in the record of how."""
    if outcome.made is None or not note:
        return outcome
    whole = "; ".join(filter(None, (note, outcome.made.note)))
    return outcome.model_copy(update={"made": outcome.made.model_copy(update={"note": whole})})


def kept(folder: Path, outcome: Outcome, *, write: bool = True) -> Outcome:
    """Writes the result file of a trial, instead of its checkpoint; if it cannot, it is lost."""
    if outcome.status == "lost" or not write:
        return outcome
    try:
        write_result(folder, outcome)
    except OSError as error:
        return failed(outcome.trial, error)
    with suppress(OSError):
        checkpoint.remove(folder / outcome.trial.id)
    return outcome


def failed(trial: Trial, error: BaseException) -> Outcome:
    """What an exception means: the trial would fail again, or something around it failed."""
    text = str(error)
    wanted = WANTED.search(text)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text:
        size = f" when it wanted {_bytes(wanted)} more" if wanted else ""
        return Outcome(trial=trial, status="lost", reason=f"{MEMORY}{size}: {ADVICE}")
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Outcome(trial=trial, status="lost", reason=f"{where}{error.strerror or text}")
    if isinstance(error, distributed.DistError) or "/gloo/" in text:
        return Outcome(trial=trial, status="lost", reason=PARTED)
    status = "lost" if isinstance(error, Moved | torch.AcceleratorError) else "failed"
    return Outcome(trial=trial, status=status, reason=_sentence(trial, error))


class Moved(Exception):
    """A file of one's own is not what it was when the trial was planned."""


def _same_files(trial: Trial) -> None:
    """Whether this process sees the files that the trial is named after."""
    try:
        now = digest(_names(trial))
    except ValueError as error:
        raise Moved(f"{error}, looked for in {Path.cwd()}") from None
    if now != trial.files:
        raise Moved(f"a file of {trial.task} or {trial.position} changed since the run began")


def _bytes(wanted: re.Match[str]) -> str:
    number, unit = wanted.groups()
    if unit != "bytes":
        return f"{number} {unit}"
    return f"{int(number) / 2**30:.3g} GiB"


def _sentence(trial: Trial, error: BaseException) -> str:
    """The first line of an exception; those meant for people come without their type.

    Those from a file of one's own come with its line.
    """
    first = (str(error).splitlines() or [""])[0]
    if not isinstance(error, ValueError | Failure | Moved):
        first = f"{type(error).__name__}: {first}" if first else type(error).__name__
    own = {Path(m["file"].strip()).resolve() for m in NAMED.finditer(_names(trial))}
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f for f in frames if Path(f.filename).resolve() in own]
    return f"{Path(lines[-1].filename).name}, line {lines[-1].lineno}: {first}" if lines else first


def _names(trial: Trial) -> str:
    return f"{trial.task}+{trial.position}"
