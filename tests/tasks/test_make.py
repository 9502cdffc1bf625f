"""Tasks by name, and what holds for the samples of every task that is made of random tokens."""

import pytest
import torch

from ordinate.tasks import IGNORED, INDEX, SPLITS, Task, balanced, find, generator, make

NAMES = ["pattern", "pattern:grid=4x8", "marker", "induction", "copy"]

MINE = '''
from __future__ import annotations
from typing import ClassVar, Literal
import torch
from ordinate.tasks import Line, Samples, Task, balanced, generator

class Mine(Task):
    """Nothing but a fair coin."""

    about: ClassVar = "A coin."
    kind: ClassVar = "encoder"
    output: ClassVar = "classes"
    vocab, classes = 2, 2

    def __init__(self, *, length: int = 4, fair: bool = True, rate: float = 0.5,
                 side: Literal["head", "tail"] = "head", note: str = "") -> None:
        self.length, self.fair, self.rate, self.side, self.note = length, fair, rate, side, note

    def samples(self, split, seed, length=None):
        g = generator(self, split, seed, length or self.length)
        return Samples(torch.zeros(6, length or self.length).long(), balanced(6, 2, g))

    def lines(self, length=None):
        return [Line("chance", 0.5, "a coin")]

class Bare(Mine):
    def __init__(self):
        self.length = 1

class Needy(Mine):
    def __init__(self, *, size: int):
        self.length = size

class Other:
    pass
'''


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


# Names.


def test_options_are_written_in_the_name_and_the_name_is_kept():
    task = make("pattern:length=64,tokens=30,grid=8x8")
    assert (task.length, task.vocab, task.grid) == (64, 30, (8, 8))
    assert task.name == "pattern:length=64,tokens=30,grid=8x8" and make("copy").name == "copy"
    assert make("marker:offset=5").offset == 5 and make("marker").offset == 3
    assert len(make("copy:test=7").samples("test", 0)) == 7


@pytest.mark.parametrize("name", sorted(set(INDEX) - {"template"}))
def test_every_name_is_a_task_that_says_what_it_is(name):
    task = make(name)
    assert isinstance(task, Task) and type(task) is find(name)
    assert task.about.endswith(".") and (type(task).__doc__ or "").strip()
    assert (task.classes is None) is (task.output == "tokens")


