"""The report: one HTML file that asks nothing of the network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path

from ordinate import __version__
from ordinate.experiments.comparison import Comparison
from ordinate.experiments.store import TRIALS
from ordinate.report import figures, record, tables
from ordinate.report import looks as inside
from ordinate.report.figures import style
from ordinate.report.markup import ended, folded, pairs, sheet
from ordinate.report.tables.numbers import count
from ordinate.training import checkpoint, looks

#: Bytes of a page; attention maps are made coarser to stay below.
LARGEST = 2_950_000
#: Bytes of the heat maps among them.
HEATS = 700_000
#: Widths of figures, in pixels, on wide pages and on phones.
WIDE, NARROW = 700, 328
PARTS = Path(__file__).parent / "page"

LooksOf = Callable[[str], looks.Looks | None]


def write(
    comparison: Comparison,
    path: str | Path,
    *,
    looks_of: LooksOf | None = None,
    refresh: int | None = None,
) -> Path:
    """Writes the page of a comparison, finished or not, and returns where.

    looks_of:  what was kept of the trained model of a trial, by its id; by default what is in the
               folder of the comparison
    refresh:   while the comparison is unfinished the page loads itself anew after so many seconds
    """
    path = Path(path)
    page = html(comparison, looks_of=looks_of or _kept(comparison), refresh=refresh)
    # Replaced as a whole: a browser that loads itself anew never meets half a page.
    checkpoint.replace(path, page.encode())
    return path


def _kept(comparison: Comparison) -> LooksOf:
    folder = comparison.folder
    return lambda id: looks.read(Path(folder) / TRIALS / id) if folder else None


def html(comparison: Comparison, *, looks_of: LooksOf, refresh: int | None = None) -> str:
    """The page as text."""
    found = inside.seen(comparison, looks_of)
    sections = {
        "Ranking": _ranking(comparison),
        "Figures": _figures(comparison),
        "Failed, refused, unfinished": record.missing(comparison),
        "Parameters, time, memory": _costs(comparison),
        "What methods learned": inside.learned(found, HEATS),
        "Attention maps": part("viewer.html") if any(s.looks.maps for s in found) else "",
        "Environment": record.environment(comparison),
        "Configuration": record.configuration(comparison.plan),
    }
    sections = {title: body for title, body in sections.items() if body}
    script = part("page.js") + part("viewer.js")
    filled = {
        "policy": policy(script),
        "version": __version__,
        "refresh": _refresh(comparison, refresh),
        "title": escape(comparison.plan.name),
        "style": _style(),
        "head": _head(comparison),
        "contents": "\n".join(
            f'<li><a href="#{_id(title)}">{title}</a></li>' for title in sections
        ),
        "main": "\n".join(
            f'<section id="{_id(title)}">\n<h2>{title}</h2>\n{body}\n</section>'
            for title, body in sections.items()
        ),
        "script": script,
    }
    rest = sum(len(text.encode()) for text in filled.values()) + len(part("frame.html"))
    filled["maps"], left = inside.maps(found, comparison.task.length, LARGEST - rest)
    if left:
        note = f"<p class=soft>Left out to keep the page small: {escape('; '.join(left))}.</p>"
        filled["main"] = filled["main"].replace('<div id="viewer"', f'{note}<div id="viewer"')
    return _filled(part("frame.html"), filled)


@cache
def part(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def _filled(frame: str, texts: dict[str, str]) -> str:
    """The frame with a text for each {{name}}; what looks like a name inside a text stays."""
    first, *pieces = frame.split("{{")
    made = [first]
    for piece in pieces:
        name, _, after = piece.partition("}}")
        made += [texts[name], after]
    return "".join(made)


def policy(script: str) -> str:
    """What the page may do: run this script, and nothing that needs another machine."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _id(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")


def _refresh(comparison: Comparison, seconds: int | None) -> str:
    if not seconds or not comparison.missing:
        return ""
    return f'<meta http-equiv="refresh" content="{seconds}">\n'


