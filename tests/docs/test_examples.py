"""What the pages show runs: their python blocks, and the examples in the docstrings of methods."""

import doctest
import inspect
import re
from pathlib import Path

import pytest
import torch

import ordinate as od
from ordinate.methods import INDEX, find

HOUSE = Path(__file__).parents[2]
PAGES = ("README.md", "docs/index.md", *(f"docs/{name}.md" for name in (
    "quickstart", "models", "backends", "testing", "interface", "write-your-own",
)))  # fmt: skip
BLOCK = re.compile(r"(<!-- not run -->\n)?^```python\n(.*?)^```$", re.M | re.S)


def blocks(text):
    """The line before the first of each python block, and its source, without those marked."""
    return [
        (text.count("\n", 0, block.start(2)), block[2])
        for block in BLOCK.finditer(text)
        if not block[1]
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(od.backends, "ENGINES", dict(od.backends.ENGINES))
    torch.manual_seed(0)
    text = (HOUSE / page).read_text()
    found, world = blocks(text), {"__name__": page}
    assert found
    for line, source in found:
        # Padded, so that a traceback has the line of the page.
        exec(compile("\n" * line + source, HOUSE / page, "exec"), world)


def test_a_block_that_is_marked_does_not_run():
    text = "\n<!-- not run -->\n```python\n1/0\n```\n```python\nx = 1\n```\n```text\n$ rm\n```\n"
    assert blocks(text) == [(6, "x = 1\n")]


OBJECTS = {
    **{name: find(name) for name in INDEX},
    **{f"od.{f.__name__}": f for f in (od.explain, od.bibtex)},
    **{f"od.models.{c.__name__}": c for c in (od.models.Transformer, od.models.Cache)},
}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_example_of_a_docstring_runs(name):
    torch.manual_seed(0)
    text = inspect.getdoc(OBJECTS[name]) or ""
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert example.examples
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert not said, "".join(said)
