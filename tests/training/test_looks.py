"""What is kept to be looked at: the weights and tables that a trained trial really has."""

import pytest
import torch
from torch.nn.utils import vector_to_parameters

from ordinate.backends import reference
from ordinate.models.attention import Attention, watched
from ordinate.training import Recipe, Sizes, Trial, build, looks, train
from ordinate.training.loop import Run

SMALL = "pattern:train=64,validation=20,test=20"


def trial(position="learned", **changes):
    given = {"sizes": Sizes(layers=2, dim=32, heads=4), "recipe": Recipe(epochs=2, batch=32)}
    return Trial(task=SMALL, position=position, lengths=(64,), **{**given, **changes})


def trained(tmp_path, one):
    (outcome,) = train([one], folder=tmp_path)
    return outcome, looks.read(tmp_path / one.id)


def weights(maps):
    return maps.maps.float() / 255 * maps.tops[..., None]


@pytest.mark.parametrize("position", ["learned", "t5", "rope"])
def test_maps_are_the_weights_of_the_trained_model(tmp_path, position):
    one = trial(position)
    run = Run([one], tmp_path, "cpu", (0, 1))
    run.train(lambda _: None)
    run.outcome(0, "here")
    seen = looks.read(tmp_path / one.id)
    assert [*seen.maps] == [32, 64]
    model = build.model(one, run.task).eval()
    vector_to_parameters(run.best[0], model.parameters())
    for n, maps in seen.maps.items():
        x = build.samples(one, run.task, "test", None if n == 32 else n).x[:1]
        with torch.no_grad(), watched(model) as problems:
            model(x)
        assert maps.tokens.tolist() == x[0].tolist()
        assert maps.which == [(layer, head) for layer in (0, 1) for head in range(4)]
        true = torch.cat([reference.weights(a)[0] for a in problems])
        assert (weights(maps) - true).abs().max() <= true.max() / 500
        assert torch.equal(maps.tops, true.amax(-1))


def test_nothing_is_watched_any_more():
    one = trial()
    model = build.model(one, build.task(one))
    with watched(model) as problems:
        pass
    assert problems == []
    assert all(m.watch is None for m in model.modules() if isinstance(m, Attention))


def test_the_table_before_is_the_one_drawn_and_after_the_one_trained(tmp_path):
    _, seen = trained(tmp_path, trial())
    fresh = build.model(trial(), build.task(trial())).encoder.position
    before, after = seen.learned["table"]
    assert torch.equal(before, fresh.table(32)) and not torch.equal(before, after)
    assert [*seen.learned] == ["table", "parameter weight"]


def test_a_fixed_table_and_a_learned_bias(tmp_path):
    _, fixed = trained(tmp_path, trial("sinusoidal"))
    before, after = fixed.learned["table"]
    assert torch.equal(before, after)
    _, biased = trained(tmp_path, trial("t5"))
    before, after = biased.learned["bias"]
    assert before.shape == (4, 63) and not torch.equal(before, after)
    square = build.model(trial("t5"), build.task(trial())).encoder.position.bias(32)
    assert torch.equal(before[:, 31 - 5 + 9], square[:, 5, 9])
    assert trained(tmp_path, trial("rope"))[1].learned == {}


def test_stacked_trials_have_looks_of_their_own_weights(tmp_path):
    pair = [trial("t5", seed=seed) for seed in (0, 1)]
    run = Run(pair, tmp_path, "cpu", (0, 1))
    run.train(lambda _: None)
    assert run.outcome(0, "here").made.note == "" == run.outcome(1, "here").made.note
    # The first seed alone is kept.
    assert looks.read(tmp_path / pair[1].id) is None
    size = run.learner.shapes["encoder.position.weight"].numel()
    own = looks.read(tmp_path / pair[0].id).learned["parameter weight"][1]
    assert own.numel() == size and own.flatten().tolist() in [
        row.tolist() for row in run.best[0].unfold(0, size, 1)
    ]


def test_the_same_trial_gives_the_same_file(tmp_path):
    files = []
    for part in ("a", "b"):
        trained(tmp_path / part, trial("randomized(sinusoidal)"))
        files.append(tmp_path / part / trial("randomized(sinusoidal)").id / looks.LOOKS)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_nothing_seen_fails_no_trial(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("no eyes\nat all")

    monkeypatch.setattr(looks, "look", broken)
    outcome, seen = trained(tmp_path, trial())
    assert outcome.status == "done" and seen is None
    assert outcome.made.note == "no looks inside: RuntimeError: no eyes"


def test_looking_changes_no_result(tmp_path):
    (seen,), (unseen,) = train([trial()], folder=tmp_path), train([trial()])
    assert seen.result == unseen.result


def test_a_long_sample_keeps_fewer_heads(tmp_path, monkeypatch):
    monkeypatch.setattr(looks, "ROOM", 4 * 64 * 64)
    _, seen = trained(tmp_path, trial())
    assert len(seen.maps[32].which) == 8
    assert seen.maps[64].which == [(0, 0), (0, 1), (1, 0), (1, 1)]
    every = [(layer, head) for layer in range(9) for head in range(2)]
    assert looks._spread(every, 3) == [(0, 0), (4, 0), (8, 0)]
    assert looks._spread(every, 1) == [(0, 0)]
    monkeypatch.setattr(looks, "LONGEST", 40)
    assert [*trained(tmp_path, trial(seed=0, position="rope"))[1].maps] == [32]


SHY = """
from ordinate import Facts, Position

class Shy(Position):
    facts = Facts(paper=(), relative=True)

    def __init__(self):
        super().__init__()

    def attend(self, a):
        if a.k.shape[2] > 32:
            raise ValueError("too long for me")
        return a
"""


def test_a_length_that_is_refused_has_no_map(tmp_path):
    (tmp_path / "shy.py").write_text(SHY)
    outcome, seen = trained(tmp_path, trial(f"{tmp_path / 'shy.py'}:Shy"))
    assert outcome.result.test[64].refused == "too long for me"
    assert [*seen.maps] == [32] and outcome.made.note == ""


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\x08\0\0\0\0\0\0\0{}      "])
def test_what_is_not_whole_is_nothing(tmp_path, content):
    if content is not None:
        (tmp_path / looks.LOOKS).write_bytes(content)
    seen = looks.read(tmp_path)
    assert seen is None or seen == looks.Looks()
