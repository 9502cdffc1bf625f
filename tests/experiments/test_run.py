"""From a plan to a comparison, with an engine that only pretends."""

import pytest

from ordinate.experiments import Plan
from ordinate.experiments.plan import changed
from ordinate.experiments.run import engine, run, settled, todo
from ordinate.experiments.store import Store, write_result
from ordinate.training import Outcome, Point, Score
from ordinate.training.loop import Progress
from ordinate.training.outcome import Result

PLAN = Plan(name="p", task="pattern", methods=("rope", "none"), seeds=2)
SWEPT = changed(PLAN, {"rates": (1e-3, 1e-2), "sweep_seeds": 1})


def made(trial, status="done", loss=1.0):
    if status != "done":
        return Outcome(trial=trial, status=status, reason="why not")
    score = Score(loss=loss, accuracy=0.5, targets=10)
    return Outcome(trial=trial, status="done", result=Result(
        stop="budget", steps=1, best=1, curve=[Point(step=1, train_loss=1, loss=1, accuracy=0.5)],
        validation=score, test={32: score}, digest="ab" * 32))  # fmt: skip


class Pretended:
    """Hands back what `answer` says of a trial, and remembers what it was asked."""

    name = "pretended"

    def __init__(self, answer=made):
        self.answer, self.asked, self.closed = answer, [], False

    def run(self, trials, say):
        for trial in trials:
            self.asked.append(trial)
            say(Progress(trial.id, 1, 2))
            yield self.answer(trial)

    def close(self):
        self.closed = True


def runs(plan, folder, answer=made):
    """The engine that was started, or None, what was heard, and the comparison."""
    started, heard = [], []

    def start():
        started.append(Pretended(answer))
        return started[-1]

    with Store(folder) as store:
        comparison = run(plan, start, store, heard.append)
    assert len(started) <= 1 and all(one.closed for one in started)
    return (started or [None])[0], heard, comparison


def test_what_is_there_is_not_run_again_and_no_engine_is_started(tmp_path):
    first, _, _ = runs(PLAN, tmp_path)
    assert [t.id for t in first.asked] == [t.id for t in PLAN.final({})]
    again, heard, comparison = runs(PLAN, tmp_path)
    assert again is None and (heard[-1].todo, heard[-1].kept) == (0, 4)
    assert all(row.done for row in comparison.rows)
    more, heard, _ = runs(changed(PLAN, {"seeds": 3}), tmp_path)
    assert [t.seed for t in more.asked] == [2, 2] and heard[1].kept == 4


def test_what_was_lost_is_tried_again_and_what_failed_is_not(tmp_path):
    status = {("rope", 0): "lost", ("none", 1): "failed"}
    runs(PLAN, tmp_path, lambda t: made(t, status.get((t.position, t.seed), "done")))
    with Store(tmp_path, writer=False) as store:
        assert [(t.position, t.seed) for t in todo(PLAN, store)] == [("rope", 0)]
    again, _, _ = runs(PLAN, tmp_path)
    assert [(t.position, t.seed) for t in again.asked] == [("rope", 0)]
    assert runs(PLAN, tmp_path)[0] is None


def test_what_workers_wrote_while_nobody_listened_is_taken_in(tmp_path):
    with Store(tmp_path) as store:
        one = PLAN.final({})[2]
        write_result(store.trials, made(one, loss=0.1 + 0.2))
    first, _, _ = runs(PLAN, tmp_path)
    assert one not in first.asked and len(first.asked) == 3
    with Store(tmp_path, writer=False) as store:
        assert store.get(one.id).result.validation.loss == 0.1 + 0.2


def test_an_engine_that_breaks_is_closed_and_what_came_before_is_kept(tmp_path):
    def broken(trial):
        if (trial.position, trial.seed) == ("none", 0):
            raise KeyboardInterrupt
        return made(trial)

    one = Pretended(broken)
    with Store(tmp_path) as store, pytest.raises(KeyboardInterrupt):
        run(PLAN, lambda: one, store, lambda _: None)
    assert one.closed
    again, _, _ = runs(PLAN, tmp_path)
    assert [t.id for t in again.asked] == [t.id for t in PLAN.final({})[1:]]


def test_the_sweep_comes_first_and_decides_the_rates(tmp_path):
    best = {"rope": 1e-2, "none": 1e-3}
    answer = lambda t: made(t, loss=abs(t.recipe.rate - best[t.position]))  # noqa: E731
    first, heard, _ = runs(SWEPT, tmp_path, answer)
    sweep = [t.id for t in SWEPT.sweep()]
    assert [t.id for t in first.asked[:4]] == sweep
    # Seed 0 was swept at both rates; of the trials that are compared only seed 1 is left.
    assert [(t.position, t.seed, t.recipe.rate) for t in first.asked[4:]] == [
        ("rope", 1, 1e-2), ("none", 1, 1e-3),
    ]  # fmt: skip
    assert [(e.stage, e.todo, e.kept) for e in heard if not (e.progress or e.outcome)] == [
        ("sweep", 4, 0), ("trials", 2, 2),
    ]  # fmt: skip


def test_every_event_names_its_trial(tmp_path):
    _, heard, _ = runs(PLAN, tmp_path)
    (begin,) = [e for e in heard if e.todo]
    assert sorted(begin.names.values()) == [
        "none, seed 0", "none, seed 1", "rope, seed 0", "rope, seed 1",
    ]  # fmt: skip
    assert [e.progress.trial for e in heard if e.progress] == [*begin.names]
    assert [e.outcome.trial.id for e in heard if e.outcome] == [*begin.names]


def test_changes_are_written_as_one_likes():
    given = settled({"epochs": 3, "lengths": (64,), "recipe": {"rate": 1}, "seeds": 2})
    assert given == {"epochs": (3,), "lengths": (64,), "recipe.rate": 1, "seeds": 2}


def test_the_engine_that_suits(tmp_path):
    one = engine(tmp_path, device="cpu", jobs=1)
    assert (one.name, one.stack) == ("in process", 1)
    one.close()
    assert engine(tmp_path, device="cpu", processes=2).name == "torchrun"
