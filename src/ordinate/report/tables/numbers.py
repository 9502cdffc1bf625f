"""Numbers as they are read: percent and nats, mean and half-width, steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ordinate.experiments.stats import Interval
from ordinate.experiments.steps import Censored


@dataclass(frozen=True)
class Unit:
    """How scores of a metric are written: accuracy in percent, loss in nats."""

    metric: str

    @property
    def name(self) -> str:
        return "%" if self.metric == "accuracy" else "nats"

    @property
    def difference(self) -> str:
        """What a difference is counted in."""
        return "points" if self.metric == "accuracy" else "nats"

    @property
    def factor(self) -> float:
        return 100.0 if self.metric == "accuracy" else 1.0

    def plain(self, value: float | None) -> str:
        """ "99.8", "0.675"; "–" if there is none."""
        if value is None:
            return "–"
        return f"{value * self.factor:.{1 if self.metric == 'accuracy' else 3}f}"

    def mean(self, one: Interval) -> str:
        """ "99.8 ±0.2": half of the interval; without it if there is one seed alone."""
        if one.mean is None or one.low is None or one.high is None:
            return self.plain(one.mean)
        return f"{self.plain(one.mean)} ±{self.plain((one.high - one.low) / 2)}"


def steps(runs: Censored) -> str:
    """ "312 (280–350)", "312 (280–>624) 5/6", ">624 2/6": median, its range, who got there."""
    middle, *ends = (
        f">{runs.limit}" if v is None else str(v) for v in [runs.median, *(runs.ends() or ())]
    )
    if not runs.values:
        return "–"
    spread = f" ({'–'.join(ends)})" if ends and runs.median is not None else ""
    n = len(runs.values)
    return middle + spread + f" {runs.reached}/{n}" * (runs.reached < n)


def short(value: float | None) -> str:
    """Three digits, or all before the point: "0.0115", "12.3", "8,448"; "–" if there is none."""
    if value is None:
        return "–"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


def whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def rate(value: float) -> str:
    """ "1e-3", "3e-4", "0.01": a learning rate as people write it."""
    mantissa, exponent = f"{value:.3g}" if value >= 0.01 else f"{value:e}", ""
    if "e" in mantissa:
        mantissa, _, exponent = mantissa.partition("e")
        mantissa, exponent = mantissa.rstrip("0").rstrip("."), f"e{int(exponent)}"
    return mantissa + exponent


def count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def listed(names: list[str], last: str = "and") -> str:
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def raised(n: int) -> str:
    """A footnote's number: "¹²"."""
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(n))
