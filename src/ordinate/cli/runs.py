from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ordinate.experiments.store import Store
    from ordinate.training import Outcome

HOME = "ordinate-runs"
# The letters of an id that are shown if they tell it apart, and the looks a curve is shown at.
LETTERS, LOOKS = 8, 20

Folder = Annotated[str, tyro.conf.arg(metavar="FOLDER", help="where the runs are kept")]
Name = Annotated[str | None, tyro.conf.arg(metavar="NAME", help="only these, in any options")]
Status = Annotated[
    Literal["done", "failed", "lost"] | None,
    tyro.conf.arg(metavar="STATUS", help="only done, failed (for good), or lost (run again)"),
]


@dataclass(frozen=True)
class List:
    """Every trial that was run, a line each."""

    method: Name = None
    task: Name = None
    status: Status = None
    folder: Folder = HOME
    json: Annotated[bool, tyro.conf.arg(help="for programs: everything, curves too")] = False

    def run(self) -> int:
        from ordinate.cli.output import console

        with opened(self.folder) as store:
            every, waiting = store.outcomes(), store.unfinished()
        kept = [o for o in every if self.status in (None, o.status)]
        kept = only(only(kept, "method", self.method), "task", self.task)
        if self.json:
            # By way of pydantic: JSON has no NaN, which becomes null.
            whole = [{"id": o.trial.id, **json.loads(o.model_dump_json())} for o in kept]
            json.dump(whole, sys.stdout, indent=2, ensure_ascii=False)
            print()
            return 0
        out = console()
        out.print(overview(kept, letters([*(o.trial.id for o in every), *waiting]), out.width))
        said = counts(o.status for o in kept) or "none"
        if waiting:
            said += f"; {len(waiting)} more not finished, which the next run goes on with"
        out.print(f"\n{said}. Test: accuracy, or loss, at the length trained at.", style="dim")
        return 0


@dataclass(frozen=True)
class Show:
    """Everything about one trial: what was asked, what came of it, and what it took."""

    id: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID", help="or how it begins")]
    folder: Folder = HOME

    def run(self) -> int:
        from ordinate.cli.output import console

        with opened(self.folder) as store:
            id = whole([*store.statuses(), *store.unfinished()], self.id)
            outcome = store.get(id)
        if outcome is None:
            raise ValueError(f"{id} has not finished: see {store.folder_of(id)}")
        page(console(), outcome)
        return 0


@dataclass(frozen=True)
class Rm:
    """Deletes trials with their results and checkpoints, and asks before."""

    ids: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="ID ...", help="their ids, or how these begin"),
    ] = ()
    status: Status = None
    all: Annotated[bool, tyro.conf.arg(help="every trial, finished or not")] = False
    yes: Annotated[bool, tyro.conf.arg(help="do not ask")] = False
    folder: Folder = HOME

    def run(self) -> int:
        if bool(self.ids) + (self.status is not None) + self.all != 1:
            raise ValueError("name trials by their ids, or by --status STATUS, or --all: one of it")
        # A writer would make the folder; a reader says that there is none.
        opened(self.folder).close()
        with opened(self.folder, writer=True) as store:
            known = {**dict.fromkeys(store.unfinished(), "not finished"), **store.statuses()}
            chosen = [id for id in known if self.all or known[id] == self.status]
            if self.ids:
                chosen = [*dict.fromkeys(whole([*known], id) for id in self.ids)]
            if not chosen:
                print(f"nothing to delete in {self.folder}")
                return 0
            what = f"{amount(len(chosen), 'trial')} in {self.folder}: "
            what += counts(known[id] for id in chosen)
            if not (self.yes or agreed(what, chosen)):
                print("nothing was deleted")
                return 1
            store.remove(chosen)
        print(f"deleted {what}")
        return 0


@dataclass(frozen=True)
class Export:
    """Writes the trials as a table, a row per trial and tested length, or as curves."""

    file: Annotated[
        str | None,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="FILE", help="a table, by its ending: .csv, .parquet, .json"),
    ] = None
    tensorboard: Annotated[
        str | None, tyro.conf.arg(metavar="DIR", help="a new folder for TensorBoard's files")
    ] = None
    folder: Folder = HOME

    def run(self) -> int:
        from ordinate.experiments import export

        if self.file is None and self.tensorboard is None:
            raise ValueError("name a file, as runs.csv, or a folder, as --tensorboard curves")
        if self.file is not None:
            export.check_table(self.file)
        if self.tensorboard is not None:
            export.check_curves(self.tensorboard)
        with opened(self.folder) as store:
            outcomes = store.outcomes()
        if self.file is not None:
            rows = export.write(outcomes, self.file)
            print(f"{self.file}: {amount(rows, 'row')} of {amount(len(outcomes), 'trial')}")
        if self.tensorboard is not None:
            curves = export.tensorboard(outcomes, self.tensorboard)
            print(f"{self.tensorboard}: the curves of {amount(curves, 'trial')}")
        return 0


def run(
    action: Annotated[
        Annotated[List, tyro.conf.subcommand("list", prefix_name=False)]
        | Annotated[Show, tyro.conf.subcommand("show", prefix_name=False)]
        | Annotated[Rm, tyro.conf.subcommand("rm", prefix_name=False)]
        | Annotated[Export, tyro.conf.subcommand("export", prefix_name=False)],
        tyro.conf.arg(name=""),
    ],
) -> int:
    """What was trained: listed, shown, deleted, or written for other programs."""
    return action.run()


