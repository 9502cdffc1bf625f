import json
import os
import sys
import time

import pytest

from experiments.test_store import made, posix, process
from ordinate.cli import main, runs
from ordinate.experiments import store as stores
from ordinate.experiments.store import Store


@pytest.fixture
def folder(tmp_path):
    with Store(tmp_path / "runs") as store:
        for seed in range(2):
            store.add(made(seed))
        store.add(made(0, method="rope:base=1e6"))
        store.add(made(0, method="rope+alibi", rate=3e-4))
        store.add(made(0, "failed", method="learned"))
        store.add(made(0, "lost", method="t5"))
        store.folder_of("f" * 16).mkdir()
    return str(tmp_path / "runs")


def kept(folder):
    return Store(folder, writer=False).statuses()


def ask(capsys, *arguments, code=0):
    assert main(["runs", *arguments]) == code
    return capsys.readouterr().out


def test_the_folder_is_called_as_the_store_calls_it():
    assert runs.HOME == stores.HOME


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_has_a_line_per_trial(capsys, monkeypatch, folder, width):
    monkeypatch.setenv("COLUMNS", str(width))
    said = ask(capsys, "list", "--folder", folder)
    assert max(map(len, said.splitlines())) <= width and "…" not in said
    lines = {line.split()[0]: line.split() for line in said.splitlines() if line.split()}
    of = made(0, method="rope+alibi", rate=3e-4)
    row = "rope+alibi pattern 3 20 0.0003 0 done 0.750 1.5"
    assert " ".join(lines[of.trial.id[:8]][1:10]) == row
    assert ("in process" in said) == (width == 120)
    assert lines[made(0, "failed", method="learned").trial.id[:8]][7:10] == ["failed", "-", "-"]
    assert "4 done, 1 failed, 1 lost; 1 more not finished" in " ".join(said.split())


@pytest.mark.parametrize(
    ("chosen", "methods"),
    [
        (["--method", "rope"], ["rope", "rope", "rope:base=1e6"]),
        (["--method", "rope:base=1e6"], ["rope:base=1e6"]),
        (["--method", "rope+alibi"], ["rope+alibi"]),
        (["--status", "failed"], ["learned"]),
        (["--status", "lost", "--task", "pattern"], ["t5"]),
        ([], ["rope", "rope", "rope:base=1e6", "rope+alibi", "learned", "t5"]),
    ],
)
def test_json_has_all_of_those_chosen(capsys, folder, chosen, methods):
    found = json.loads(
        ask(capsys, "list", "--json", "--folder", folder, *chosen),
        parse_constant=lambda name: pytest.fail(f"{name} is no JSON"),
    )
    assert [one["trial"]["position"] for one in found] == methods
    if methods[0] == "rope":
        assert found[0]["id"] == made(0).trial.id
        assert found[0]["result"]["curve"][1]["accuracy"] == 0.5
        assert found[0]["result"]["curve"][1]["train_loss"] is None


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("rope:base=1e6", "rope"),
        ("rope:base=1e+6", "rope"),
        ("rope:base=2+alibi", "rope:base=2+alibi"),
        ("my/own.py:Mine:clip=4", "my/own.py:Mine"),
        ("pattern:length=64,tokens=30", "pattern"),
    ],
)
def test_a_name_without_its_options(name, base):
    assert runs.plain(name) == base


def test_a_task_ranked_by_loss_is_listed_by_loss(capsys, folder, monkeypatch):
    from ordinate.tasks import find

    monkeypatch.setattr(find("pattern"), "metric", "loss")
    assert "loss inf" in ask(capsys, "list", "--folder", folder)


def test_show_tells_everything(capsys, folder):
    id = made(0).trial.id
    said = ask(capsys, "show", id[:6], "--folder", folder)
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert lines[0] == "rope on pattern, seed 0: done"
    for row in (
        f"id {id}", "rate 0.001", "lengths 64", "stop budget", "flops 1099511627776", "peak -",
        "graph no", "engine in process", "validation 0.3 0.333333 7", "32 inf 0.75 20",
        "first 0.3 0.333333 7", "64 - - 0 no row for place 63", "50 nan 0.5 0.5",
    ):  # fmt: skip
        assert row in lines, row
    failed = made(0, "failed", method="learned").trial.id
    said = ask(capsys, "show", failed, "--folder", folder)
    assert "learned on pattern, seed 0: failed" in said and "failed: é, “quoted”" in said


def test_a_long_curve_is_shown_at_some_of_its_looks(capsys, tmp_path):
    with Store(tmp_path) as store:
        store.add(made(looks=1000))
    said = ask(capsys, "show", made(looks=1000).trial.id, "--folder", str(tmp_path))
    steps = [line.split()[0] for line in said.split("Curve: step")[1].splitlines()[1:]]
    assert 10 <= len(steps) <= runs.LOOKS and steps[-1] == str(50 * 999)


def test_rm_deletes_what_is_named_and_nothing_else(capsys, folder):
    every = kept(folder)
    gone = made(1).trial.id
    said = ask(capsys, "rm", gone[:7], "--yes", "--folder", folder)
    assert said == f"deleted 1 trial in {folder}: 1 done\n"
    assert kept(folder) == {id: status for id, status in every.items() if id != gone}
    assert "1 failed" in ask(capsys, "rm", "--status", "failed", "--yes", "--folder", folder)
    assert sorted(kept(folder).values()) == ["done", "done", "done", "lost"]
    assert "nothing to delete" in ask(capsys, "rm", "--status", "failed", "--folder", folder)
    said = ask(capsys, "rm", "--all", "--yes", "--folder", folder)
    assert "5 trials" in said and "1 not finished, 3 done, 1 lost" in said
    assert kept(folder) == {} and Store(folder, writer=False).unfinished() == []
    assert "none. Test" in ask(capsys, "list", "--folder", folder)


