"""The page about the command says nothing that the command does not do."""

import re
import shlex
from pathlib import Path

import pytest

from ordinate.cli import COMMANDS, main

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
EXAMPLES = re.findall(r"^\$ ordinate (.*)$", PAGE, re.M)


def test_every_command_has_a_section():
    assert re.findall(r"^## (\w+):", PAGE, re.M) == [*COMMANDS]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_understood(capsys, monkeypatch, tmp_path, example):
    command, *rest = shlex.split(example)
    if command in ("check", "doctor") or "--state" in rest:
        rest = ["--help"]
    monkeypatch.chdir(tmp_path)
    wrong = command == "show" and rest == ["rop"]
    assert main([command, *rest]) == (2 if wrong else 0)


SHOWN = [
    (command, said)
    for command, said in re.findall(r"```text\n\$ ordinate (.*)\n((?:(?!```)[\s\S])+?)```", PAGE)
    if "\n...\n" not in said and command.split()[0] not in ("check", "doctor", "compare")
]


@pytest.mark.parametrize(("command", "said"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_page_shows_what_the_command_prints(capsys, monkeypatch, command, said):
    monkeypatch.delenv("COLUMNS", raising=False)
    main(shlex.split(command))
    printed = "".join(capsys.readouterr())
    assert [line.rstrip() for line in printed.rstrip().splitlines()] == said.splitlines()


def test_some_of_it_is_compared():
    assert len(SHOWN) >= 4
