"""The step: what it computes, alone and stacked, whole and split over processes."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from ordinate.dice import Dice, mixed
from ordinate.tasks import IGNORED
from ordinate.training import build
from ordinate.training.learner import STRIDE, Learner
from ordinate.training.seeds import order
from training.small import COPY, PATTERN, trial

TASKS = [PATTERN, COPY]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def learner(*trials, share=(0, 1)):
    task = build.task(trials[0])
    models = [build.model(t, task) for t in trials]
    data = [build.samples(t, task, "train") for t in trials]
    return Learner(trials, models, data, "cpu", grid=task.grid, share=share)


def held_out(*trials):
    return [build.samples(t, build.task(t), "validation") for t in trials]


@pytest.mark.parametrize("task", TASKS)
def test_a_step_follows_the_mean_over_the_targets_of_its_batch(task):
    one = trial("learned", task=task, sizes={"dropout": 0.0})
    made, plain = learner(one), build.model(one, build.task(one))
    data = build.samples(one, build.task(one), "train")
    for step in (0, 3, 9):
        made.theta.copy_(parameters_to_vector(plain.parameters()).detach()[None])
        made.step_count.fill_(step)
        made.losses.zero_()
        made.step(step)
        epoch, within = divmod(step, 8)
        rows = order(one.seed, epoch, len(data))[within * 16 :][:16]
        y = data.y[rows]
        loss = cross_entropy(plain(data.x[rows]).flatten(0, -2), y.flatten(), ignore_index=IGNORED)
        expected = torch.cat(
            [g.flatten() for g in torch.autograd.grad(loss, [*plain.parameters()])]
        )
        assert torch.allclose(made.gradient[0], expected, atol=1e-6)
        assert expected.abs().max() > 1e-3
        assert made.losses.item() == pytest.approx(loss.item(), abs=1e-6)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("task", TASKS)
def test_the_parts_of_a_split_batch_add_up_to_the_whole(monkeypatch, task, ranks):
    one = trial("learned", task=task, sizes={"dropout": 0.3})
    reduced = []
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda t: reduced.append(t.clone()))
    whole = learner(one)
    whole.step(0)
    assert not reduced
    parts = [learner(one, share=(rank, ranks)) for rank in range(ranks)]
    for part in parts:
        part.step(0)
    gradients, losses = reduced[::2], reduced[1::2]
    # Each draws the dropout of its own rows: else the sum would be another.
    assert torch.allclose(sum(gradients), whole.gradient, atol=1e-6)
    assert torch.allclose(sum(losses), whole.losses, atol=1e-6)
    assert not torch.allclose(gradients[0] * ranks, whole.gradient, atol=1e-3)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("position", ["learned", "rope", "t5"])
def test_stacked_trials_go_the_way_of_each_alone(task, position):
    rates = [1e-3, 5e-3, 1e-3]
    trials = [
        trial(position, task=task, seed=seed, rate=rate, warmup=3, clip=0.5)
        for seed, rate in enumerate(rates)
    ]
    together, alone = learner(*trials), [learner(t) for t in trials]
    before = together.theta.clone()
    for step in range(10):
        for each in (together, *alone):
            each.step(step)
    for i, one in enumerate(alone):
        assert torch.allclose(before[i], learner(trials[i]).theta[0])
        assert torch.allclose(together.losses[i], one.losses[0], atol=1e-4)
        assert torch.allclose(together.theta[i], one.theta[0], atol=2e-3)
        assert torch.median((together.theta[i] - one.theta[0]).abs()) < 1e-6
        assert (before[i] - one.theta[0]).abs().max() > 4e-3
    scores = together.scores(held_out(*trials), together.theta)
    for i, one in enumerate(alone):
        (tally,) = one.scores(held_out(trials[i]), one.theta)
        assert scores[i].score().loss == pytest.approx(tally.score().loss, abs=1e-4)
        assert scores[i].score().targets == tally.score().targets


def test_a_step_depends_on_nothing_but_its_number_and_the_weights():
    one = trial("learned")
    first, second = learner(one), learner(one)
    for step in range(12):
        first.step(step)
    second.step(0)
    # Into the middle of an epoch, after another one.
    second.theta.copy_(first.theta)
    second.optimiser.mean.copy_(first.optimiser.mean)
    second.optimiser.square.copy_(first.optimiser.square)
    second.optimiser.restore(12)
    second.step_count.fill_(12)
    first.step(12)
    second.step(12)
    assert torch.equal(first.theta, second.theta)


def test_dropout_is_another_at_every_step_and_none_when_scored():
    one = trial("learned")
    made = learner(one)
    x = made.x[0, :16]

    def seen(step):
        seed = mixed(made.seeds + step * STRIDE)[0]
        made.model.train()
        return made.model(x, dice=Dice(seed)).detach()

    outputs = [seen(step) for step in (0, 1, 2)]
    assert torch.equal(outputs[0], seen(0))
    assert not torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[1], outputs[2])
    scores = [made.scores(held_out(one), made.theta)[0].score() for _ in range(2)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("names", [["learned"], ["learned", "learned"]])
def test_scoring_changes_nothing_and_takes_any_number_of_rows_at_once(names):
    trials = [trial(name, task=COPY, seed=seed) for seed, name in enumerate(names)]
    made = learner(*trials)
    kept, other = made.theta.clone(), made.theta * 1.5
    data = held_out(*trials)
    scores = [[t.score() for t in made.scores(data, other, rows)] for rows in (256, 32, 7, 1)]
    assert torch.equal(made.theta, kept)
    for some in scores[1:]:
        for a, b in zip(scores[0], some, strict=True):
            assert a.loss == pytest.approx(b.loss, abs=1e-5)
            assert (a.accuracy, a.targets) == (b.accuracy, b.targets)
    own = made.scores(data, kept)[0].score()
    assert own.loss != pytest.approx(scores[0][0].loss, abs=1e-3)
    # Targets that are not asked for do not count: copy has none at its first places.
    assert own.targets == (data[0].y != IGNORED).sum().item() < data[0].y.numel()


def test_what_draws_anew_at_every_step_is_not_stacked():
    with pytest.raises(ValueError, match=r"randomized\(alibi\) draws anew at every step"):
        learner(*(trial("randomized(alibi)", seed=seed) for seed in (0, 1)))


def test_probing_the_cost_changes_no_weight():
    one = trial("learned")
    made = learner(one)
    before = made.theta.clone()
    made.probe()
    assert torch.equal(made.theta, before) and not made.gradient.any()
    assert not made.step_count and not made.losses
