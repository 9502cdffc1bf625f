"""What can be said of a comparison, in sentences."""

from __future__ import annotations

from functools import cache

from ordinate.experiments.comparison import THRESHOLDS, Comparison
from ordinate.experiments.plan import Cell
from ordinate.experiments.stats import FEWEST, Ranking
from ordinate.report.tables.numbers import Unit, count, listed, rate
from ordinate.tasks import SPLITS, make

Said = list[tuple[str, str]]


def of_cell(comparison: Comparison, cell: Cell) -> Said:
    """Who is first at each length and soonest at each threshold, and what a difference is worth."""
    said, floors, unit = [], {}, Unit(comparison.metric)
    trained = comparison.task.length
    order = [trained, *(n for n in comparison.lengths if n != trained)]
    for length in order:
        found = comparison.ranking(length, cell)
        full = comparison.saturated(length, cell)
        note = ", the trained one" if length == trained else ""
        said.append((f"At length {length}{note}", full or _ranked(comparison, found)))
        if found.noise_floor is not None:
            floors[length] = unit.plain(found.noise_floor)
    for part in parts(comparison):
        found = comparison.ranking(trained, cell, part)
        said.append((f"On {part} alone, at length {trained}", _ranked(comparison, found)))
    for accuracy in thresholds(comparison, [cell]):
        found = comparison.ranking_steps(accuracy, cell)
        sentence = unfinished(comparison) or found.sentence
        said.append((f"Steps to {100 * accuracy:g} %", sentence))
    if late := unfinished(comparison):
        said = [one for one in said if one[1] != late] + [("Ranking", late)]
    if floors and comparison.plan.seeds >= FEWEST:
        each = listed([f"{floor} at length {n}" for n, floor in floors.items()])
        said.append((
            "Noise floor", f"{each}, in {unit.difference}: {floor(comparison)}",
        ))  # fmt: skip
    return said


def floor(comparison: Comparison) -> str:
    """What a noise floor means."""
    return (
        "about what two typical methods have to differ by to be told apart with "
        f"{count(comparison.plan.seeds, 'seed')}; less is enough where seeds agree closely."
    )


def parts(comparison: Comparison) -> list[str]:
    """The parts of the targets that have scores of their own."""
    tests = (o.result.test for row in comparison.rows for o in row.done if o.result)
    return list(dict.fromkeys(part for test in tests for s in test.values() for part in s.parts))


def _ranked(comparison: Comparison, found: Ranking) -> str:
    return found.sentence if found.leaders else unfinished(comparison) or found.sentence


def unfinished(comparison: Comparison) -> str | None:
    """A sentence if runs are still to come."""
    if not comparison.missing:
        return None
    total = sum(len(row.seeds) for row in comparison.rows)
    return (
        f"Not finished: {comparison.missing} of {count(total, 'run')} are still to be made; "
        "a method is ranked once all its runs are there."
    )


def thresholds(comparison: Comparison, cells: list[Cell]) -> list[float]:
    """Those of which there is something to say: all for accuracy, else those that were reached."""
    if comparison.metric == "accuracy":
        return list(THRESHOLDS)
    return [
        a for a in THRESHOLDS
        if any(run.reached for cell in cells for run in comparison.steps(a, cell).values())
    ]  # fmt: skip


def of_all(comparison: Comparison) -> Said:
    """What holds for every cell: the budget, the learning rates, the setting."""
    plan, said = comparison.plan, []
    if plan.equal_budget:
        said.append((
            "Budget", "Ranked at equal budget: what the same epochs gave each method, also where "
            "it had not converged.",
        ))  # fmt: skip
    else:
        said.append((
            "Budget", "Only methods that converged in every run are ranked: the score of a run "
            "cut short tells of its budget, not of the method.",
        ))  # fmt: skip
    if len(plan.rates) > 1:
        tried = ", ".join(map(rate, plan.rates))
        seeds = count(min(plan.sweep_seeds, plan.seeds), "seed")
        said.append((
            "Learning rate", f"The best of {tried} for each method, by the validation loss of "
            f"{seeds}.",
        ))  # fmt: skip
    else:
        fixed = plan.rates[0] if plan.rates else plan.recipe.rate
        said.append((
            "Learning rate", f"{rate(fixed)} for all methods, tuned for none: a method may do "
            "better at another.",
        ))  # fmt: skip
    if plan.seeds < FEWEST:
        said.append((
            "Seeds", f"{count(plan.seeds, 'seed')}: intervals are wide, and nothing is ranked "
            f"with fewer than {FEWEST}.",
        ))  # fmt: skip
    return [*said, ("Setting", setting(comparison))]


def setting(comparison: Comparison) -> str:
    """Task, model, recipe, seeds and samples, in a line."""
    plan = comparison.plan
    sizes, recipe = plan.sizes, plan.recipe
    layers = listed([str(n) for n in plan.layers or (sizes.layers,)], "or")
    noun = "epoch" if plan.epochs in ((), (1,)) and recipe.epochs == 1 else "epochs"
    epochs = listed([str(n) for n in plan.epochs or (recipe.epochs,)], "or")
    samples = ", ".join(f"{n:,} {split}" for split, n in _samples(plan.task).items())
    return (
        f"{plan.task} · {layers} layers, {sizes.dim} wide, {sizes.heads} heads, "
        f"dropout {sizes.dropout:g} · {epochs} {noun}, batches of {recipe.batch}, AdamW, "
        f"{recipe.precision} · {count(plan.seeds, 'seed')} · samples: {samples}"
    )


@cache
def _samples(task: str) -> dict[str, int]:
    made = make(task)
    return {split: len(made.samples(split, 0)) for split in SPLITS}
