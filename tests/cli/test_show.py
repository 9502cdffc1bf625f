import re
import xml.etree.ElementTree as ET

import pytest

from ordinate.cli import main
from ordinate.cli.subject import Scene, made, problem
from ordinate.methods import names

FAST = ["--length", "16"]


@pytest.mark.parametrize("name", names())
def test_every_method_has_something_to_show(capsys, name):
    assert main(["show", name, *FAST, "--draw"]) == 0
    said = capsys.readouterr().out
    assert ("Nothing to see" in said) == (name == "none")
    assert max(map(len, said.splitlines())) <= 80
    assert "\x1b" not in said
    assert "nan" not in said


def test_what_starts_at_zero_says_so(capsys):
    assert main(["show", "relative", *FAST]) == 0
    assert "--draw" in capsys.readouterr().out
    assert main(["show", "relative", *FAST, "--draw"]) == 0
    said = capsys.readouterr().out
    assert "--draw" not in said
    assert "drawn from N(0, 0.5)" in said


def test_the_numbers_are_those_of_the_method(capsys):
    assert main(["show", "alibi", "--causal", "--length", "20"]) == 0
    (row,) = re.findall(r"^head 0 +(0 .*)$", capsys.readouterr().out, re.M)[:1]
    # 2^-1 per token at distances 0, 1, 4 and 16.
    assert [float(x) for x in row.split()] == [0, -0.5, -2, -8]


def test_a_layer_without_the_method_shows_nothing(capsys):
    assert main(["show", "rope:on=3-5", *FAST]) == 0
    assert "Nothing to see" in capsys.readouterr().out
    assert main(["show", "rope:on=3-5", "--layer", "4", *FAST]) == 0
    assert "Rotation spectrum" in capsys.readouterr().out


def test_a_terminal_gets_colours_unless_it_refuses_them(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["show", "sinusoidal", *FAST]) == 0
    assert "\x1b[" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["show", "sinusoidal", *FAST]) == 0
    assert not re.search(r"\x1b\[[0-9;]*(38|48);", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["t5", "sinusoidal", "axial-rope", "none", "rope+alibi"])
def test_files(capsys, tmp_path, name):
    for ending in ("png", "svg", "html"):
        path = tmp_path / f"picture.{ending}"
        assert main(["show", name, *FAST, "--out", str(path)]) == 0
        assert capsys.readouterr().out == f"{path}\n"
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "picture.svg").read_text()
    ET.fromstring(svg)
    assert f">{name}</text>" in svg
    page = (tmp_path / "picture.html").read_text()
    assert f"<h1>{name}</h1>" in page and "<svg" in page
    # Nothing is fetched: addresses occur as names of XML vocabularies only.
    assert not re.search(r"(src|href)=\"(http|//)|@import|url\(http", page)


def test_the_same_picture_twice_is_the_same_file(capsys, tmp_path):
    for path in ("a.svg", "b.svg"):
        assert main(["show", "t5", *FAST, "--out", str(tmp_path / path)]) == 0
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "b.svg").read_text()


def test_without_matplotlib_one_sentence_says_how_to_get_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("ordinate.cli.figure.matplotlib_there", lambda: False)
    assert main(["show", "rope", "--out", str(tmp_path / "x.png")]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize("name", names())
def test_every_method_states_a_problem_here(name):
    position = made(name, {"layers": 1})
    a = problem(position, Scene(length=8, causal=position.facts.causal_only))
    assert a.q.shape == a.k.shape == a.v.shape


def test_what_was_learned_is_shown(tmp_path, capsys):
    import torch

    import ordinate as od

    config = od.models.Config(dim=32, layers=2, heads=4, vocab=9, max_len=32)
    model = od.models.Transformer(config, "t5")
    torch.nn.init.constant_(model.encoder.position.weight, 0.625)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    command = ["show", "t5", "--state", str(tmp_path / "model.pt")]
    assert main([*command, "--sizes", "dim=32,heads=4,layers=2"]) == 0
    out = capsys.readouterr().out
    assert "0.62" in out and "4 heads of 8" in out and "parameters from" in out
    assert main(command) == 2
    assert "holds no weight [32, 8]: give the model's sizes" in capsys.readouterr().err
    (tmp_path / "text.pt").write_text("hello")
    assert main(["show", "t5", "--state", str(tmp_path / "text.pt")]) == 2
    assert "is no state dict saved by torch.save" in capsys.readouterr().err
    assert main(["show", "t5", "--sizes", "dims=3"]) == 2
    assert "dims is no size" in capsys.readouterr().err
