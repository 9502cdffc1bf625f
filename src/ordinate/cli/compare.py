from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from rich.console import Console

    from ordinate.experiments import Comparison, Plan
    from ordinate.training import Trial

#: Plans of so many epochs times layers say how long they take before they start.
LONG = 1000


def run(
    methods: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="METHOD ...", help="instead of the preset's; mine.py:Mine is yours"),
    ] = (),
    preset: Annotated[
        str, tyro.conf.arg(metavar="NAME", help="quick, pattern, template-grid, depth, or a .toml")
    ] = "quick",
    task: Annotated[
        str | None,
        tyro.conf.arg(metavar="TASK", help="with options: pattern:length=64; or mine.py:MyTask"),
    ] = None,
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N", help="6 or more to rank")] = None,
    epochs: Annotated[
        tuple[int, ...] | None, tyro.conf.arg(metavar="N ...", help="several make a grid")
    ] = None,
    layers: Annotated[
        tuple[int, ...] | None, tyro.conf.arg(metavar="N ...", help="several make a grid")
    ] = None,
    lengths: Annotated[
        tuple[int, ...] | None, tyro.conf.arg(metavar="N ...", help="tested beyond the trained one")
    ] = None,
    rates: Annotated[
        tuple[float, ...] | None,
        tyro.conf.arg(metavar="R ...", help="learning rates; of several the best for each method"),
    ] = None,
    set: Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            metavar="KEY=VALUE ...", help="anything else of a plan, as recipe.batch=64 sizes.dim=64"
        ),
    ] = (),
    folder: Annotated[
        str,
        tyro.conf.arg(metavar="DIR", help="where runs are kept; what is there is not run again"),
    ] = "ordinate-runs",
    device: Annotated[str, tyro.conf.arg(metavar="DEVICE", help="cpu, cuda or auto")] = "auto",
    jobs: Annotated[
        int | None, tyro.conf.arg(metavar="N", help="trials at once; by default one per core")
    ] = None,
    cluster: Annotated[
        str | None, tyro.conf.arg(metavar="ADDRESS", help="a dask scheduler, as tcp://host:8786")
    ] = None,
    processes: Annotated[
        int, tyro.conf.arg(metavar="N", help="split each trial over so many (torchrun)")
    ] = 1,
    dry_run: Annotated[
        bool, tyro.conf.arg(help="print the plan and about how long it takes, and stop")
    ] = False,
    show_seeds: Annotated[bool, tyro.conf.arg(help="print every seed")] = False,
) -> int:
    """Trains and compares methods, and ends with a table and a page; run again, it goes on."""
    from ordinate.experiments.plan import changed, load
    from ordinate.experiments.run import found

    given: dict[str, Any] = {
        "methods": methods or None, "task": task, "seeds": seeds, "epochs": epochs,
        "layers": layers, "lengths": lengths, "rates": rates,
    }  # fmt: skip
    changes = {key: value for key, value in given.items() if value is not None} | written(set)
    plan = changed(load(preset), changes)
    for name, number in (("--jobs", jobs), ("--processes", processes)):
        if number is not None and number < 1:
            raise ValueError(f"{name} is at least 1, got {number}")
    where = {
        "device": found(device, cluster),
        "jobs": jobs,
        "cluster": cluster,
        "processes": processes,
    }
    return dry(plan, folder, where) if dry_run else made(plan, folder, where, show_seeds)


def written(pairs: tuple[str, ...]) -> dict[str, Any]:
    """ "recipe.batch=64" as a change of the plan; numbers, lists and truths as TOML has them."""
    import tomllib

    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"--set takes KEY=VALUE, as recipe.batch=64, got {pair!r}")
        try:
            found[key] = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            found[key] = None if value == "none" else value
    return found


