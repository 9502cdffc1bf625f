"""Who is best at a length: every seed, the mean and its interval, and what is computed."""

from __future__ import annotations

from collections.abc import Iterator

from ordinate.experiments.comparison import Comparison
from ordinate.experiments.plan import Cell
from ordinate.report.figures import rows, style
from ordinate.report.figures.canvas import Canvas
from ordinate.report.figures.figure import Figure, named, where
from ordinate.report.tables.cell import WORD, best_first
from ordinate.report.tables.numbers import Unit, count, listed

#: Methods with this share of perfect are shown once more, closer, if they are much closer together.
TOP, MUCH = 0.95, 0.25


def figures(comparison: Comparison, cell: Cell) -> Iterator[Figure]:
    """One at the trained length, and one for every other."""
    trained = comparison.task.length
    for length in [trained, *(n for n in comparison.lengths if n != trained)]:
        if any(_values(row, length, comparison) for row in comparison.within(cell)):
            yield _figure(comparison, cell, length)


def _values(row, length: int, comparison: Comparison) -> list[float]:
    unit = Unit(comparison.metric)
    found = row.scores(length, comparison.metric).values()
    return [value * unit.factor for value in found if value is not None]


def _figure(comparison: Comparison, cell: Cell, length: int) -> Figure:
    trained, unit = comparison.task.length, Unit(comparison.metric)
    word = WORD[comparison.metric]
    kind = "the trained one" if length == trained else f"{length / trained:.3g} times the trained"
    title = f"{word} at length {length}, {kind}{where(comparison, cell)}"
    lines = comparison.lines(length)
    better = "further right" if comparison.metric == "accuracy" else "further left"
    computed = "; ".join(f"{line.name}: {line.why.rstrip('.')}" for line in lines)
    caption = (
        f"{word} on unseen samples in {unit.name}, best first; {better} is better. Each point is a "
        f"seed ({comparison.plan.seeds}, in the same order from top to bottom in every row), the "
        "upright stroke their mean, the band its 95 % t-interval; the number is mean ± half of it."
    )
    if lines:
        caption += f" Dashed lines are computed, not measured: {computed}."
    caption += _holes(comparison, cell, length)
    name = "ranking" if length == trained else f"ranking-at-{length}"

    def paint(width: float) -> Canvas:
        return _paint(comparison, cell, length, Canvas(width, title))

    return Figure(named(comparison, name, cell), title, caption, paint)


def _holes(comparison: Comparison, cell: Cell, length: int) -> str:
    """What a row does not show."""
    said = []
    for row in comparison.within(cell):
        if row.refused(length):
            said.append(f"{row.method} refuses this length")
        if row.failures:
            said.append(
                f"{row.method} failed in {len(row.failures)} of {count(len(row.seeds), 'run')}"
            )
        if row.missing:
            said.append(f"{row.method} lacks {count(len(row.missing), 'run')}")
    late = [row.method for row in comparison.within(cell) if row.unconverged]
    if late and len(late) == len(comparison.within(cell)):
        said.append("no method had converged in every run")
    elif late:
        said.append(f"not converged in every run: {listed(late)}")
    return f" Mind: {'; '.join(said)}." if said else ""


def _paint(comparison: Comparison, cell: Cell, length: int, canvas: Canvas) -> Canvas:
    unit, looks = Unit(comparison.metric), style.looks(comparison)
    made, every = [], []
    for row in best_first(comparison, cell, length):
        scores = row.scores(length, comparison.metric)
        dots = tuple(
            rows.Dot(seed, value * unit.factor, f"{unit.plain(value)} {unit.name}")
            for seed, value in scores.items()
            if value is not None
        )
        mean = row.interval(length, comparison.metric)
        none = "refuses" if row.refused(length) else "failed" if row.failures else "not run yet"
        low, middle, high = (
            None if v is None else v * unit.factor for v in (mean.low, mean.mean, mean.high)
        )
        said = unit.mean(mean) if dots else none
        made.append(rows.Row(row.method, looks[row.method], dots, middle, low, high, said))
        every += [dot.x for dot in dots]
    lines = [
        (f"{x.name} {unit.plain(x.value)}", x.value * unit.factor) for x in comparison.lines(length)
    ]
    limits = _limits(every, [at for _, at in lines], comparison.metric)
    better = "more is better" if comparison.metric == "accuracy" else "less is better"
    below = f"{WORD[comparison.metric].lower()} ({unit.name}), {better}"
    top = [row for row in made if (row.middle or 0) >= TOP * 100 * comparison.perfect]
    near = [dot.x for row in top for dot in row.dots]
    closer = comparison.metric == "accuracy" and len(top) > 1
    closer = closer and max(near) - min(near) < MUCH * (limits[1] - limits[0])
    rows.draw(canvas, made, limits, lines=lines, below=below)
    if closer:
        canvas.top += 0.12
        perfect = [line for line in lines if min(near) < line[1] <= 100]
        most = max([*near, *(at for _, at in perfect)])
        pad = 0.04 * (most - min(near)) or 0.1
        rows.draw(
            canvas, top, (min(near) - pad, most + pad), heading="The best of them, closer",
            lines=perfect, below=below,
        )  # fmt: skip
    return canvas.done()


def _limits(values: list[float], lines: list[float], metric: str) -> tuple[float, float]:
    """Room for all points, and for the lines: all of accuracy, those of a loss that are near."""
    low, high = min(values), max(values)
    spread = max(high - low, 0.02 * abs(high), 1e-9)
    for at in lines:
        if metric == "accuracy" or low - 2 * spread <= at <= high + 2 * spread:
            low, high = min(low, at), max(high, at)
    pad = 0.04 * (high - low) or 0.5
    return low - pad, high + pad
