from collections import Counter
from itertools import product

import pytest
import torch

from ordinate.tasks import IGNORED, make


@pytest.mark.parametrize("options", ["", ":length=3,tokens=2", ":length=33,tokens=7"])
@pytest.mark.parametrize("length", [None, 64, 511])
def test_the_answer_follows_the_only_earlier_place_of_the_last_token(options, length):
    task = make(f"induction{options}")
    s = task.samples("test", 3, length)
    same = s.x[:, :-1] == s.x[:, -1:]
    rows, places = torch.where(same)
    assert torch.equal(rows, torch.arange(1000)) and (s.x[:, -1] == task.tokens).all()
    assert torch.equal(s.y[:, -1], s.x[rows, places + 1])
    assert (s.y[:, -1] < task.tokens).all() and (s.y[:, :-1] == IGNORED).all()


def test_the_special_token_stands_everywhere_it_may():
    s = make("induction:train=30000").samples("train", 0)
    places = (s.x == 16).int().argmax(1).bincount()
    assert len(places) == 30 and (places - 1000).abs().max() < 4.5 * 1000**0.5


def test_no_token_is_more_frequent_as_an_answer_or_elsewhere():
    s = make("induction:train=16008").samples("train", 0)
    assert sorted(set(s.y[:, -1].bincount().tolist())) == [1000, 1001]
    for p in range(31):
        counts = s.x[:, p].bincount(minlength=17)[:16].double()
        assert (counts - counts.mean()).abs().max() < 5 * counts.mean().sqrt()


@pytest.mark.parametrize(("length", "tokens"), [(3, 4), (5, 3), (7, 2), (6, 4)])
def test_the_order_blind_line_is_what_counting_all_samples_gives(length, tokens):
    table: dict[tuple, Counter] = {}
    for x in product(range(tokens), repeat=length - 2):
        for place in range(length - 2):
            full = (*x[:place], tokens, *x[place:], tokens)
            table.setdefault(tuple(sorted(full)), Counter())[full[place + 1]] += 1
    best = sum(max(c.values()) for c in table.values()) / sum(c.total() for c in table.values())
    lines = make(f"induction:length={length},tokens={tokens}").lines()
    assert lines[1].value == pytest.approx(best, abs=1e-12)
    assert lines[0].value == pytest.approx(1 / tokens)


@pytest.mark.parametrize("length", [32, 45, 512])
def test_the_reader_that_says_the_commonest_reaches_the_line(length):
    n = 40_000 if length < 100 else 10_000
    task = make(f"induction:test={n}")
    s, line = task.samples("test", 0, length), task.lines(length)[1].value
    counts = torch.stack([(s.x == t).sum(1) for t in range(16)], 1)
    got = (counts.argmax(1) == s.y[:, -1]).double().mean().item()
    assert got == pytest.approx(line, abs=4 * (line * (1 - line) / n) ** 0.5)
