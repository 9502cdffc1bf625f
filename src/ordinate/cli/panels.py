"""What can be drawn: the terminal and the files draw the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Lines over one axis; `plain` is the line of no method, to compare with."""

    title: str
    x_label: str
    y_label: str
    x: np.ndarray
    lines: dict[str, np.ndarray]
    plain: np.ndarray | None = None
    log: bool = False
    log_x: bool = False
    y_range: tuple[float, float] | None = None
    points: bool = False
    #: Where the numbers are printed.
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Heat:
    """A number for every pair of a row and a column."""

    title: str
    x_label: str
    y_label: str
    value: str
    values: np.ndarray
    #: The value that the lightest or darkest colour stands for, if not the lowest.
    floor: float | None = None
    ceiling: float | None = None


@dataclass(frozen=True, kw_only=True)
class Picture:
    name: str
    about: str
    panels: list[Curves | Heat] = field(default_factory=list)
    note: str = ""


def spots(n: int) -> tuple[int, ...]:
    """Where numbers are printed of a line of n: near the start closely, then rarely."""
    return tuple(m for m in (0, 1, 2, 4, 8, 16, 31, 64, 256) if m < n)


def some(lines: dict[str, np.ndarray], most: int = 8) -> dict[str, np.ndarray]:
    """At most a few lines, spread over all."""
    names = list(lines)
    chosen = (
        names
        if len(names) <= most
        else [names[round(i)] for i in np.linspace(0, len(names) - 1, most)]
    )
    return {name: lines[name] for name in chosen}
