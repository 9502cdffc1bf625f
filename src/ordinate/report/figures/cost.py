"""What a method costs: parameters, time and memory."""

from __future__ import annotations

from collections.abc import Iterator

from ordinate.experiments.comparison import Comparison
from ordinate.experiments.plan import Cell
from ordinate.report.figures import rows, style
from ordinate.report.figures.canvas import Canvas
from ordinate.report.figures.figure import Figure, named, where
from ordinate.report.tables.numbers import short, whole

WIDE = 6.0
#: A field of `Cost`, what it is called, what it is divided by, and the unit.
SHOWN = (
    ("of_position", "Learned parameters of the method", 1.0, ""),
    ("step_seconds", "Time of a training step", 1e-3, "ms"),
    ("saved", "Memory kept for backward", 2.0**20, "MiB"),
)


def figures(comparison: Comparison, cell: Cell) -> Iterator[Figure]:
    if not any(row.cost("step_seconds") for row in comparison.within(cell)):
        return
    title = f"What each method costs{where(comparison, cell)}"
    caption = (
        "Learned parameters that the method adds to the model; time of a training step, its mean "
        "over a run (points are seeds, the bar their mean); memory kept from the forward for the "
        "backward pass of one step. Less is better. Methods in the order of the plan."
    )
    made = [o.made for row in comparison.within(cell) for o in row.done if o.made]
    on = sorted({f"{m.device} of {m.machine}" if m.machine else m.device for m in made})
    if on:
        caption += f" Made on {'; '.join(on)}."
    if len(on) > 1:
        caption += " Times on different machines do not compare."

    def paint(width: float) -> Canvas:
        return _paint(comparison, cell, Canvas(width, title))

    yield Figure(named(comparison, "cost", cell), title, caption, paint)


def _paint(comparison: Comparison, cell: Cell, canvas: Canvas) -> Canvas:
    abreast = len(SHOWN) if canvas.width >= WIDE else 1
    wide, start, lowest = canvas.width / abreast, canvas.top, canvas.top
    for i, (field, heading, unit, sign) in enumerate(SHOWN):
        made = _rows(comparison, cell, field, unit, sign)
        most = max([*(row.bar or 0 for row in made), *(d.x for row in made for d in row.dots)])
        if abreast > 1:
            canvas.top = start
        elif i:
            canvas.top += 0.1
        heading = f"{heading} ({sign})" if sign else heading
        left = i * wide if abreast > 1 else 0.0
        rows.draw(canvas, made, (0, most * 1.05 or 1), heading=heading, left=left, width=wide)
        lowest = max(lowest, canvas.top)
    canvas.top = lowest
    return canvas.done()


def _rows(comparison: Comparison, cell: Cell, field: str, unit: float, sign: str) -> list[rows.Row]:
    looks, made = style.looks(comparison), []
    for row in comparison.within(cell):
        mean = row.cost(field)
        timed = field == "step_seconds"
        dots = tuple(
            rows.Dot(o.trial.seed, o.cost.step_seconds / unit, f"{short(o.cost.step_seconds / unit)} ms")
            for o in row.done
            if timed and o.cost
        )  # fmt: skip
        bar = None if mean is None else mean / unit
        said = "–" if bar is None else short(bar) if sign else whole(bar)
        made.append(rows.Row(row.method, looks[row.method], dots, said=said, bar=bar))
    return made
