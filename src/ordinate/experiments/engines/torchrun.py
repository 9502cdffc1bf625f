"""One trial on several devices: torchrun's processes split each batch and add up gradients."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from ordinate.experiments.engines import Say
from ordinate.experiments.engines.child import Child
from ordinate.experiments.work import PARTED
from ordinate.training import Outcome, Trial
from ordinate.training.loop import Progress


class Torchrun:
    """Trains one trial after the other, each in so many processes: gloo on CPUs, NCCL on GPUs.

    It computes what one process computes, but for the rounding of sums over a batch.
    """

    name = "torchrun"

    def __init__(self, folder: Path, *, processes: int, device: str = "cpu") -> None:
        if device.startswith("cuda") and processes > torch.cuda.device_count():
            has = torch.cuda.device_count()
            raise ValueError(f"{processes} processes need a GPU each, and this machine has {has}")
        self.folder, self.processes = folder.resolve(), processes
        self.device = device.partition(":")[0]
        self.child: Child | None = None

    def run(self, trials: Sequence[Trial], say: Say) -> Iterator[Outcome]:
        for batch in sorted({trial.recipe.batch for trial in trials}):
            if batch % self.processes:
                raise ValueError(
                    f"a batch of {batch} does not split evenly over {self.processes} processes: "
                    "give another batch or another number of processes"
                )
        for trial in trials:
            yield self._one(trial, say)

    def _one(self, trial: Trial, say: Say) -> Outcome:
        with TemporaryDirectory() as logs:
            return self._heard(trial, logs, say)

    def _heard(self, trial: Trial, logs: str, say: Say) -> Outcome:
        child = self.child = Child(
            "torch.distributed.run", "--standalone", f"--nproc-per-node={self.processes}",
            f"--log-dir={logs}", "-m", "ordinate.experiments.engines.rank",
            trial.model_dump_json(), str(self.folder), self.device,
        )  # fmt: skip
        # Should torchrun be killed, its processes, which hold our end of stdout, end too.
        threading.Thread(target=lambda: (child.process.wait(), child.let_go()), daemon=True).start()
        found: dict[int, Outcome] = {}
        try:
            for line in child.lines():
                said = json.loads(line)
                if "progress" in said:
                    say(Progress(**said["progress"]))
                else:
                    found[said["rank"]] = Outcome.model_validate(said["outcome"])
        finally:
            self.close()
        # The one that failed first makes the others lose it: the reason is its own.
        told = [o for o in found.values() if o.reason != PARTED]
        for status in ("failed", "done", "lost"):
            for outcome in told:
                if outcome.status == status:
                    return outcome
        return Outcome(trial=trial, status="lost", reason=_why(child))

    def close(self) -> None:
        """Ends the processes of the trial that runs, if one does."""
        if self.child is not None:
            self.child.end()
            self.child = None


def _why(child: Child) -> str:
    """What torchrun says of processes that ended without a word."""
    errors = child.errors()
    killed = re.findall(r"Signal \d+ \(\w+\)", errors)
    raised = re.findall(r"^(?:\[rank\d+\]: *)?(\w+(?:\.\w+)*Error: .*)$", errors, re.MULTILINE)
    why = f"one was killed by {killed[-1]}" if killed else raised[-1] if raised else ""
    return f"its processes ended: {why or child.complaint()}"
