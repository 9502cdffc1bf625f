"""Where trials run: in this process, on local cores or a cluster, or one trial on many devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from ordinate.training import Outcome, Trial
from ordinate.training.loop import Progress

Say = Callable[[Progress], None]


class Engine(Protocol):
    """Runs trials, in any order, and hands back each outcome as it comes."""

    name: str

    def run(self, trials: Sequence[Trial], say: Say) -> Iterator[Outcome]: ...

    def close(self) -> None: ...
