"""`ordinate report`: tables and a page of what the store holds; bad input is one sentence."""

import threading
import time

import pytest

from ordinate.cli import main, report
from ordinate.experiments.store import Store
from report.made import depth, quick

SMALL = {"failing": False, "methods": ("rope", "none")}


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Figures have tests of their own, and take seconds."""
    from ordinate.report import figures

    every = figures.every
    monkeypatch.setattr(figures, "every", lambda comparison: every(comparison)[:1])


def filled(folder, *comparisons, leave_out=0):
    with Store(folder, writer=True) as store:
        for comparison in comparisons:
            store.keep_plan(comparison.plan.model_dump(mode="json"))
            outcomes = [*comparison.outcomes.values()]
            for outcome in outcomes[: len(outcomes) - leave_out]:
                store.add(outcome)
    return str(folder)


def test_it_prints_the_tables_and_writes_the_page(tmp_path, capsys):
    folder = filled(tmp_path / "runs", quick(**SMALL))
    assert main(["report", "--folder", folder]) == 0
    said = capsys.readouterr().out
    assert "rope" in said and "computed" in said and "12 of 12 trials are there" in said
    assert "seed 3" not in said
    text = (tmp_path / "runs" / "report.html").read_text()
    assert text.startswith("<!doctype html>") and 'http-equiv="refresh' not in text


def test_seeds_are_printed_if_asked(tmp_path, capsys):
    folder = filled(tmp_path / "runs", quick(**SMALL))
    assert main(["report", "--folder", folder, "--show-seeds"]) == 0
    assert "seed 3" in capsys.readouterr().out


def test_the_last_plan_or_one_by_its_name_or_id(tmp_path):
    other = quick(**SMALL, name="other")
    folder = filled(tmp_path / "runs", other, quick(**SMALL))
    out = tmp_path / "page.html"
    id = Store(folder, writer=False).plans()[0][0]
    for options, title in (
        ([], "quick"),
        (["--plan", "other"], "other"),
        (["--plan", id], "other"),
    ):
        assert main(["report", "--folder", folder, "--out", str(out), *options]) == 0
        assert f"<title>{title} · Ordinate</title>" in out.read_text()


def test_figures_are_written_for_a_paper(tmp_path, capsys):
    folder, figures = filled(tmp_path / "runs", quick(**SMALL)), tmp_path / "figures"
    assert main(["report", "--folder", folder, "--figures", str(figures)]) == 0
    assert {path.suffix for path in figures.iterdir()} == {".pdf", ".svg"}
    assert "every figure as PDF and SVG" in capsys.readouterr().out


def sentence(capsys, *arguments):
    code = main(["report", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert code in (1, 2) and out == "" and err.count("\n") == 1, err
    return err


def test_wrong_input_is_one_sentence(tmp_path, capsys):
    folder = filled(tmp_path / "runs", quick(**SMALL))
    nowhere = tmp_path / "nowhere"
    assert "no runs" in sentence(capsys, "--folder", nowhere)
    assert not nowhere.exists()
    assert "did you mean" in sentence(capsys, "--folder", folder, "--plan", "quikc")
    assert ".html" in sentence(capsys, "--folder", folder, "--out", tmp_path / "page.pdf")
    missing = tmp_path / "no" / "page.html"
    assert "no directory" in sentence(capsys, "--folder", folder, "--out", missing)
    (tmp_path / "file").write_text("")
    assert "is a file" in sentence(capsys, "--folder", folder, "--figures", tmp_path / "file")
    assert "no comparison was begun" in sentence(capsys, "--folder", filled(tmp_path / "new"))


def test_a_method_whose_file_is_gone_is_one_sentence(tmp_path, capsys):
    lost = quick(**SMALL)
    plan = {**lost.plan.model_dump(mode="json"), "methods": [str(tmp_path / "gone.py") + ":Gone"]}
    with Store(tmp_path / "runs", writer=True) as store:
        store.keep_plan(plan)
    assert "gone.py" in sentence(capsys, "--folder", tmp_path / "runs")


def test_watching_goes_on_to_the_last_trial(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(report, "PAUSE", 0.05)
    comparison = quick(**SMALL)
    folder = filled(tmp_path / "runs", comparison, leave_out=2)
    page, seen = tmp_path / "runs" / "report.html", []

    def finish():
        while not page.exists():
            time.sleep(0.01)
        seen.append(page.read_text())
        with Store(folder, writer=True) as store:
            for outcome in [*comparison.outcomes.values()][-2:]:
                store.add(outcome)

    other = threading.Thread(target=finish)
    other.start()
    assert main(["report", "--folder", folder, "--watch"]) == 0
    other.join()
    assert 'http-equiv="refresh' in seen[0] and "10 of 12 trials are done" in seen[0]
    assert 'http-equiv="refresh' not in page.read_text()
    out, err = capsys.readouterr()
    assert "10 of 12" in err and "12 of 12 trials are there" in out


def test_watching_ends_politely(tmp_path, capsys, monkeypatch):
    folder = filled(tmp_path / "runs", quick(**SMALL), leave_out=2)

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(report.time, "sleep", interrupt)
    assert main(["report", "--folder", folder, "--watch"]) == 0
    out, err = capsys.readouterr()
    assert "stopped watching" in err and "10 of 12 trials are there" in out
    assert 'http-equiv="refresh' not in (tmp_path / "runs" / "report.html").read_text()


def test_several_cells_are_printed_as_a_grid(tmp_path, capsys):
    folder = filled(tmp_path / "runs", depth())
    assert main(["report", "--folder", folder]) == 0
    assert "126 of 126 trials are there" in capsys.readouterr().out
