"""Steps to a threshold, with the runs that never got there: censored, not dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from scipy.special import bdtr

from ordinate.experiments.stats import Ranking, ranking


@dataclass(frozen=True)
class Censored:
    """Steps to a threshold, by seed; None is a run that was not there within `limit` steps.

    Such a run, failed or not, is kept as "more than limit", never dropped.
    """

    values: Mapping[Any, int | None]
    limit: int

    def __post_init__(self) -> None:
        if late := [v for v in self.values.values() if v is not None and v > self.limit]:
            raise ValueError(f"steps {late} are beyond the limit {self.limit}: give None for them")

    @property
    def reached(self) -> int:
        return sum(v is not None for v in self.values.values())

    @property
    def median(self) -> int | None:
        """The first step by which at least half of the runs were there; None: beyond limit."""
        return self._sorted()[(len(self.values) - 1) // 2] if self.values else None

    def ends(self, level: float = 0.95) -> tuple[int | None, int | None] | None:
        """The k-th smallest and k-th largest run, k the largest with 1 - 2 P(B < k) ≥ level.

        B is binomial(n, ½). It covers the true median with at least `level` for any distribution,
        censored or not, since the order of the runs stays known. Six runs give smallest and
        largest, 96.9 %; fewer give no interval of 95 %. An end that is None is beyond limit.
        """
        n = len(self.values)
        k = sum(1 - 2 * bdtr(k, n, 0.5) >= level for k in range(n // 2))
        return (self._sorted()[k - 1], self._sorted()[n - k]) if k else None

    def __str__(self) -> str:
        """ "312 (280–350)", "312 (280 to > 624; 5 of 6 reached)", "> 624 (2 of 6 reached)"."""
        n, ends = len(self.values), self.ends() or ()
        middle, *limits = (f"> {self.limit}" if v is None else str(v) for v in (self.median, *ends))
        share = f"{self.reached} of {n} reached" if n else "no runs"
        if self.median is None or not limits:
            return f"{middle} ({share})" if n else share
        if self.reached == n:
            return f"{middle} ({'–'.join(limits)})"
        return f"{middle} ({' to '.join(limits)}; {share})"

    def _sorted(self) -> list[int | None]:
        there = sorted(v for v in self.values.values() if v is not None)
        return [*there, *[None] * (len(self.values) - len(there))]


def sooner(a: Censored, b: Censored) -> tuple[int, int, int, float]:
    """Seeds at which a was sooner, b was, and neither is known; p of the exact sign test.

    There within the other's limit is sooner than not there. p is two-sided and uncorrected: six
    seeds reach 0.031 at best, which survives no correction over several pairs.
    """
    first = second = 0
    shared = a.values.keys() & b.values.keys()
    for x, y in ((a.values[seed], b.values[seed]) for seed in shared):
        first += x is not None and x <= b.limit and (y is None or x < y)
        second += y is not None and y <= a.limit and (x is None or y < x)
    n = first + second
    p = min(1.0, 2 * float(bdtr(min(first, second), n, 0.5))) if n else 1.0
    return first, second, len(shared) - n, p


def ranking_steps(runs: Mapping[str, Censored], *, level: float = 0.95) -> Ranking:
    """`ranking` on steps within the budget, min(steps, L), L the smallest limit: restricted means.

    A run not there at L counts as L, the least it can be, by the same rule for every method:
    methods that are the same stay the same, and nothing is assumed of what happens after L.
    """
    budget = min((run.limit for run in runs.values()), default=0)
    steps = {
        name: {s: budget if v is None else min(v, budget) for s, v in run.values.items()}
        for name, run in runs.items()
    }
    found = ranking(steps, better="less", level=level)
    late = sum(v is None or v > budget for run in runs.values() for v in run.values.values())
    note = f" Runs not there by step {budget}, counted as {budget}: {late}." if late else ""
    return replace(found, sentence=found.sentence + note)
