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