def test_a_task_in_a_file_is_made_like_any_other(mine):
    task = make(f"{mine}:Mine")
    assert (task.length, task.fair, task.name) == (4, True, f"{mine}:Mine")
    name = f"{mine}:Mine:length=9,fair=no,rate=0.25,side=tail,note=a"
    task = make(name)
    assert (task.length, task.fair, task.rate, task.side, task.note) == (
        9,
        False,
        0.25,
        "tail",
        "a",
    )
    assert task.name == name and make(f"{mine}:Bare").length == 1
    assert task.samples("test", 0).x.shape == (6, 9)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("patern", r"no task is called 'patern' \(did you mean pattern\?\); there are copy, "),
        (5, r'a task is named by text, as make\("pattern"\), got 5'),
        ("copy(marker)", "a task wraps nothing"),
        ("marker:ofset=2", r"marker has no option 'ofset' \(did you mean offset\?\); it takes len"),
        ("marker:offset", "'offset' in 'marker:offset' is not an option: write name=value"),
        ("pattern:tokens=many", "pattern:tokens is a whole number, got 'many'"),
        ("pattern:length=20", "length is at least 21, got 20"),
        ("pattern:tokens=9", "tokens is at least 10, got 9"),
        ("pattern:grid=8", "grid is rows x columns, as 4x8, got '8'"),
        ("pattern:grid=4x-8", "grid is rows x columns, as 4x8, got '4x-8'"),
        ("pattern:grid=4x9", "grid=4x9 holds 36 tokens, but length is 32"),
        ("marker:length=4", "marker with offset=3 needs a length of at least 5.*got 4"),
        ("marker:tokens=1", "tokens is at least 2, got 1"),
        ("marker:offset=0", "offset is a whole number of at least 1, got '0'"),
        ("induction:length=2", "needs a length of at least 3.*got 2"),
        ("induction:tokens=1", "tokens is at least 2, got 1"),
        ("copy:length=8", "copy over distance=8 needs a length of at least 9, got 8"),
        ("copy:tokens=1", "tokens is at least 2, got 1"),
    ],
)
def test_a_wrong_name_or_option_is_one_sentence(name, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        make(name)
    assert "\n" not in str(error.value)


def test_options_given_as_keywords_are_checked_too():
    with pytest.raises(ValueError, match="offset is at least 1, got 0"):
        find("marker")(offset=0)
    with pytest.raises(ValueError, match="distance is at least 1, got -3"):
        find("copy")(distance=-3)


@pytest.mark.parametrize(
    ("tail", "sentence"),
    [
        ("Mini", "has no 'Mini'.*did you mean Mine"),
        ("Other", "Other in .* is no task"),
        ("Bare:length=3", "has no option 'length'; it takes none"),
        ("Needy", "needs size: write .*Needy:size=…"),
        ("Mine:side=tale", r"side is one of head, tail, got 'tale' \(did you mean tail\?\)"),
        ("Mine:fair=5", "fair is true or false, got '5'"),
    ],
)
def test_a_wrong_file_or_option_is_one_sentence(mine, tail, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(f"{mine}:{tail}")


# Samples.


def test_balanced_numbers_differ_by_at_most_one_and_are_shuffled():
    g = torch.Generator().manual_seed(0)
    for count, kinds in [(1000, 3), (999, 3), (7, 16), (0, 3)]:
        counts = balanced(count, kinds, g).bincount(minlength=kinds)
        assert counts.sum() == count and counts.max() - counts.min() <= 1
    assert balanced(1000, 3, g)[:300].bincount(minlength=3).min() > 70


def test_each_task_split_seed_and_length_has_random_numbers_of_its_own():
    keys = [(n, s, seed, length) for n in ("copy", "marker") for s in SPLITS for seed in (0, 1, 10)
            for length in (32, 64, 320)]  # fmt: skip
    seeds = {generator(make(n), *key).initial_seed() for n, *key in keys}
    assert len(seeds) == len(keys)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("pattern", [9, 13, 4, 5, 11, 15, 5, 8]),
        ("marker", [9, 9, 15, 13, 11, 14, 9, 4]),
        ("induction", [10, 6, 12, 1, 11, 4, 9, 2]),
        ("copy", [11, 10, 11, 3, 8, 1, 5, 13]),
    ],
)
def test_samples_are_the_same_in_every_process_and_tomorrow(name, first):
    assert make(name).samples("test", 0).x[0, :8].tolist() == first


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_a_function_of_split_seed_and_length(name):
    task, again = make(name), make(name)
    state = torch.get_rng_state()
    a = task.samples("train", 4)
    assert torch.equal(torch.get_rng_state(), state)
    task.samples("test", 4)
    torch.manual_seed(9)
    b, explicit = again.samples("train", 4), again.samples("train", 4, task.length)
    assert torch.equal(a.x, b.x) and torch.equal(a.y, b.y) and torch.equal(a.x, explicit.x)
    small = [task.samples(split, seed).x[:1000] for split in SPLITS for seed in (0, 1)]
    for i, x in enumerate(small):
        assert not any(torch.equal(x, other) for other in small[:i])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [32, 40, 512])
def test_samples_have_the_shapes_and_ids_that_the_task_states(name, length):
    task = make(name)
    sizes = {split: len(task.samples(split, 0)) for split in SPLITS}
    assert sizes == {"train": 5000, "validation": 1000, "test": 1000}
    s = task.samples("test", 0, length)
    assert s.x.shape == (1000, length) and s.x.dtype == s.y.dtype == torch.int64
    assert s.x.min() == 0 and s.x.max() == task.vocab - 1
    assert s.y.shape == ((1000,) if task.output == "classes" else (1000, length))
    asked = s.y[s.y != IGNORED]
    assert asked.min() == 0 and asked.max() < (task.classes or task.vocab)


@pytest.mark.parametrize("name", NAMES)
def test_lines_lie_between_chance_and_perfect_and_fall_with_length(name):
    task = make(name)
    before = 1.0
    for length in (32, 64, 512):
        lines = {line.name: line.value for line in task.lines(length)}
        assert list(lines) == ["chance", "order-blind", "perfect"]
        assert lines["chance"] < lines["order-blind"] < before and lines["perfect"] == 1
        before = lines["order-blind"]
    assert [x.value for x in task.lines()] == [x.value for x in task.lines(task.length)]


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_split_or_a_short_length_is_refused(name):
    with pytest.raises(ValueError, match="a split is one of train, validation, test, got 'dev'"):
        make(name).samples("dev", 0)
    for ask in (lambda: make(name).samples("test", 0, 2), lambda: make(name).lines(2)):
        with pytest.raises(ValueError, match=r"length.* got 2$"):
            ask()
