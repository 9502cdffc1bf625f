"""Template: its sequences obey the rules, its splits stay apart, its lines are what they say."""

import itertools
import math
from collections import Counter, defaultdict

import pytest
import torch

from ordinate.tasks import IGNORED, make
from ordinate.tasks.template import Template

SMALL = {"first": 3, "step": 2, "least": 1, "most": 3}


def parse(tokens):
    """(a, s, terms before, terms after) of each sequence in a row, read from left to right."""
    found, tokens = [], list(tokens)
    while tokens and tokens[0] != 0:
        assert tokens[0] == 1
        end = tokens.index(3)
        body, tokens = tokens[1:end], tokens[end + 1 :]
        middle = body.index(2)
        terms = [t - 4 for t in body[:middle] + body[middle + 1 :]]
        steps = {b - a for a, b in itertools.pairwise(terms)}
        assert min(terms) >= 0 and len(steps) == 1
        found.append((terms[0], steps.pop(), middle, len(body) - 1 - middle))
    assert not any(tokens)
    return found


@pytest.mark.parametrize("length", [None, 33, 45, 64, 100])
def test_every_sequence_obeys_the_rules(length):
    samples = Template().samples("test", 3, length)
    assert samples.x.shape == (1000, length or 32)
    read = [parse(row) for row in samples.x.tolist()]
    assert {len(row) for row in read} == {length // 15 if length else 1}
    a, s, m, n = map(set, zip(*itertools.chain(*read), strict=True))
    assert a == set(range(21)) and s == {1, 2, 3, 4, 5} and m == n == {3, 4, 5, 6}
    assert torch.equal(samples.valid, samples.x != 0)


def test_options_change_the_sequences():
    task = Template(length=20, numbers=30, distinct=False, **SMALL)
    assert (task.vocab, task.length, task.classes) == (34, 20, None)
    read = [parse(row) for row in task.samples("train", 0).x.tolist() if row[2] != 2]
    made = {(a, s, m, n) for ((a, s, m, n),) in read}
    assert made == set(itertools.product(range(4), (1, 2), (2, 3), (1, 2, 3)))
    assert make("template:length=40,most=5").length == 40


def test_the_target_is_the_next_token_and_padding_only_if_asked():
    x = [1, 9, 11, 13, 2, 15, 17, 19, 3, 0, 0, 0]
    task = Template(length=15)
    y, parts = task._asked(torch.tensor([x]))
    assert y.tolist() == [[9, 11, 13, 2, 15, 17, 19, 3] + 4 * [IGNORED]]
    assert parts["numbers"][0].nonzero().flatten().tolist() == [0, 1, 2, 4, 5, 6]
    assert parts["markers"][0].nonzero().flatten().tolist() == [3, 7]
    assert parts["continuation"][0].nonzero().flatten().tolist() == [4, 5, 6, 7]
    scored = Template(length=15, padding=True)
    also, same = scored._asked(torch.tensor([x]))
    assert also.tolist() == [[9, 11, 13, 2, 15, 17, 19, 3, 0, 0, 0, IGNORED]]
    assert all(torch.equal(same[k], parts[k]) for k in parts)


@pytest.mark.parametrize("length", [None, 64])
@pytest.mark.parametrize("padding", [False, True])
def test_targets_and_parts_of_samples(padding, length):
    task = Template(padding=padding)
    plain, s = Template().samples("test", 1, length), task.samples("test", 1, length)
    assert torch.equal(s.x, plain.x) and (s.valid is None) == padding
    nothing = s.x[:, 1:] == 1
    if not padding:
        nothing |= s.x[:, 1:] == 0
    assert torch.equal(s.y[:, :-1], s.x[:, 1:].masked_fill(nothing, IGNORED))
    assert (s.y[:, -1] == IGNORED).all() and not (s.y == 1).any()
    assert torch.equal(s.parts["numbers"] | s.parts["markers"], s.y > 0)
    assert not (s.parts["numbers"] & s.parts["markers"]).any()
    for x, part in zip(s.x.tolist(), s.parts["continuation"].tolist(), strict=True):
        want, on = [], False
        for token in x:
            on = token == 2 or (on and token != 3)
            want.append(on)
        assert part == want


def rows(samples):
    return [tuple(row) for row in samples.x.tolist()]


def test_splits_have_their_sizes_and_share_nothing():
    task = Template()
    train, validation, test = (rows(task.samples(s, 0)) for s in ("train", "validation", "test"))
    assert (len(train), len(validation), len(test)) == (8000, 1000, 1000)
    assert not set(train) & set(validation)
    assert not set(train) & set(test)
    assert not set(validation) & set(test)
    assert len(set(train)) <= 1344 and len(set(validation)) <= 168 and len(set(test)) <= 168
    assert len({row[1:3] for row in train}) == 105
    longer = set(itertools.chain(*map(parse, task.samples("test", 0, 64).x.tolist())))
    assert not longer & {parse(row)[0] for row in train + validation}
    assert longer >= {parse(row)[0] for row in test}


def test_without_distinct_nearly_all_of_the_test_is_also_in_training():
    task = Template(distinct=False)
    shares = []
    for seed in range(5):
        train = set(rows(task.samples("train", seed)))
        shares += [row in train for row in rows(task.samples("test", seed))]
    assert sum(shares) / len(shares) == pytest.approx(1 - (1 - 1 / 1680) ** 8000, abs=0.004)


def test_sizes_that_do_not_divide_lose_nothing():
    task = Template(sequences=13)
    assert [len(task.samples(s, 0)) for s in ("train", "validation", "test")] == [10, 1, 2]


@pytest.mark.parametrize("distinct", [True, False])
def test_the_same_seed_gives_the_same_and_others_give_others(distinct):
    a, b = (Template(distinct=distinct) for _ in range(2))
    torch.manual_seed(0)
    first = a.samples("test", 5)
    torch.manual_seed(1)
    a.samples("train", 5)
    assert torch.equal(first.x, b.samples("test", 5).x)
    assert not torch.equal(first.x, a.samples("test", 6).x)
    assert not torch.equal(first.x, a.samples("validation", 5).x)


# Lines.


def values(task, *args, **kwargs):
    part, length = kwargs.get("part") or "", kwargs.get("length") or (args[0] if args else None)
    return {line.name: line.value for line in task.part_lines(part, length)}


def brute(first, step, least, most):
    """Costs by part: [exact, bag], each a list, from distributions counted the slow way."""
    whole = []
    count = range(least, most + 1)
    for a, s, m, n in itertools.product(range(first + 1), range(1, step + 1), count, count):
        before = [a + s * i for i in range(m)]
        after = [before[-1] + s * (i + 1) for i in range(n)]
        whole.append(("S", *before, "M", *after, "E"))
    costs = defaultdict(lambda: ([], []))
    for i, state in enumerate((lambda p: p, frozenset)):
        told = defaultdict(Counter)
        for s in whole:
            for t in range(1, len(s)):
                told[state(s[:t])][s[t]] += 1
        for s in whole:
            for t in range(1, len(s)):
                seen = told[state(s[:t])]
                cost = -math.log(seen[s[t]] / seen.total())
                names = [None, "markers" if s[t] in ("M", "E") else "numbers"]
                for name in names + ["continuation"] * ("M" in s[:t]):
                    costs[name][i].append(cost)
    return {name: [sum(c) / len(c) for c in both] for name, both in costs.items()}


@pytest.mark.parametrize("options", [SMALL, {"first": 20, "step": 5, "least": 3, "most": 6}])
def test_lines_are_those_of_a_brute_force(options):
    task, want = Template(distinct=False, **options), brute(**options)
    assert set(want) == {None, "numbers", "markers", "continuation"}
    for part, (exact, bag) in want.items():
        got = values(task, part=part)
        assert got["perfect"] == pytest.approx(exact, abs=1e-12)
        assert got["order-blind"] == pytest.approx(bag, abs=1e-12)
        assert got["chance"] == math.log(104)


def test_lines_by_hand():
    # 0M1E 0M12E 01M2E 01M23E
    task = Template(length=9, first=0, step=1, least=1, most=2, distinct=False)
    got = values(task)
    assert got["perfect"] == pytest.approx(math.log(4) / 5)  # the chain rule, 5 targets on average
    blind = 4 * math.log(2) + math.log(4) + 3 * math.log(4 / 3) + 2 * math.log(1.5) + math.log(3)
    assert got["order-blind"] == pytest.approx(blind / 20)


def test_the_numbers_in_the_docstring():
    task = Template()
    assert values(task)["perfect"] == pytest.approx(math.log(1680) / 11)
    for name in ("perfect", "order-blind"):
        line = next(s for s in Template.__doc__.splitlines() if s.split()[:1] == [name])
        parts = (None, "numbers", "markers", "continuation")
        assert line.split()[1:] == [f"{values(task, part=p)[name]:.3f}" for p in parts]
    y = Template(padding=True).samples("train", 0).y
    assert ((y == 0).sum() / (y != IGNORED).sum()).item() == pytest.approx(20 / 31, abs=0.003)


def test_order_helps_only_after_the_middle():
    task = Template()
    exact, bag = task._nats
    after = task._asked(task._table)[1]["continuation"]
    assert torch.equal(exact[~after], bag[~after])
    assert bag[after].mean() > exact[after].mean() + 0.05


@pytest.mark.parametrize("length", [None, 64])
@pytest.mark.parametrize("padding", [False, True])
def test_who_knows_the_rules_reaches_the_perfect_line(padding, length):
    task = Template(distinct=False, padding=padding, sequences=40_000)
    samples = task.samples("test", 0, length)
    nats = 0.0
    for _, _, m, n in itertools.chain(*map(parse, samples.x.tolist())):
        nats += math.log(21 * 5)
        for count in (m, n):  # 3 … 6 alike: a marker with 1/4, then 1/3, then 1/2, then 1
            nats -= sum(math.log(1 - 1 / (7 - k)) for k in range(3, count))
            nats -= math.log(1 / (7 - count))
    got = nats / (samples.y != IGNORED).sum().item()
    assert got == pytest.approx(values(task, length)["perfect"], rel=0.01)


def test_length_changes_the_lines_only_with_padding():
    assert values(Template(), 64) == values(Template())
    task = Template(padding=True)
    assert values(task, 64)["perfect"] > 1.5 * values(task)["perfect"]
    assert values(task, 64, part="markers") == values(Template(), part="markers")


# Refusals.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"numbers": 75}, "numbers=75 is too few: they start at 0 and reach 75"),
        ({"step": 8}, "numbers=100 is too few: they start at 0 and reach 108"),
        ({"length": 14}, "length=14 is too short: a sequence has up to 15"),
        ({"least": 0}, "least is a whole number of at least 1, got 0"),
        ({"most": 2}, "most is a whole number of at least 3, got 2"),
        ({"first": -1}, "first is a whole number of at least 0, got -1"),
        ({"step": 1.5}, "step is a whole number of at least 1, got 1.5"),
        ({"sequences": 9}, "sequences is a whole number of at least 10, got 9"),
        ({"first": 0, "step": 1, "least": 6}, "1 sequences are too few to keep splits apart"),
    ],
)
def test_options_that_make_no_task_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        Template(**options)


def test_the_tightest_options_are_not_refused():
    task = Template(numbers=76, length=15)
    x = task.samples("train", 0).x
    assert x.shape == (8000, 15) and x.max() == 79 == task.vocab - 1
    assert task.samples("test", 0, 30).x.shape == (1000, 30)


def test_lengths_splits_and_parts_that_are_not_there_are_refused():
    task = Template()
    with pytest.raises(ValueError, match="train has length 32: longer ones are in the split test"):
        task.samples("train", 0, 64)
    with pytest.raises(ValueError, match="a longer test has a length of at least 32, got 31"):
        task.samples("test", 0, 31)
    with pytest.raises(ValueError, match="a longer test has a length of at least 30, got 20"):
        Template(length=15).lines(20)
    with pytest.raises(ValueError, match="a split is one of train, validation, test"):
        task.samples("held", 0)
    with pytest.raises(ValueError, match="part is one of numbers, markers, continuation"):
        task.part_lines("number")
