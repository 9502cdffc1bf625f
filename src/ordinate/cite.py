"""BibTeX for what you used."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ordinate.facts import NEUTRAL, Facts
from ordinate.names import classes, nearest
from ordinate.position import Position

OURS = "ordinate2026"


@dataclass(frozen=True)
class Reference:
    """One entry of references.bib."""

    key: str
    kind: str
    fields: dict[str, str]
    text: str

    @property
    def by(self) -> str:
        """Who wrote it, in short: "Su et al."."""
        surnames = [name.split(",")[0].strip("{}") for name in self.fields["author"].split(" and ")]
        if len(surnames) > 2:
            return f"{surnames[0]} et al."
        return " and ".join(surnames)

    @property
    def title(self) -> str:
        """The title without the braces of BibTeX."""
        return re.sub(r"[{}]", "", self.fields["title"])

    @property
    def year(self) -> int:
        return int(self.fields["year"])


def bibtex(*names: str | Position) -> str:
    """The BibTeX entries of methods, of all parts of a chain, or of bibliography keys.

    Without a name, the entry of Ordinate itself.

    >>> import ordinate as od
    >>> print(od.bibtex("alibi"))  # doctest: +ELLIPSIS
    @inproceedings{press2022alibi,
    ...
    """
    keys = [key for name in names for key in papers(name)] or [OURS]
    return "\n\n".join(reference(key).text for key in dict.fromkeys(keys))


def papers(name: str | Position) -> tuple[str, ...]:
    """The bibliography keys of a method or of all parts of a chain."""
    if isinstance(name, Position):
        return name.facts.paper
    if name in references():
        return (name,)
    keys = [key for cls in classes(name) for key in _facts(cls).paper]
    return tuple(dict.fromkeys(keys)) or NEUTRAL.paper


def _facts(method: type[Position]) -> Facts:
    """The facts of a class; where they depend on its options, those of one without options."""
    if isinstance(facts := getattr(method, "facts", None), Facts):
        return facts
    sizes = {"dim": 8, "heads": 1, "head_dim": 8, "layers": 1, "max_len": 8}
    taken = inspect.signature(method).parameters
    return method(**{size: value for size, value in sizes.items() if size in taken}).facts


def reference(key: str) -> Reference:
    """The entry behind a key."""
    if key not in references():
        raise ValueError(
            f"the bibliography has no entry {key!r}{nearest(key, references())}: "
            "write it into references.bib, or cite that paper by hand"
        )
    return references()[key]


@cache
def references() -> dict[str, Reference]:
    """All entries, in the order of the file: one field per line, a closing brace on its own."""
    text = files("ordinate").joinpath("references.bib").read_text(encoding="utf-8")
    found = {}
    for entry in re.finditer(r"^@(\w+)\{([^,\s]+),\n(.*?)^\}$", text, re.M | re.S):
        kind, key, body = entry.groups()
        fields = dict(re.findall(r"^  (\w+) = \{?(.*?)\}?,$", body, re.M))
        found[key] = Reference(key, kind, fields, entry[0])
    return found
