"""From the first step to the outcome: stops, checkpoints, resumed bits, the weights tested."""

import hashlib
import math

import pytest
import torch

from ordinate.training import Point, checkpoint, loop, train
from ordinate.training.loop import Failure, Run, State
from training.small import COPY, PATTERN, close, trial


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Stopped(Exception):
    """The process is killed here."""


def interrupted(trials, folder, monkeypatch, at):
    """Trains until a look is over whose checkpoint is written, and no further."""

    def stop(progress):
        if progress.step == at and progress.trial == trials[-1].id:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(loop, "PAUSE", -1)
        with pytest.raises(Stopped):
            train(trials, folder=folder, progress=stop)


HARD = {"epochs": 3, "warmup": 10, "clip": 0.5, "patience": 50}


@pytest.mark.parametrize("at", [4, 8, 12, 20])
@pytest.mark.parametrize(
    ("position", "task"), [("learned", PATTERN), ("rope", COPY), ("randomized(alibi)", PATTERN)]
)
def test_a_resumed_trial_has_the_bits_of_one_that_was_not(
    tmp_path, monkeypatch, at, position, task
):
    one = trial(position, task=task, **HARD)
    (whole,) = train([one])
    interrupted([one], tmp_path, monkeypatch, at)
    kept = checkpoint.read(tmp_path / one.id)
    assert kept is not None and kept[1]["step"] == at
    steps = []
    (again,) = train([one], folder=tmp_path, progress=lambda p: steps.append(p.step))
    assert steps[0] == at and steps[-1] == 24
    assert repr(again.result) == repr(whole.result)
    assert (whole.made.resumed, again.made.resumed) == (0, 1)


def test_it_is_resumed_as_often_as_it_is_killed(tmp_path, monkeypatch):
    one = trial("learned", **HARD)
    for at in (4, 8, 12, 16, 20):
        interrupted([one], tmp_path, monkeypatch, at)
    (again,) = train([one], folder=tmp_path)
    (whole,) = train([one])
    assert again.made.resumed == 5 and repr(again.result) == repr(whole.result)


def test_stacked_trials_are_resumed_too(tmp_path, monkeypatch):
    trials = [
        trial("learned", seed=s, rate=r, **HARD) for s, r in ((0, 1e-3), (1, 3e-3), (2, 1e-3))
    ]
    whole = train(trials)
    interrupted(trials, tmp_path, monkeypatch, 12)
    again = train(trials, folder=tmp_path)
    assert [o.made.resumed for o in again] == [1, 1, 1]
    assert [repr(o.result) for o in again] == [repr(o.result) for o in whole]
    assert all(o.made.stacked == 3 for o in again)
    for one, stacked in zip(trials, whole, strict=True):
        (alone,) = train([one])
        assert close(alone, stacked)


@pytest.mark.parametrize("harm", ["bit", "shape", "field", "gone"])
def test_what_cannot_be_resumed_is_begun_anew(tmp_path, monkeypatch, harm):
    one = trial("learned", **HARD)
    interrupted([one], tmp_path, monkeypatch, 8)
    tensors, state = checkpoint.read(tmp_path / one.id)
    if harm == "bit":
        (path,) = (tmp_path / one.id).glob(f"*.{checkpoint.TENSORS}")
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif harm == "shape":
        checkpoint.write(tmp_path / one.id, {k: t[:-1] for k, t in tensors.items()}, state)
    elif harm == "field":
        checkpoint.write(tmp_path / one.id, tensors, {**state, "another": 1})
    else:
        checkpoint.remove(tmp_path / one.id)
    (again,) = train([one], folder=tmp_path)
    (whole,) = train([one])
    assert again.made.resumed == 0 and repr(again.result) == repr(whole.result)


def test_a_disk_that_is_full_costs_the_checkpoints_and_not_the_trial(tmp_path, monkeypatch):
    one, tried = trial("learned"), []

    def write(*_):
        tried.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(loop, "PAUSE", -1)
    monkeypatch.setattr(checkpoint, "write", write)
    (outcome,) = train([one], folder=tmp_path)
    (whole,) = train([one])
    assert len(tried) == 3 and repr(outcome.result) == repr(whole.result)


def looked(recipe, seen):
    """A state after looks of (loss, accuracy), and which of them were the best so far."""
    state, one, better = State(), trial(**recipe), []
    for step, (loss, accuracy) in enumerate(seen, 1):
        better.append(
            state.look(Point(step=step, train_loss=0.0, loss=loss, accuracy=accuracy), one)
        )
        if state.stop:
            break
    return state, better


