"""The contract that every method is held to, ours and yours. Needs torch and numpy, no pytest.

>>> import ordinate as od
>>> for result in od.testing.run(od.testing.subjects("rope")):   # doctest: +SKIP
...     print(result.contract, result.verdict)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ordinate.methods import find, names
from ordinate.names import declared, make
from ordinate.position import Position
from ordinate.testing import claims, exactness, sequences, statements
from ordinate.testing.case import FULL, Broken, Case, Skipped, Subject, taking

__all__ = ["CONTRACTS", "Result", "Subject", "check", "of", "run", "subjects"]

#: Every contract by name; its docstring says what it demands.
CONTRACTS: dict[str, Callable[[Case], None]] = {
    contract.__name__.replace("_", " "): contract
    for module in (claims, statements, exactness, sequences)
    for contract in module.CONTRACTS
}


@dataclass(frozen=True)
class Result:
    """What came out of one contract on one method."""

    method: str
    contract: str
    dtype: str
    verdict: Literal["pass", "fail", "skip"]
    why: str = ""


def subjects(*chosen: str, variants: bool = True) -> list[Subject]:
    """The methods named, or all of them, each with its variants."""
    found = []
    for name in chosen or names():
        own = (
            () if name == "none" or not variants or ":" in name or "+" in name else _variants(name)
        )
        plain = [name] if not _required(name) else []
        written = [_with(name, option) for option in own]
        if not plain and not written:
            written = [_with(name, option) for option in _variants(name)[:1]] or [name]
        for full in plain + written:
            base = _named(name) if plain and full != name else None
            found.append(Subject(_named(full), full, base))
    return found


def of(method: type[Position]) -> list[Subject]:
    """A class of your own, each of its `variants` included."""
    plain = taking(method)
    found = [Subject(plain, method.__name__)]
    for option in method.variants:
        values = declared(method, option)

        def made(values: dict[str, Any] = values, **sizes: Any) -> Position:
            return plain(**sizes, **values)

        found.append(Subject(made, f"{method.__name__}:{option}", plain))
    return found


def check(subject: Subject, contract: str, dtype: torch.dtype, device: str = "cpu") -> Result:
    """One contract on one method, in one precision."""
    label = str(dtype).removeprefix("torch.")
    try:
        CONTRACTS[contract](Case(subject, dtype, device))
    except Skipped as why:
        return Result(subject.name, contract, label, "skip", str(why))
    except Broken as why:
        return Result(subject.name, contract, label, "fail", str(why))
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        return Result(subject.name, contract, label, "fail", why)
    return Result(subject.name, contract, label, "pass")


def run(
    chosen: Iterable[Subject],
    *,
    device: str = "cpu",
    dtypes: Iterable[torch.dtype] = (torch.float32, torch.float64),
    contracts: Iterable[str] = tuple(CONTRACTS),
) -> Iterator[Result]:
    """Every contract on every subject, as they are done."""
    dtypes, contracts = tuple(dtypes), tuple(contracts)
    for subject in chosen:
        for contract in contracts:
            for dtype in dtypes:
                yield check(subject, contract, dtype, device)


def _named(name: str) -> Callable[..., Position]:
    return lambda **sizes: make(name, **sizes)


def _variants(name: str) -> tuple[str, ...]:
    return find(name).variants


def _required(name: str) -> bool:
    """Whether a name alone does not make the method, which needs an option."""
    try:
        make(name, **FULL)
    except ValueError:
        return True
    return False


def _with(name: str, option: str) -> str:
    return name + option if option.startswith("(") else f"{name}:{option}"
