"""What the pages take from the source: one page per method, the tables, and docstrings as markup."""

from __future__ import annotations

import importlib.util
import inspect
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from prose import inline, rst
from sphinx.application import Sphinx
from sphinx.util import logging

import ordinate as od
from ordinate.cite import bibtex, reference
from ordinate.cli import figure, subject
from ordinate.cli.explain import allowed
from ordinate.cli.list import FAMILIES, by_family, row, says
from ordinate.cli.picture import picture
from ordinate.describe import describe
from ordinate.methods import find, names
from ordinate.names import SIZES
from ordinate.position import Position, leaves
from ordinate.solve import engines

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "ordinate"
BUILT = HERE / "_methods"
LENGTH = 128
WHERE = {
    "-": "Nothing at all",
    "input": "On the tokens, or what q and k come from",
    "rotary": "Turning queries and keys",
    "bias": "Added to the scores",
    "scale": "Multiplying the scores",
    "content": "Where content meets position",
    "norm": "Between scores and weights",
    "grid": "On a grid",
}


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", build)
    app.connect("autodoc-process-docstring", markup)
    return {"parallel_read_safe": True}


def markup(app: Sphinx, kind: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text; what torch says of its own methods is not ours to print."""
    lines[:] = rst("\n".join(lines)).splitlines()


def build(app: Sphinx) -> None:
    """Writes what changed into an ignored folder."""
    torch.set_num_threads(1)
    BUILT.mkdir(exist_ok=True)
    wanted = {f"{name}.rst": page(name) for name in names()}
    wanted["overview.txt"] = "\n".join(overview())
    wanted["contracts.txt"] = "\n".join(contracts())
    wanted["broken.txt"] = "\n".join(broken())
    for name, text in wanted.items():
        path = BUILT / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    newest = max(path.stat().st_mtime for path in SOURCE.rglob("*.py"))
    for name in names():
        drawing = BUILT / f"{name}.svg"
        if not drawing.exists() or drawing.stat().st_mtime < newest:
            draw(name, drawing)
    for path in BUILT.iterdir():
        if path.name not in wanted and path.stem not in names():
            path.unlink()
    listed = (HERE / "api.md").read_text(encoding="utf-8")
    for name in od.__all__:
        if not re.search(rf":: ordinate\.{name}\b", listed) and name != "__version__":
            logging.getLogger(__name__).warning("docs/api.md leaves out ordinate.%s", name)


def draw(name: str, path: Path) -> None:
    """The picture of `ordinate show NAME`, with --draw where it would be flat."""
    full, scene = subject.complete(name), subject.Scene(length=LENGTH)
    shown = picture(full, subject.made(name), scene)
    if "--draw" in shown.note:
        drawn = "parameters drawn from N(0, 0.5)"
        shown = picture(full, subject.made(name, draw=True), scene, drawn)
    figure.write(str(path), shown, {}, abreast=2)


# The page of a method.


def page(name: str) -> str:
    position = subject.made(name)
    (part,) = leaves(position) or [position]
    pieces = [heading(name, "="), *said(name), f".. image:: {name}.svg", f"   :alt: {name}", ""]
    pieces += [heading("Facts", "-"), *grid(["", ""], facts(position))]
    if name != "none":
        pieces += [heading("Options", "-"), *options(name, part)]
    learned = [
        [f"``{k}``", f"{list(p.shape)}", f"{p.numel():,}"] for k, p in part.named_parameters()
    ]
    if learned:
        pieces += [heading("Parameters", "-"), f"At {subject.SAID}.", ""]
        pieces += grid(["parameter", "shape", "numbers"], learned)
    pieces += [heading("Engines", "-"), *runs(position)]
    pieces += [heading("Paper" + "s" * (len(position.facts.paper) > 1), "-"), *papers(position)]
    return "\n".join(pieces) + "\n"


def said(name: str) -> Iterator[str]:
    """What the class says of itself, and what the class it shares its hooks with says."""
    if name == "none":
        yield "No position at all: attention does not see the order.\n"
        yield from code("pycon", '>>> od.make("none")\nnone')
        return
    method = find(name)
    yield rst(inspect.getdoc(method) or "")
    for shared in method.__mro__[1:]:
        if shared is Position:
            break
        yield f".. rubric:: {shared.__name__}\n"
        yield rst(inspect.getdoc(shared) or "")


def facts(position: Position) -> Iterator[list[str]]:
    for key, value in subject.about(position).items():
        if key != "papers":
            yield [key, inline(value)]
    if not position.facts.key_projection:
        yield ["key projection", "none: the keys are the tokens themselves, cut into heads"]


def options(name: str, part: Position) -> Iterator[str]:
    signature = inspect.signature(type(part)).parameters
    hints = typing.get_type_hints(type(part).__init__)
    rows = []
    for key, parameter in signature.items():
        default = parameter.default
        if default is parameter.empty:
            shown = "a size" if key in SIZES else "must be given"
        else:
            plain = default is None or isinstance(default, bool)
            shown = f"``{str(default).lower() if plain else default}``"
        rows.append(
            [f"``{key}``", shown, inline(allowed(hints[key]) if key != "of" else "a method")]
        )
    yield from grid(["option", "default", "allowed"], rows)
    sizes = [key for key in signature if key in SIZES]
    if sizes:
        yield f"Sizes ({', '.join(f'``{key}``' for key in sizes)}) come from ``od.make`` or the model.\n"
    own = [piece if piece.startswith("(") else f":{piece}" for piece in type(part).variants]
    if own:
        yield "The contract also runs " + ", ".join(f"``{name}{piece}``" for piece in own) + ".\n"


def runs(position: Position) -> Iterator[str]:
    """Which engine runs the problem, learning and not, both ways and causal."""
    ways = (True,) if position.facts.causal_only else (True, False)
    said: dict[tuple[str, str], list[tuple[bool, str]]] = {}
    for causal in ways:
        scene = subject.Scene(length=LENGTH, causal=causal)
        with torch.no_grad():
            frozen = subject.problem(position, scene)
            inference = engines(frozen)
        if causal:
            yield "The problem it states for random q and k, in a causal model:\n"
            yield from code("text", "\n  ".join(textwrap.wrap(describe(frozen), 84)))
        learning = engines(subject.problem(position, scene))
        for when, lines in (("in training", learning), ("in inference", inference)):
            for engine, _, word in lines:
                word = word if word.startswith("refuses") else "runs it"
                said.setdefault((engine, word), []).append((causal, when))
    rows = []
    for (engine, word), found in sorted(said.items()):
        each = {when: [causal for causal, w in found if w == when] for _, when in found}
        words = [
            when
            if len(own) == len(ways)
            else f"{when}, {'causal' if own[0] else 'both directions'}"
            for when, own in each.items()
        ]
        always = len(found) == 2 * len(ways)
        rows.append([f"``{engine}``", inline(word), "" if always else "; ".join(words)])
    yield from grid(
        ["engine", "says", "when"] if any(r[2] for r in rows) else ["engine", "says"],
        [r if any(r[2] for r in rows) else r[:2] for r in rows],
    )
    yield f"At {LENGTH} tokens in float32 on a CPU; ``od.explain`` says it of your own tensors.\n"


def papers(position: Position) -> Iterator[str]:
    for key in position.facts.paper:
        entry = reference(key)
        link = entry.fields.get("url") or entry.fields.get("doi", "")
        link = link if link.startswith("http") or not link else f"https://doi.org/{link}"
        yield f"{inline(entry.by)} {entry.year}: *{inline(entry.title)}*." + (
            f" {link}" if link else ""
        )
        yield ""
        yield from code("bibtex", bibtex(key))


# The tables of other pages, in Markdown.


def overview() -> Iterator[str]:
    """Every method, by family."""
    rows = [row(name) for name in sorted(names(), key=by_family)]
    for family in FAMILIES:
        own = [r for r in rows if r["family"] == family]
        if not own:
            continue
        yield f"## {WHERE.get(family, family.capitalize())}\n"
        yield "| method | learned | relative | causal only | extrapolates | parameters | paper | year |"
        yield "|---|---|---|---|---|--:|---|---|"
        for r in own:
            facts = [says(r[key]) for key in ("learned", "relative", "causal_only", "extrapolates")]
            paper = r["paper"][0]
            cells = [f"[{r['name']}](_methods/{r['name']}.rst)", *facts]
            cells += [f"{r['parameters']:,}", paper["by"], str(paper["year"])]
            yield f"| {' | '.join(cells)} |"
        yield ""


def contracts() -> Iterator[str]:
    """Every contract and what it demands."""
    from ordinate.testing import CONTRACTS

    yield "| contract | what it demands |"
    yield "|---|---|"
    for name, contract in CONTRACTS.items():
        yield f"| {name} | {' '.join((contract.__doc__ or '').split())} |"


def broken() -> Iterator[str]:
    """Every deliberately broken method and the contract that finds it."""
    spec = importlib.util.spec_from_file_location("broken", HERE.parent / "tests/testing/broken.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield "| broken method | its mistake | caught by |"
    yield "|---|---|---|"
    for method, contract in module.BROKEN:
        yield f"| `{method.__name__}` | {' '.join(method.__doc__.split())} | {contract} |"


# Markup.


def heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def code(language: str, text: str) -> Iterator[str]:
    yield f".. code-block:: {language}\n"
    yield textwrap.indent(text, "    ") + "\n"


def grid(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield ".. list-table::"
    yield f"   :header-rows: {int(any(head))}\n"
    for cells in [*([head] if any(head) else []), *rows]:
        for i, cell in enumerate(cells):
            yield f"   {'*' if i == 0 else ' '} - {cell}"
    yield ""
