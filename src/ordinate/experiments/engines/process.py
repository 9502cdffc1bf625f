"""In this process: one trial after the other; on a GPU, those of one shape stacked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from ordinate.experiments.engines import Say
from ordinate.experiments.work import settle, work
from ordinate.training import Outcome, Trial, checkpoint


class InProcess:
    """`stack`: up to so many trials of one shape are trained at once."""

    name = "in process"

    def __init__(self, folder: Path, *, device: str = "cpu", stack: int = 1, threads: int = 1):
        self.folder, self.device, self.stack = folder, device, stack
        self.before = torch.get_num_threads(), torch.get_float32_matmul_precision()
        settle(threads)

    def run(self, trials: Sequence[Trial], say: Say) -> Iterator[Outcome]:
        for group in self.groups(trials):
            yield from work(group, self.folder, engine=self.name, device=self.device, progress=say)

    def groups(self, trials: Sequence[Trial]) -> Iterator[list[Trial]]:
        """Trials that may be stacked: of one shape, and at the same step of a killed run."""
        if self.stack == 1:
            yield from ([trial] for trial in trials)
            return
        found: dict[tuple[str, int], list[Trial]] = {}
        for trial in trials:
            kept = checkpoint.read(self.folder / trial.id)
            found.setdefault((trial.shape, kept[1]["step"] if kept else 0), []).append(trial)
        for group in found.values():
            yield from (group[i : i + self.stack] for i in range(0, len(group), self.stack))

    def close(self) -> None:
        """Leaves torch as it was, which the program that called may use for something else."""
        threads, precision = self.before
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
