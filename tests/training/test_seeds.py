"""A method changes nothing but itself: not the other weights, not the data, not their order."""

import pytest
import torch
from torch import nn

from ordinate.position import Position
from ordinate.training import build
from ordinate.training.seeds import derived, order, seeded
from training.small import COPY, trial

METHODS = [
    "none",
    "learned",
    "relative",
    "rope",
    "t5",
    "shaw",
    "deberta",
    "tener",
    "transformer-xl",
]


def weights(position, seed=0, **changes):
    one = trial(position, seed=seed, **changes)
    model = build.model(one, build.task(one))
    inside = [name for name, module in model.named_modules() if isinstance(module, Position)]
    mine, others = {}, {}
    for name, p in model.named_parameters():
        part = mine if any(name.startswith(f"{place}.") for place in inside) else others
        part[name] = p.detach()
    return mine, others


@pytest.mark.parametrize("position", METHODS)
def test_modules_outside_the_method_begin_the_same_with_every_method(position):
    _, others = weights(position)
    _, plain = weights("none")
    # TENER takes the tokens as keys; nobody else has fewer weights than a model without a method.
    missing = {name for name in plain if name not in others}
    assert all(".k." in name for name in missing) and bool(missing) == (position == "tener")
    assert {*others} <= {*plain} and len(others) > 10
    assert all(torch.equal(others[name], plain[name]) for name in others)


def test_seeds_differ_in_every_weight_that_is_drawn():
    (mine, others), (mine_1, others_1) = weights("learned"), weights("learned", seed=1)
    drawn = {name for name, p in others.items() if p.unique().numel() > 1}
    assert len(drawn) > 5 and len(mine) == 1
    assert not any(torch.equal(others[name], others_1[name]) for name in drawn)
    assert not any(torch.equal(mine[name], mine_1[name]) for name in mine)
    again, _ = weights("learned")
    assert all(torch.equal(mine[name], again[name]) for name in mine)


def test_layers_are_not_copies_of_each_other():
    _, others = weights("none", sizes={"layers": 2})
    names = [name for name in others if "blocks.0." in name and name.endswith("weight")]
    names = [name for name in names if others[name].unique().numel() > 1]
    assert len(names) >= 6
    assert not any(torch.equal(others[n], others[n.replace("ks.0.", "ks.1.")]) for n in names)


def test_weights_have_the_spread_that_torch_gives_them():
    def build_one():
        return nn.Sequential(nn.Linear(400, 300), nn.Linear(300, 400))

    model, plain = seeded(build_one, 0), build_one()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert one.std().item() == pytest.approx(other.std().item(), rel=0.1)
        assert not torch.equal(one, other)


def test_nobody_elses_randomness_is_touched_or_used():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, _ = weights("learned")
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(6)
    second, _ = weights("learned")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_all_methods_of_a_seed_see_the_same_samples():
    def samples(position, seed, split, length=None):
        one = trial(position, task=COPY, seed=seed)
        return build.samples(one, build.task(one), split, length).x

    for split, length in (("train", None), ("validation", None), ("test", 20)):
        assert torch.equal(samples("rope", 0, split, length), samples("learned", 0, split, length))
        assert not torch.equal(samples("rope", 0, split, length), samples("rope", 1, split, length))


def test_an_epoch_takes_every_sample_once_in_an_order_of_its_own():
    orders = [order(seed, epoch, 50) for seed in (0, 1) for epoch in (0, 1)]
    for one in orders:
        assert sorted(one.tolist()) == [*range(50)]
    assert len({tuple(one.tolist()) for one in orders}) == 4
    assert torch.equal(order(0, 0, 50), orders[0])


def test_seeds_for_other_ends_are_others():
    seeds = [derived(seed, *words) for seed in range(50)
             for words in (("data",), ("dice",), ("order", 0), ("order", 1), ("init", "a"))]  # fmt: skip
    assert len(set(seeds)) == len(seeds) and all(0 <= seed < 2**31 for seed in seeds)
    assert derived(1, 23) != derived(12, 3)
    # The same on every machine and for ever: results on people's disks depend on it.
    assert derived(0, "data") == 180799866
