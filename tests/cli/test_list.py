import json

import pytest

import ordinate as od
from ordinate.cli import main
from ordinate.methods import names


def test_every_method_is_listed(capsys):
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    for name in names():
        assert f"\n{name} " in said
    assert "dim 512, 8 heads of 64, 6 layers" in " ".join(said.split())


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_is_aligned_and_cuts_nothing(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= width
    rows = [line for line in said.splitlines() if line.split()[:1] in ([n] for n in names())]
    assert len(rows) == len(names())
    # The year ends every row at 80 columns, and all end at one place.
    if width == 80:
        assert {len(row.rstrip()) for row in rows} == {len(rows[0].rstrip())}
    else:
        assert all("20" in row.split()[-1] for row in rows)


def test_a_family_is_its_folder(capsys):
    assert main(["list", "--json", "--family", "bias"]) == 0
    listed = json.loads(capsys.readouterr().out)["methods"]
    assert [row["name"] for row in listed] == ["alibi", "fire", "relative", "t5"]
    assert {row["family"] for row in listed} == {"bias"}


def test_json_says_what_the_facts_say(capsys):
    assert main(["list", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in said["methods"]}
    assert set(rows) == set(names())
    learned = od.make("learned", **said["made_with"])
    assert rows["learned"]["parameters"] == sum(p.numel() for p in learned.parameters())
    assert rows["learned"]["learned"] and not rows["alibi"]["learned"]
    assert rows["xpos"]["causal_only"] and not rows["rope"]["causal_only"]
    assert rows["alibi"]["paper"][0]["key"] == "press2022alibi"
    assert rows["alibi"]["paper"][0]["year"] == 2022
    assert rows["swin"]["made_as"] == "swin:height=14,width=14"
