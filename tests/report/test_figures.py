"""Figures: nothing clipped, nothing on top of something else, every seed there, fit for a page."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from report import made

pytest.importorskip("matplotlib")

from matplotlib.text import Text

from ordinate.report import figures
from ordinate.report.figures import style

MADE = {
    name: getattr(made, name)()
    for name in ("quick", "grid", "depth", "two_seeds", "unfinished", "saturated", "long_names")
}
EVERY = {name: figures.every(comparison) for name, comparison in MADE.items()}
#: One of each kind.
FEW = [
    *(("quick", figure) for figure in EVERY["quick"] if "-at-" not in figure.name),
    *(("grid", figure) for figure in EVERY["grid"] if figure.name in ("grid", "against-epochs")),
    *(("depth", figure) for figure in EVERY["depth"] if figure.name == "grid"),
]
#: And those where something is tight.
TIGHT = [
    *FEW,
    *(("long_names", figure) for figure in EVERY["long_names"] if "-at-" not in figure.name),
    *(("depth", figure) for figure in EVERY["depth"] if figure.name.startswith("against")),
    *((name, EVERY[name][0]) for name in ("two_seeds", "unfinished", "saturated")),
]
PHONE, PAGE = 340, 700
SVG = "{http://www.w3.org/2000/svg}"


def named(found, name):
    return next(figure for figure in found if figure.name == name)


def words(text):
    """All that is written in an SVG, without tooltips."""
    return " ".join("".join(t.itertext()) for t in ElementTree.fromstring(text).iter(f"{SVG}text"))


def shown(drawn):
    """The texts of a figure, without the labels of ticks beyond the ends of an axis."""
    axes = [axis for panel in drawn.axes for axis in (panel.xaxis, panel.yaxis)]
    ticks = {id(t) for axis in axes for t in axis.findobj(Text)} - {id(a.label) for a in axes}
    ticks -= {id(tick.label1) for axis in axes for tick in axis._update_ticks()}
    return [text for text in drawn.findobj(Text) if id(text) not in ticks]


def tips(text):
    return re.findall(r"<g><title>([^<]*)</title>", text)


def ids(case):
    return f"{case[0]}-{case[1].name}"


@pytest.mark.parametrize("width", [figures.PAPER, PAGE / 96])
@pytest.mark.parametrize("case", TIGHT, ids=ids)
def test_words_are_whole_apart_and_large_enough(case, width):
    drawn = case[1].draw(width)
    # 200 dpi: letters are placed to a pixel, and a pixel is then little of a letter.
    drawn.set_dpi(200)
    renderer = drawn.canvas.get_renderer()
    drawn.draw(renderer)
    texts = [t for t in shown(drawn) if t.get_visible() and t.get_text().strip()]
    boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in texts]
    page = drawn.bbox
    assert len(boxes) > 3
    assert all(t.get_fontsize() >= 7.5 for t in texts)
    for said, box in boxes:
        inside = box.x0 >= -1 and box.x1 <= page.x1 + 1 and box.y0 >= -1 and box.y1 <= page.y1 + 1
        assert inside, f"{said!r} is clipped"
    for i, (one, a) in enumerate(boxes):
        for other, b in boxes[i + 1 :]:
            across = min(a.x1, b.x1) - max(a.x0, b.x0)
            down = min(a.y1, b.y1) - max(a.y0, b.y0)
            # Boxes of lines below each other touch by what hangs under a line.
            assert across <= 2 or down <= 6, f"{one!r} and {other!r} overlap"


@pytest.mark.parametrize("case", TIGHT, ids=ids)
def test_every_method_is_named(case):
    plan = MADE[case[0]].plan
    text = words(figures.svg(case[1], width=PHONE)).replace(" ", "")
    shown = figures.svg(case[1], width=PHONE)
    for method in plan.methods:
        lacking = case[1].name.startswith("curves") or case[1].name == "lengths"
        assert method in text or (lacking and method not in "".join(tips(shown))), method


@pytest.mark.parametrize("theme", ["page", "light", "dark"])
@pytest.mark.parametrize("case", FEW, ids=ids)
def test_svg_belongs_to_a_page(case, theme):
    text = figures.svg(case[1], theme=theme, width=PAGE)
    root = ElementTree.fromstring(text)
    assert text.startswith("<svg") and root[0].tag == f"{SVG}title" and root[1].tag == f"{SVG}desc"
    assert root[0].text == case[1].title and root[1].text == case[1].caption
    found = re.findall(r'\bid="([^"]*)"', text)
    assert len(found) == len(set(found))
    assert all(one.startswith(f"{case[1].name}-{PAGE}-") for one in found)
    linked = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text)
    assert {a or b for a, b in linked} <= set(found)
    assert "<style" not in text and "DejaVu" not in text and "<image" not in text
    bare = re.findall(r"(?<!, )#[0-9a-fA-F]{3,6}\b", re.sub(r'(href=")?#' + case[1].name, "", text))
    known = {"page": set(), "light": set(style.DARK), "dark": set(style.DARK.values())}[theme]
    assert set(bare) <= known
    if theme == "page":
        assert set(re.findall(r"var\(--([\w-]+)", text)) <= {
            "figure-font",
            *(f"figure-{name}" for name in style.NAMES.values()),
        }
    # What says no colour is black.
    for element in root.iter(f"{SVG}text"):
        assert "fill: " in (element.get("style") or "")


def test_a_page_may_hold_a_figure_twice():
    figure = EVERY["quick"][0]
    found = [re.findall(r'\bid="([^"]*)"', figures.svg(figure, width=w)) for w in (PHONE, PAGE)]
    assert not set(found[0]) & set(found[1])


def seeds_there(comparison, value):
    return sum(value(row, seed) is not None for row in comparison.within() for seed in row.seeds)


@pytest.mark.parametrize("name", ["quick", "unfinished"])
def test_every_seed_is_a_point(name):
    comparison = MADE[name]
    scored = {
        n: seeds_there(comparison, lambda r, s, n=n: r.scores(n, "accuracy")[s])
        for n in comparison.lengths
    }
    trained = comparison.task.length
    for length in comparison.lengths:
        figure = "ranking" if length == trained else f"ranking-at-{length}"
        found = tips(figures.svg(named(EVERY[name], figure)))
        assert len(set(found)) >= 0.9 * scored[length] and len(found) >= scored[length]
        again = {t for t in found if found.count(t) > 1}  # those shown once more, closer
        assert len(found) - scored[length] == sum(found.count(t) - 1 for t in again)
    assert len(tips(figures.svg(named(EVERY[name], "lengths")))) == sum(scored.values())
    done = sum(len(row.done) for row in comparison.within())
    assert len(tips(figures.svg(named(EVERY[name], "curves-accuracy")))) == done
    runs = sum(len(row.seeds) - len(row.missing) for row in comparison.within())
    found = tips(figures.svg(named(EVERY[name], "steps")))
    assert len(found) == 2 * runs
    late = sum(
        v is None and s not in row.missing
        for a in (0.95, 0.99)
        for row in comparison.within()
        for s, v in comparison.steps(a)[row.method].values.items()
    )
    assert late and sum("not there within" in t or "failed" in t for t in found) == late
    assert len(tips(figures.svg(named(EVERY[name], "cost")))) == done + 3 * len(comparison.rows)


def test_every_seed_of_every_cell_is_a_point():
    found = tips(figures.svg(named(EVERY["grid"], "against-epochs")))
    assert len(found) == 3 * 3 * 5 * 6
    found = tips(figures.svg(named(EVERY["grid"], "grid-markers")))
    assert len(found) == 3 * 3 * 6 and "rope · first" in found


def test_tooltips_say_method_seed_and_value():
    found = tips(figures.svg(named(EVERY["quick"], "ranking")))
    score = MADE["quick"].row("rope").scores(32, "accuracy")[3]
    assert f"rope · seed 3 · {100 * score:.1f} %" in found
    found = tips(figures.svg(named(EVERY["quick"], "steps")))
    assert "none · seed 0 · not there within 624 steps" in found
    assert "continuous · seed 3 · failed" in found


def test_captions_say_what_is_not_seen():
    caption = named(EVERY["quick"], "ranking-at-64").caption
    assert "learned refuses this length" in caption and "continuous failed in 1 of 6" in caption
    assert "95 % t-interval" in caption and "order-blind: " in caption
    assert "lacks 2 runs" in named(EVERY["unfinished"], "ranking").caption
    assert "lowest to the highest seed" in named(EVERY["quick"], "curves-accuracy").caption


def test_computed_lines_are_named_with_their_values():
    said = words(figures.svg(named(EVERY["quick"], "ranking"), width=PHONE))
    assert "chance 33.3" in said and "order-blind 69.0" in said and "perfect 100.0" in said
    assert "refuses 64 and 128" in words(figures.svg(named(EVERY["quick"], "lengths")))


def test_a_method_looks_the_same_everywhere():
    looks = style.looks(MADE["long_names"])
    assert len({(look.colour, look.mark) for look in looks.values()}) == 10
    assert looks["none"].colour == style.CONTROL
    assert len({look.colour for look in style.looks(MADE["quick"]).values()}) == 7
    for figure in EVERY["quick"]:
        assert style.looks(MADE["quick"])["rope"].colour in figures.svg(figure, theme="light")


def test_figures_of_every_cell_on_request():
    found = figures.every(MADE["depth"], cells=True)
    assert len({figure.name for figure in found}) == len(found)
    assert sum(figure.name.startswith("ranking-") for figure in found) == 3 * 3


def test_nothing_run_is_no_figure():
    assert figures.every(made.empty()) == []


def test_files_are_vectors_and_the_same_every_time(tmp_path):
    pair = EVERY["quick"][:2]
    first = figures.write(pair, tmp_path / "a")
    again = figures.write(pair, tmp_path / "b")
    assert [p.name for p in first] == [
        "ranking.pdf", "ranking.svg", "ranking-at-64.pdf", "ranking-at-64.svg",
    ]  # fmt: skip
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
    pdf = first[0].read_bytes()
    assert pdf.startswith(b"%PDF") and b"/Type3" not in pdf and b"CIDFontType2" in pdf
    assert "var(--figure-ink" not in first[1].read_text()
    ElementTree.fromstring(first[1].read_bytes())


def test_the_style_sheet_has_every_colour_twice():
    for sheet in (figures.css(), figures.css(dark=":root.dark")):
        for name in style.NAMES.values():
            assert sheet.count(f"--figure-{name}:") == 2
        assert sheet.count("{") == sheet.count("}")


def test_the_readers_own_settings_change_nothing():
    import matplotlib

    figure = EVERY["quick"][0]
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9, "axes.grid": True}):
        bent = figures.svg(figure)
    assert bent == figures.svg(figure)


def test_matplotlib_waits_until_something_is_drawn():
    code = (
        "import sys, ordinate.report, ordinate.report.figures, ordinate.report.tables; "
        "assert 'matplotlib' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
