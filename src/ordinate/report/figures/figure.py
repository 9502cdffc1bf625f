"""A figure that can be drawn at any width, and the words around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ordinate.report.figures import style
from ordinate.report.tables.numbers import count

if TYPE_CHECKING:
    import matplotlib.figure

    from ordinate.experiments.comparison import Comparison
    from ordinate.experiments.plan import Cell
    from ordinate.report.figures.canvas import Canvas

#: The width of a column of most papers, in inches.
PAPER = 3.3


@dataclass(frozen=True)
class Figure:
    """name:    short, of letters and hyphens: a file's name and an anchor
    title:   what is seen, in words
    caption: how to read it: units, intervals, how many seeds, what is left out
    paint:   draws it, given a width in inches
    """

    name: str
    title: str
    caption: str
    paint: Callable[[float], Canvas]

    def draw(self, width: float = PAPER) -> matplotlib.figure.Figure:
        """Drawn `width` inches wide and as tall as it needs; 96 pixels are an inch."""
        with style.applied():
            return self.paint(width).figure


def named(comparison: Comparison, name: str, cell: Cell) -> str:
    """A figure's name, which says the cell if there are several."""
    if len(comparison.plan.cells) == 1:
        return name
    return f"{name}-{cell.layers}-layers-{cell.epochs}-epochs"


def where(comparison: Comparison, cell: Cell) -> str:
    """ " (16 layers, 4 epochs)" if there are several cells."""
    if len(comparison.plan.cells) == 1:
        return ""
    return f" ({count(cell.layers, 'layer')}, {count(cell.epochs, 'epoch')})"
