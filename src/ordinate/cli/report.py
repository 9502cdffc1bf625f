from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from ordinate.experiments.comparison import Comparison
    from ordinate.experiments.plan import Plan
    from ordinate.experiments.store import Store

#: Seconds between two looks at the store, and so between two pages.
PAUSE = 3.0


def run(
    folder: Annotated[
        str, tyro.conf.arg(metavar="DIR", help="where the runs are")
    ] = "ordinate-runs",
    plan: Annotated[
        str | None,
        tyro.conf.arg(metavar="NAME", help="a comparison by its name or id; the last by default"),
    ] = None,
    out: Annotated[
        str | None,
        tyro.conf.arg(metavar="FILE", help="the page, an .html file; by default DIR/report.html"),
    ] = None,
    figures: Annotated[
        str | None, tyro.conf.arg(metavar="DIR", help="also write every figure as PDF and SVG")
    ] = None,
    watch: Annotated[
        bool, tyro.conf.arg(help="write the page anew whenever a trial is done, to the last")
    ] = False,
    show_seeds: Annotated[bool, tyro.conf.arg(help="print every seed")] = False,
) -> int:
    """The tables of a comparison, and its page: one HTML file that needs no network."""
    page = checked(Path(folder) / "report.html" if out is None else Path(out))
    if figures is not None and Path(figures).exists() and not Path(figures).is_dir():
        raise ValueError(f"--figures is a directory, and {figures} is a file")

    from ordinate.cli.output import console
    from ordinate.experiments.store import Store
    from ordinate.report import tables

    store = Store(folder, writer=False)
    comparison = last(store, plan)
    if watch:
        comparison = watched(store, plan, page)
    else:
        write(comparison, store, page)
    terminal = console()
    tables.show(comparison, terminal, seeds=show_seeds)
    terminal.print(f"\n{page}: {state(comparison)}", style="bold", soft_wrap=True)
    if figures is not None:
        from ordinate.report.figures import every  # fmt: skip
        from ordinate.report.figures import write as draw

        draw(every(comparison), Path(figures))
        terminal.print(f"{figures}: every figure as PDF and SVG", soft_wrap=True)
    return 0


def checked(page: Path) -> Path:
    """Refuses, before any work, a page that could not be written."""
    if page.suffix.lower() != ".html":
        raise ValueError(f"--out ends in .html, got {page}")
    if page.is_dir():
        raise ValueError(f"--out is a file, and {page} is a directory")
    # The folder of the runs says for itself that it is not there.
    if page.name != "report.html" and not page.parent.is_dir():
        raise ValueError(f"--out: there is no directory {page.parent}")
    return page


def chosen(store: Store, name: str | None) -> Plan:
    """The newest plan of that name or id."""
    from ordinate.experiments.plan import changed
    from ordinate.names import nearest

    kept = store.plans()
    if not kept:
        raise ValueError(f"no comparison was begun in {store.folder}")
    found = [body for id, _, body in kept if name in (None, body.get("name"), id)]
    if not found:
        names = list(dict.fromkeys(body.get("name", id) for id, _, body in kept))
        raise ValueError(
            f"no comparison in {store.folder} is called {name!r}{nearest(name or '', names)}; "
            f"there are {', '.join(names)}"
        )
    # Trials are named by what the files of a plan hold, so they have to be there.
    return changed(None, found[-1]).checked()


def last(store: Store, name: str | None) -> Comparison:
    from ordinate.experiments.run import read

    return read(chosen(store, name), store)


def write(comparison: Comparison, store: Store, page: Path, refresh: int | None = None) -> None:
    from ordinate.report.page import write as write_page
    from ordinate.training import looks

    write_page(
        comparison, page, looks_of=lambda id: looks.read(store.folder_of(id)), refresh=refresh
    )


def watched(store: Store, name: str | None, page: Path) -> Comparison:
    """Writes the page whenever the store has changed, until the last trial is done, or Ctrl-C."""
    from ordinate.cli.output import console

    say, seen, comparison = console(stderr=True), None, last(store, name)
    try:
        while True:
            now = (store.statuses(), [id for id, *_ in store.plans()])
            if now != seen:
                comparison, seen = last(store, name), now
                write(comparison, store, page, refresh=round(PAUSE) + 1)
                say.print(f"{page}: {state(comparison)}", soft_wrap=True)
            if not comparison.missing:
                return comparison
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        # Nobody writes this page again, so it need not look.
        write(comparison, store, page)
        say.print("stopped watching; the runs go on where they are")
        return comparison


def state(comparison: Comparison) -> str:
    trials = sum(len(row.seeds) for row in comparison.rows)
    return f"{trials - comparison.missing} of {trials} trials are there"
