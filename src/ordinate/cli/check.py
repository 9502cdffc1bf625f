from __future__ import annotations

import importlib.util
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
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
    from ordinate.cli.output import console, usable

    path, colon, name = target.rpartition(":")
    if not colon or not path or not name:
        raise ValueError(f"write a file and a class, as mine.py:Mine, got {target!r}")
    method = find(load(Path(path)), name, path)
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


def load(path: Path) -> ModuleType:
    """A file as a module; what goes wrong in it is one sentence with its line."""
    if path.is_dir():
        raise ValueError(f"{path} is a directory: name the file in it, as {path / 'mine.py'}:Mine")
    if not path.is_file():
        near = _near(path.name, [p.name for p in path.parent.glob("*.py")])
        raise ValueError(f"there is no file {path}{near}")
    spec = importlib.util.spec_from_file_location(f"checked_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file: its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        own = [
            f.lineno
            for f in traceback.extract_tb(error.__traceback__)
            if f.filename == str(path.resolve()) or f.filename == str(path)
        ]
        line = f", line {own[-1]}" if own else ""
        raise ValueError(f"{path}{line}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.pop(0)
    return module


def find(module: ModuleType, name: str, path: str) -> type:
    """The method of that name in a module."""
    from ordinate.position import Position

    own = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Position)
        and value.__module__ == module.__name__
    ]
    found = getattr(module, name, None)
    if found is None:
        has = f"it has {', '.join(own)}" if own else "it has no subclass of ordinate.Position"
        raise ValueError(f"{path} has no {name!r}{_near(name, own)}; {has}")
    if not (isinstance(found, type) and issubclass(found, Position)):
        raise ValueError(
            f"{name} in {path} is no method: a method is a subclass of ordinate.Position"
        )
    return found


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


def _near(word: str, words: list[str]) -> str:
    from ordinate.names import nearest

    return nearest(word, words)
