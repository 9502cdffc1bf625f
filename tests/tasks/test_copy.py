from collections import Counter
from itertools import product

import pytest
import torch

from ordinate.tasks import IGNORED, make


@pytest.mark.parametrize(
    "options", ["", ":distance=1", ":distance=8,length=9", ":length=33,tokens=2"]
)
@pytest.mark.parametrize("length", [None, 64, 511])
def test_each_place_asks_for_the_token_a_distance_before(options, length):
    task = make(f"copy{options}")
    s = task.samples("test", 3, length)
    for t in range(s.x.shape[1]):
        want = s.x[:, t - task.distance] if t >= task.distance else torch.tensor(IGNORED)
        assert (s.y[:, t] == want).all()


def test_no_token_is_asked_for_more_often_and_none_is_more_frequent_anywhere():
    s = make("copy:train=16007").samples("train", 0)
    counts = s.y[s.y != IGNORED].bincount()
    assert len(counts) == 16 and counts.max() - counts.min() <= 1
    for p in range(32):
        counts = s.x[:, p].bincount(minlength=16).double()
        assert (counts - counts.mean()).abs().max() < 5 * counts.mean().sqrt()
    # The current token says nothing about the answer, and neither does the one before.
    for shift in (0, 1):
        now, asked = s.x[:, 8 - shift : 32 - shift], s.y[:, 8:]
        same = (now == asked).double().mean()
        assert abs(same - 1 / 16) < 4 * (0.0586 / asked.numel()) ** 0.5


@pytest.mark.parametrize(
    ("length", "tokens", "distance"), [(6, 3, 2), (5, 4, 1), (8, 2, 3), (4, 3, 3)]
)
def test_the_order_blind_line_is_what_counting_all_sequences_gives(length, tokens, distance):
    table: dict[tuple, Counter] = {}
    for x in product(range(tokens), repeat=length):
        for t in range(distance, length):
            seen = tuple(sorted(x[: t + 1])), x[t]
            table.setdefault(seen, Counter())[x[t - distance]] += tokens ** (t + 1)
    # Shorter prefixes are seen in more sequences, all equally: weights cancel within a place.
    right = sum(max(c.values()) / tokens ** (len(seen[0])) for seen, c in table.items())
    total = (length - distance) * tokens**length
    lines = make(f"copy:length={length},tokens={tokens},distance={distance}").lines()
    assert lines[1].value == pytest.approx(right / total, abs=1e-12)
    assert lines[0].value == pytest.approx(1 / tokens)


@pytest.mark.parametrize(("length", "distance"), [(32, 8), (45, 1), (512, 8)])
def test_the_reader_that_says_the_commonest_reaches_the_line(length, distance):
    n = 6000 if length < 100 else 1000
    task = make(f"copy:test={n},distance={distance}")
    s, line = task.samples("test", 0, length), task.lines(length)[1].value
    counts = torch.nn.functional.one_hot(s.x, 16).cumsum(1)[:, distance - 1 : -1]
    # Before place t stand the tokens 0 … t-1.
    right = (counts.argmax(-1) == s.y[:, distance:]).double().mean(1)
    assert right.mean().item() == pytest.approx(line, abs=4 * right.std().item() / n**0.5)
