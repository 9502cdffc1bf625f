"""How soon: the steps until a validation accuracy, every seed, those not there as arrows."""

from __future__ import annotations

from collections.abc import Iterator

from ordinate.experiments.comparison import Comparison
from ordinate.experiments.plan import Cell
from ordinate.experiments.steps import Censored
from ordinate.report.figures import rows, style
from ordinate.report.figures.canvas import Canvas
from ordinate.report.figures.figure import Figure, named, where
from ordinate.report.tables.cell import there
from ordinate.report.tables.verdicts import thresholds

#: From this width on, panels stand side by side.
WIDE = 6.0


def figures(comparison: Comparison, cell: Cell) -> Iterator[Figure]:
    limits = thresholds(comparison, [cell])
    if not limits or not any(row.done for row in comparison.within(cell)):
        return
    said = " and ".join(f"{100 * a:g} %" for a in limits)
    title = f"Steps until {said} of the validation samples were right{where(comparison, cell)}"
    caption = (
        f"Training steps until the validation accuracy first reached {said}, soonest first; further "
        "left is better. Each point is a seed, the upright stroke their median, the band the range "
        "that holds the true median with 95 %. An arrow is a run that was not there when the budget "
        "was over: it takes more steps than that, and is never left out. Numbers are medians, and "
        "how many of the runs got there where not all did."
    )

    def paint(width: float) -> Canvas:
        return _paint(comparison, cell, limits, Canvas(width, title))

    yield Figure(named(comparison, "steps", cell), title, caption, paint)


def _paint(comparison: Comparison, cell: Cell, limits: list[float], canvas: Canvas) -> Canvas:
    abreast = len(limits) if canvas.width >= WIDE else 1
    wide, start, lowest = canvas.width / abreast, canvas.top, canvas.top
    for i, accuracy in enumerate(limits):
        found = comparison.steps(accuracy, cell)
        most = max(run.limit for run in found.values())
        if abreast > 1:
            canvas.top = start
        elif i:
            canvas.top += 0.12
        rows.draw(
            canvas, _rows(comparison, cell, found), (0, most * 1.04),
            heading=f"{100 * accuracy:g} % right", lines=[(f"budget {most:,}", float(most))],
            below="training steps, fewer is better", left=i * wide * (abreast > 1), width=wide,
        )  # fmt: skip
        lowest = max(lowest, canvas.top)
    canvas.top = lowest
    return canvas.done()


def _rows(comparison: Comparison, cell: Cell, found: dict[str, Censored]) -> list[rows.Row]:
    looks, made = style.looks(comparison), []
    for row in comparison.within(cell):
        run = there(row, found[row.method])
        dots = tuple(
            rows.Dot(
                int(str(seed)), run.limit if v is None else v, _said(row, seed, v, run), v is None
            )
            for seed, v in run.values.items()
        )
        ends = run.ends()
        low, high = (run.limit if v is None else v for v in ends) if ends else (None, None)
        shown = ends is not None and run.reached > 0
        middle = "" if run.median is None else f"{run.median:,}"
        share = f"{run.reached} of {len(run.values)}" * (run.reached < len(run.values))
        said = ", ".join(filter(None, [middle, share])) or "not run yet"
        made.append((
            run, rows.Row(row.method, looks[row.method], dots, run.median,
                          low if shown else None, high if shown else None, said),
        ))  # fmt: skip
    made.sort(key=lambda one: (one[0].median or one[0].limit + 1, -one[0].reached))
    return [row for _, row in made]


def _said(row, seed, value: int | None, run: Censored) -> str:
    if seed in row.failures:
        return "failed"
    return f"not there within {run.limit:,} steps" if value is None else f"{value:,} steps"
