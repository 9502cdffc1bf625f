"""The page about the command says nothing that the command does not do."""

import re
import shlex
from pathlib import Path

import pytest

from ordinate.cli import COMMANDS, main
from ordinate.experiments.store import Store

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "command-line.md").read_text()
EXAMPLES = re.findall(r"^\$ ordinate (.*)$", PAGE, re.M)
(TRAINS,) = (line for line in EXAMPLES if "train=640" in line)
#: The same, in this process.
TINY = [*shlex.split(TRAINS), "--jobs", "1"]
#: They need runs to be there.
LATER = ("runs", "report")


def test_every_command_has_a_section():
    assert re.findall(r"^## (\w+):", PAGE, re.M) == [*COMMANDS]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder in which the small comparison of the page was made."""
    here = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert main(TINY) == 0
    return here


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_understood(monkeypatch, request, tmp_path, example):
    command, *rest = shlex.split(example)
    if command in ("check", "doctor") or "--state" in rest:
        rest = ["--help"]
    if command == "compare" and "--dry-run" not in rest:
        rest.append("--dry-run")
    here = tmp_path
    if command in LATER:
        here = request.getfixturevalue("runs")
        id = next(iter(Store(here / "ordinate-runs", writer=False).statuses()))
        rest = [id[:8] if re.fullmatch("[0-9a-f]{8}", word) else word for word in rest]
    monkeypatch.chdir(here)
    wrong = command == "show" and rest == ["rop"]
    assert main([command, *rest]) == (2 if wrong else 0)


SHOWN = [
    (command, said)
    for command, said in re.findall(r"```text\n\$ ordinate (.*)\n((?:(?!```)[\s\S])+?)```", PAGE)
    if "...\n" not in said and command.split()[0] not in ("check", "doctor")
]


@pytest.mark.parametrize(("command", "said"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_page_shows_what_the_command_prints(capsys, monkeypatch, request, command, said):
    if command.split()[0] in LATER:
        monkeypatch.chdir(request.getfixturevalue("runs"))
        capsys.readouterr()
    monkeypatch.delenv("COLUMNS", raising=False)
    main(shlex.split(command))
    printed = "".join(capsys.readouterr())
    assert [line.rstrip() for line in printed.rstrip().splitlines()] == said.splitlines()


def test_some_of_it_is_compared():
    assert len(SHOWN) >= 5


def test_what_is_shown_in_part_is_printed_too(capsys, monkeypatch, runs):
    """Lines of the small comparison and of its dry run, numbers that are computed among them."""
    monkeypatch.chdir(runs)
    assert main(TINY) == 0
    printed = {line.rstrip() for line in capsys.readouterr().out.splitlines()}
    shown = PAGE.split(f"$ ordinate {TRAINS}\n")[1].split("```")[0].splitlines()
    fixed = [line for line in shown if not re.match(r"learned |none |\.\.\.", line)]
    assert len(fixed) > 8
    assert [line for line in fixed if line not in printed] == []


@pytest.mark.parametrize("page", ["compare", "clusters"])
def test_commands_on_other_pages_are_understood(monkeypatch, tmp_path, page):
    """All that can be tried without a cluster, without training."""
    text = (DOCS / f"{page}.md").read_text()
    blocks = re.findall(r"^```text\n([\s\S]*?)^```", text, re.M)
    lines = [line for block in blocks for line in block.splitlines()]
    asked = [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?ordinate ", line)]
    assert asked
    for name in ("my_method.py", "my_task.py", "plan.toml"):
        (tmp_path / name).write_text((DOCS.parent / "examples" / name).read_text())
    (tmp_path / "mine.py").write_text(
        (tmp_path / "my_method.py").read_text().replace("Fade", "Mine")
    )
    monkeypatch.chdir(tmp_path)
    # Without timing steps.
    monkeypatch.setattr("ordinate.cli.compare.dry", lambda plan, *_: 0 if plan.checked() else 1)
    for line in asked:
        _, command, *rest = shlex.split(line, comments=True)
        if command == "compare":
            rest.append("--dry-run")
        else:
            rest = [*(["list"] if command == "runs" else []), "--help"]
        assert main([command, *rest]) == 0, line