def opened(folder: str, *, writer: bool = False) -> Store:
    from ordinate.experiments.store import Store

    return Store(folder, writer=writer)


def whole(ids: Sequence[str], beginning: str) -> str:
    """The one id that begins so."""
    found = [id for id in ids if beginning and id.startswith(beginning.lower())]
    if not found:
        raise ValueError(f"no trial begins with {beginning!r}: ordinate runs list shows them")
    if len(found) > 1:
        some = ", ".join(found[:3]) + ", …" * (len(found) > 3)
        raise ValueError(f"{len(found)} trials begin with {beginning!r}, write more of it: {some}")
    return found[0]


def only(kept: list[Outcome], what: Literal["method", "task"], name: str | None) -> list[Outcome]:
    """Outcomes of one method or task; a name without options stands for it in any."""
    if name is None:
        return kept
    named = [(o.trial.position if what == "method" else o.trial.task, o) for o in kept]
    found = [o for own, o in named if name in (own, plain(own))]
    if not found:
        from ordinate.names import nearest

        known = dict.fromkeys(own for own, _ in named)
        there = f"{nearest(name, known)}; there are {', '.join(known)}" if known else ""
        raise ValueError(f"no run is of the {what} {name!r}{there}")
    return found


def plain(name: str) -> str:
    """A name without its options; a chain is its own name."""
    from ordinate.files import NAMED

    start = match.end() if (match := NAMED.match(name)) else 0
    return name if re.search(r"\+\D", name) else name[:start] + name[start:].split(":")[0]


def letters(ids: Sequence[str]) -> int:
    """How many letters tell ids apart."""
    return next((n for n in range(LETTERS, 16) if len({id[:n] for id in ids}) == len(ids)), 16)


def amount(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'s' * (count != 1)}"


def counts(statuses: Iterable[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in Counter(statuses).items())


def agreed(what: str, ids: Sequence[str]) -> bool:
    """Asks whether to delete them."""
    if not sys.stdin.isatty():
        raise ValueError(f"nobody is there to ask: --yes deletes {what}")
    print(f"This deletes {what}\n{', '.join(ids[:8])}{', …' * (len(ids) > 8)}")
    try:
        return input("Delete them? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def overview(kept: list[Outcome], letters: int, width: int) -> Table:
    from ordinate.cli.output import table

    wide = width >= 104
    head = "id method task lay-\ners ep-\nochs learning\nrate seed status test sec-\nonds engine"
    columns = head.split(" ")[: None if wide else -1]
    grid = table(*columns, right=tuple(c for c in columns if "\n" in c or c in ("seed", "test")))
    grid.padding = (0, 2 if wide else 1, 0, 0)
    for column in grid.columns:
        column.no_wrap = column.header not in ("method", "task")
    for o in kept:
        trial, seconds = o.trial, f"{o.cost.seconds:.1f}" if o.cost else "-"
        cells = [
            trial.id[:letters], trial.position, trial.task, trial.sizes.layers,
            trial.recipe.epochs, trial.recipe.rate, trial.seed, o.status, tested(o),
            seconds, o.made.engine if o.made else "-",
        ]  # fmt: skip
        style = {"done": "", "failed": "red", "lost": "yellow"}[o.status]
        grid.add_row(*map(said, cells[: len(columns)]), style=style)
    return grid


def tested(outcome: Outcome) -> str:
    """What its task is ranked by, at the length trained at."""
    from ordinate.experiments.export import trained_length
    from ordinate.tasks import INDEX, find

    length = trained_length(outcome)
    if outcome.result is None or length is None:
        return "-"
    score, task = outcome.result.test[length], plain(outcome.trial.task)
    if score.accuracy is None:
        return "refused"
    # A list runs nobody's files: the tasks in them are shown by accuracy.
    by_loss = task in INDEX and find(task).metric == "loss"
    return f"loss {score.loss:.3f}" if by_loss else f"{score.accuracy:.3f}"


def page(out: Console, outcome: Outcome) -> None:
    """Everything about a trial: its fields, its scores, its curve."""
    from ordinate.cli.output import table
    from ordinate.experiments.export import fields

    of, result = outcome.trial, outcome.result
    out.print(f"{of.position} on {of.task}, seed {of.seed}: {outcome.status}", style="bold")
    grid = table("Field", "")
    for name, value in fields(outcome).items():
        if not name.startswith("validation."):
            grid.add_row(name, said(value))
    out.print(grid)
    if result is None:
        return
    scores = table("Scores", "loss", "accuracy", "targets", "")
    for name, score in [("validation", result.validation), *result.test.items()]:
        for part, own in [(name, score), *((f"  {k}", v) for k, v in score.parts.items())]:
            cells = (part, own.loss, own.accuracy, own.targets, own.refused or "")
            scores.add_row(*map(said, cells))
    curve = table("Curve: step", "train loss", "loss", "accuracy")
    # Every so many looks, counted from the last.
    for p in result.curve[:: -(len(result.curve) // LOOKS + 1)][::-1]:
        curve.add_row(*map(said, (p.step, p.train_loss, p.loss, p.accuracy)))
    for grid in (scores, curve):
        out.print()
        out.print(grid)


def said(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)