def made(plan: Plan, folder: str, where: dict[str, Any], seeds: bool) -> int:
    from ordinate.cli.output import console
    from ordinate.cli.progress import Display
    from ordinate.experiments import compare
    from ordinate.report import page, tables

    terminal, progress = console(), console(stderr=True)
    plan = plan.settled(where["device"]).checked()
    announced(plan, folder, where, progress)
    with Display(progress) as display:
        comparison = compare(plan, folder=folder, hear=display.hear, **where)
    tables.show(comparison, terminal, seeds=seeds)
    path = Path(folder) / "report.html"
    page.write(comparison, path)
    terminal.print(f"\nThe page: {path}", style="bold", soft_wrap=True)
    terminal.print(
        f"More: ordinate report --figures DIR, ordinate runs list; again: {again()}",
        style="dim", soft_wrap=True,
    )  # fmt: skip
    return 1 if nothing(comparison) else 0


def announced(plan: Plan, folder: str, where: dict[str, Any], out: Console) -> None:
    """Says of a long plan how long it will take; timing that takes a few seconds itself."""
    trials = todo(plan, folder)
    if where["cluster"] or sum(t.recipe.epochs * t.sizes.layers for t in trials) < LONG:
        return
    out.print(f"{len(trials)} runs: {duration(trials, where)}. Ctrl-C stops, and the same command "
              "goes on from there; fewer --seeds, --epochs or --layers take less.")  # fmt: skip


def todo(plan: Plan, folder: str) -> list[Trial]:
    """The trials that are not in the folder."""
    from ordinate.experiments import run
    from ordinate.experiments.store import Store

    there = Path(folder, "records.sqlite").exists()
    return run.todo(plan, Store(folder, writer=False) if there else None)


def duration(trials: list[Trial], where: dict[str, Any]) -> str:
    """About how long they take here."""
    from ordinate.experiments import estimate
    from ordinate.experiments.run import cores

    device = where["device"]
    jobs = where["jobs"] or (cores() if device == "cpu" and where["processes"] == 1 else 1)
    took = estimate.said(estimate.seconds(trials, jobs=jobs, device=device))
    several = f", {jobs} at once" if jobs > 1 else ""
    return f"about {took} on this machine ({device}{several}), less where runs stop early"


def nothing(comparison: Comparison) -> bool:
    """Whether not a single trial has a result."""
    return not any(row.done for row in comparison.rows)


def again() -> str:
    """The command that was typed."""
    return shlex.join(["ordinate", *sys.argv[1:]])


def dry(plan: Plan, folder: str, where: dict[str, Any]) -> int:
    """What would be run, and about how long it would take."""
    from ordinate.cli.output import console, table
    from ordinate.experiments import run
    from ordinate.report.tables.numbers import count

    device = where["device"]
    out, plan = console(), plan.settled(device).checked()
    trials, everything = todo(plan, folder), run.todo(plan, None)
    sheet = table("what", "of this plan")
    cells = plan.cells
    grid = f", {len(cells)} cells of layers × epochs" if len(cells) > 1 else ""
    kept = len(everything) - len(trials)
    rest = f"; {len(trials)} to run, the others are in {folder}" if kept else ""
    for name, value in (
        ("plan", f"{plan.name}: {plan.about}"),
        ("task", plan.task),
        ("methods", ", ".join(plan.methods)),
        ("layers, epochs", "; ".join(
            f"{count(c.layers, 'layer')}, {count(c.epochs, 'epoch')}" for c in cells
        )),
        ("seeds", f"{plan.seeds}" + (", too few to rank: 6 at least" if plan.seeds < 6 else "")),
        ("learning rates", ", ".join(f"{r:g}" for r in plan.rates or (plan.recipe.rate,))),
        ("lengths beyond", ", ".join(map(str, plan.lengths)) or "none"),
        ("precision", plan.precision),
        ("trials", f"{len(everything)}{grid}{rest}"),
    ):  # fmt: skip
        sheet.add_row(name, value)
    out.print(sheet)
    if not trials:
        out.print("\nNothing to run: everything is there.")
        return 0
    said = duration(trials, where)
    out.print(f"\n{said[0].upper()}{said[1:]}.")
    return 0
