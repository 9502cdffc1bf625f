"""Tables and lists as HTML; all that is given is text, and is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ordinate.report import tables


def ended(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."


def pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in pairs)
    return f'<dl class="lines">{rows}</dl>'


def sheet(table: tables.Sheet, *, legend: bool = True) -> str:
    """A sheet of numbers as a table, and how to read it."""
    heads = "".join(
        f'<th scope="col"{_word(not c.right)}>{escape(c.head).replace(chr(10), "<br>")}</th>'
        for c in table.columns
    )
    lines = []
    for line in table.lines:
        first, *cells = (escape(cell.rstrip()).replace("\n", "<br>") for cell in line.cells)
        each = "".join(
            f"<td{_word(not c.right)}>{cell}</td>"
            for c, cell in zip(table.columns[1:], cells, strict=True)
        )
        kind = f"{line.kind}{' gap' * line.gap}"
        lines.append(f'<tr class="{kind}"><th scope="row">{first}</th>{each}</tr>')
    groups = {column.group for column in table.columns}
    said = [f'<p class="soft">{escape(t)}</p>' for g, t in table.legend.items() if g in groups]
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(table.title)}"><table>'
        f"<caption>{escape(table.title)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        + (folded("How to read it", "".join(said)) if legend and said else "")
    )


def _word(left: bool) -> str:
    return ' class="word"' if left else ""


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], last: str = "word") -> str:
    """A table of words."""
    top = "".join(f'<th scope="col" class="word">{escape(head)}</th>' for head in heads)
    body = []
    for first, *cells in rows:
        kinds = [*["word"] * (len(cells) - 1), last]
        each = "".join(
            f'<td class="{k}">{escape(c)}</td>' for k, c in zip(kinds, cells, strict=True)
        )
        body.append(f'<tr><th scope="row">{escape(first)}</th>{each}</tr>')
    return (
        f'<div class="wide words" role="region" tabindex="0" aria-label="{escape(heads[-1])}"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def folded(title: str, body: str, *, opened: bool = False) -> str:
    """What is there for those who ask, and on paper."""
    return f"<details{' open' * opened}><summary>{escape(title)}</summary>{body}</details>"
