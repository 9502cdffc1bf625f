"""A comparison as tables: for the terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING

from ordinate.report.tables import cell, drawn, grid, verdicts
from ordinate.report.tables.sheet import Column, Line, Report, Sheet

if TYPE_CHECKING:
    from rich.console import Console

    from ordinate.experiments.comparison import Comparison

__all__ = ["Column", "Line", "Report", "Sheet", "as_markdown", "reports", "show", "text"]


def reports(
    comparison: Comparison, *, seeds: bool = False, cells: bool = False
) -> Iterator[Report]:
    """What is said, before it is drawn: of the cell, or of all cells at once.

    seeds:  a row for every seed
    cells:  if there are several cells, each of them in full as well
    """
    every = comparison.plan.cells
    if many := len(every) > 1:
        yield grid.report(comparison)
    if cells or seeds or not many:
        for one in every:
            yield cell.report(comparison, one, seeds=seeds)
    yield Report("setting", [], [], verdicts.of_all(comparison))


def show(
    comparison: Comparison, console: Console, *, seeds: bool = False, cells: bool = False
) -> None:
    """Prints all of it, at the width of the console."""
    for one in reports(comparison, seeds=seeds, cells=cells):
        if one.sheets and len(comparison.plan.cells) > 1 and one.name != "all cells":
            console.print(f"\n— {one.name} —", style="bold")
        for piece in drawn.rich(one, console.width):
            console.print(piece)


def text(
    comparison: Comparison, width: int = 80, *, seeds: bool = False, cells: bool = False
) -> str:
    """What `show` prints, as plain text."""
    from rich.console import Console

    page = StringIO()
    console = Console(file=page, width=width, highlight=False, emoji=False, markup=False)
    show(comparison, console, seeds=seeds, cells=cells)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()) + "\n"


def as_markdown(comparison: Comparison, *, seeds: bool = False, cells: bool = False) -> str:
    """The tables, footnotes and sentences as Markdown."""
    made = []
    for one in reports(comparison, seeds=seeds, cells=cells):
        if one.sheets and len(comparison.plan.cells) > 1 and one.name != "all cells":
            made.append(f"### {one.name}")
        made.append(drawn.markdown(one))
    return "\n\n".join(made) + "\n"
