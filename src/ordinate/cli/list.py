from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import tyro

# By where in a transformer they act.
FAMILIES = ["-", "input", "rotary", "bias", "scale", "content", "norm", "grid"]


def run(
    family: Annotated[
        str | None,
        tyro.conf.arg(metavar="FAMILY", help=f"only one family: {', '.join(FAMILIES[1:])}"),
    ] = None,
    json: Annotated[bool, tyro.conf.arg(help="for programs: every fact, as JSON")] = False,
) -> int:
    """Every method, and what it is."""
    from ordinate.cli.subject import family as family_of
    from ordinate.methods import names

    chosen = sorted(names(), key=by_family)
    if family is not None:
        chosen = [name for name in chosen if family_of(name) == family]
        if not chosen:
            from ordinate.names import nearest

            known = FAMILIES[1:]
            hint = nearest(family, known)
            raise ValueError(f"there is no family {family!r}{hint}; there are {', '.join(known)}")
    rows = [row(name) for name in chosen]
    return as_json(rows) if json else as_table(rows)


def by_family(name: str) -> tuple[int, str]:
    """In which order methods are listed."""
    from ordinate.cli.subject import family

    return FAMILIES.index(family(name)), name


def row(name: str) -> dict[str, Any]:
    """What is true of one method, at the sizes of the command."""
    from dataclasses import asdict

    from ordinate.cite import reference
    from ordinate.cli.subject import complete, family, made

    position = made(name)
    facts = asdict(position.facts)
    facts["needs"] = sorted(facts["needs"])
    parameters = sum(p.numel() for p in position.parameters())
    # The first paper is the method's own; a wrapper adds those of what it wraps.
    papers = [reference(key) for key in facts.pop("paper")]
    return {
        "name": name,
        "family": family(name),
        "made_as": complete(name),
        "learned": parameters > 0,
        **facts,
        "parameters": parameters,
        "paper": [
            {"key": p.key, "by": p.by, "year": p.year, "title": p.title} for p in papers
        ],
    }  # fmt: skip


def as_json(rows: list[dict[str, Any]]) -> int:
    from ordinate.cli.subject import MADE

    json.dump({"made_with": MADE, "methods": rows}, sys.stdout, indent=2, ensure_ascii=False)
    print()
    return 0


def as_table(rows: list[dict[str, Any]]) -> int:
    from ordinate.cli.output import console, table
    from ordinate.cli.subject import SAID, complete

    out = console()
    wide = out.width >= 104
    columns = {
        "method": lambda r: r["name"],
        "family": lambda r: r["family"],
        "rela-\ntive": lambda r: says(r["relative"]),
        "causal\nonly": lambda r: says(r["causal_only"]),
        "extra-\npolates": lambda r: says(r["extrapolates"]),
        "learned\nnumbers": lambda r: f"{r['parameters']:,}",
        "paper": lambda r: r["paper"][0]["by"],
        "year": lambda r: str(r["paper"][0]["year"]),
        "entry": lambda r: r["paper"][0]["key"],
    }
    if not wide:
        del columns["entry"]
    grid = table(*columns, right=("learned\nnumbers",))
    grid.padding = (0, 2 if wide else 1, 0, 0)
    for column in grid.columns:
        column.no_wrap = column.header not in ("paper", "entry")
    for r in rows:
        grid.add_row(*(cell(r) for cell in columns.values()))
    out.print(grid)
    given = [complete(r["name"]) for r in rows if complete(r["name"]) != r["name"]]
    out.print(
        f"\nLearned: parameters of the whole stack, counted at {SAID}"
        + (f"; as {' and '.join(given)}" if given else "")
        + ". Extrapolates: published results beyond the trained length.",
        style="dim",
    )
    return 0


def says(true: bool) -> str:
    return "yes" if true else "-"