@pytest.mark.parametrize("answer", ["y", "Yes", "n", "", "yeah", EOFError()])
def test_rm_asks_in_a_terminal(capsys, monkeypatch, folder, answer):
    def asked(question):
        assert question == "Delete them? [y/N] "
        if isinstance(answer, EOFError):
            raise answer
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", asked)
    agreed = answer in ("y", "Yes")
    said = ask(capsys, "rm", "--all", "--folder", folder, code=0 if agreed else 1)
    assert "This deletes 7 trials" in said and made(0).trial.id in said
    assert said.endswith("nothing was deleted\n") != agreed
    assert len(kept(folder)) == (0 if agreed else 6)


def test_export_writes_tables_and_curves(capsys, folder, tmp_path):
    pytest.importorskip("tensorboardX")
    file, curves = tmp_path / "out.csv", tmp_path / "curves"
    said = ask(capsys, "export", str(file), "--tensorboard", str(curves), "--folder", folder)
    assert said == f"{file}: 10 rows of 6 trials\n{curves}: the curves of 4 trials\n"
    assert file.read_text().count("\n") > 10
    assert len([*curves.rglob("events.*")]) == 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["list", "--method", "ropee"], "no run is of the method 'ropee' (did you mean rope?)"),
        (["list", "--task", "copy"], "no run is of the task 'copy'; there are pattern"),
        (["show", "xyz"], "no trial begins with 'xyz': ordinate runs list shows them"),
        (["show", ""], "no trial begins with ''"),
        (["show", "ffff"], "ffffffffffffffff has not finished: see "),
        (["rm"], "name trials by their ids, or by --status STATUS, or --all"),
        (["rm", "abc", "--all"], "one of it"),
        (["rm", "xyz", "--yes"], "no trial begins with 'xyz'"),
        (["rm", "--all"], "nobody is there to ask: --yes deletes 7 trials"),
        (["export"], "name a file, as runs.csv, or a folder, as --tensorboard curves"),
        (["export", "x.xls"], "a table ends in .csv, .parquet, .json, got .xls"),
        (["export", "--tensorboard", "src"], "is not empty"),
    ],
)
def test_a_mistake_is_one_sentence_and_deletes_nothing(
    capsys, monkeypatch, folder, arguments, sentence
):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    before = kept(folder)
    if "src" in arguments:
        arguments = [*arguments[:-1], folder]
    assert main(["runs", *arguments, "--folder", folder]) == 2
    said = capsys.readouterr()
    assert sentence in said.err and said.err.startswith("ordinate: ")
    assert said.err.count("\n") == 1 and said.out == ""
    assert kept(folder) == before


@pytest.mark.parametrize(
    "arguments", [["list"], ["show", "a"], ["rm", "--all", "--yes"], ["export", "x.csv"]]
)
def test_without_runs_every_action_says_so(capsys, monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(["runs", *arguments]) == 2
    assert capsys.readouterr().err.startswith("ordinate: there are no runs in ordinate-runs: ")
    assert [*tmp_path.iterdir()] == []


def test_one_beginning_of_two_ids_is_not_enough(capsys, tmp_path):
    with Store(tmp_path) as store:
        ids = []
        for seed in range(17):
            store.add(made(seed))
            ids.append(made(seed).trial.id)
    letter = next(id[0] for id in ids if sum(i[0] == id[0] for i in ids) > 1)
    for action in (["show"], ["rm", "--yes"]):
        assert main(["runs", *action, letter, "--folder", str(tmp_path)]) == 2
        assert f"trials begin with {letter!r}, write more of it: " in capsys.readouterr().err
    assert len(kept(tmp_path)) == 17


def test_ids_are_told_apart_by_more_letters_where_needed():
    assert runs.letters([]) == runs.letters(["a" * 16]) == 8
    assert runs.letters(["a" * 16, "a" * 10 + "b" * 6]) == 11
    assert runs.letters(["a" * 16, "a" * 15 + "b"]) == 16


@posix
def test_nothing_is_deleted_under_a_writer(capsys, folder):
    ready, tell = os.pipe()

    def work():
        with Store(folder):
            os.write(tell, b"x")
            time.sleep(60)

    with process(work) as writer:
        os.read(ready, 1)
        assert main(["runs", "rm", "--all", "--yes", "--folder", folder]) == 2
        assert f"process {writer} is writing to {folder}" in capsys.readouterr().err
        assert len(kept(folder)) == 6
        assert "4 done" in ask(capsys, "list", "--folder", folder)


@pytest.mark.parametrize("arguments", [[], ["lst"], ["list", "--statu", "done"], ["show"]])
def test_what_is_no_action_is_shown_with_the_way_to_the_help(capsys, arguments):
    assert main(["runs", *arguments]) == 2
    assert "ordinate runs" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["list", "show", "rm", "export"])
def test_every_action_explains_itself(capsys, action):
    said = ask(capsys, action, "--help")
    assert f"ordinate runs {action}" in said and "--folder FOLDER" in said
