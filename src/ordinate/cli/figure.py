"""Pictures as files: .png, .svg, or one .html page that needs no network."""

from __future__ import annotations

import html
import io
from pathlib import Path
from typing import Any

import numpy as np

from ordinate.cli.panels import Curves, Heat, Picture

ENDINGS = (".png", ".svg", ".html")
# Okabe and Ito's colours for things without an order; heads have one and go through a ramp.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D00", "#555555")
DASHES = ("-", "--", "-.", ":")
# A legend of more entries than this stands beside its panel: inside, it would cover the curves.
ROOM = 4


def check(path: str) -> None:
    """Refuses, before any work, a file that could not be written."""
    target = Path(path)
    if target.suffix.lower() not in ENDINGS:
        given = target.suffix or "no ending"
        raise ValueError(f"--out ends in {', '.join(ENDINGS)}, got {given}: {path}")
    if target.is_dir():
        raise ValueError(f"--out is a file, and {path} is a directory")
    if not target.parent.is_dir():
        raise ValueError(f"--out: there is no directory {target.parent}")
    if not matplotlib_there():
        raise ValueError("a picture file needs matplotlib: pip install matplotlib")


def matplotlib_there() -> bool:
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def write(path: str, picture: Picture, facts: dict[str, str], *, abreast: int = 3) -> None:
    """Draws all panels, at most `abreast` side by side."""
    ending = Path(path).suffix.lower()
    figure = _figure(picture, abreast)
    if ending == ".png":
        figure.savefig(path, dpi=150)
        return
    import matplotlib

    buffer = io.StringIO()
    # Text stays text: it can be searched, copied and read aloud. No date: same input, same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ordinate"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Title": picture.name})
    svg = buffer.getvalue()
    Path(path).write_text(
        _page(picture, svg, facts) if ending == ".html" else svg, encoding="utf-8"
    )


def _figure(picture: Picture, abreast: int) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    panels = picture.panels
    count = max(len(panels), 1)
    columns = 2 if count == 4 else min(count, abreast)
    rows = -(-count // columns)
    with matplotlib.rc_context(
        {
            "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Arial", "sans-serif"],
            "font.size": 10.5, "axes.titlesize": 11.5, "axes.titleweight": "bold",
            "axes.spines.top": False, "axes.spines.right": False, "legend.fontsize": 9,
            "axes.titlelocation": "left", "axes.titlepad": 10,
        }
    ):  # fmt: skip
        layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
        figure = Figure(figsize=(max(5.6 * columns, 7.5), 4.3 * rows + 0.9), layout=layout)
        figure.suptitle(picture.name, x=0.012, ha="left", fontsize=15, fontweight="bold")
        lines = [picture.about, *([picture.note] if picture.note and panels else [])]
        figure.supxlabel("\n".join(lines), x=0.012, ha="left", fontsize=9, color="#444444")
        if not panels:
            figure.text(0.5, 0.5, picture.note, ha="center", fontsize=12)
            figure.set_size_inches(7.5, 2)
        for i, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, i + 1)
            axes.set_title(panel.title)
            axes.set_xlabel(panel.x_label)
            axes.set_ylabel(panel.y_label)
            if isinstance(panel, Heat):
                _heat(figure, axes, panel)
            else:
                _curves(axes, panel)
    return figure


def _curves(axes: Any, panel: Curves) -> None:
    import matplotlib.ticker

    names = list(panel.lines)
    heads = [name for name in names if name.startswith("head ")]
    ramp = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, max(len(heads), 2)))
    for i, (name, y) in enumerate(panel.lines.items()):
        colour = ramp[heads.index(name)] if len(heads) > 1 else COLOURS[i % len(COLOURS)]
        style = "-" if heads or len(names) < 2 else DASHES[i % len(DASHES)]
        if panel.points:
            axes.plot(panel.x, y, "o", ms=4, color=colour, label=name)
        else:
            axes.plot(
                panel.x,
                np.where(np.isfinite(y), y, np.nan),
                style,
                lw=1.8,
                color=colour,
                label=name,
            )
    if panel.plain is not None:
        axes.plot(panel.x, panel.plain, ":", lw=1.6, color="#777777", label="no method")
    if panel.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    if panel.log:
        axes.set_yscale("log")
        finite = np.concatenate([y[np.isfinite(y)] for y in panel.lines.values()])
        if panel.y_range is None and finite.max() / finite.min() < 50:
            axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda y, _: f"{y:g}"))
    values = np.concatenate([y[np.isfinite(y)] for y in panel.lines.values()] or [np.zeros(1)])
    if not panel.log and (len(values) == 0 or np.ptp(values) < 1e-12):
        middle = values[0] if len(values) else 0
        axes.set_ylim(middle - 1, middle + 1)
    elif panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    elif not panel.log and panel.plain is not None:
        axes.set_ylim(bottom=0)
    axes.grid(True, color="#e3e3e3", lw=0.7)
    axes.margins(x=0.02)
    entries = len(names) + (panel.plain is not None)
    if entries > ROOM:
        axes.legend(
            loc="upper left", bbox_to_anchor=(1, 1.03), frameon=False, handlelength=1.3,
            ncols=-(-entries // 18),
        )  # fmt: skip
    elif entries > 1:
        axes.legend(frameon=True, framealpha=0.85, edgecolor="none")


def _heat(figure: Any, axes: Any, panel: Heat) -> None:
    low, high = float(panel.values.min()), float(panel.values.max())
    low = low if panel.floor is None else panel.floor
    top, high = high, high if panel.ceiling is None else panel.ceiling
    diverging = low < 0 < high
    bound = max(-low, high)
    square = abs(panel.values.shape[0] - panel.values.shape[1]) < 2
    shown = axes.imshow(
        panel.values,
        aspect="equal" if square else "auto",
        interpolation="nearest",
        cmap="PuOr_r" if diverging else "viridis",
        vmin=-bound if diverging else low,
        vmax=bound if diverging else max(high, low + 1e-9),
    )
    axes.spines[["top", "right"]].set_visible(True)
    figure.colorbar(
        shown, ax=axes, label=panel.value, pad=0.02, extend="max" if top > high else "neither"
    )


def _page(picture: Picture, svg: str, facts: dict[str, str]) -> str:
    """One file: the drawing as text inside, and the facts as a table."""
    rows = "\n".join(
        f"<tr><th scope=row>{html.escape(key)}</th><td>{html.escape(value)}</td></tr>"
        for key, value in facts.items()
    )
    name = html.escape(picture.name)
    titles = html.escape(", ".join(panel.title for panel in picture.panels))
    drawing = svg[svg.index("<svg") :]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name} · Ordinate</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; }}
body {{ max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }}
svg {{ width: 100%; height: auto; }}
table {{ border-collapse: collapse; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem 1.2rem .3rem 0; }}
th, td {{ border-bottom: 1px solid #ddd; }}
figure {{ margin: 0; }}
th {{ font-weight: 600; white-space: nowrap; }}
</style>
</head>
<body>
<h1>{name}</h1>
<figure role="img" aria-label="{titles}">
{drawing}</figure>
<h2>Facts</h2>
<table>
{rows}
</table>
</body>
</html>
"""
