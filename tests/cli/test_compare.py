import pytest

from ordinate.cli import compare, main


def test_methods_side_by_side(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "none", "alibi", "learned", "swin"]) == 0
    said = capsys.readouterr().out
    assert "without training" in said.splitlines()[0]
    (none,) = (line.split() for line in said.splitlines() if line.startswith("none "))
    # Without a method attention is even: 64 of 512 tokens get an eighth.
    assert none == ["none", "yes", "0", "1", "1", "1", "1", "1", "12%", "3%"]
    assert "refused" in said and "learned at 2048" in said
    assert "swin is for a grid" in said
    assert (tmp_path / compare.PICTURE).stat().st_size > 10_000
    assert max(map(len, said.splitlines())) <= 80


def test_the_file_may_be_chosen(capsys, tmp_path):
    path = tmp_path / "x.html"
    assert main(["compare", "rope", "alibi", "--out", str(path)]) == 0
    assert f"Drawn in {path}" in " ".join(capsys.readouterr().out.split())
    assert "alibi" in path.read_text()


def test_without_matplotlib_the_table_is_printed(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ordinate.cli.figure.matplotlib_there", lambda: False)
    assert main(["compare", "rope"]) == 0
    assert "pip install 'ordinate[plot]'" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["rope", "alibi", "fox", "sinusoidal"])
def test_attention_falls_with_distance(name):
    row = compare.measure(name, draw=False)
    assert row["attention"][1:17].mean() > row["attention"][256:].mean()
