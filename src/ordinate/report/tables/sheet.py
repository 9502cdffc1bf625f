"""A table before it is drawn: plain text in rows and columns, so that every page shows the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["method", "seed", "computed", "verdict"]


@dataclass(frozen=True)
class Column:
    """group:  what stands together when a table is too wide; "" is repeated in every part"""

    head: str
    group: str = ""
    right: bool = True


@dataclass(frozen=True)
class Line:
    """A row. `gap`: apart from the row above; computed rows were not measured."""

    cells: tuple[str, ...]
    kind: Kind = "method"
    gap: bool = False


@dataclass(frozen=True)
class Sheet:
    """title:  what the table tells, in a line
    legend: how to read a group of columns, by group
    """

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    legend: dict[str, str] = field(default_factory=dict)

    def only(self, wanted: Sequence[int]) -> Sheet:
        """Some of the columns, in their order, and the rows that say something in them."""
        lines = [Line(tuple(x.cells[i] for i in wanted), x.kind, x.gap) for x in self.lines]
        if any(self.columns[i].group for i in wanted):
            told = [i for i, at in enumerate(wanted) if self.columns[at].group]
            lines = [line for line in lines if any(line.cells[i] for i in told)]
        groups = {self.columns[i].group for i in wanted}
        legend = {group: text for group, text in self.legend.items() if group in groups}
        return Sheet(self.title, tuple(self.columns[i] for i in wanted), tuple(lines), legend)

    def aligned(self) -> Sheet:
        """With "±" under "±" and point under point in every column of scores."""
        columns = [_aligned(column) for column in zip(*(x.cells for x in self.lines), strict=True)]
        cells = list(zip(*columns, strict=True))
        lines = [Line(c, x.kind, x.gap) for c, x in zip(cells, self.lines, strict=True)]
        return Sheet(self.title, self.columns, tuple(lines), self.legend)


@dataclass(frozen=True)
class Report:
    """What is said of a cell, or of all cells: tables, footnotes by mark, sentences by subject."""

    name: str
    sheets: list[Sheet]
    notes: list[tuple[str, str]]
    verdicts: list[tuple[str, str]]


def _aligned(cells: Sequence[str]) -> list[str]:
    pairs = [cell.partition(" ±") for cell in cells]
    wide = max((len(half) for _, sign, half in pairs if sign), default=0)
    if not wide:
        return list(cells)
    made = []
    for cell, (mean, sign, half) in zip(cells, pairs, strict=True):
        number = cell.replace(".", "").isdigit()
        tail = f" ±{half:<{wide}}" if sign else " " * (wide + 2) if number else ""
        made.append(cell if "\n" in cell else (mean if sign else cell) + tail)
    return made
