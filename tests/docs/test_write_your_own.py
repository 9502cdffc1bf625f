"""The method of the page "A method of your own" keeps the contract that the page ends with."""

import re
from pathlib import Path

from ordinate.cli import main
from ordinate.testing import CONTRACTS

PAGE = (Path(__file__).parents[2] / "docs" / "write-your-own.md").read_text()


def test_the_page_ends_with_a_check_that_passes(tmp_path, capsys):
    source = re.search(r"Write this into `mine.py`:\n\n```python\n(.*?)```", PAGE, re.S)[1]
    own = [line for line in source.split("class Fade")[1].splitlines() if line.strip()]
    assert len(own) <= 20
    (tmp_path / "mine.py").write_text(source)
    assert main(["check", f"{tmp_path / 'mine.py'}:Fade"]) == 0
    assert "0 fail" in capsys.readouterr().out
    assert f"in {len(CONTRACTS)} ways" in PAGE
