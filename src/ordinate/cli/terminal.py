"""Pictures in characters: braille lines, half-block heat maps, and the numbers beneath."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.text import Text

from ordinate.cli.output import coloured, table
from ordinate.cli.panels import Curves, Heat, Picture, some

# After Okabe and Ito, whom people with any colour vision can follow, on dark ground too.
COLOURS = ("#3B8FD6", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D00", "#999999")
ROWS = 12


def draw(out: Console, picture: Picture) -> None:
    """Every panel, one below the other."""
    out.print(Text(picture.about, style="dim"))
    for panel in picture.panels:
        out.print()
        says = panel.value if isinstance(panel, Heat) else panel.y_label
        out.print(Text.assemble((panel.title, "bold"), f": {says}"))
        if isinstance(panel, Heat):
            _heat(out, panel)
        else:
            _curves(out, panel)
    if picture.note:
        out.print()
        out.print(Text(picture.note))


def _curves(out: Console, panel: Curves) -> None:
    unicode = "utf" in (out.encoding or "").lower()
    panel = replace(panel, lines=some(panel.lines, 4))
    lines = {k: np.log10(v) if panel.log else v for k, v in panel.lines.items()}
    everything = np.concatenate([v[np.isfinite(v)] for v in lines.values()] or [np.zeros(1)])
    low, high = (everything.min(), everything.max()) if len(everything) else (0.0, 0.0)
    flat = high - low < 1e-12
    if flat:
        low, high = low - 1, high + 1
    left = [_short(10**y if panel.log else y) for y in (high, (low + high) / 2, low)]
    margin = max(len(s) for s in left) + 1
    width = min(out.width, 100) - margin - 2
    dots = np.full((4 * ROWS, 2 * width), -1)
    order = list(lines.items())
    # The first line is drawn last, on top.
    for i, (_, y) in reversed(list(enumerate(order))):
        _trace(dots, panel.x, y, low, high, i, panel.points)
    for r in range(ROWS):
        label = {0: left[0], ROWS // 2: left[1], ROWS - 1: left[2]}.get(r, "")
        row = Text(f"{label:>{margin}}" + ("┤" if unicode and label else "│" if unicode else "|"))
        for c in range(width):
            cell = dots[4 * r : 4 * r + 4, 2 * c : 2 * c + 2]
            lit = cell >= 0
            mark = (
                chr(0x2800 + int((lit * BRAILLE).sum())) if unicode else "*" if lit.any() else " "
            )
            row.append(
                mark if lit.any() else " ",
                COLOURS[cell.max() % len(COLOURS)] if lit.any() else None,
            )
        row.rstrip()
        out.print(row, no_wrap=True, overflow="crop")
    first, last = f"{panel.x[0]:g}", f"{panel.x[-1]:g}"
    middle = panel.x_label
    gap = max(width - len(first) - len(last) - len(middle), 2)
    out.print(
        Text(" " * (margin + 1) + first + " " * (gap // 2) + middle + " " * (gap - gap // 2) + last)
    )
    _numbers(out, panel)


BRAILLE = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


def _trace(
    dots: np.ndarray, x: np.ndarray, y: np.ndarray, low: float, high: float, mark: int, points: bool
) -> None:
    """Draws one line, or only its points, into a field of dots."""
    height, width = dots.shape
    span = max(float(x[-1] - x[0]), 1e-12)
    cols = (x - x[0]) / span * (width - 1)
    rows = (high - y) / (high - low) * (height - 1)
    if not points:
        fine = np.linspace(0, width - 1, 4 * width)
        good = np.isfinite(rows)
        if not good.any():
            return
        rows, cols = np.interp(fine, cols[good], rows[good]), fine
    before = None
    for col, row in zip(cols, rows, strict=True):
        if not np.isfinite(row):
            continue
        at = round(float(row))
        # A steep line is drawn without gaps.
        start = at if before is None or points else before
        dots[min(start, at) : max(start, at) + 1, round(float(col))] = mark
        before = at


def _numbers(out: Console, panel: Curves) -> None:
    """The same in numbers, which is also the legend."""
    marks = panel.marks
    heads = [f"{panel.x[m]:g}" for m in marks]
    grid = table("", *heads, right=tuple(heads))
    for column in grid.columns:
        column.no_wrap = True
    for i, (name, y) in enumerate(panel.lines.items()):
        label = Text(name)
        if coloured(out) and len(panel.lines) > 1:
            label = Text.assemble(("● ", COLOURS[i % len(COLOURS)]), name)
        grid.add_row(label, *(_short(y[m]) for m in marks))
    if panel.plain is not None:
        grid.add_row("no method", *(_short(panel.plain[m]) for m in marks))
    out.print(grid)


def _heat(out: Console, panel: Heat) -> None:
    low, high = float(panel.values.min()), float(panel.values.max())
    low = low if panel.floor is None else panel.floor
    high = high if panel.ceiling is None else panel.ceiling
    height = min(panel.values.shape[0], 2 * ROWS)
    margin = len(str(panel.values.shape[0] - 1)) + 1
    width = min(out.width - margin - 2, 72, max(panel.values.shape[1], 2 * height))
    tall = height + height % 2 if coloured(out) else height if height <= 16 else ROWS
    field = _resample(panel.values, tall, width)
    span = max(high - low, 1e-12)
    rows = []
    if coloured(out):
        for r in range(0, len(field), 2):
            row = Text()
            for top, bottom in zip(field[r], field[r + 1], strict=True):
                row.append("▀", f"{_colour(top, low, high)} on {_colour(bottom, low, high)}")
            rows.append(row)
    else:
        shades = " ░▒▓█" if "utf" in (out.encoding or "").lower() else " .:*#"
        for line in field:
            level = np.clip((line - low) / span * len(shades), 0, len(shades) - 1).astype(int)
            rows.append(Text("".join(shades[i] for i in level)))
        out.print(Text(f"light {_short(low)}, dark {_short(high)}", style="dim"))
    for r, row in enumerate(rows):
        label = {0: "0", len(rows) - 1: str(panel.values.shape[0] - 1)}.get(r, "")
        out.print(Text(f"{label:>{margin}} ") + row, no_wrap=True, overflow="crop")
    last = str(panel.values.shape[1] - 1)
    middle = f"{panel.x_label} (across), {panel.y_label} (down)"
    gap = max(width - 1 - len(last) - len(middle), 2)
    out.print(
        Text(" " * (margin + 1) + "0" + " " * (gap // 2) + middle + " " * (gap - gap // 2) + last)
    )
    if coloured(out):
        bar = Text(f"{' ' * (margin + 1)}{panel.value}: {_short(low)} ")
        for i in range(24):
            bar.append("█", _colour(low + span * i / 23, low, high))
        out.print(bar + f" {_short(high)}")


def _resample(values: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """Means over boxes where there are more numbers than cells, copies where there are fewer."""
    for axis, size in ((0, rows), (1, cols)):
        n = values.shape[axis]
        if n > size:
            edges = np.linspace(0, n, size + 1).astype(int)
            counts = np.diff(edges)
            values = np.add.reduceat(values, edges[:-1], axis) / np.expand_dims(counts, 1 - axis)
        else:
            values = values.take((np.arange(size) * n) // size, axis)
    return values


VIRIDIS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
DIVERGING = ((5, 80, 160), (140, 190, 225), (247, 247, 247), (240, 170, 110), (170, 75, 0))


def _colour(value: float, low: float, high: float) -> str:
    """Blue to orange around zero where there are both signs, else dark to light."""
    if low < 0 < high:
        bound, ramp = max(-low, high), DIVERGING
        at = (value / bound + 1) / 2
    else:
        ramp, at = VIRIDIS, (value - low) / max(high - low, 1e-12)
    at = min(max(at, 0.0), 1.0) * (len(ramp) - 1)
    i = min(int(at), len(ramp) - 2)
    mixed = (round(a + (b - a) * (at - i)) for a, b in zip(ramp[i], ramp[i + 1], strict=True))
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _short(value: float) -> str:
    """A number in at most seven characters."""
    if not np.isfinite(value):
        return "-inf" if value == -np.inf else "-"
    if value == 0 or abs(value) < 1e-12:
        return "0"
    if abs(value) < 0.001 or abs(value) >= 1e6:
        return f"{value:.0e}"
    return (
        f"{value:.2g}"
        if abs(value) < 1
        else f"{value:.3g}"
        if abs(value) < 1000
        else f"{value:.0f}"
    )