def test_the_goal_is_reached_by_looks_in_a_row():
    seen = [(1.0, 0.9), (0.9, 0.5), (0.8, 0.9), (0.7, 0.9), (0.6, 0.9), (0.5, 0.9)]
    assert looked({"goal": 0.9, "agree": 2}, seen)[0].stop == "goal"
    assert looked({"goal": 0.9, "agree": 2}, seen)[0].step == 4
    assert looked({"goal": 0.9, "agree": 1}, seen)[0].step == 1
    assert looked({"goal": 0.9, "agree": 4}, seen)[0].step == 6
    assert looked({"goal": 0.9, "agree": 5}, seen)[0].stop == ""
    assert looked({"goal": 0.91, "agree": 1}, seen)[0].stop == ""
    assert looked({"goal": None, "agree": 1}, seen)[0].stop == ""


def test_patience_counts_looks_without_a_better_loss():
    seen = [(1.0, 0.1), (1.0, 0.2), (0.9, 0.3), (0.9, 0.4), (0.95, 0.5), (0.8, 0.6)]
    state, better = looked({"patience": 2}, seen)
    assert (state.stop, state.step, state.best, state.best_loss) == ("patience", 5, 3, 0.9)
    assert better == [True, False, True, False, False]
    assert looked({"patience": 1}, seen)[0].step == 2
    assert looked({"patience": 3}, seen)[0].stop == "" and looked({}, seen)[0].best == 6


def test_a_state_survives_its_journey():
    state, _ = looked({"patience": 9}, [(1.0, 0.1), (1.0, 0.2)])
    assert State.load(state.dump()) == state and state.curve
    assert State.load(State().dump()).best_loss == math.inf


@pytest.mark.parametrize(
    ("recipe", "stop", "steps", "best"),
    [
        ({"goal": 0.01, "agree": 3}, "goal", 12, None),
        ({"rate": 1e-30, "patience": 2}, "patience", 12, 4),
        ({"rate": 1e-30}, "budget", 16, 4),
        ({"every": 5}, "budget", 16, None),
    ],
)
def test_a_trial_stops_where_the_rules_say(recipe, stop, steps, best):
    (outcome,) = train([trial("learned", **recipe)])
    result = outcome.result
    assert (result.stop, result.steps) == (stop, steps)
    every = recipe.get("every", 4)
    looks = [*range(every, steps, every), steps]
    assert [p.step for p in result.curve] == looks
    assert best is None or result.best == best


def test_the_weights_tested_are_those_of_the_best_look():
    # So fast that it does not end where it was best.
    one = trial("learned", rate=0.1, lengths=(24,))
    (outcome,) = train([one])
    result = outcome.result
    losses = {p.step: p.loss for p in result.curve}
    assert result.best == min(losses, key=losses.__getitem__) < result.steps
    assert result.validation.loss == losses[result.best]
    run = Run([one], None, "cpu", (0, 1))
    for step in range(result.best):
        run.learner.step(step)
    then = run.learner.theta[0]
    assert result.digest == hashlib.sha256(then.numpy().tobytes()).hexdigest()
    run.best.copy_(run.learner.theta)
    assert run.tested(21)[0] == result.test[21] and run.tested(24)[0] == result.test[24]
    for step in range(result.best, result.steps):
        run.learner.step(step)
    run.best.copy_(run.learner.theta)
    run.tests.clear()
    assert run.tested(21)[0].loss != result.test[21].loss


def test_a_loss_that_is_no_number_fails_with_its_step(tmp_path):
    trials = [trial("learned", seed=0, rate=1e30), trial("learned", seed=1)]
    (outcome,) = train(trials[:1])
    said = ("failed", "the loss was no longer a number by step 4", None)
    assert (outcome.status, outcome.reason, outcome.result) == said
    # Stacked, it takes nobody with it.
    bad, good = train(trials)
    (alone,) = train(trials[1:])
    assert (bad.status, bad.reason, bad.result) == said
    assert good.status == "done" and close(good, alone)


def test_what_a_method_does_not_answer_is_its_sentence():
    (outcome,) = train([trial("learned", task="copy:length=12,tokens=5,distance=11,train=64,"
                              "validation=32,test=32", lengths=(5, 14))])  # fmt: skip
    short, own, long = (outcome.result.test[n] for n in (5, 12, 14))
    assert "needs a length of at least 12" in short.refused and short.loss is None
    assert own.refused is long.refused is None and own.loss and long.loss


def test_too_few_samples_for_a_batch_are_one_sentence():
    with pytest.raises(Failure, match="a batch of 129 is more than 128 samples"):
        train([trial(batch=129)])


def test_progress_comes_at_every_look_and_counts_to_the_end():
    heard = []
    (outcome,) = train([trial()], progress=heard.append)
    assert [(p.step, p.steps) for p in heard] == [(s, 16) for s in (0, 4, 8, 12, 16)]
    assert heard[0].loss is None
    assert [p.loss for p in heard[1:]] == [p.loss for p in outcome.result.curve]
