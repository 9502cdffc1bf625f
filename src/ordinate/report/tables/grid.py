"""The tables of many cells: a depth × epochs grid per method, and who is first in each cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ordinate.experiments.comparison import Comparison, Row
from ordinate.experiments.plan import Cell
from ordinate.experiments.stats import FEWEST, Ranking
from ordinate.report.tables import verdicts
from ordinate.report.tables.cell import COMPUTED, WORD, there
from ordinate.report.tables.notes import Notes
from ordinate.report.tables.numbers import Unit, count, listed, short, steps, whole
from ordinate.report.tables.sheet import Column, Line, Report, Sheet


@dataclass(frozen=True)
class Target:
    """What is scored: all targets at a length, or a part of them."""

    length: int
    part: str
    title: str


def targets(comparison: Comparison) -> list[Target]:
    """All targets at the trained length, each part of them, and the other lengths."""
    trained, word = comparison.task.length, WORD[comparison.metric]
    found, each = verdicts.parts(comparison), f"at length {comparison.task.length}"
    whole = f"all targets, {each}" if found else f"{each}, the trained one"
    return [
        Target(trained, "", f"{word} {whole}" if not found else f"{word} of {whole}"),
        *(Target(trained, part, f"{word} of {part} alone, {each}") for part in found),
        *(
            Target(n, "", f"{word} at length {n}")
            for n in comparison.lengths
            if n != trained
        ),
    ]  # fmt: skip


def axes(comparison: Comparison) -> tuple[list[int], list[int]]:
    """The depths and the budgets."""
    cells = comparison.plan.cells
    return list(dict.fromkeys(c.layers for c in cells)), list(
        dict.fromkeys(c.epochs for c in cells)
    )


def report(comparison: Comparison) -> Report:
    """Everything about all cells at once."""
    notes, unit = Notes(comparison, comparison.rows), Unit(comparison.metric)
    sheets, said = [], []
    floors = []
    for target in targets(comparison):
        found = {
            cell: comparison.ranking(target.length, cell, target.part)
            for cell in comparison.plan.cells
        }
        enough = comparison.plan.seeds >= FEWEST
        floors += [f.noise_floor for f in found.values() if enough and f.noise_floor is not None]
        sheets.append(_scores(comparison, target, found, notes))
        said.append((target.title, _winners(comparison, found)))
    for accuracy in verdicts.thresholds(comparison, comparison.plan.cells):
        sheets.append(_steps(comparison, accuracy, notes))
    if any(row.done for row in comparison.rows):
        sheets.append(_cost(comparison, notes))
    if floors:
        low, high = unit.plain(min(floors)), unit.plain(max(floors))
        said.append((
            "Noise floor", f"{low} to {high} {unit.difference}, by cell: {verdicts.floor(comparison)}",
        ))  # fmt: skip
    return Report("all cells", [s.aligned() for s in sheets], notes.found, said)


def _winners(comparison: Comparison, found: dict[Cell, Ranking]) -> str:
    won: dict[str, int] = {}
    for ranking in found.values():
        if ranking.winner:
            won[ranking.winner] = won.get(ranking.winner, 0) + 1
    open_ = len(found) - sum(won.values())
    if not won and (late := verdicts.unfinished(comparison)):
        return late
    if not won:
        return f"In none of {count(len(found), 'cell')} can it be told who is first."
    each = [f"{name} is first in {n}" for name, n in sorted(won.items(), key=lambda x: -x[1])]
    each += [f"in {open_} it cannot be told who is first"] * bool(open_)
    return f"Of {count(len(found), 'cell')} {listed(each)}."


def _sheet(
    comparison: Comparison, title: str, legend: str, notes: Notes, text: Callable[[Row], str],
    first: Callable[[Cell], str] | None = None, computed: Mapping[str, str] = MappingProxyType({}),
) -> Sheet:  # fmt: skip
    """Rows of method (and depth), a column for each budget; depths are columns if one budget is all."""
    depths, budgets = axes(comparison)
    both = len(depths) > 1 and len(budgets) > 1
    across = [(count(n, "epoch"), n) for n in budgets]
    if not both and len(depths) > 1:
        across = [(count(n, "layer"), n) for n in depths]
    down = depths if both else [depths[0] if len(budgets) > 1 else budgets[0]]
    columns = [Column("method", right=False)] + [Column("layers")] * both
    columns += [Column(head, "cells") for head, _ in across]

    def cells(at: int) -> list[Cell]:
        deep = both or len(budgets) > 1
        return [Cell(at, n) if deep else Cell(n, at) for _, n in across]

    lines = []
    for method in comparison.plan.methods:
        for i, at in enumerate(down):
            name = notes.name(method) if i == 0 else ""
            held = [text(comparison.row(method, cell)) for cell in cells(at)]
            lines.append(Line((name, *[str(at)] * both, *held)))
    for i, at in enumerate(down if first else []):
        held = [first(cell) for cell in cells(at)] if first else []
        lines.append(Line(("" if i else "first", *[str(at)] * both, *held), "verdict", not i))
    across_blank = (*[""] * both, *[" "] * len(across))
    if computed:
        lines.append(Line((COMPUTED, *across_blank), "computed", True))
    for name, value in computed.items():
        lines.append(Line((f"  {name}", *[""] * both, *[value] * len(across)), "computed"))
    return Sheet(title, tuple(columns), tuple(lines), {"cells": legend})


def _scores(
    comparison: Comparison, target: Target, found: dict[Cell, Ranking], notes: Notes
) -> Sheet:
    unit = Unit(comparison.metric)
    lines = {x.name: unit.plain(x.value) for x in comparison.lines(target.length, target.part)}

    def text(row: Row) -> str:
        refused = row.refused(target.length)
        mean = row.interval(target.length, comparison.metric, target.part)
        return "refuses" if refused else unit.mean(mean)

    legend = (
        f"On unseen samples, in {unit.name}, {'more' if unit.name == '%' else 'less'} is better: "
        "mean ± half of its 95 % interval over seeds. First: who is proven better than every "
        "other method of the cell, and its lead over the next."
    )
    if target.part or target.length != comparison.task.length:
        legend = f"In {unit.name}, as above."
    return _sheet(
        comparison, target.title, legend, notes, text, lambda cell: _first(found[cell], unit), lines
    )


def _first(found: Ranking, unit: Unit) -> str:
    """ "rope\nby 0.012 ±0.003", or "cannot tell" and between whom."""
    if found.winner:
        next_ = next(pair for pair in found.pairs if pair.ahead == found.winner)
        return f"{found.winner}\nby {unit.mean(next_.advantage)}"
    if not any(pair.separated for pair in found.pairs):
        return "cannot tell"
    few = len(found.leaders) < 3
    return "cannot tell\n" + (" or ".join(found.leaders) if few else f"{len(found.leaders)} ahead")


def _steps(comparison: Comparison, accuracy: float, notes: Notes) -> Sheet:
    def text(row: Row) -> str:
        return steps(there(row, comparison.steps(accuracy, row.cell)[row.method]))

    first = accuracy == verdicts.thresholds(comparison, comparison.plan.cells)[0]
    legend = (
        "Likewise."
        if not first
        else (
            "Until the validation accuracy is there: the median run, and in parentheses the range that "
            "holds the true median with 95 %; > is beyond the budget, 5/6 that five of six runs got "
            "there."
        )
    )
    return _sheet(comparison, f"Steps to {100 * accuracy:g} %", legend, notes, text)


def _cost(comparison: Comparison, notes: Notes) -> Sheet:
    depths, budgets = axes(comparison)
    columns = [Column("method", right=False)]
    columns += [Column(f"{count(n, 'layer')}\nparameters\nof method", f"{n}") for n in depths]
    columns += [Column(f"{count(n, 'layer')}\nms\nper step", f"{n}") for n in depths]
    lines = []
    for method in comparison.plan.methods:
        rows = [comparison.row(method, Cell(n, budgets[-1])) for n in depths]
        seconds = [row.cost("step_seconds") for row in rows]
        own = [whole(row.cost("of_position")) for row in rows]
        took = [short(None if s is None else s * 1e3) for s in seconds]
        lines.append(Line((notes.name(method), *own, *took)))
    columns = [Column(c.head, c.group and "cost", c.right) for c in columns]
    legend = "Learned parameters the method adds, and what a training step takes."
    return Sheet("Cost by depth", tuple(columns), tuple(lines), {"cost": legend})
