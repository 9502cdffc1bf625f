"""A trial is named by its content: every field counts, and nothing else does."""

import pytest
from pydantic import ValidationError

from ordinate.training import Recipe, Sizes, Trial
from training.small import trial

CHANGED = {
    "task": "copy", "position": "alibi", "sizes": {}, "recipe": {}, "seed": 1, "lengths": (64,),
    "files": "0123456789abcdef", "protocol": 2,
}  # fmt: skip
SIZES = {
    "layers": 2, "dim": 64, "heads": 4, "hidden": 99, "dropout": 0.0, "norm": "post",
    "activation": "relu", "pool": "last",
}  # fmt: skip
RECIPE = {
    "epochs": 3, "batch": 7, "rate": 2e-3, "decay": 0.0, "warmup": 5, "clip": 1.0,
    "precision": "bfloat16", "every": 9, "goal": None, "agree": 3, "patience": 4,
}  # fmt: skip


def test_the_name_of_a_trial_is_the_same_for_ever():
    # Records on people's disks are found by it: who changes it makes them all strangers.
    assert Trial(task="pattern", position="rope").id == "af79b7d0ffad9ca0"


def test_every_field_changes_the_name():
    assert {*CHANGED} == {*Trial.model_fields}
    assert {*SIZES} == {*Sizes.model_fields} and {*RECIPE} == {*Recipe.model_fields}
    base = {"task": "pattern", "position": "rope"}
    others = [{**base, name: value} for name, value in CHANGED.items() if value != {}]
    others += [{**base, "sizes": {name: value}} for name, value in SIZES.items()]
    others += [{**base, "recipe": {name: value}} for name, value in RECIPE.items()]
    ids = [Trial(**base).id, *(Trial.model_validate(other).id for other in others)]
    assert len(set(ids)) == len(ids)


def test_it_is_the_same_trial_after_a_journey():
    one = trial("rope", lengths=(24, 30), rate=0.1 + 0.2, clip=1.0)
    again = Trial.model_validate_json(one.model_dump_json())
    assert again == one and again.id == one.id


def test_it_is_frozen_and_knows_its_fields():
    one = trial()
    for part, name in ((one, "seed"), (one.sizes, "dim"), (one.recipe, "rate")):
        with pytest.raises(ValidationError):
            setattr(part, name, 3)
    for given in ({"sed": 1}, {"recipe": {"ratio": 1}}, {"sizes": {"width": 1}}):
        with pytest.raises(ValidationError, match="Extra inputs"):
            Trial.model_validate({"task": "pattern", "position": "rope", **given})


@pytest.mark.parametrize(
    "given",
    [
        {"seed": -1}, {"seed": 2**31}, {"lengths": (0,)},
        {"recipe": {"rate": 0}}, {"recipe": {"rate": float("inf")}}, {"recipe": {"goal": 0}},
        {"recipe": {"epochs": 0}}, {"recipe": {"precision": "float16"}},
        {"sizes": {"dropout": 1.0}}, {"sizes": {"norm": "none"}},
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused(given):
    with pytest.raises(ValidationError):
        Trial.model_validate({"task": "pattern", "position": "rope", **given})


def test_a_file_of_ones_own_is_part_of_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("a = 1")
    first = trial("mine.py:Mine")
    assert trial("mine.py:Mine").id == first.id and first.files
    (tmp_path / "mine.py").write_text("a = 2")
    assert trial("mine.py:Mine").id != first.id
    # One that travels keeps what it was, where the file may be another.
    assert Trial.model_validate_json(first.model_dump_json()).id == first.id
    assert trial("alibi+rope").files is None
    # Wherever it stands in the name.
    now = trial("mine.py:Mine").files
    for name in ("mine.py:Mine:clip=4", "mine.py:Mine+rope", "randomized(mine.py:Mine)"):
        assert now is not None and trial(name).files == now, name
    assert trial("rope", task="mine.py:Task").files == now


def test_seed_and_rate_alone_do_not_keep_trials_from_being_stacked():
    one = trial()
    assert trial(seed=5, rate=3e-4).shape == one.shape
    others = [trial("rope"), trial(epochs=3), trial(sizes={"dim": 32}), trial(lengths=(24,))]
    assert all(other.shape != one.shape for other in others)
