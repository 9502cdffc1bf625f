"""Beyond the trained length: the score against the length tested, a panel per method."""

from __future__ import annotations

from collections.abc import Iterator

from ordinate.experiments.comparison import Comparison
from ordinate.experiments.plan import Cell
from ordinate.experiments.stats import Interval
from ordinate.report.figures import style
from ordinate.report.figures.canvas import Canvas, few, multiples, tip
from ordinate.report.figures.figure import Figure, named, where
from ordinate.report.figures.style import MUTED, PAPER, SHADE, SMALL
from ordinate.report.tables.cell import WORD, best_first
from ordinate.report.tables.numbers import Unit, listed


def figures(comparison: Comparison, cell: Cell) -> Iterator[Figure]:
    if len(comparison.lengths) < 2:
        return
    word, trained = WORD[comparison.metric], comparison.task.length
    title = f"{word} at lengths never trained{where(comparison, cell)}"
    names = [line.name for line in comparison.lines()]
    caption = (
        f"{word} on unseen samples in {Unit(comparison.metric).name}, against the length tested "
        f"(each step to the right doubles it); trained at {trained} alone, shaded. Points are "
        "seeds, the line their mean, the band its 95 % t-interval. Grey: the means of the other "
        "methods."
    )
    if names:
        caption += f" Dashed lines are computed: {listed(names)}, at each length."
    for row in comparison.within(cell):
        if at := [str(n) for n in comparison.lengths if row.refused(n)]:
            caption += f" {row.method} refuses {listed(at)}."

    def paint(width: float) -> Canvas:
        return _paint(comparison, cell, Canvas(width, title))

    yield Figure(named(comparison, "lengths", cell), title, caption, paint)


def _paint(comparison: Comparison, cell: Cell, canvas: Canvas) -> Canvas:
    looks, unit, metric = style.looks(comparison), Unit(comparison.metric), comparison.metric
    shown = [row for row in best_first(comparison, cell) if row.done]
    lines = sorted(comparison.lines(), key=lambda line: -line.value)
    computed = f"dashed, from the top: {', '.join(line.name for line in lines)}" if lines else ""
    panels = multiples(
        canvas, [row.method for row in shown], looks, height=1.15,
        beside=f"{WORD[metric].lower()} ({unit.name}); {computed}",
        below=f"length tested, on a doubling scale; shaded: trained at {comparison.task.length}",
    )  # fmt: skip
    means: dict[str, dict[int, Interval]] = {}
    for row in shown:
        found = {n: row.interval(n, metric) for n in comparison.lengths}
        means[row.method] = {n: one for n, one in found.items() if one.mean is not None}
    values = []
    for row, axes in zip(shown, panels, strict=True):
        look, own = looks[row.method], means[row.method]
        for other, line in means.items():
            if other != row.method:
                _line(axes, line, unit, color=MUTED, alpha=0.35, lw=0.7)
        band = {n: one for n, one in own.items() if one.low is not None}
        axes.fill_between(
            list(band), [unit.factor * (one.low or 0) for one in band.values()],
            [unit.factor * (one.high or 0) for one in band.values()],
            color=look.colour, alpha=0.2, lw=0,
        )  # fmt: skip
        _line(axes, own, unit, color=look.colour, lw=1.6)
        for n in own:
            for i, (seed, value) in enumerate(row.scores(n, metric).items()):
                if value is None:
                    continue
                x = n * 2 ** (0.16 * (i / max(len(row.seeds) - 1, 1) - 0.5))
                axes.plot(
                    [x], [unit.factor * value], look.mark, ms=3.4, mfc=look.colour, mec=PAPER,
                    mew=0.3, clip_on=False, zorder=3,
                    gid=tip(row.method, seed, f"{unit.plain(value)} {unit.name} at length {n}"),
                )  # fmt: skip
                values.append(unit.factor * value)
        if refused := [str(n) for n in comparison.lengths if row.refused(n)]:
            said = f"refuses {listed(refused)}"
            axes.text(0.97, 0.06, said, transform=axes.transAxes, ha="right", size=SMALL, color=MUTED,
                      bbox={"fc": PAPER, "ec": "none", "pad": 1.5})  # fmt: skip
    _dress(comparison, panels, values)
    return canvas.done()


def _line(axes, means: dict[int, Interval], unit: Unit, **how) -> None:
    axes.plot(list(means), [unit.factor * (one.mean or 0) for one in means.values()], **how)


def _dress(comparison: Comparison, panels, values: list[float]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    lengths, trained, unit = comparison.lengths, comparison.task.length, Unit(comparison.metric)
    first = panels[0]
    first.set_xscale("log", base=2)
    first.set_xlim(lengths[0] / 2**0.3, lengths[-1] * 2**0.3)
    lines = {n: {x.name: unit.factor * x.value for x in comparison.lines(n)} for n in lengths}
    low, high = min(values), max(values)
    near = [
        name for name, value in lines[trained].items()
        if comparison.metric == "accuracy" or value <= high + 2 * (high - low)
    ]  # fmt: skip
    drawn = [line[name] for line in lines.values() for name in near if name in line]
    low, high = min([low, *drawn]), max([high, *drawn])
    pad = 0.08 * (high - low) or 1
    first.set_ylim(low - pad, high + pad)
    few(first, "y", 4)
    for axes in panels:
        axes.axvspan(lengths[0] / 2**0.3, trained * 2**0.15, color=SHADE, zorder=0, lw=0)
        axes.xaxis.set_major_locator(FixedLocator(lengths))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        for name in near:
            at = {n: line[name] for n, line in lines.items() if name in line}
            axes.plot(list(at), list(at.values()), ls=(0, (3, 2)), lw=0.9, color=MUTED, zorder=1)
