"""Depth × epochs: the mean score of every cell, a map per method, and who is first in each."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ordinate.experiments.comparison import Comparison
from ordinate.experiments.plan import Cell
from ordinate.experiments.stats import Ranking
from ordinate.report.figures import style
from ordinate.report.figures.canvas import GAP, LINE, TICKS, Canvas, folded, measure, tip
from ordinate.report.figures.figure import Figure
from ordinate.report.figures.style import INK, METHODS, MUTED, PAPER, SHADE, SMALL
from ordinate.report.tables.grid import Target, axes, targets
from ordinate.report.tables.numbers import Unit

#: A cell holds "1.292" above "±0.069".
CELL, TALL = 0.48, 0.42
FIRST = "first in each cell"
LEAST, MOST = 0.06, 0.62


def figures(comparison: Comparison) -> Iterator[Figure]:
    """One for all targets, for each part and for each further length."""
    for target in targets(comparison):
        found = {
            cell: comparison.ranking(target.length, cell, target.part)
            for cell in comparison.plan.cells
        }
        if any(_mean(comparison, target, method, cell) is not None
               for method in comparison.plan.methods for cell in found):  # fmt: skip
            yield _figure(comparison, target, found)


def _figure(comparison: Comparison, target: Target, found: dict[Cell, Ranking]) -> Figure:
    depths, budgets = axes(comparison)
    across = "depth and budget" if len(depths) > 1 and len(budgets) > 1 else None
    across = across or ("depth" if len(depths) > 1 else "budget")
    title = f"{target.title}, by {across}"
    unit = Unit(comparison.metric)
    caption = (
        f"{title}: the mean over {comparison.plan.seeds} seeds in {unit.name}, with half of its "
        "95 % t-interval; the stronger the colour, the better, on one scale for all. Last, who is "
        "proven better than every other method of the cell, where that can be told."
    )
    lines = comparison.lines(target.length, target.part)
    if lines:
        caption += " Computed, not measured: "
        caption += ", ".join(f"{line.name} {unit.plain(line.value)}" for line in lines) + "."
    name = "grid" + (f"-{target.part}" if target.part else "")
    name += f"-at-{target.length}" if target.length != comparison.task.length else ""

    def paint(width: float) -> Canvas:
        canvas = Canvas(width, title)
        both = len(depths) > 1 and len(budgets) > 1
        return (_maps if both else _one)(comparison, target, found, canvas)

    return Figure(name, title, caption, paint)


def _mean(comparison: Comparison, target: Target, method: str, cell: Cell) -> float | None:
    row = comparison.row(method, cell)
    return row.interval(target.length, comparison.metric, target.part).mean


def _strength(comparison: Comparison, target: Target):
    """From a mean to how strong its colour is: logarithmic for a loss."""
    means = [
        m for method in comparison.plan.methods for cell in comparison.plan.cells
        if (m := _mean(comparison, target, method, cell)) is not None
    ]  # fmt: skip
    scale = math.log if comparison.metric == "loss" and min(means) > 0 else float
    low, high = scale(min(means)), scale(max(means))

    def strength(mean: float) -> float:
        share = (scale(mean) - low) / (high - low) if high > low else 0.5
        share = share if comparison.metric == "accuracy" else 1 - share
        return LEAST + (MOST - LEAST) * share

    return strength


def _maps(comparison: Comparison, target: Target, found, canvas: Canvas) -> Canvas:
    """A map per method, of depths down and budgets across."""
    depths, budgets = axes(comparison)
    looks, left = style.looks(comparison), 0.05 + max(measure(str(n), SMALL) for n in depths) + 0.1
    least = CELL * len(budgets)
    columns = max(1, int((canvas.width - left + GAP) / (least + GAP)))
    wide = min((canvas.width - left - 0.05 - GAP * (columns - 1)) / columns, 1.7 * least)
    strength = _strength(comparison, target)
    names = [*comparison.plan.methods, FIRST]
    canvas.text(0.05, canvas.top + 0.07, "down: layers, across: epochs", size=SMALL, colour=MUTED)
    canvas.top += LINE + 0.05
    for start in range(0, len(names), columns):
        row = names[start : start + columns]
        titles = [folded(name, wide - 0.14) for name in row]
        deep = max(map(len, titles)) * LINE + 0.03
        for i, (name, lines) in enumerate(zip(row, titles, strict=True)):
            x = left + i * (wide + GAP)
            if name != FIRST:
                canvas.mark(x + 0.05, canvas.top + 0.07, looks[name])
            for at, line in enumerate(lines):
                shift = 0.0 if name == FIRST else 0.14
                canvas.text(x + shift, canvas.top + 0.07 + at * LINE, line, weight="bold")
            panel = _panel(canvas, x, canvas.top + deep, wide, len(budgets), len(depths))
            panel.set_xticks([n + 0.5 for n in range(len(budgets))], [str(n) for n in budgets])
            panel.set_yticks([n + 0.5 for n in range(len(depths))], [str(n) for n in depths])
            panel.tick_params(labelleft=i == 0)
            for y, layers in enumerate(depths):
                for x_, epochs in enumerate(budgets):
                    cell = Cell(layers, epochs)
                    if name == FIRST:
                        _winner(panel, x_, y, found[cell], looks, wide / len(budgets))
                    else:
                        _cell(panel, x_, y, comparison, target, name, cell, strength)
        canvas.top += deep + TALL * len(depths) + TICKS + 0.05
    return canvas.done()


def _one(comparison: Comparison, target: Target, found, canvas: Canvas) -> Canvas:
    """One map: methods down, and depths or budgets across."""
    depths, _ = axes(comparison)
    cells, looks = comparison.plan.cells, style.looks(comparison)
    names = [folded(name, 1.2) for name in comparison.plan.methods]
    left = 0.3 + max(measure(line) for lines in names for line in lines)
    wide = min(canvas.width - left - 0.05, 1.2 * len(cells))
    strength = _strength(comparison, target)
    panel = _panel(canvas, left, canvas.top, wide, len(cells), len(names) + 1)
    panel.set_yticks([])
    labels = [str(c.layers if len(depths) > 1 else c.epochs) for c in cells]
    panel.set_xticks([n + 0.5 for n in range(len(cells))], labels)
    for y, (method, lines) in enumerate(zip(comparison.plan.methods, names, strict=True)):
        middle = canvas.top + (y + 0.5) * TALL
        canvas.mark(0.1, middle, looks[method])
        for at, line in enumerate(lines):
            canvas.text(0.2, middle + (at - (len(lines) - 1) / 2) * LINE, line)
        for x, cell in enumerate(cells):
            _cell(panel, x, y, comparison, target, method, cell, strength)
    canvas.text(0.2, canvas.top + (len(names) + 0.5) * TALL, "first", weight="bold")
    for x, cell in enumerate(cells):
        _winner(panel, x, len(names), found[cell], looks, wide / len(cells))
    canvas.top += TALL * (len(names) + 1) + TICKS
    below = "layers" if len(depths) > 1 else "epochs"
    canvas.under(left, below)
    return canvas.done()


def _panel(canvas: Canvas, x: float, top: float, wide: float, columns: int, rows: int):
    panel = canvas.axes(x, top, wide, TALL * rows)
    panel.spines[["left", "bottom"]].set_visible(False)
    panel.set_xlim(0, columns)
    panel.set_ylim(rows, 0)
    panel.tick_params(length=0)
    return panel


def _box(panel, x: int, y: int, colour: str, alpha: float, said: str) -> None:
    from matplotlib.patches import Rectangle

    box = Rectangle((x, y), 1, 1, fc=colour, alpha=alpha, ec="none", lw=0, gid=said)
    panel.add_patch(box)
    edge = Rectangle((x, y), 1, 1, fc="none", ec=PAPER, lw=1.2)
    panel.add_patch(edge)


def _cell(panel, x, y, comparison: Comparison, target: Target, method, cell, strength) -> None:
    unit, row = Unit(comparison.metric), comparison.row(method, cell)
    mean = row.interval(target.length, comparison.metric, target.part)
    if mean.mean is None:
        said = "refuses" if row.refused(target.length) else "failed" if row.failures else "not run"
        _box(panel, x, y, SHADE, 1.0, tip(method, None, said))
        panel.text(x + 0.5, y + 0.5, said, ha="center", va="center", size=SMALL, color=MUTED)
        return
    upper, _, half = unit.mean(mean).partition(" ")
    where = f"{cell.layers} layers, {cell.epochs} epochs"
    said = tip(method, None, f"{unit.mean(mean)} {unit.name} · {where}")
    _box(panel, x, y, METHODS[0], strength(mean.mean), said)
    lift = 0.17 if half else 0
    panel.text(x + 0.5, y + 0.5 - lift, upper, ha="center", va="center_baseline", color=INK)
    panel.text(
        x + 0.5, y + 0.5 + lift, half, ha="center", va="center_baseline", size=SMALL, color=INK
    )


def _winner(panel, x: int, y: int, found: Ranking, looks, room: float) -> None:
    if found.winner:
        _box(panel, x, y, looks[found.winner].colour, 0.4, tip(found.winner, None, "first"))
        lines = folded(found.winner, room - 0.06, SMALL, "bold")[:2]
        for i, line in enumerate(lines):
            at = y + 0.5 + (i - (len(lines) - 1) / 2) * 0.36
            panel.text(x + 0.5, at, line, ha="center", va="center_baseline", size=SMALL,
                       color=INK, weight="bold")  # fmt: skip
        return
    open_ = ", ".join(found.leaders) if any(p.separated for p in found.pairs) else "all"
    _box(panel, x, y, SHADE, 1.0, tip(f"cannot tell {open_} apart", None, "none is proven first"))
    for i, word in enumerate(("cannot", "tell")):
        panel.text(x + 0.5, y + 0.32 + 0.36 * i, word, ha="center", va="center_baseline",
                   size=SMALL, color=MUTED)  # fmt: skip
