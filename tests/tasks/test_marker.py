from collections import Counter
from fractions import Fraction
from itertools import product
from math import factorial

import pytest
import torch

from ordinate.tasks import IGNORED, make
from ordinate.tasks.bag import largest_counts


@pytest.mark.parametrize("options", ["", ":offset=1", ":offset=7,tokens=5,length=9", ":length=33"])
@pytest.mark.parametrize("length", [None, 64, 511])
def test_the_answer_stands_offset_places_after_the_only_marker(options, length):
    task = make(f"marker{options}")
    s = task.samples("test", 3, length)
    rows, places = torch.where(s.x == task.tokens)
    assert torch.equal(rows, torch.arange(1000))
    assert (places + task.offset < s.x.shape[1] - 1).all()
    assert torch.equal(s.y[:, -1], s.x[rows, places + task.offset])
    assert (s.y[:, :-1] == IGNORED).all()


def test_markers_stand_everywhere_they_may():
    s = make("marker:train=28000").samples("train", 0)
    places = (s.x == 16).int().argmax(1).bincount()
    assert len(places) == 28 and (places - 1000).abs().max() < 4.5 * 1000**0.5


def test_no_token_is_more_frequent_as_an_answer_or_elsewhere():
    task = make("marker:train=16008")
    s = task.samples("train", 0)
    assert sorted(set(s.y[:, -1].bincount().tolist())) == [1000, 1001]
    for p in range(32):
        counts = s.x[:, p].bincount(minlength=17)[:16].double()
        assert (counts - counts.mean()).abs().max() < 5 * counts.mean().sqrt()
    # What stands last says nothing.
    assert (s.x[:, -1] == s.y[:, -1]).double().mean().sub(1 / 16).abs() < 4 * (
        0.0586 / 16008
    ) ** 0.5


@pytest.mark.parametrize(
    ("length", "tokens", "offset"), [(5, 3, 1), (6, 3, 3), (7, 2, 2), (5, 5, 3)]
)
def test_the_order_blind_line_is_what_counting_all_samples_gives(length, tokens, offset):
    table: dict[tuple, Counter] = {}
    for x in product(range(tokens), repeat=length - 1):
        for place in range(length - 1 - offset):
            full = (*x[:place], tokens, *x[place:])
            seen = tuple(sorted(full[:-1])), full[-1]
            table.setdefault(seen, Counter())[full[place + offset]] += 1
    best = sum(max(c.values()) for c in table.values()) / sum(c.total() for c in table.values())
    lines = make(f"marker:length={length},tokens={tokens},offset={offset}").lines()
    assert lines[1].value == pytest.approx(best, abs=1e-12)
    assert lines[0].value == pytest.approx(1 / tokens)


@pytest.mark.parametrize("length", [32, 45, 512])
def test_the_reader_that_says_the_commonest_reaches_the_line(length):
    n = 40_000 if length < 100 else 10_000
    task = make(f"marker:test={n}")
    s, line = task.samples("test", 0, length), task.lines(length)[1].value
    counts = torch.stack([(s.x[:, :-1] == t).sum(1) for t in range(16)], 1)
    got = (counts.argmax(1) == s.y[:, -1]).double().mean().item()
    assert got == pytest.approx(line, abs=4 * (line * (1 - line) / n) ** 0.5)


@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_largest_counts_are_the_mean_over_all_sequences(tokens):
    means = largest_counts(7, tokens)
    for draws in range(1, 8):
        most = [max(Counter(x).values()) for x in product(range(tokens), repeat=draws)]
        assert means[draws] == pytest.approx(sum(most) / len(most), abs=1e-12)
    assert means[0] == 0


def test_largest_counts_are_right_to_the_last_digits():
    draws, tokens, mean = 20, 16, Fraction(0)
    for k in range(draws):
        ways = [Fraction(1)] + draws * [Fraction(0)]  # of t draws, divided by t!
        for _ in range(tokens):
            ways = [sum(ways[t - j] / factorial(j) for j in range(min(k, t) + 1))
                    for t in range(draws + 1)]  # fmt: skip
        mean += 1 - ways[draws] * factorial(draws) / Fraction(tokens) ** draws
    assert largest_counts(draws, tokens)[draws] == pytest.approx(float(mean), rel=1e-11)


@pytest.mark.parametrize(("draws", "tokens"), [(510, 16), (200, 100), (600, 2)])
def test_largest_counts_are_right_where_they_cannot_be_enumerated(draws, tokens):
    g = torch.Generator().manual_seed(0)
    x = torch.randint(tokens, (4000, draws), generator=g)
    most = torch.zeros(4000, tokens).scatter_add_(1, x, torch.ones(x.shape)).max(1).values
    error = most.std().item() / 4000**0.5
    assert largest_counts(draws, tokens)[draws] == pytest.approx(most.mean().item(), abs=4 * error)
