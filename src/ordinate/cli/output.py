"""Where the command writes."""

from __future__ import annotations

import io
import os
import sys

from rich.console import Console
from rich.table import Table


def console(*, stderr: bool = False) -> Console:
    """The terminal as it is, but no narrower than tables are; 80 columns into a pipe or a file."""
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper) and "utf" not in stream.encoding.lower():
        stream.reconfigure(errors="replace")
    fixed = None if stream.isatty() or "COLUMNS" in os.environ else 80
    # No markup: square brackets are shapes and extras here, not styles.
    out = Console(stderr=stderr, width=fixed, highlight=False, emoji=False, markup=False)
    # A terminal wraps a line that is too long; a table that is too narrow cuts its numbers.
    out.width = max(out.width, 80)
    return out


def coloured(out: Console) -> bool:
    """Whether colours reach the reader."""
    return out.is_terminal and out.color_system is not None and not out.no_color


def table(*columns: str, right: tuple[str, ...] = (), caption: str | None = None) -> Table:
    """A plain table whose text folds rather than being cut."""
    made = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), caption=caption,
        caption_justify="left", caption_style="dim", header_style="bold",
    )  # fmt: skip
    for column in columns:
        made.add_column(
            column, overflow="fold", justify="right" if column in right else "left", vertical="top"
        )
    return made
