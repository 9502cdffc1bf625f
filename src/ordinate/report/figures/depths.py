"""The score against the budget or the depth: every seed, and a line per method."""

from __future__ import annotations

from collections.abc import Iterator

from ordinate.experiments.comparison import Comparison
from ordinate.experiments.plan import Cell
from ordinate.report.figures import style
from ordinate.report.figures.canvas import (
    LINE,
    TICKS,
    Canvas,
    apart,
    few,
    folded,
    grid_lines,
    measure,
    tip,
)
from ordinate.report.figures.figure import Figure
from ordinate.report.figures.style import MUTED, PAPER
from ordinate.report.tables.cell import WORD
from ordinate.report.tables.grid import axes as axes_of
from ordinate.report.tables.numbers import Unit, count

WIDE, TALL = 6.0, 1.7


def figures(comparison: Comparison) -> Iterator[Figure]:
    depths, budgets = axes_of(comparison)
    across = "epochs" if len(budgets) > 1 else "layers"
    each = ", at each depth" if len(budgets) > 1 and len(depths) > 1 else ""
    word, length = WORD[comparison.metric], comparison.task.length
    title = f"{word} at length {length} against {across}{each}"
    caption = (
        f"{word} on unseen samples in {Unit(comparison.metric).name} against {across} (each step "
        "to the right doubles them). Points are seeds, methods side by side; lines are means."
    )
    if comparison.metric == "loss":
        caption += " The scale is logarithmic; less is better."
    if lines := comparison.lines():
        unit = Unit(comparison.metric)
        named = ", ".join(f"{line.name} {unit.plain(line.value)}" for line in lines)
        caption += f" Dashed lines are computed where they are near: {named}."

    def paint(width: float) -> Canvas:
        return _paint(comparison, Canvas(width, title))

    yield Figure(f"against-{across}", title, caption, paint)


def _paint(comparison: Comparison, canvas: Canvas) -> Canvas:
    depths, budgets = axes_of(comparison)
    unit = Unit(comparison.metric)
    panels = [(f"{count(n, 'layer')}", [Cell(n, e) for e in budgets]) for n in depths]
    if len(budgets) == 1:
        panels = [("", [Cell(n, budgets[0]) for n in depths])]
    names = max(measure(line) for m in comparison.plan.methods for line in folded(m, 0.9)) + 0.3
    abreast = min(len(panels), max(1, int((canvas.width - 0.45) / (1.2 + names))))
    wide = (canvas.width - 0.45) / abreast - names - 0.05
    values = [v * unit.factor for row in comparison.rows for v in _scores(comparison, row).values()]
    spread = max(values) - min(values)
    limits = min(values) - 0.06 * spread, max(values) + 0.06 * spread
    log = comparison.metric == "loss" and min(values) > 0
    if log:
        ratio = (max(values) / min(values)) ** 0.06
        limits = min(values) / ratio, max(values) * ratio
    near = [x for x in comparison.lines() if limits[0] <= x.value * unit.factor <= limits[1]]
    near.sort(key=lambda line: -line.value)
    dashed = f"; dashed, from the top: {', '.join(line.name for line in near)}" if near else ""
    canvas.above(f"{WORD[comparison.metric].lower()} ({unit.name}){dashed}")
    for start in range(0, len(panels), abreast):
        for i, (heading, cells) in enumerate(panels[start : start + abreast]):
            x = 0.45 + i * (wide + names + 0.05)
            if heading:
                canvas.text(x, canvas.top + 0.07, heading, weight="bold")
            top = canvas.top + (LINE + 0.03) * bool(heading)
            panel = canvas.axes(x, top, wide, TALL)
            _panel(comparison, canvas, panel, cells, limits, log, (x + wide, top))
            panel.tick_params(labelleft=i == 0)
        canvas.top += (LINE + 0.03) * bool(panels[0][0]) + TALL + TICKS
        canvas.top += 0.05 * (start + abreast < len(panels))
    across = "epochs" if len(budgets) > 1 else "layers"
    canvas.under(0.45, across)
    return canvas.done()


def _scores(comparison: Comparison, row) -> dict[int, float]:
    found = row.scores(comparison.task.length, comparison.metric)
    return {seed: value for seed, value in found.items() if value is not None}


def _panel(
    comparison: Comparison, canvas: Canvas, panel, cells: list[Cell],
    limits: tuple[float, float], log: bool, corner: tuple[float, float],
) -> None:  # fmt: skip
    import math

    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    looks, unit, methods = style.looks(comparison), Unit(comparison.metric), comparison.plan.methods
    by_epochs = len({cell.epochs for cell in cells}) > 1
    ticks = [cell.epochs if by_epochs else cell.layers for cell in cells]
    panel.set_xscale("log", base=2)
    if log:
        panel.set_yscale("log")
        panel.yaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.yaxis.set_major_locator(FixedLocator(_round(*limits)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    panel.set_ylim(*limits)
    panel.set_xlim(ticks[0] / 2**0.45, ticks[-1] * 2**0.45)
    panel.xaxis.set_major_locator(FixedLocator(ticks))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    if not log:
        few(panel, "y", 5)
    grid_lines(panel)
    for line in comparison.lines():
        if limits[0] <= line.value * unit.factor <= limits[1]:
            panel.axhline(line.value * unit.factor, color=MUTED, lw=0.9, ls=(0, (3, 2)), zorder=1)
    ends: dict[str, float] = {}
    for i, method in enumerate(methods):
        look = looks[method]
        dodge = 2 ** (0.6 * (i / max(len(methods) - 1, 1) - 0.5))
        xs, ys = [], []
        for cell, tick in zip(cells, ticks, strict=True):
            row = comparison.row(method, cell)
            where = f"{cell.layers} layers, {cell.epochs} epochs"
            for seed, value in _scores(comparison, row).items():
                panel.plot(
                    [tick * dodge], [value * unit.factor], look.mark, ms=3.2, mfc=look.colour,
                    mec=PAPER, mew=0.3, zorder=3, clip_on=False,
                    gid=tip(method, seed, f"{unit.plain(value)} {unit.name} · {where}"),
                )  # fmt: skip
            mean = row.interval(comparison.task.length, comparison.metric).mean
            if mean is not None:
                xs.append(tick * dodge)
                ys.append(mean * unit.factor)
        if xs:
            panel.plot(xs, ys, color=look.colour, lw=1.1, zorder=2)
            scale = math.log if log else float
            share = (scale(ys[-1]) - scale(limits[0])) / (scale(limits[1]) - scale(limits[0]))
            ends[method] = (1 - share) * TALL
    places = apart(list(ends.values()), LINE, 0.0, TALL)
    for method, y in zip(ends, places, strict=True):
        canvas.mark(corner[0] + 0.1, corner[1] + y, looks[method])
        canvas.text(corner[0] + 0.18, corner[1] + y, folded(method, 0.9)[0])


def _round(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis: enough of them, and not too many."""
    from matplotlib.ticker import MaxNLocator

    for steps in (
        (1,),
        (1, 3),
        (1, 2, 5),
        (1, 1.5, 2, 3, 5, 7),
        (1, 1.2, 1.5, 2, 3, 4, 5, 6, 7, 8),
    ):
        found = sorted(round(s * 10.0**e, 7) for e in range(-6, 7) for s in steps)
        kept = [v for v in found if low <= v <= high]
        if len(kept) >= 3:
            return kept
    return [float(v) for v in MaxNLocator(4).tick_values(low, high) if low <= v <= high]