def _head(comparison: Comparison) -> str:
    plan, said = comparison.plan, []
    if plan.about:
        said.append(f'<p class="lead">{escape(plan.about)}</p>')
    trials = sum(len(row.seeds) for row in comparison.rows)
    done = sum(len(row.done) for row in comparison.rows)
    failed = sum(len(row.failures) for row in comparison.rows)
    state = f"{done} of {count(trials, 'trial')} are done" + f", {failed} failed" * (failed > 0)
    unfinished = ' class="state"' if done < trials else ' class="soft"'
    cells = len(plan.cells)
    beyond = [str(n) for n in comparison.lengths if n != comparison.task.length]
    tested = f", tested at {', '.join(beyond)} too" if beyond else ""
    said.append(
        f"<p{unfinished}>{state}.</p>"
        f'<p class="soft">Task <code>{escape(plan.task)}</code>: {escape(comparison.task.about)} '
        f"{count(len(plan.methods), 'method')}, {count(plan.seeds, 'seed')}"
        f"{f', {cells} models' if cells > 1 else ''}; "
        f"trained at {comparison.task.length} tokens{tested}.</p>"
    )
    said.append(f'<div class="answer"><p>{_verdict(comparison)}</p></div>')
    return "\n".join(said)


def _verdict(comparison: Comparison) -> str:
    """The first of what can be said, and what of the longest length; not yet who was left out."""
    first, *others = next(iter(tables.reports(comparison))).verdicts
    longest = f"At length {comparison.lengths[-1]}"
    told = [first, *(one for one in others if one[0] == longest)]
    return " ".join(
        f"<b>{escape(subject)}:</b> {escape(ended(sentence.partition(' Left out: ')[0]))}"
        for subject, sentence in told
    )


def _ranking(comparison: Comparison) -> str:
    several, made = len(comparison.plan.cells) > 1, []
    by_seed = {one.name: one for one in tables.reports(comparison, seeds=True)}
    for one in tables.reports(comparison, cells=True):
        body = [sheet(table) for table in one.sheets]
        each = by_seed[one.name].sheets
        if any(line.kind == "seed" for table in each for line in table.lines):
            body.append(folded("Every seed", "".join(sheet(table, legend=False) for table in each)))
        body += [f'<p class="soft">{escape(mark)} {escape(text)}</p>' for mark, text in one.notes]
        body.append(pairs((subject, ended(text)) for subject, text in one.verdicts))
        alone = several and one.sheets and made
        made.append(folded(one.name, "".join(body)) if alone else "\n".join(body))
    return "\n".join(made)


def _costs(comparison: Comparison) -> str:
    made = sheet(record.costs(comparison))
    return folded("Every model", made) if len(comparison.plan.cells) > 1 else made


def _figures(comparison: Comparison) -> str:
    if find_spec("matplotlib") is None:
        return "<p>Figures need matplotlib: <code>pip install matplotlib</code>.</p>"
    made = []
    for one in figures.every(comparison):
        # Letters do not shrink with the width: a phone has a drawing of its own.
        wide, narrow = (_lean(figures.svg(one, width=width)) for width in (WIDE, NARROW))
        made.append(
            f'<figure id="figure-{escape(one.name)}">'
            f'<div class="at-wide">{wide}</div><div class="at-narrow">{narrow}</div>'
            f'<div class="told"><figcaption>{escape(one.caption)}</figcaption>'
            f'<button type="button" data-save="{escape(one.name)}">Save SVG</button></div></figure>'
        )
    return f'<div class="figures">{"".join(made)}</div>' if made else ""


def _lean(svg: str) -> str:
    """Places to a hundredth of a point, and nothing that no reader of the page sees."""
    svg = re.sub(
        r' (d|x|y)="[^"]*"', lambda at: re.sub(r"(\.\d\d)\d+", r"\1", at[0]).replace("\n", ""), svg
    )
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", re.sub(r'<g id="[^"]*"', "<g", svg))
    svg = re.sub(r"var\((--figure-\w[\w-]*), #\w+\)", r"var(\1)", svg)
    return re.sub(r">\s*\n\s*<", ">\n<", svg)


def _style() -> str:
    """The style sheet, with the colours of figures for light and for dark."""
    both = (
        f"--figure-{name}: light-dark({light}, {style.DARK[light]});"
        for light, name in style.NAMES.items()
    )
    return f"{part('style.css')}:root {{ {' '.join(both)} }}\n"
