"""A plan: which trials it is, in which order, and what is said of a wrong one."""

import pytest

from ordinate.experiments import Cell, Plan, presets
from ordinate.experiments.plan import changed, load, own_files

PLAN = Plan(name="p", task="pattern", methods=("rope", "none"), seeds=3)
SWEPT = changed(PLAN, {"rates": (1e-3, 3e-3, 1e-2), "sweep_seeds": 2, "layers": (1, 2)})


def test_its_trials_are_paired_by_seed_and_in_the_order_they_are_run():
    trials = PLAN.final({})
    assert [(t.seed, t.position) for t in trials] == [
        (0, "rope"), (0, "none"), (1, "rope"), (1, "none"), (2, "rope"), (2, "none"),
    ]  # fmt: skip
    assert len({t.id for t in trials}) == 6 and not PLAN.sweep()
    # What a seed is does not depend on how many there are, nor on who else is compared.
    larger = changed(PLAN, {"seeds": 4, "methods": ("alibi", "rope", "none")}).final({})
    assert {t.id for t in trials} <= {t.id for t in larger}


def test_depths_and_budgets_make_cells_each_with_each():
    plan = changed(PLAN, {"layers": (1, 6), "epochs": (2, 5)})
    assert plan.cells == [Cell(1, 2), Cell(1, 5), Cell(6, 2), Cell(6, 5)]
    seen = {(t.sizes.layers, t.recipe.epochs) for t in plan.final({})}
    assert seen == {*plan.cells} and len(plan.final({})) == 24
    assert PLAN.cells == [Cell(PLAN.sizes.layers, PLAN.recipe.epochs)]


def test_every_method_is_swept_over_the_same_rates_and_compared_at_its_own():
    sweep = SWEPT.sweep()
    assert len(sweep) == 3 * 2 * 2 * 2 and {t.seed for t in sweep} == {0, 1}
    rates = {("rope", Cell(1, 20)): 1e-2}
    final = SWEPT.final(rates)
    assert {t.recipe.rate for t in final if (t.position, t.sizes.layers) == ("rope", 1)} == {1e-2}
    assert len(final) == 3 * 2 * 2
    # What was swept at the rate chosen is not trained again.
    assert len({t.id for t in final} & {t.id for t in sweep}) == 2 * 2 * 2
    one = changed(PLAN, {"rates": (5e-4,)})
    assert not one.sweep() and {t.recipe.rate for t in one.final({})} == {5e-4}


def test_what_is_named_twice_is_one():
    plan = changed(PLAN, {"methods": ("rope", "none", "rope"), "lengths": (64, 64)})
    assert plan.methods == ("rope", "none") and plan.lengths == (64,)


@pytest.mark.parametrize("name", presets())
def test_presets_are_sound(name):
    plan = load(name).checked()
    assert plan.name == name and plan.about and plan.seeds >= 1 and plan.final({})


def test_a_plan_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('task = "copy"\nmethods = ["rope"]\n[recipe]\nbatch = 8\n')
    plan = load(str(path)).checked()
    assert (plan.name, plan.task, plan.recipe.batch) == ("mine", "copy", 8)
    path.write_text("task =")
    with pytest.raises(ValueError, match=r"mine\.toml: "):
        load(str(path))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sedes": 3}, "a plan has no 'sedes' \\(did you mean seeds\\?\\)"),
        ({"recipe.bach": 3}, "a plan has no 'recipe.bach' \\(did you mean batch\\?\\)"),
        ({"seeds": 0}, "seeds.* greater than or equal to 1, got 0"),
        ({"recipe.rate": -1}, "recipe.rate.* greater than 0, got -1"),
    ],
)
def test_a_wrong_value_is_one_sentence(changes, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        changed(PLAN, changes)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"methods": ()}, "at least one method"),
        ({"methods": ("rop",)}, "did you mean rope"),
        ({"task": "patern"}, "did you mean pattern"),
        ({"lengths": (5,)}, "5"),
    ],
)
def test_what_cannot_be_run_is_refused_before_any_work(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        changed(PLAN, changes).checked()


def test_no_preset_of_that_name_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"no preset is called 'quik' \(did you mean quick\?\)"):
        load("quik")
    with pytest.raises(ValueError, match=r"there is no plan none\.toml"):
        load("none.toml")


def test_the_files_it_names():
    plan = changed(PLAN, {"methods": ("a/b.py:One+rope", "none"), "task": "c.py:Two:length=4"})
    assert own_files(plan) == ["c.py", "a/b.py"]


def test_changes_leave_the_plan_as_it_was():
    before = PLAN.model_dump()
    changed(PLAN, {"recipe.rate": 1.0, "seeds": 1})
    assert PLAN.model_dump() == before
