"""A comparison as figures: for a phone, a wide page and a paper, in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ordinate.report.figures import cost, curves, depths, grid, lengths, ranking, steps
from ordinate.report.figures.figure import PAPER, Figure
from ordinate.report.figures.save import svg, write
from ordinate.report.figures.style import css

if TYPE_CHECKING:
    from ordinate.experiments.comparison import Comparison
    from ordinate.experiments.plan import Cell

__all__ = ["PAPER", "Figure", "css", "every", "of_cell", "svg", "write"]


def every(comparison: Comparison, *, cells: bool = False) -> list[Figure]:
    """All there is to see; figures without anything in them are left out.

    Of several cells: grids of depth and epochs, and curves and cost of the last cell, which is
    the deepest and longest; with `cells`, all figures of every cell as well.
    """
    found = comparison.plan.cells
    if not any(row.done for row in comparison.rows):
        return []
    if len(found) == 1:
        return list(of_cell(comparison, found[0]))
    made = [*grid.figures(comparison), *depths.figures(comparison)]
    if cells:
        return [*made, *(f for cell in found for f in of_cell(comparison, cell))]
    last = max(found, key=lambda cell: (any(r.done for r in comparison.within(cell)), cell))
    return [*made, *_learning(comparison, last)]


def of_cell(comparison: Comparison, cell: Cell) -> Iterator[Figure]:
    """The figures of one depth and budget."""
    yield from ranking.figures(comparison, cell)
    yield from lengths.figures(comparison, cell)
    yield from _learning(comparison, cell)


def _learning(comparison: Comparison, cell: Cell) -> Iterator[Figure]:
    yield from curves.figures(comparison, cell)
    yield from steps.figures(comparison, cell)
    yield from cost.figures(comparison, cell)
