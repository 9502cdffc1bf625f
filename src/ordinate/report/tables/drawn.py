"""Sheets as a terminal shows them, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ordinate.report.tables.sheet import Report, Sheet

GAP = 2
#: A method's name is folded if its table would be too wide, but to no less than this.
NAME = 12
STYLES = {"method": "", "seed": "dim", "computed": "dim italic", "verdict": "bold"}


def rich(report: Report, width: int) -> Iterator[RenderableType]:
    """Tables no wider than `width`, then footnotes, then sentences."""
    for sheet in report.sheets:
        yield Text(sheet.title, style="bold")
        for part in fitted(sheet, width):
            yield Text(" ".join(part.legend.values()), style="dim")
            yield _table(part, width)
            yield Text()
    for mark, sentence in report.notes:
        yield _beside(mark, Text(sentence))
    if report.notes:
        yield Text()
    for subject, sentence in report.verdicts:
        yield _beside("•", Text.assemble((f"{subject}: ", "bold"), sentence))


def markdown(report: Report) -> str:
    """The same as text for a page of Markdown."""
    made = []
    for sheet in report.sheets:
        heads = [column.head.replace("\n", " ") for column in sheet.columns]
        rule = ["--:" if column.right else ":--" for column in sheet.columns]
        rows = [heads, rule, *(_plain(line.cells, line.kind) for line in sheet.lines)]
        made += [f"**{sheet.title}**", *sheet.legend.values()]
        made.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    made += [f"{mark} {sentence}" for mark, sentence in report.notes]
    if report.verdicts:
        made.append("\n".join(f"- **{subject}:** {text}" for subject, text in report.verdicts))
    return "\n\n".join(made)


def _plain(cells: tuple[str, ...], kind: str) -> list[str]:
    bare = [cell.strip().replace("|", "\\|").replace("\n", "<br>") for cell in cells]
    return [f"*{cell}*" if cell and kind in ("computed", "seed") else cell for cell in bare]


def fitted(sheet: Sheet, width: int) -> list[Sheet]:
    """The sheet, or its groups of columns under each other, each as wide as it may be."""
    wide = [_wide(sheet, i) for i in range(len(sheet.columns))]
    stub = [i for i, column in enumerate(sheet.columns) if not column.group]
    free = width - sum(min(wide[i], NAME) if i == 0 else wide[i] + GAP for i in stub)
    groups: dict[str, list[int]] = {}
    for i, column in enumerate(sheet.columns):
        if column.group:
            groups.setdefault(column.group, []).append(i)
    made: list[list[int]] = [[]]
    full = free - max(wide[0] - NAME, 0)
    for group in groups.values():
        here = full if _sum(wide, [*made[-1], *group]) <= full else free
        if made[-1] and _sum(wide, [*made[-1], *group]) > here:
            made.append([])
        for i in group:
            if made[-1] and _sum(wide, [*made[-1], i]) > free:
                made.append([])
            made[-1].append(i)
    return [sheet.only([*stub, *part]) for part in made]


def _sum(wide: list[int], columns: list[int]) -> int:
    return sum(wide[i] + GAP for i in columns)


def _wide(sheet: Sheet, i: int) -> int:
    """The widest line of a column."""
    cells = [sheet.columns[i].head, *(line.cells[i] for line in sheet.lines)]
    return max(cell_len(line) for cell in cells for line in cell.split("\n"))


def _table(sheet: Sheet, width: int) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    wide = [_wide(sheet, i) for i in range(len(sheet.columns))]
    others = sum(w + GAP for w in wide[1:])
    for i, column in enumerate(sheet.columns):
        room = min(wide[i], max(width - others, NAME)) if i == 0 else wide[i]
        # Not rich's own justification, which strips what keeps "±" under "±".
        head = _right(column.head, room) if column.right else column.head
        made.add_column(
            Text(head), width=room, no_wrap=i > 0, overflow="fold", vertical="top",
            header_style="bold",
        )  # fmt: skip
    for line in sheet.lines:
        if line.gap:
            made.add_row()
        cells = [
            _right(cell, w) if column.right else cell
            for cell, column, w in zip(line.cells, sheet.columns, wide, strict=True)
        ]
        made.add_row(*map(Text, cells), style=STYLES[line.kind])
    return made


def _right(cell: str, width: int) -> str:
    return "\n".join(" " * (width - cell_len(line)) + line for line in cell.split("\n"))


def _beside(mark: str, sentence: Text) -> RenderableType:
    """A sentence with its mark in the margin."""
    beside = Table(box=None, pad_edge=False, padding=0, show_header=False)
    beside.add_column(width=max(len(mark) + 1, 2))
    beside.add_column(overflow="fold")
    beside.add_row(mark, sentence)
    return beside
