import io
import json
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest
from rich.console import Console

from ordinate.cli import compare, main
from ordinate.cli.progress import Display
from ordinate.experiments import Event
from ordinate.experiments.plan import changed, load
from ordinate.training import Outcome, Score
from ordinate.training.loop import Progress
from ordinate.training.outcome import Result

TASK = "pattern:train=640,validation=200,test=200"
TINY = [
    "--task", TASK, "--set", "sizes.dim=16", "sizes.heads=2", "--layers", "1", "--epochs", "1",
    "--seeds", "1", "--jobs", "1",
]  # fmt: skip

METHODS = """
import ordinate as od

class Fine(od.Position):
    facts = od.Facts(paper=("press2022alibi",), relative=True)

    def __init__(self, *, rate: float = 0.1):
        super().__init__()
        self.rate = rate

    def attend(self, a):
        rate = self.rate
        return a.add(od.Distance(lambda gap: -rate * gap.to(a.wide).abs()[None]))

class Broken(Fine):
    def attend(self, a):
        raise ValueError("there is no attending here")
"""

TASKS = """
import torch
import ordinate as od
from ordinate.tasks import Line, Samples, balanced, generator

class First(od.Task):
    about = "Which token comes first?"
    kind, output, classes, vocab, length = "encoder", "classes", 4, 4, 8

    def samples(self, split, seed, length=None):
        g = generator(self, split, seed, length or self.length)
        x = torch.randint(4, (128, length or self.length), generator=g)
        x[:, 0] = balanced(128, 4, g)
        return Samples(x, x[:, 0].clone())

    def lines(self, length=None):
        return [Line("chance", 0.25, "four tokens, equally frequent")]
"""


