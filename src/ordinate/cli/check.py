from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Annotated, Any

import tyro


def run(
    target: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="FILE:CLASS", help="a Python file and a method in it"),
    ],
    options: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(
            metavar="OPTION=VALUE ...",
            help="options of the method; its sizes are set by the contract",
        ),
    ] = (),
    device: Annotated[str, tyro.conf.arg(metavar="DEVICE", help="cpu or cuda")] = "cpu",
) -> int:
    """Runs the whole contract on a method of your own; exit code 1 if it breaks any of it."""
    import torch

    from ordinate import testing
    from ordinate.cli.output import console
    from ordinate.files import load_class
    from ordinate.position import Position
    from ordinate.tensors import usable

    path, colon, name = target.rpartition(":")
    if not colon or not path or not name:
        raise ValueError(f"write a file and a class, as mine.py:Mine, got {target!r}")
    method = load_class(path, name, Position)
    kind = torch.device(usable(device)).type
    subjects = testing.of(method)
    if options:
        chosen = written(method, options)
        plain = subjects[0].make
        full = f"{name}:{','.join(options)}"
        subjects = [testing.Subject(lambda **sizes: plain(**sizes, **chosen), full, plain)]
    usable_method(subjects[0].make, name)
    torch.set_num_threads(1)
    dtypes = (torch.float32, torch.bfloat16 if kind == "cuda" else torch.float64)
    out, progress = console(), console(stderr=True)
    results = []
    total = len(subjects) * len(testing.CONTRACTS) * len(dtypes)
    with progress.status("") as status:
        for result in testing.run(subjects, device=device, dtypes=dtypes):
            results.append(result)
            status.update(f"{len(results)} of {total}: {result.method}, {result.contract}")
    return report(out, results)


def usable_method(make: Callable[..., Any], name: str) -> None:
    """Refuses a class that cannot be made or says nothing of itself, before 37 contracts do."""
    from ordinate.facts import Facts
    from ordinate.testing.case import FULL

    try:
        position = make(**FULL)
    except Exception as error:
        raise ValueError(
            f"{name} cannot be made with {', '.join(FULL)}, as far as it takes them: "
            f"{type(error).__name__}: {error}"
        ) from None
    if not isinstance(getattr(position, "facts", None), Facts):
        raise ValueError(
            f"{name} says nothing of itself: add facts = od.Facts(paper=(…,), relative=…)"
        )


def report(out: Any, results: list[Any]) -> int:
    """One row per contract, the worst verdict first among dtypes and variants, then the count."""
    from rich.text import Text

    from ordinate.cli.output import table

    grid = table("contract", "verdict", "why")
    grid.columns[1].no_wrap = True
    by_contract: dict[str, list[Any]] = defaultdict(list)
    for result in results:
        by_contract[result.contract].append(result)
    styles = {"pass": "green", "fail": "bold red", "skip": "dim"}
    for contract, found in by_contract.items():
        failed = [r for r in found if r.verdict == "fail"]
        passed = [r for r in found if r.verdict == "pass"]
        if failed:
            # The same reason in two precisions is said once.
            said = dict.fromkeys((r.method, r.why) for r in failed)
            several = len({r.method for r in results}) > 1
            why = "\n".join(f"{method}: {why}" if several else why for method, why in said)
            verdict = "fail"
        elif passed:
            verdict, why = "pass", ""
        else:
            verdict, why = "skip", found[0].why
        grid.add_row(contract, Text(verdict, styles[verdict]), why)
    out.print(grid)
    count = {v: sum(r.verdict == v for r in results) for v in ("pass", "fail", "skip")}
    names = ", ".join(dict.fromkeys(r.method for r in results))
    dtypes = " and ".join(dict.fromkeys(r.dtype for r in results))
    counted = ", ".join(f"{number} {verdict}" for verdict, number in count.items())
    out.print(f"\n{names} in {dtypes}: {counted}")
    return 1 if count["fail"] else 0


def written(method: type, options: tuple[str, ...]) -> dict[str, Any]:
    """Options as the constructor declares them."""
    import inspect

    from ordinate.names import SIZES, declared, nearest, parse

    takes = [key for key in inspect.signature(method).parameters if key not in SIZES]
    text = ",".join(options)
    for key in parse(f"{method.__name__}:{text}")[2]:
        if key in SIZES:
            raise ValueError(f"{key} is a size, which the contract sets: leave it out")
        if key not in takes:
            has = f"it takes {', '.join(takes)}" if takes else "it takes none"
            raise ValueError(f"{method.__name__} has no option {key!r}{nearest(key, takes)}; {has}")
    return declared(method, text)
