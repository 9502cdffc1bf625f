"""A canvas in inches from the top left, since letters do not shrink with the width."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ordinate.report.figures.style import BODY, GRID, INK, MUTED, SMALL, TITLE, Look

#: Above panels, below them for the ticks, and between neighbours.
TICKS, GAP = 0.2, 0.14
LINE = 0.155


class Canvas:
    """Grows downwards: what is drawn moves `top`, and `done` cuts it there."""

    def __init__(self, width: float, title: str = "") -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.width, self.top = width, 0.05
        self.tall = 40.0
        self.figure = Figure(figsize=(width, self.tall))
        FigureCanvasAgg(self.figure)
        self._placed: list[Callable[[float], None]] = []
        if title:
            for line in folded(title, width - 0.1, TITLE, "bold"):
                self.text(0.05, self.top + 0.08, line, size=TITLE, weight="bold")
                self.top += 0.17
            self.top += 0.06

    def axes(self, left: float, top: float, width: float, height: float) -> Any:
        """A panel with an axis to the left and below."""
        made = self.figure.add_axes((0, 0, 1, 1))
        made.spines[["top", "right"]].set_visible(False)
        self._placed.append(
            lambda tall: made.set_position(
                (left / self.width, 1 - (top + height) / tall, width / self.width, height / tall)
            )
        )
        return made

    def text(
        self, x: float, y: float, said: str, *, size: float = BODY, ha: str = "left",
        colour: str = INK, **more: Any,
    ) -> None:  # fmt: skip
        """Words whose middle line is at y."""
        put = self.figure.text(
            x / self.width, 0, said, size=size, ha=ha, va="center_baseline", color=colour, **more
        )
        self._placed.append(lambda tall: put.set_y(1 - y / tall))

    def mark(self, x: float, y: float, look: Look, size: float = 4.5) -> None:
        """A method's mark, as in a legend."""
        from matplotlib.lines import Line2D

        put = Line2D([x / self.width], [0], marker=look.mark, color=look.colour, ms=size, ls="none")
        self.figure.add_artist(put)
        self._placed.append(lambda tall: put.set_ydata([1 - y / tall]))

    def above(self, said: str) -> None:
        """What the axis beside panels is of, above them."""
        for line in folded(said, self.width - 0.1, SMALL):
            self.text(0.05, self.top + 0.07, line, colour=MUTED, size=SMALL)
            self.top += LINE
        self.top += 0.03

    def under(self, x: float, said: str, width: float | None = None) -> None:
        """What an axis is of, below its ticks."""
        for line in folded(said, (width or self.width - x) - 0.05, SMALL):
            self.text(x, self.top + 0.09, line, colour=MUTED, size=SMALL)
            self.top += LINE
        self.top += 0.03

    def done(self) -> Canvas:
        self.tall = self.top + 0.05
        self.figure.set_size_inches(self.width, self.tall)
        for place in self._placed:
            place(self.tall)
        return self


@cache
def measure(said: str, size: float = BODY, weight: str = "normal") -> float:
    """How wide a line of words is, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    if not said.strip():
        return 0.03 * len(said)
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    return float(text_to_path.get_text_width_height_descent(said, font, ismath=False)[0]) / 72


def folded(said: str, room: float, size: float = BODY, weight: str = "normal") -> list[str]:
    """In lines that fit: broken after a space, or in long names after : + ( , = _ / or anywhere."""
    lines = [""]
    for piece in re.findall(r"[^\s:+(,=_/]*[\s:+(,=_/]?", said):
        while piece:
            if measure((lines[-1] + piece).rstrip(), size, weight) <= room:
                lines[-1] += piece
                break
            if lines[-1]:
                lines.append("")
            elif len(piece) > 1:
                fits = next(
                    n for n in range(len(piece), 0, -1)
                    if n == 1 or measure(piece[:n], size, weight) <= room
                )  # fmt: skip
                lines[-1], piece = piece[:fits], piece[fits:]
            else:
                lines[-1] = piece
                break
    return [line.rstrip() for line in lines if line.strip()] or [said]


def tip(method: str, seed: int | None, value: str) -> str:
    """What a point says when pointed at; `save` makes it a tooltip."""
    return "tip:" + " · ".join([method, *([f"seed {seed}"] if seed is not None else []), value])


def apart(wanted: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones, in their order, at least `least` apart, within the limits."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    least = min(least, (high - low) / max(len(wanted) - 1, 1))
    placed = [0.0] * len(wanted)
    before = low - least
    for i in order:
        placed[i] = before = max(wanted[i], before + least)
    after = high + least
    for i in reversed(order):
        placed[i] = after = min(placed[i], after - least)
    return placed


def grid_lines(axes: Any, which: str = "y") -> None:
    axes.grid(True, axis=which, color=GRID, lw=0.6)
    axes.set_axisbelow(True)


def few(axes: Any, which: str, most: int) -> None:
    """A few round ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.10g}"))


def multiples(
    canvas: Canvas, names: Sequence[str], looks: dict[str, Look], *, height: float = 1.0,
    left: float = 0.42, below: str = "", beside: str = "",
) -> list[Any]:  # fmt: skip
    """A panel per method, as many abreast as fit; all with the same axes.

    below, beside:  what is on the axes; `beside` stands above all panels
    """
    columns = max(1, min(len(names), int((canvas.width - left + 0.1) / 1.45)))
    wide = (canvas.width - left - 0.08 - GAP * (columns - 1)) / columns
    made: list[Any] = []
    if beside:
        canvas.above(beside)
    for start in range(0, len(names), columns):
        row = names[start : start + columns]
        titles = [folded(name, wide - 0.14) for name in row]
        deep = max(map(len, titles)) * LINE + 0.03
        lowest = start + columns >= len(names)
        for i, (name, lines) in enumerate(zip(row, titles, strict=True)):
            x = left + i * (wide + GAP)
            canvas.mark(x + 0.05, canvas.top + 0.07, looks[name])
            for at, line in enumerate(lines):
                canvas.text(x + 0.14, canvas.top + 0.07 + at * LINE, line, weight="bold")
            axes = canvas.axes(x, canvas.top + deep, wide, height)
            grid_lines(axes)
            if made:
                axes.sharex(made[0])
                axes.sharey(made[0])
            last = start + i + columns >= len(names)
            axes.tick_params(labelleft=i == 0, labelbottom=last)
            made.append(axes)
        hanging = not lowest and len(names) - start - columns < columns
        canvas.top += deep + height + (TICKS if lowest or hanging else 0.08)
    if below:
        canvas.under(left, below)
    return made
