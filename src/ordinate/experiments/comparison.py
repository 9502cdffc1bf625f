"""A comparison that was made: what the store holds of a plan, put side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

from ordinate.experiments.plan import Cell, Plan
from ordinate.experiments.stats import Interval, Ranking, contenders, interval, ranking, saturated
from ordinate.experiments.steps import Censored, ranking_steps
from ordinate.tasks import Line, Task
from ordinate.tasks import make as make_task
from ordinate.training import Outcome, Score, Trial

#: The accuracies of which it is said how many steps they took.
THRESHOLDS = (0.95, 0.99)
#: What a method reaches of perfect at the trained length before longer ones are held against it.
LEARNT = 0.99
#: Accuracies that differ by less are not ranked: two methods that both learnt the task did so.
FLOOR = 1 - LEARNT


@dataclass(frozen=True)
class Row:
    """One method in one cell: its outcomes by seed, those missing or failed included."""

    method: str
    cell: Cell
    rate: float
    seeds: Sequence[int]
    outcomes: Mapping[int, Outcome]

    def scores(self, length: int, metric: str, part: str = "") -> dict[int, float | None]:
        """The test scores by seed; None for a run that failed, or a length that was refused."""
        found: dict[int, float | None] = {}
        for seed in self.seeds:
            score = self._score(seed, length)
            score = score.parts.get(part) if score and part else score
            found[seed] = getattr(score, metric) if score else None
        return found

    def interval(self, length: int, metric: str, part: str = "") -> Interval:
        return interval(self.scores(length, metric, part).values())

    def refused(self, length: int) -> str | None:
        """Why the method has no answer at a length, if it says so."""
        return next((s.refused for seed in self.seeds if (s := self._score(seed, length))), None)

    def _score(self, seed: int, length: int) -> Score | None:
        outcome = self.outcomes.get(seed)
        return outcome.result.test.get(length) if outcome and outcome.result else None

    def steps_to(self, accuracy: float, limit: int) -> Censored:
        """Steps until the first look that reached an accuracy on the validation samples.

        A run that failed never got there; one that was not run yet is not counted.
        """
        values: dict[int, int | None] = {}
        for seed, outcome in self.outcomes.items():
            curve = outcome.result.curve if outcome.result else []
            values[seed] = next((p.step for p in curve if p.accuracy >= accuracy), None)
        return Censored(values, max([limit, *(v for v in values.values() if v)]))

    @property
    def failures(self) -> dict[int, str]:
        """Why runs have no result, by seed."""
        return {s: o.reason for s, o in self.outcomes.items() if o.status != "done"}

    @property
    def missing(self) -> list[int]:
        """The seeds that were not run yet."""
        return [seed for seed in self.seeds if seed not in self.outcomes]

    @property
    def done(self) -> list[Outcome]:
        return [o for s in self.seeds if (o := self.outcomes.get(s)) and o.status == "done"]

    @property
    def unconverged(self) -> list[int]:
        """The seeds whose budget was over while the validation loss still went down."""
        late = (o for o in self.done if o.result and o.result.stop == "budget")
        return [o.trial.seed for o in late]

    def cost(self, name: str) -> float | None:
        """The mean of a field of `Cost` over the runs."""
        values = [getattr(o.cost, name) for o in self.done if o.cost]
        known = [v for v in values if v is not None]
        return fmean(known) if known else None


@dataclass(frozen=True)
class Comparison:
    """A plan and the outcomes there are of it; what `od.compare` returns.

    >>> comparison = od.compare("pattern", ["rope", "none"], seeds=6)     # doctest: +SKIP
    >>> comparison.ranking(32).sentence                                   # doctest: +SKIP
    """

    plan: Plan
    outcomes: Mapping[str, Outcome]
    folder: str = ""
    rates: Mapping[tuple[str, Cell], float] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, outcomes: Iterable[Outcome], folder: str = "") -> Comparison:
        known = {outcome.trial.id: outcome for outcome in outcomes}
        return cls(plan, known, folder, chosen(plan, known))

    @cached_property
    def task(self) -> Task:
        return make_task(self.plan.task)

    @property
    def metric(self) -> str:
        """What is ranked: "accuracy" or "loss"."""
        return self.task.metric

    @property
    def lengths(self) -> list[int]:
        """The trained length and those beyond, in order."""
        return sorted({self.task.length, *self.plan.lengths})

    def lines(self, length: int | None = None, part: str = "") -> list[Line]:
        """What chance, a reader without order and a perfect one score; of a part, if it is known."""
        length = None if length == self.task.length else length
        return self.task.part_lines(part, length) if part else self.task.lines(length)

    @cached_property
    def rows(self) -> list[Row]:
        """Every method in every cell, in the order of the plan."""
        trials = self.plan.final(dict(self.rates))
        found: dict[tuple[str, Cell], list[Trial]] = {}
        for trial in trials:
            cell = Cell(trial.sizes.layers, trial.recipe.epochs)
            found.setdefault((trial.position, cell), []).append(trial)
        return [
            Row(
                method, cell, group[0].recipe.rate, [t.seed for t in group],
                {t.seed: self.outcomes[t.id] for t in group if t.id in self.outcomes},
            )
            for (method, cell), group in found.items()
        ]  # fmt: skip

    def row(self, method: str, cell: Cell | None = None) -> Row:
        cell = cell or self.plan.cells[0]
        return next(r for r in self.rows if r.method == method and r.cell == cell)

    def within(self, cell: Cell | None = None) -> list[Row]:
        """The rows of a cell, the first by default."""
        cell = cell or self.plan.cells[0]
        return [row for row in self.rows if row.cell == cell]

    @property
    def missing(self) -> int:
        return sum(len(row.missing) for row in self.rows)

    def ranking(
        self, length: int | None = None, cell: Cell | None = None, part: str = ""
    ) -> Ranking:
        """Who is better than whom at a length, and who is left out and why."""
        key = (length or self.task.length, cell or self.plan.cells[0], part)
        if key not in self._rankings:
            self._rankings[key] = self._ranking(*key)
        return self._rankings[key]

    @cached_property
    def _rankings(self) -> dict[tuple[int, Cell, str], Ranking]:
        return {}

    def _ranking(self, length: int, cell: Cell, part: str) -> Ranking:
        rows = self.within(cell)
        names, out = contenders(
            [row.method for row in rows],
            failed=[row.method for row in rows if row.failures],
            unconverged=[row.method for row in rows if row.unconverged],
            equal_budget=self.plan.equal_budget,
        )
        out |= {row.method: "not finished" for row in rows if row.missing and not row.failures}
        for row in rows:
            if row.method in names and length != self.task.length:
                if why := row.refused(length):
                    out[row.method] = f"refuses: {why}"
                elif not self.learnt(row):
                    out[row.method] = "had not learnt it at the trained length"
        scores = {row.method: row.scores(length, self.metric, part) for row in rows}
        better = "more" if self.metric == "accuracy" else "less"
        floor = FLOOR if self.metric == "accuracy" else 0.0
        return ranking(scores, better=better, left_out=out, floor=floor)

    def learnt(self, row: Row) -> bool:
        """Whether a method reached nearly all that can be reached at the trained length."""
        if self.metric != "accuracy":
            return True
        mean = row.interval(self.task.length, "accuracy").mean
        return mean is not None and mean >= LEARNT * self.perfect

    @cached_property
    def perfect(self) -> float:
        return next((line.value for line in self.lines() if line.name == "perfect"), 1.0)

    def steps(self, accuracy: float, cell: Cell | None = None) -> dict[str, Censored]:
        """Steps to an accuracy, by method."""
        limit = self._limit(cell or self.plan.cells[0])
        return {row.method: row.steps_to(accuracy, limit) for row in self.within(cell)}

    def ranking_steps(self, accuracy: float, cell: Cell | None = None) -> Ranking:
        """Who was there sooner."""
        return ranking_steps(self.steps(accuracy, cell))

    def _limit(self, cell: Cell) -> int:
        """The steps of a run that is not stopped early."""
        seen = [o.result.steps for row in self.within(cell) for o in row.done if o.result]
        size = getattr(self.task, "train", None)
        epoch = size // self.plan.recipe.batch if isinstance(size, int) else 0
        return max([epoch * cell.epochs, *seen, 1])

    def saturated(self, length: int | None = None, cell: Cell | None = None) -> str | None:
        """A sentence if nearly everyone is at the top, so that final accuracy tells nothing."""
        if self.metric != "accuracy":
            return None
        length = length or self.task.length
        scores = {row.method: row.scores(length, "accuracy") for row in self.within(cell)}
        return saturated(scores, self.perfect)


def chosen(plan: Plan, outcomes: Mapping[str, Outcome]) -> dict[tuple[str, Cell], float]:
    """The learning rate of each method in each cell: the best mean validation loss of its sweep.

    A rate at which a run failed is not chosen. Methods whose sweep is not over have no rate yet.
    """
    losses: dict[tuple[str, Cell], dict[float, list[float | None]]] = {}
    for trial in plan.sweep():
        key = (trial.position, Cell(trial.sizes.layers, trial.recipe.epochs))
        outcome = outcomes.get(trial.id)
        if outcome is None or outcome.status == "lost":
            losses[key] = {}
            continue
        loss = outcome.result.validation.loss if outcome.result else None
        if losses.get(key, True):
            losses.setdefault(key, {}).setdefault(trial.recipe.rate, []).append(loss)
    found = {}
    for key, by_rate in losses.items():
        whole = {r: fmean(v) for r, v in by_rate.items() if None not in v}  # type: ignore[arg-type]
        if whole:
            found[key] = min(whole, key=lambda rate: (whole[rate], rate))
    return found
