"""Docstrings of this house as reStructuredText.

They are plain text: equations are indented by four spaces, argument lists say `name: meaning`,
examples begin with >>>, and `code` stands between single backquotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

NAME = r'(?:`[^`]+`|"[^"]+"|\w+(?:, \w+)*)'
ENTRY = re.compile(rf"({NAME}): +(\S.*)")
# "split"  sines, then cosines: the names of a list need no colon if they stand in quotes.
QUOTED = re.compile(r'("[^"]+") {2,}(\S.*)')


def rst(text: str) -> str:
    """A docstring, already without its indentation."""
    return "\n".join(_blocks(text.splitlines()))


def inline(text: str) -> str:
    """A line of prose: code as code, and nothing else that means something to the markup."""
    pieces = re.split(r"`([^`]+)`", " ".join(text.split()))
    said = [
        f"``{piece}``" if i % 2 else re.sub(r"([\\*_|`<>])", r"\\\1", piece)
        for i, piece in enumerate(pieces)
    ]
    for i in range(1, len(said), 2):
        # The markup wants space around code; an escaped one is not printed.
        said[i] = said[i] if re.search(r"(^|[\s(])$", said[i - 1]) else "\\ " + said[i]
        said[i] += "" if re.match(r"$|[\s.,;:)]", said[i + 1]) else "\\ "
    return "".join(said)


def _blocks(lines: list[str]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        line = lines[at]
        start = at
        if not line.strip():
            at += 1
            continue
        if line.startswith("    "):
            at = _while(lines, at, lambda s: s.startswith("    ") or not s.strip())
            yield from _literal("text", lines[start:at])
        elif line.startswith(">>>"):
            at = _while(lines, at, lambda s: bool(s.strip()))
            shown = [re.sub(r" +# doctest:.*", "", s) for s in lines[start:at]]
            yield from _literal("pycon", ["    " + s for s in shown])
        elif entry := _entry(line):
            at = _while(lines, at + 1, lambda s: s.startswith(" "))
            names = entry[1] if entry[1][0] in '"`' else re.sub(r"\w+", r"`\g<0>`", entry[1])
            yield inline(names)
            yield "    " + inline(" ".join([entry[2], *lines[start + 1 : at]]))
            yield from [] if at < len(lines) and _entry(lines[at]) else [""]
        else:
            at = _while(lines, at + 1, lambda s: bool(s.strip()) and not _entry(s))
            yield inline(" ".join(lines[start:at]))
            yield ""


def _entry(line: str) -> re.Match[str] | None:
    return ENTRY.fullmatch(line) or QUOTED.fullmatch(line)


def _while(lines: list[str], at: int, holds) -> int:
    while at < len(lines) and holds(lines[at]):
        at += 1
    return at


def _literal(language: str, lines: list[str]) -> Iterator[str]:
    yield f".. code-block:: {language}"
    yield ""
    yield from lines
    yield ""
