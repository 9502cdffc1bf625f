"""The tables of one cell: a row per method, best first; scores, steps, cost."""

from __future__ import annotations

from dataclasses import replace

from ordinate.experiments.comparison import Comparison, Row
from ordinate.experiments.plan import Cell
from ordinate.experiments.steps import Censored
from ordinate.report.tables import verdicts
from ordinate.report.tables.notes import Notes
from ordinate.report.tables.numbers import Unit, count, rate, short, steps, whole
from ordinate.report.tables.sheet import Column, Line, Report, Sheet

COMPUTED = "computed:"
WORD = {"accuracy": "Accuracy", "loss": "Loss"}


def best_first(comparison: Comparison, cell: Cell, length: int | None = None) -> list[Row]:
    """The rows of a cell by their mean at a length, the trained one by default; then the others."""
    sign = -1 if comparison.metric == "accuracy" else 1
    means = {
        row.method: row.interval(length or comparison.task.length, comparison.metric).mean
        for row in comparison.within(cell)
    }
    known = [row for row in comparison.within(cell) if means[row.method] is not None]
    known.sort(key=lambda row: sign * (means[row.method] or 0))
    return [*known, *(row for row in comparison.within(cell) if means[row.method] is None)]


def there(row: Row, runs: Censored) -> Censored:
    """Without the runs still to be made, which are neither soon nor late."""
    return replace(runs, values={s: v for s, v in runs.values.items() if s not in row.missing})


def report(comparison: Comparison, cell: Cell, *, seeds: bool = False) -> Report:
    """Everything about one cell."""
    notes = Notes(comparison, best_first(comparison, cell))
    name = f"{cell.layers} layers, {cell.epochs} epochs"
    made = _sheet(comparison, cell, notes, seeds).aligned()
    return Report(name, [made], notes.found, verdicts.of_cell(comparison, cell))


def _sheet(comparison: Comparison, cell: Cell, notes: Notes, seeds: bool) -> Sheet:
    unit, metric, plan = Unit(comparison.metric), comparison.metric, comparison.plan
    trained, found = comparison.task.length, verdicts.parts(comparison)
    asked = [(trained, ""), *((n, "") for n in comparison.lengths if n != trained)]
    asked += [(trained, part) for part in found]
    limits = verdicts.thresholds(comparison, [cell])
    by_steps = {a: comparison.steps(a, cell) for a in limits}
    columns = [Column("method", right=False)]
    for length, part in asked:
        times = "trained" if length == trained else f"{length / trained:.3g}×"
        head = f"{part}\nat {length}" if part else f"at {length}\n({times})"
        columns.append(Column(head, "parts" if part else "scores"))
    columns += [Column(f"steps to\n{100 * a:g} %", "steps") for a in limits]
    swept = len(plan.rates) > 1
    columns += [Column("learning\nrate", "cost")] * swept
    heads = ["parameters\nof method", "GFLOP\nper step", "ms\nper step", "runs\ndone"]
    columns += [Column(head, "cost") for head in heads]
    lines = []
    for row in best_first(comparison, cell):
        scores = []
        for length, part in asked:
            refused = "refuses" if row.refused(length) else None
            scores.append(refused or unit.mean(row.interval(length, metric, part)))
        timed = [steps(there(row, by_steps[a][row.method])) for a in limits]
        cost = [rate(row.rate)] * swept + _cost(row)
        lines.append(Line((notes.name(row.method), *scores, *timed, *cost)))
        if seeds:
            lines += _each(row, asked, metric, unit, [by_steps[a][row.method] for a in limits],
                           len(cost))  # fmt: skip
    blank = ("",) * (len(columns) - 1 - len(asked))
    values = [_computed(comparison, length, part) for length, part in asked]
    if values[0]:
        lines.append(Line((COMPUTED, *(" " for _ in asked), *blank), "computed", gap=True))
    for name in values[0]:
        cells = (unit.plain(value[name]) if name in value else "" for value in values)
        lines.append(Line((f"  {name}", *cells, *blank), "computed"))
    legend = {
        "scores": f"{WORD[metric]} on unseen samples, in {unit.name}, by the length of the "
        "sequence: mean ± half of its 95 % interval over seeds.",
        "parts": f"{WORD[metric]} on parts of the targets, in {unit.name}, likewise.",
        "steps": "Steps until the accuracy on validation samples is there: the median run, and "
        "in parentheses the range that holds the true median with 95 %; > is beyond the "
        "budget, 5/6 that five of six runs got there.",
        "cost": "What the method adds in learned parameters, what a training step takes "
        "(1 GFLOP is 10⁹ operations), and how many runs there are a result of.",
    }
    groups = {column.group for column in columns}
    legend = {group: text for group, text in legend.items() if group in groups}
    how_many = count(len(comparison.within(cell)), "method")
    title = f"{plan.name}: {how_many} on {plan.task}, best first"
    return Sheet(title, tuple(columns), tuple(lines), legend)


def _cost(row: Row) -> list[str]:
    flops, seconds = row.cost("flops"), row.cost("step_seconds")
    return [
        whole(row.cost("of_position")),
        short(flops / 1e9 if flops is not None else None),
        short(seconds * 1e3 if seconds is not None else None),
        f"{len(row.done)}/{len(row.seeds)}",
    ]


def _each(row: Row, asked, metric: str, unit: Unit, timed: list[Censored], cost: int) -> list[Line]:
    """A line per seed."""
    lines = []
    for seed in row.seeds:
        scores = [unit.plain(row.scores(n, metric, part)[seed]) for n, part in asked]
        if seed in row.missing or seed in row.failures:
            took = ["–"] * len(timed)
        else:
            took = [f">{t.limit}" if t.values[seed] is None else str(t.values[seed]) for t in timed]
        cells = (f"  seed {seed}", *scores, *took, *[""] * cost)
        lines.append(Line(cells, "seed"))
    return lines


def _computed(comparison: Comparison, length: int, part: str) -> dict[str, float]:
    return {line.name: line.value for line in comparison.lines(length, part)}
