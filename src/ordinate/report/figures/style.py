"""Colours, marks and letters: one look per method in every figure, in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ordinate.experiments.comparison import Comparison

Theme = Literal["page", "light", "dark"]

# A colour is its light form wherever matplotlib draws; `themed` puts others in its place.
INK, MUTED, GRID, SHADE, PAPER = "#1d2127", "#5a626d", "#dadee3", "#edf1f6", "#fffffe"
#: Told apart by the colour-blind too: at least 19 apart (CIE 1976) for all three kinds, simulated,
#: in light and in dark; and each with its own mark. "none" is always the grey one.
CONTROL = "#6d747e"
METHODS = (
    "#0072b2", "#d55e00", "#22a468", "#661cb7", "#df1941", "#6b4204", "#8d7ef8", "#770c2f",
)  # fmt: skip
MARKS = "os^DvPXp"
DARK = {
    INK: "#e8eaed", MUTED: "#a3abb5", GRID: "#3a4048", SHADE: "#23282f", PAPER: "#14171b",
    CONTROL: "#9aa3ad",
    "#0072b2": "#5b9ccd", "#d55e00": "#ff7a1c", "#22a468": "#8cfd56", "#661cb7": "#f1dcf5",
    "#df1941": "#fe0c54", "#6b4204": "#f3c57c", "#8d7ef8": "#b651ee", "#770c2f": "#e8968b",
}  # fmt: skip
NAMES = {
    INK: "ink", MUTED: "muted", GRID: "grid", SHADE: "shade", PAPER: "paper", CONTROL: "control",
    **{colour: f"method-{i}" for i, colour in enumerate(METHODS, 1)},
}  # fmt: skip

#: Sizes of letters, in points: 7.5 is the least that is read on a phone.
TITLE, BODY, SMALL = 9.0, 8.0, 7.5


@dataclass(frozen=True)
class Look:
    colour: str
    mark: str


def looks(comparison: Comparison) -> dict[str, Look]:
    """A colour and a mark for each method, by its place in the plan."""
    found, at = {}, 0
    for method in comparison.plan.methods:
        if method == "none":
            found[method] = Look(CONTROL, "d")
            continue
        turn, i = divmod(at, len(METHODS))
        found[method] = Look(METHODS[i], MARKS[(i + 3 * turn) % len(MARKS)])
        at += 1
    return found


OURS: dict[str, Any] = {
    "font.family": ["DejaVu Sans"], "font.size": BODY, "text.color": INK,
    "axes.edgecolor": MUTED, "axes.labelcolor": INK, "axes.linewidth": 0.6,
    "axes.facecolor": "none", "figure.facecolor": "none", "savefig.facecolor": "none",
    "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK,
    "ytick.labelcolor": INK, "xtick.labelsize": SMALL, "ytick.labelsize": SMALL,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.major.size": 2.5,
    "ytick.major.size": 2.5, "axes.unicode_minus": True, "text.usetex": False,
    "svg.fonttype": "none", "svg.hashsalt": "ordinate", "pdf.fonttype": 42,
    "path.simplify": False, "axes.xmargin": 0, "axes.ymargin": 0,
}  # fmt: skip


@contextmanager
def applied() -> Iterator[None]:
    """Our settings of matplotlib, for as long as we draw; whatever the reader's own are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(OURS)  # type: ignore[arg-type]
        yield


def themed(text: str, theme: Theme) -> str:
    """With every colour of ours as a variable of the page, or as it is in light or dark."""
    for light, dark in DARK.items():
        put = {"page": f"var(--figure-{NAMES[light]}, {light})", "light": light, "dark": dark}
        text = text.replace(light, put[theme])
    return text


def css(dark: str = "@media (prefers-color-scheme: dark)") -> str:
    """The variables as a style sheet; `dark` says when the dark ones hold.

    Without it figures are light wherever they stand.
    """
    light = " ".join(f"--figure-{name}: {colour};" for colour, name in NAMES.items())
    night = " ".join(f"--figure-{name}: {DARK[colour]};" for colour, name in NAMES.items())
    inner = f":root {{ {night} }}" if dark.startswith("@") else night
    return f":root {{ {light} }}\n{dark} {{ {inner} }}\n"
