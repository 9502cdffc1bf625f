"""What scores allow one to say: intervals over seeds, paired tests, rankings, steps to a threshold.

Scores are kept by seed; methods are compared over the seeds they share. A score that is None, NaN
or infinite is a failed run. Only `ranking` claims anything, and only from FEWEST paired seeds on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from scipy.special import stdtr, stdtrit

#: With fewer pairs no exact paired test reaches p ≤ 0.05: 2 · 2⁻⁵ is 0.0625, 2 · 2⁻⁶ is 0.031.
FEWEST = 6
SHUFFLES = 1999
Scores = Mapping[Any, float | None]


@dataclass(frozen=True)
class Interval:
    """A mean over n seeds, its limits, the sd (n-1), and p: two-sided t-test of mean 0.

    All but n are None without values; limits, sd and p are None for one. Without spread the
    interval has no width, and p is 1 at mean 0, else 0: limits, not what would be seen again.
    """

    n: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    sd: float | None = None
    p: float | None = None


def interval(values: Iterable[float | None], level: float = 0.95, scale: float = 0.0) -> Interval:
    """mean ± t(n-1, (1+level)/2) · sd / √n over the n values that did not fail.

    Exact for normal values, short for skewed ones. A mean or a range below 1e-12 of the largest
    value (or of `scale`) is rounding, and 0.
    """
    x = np.array([v for v in values if _sound(v)], float)
    if x.size < 2:
        return Interval(x.size, *x.tolist())
    mean, sd, p = map(float, _t_test(x, max(scale, np.abs(x).max())))
    half = float(stdtrit(x.size - 1, (1 + level) / 2)) * sd / math.sqrt(x.size)
    return Interval(x.size, mean, mean - half, mean + half, sd, p)


def paired(a: Scores, b: Scores, level: float = 0.95) -> Interval:
    """The interval of a - b over the seeds at which both have a score; p is the paired t-test."""
    table = _table([a, b])
    return interval(table[:, 0] - table[:, 1], level, _largest(table))


def holm(p: Iterable[float | None]) -> list[float]:
    """Holm's adjusted p, in the order given: with p_(1) ≤ … ≤ p_(m), max_{j≤i} (m-j+1) p_(j).

    Claiming what is ≤ α makes any false claim with probability ≤ α, however the tests depend.
    """
    given = np.array(list(p), float)
    order = given.argsort(kind="stable")
    given[order] = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1))
    return np.minimum(given, 1).tolist()


def noise_floor(differences: Iterable[Interval], level: float = 0.95) -> float | None:
    """The mean difference that just passes the first step of Holm: t(n-1, 1-α/2m) · s / √n.

    m counts the pairs with two seeds or more (None without any), n is the smallest number of seeds
    among them, s the pooled sd, √(Σ (nᵢ-1) sdᵢ² / Σ (nᵢ-1)). A single true difference of this size
    is found about every second time.
    """
    seen = [(one.n, one.sd) for one in differences if one.sd is not None]
    if not seen:
        return None
    variance = sum((n - 1) * sd**2 for n, sd in seen) / sum(n - 1 for n, _ in seen)
    n, _ = min(seen)
    return float(stdtrit(n - 1, 1 - (1 - level) / 2 / len(seen))) * math.sqrt(variance / n)


@dataclass(frozen=True)
class Pair:
    """`advantage` is by how much `ahead` is better, never negative; p_holm None: not tested."""

    ahead: str
    behind: str
    advantage: Interval
    p_holm: float | None = None
    separated: bool = False


@dataclass(frozen=True)
class Ranking:
    """Scores are by mean, best first; ranks from 1 + those proven better to all - those proven
    worse; leaders are those that none is proven better than."""

    scores: Mapping[str, Interval]
    ranks: Mapping[str, tuple[int, int]]
    pairs: tuple[Pair, ...]
    winner: str | None
    leaders: tuple[str, ...]
    noise_floor: float | None
    shuffle_p: float | None
    left_out: Mapping[str, str]
    sentence: str = ""


def ranking(
    scores: Mapping[str, Scores],
    *,
    better: Literal["more", "less"],
    level: float = 0.95,
    floor: float = 0.0,
    left_out: Mapping[str, str] | None = None,
) -> Ranking:
    """Every pair tested; with probability ≥ level no claim at all if all methods are the same.

    A pair is separated if it has FEWEST seeds or more, its advantage is at least `floor`, its
    paired t-test is ≤ α = 1 - level after Holm over all such pairs, and shuffle_p is ≤ α: the
    share of SHUFFLES of the scores among the methods, within each seed, that show as much
    evidence, Σ 1/p over the pairs. The shuffles make the first line exact for any distribution;
    Holm keeps it, for normal differences, if only some methods are the same.

    The winner has a test of its own, which needs fewer seeds: the best of M methods wins if its
    paired t-test against every other one is ≤ 2α/M, and shuffle_p ≤ α. A false winner would have
    to beat the true best, one-sided at α/M, and there are M who could.

    A method with a failed run is left out, for leaving out only the run would flatter it;
    `left_out` names others with the reason.
    """
    if better not in ("more", "less"):
        raise ValueError(f'better is "more" or "less", got {better!r}')
    out, sign, alpha = dict(left_out or {}), 1 if better == "more" else -1, 1 - level
    for name in [name for name in scores if name not in out]:
        runs, failed = len(scores[name]), sum(not _sound(v) for v in scores[name].values())
        if failed or not runs:
            out[name] = f"failed in {failed} of {_count(runs, 'run')}" if runs else "no scores"
    means = {name: interval(scores[name].values(), level) for name in scores if name not in out}
    means = dict(sorted(means.items(), key=lambda item: (-sign * (item[1].mean or 0), item[0])))
    names, table = list(means), sign * _table([scores[name] for name in means])
    pairs, scale = [], _largest(table)
    for a, b in combinations(names, 2):
        d = table[:, names.index(a)] - table[:, names.index(b)]
        a, b, d = (b, a, -d) if np.nansum(d) < 0 else (a, b, d)
        pairs.append(Pair(a, b, interval(d, level, scale)))
    tested = [at for at, pair in enumerate(pairs) if pair.advantage.n >= FEWEST]
    for at, p in zip(tested, holm(pairs[at].advantage.p for at in tested), strict=True):
        far = (pairs[at].advantage.mean or 0) >= floor
        pairs[at] = replace(pairs[at], p_holm=p, separated=far and p <= alpha)
    first = [at for at, pair in enumerate(pairs) if names[0] in (pair.ahead, pair.behind)]
    wins = bool(first) and all(
        pairs[at].ahead == names[0]
        and pairs[at].p_holm is not None
        and (pairs[at].advantage.mean or 0) >= floor
        and (pairs[at].advantage.p or 0) <= 2 * alpha / len(names)
        for at in first
    )
    for at in first if wins else ():
        pairs[at] = replace(pairs[at], separated=True)
    shuffle_p = None
    if any(pair.separated for pair in pairs):
        columns = [(names.index(pairs[at].ahead), names.index(pairs[at].behind)) for at in tested]
        shuffle_p = _shuffle_p(table, columns)
        if shuffle_p > alpha:
            pairs = [replace(pair, separated=False) for pair in pairs]
    best = {name: 1 + sum(p.separated and p.behind == name for p in pairs) for name in names}
    beaten = {name: sum(p.separated and p.ahead == name for p in pairs) for name in names}
    found = Ranking(
        scores=means,
        ranks={name: (best[name], len(names) - beaten[name]) for name in names},
        pairs=tuple(pairs),
        winner=next((name for name in names if 0 < beaten[name] == len(names) - 1), None),
        leaders=tuple(name for name in names if best[name] == 1),
        noise_floor=noise_floor((pair.advantage for pair in pairs), level),
        shuffle_p=shuffle_p,
        left_out=out,
    )
    return replace(found, sentence=_sentence(found, alpha))


def _shuffle_p(table: np.ndarray, pairs: list[tuple[int, int]]) -> float:
    """The share of shuffles within seeds, the data among them, with as much Σ 1/p over pairs.

    Not the largest 1/p: where scores repeat exactly, many pairs of the data reach p = 0, and a
    shuffle that throws up a single one by chance must not count as much.
    """
    tables, rng = np.repeat(table[None], SHUFFLES + 1, axis=0), np.random.default_rng(0)
    for seed, there in enumerate(np.isfinite(table)):
        tables[1:, seed, there] = rng.permuted(tables[1:, seed, there], axis=1)
    evidence = np.zeros(SHUFFLES + 1)
    for i, j in pairs:
        both = np.isfinite(table[:, i] - table[:, j])
        p = _t_test(tables[:, both, i] - tables[:, both, j], _largest(table))[2]
        evidence += 1 / np.maximum(p, 1e-12)
    return float(np.mean(evidence >= evidence[0] * (1 - 1e-9)))


def _sentence(found: Ranking, alpha: float) -> str:
    names, leaders = list(found.scores), list(found.leaders)
    others = [name for name in names if name not in leaders]
    rest = others[0] if len(others) == 1 else f"each of the other {len(others)} methods"
    apart = {(pair.ahead, pair.behind) for pair in found.pairs if pair.separated}
    seeds = sorted({pair.advantage.n for pair in found.pairs}) or [0]
    if len(names) < 2:
        said = f"Only {names[0]} has scores: nothing to compare" if names else "No scores"
    elif seeds[-1] < FEWEST:
        said = f"Cannot tell: {_count(seeds[-1], 'paired seed')}, at least {FEWEST} are needed"
    elif found.winner:
        said = f"{found.winner} is first: better than {rest}"
    elif not others or not leaders:
        who = _listed(names) if len(names) < 5 else f"the {len(names)} methods"
        said = f"Cannot tell {who} apart"
    elif near := [b for b in others if len(leaders) == 1 and (leaders[0], b) not in apart]:
        said = f"{leaders[0]} leads, but cannot be told apart from {_listed(near)}"
    elif all((a, b) in apart for a in leaders for b in others):
        said = f"Cannot tell {_listed(leaders)} apart; they are better than {rest}"
    else:
        said = f"Cannot tell {_listed(leaders)} apart; {rest} is behind some method"
    if seeds[-1] >= FEWEST:
        over = " to ".join(map(str, sorted({seeds[0], seeds[-1]})))
        test = (
            f"p ≤ {2 * alpha / len(names):.2g}" + " each" * (len(names) > 2)
            if found.winner
            else (f"Holm-corrected p ≤ {alpha:.2g}")
        )
        said += f" (paired over {over} seeds, {test})"
        said += f"; pairs with fewer than {FEWEST} were not tested" * (seeds[0] < FEWEST)
    if found.left_out:
        reasons = dict.fromkeys(found.left_out.values())
        groups = ((why, [n for n, its in found.left_out.items() if its == why]) for why in reasons)
        said += ". Left out: " + "; ".join(f"{_listed(names)} ({why})" for why, names in groups)
    return said + "."


def saturated(scores: Mapping[str, Scores], perfect: float = 1.0, near: float = 0.995) -> str:
    """A sentence if more than half of the methods have a mean ≥ near · perfect, else "".

    For scores of which more is better; failed runs are left out of the means.
    """
    means = [interval(values.values()).mean for values in scores.values()]
    full = sum(mean is not None and mean >= near * perfect for mean in means)
    where = "here" if full == len(means) else "between those"
    share = f"{full} of {_count(len(means), 'method')} at {100 * near:.4g} % of perfect or above"
    said = f"Saturated: final accuracy tells nothing {where} ({share})."
    return said if 2 * full > len(means) else ""


def contenders(
    names: Iterable[str],
    *,
    failed: Collection[str] = (),
    unconverged: Collection[str] = (),
    equal_budget: bool = False,
) -> tuple[list[str], dict[str, str]]:
    """Who is ranked, and who is left out and why, for `left_out` of `ranking`.

    What failed is never ranked; what did not converge, only in a ranking at equal budget.
    """
    out = {} if equal_budget else dict.fromkeys(unconverged, "did not converge")
    out, names = out | dict.fromkeys(failed, "failed"), list(names)
    return [name for name in names if name not in out], {n: out[n] for n in names if n in out}


def _sound(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _table(methods: list[Scores]) -> np.ndarray:
    """Seeds by methods; NaN where there is no score."""
    seeds = dict.fromkeys(seed for scores in methods for seed in scores)
    rows = [[v if _sound(v := one.get(s)) else math.nan for one in methods] for s in seeds]
    return np.array(rows, float).reshape(len(seeds), len(methods))


def _largest(table: np.ndarray) -> float:
    return float(np.nanmax(np.abs(table), initial=0))


def _t_test(d: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, sd and two-sided p over the last axis; what is below 1e-12 of scale is rounding."""
    n, tiny = d.shape[-1], 1e-12 * scale
    mean = np.where(np.abs(d.mean(-1)) <= tiny, 0, d.mean(-1))
    sd = np.where(np.ptp(d, axis=-1) <= tiny, 0, d.std(-1, ddof=1))
    t = np.divide(np.abs(mean) * math.sqrt(n), sd, out=np.where(mean == 0, 0, np.inf), where=sd > 0)
    return mean, sd, 2 * stdtr(n - 1, -t)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
