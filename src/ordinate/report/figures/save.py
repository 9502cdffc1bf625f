"""Figures as vectors: files for papers, and SVG that belongs to a page."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterable
from pathlib import Path

from ordinate.report.figures import style
from ordinate.report.figures.figure import PAPER, Figure
from ordinate.report.figures.style import Theme

#: Pixels of a page per inch.
PIXELS = 96


def svg(figure: Figure, *, theme: Theme = "page", width: float = 700) -> str:
    """A figure `width` pixels wide as an SVG element for a page: text is text, points have tooltips.

    theme:  "page" leaves colours to the variables of `style.css`; "light" and "dark" fix them
    """
    drawn, own = figure.draw(width / PIXELS), f"{figure.name}-{round(width)}"
    page = io.StringIO()
    with style.applied():
        import matplotlib

        with matplotlib.rc_context({"svg.hashsalt": own}):
            drawn.savefig(page, format="svg", metadata={"Date": None, "Creator": None})
    return _embedded(page.getvalue(), figure, own, theme)


def write(figures: Iterable[Figure], folder: str | Path, *, width: float = PAPER) -> list[Path]:
    """Each as NAME.pdf and NAME.svg, `width` inches wide; the same figures give the same bytes."""
    folder, made = Path(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        pdf, drawing = folder / f"{figure.name}.pdf", folder / f"{figure.name}.svg"
        drawn = figure.draw(width)
        with style.applied():
            drawn.savefig(pdf, metadata={"Title": figure.title, "CreationDate": None})
        head = '<?xml version="1.0" encoding="utf-8"?>\n'
        text = svg(figure, theme="light", width=width * PIXELS)
        drawing.write_text(head + text + "\n", encoding="utf-8")
        made += [pdf, drawing]
    return made


def _embedded(text: str, figure: Figure, prefix: str, theme: Theme) -> str:
    """matplotlib's document as an element: no prolog, own ids, no style that leaks onto the page."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.S)
    text = re.sub(r"<defs>\s*</defs>\s*", "", text).replace("xlink:href=", "href=")
    text = re.sub(r'\sxmlns:xlink="[^"]*"', "", text)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.S)
    text = re.sub(r'<g id="tip:([^"]*)">', r"<g><title>\1</title>", text)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    # Letters of the page: those we measured with are the widest of the usual ones.
    text = re.sub(r"'DejaVu Sans'(, [^;\"]*)?", "var(--figure-font, system-ui), sans-serif", text)
    text = style.themed(text, theme)
    head, rest = _root(text)
    title, told = html.escape(figure.title), html.escape(figure.caption)
    return (
        f'<svg {head} role="img" aria-labelledby="{prefix}-title {prefix}-desc" '
        'style="stroke-linejoin: round; stroke-linecap: butt; height: auto; max-width: 100%">'
        f'\n<title id="{prefix}-title">{title}</title>\n<desc id="{prefix}-desc">{told}</desc>'
        f"{rest}".rstrip()
    )


def _root(text: str) -> tuple[str, str]:
    """The attributes of the root with its size in pixels, and what is inside."""
    tag = re.match(r"<svg[^>]*>", text)
    assert tag, "matplotlib wrote no svg"
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', tag[0])
    assert box, "matplotlib wrote no viewBox"
    wide, tall = (float(side) * PIXELS / 72 for side in box.groups())
    kept = f'xmlns="http://www.w3.org/2000/svg" {box[0]} width="{wide:.4g}" height="{tall:.5g}"'
    return kept, text[tag.end() :]
