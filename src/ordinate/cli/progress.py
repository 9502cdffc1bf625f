"""What a comparison shows while it runs: a live table in a terminal, JSON lines elsewhere."""

from __future__ import annotations

import json
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ordinate.experiments.estimate import said

if TYPE_CHECKING:
    from rich.console import Console, Group

    from ordinate.experiments import Event
    from ordinate.training import Outcome


class Display:
    """Hears the events of a run; time left is of the whole plan, at the pace so far."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self.live: Any = None
        self.begun = time.monotonic()
        self.todo = self.kept = self.done = 0
        self.stage = ""
        self.running: dict[str, tuple[str, float, str]] = {}
        self.scores: dict[str, list[str]] = {}
        self.names: dict[str, str] = {}

    def __enter__(self) -> Display:
        if self.out.is_terminal:
            from rich.live import Live

            self.live = Live(
                console=self.out, get_renderable=self.drawn, refresh_per_second=2, transient=True
            )
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()
        if isinstance(error, KeyboardInterrupt):
            self.out.print(
                f"stopped: {self.done} of {self.todo} runs are done and kept; "
                "the same command goes on from here"
            )

    def hear(self, event: Event) -> None:
        if event.outcome is not None:
            self._finished(event.outcome)
        elif event.progress is not None:
            p = event.progress
            about = "" if p.accuracy is None else f"accuracy {p.accuracy:.1%}, loss {p.loss:.3f}"
            self.running[p.trial] = (self.names.get(p.trial, p.trial), p.step / p.steps, about)
            self._say(
                event="progress", trial=p.trial, step=p.step, steps=p.steps, accuracy=p.accuracy,
                loss=p.loss,
            )  # fmt: skip
        else:
            self.stage, self.todo, self.kept, self.done = event.stage, event.todo, event.kept, 0
            self.names |= event.names
            self.begun = time.monotonic()
            self.running = {}
            if event.todo or event.kept:
                self._say(event=event.stage, todo=event.todo, kept=event.kept)

    def _finished(self, outcome: Outcome) -> None:
        self.done += 1
        trial = outcome.trial
        self.running.pop(trial.id, None)
        result = outcome.result
        score = None if result is None else result.validation.accuracy
        said_ = "failed" if score is None else f"{score:.1%}"
        self.scores.setdefault(trial.position, []).append(said_)
        self._say(
            event=outcome.status, trial=trial.id, method=trial.position, seed=trial.seed,
            layers=trial.sizes.layers, epochs=trial.recipe.epochs, rate=trial.recipe.rate,
            accuracy=score, reason=outcome.reason, done=self.done, todo=self.todo,
            left_s=self.left,
        )  # fmt: skip

    def _say(self, **words: Any) -> None:
        if self.live is None:
            print(json.dumps(words), file=sys.stderr, flush=True)

    @property
    def left(self) -> int | None:
        """Seconds, at the pace so far."""
        share = self.done + sum(part for _, part, _ in self.running.values())
        if share < 0.1:
            return None
        took = time.monotonic() - self.begun
        return round(took / share * (self.todo - share))

    def drawn(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        left = "" if self.left is None else f", about {said(self.left)} left"
        what = "runs for the learning rates" if self.stage == "sweep" else "runs"
        kept = f", {self.kept} kept from before" if self.kept else ""
        share = self.done + sum(part for _, part, _ in self.running.values())
        bar = Table.grid()
        bar.add_row(ProgressBar(total=max(1, self.todo), completed=share, width=60))
        parts = [Text(f"{self.done} of {self.todo} {what}{kept}{left}", style="bold"), bar]
        now = Table.grid(padding=(0, 2, 0, 0))
        for name, part, about in list(self.running.values())[-8:]:
            now.add_row(name, f"{part:.0%}", about)
        parts += (
            [Text("now", style="dim"), now] if self.running else [Text("starting", style="dim")]
        )
        if self.scores:
            results = Table.grid(padding=(0, 2, 0, 0))
            for name, found in self.scores.items():
                results.add_row(name, Text(" ".join(found[-12:]), style="dim"))
            parts += [Text("done: validation accuracy, a number a seed", style="dim"), results]
        return Group(*parts)