def asked(*arguments):
    """Exit code, output, and what came on the error stream: events, and other lines."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(["compare", *map(str, arguments)])
    lines = err.getvalue().splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return code, out.getvalue(), events, [line for line in lines if not line.startswith("{")]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare") / "runs"
    return folder, *asked("learned", "none", *TINY, "--folder", folder)


def kept(folder):
    return {path: path.read_bytes() for path in sorted(folder.glob("trials/*/result.json"))}


def test_one_command_ends_with_a_table_and_a_page(ran):
    folder, code, out, _, said = ran
    assert (code, said) == (0, [])
    assert max(map(len, out.split("The page:")[0].splitlines())) <= 80
    rows = [line.split() for line in out.splitlines()]
    for method in ("learned", "none"):
        (scores, cost) = (row for row in rows if row[:1] == [method])
        assert 0 <= float(scores[1]) <= 100
        assert cost[-1] == "1/1"
    for line in ("chance", "order-blind", "perfect"):
        assert [line] in [row[:1] for row in rows]
    assert "at least 6 are needed" in " ".join(out.split())
    page = folder / "report.html"
    assert f"The page: {page}" in out
    assert page.read_text().startswith("<!doctype html>")
    assert page.stat().st_size < 3_000_000


def test_away_from_a_terminal_it_says_lines_of_json(ran):
    *_, events, _ = ran
    assert events[0] == {"event": "trials", "todo": 2, "kept": 0}
    done = [event for event in events if event["event"] == "done"]
    assert [event["method"] for event in done] == ["learned", "none"]
    assert [(event["done"], event["todo"]) for event in done] == [(1, 2), (2, 2)]
    assert done[-1]["left_s"] == 0
    steps = [(e["step"], e["steps"]) for e in events if e["event"] == "progress"]
    assert steps == [(0, 20), (20, 20)] * 2


def test_run_again_it_runs_nothing(ran):
    folder, _, out, *_ = ran
    before = kept(folder)
    assert len(before) == 2
    code, again, events, _ = asked("learned", "none", *TINY, "--folder", folder)
    assert code == 0
    assert events == [{"event": "trials", "todo": 0, "kept": 2}]
    assert again.split("The page:")[0] == out.split("The page:")[0]
    assert kept(folder) == before


def test_more_is_asked_for_and_only_that_is_run(ran):
    folder, *_ = ran
    before = kept(folder)
    code, out, events, _ = asked("none", "alibi", *TINY, "--folder", folder)
    assert code == 0
    assert events[0] == {"event": "trials", "todo": 1, "kept": 1}
    methods = {line.split()[0] for line in out.splitlines() if line.endswith("1/1")}
    assert methods == {"none", "alibi"}
    assert before.items() <= kept(folder).items()


def test_a_dry_run_says_what_there_is_to_do_and_does_nothing(ran, tmp_path):
    folder, *_ = ran
    code, out, events, said = asked(
        "rope", "none", *TINY[:-4], "--seeds", 7, "--folder", tmp_path / "new", "--dry-run"
    )
    assert (code, events, said) == (0, [], [])
    assert not (tmp_path / "new").exists()
    found = dict(line.split(maxsplit=1) for line in out.splitlines() if line.strip())
    assert found["methods"].strip() == "rope, none"
    assert found["trials"].strip() == "14"
    assert "on this machine" in out
    _, out, *_ = asked("learned", "none", *TINY, "--folder", folder, "--dry-run")
    assert "Nothing to run: everything is there." in out
    _, out, *_ = asked("learned", "rope", *TINY, "--folder", folder, "--dry-run")
    assert "2; 1 to run" in out
    assert "too few to rank" in out


def test_an_interrupted_run_goes_on(monkeypatch, tmp_path):
    hear = Display.hear

    def stop(self, event):
        hear(self, event)
        if event.outcome is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(Display, "hear", stop)
    code, out, _, said = asked("learned", "none", *TINY, "--folder", tmp_path / "runs")
    assert (code, out) == (130, "")
    assert " ".join(said[:-1]).startswith("stopped: 1 of 2 runs are done and kept")
    assert said[-1] == "ordinate: interrupted"
    monkeypatch.setattr(Display, "hear", hear)
    before = kept(tmp_path / "runs")
    code, _, events, _ = asked("learned", "none", *TINY, "--folder", tmp_path / "runs")
    assert code == 0
    assert events[0] == {"event": "trials", "todo": 1, "kept": 1}
    assert before.items() <= kept(tmp_path / "runs").items()


def test_a_learning_rate_is_chosen_for_each_method(tmp_path):
    code, out, events, _ = asked(
        "learned", "none", *TINY, "--rates", "1e-3", "3e-3", "--folder", tmp_path / "runs"
    )
    assert code == 0
    stages = [event for event in events if "kept" in event]
    assert [(e["event"], e["todo"], e["kept"]) for e in stages] == [
        ("sweep", 4, 0),
        ("trials", 0, 2),
    ]
    assert "learning" in out and "The best of 1e-3, 3e-3 for each method" in " ".join(out.split())


def test_a_method_and_a_task_of_ones_own(monkeypatch, tmp_path):
    (tmp_path / "mine.py").write_text(METHODS)
    (tmp_path / "tasks.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    own = ["mine.py:Fine", "mine.py:Fine:rate=0.5", "none"]
    task = ["--task", "tasks.py:First", "--lengths", "16", *TINY[2:]]
    code, _, events, _ = asked(*own, *task)
    assert code == 0
    assert [e["method"] for e in events if e["event"] == "done"] == own
    assert (tmp_path / "ordinate-runs" / "report.html").exists()
    # A changed file is another method, and is run again.
    (tmp_path / "mine.py").write_text(METHODS.replace("-rate", "-2 * rate"))
    *_, events, _ = asked(*own, *task)
    assert events[0] == {"event": "trials", "todo": 2, "kept": 1}


def test_a_method_that_fails_stays_a_row(monkeypatch, tmp_path):
    (tmp_path / "mine.py").write_text(METHODS)
    monkeypatch.chdir(tmp_path)
    code, out, events, _ = asked("none", "mine.py:Broken", *TINY)
    assert code == 0
    (failed,) = (e for e in events if e["event"] == "failed")
    reason = "mine.py, line 17: there is no attending here"
    assert (failed["method"], failed["reason"]) == ("mine.py:Broken", reason)
    assert f"mine.py:Broken failed in 1 of 1 run: {reason}" in " ".join(out.split())
    rows = [line.split() for line in out.splitlines()]
    assert ["0/1"] in [row[-1:] for row in rows if row[:1] == ["mine.py:Broken"]]
    # It would fail again, so it is not tried again; and when nothing has a result, that is 1.
    code, out, events, _ = asked("mine.py:Broken", *TINY)
    assert code == 1
    assert events == [{"event": "trials", "todo": 0, "kept": 1}]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--preset", "quik"], "no preset is called 'quik' (did you mean quick?)"),
        (["--preset", "no.toml"], "there is no plan no.toml"),
        (["--preset", "typo.toml"], "a plan has no 'seds' (did you mean seeds?)"),
        (["--preset", "broken.toml"], "broken.toml: "),
        (["ropee"], "no method is called 'ropee' (did you mean rope?)"),
        (["rope++alibi"], "write names joined by +"),
        (["missing.py:Mine"], "there is no file missing.py"),
        (["mine.py:Fien"], "mine.py has no 'Fien' (did you mean Fine?)"),
        (["syntax.py:Mine"], "syntax.py, line 1: invalid syntax"),
        (["raises.py:Mine"], "raises.py, line 1: ZeroDivisionError: division by zero"),
        (["tasks.py:First"], "First in tasks.py is no method"),
        (["--task", "patern"], "no task is called 'patern' (did you mean pattern?)"),
        (["--task", "pattern:lenght=64"], "pattern has no option 'lenght' (did you mean length?)"),
        (["--task", "pattern:length=20"], "length is at least 21, got 20"),
        (["--task", "pattern:grid=4x9"], "make them equal"),
        (["--task", "mine.py:Fine"], "Fine in mine.py is no task"),
        (["--task", "syntax.py:First"], "syntax.py, line 1: invalid syntax"),
        (["rope:bse=3"], "rope has no option 'bse' (did you mean base?)"),
        (["swin"], "swin needs height and width"),
        (["--set", "sizes.heads=7"], "dim=128 does not split into 7 heads"),
        (["--set", "task.x=3"], "a plan has no 'task.x'"),
        (["--cluster", "tcp://x:1", "--processes", "2"], "leave out one of the two"),
        (["--lengths", "7"], "length is at least 21, got 7"),
        (["--seeds", "0"], "seeds is to be greater than or equal to 1, got 0"),
        (["--epochs", "0"], "epochs.0 is to be"),
        (["--layers", "-1"], "layers.0 is to be"),
        (["--rates", "-0.001"], "rates.0 is to be greater than 0"),
        (["--rates", "nan"], "rates.0 is to be a finite number"),
        (["--set", "recipe.batch"], "--set takes KEY=VALUE"),
        (["--set", "recipe.bacth=3"], "a plan has no 'recipe.bacth' (did you mean batch?)"),
        (["--set", "recipe.batch=none"], "recipe.batch is to be "),
        (["--set", "sizes.dropout=1.5"], "sizes.dropout is to be less than 1"),
        (["--jobs", "0"], "--jobs is at least 1, got 0"),
        (["--processes", "0"], "--processes is at least 1, got 0"),
        (["--device", "nonsense"], "cannot use the device 'nonsense'"),
        (["--folder", "mine.py"], "mine.py is a file"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_sentence_before_any_work(monkeypatch, tmp_path, arguments, sentence):
    for name, text in {
        "typo.toml": 'task = "pattern"\nmethods = ["none"]\nseds = 6\n',
        "broken.toml": 'task = "pattern\n',
        "mine.py": METHODS,
        "tasks.py": TASKS,
        "syntax.py": "class Mine(:\n",
        "raises.py": "1 / 0\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    code, out, events, said = asked(*arguments)
    assert (code, out, events) == (2, "", [])
    (line,) = said
    assert line.startswith("ordinate: ")
    assert sentence in line
    assert not list(tmp_path.glob("ordinate-runs/trials/*"))


def test_a_cluster_that_is_not_there_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, _, said = asked("none", *TINY, "--cluster", "nowhere")
    assert (code, out) == (2, "")
    assert len(said) == 1 and "no dask scheduler answers at nowhere" in said[0]


@pytest.mark.parametrize(
    ("pair", "change"),
    [
        ("recipe.batch=64", {"recipe.batch": 64}),
        ("recipe.rate=3e-4", {"recipe.rate": 3e-4}),
        ("layers=[1, 2]", {"layers": [1, 2]}),
        ("equal_budget=true", {"equal_budget": True}),
        ("recipe.goal=none", {"recipe.goal": None}),
        ("sizes.norm=post", {"sizes.norm": "post"}),
        ("task=pattern:length=64", {"task": "pattern:length=64"}),
    ],
)
def test_a_change_is_written_as_in_a_plan(pair, change):
    assert compare.written((pair,)) == change
    plan = changed(load("quick"), change)
    ((key, value),) = change.items()
    of = plan
    for part in key.split("."):
        of = getattr(of, part)
    assert of == (tuple(value) if isinstance(value, list) else value)


# The display in a terminal.


@pytest.fixture
def shown(monkeypatch):
    """A display with three runs to come, and what a terminal shows of it now."""
    out = Console(force_terminal=True, record=True, width=80, file=io.StringIO())
    plan = changed(load("quick"), {"methods": ("rope", "none"), "seeds": 2})
    trials = plan.final({})
    clock = [100.0]
    # Not time.monotonic itself, which the thread that draws waits by.
    monkeypatch.setattr("ordinate.cli.progress.time", SimpleNamespace(monotonic=lambda: clock[0]))
    display = Display(out)

    def screen():
        out.print(display.drawn())
        return [line.rstrip() for line in out.export_text().splitlines()]

    return display, trials, clock, screen


def finished(trial, accuracy):
    score = Score(loss=0.1, accuracy=accuracy, targets=1000)
    result = Result(
        stop="goal", steps=624, best=600, curve=[], validation=score, test={32: score}, digest="0"
    )
    return Event("trials", outcome=Outcome(trial=trial, status="done", result=result))


def test_a_terminal_shows_what_runs_what_is_done_and_the_time_left(shown):
    display, trials, clock, screen = shown
    names = {t.id: f"{t.position}, seed {t.seed}" for t in trials}
    with display:
        assert display.live is not None
        display.hear(Event("trials", todo=3, kept=1, names=names))
        assert screen()[0] == "0 of 3 runs, 1 kept from before"
        display.hear(Event("trials", progress=Progress(trials[0].id, 312, 624, 0.75, 0.5)))
        clock[0] += 30
        first, *rest = screen()
        assert first == "0 of 3 runs, 1 kept from before, about 2 min left"
        assert any(
            "rope, seed 0" in line and "50%  accuracy 75.0%, loss 0.500" in line for line in rest
        )
        display.hear(finished(trials[0], 0.991))
        display.hear(Event("trials", outcome=Outcome(
            trial=trials[1], status="failed", reason="NaN")))  # fmt: skip
        first, *rest = screen()
        assert first == "2 of 3 runs, 1 kept from before, about 15 s left"
        assert "rope  99.1%" in rest
        assert "none  failed" in rest
        assert not any("seed 0" in line for line in rest)
    assert display.live.is_started is False


def test_a_sweep_is_called_what_it_is(shown):
    display, _, _, screen = shown
    display.hear(Event("sweep", todo=4))
    assert screen()[0] == "0 of 4 runs for the learning rates"


def test_a_terminal_is_told_that_an_interrupted_run_is_kept(shown):
    display, trials, *_ = shown
    with pytest.raises(KeyboardInterrupt), display:
        display.hear(Event("trials", todo=3))
        display.hear(finished(trials[0], 0.991))
        raise KeyboardInterrupt
    said = " ".join(display.out.export_text().split())
    assert "stopped: 1 of 3 runs are done and kept; the same command goes on from here" in said
