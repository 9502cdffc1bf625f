"""A row per method: all seeds as points, the middle and its interval, the number at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ordinate.report.figures.canvas import LINE, TICKS, Canvas, few, folded, measure, tip
from ordinate.report.figures.style import BODY, GRID, INK, MUTED, PAPER, SMALL, Look

ROW = 0.25


@dataclass(frozen=True)
class Dot:
    """One seed. `late`: it is not there yet at x, drawn as an arrow onwards."""

    seed: int
    x: float
    said: str
    late: bool = False


@dataclass(frozen=True)
class Row:
    """said:  the number at the right end, or why there is none
    bar:   up to where a bar goes, from zero
    """

    method: str
    look: Look
    dots: tuple[Dot, ...] = ()
    middle: float | None = None
    low: float | None = None
    high: float | None = None
    said: str = ""
    bar: float | None = None


def draw(
    canvas: Canvas, rows: Sequence[Row], limits: tuple[float, float], *, heading: str = "",
    lines: Sequence[tuple[str, float]] = (), left: float = 0.0, width: float | None = None,
    below: str = "",
) -> None:  # fmt: skip
    """Draws them from canvas.top on, between `left` and `left + width`, and moves canvas.top.

    lines:  what is computed, as a name and a place each; those outside the limits are named at
            the edge with an arrow
    """
    width = canvas.width - left if width is None else width
    names = [folded(row.method, min(max(0.34 * width, 1.0), 1.5)) for row in rows]
    name = max(measure(line) for lines_ in names for line in lines_) + 0.3
    said = max((measure(row.said, SMALL) for row in rows), default=0) + 0.12
    x, wide = left + name, width - name - said - 0.06
    if heading:
        for line in folded(heading, width - 0.1, BODY, "bold"):
            canvas.text(left + 0.05, canvas.top + 0.08, line, weight="bold")
            canvas.top += LINE
        canvas.top += 0.04
    span = limits[1] - limits[0]
    levels = _labels(canvas, lines, limits, x, wide, left, left + width)
    heights = [max(ROW, LINE * len(lines_) + 0.06) for lines_ in names]
    axes = canvas.axes(x, canvas.top, wide, sum(heights))
    axes.set_xlim(*limits)
    axes.set_ylim(sum(heights), 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    few(axes, "x", max(2, int(wide / 0.55)))
    for (_, value), level in zip(lines, levels, strict=True):
        if level is not None:
            axes.plot(
                [value, value], [sum(heights), -level], ls=(0, (3, 2)), lw=0.9, color=MUTED,
                clip_on=False, zorder=1,
            )  # fmt: skip
    y = 0.0
    for row, high, words in zip(rows, heights, names, strict=True):
        middle = y + high / 2
        guide = [max(limits[0], row.bar or limits[0]), limits[1]]
        axes.plot(guide, [middle, middle], lw=0.6, color=GRID, zorder=0.5, solid_capstyle="butt")
        for at, line in enumerate(words):
            dy = (at - (len(words) - 1) / 2) * LINE
            canvas.text(x - 0.12, canvas.top + middle + dy, line, ha="right")
        mark = left + name - max(map(measure, words)) - 0.2
        canvas.mark(mark, canvas.top + middle, row.look)
        colour = MUTED if not row.dots and row.bar is None else INK
        end = left + width - 0.05
        canvas.text(end, canvas.top + middle, row.said, ha="right", size=SMALL, colour=colour)
        _row(axes, row, middle, high, limits, span)
        y += high
    canvas.top += sum(heights) + TICKS
    if below:
        canvas.under(x, below, left + width - x)


def _row(axes, row: Row, y: float, high: float, limits: tuple[float, float], span: float) -> None:
    from matplotlib.patches import Rectangle

    look = row.look
    if row.bar is not None:
        bar = Rectangle(
            (0, y - 0.07), row.bar, 0.14, fc=look.colour, alpha=0.45, ec="none",
            gid=tip(row.method, None, row.said),
        )  # fmt: skip
        axes.add_patch(bar)
    if row.low is not None and row.high is not None:
        start, stop = max(row.low, limits[0]), min(row.high, limits[1])
        band = Rectangle(
            (start, y - 0.05), stop - start, 0.1, fc=look.colour, alpha=0.28, ec="none"
        )
        axes.add_patch(band)
    lanes = max(len(row.dots) - 1, 1)
    for i, dot in enumerate(row.dots):
        lane = y + (i - lanes / 2) / lanes * min(0.13, high / 2) if len(row.dots) > 1 else y
        axes.plot(
            [dot.x], [lane], marker=">" if dot.late else look.mark, ms=4.2, ls="none",
            mfc=PAPER if dot.late else look.colour, mec=look.colour if dot.late else PAPER,
            mew=0.9 if dot.late else 0.4, clip_on=False, zorder=3,
            gid=tip(row.method, dot.seed, dot.said),
        )  # fmt: skip
    if row.middle is not None and limits[0] <= row.middle <= limits[1]:
        reach = [y - 0.105, y + 0.105]
        axes.plot([row.middle] * 2, reach, color=INK, lw=1.5, zorder=4, solid_capstyle="butt")


def _labels(
    canvas: Canvas, lines: Sequence[tuple[str, float]], limits: tuple[float, float], x: float,
    wide: float, least: float, most: float,
) -> list[float | None]:  # fmt: skip
    """Names the computed lines above the panel, in as many tiers as keep them apart.

    Returns how far each line goes up, in inches; None for one outside.
    """
    tiers: list[list[tuple[float, float]]] = []
    put: list[tuple[str, float, int]] = []
    inside: list[bool] = []
    for name, value in lines:
        here = limits[0] <= value <= limits[1]
        words = name if here else f"{name} →" if value > limits[1] else f"← {name}"
        size = measure(words, SMALL)
        share = min(max((value - limits[0]) / (limits[1] - limits[0]), 0), 1)
        start = min(max(x + share * wide - size / 2, least + 0.02), most - size - 0.02)
        tier = 0
        while tier < len(tiers) and any(
            start < stop + 0.08 and start + size > begin - 0.08 for begin, stop in tiers[tier]
        ):
            tier += 1
        if tier == len(tiers):
            tiers.append([])
        tiers[tier].append((start, start + size))
        put.append((words, start, tier))
        inside.append(here)
    for words, start, tier in put:
        at = canvas.top + (len(tiers) - 1 - tier) * LINE + 0.07
        canvas.text(start, at, words, size=SMALL, colour=MUTED)
    canvas.top += len(tiers) * LINE + 0.03 * bool(tiers)
    return [0.03 + t * LINE if here else None for (_, _, t), here in zip(put, inside, strict=True)]
