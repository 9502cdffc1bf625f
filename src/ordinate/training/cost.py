"""What a trial costs, and how and on what it was made."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

import ordinate
from ordinate.training.learner import Learner, positions
from ordinate.training.outcome import Cost, Made


class Meter:
    """Counts parameters, operations and kept bytes of a step of one trial."""

    def __init__(self, device: str) -> None:
        self.device, self.flops, self.saved = torch.device(device), 0, 0
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def count(self, learner: Learner) -> None:
        """Runs one gradient of one trial, which changes no weight."""
        seen = set()

        def keep(t: Tensor) -> Tensor:
            storage = t.untyped_storage()
            if storage.data_ptr() not in seen and not isinstance(t, torch.nn.Parameter):
                seen.add(storage.data_ptr())
                self.saved += storage.nbytes()
            return t

        with FlopCounterMode(display=False) as counted, saved_tensors_hooks(keep, lambda t: t):
            learner.probe()
        self.flops = counted.get_total_flops()

    def cost(self, learner: Learner, seconds: float, step_seconds: float) -> Cost:
        """With what it took; the peak is shared by trials that are stacked."""
        mine = {id(p) for position in positions(learner.model) for p in position.parameters()}
        every = list(learner.model.parameters())
        cuda = self.device.type == "cuda"
        peak = torch.cuda.max_memory_allocated(self.device) if cuda else None
        return Cost(
            parameters=sum(p.numel() for p in every),
            of_position=sum(p.numel() for p in every if id(p) in mine),
            flops=self.flops,
            saved=self.saved,
            peak=peak,
            seconds=seconds,
            step_seconds=step_seconds,
        )


def made(learner: Learner, *, engine: str, note: str, resumed: int) -> Made:
    """The record of how and where."""
    device = torch.device(learner.device)
    return Made(
        engine=engine,
        device=device.type,
        threads=torch.get_num_threads(),
        attention=learner.attention,
        graph=learner.replay is not None,
        stacked=len(learner.trials),
        note=note,
        resumed=resumed,
        ordinate=ordinate.__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        machine=torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        commit=commit(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )


@cache
def processor() -> str:
    """The name of the CPU, as far as the system says it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@cache
def commit() -> str | None:
    """The commit of the source this runs from, if it runs from a checkout."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude=*"],
            capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
