import pytest

from ordinate.cli import main
from ordinate.methods import names


@pytest.mark.parametrize("name", names())
def test_every_method_is_explained(capsys, name):
    assert main(["explain", name, "--length", "16"]) == 0
    said = capsys.readouterr().out
    assert "The problem it states" in said
    assert "reference" in said
    assert ">>>" not in said
    assert max(map(len, said.splitlines())) <= 80 or "    " in said


def test_what_it_says(capsys):
    assert main(["explain", "t5", "--causal"]) == 0
    said = capsys.readouterr().out
    assert "b_h(i, j) = w[bucket(j - i), h]" in said
    assert "buckets        32" in said
    assert "true | false | none" in said
    assert "[32, 8]" in said
    # It learns a bias, which torch's kernel has no gradient for.
    assert "Engines (training)" in said and "Engines (inference)" in said


def test_a_chain_explains_its_parts_and_the_whole(capsys):
    assert main(["explain", "rope+alibi", "--causal"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "rope (rotary)" in said and "alibi (bias)" in said
    assert "turn q and k by position (half pairs) → q·k × 0.125 → + a bias per distance" in said
    assert "Engines (training and inference)" in said


def test_what_is_remembered_is_said(capsys):
    assert main(["explain", "fox"]) == 0
    assert "remembered of every key: gate, [1, 128, 8]" in capsys.readouterr().out
