"""Learning: validation accuracy and loss against the steps trained, a panel per method."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from ordinate.experiments.comparison import THRESHOLDS, Comparison, Row
from ordinate.experiments.plan import Cell
from ordinate.report.figures import style
from ordinate.report.figures.canvas import Canvas, few, multiples, tip
from ordinate.report.figures.figure import Figure, named, where
from ordinate.report.figures.style import INK, MUTED, SMALL
from ordinate.report.tables.cell import best_first
from ordinate.report.tables.numbers import Unit

Curve = dict[int, float]


def figures(comparison: Comparison, cell: Cell) -> Iterator[Figure]:
    if not any(o.result and o.result.curve for r in comparison.within(cell) for o in r.done):
        return
    for metric in dict.fromkeys([comparison.metric, "accuracy", "loss"]):
        yield _figure(comparison, cell, metric)


def _figure(comparison: Comparison, cell: Cell, metric: str) -> Figure:
    title = f"Validation {metric} while training{where(comparison, cell)}"
    caption = (
        f"{metric.capitalize()} on validation samples, in {Unit(metric).name}, against training "
        "steps; a panel per method, best first at the trained length. Thin lines are seeds, the "
        "thick one their mean, the band from the lowest to the highest seed. A run that stopped "
        "early keeps its last value until all have stopped. Grey: the means of the other methods."
    )
    if metric == "accuracy":
        caption += " Dotted lines are at 95 % and 99 %."
    elif metric == comparison.metric == "loss" and comparison.lines():
        caption += " Dashed lines are computed: " + _named(comparison) + "."
    if failed := [row.method for row in comparison.within(cell) if row.failures]:
        caption += f" Runs that failed have no curve ({', '.join(failed)})."

    def paint(width: float) -> Canvas:
        return _paint(comparison, cell, metric, Canvas(width, title))

    return Figure(named(comparison, f"curves-{metric}", cell), title, caption, paint)


def _named(comparison: Comparison) -> str:
    unit = Unit(comparison.metric)
    return ", ".join(f"{line.name} {unit.plain(line.value)}" for line in comparison.lines())


def _curves(row: Row, metric: str) -> dict[int, Curve]:
    factor = Unit(metric).factor
    return {
        o.trial.seed: {p.step: factor * getattr(p, metric) for p in o.result.curve}
        for o in row.done
        if o.result and o.result.curve
    }


def _table(curves: dict[int, Curve]) -> dict[int, list[float]]:
    """All seeds by step, the last value of each kept."""
    steps = sorted({step for curve in curves.values() for step in curve})
    held: dict[int, list[float]] = {step: [] for step in steps}
    for curve in curves.values():
        value = None
        for step in steps:
            value = curve.get(step, value)
            if value is not None:
                held[step].append(value)
    return held


def _paint(comparison: Comparison, cell: Cell, metric: str, canvas: Canvas) -> Canvas:
    looks, unit = style.looks(comparison), Unit(metric)
    shown = {r.method: _curves(r, metric) for r in best_first(comparison, cell)}
    shown = {method: curves for method, curves in shown.items() if curves}
    tables = {method: _table(curves) for method, curves in shown.items()}
    means = {m: {s: fmean(v) for s, v in table.items()} for m, table in tables.items()}
    values = [v for table in tables.values() for vs in table.values() for v in vs]
    near = sorted(
        (line.value, line.name) for line in comparison.lines()
        if metric == comparison.metric == "loss" and 0 < line.value <= max(values)
    )[::-1]  # fmt: skip
    dashed = f"; dashed, from the top: {', '.join(name for _, name in near)}" if near else ""
    panels = multiples(
        canvas, list(shown), looks, beside=f"{metric} ({unit.name}){dashed}", below="training steps"
    )
    log = metric == "loss" and max(values) > 8 * max(min(values), 1e-12)
    for (method, curves), axes in zip(shown.items(), panels, strict=True):
        look, table = looks[method], tables[method]
        for other, mean in means.items():
            if other != method:
                axes.plot(list(mean), list(mean.values()), color=MUTED, alpha=0.35, lw=0.7)
        lowest, highest = [min(v) for v in table.values()], [max(v) for v in table.values()]
        axes.fill_between(list(table), lowest, highest, color=look.colour, alpha=0.18, lw=0)
        for seed, curve in curves.items():
            said = f"{unit.plain(list(curve.values())[-1] / unit.factor)} {unit.name} at the end"
            axes.plot(
                list(curve), list(curve.values()), color=look.colour, lw=0.6, alpha=0.7,
                gid=tip(method, seed, said),
            )  # fmt: skip
        axes.plot(list(means[method]), list(means[method].values()), color=look.colour, lw=1.8)
    _dress(comparison, metric, panels, values, [at for at, _ in near], log, cell)
    return canvas.done()


def _dress(
    comparison: Comparison, metric: str, panels, values: list[float], lines: list[float],
    log: bool, cell: Cell,
) -> None:  # fmt: skip
    first, least = panels[0], min([*values, *lines])
    limit = max(run.limit for run in comparison.steps(THRESHOLDS[0], cell).values())
    first.set_xlim(0, limit * 1.02)
    from matplotlib.ticker import (
        FixedLocator,
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
    )

    # None at the right end, where its words would run into the next panel.
    ticks = [at for at in MaxNLocator(3).tick_values(0, limit) if at < 0.9 * limit]
    first.xaxis.set_major_locator(FixedLocator(ticks))
    first.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}"))
    if log:
        first.set_yscale("log")
        first.yaxis.set_major_locator(
            LogLocator(subs=(1,) if max(values) > 50 * min(values) else (1, 3))
        )
        first.yaxis.set_minor_formatter(NullFormatter())
        first.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        first.set_ylim(least * 0.8, max(values) * 1.3)
    elif metric == "accuracy":
        first.set_ylim(min(values) - 3, 110 if max(values) > 85 else max(values) * 1.1)
        few(first, "y", 4)
    else:
        first.set_ylim(least - 0.08 * (max(values) - least), max(values) * 1.05)
        few(first, "y", 4)
    for axes in panels:
        if metric == "accuracy" and max(values) > 85:
            for at in THRESHOLDS:
                axes.axhline(100 * at, color=INK, lw=0.8, ls=(0, (1, 1.5)), zorder=1)
        for at in lines:
            axes.axhline(at, color=MUTED, lw=0.8, ls=(0, (3, 2)), zorder=1)
    if metric == "accuracy" and max(values) > 85:
        common = {"size": SMALL, "color": INK, "ha": "left"}
        panels[0].text(limit * 0.02, 100.2, "99 %", va="bottom", **common)
        panels[0].text(limit * 0.02, 93.5, "95 %", va="top", **common)
