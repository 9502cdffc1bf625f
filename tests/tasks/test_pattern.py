from itertools import product

import pytest
import torch

from ordinate.tasks import make
from ordinate.tasks.pattern import order_blind

# Written again from the statement of the task: class -> {place: token}.
PAIRS = [{3: 5, 7: 8}, {5: 3, 10: 9}, {15: 7, 20: 4}]
TOKENS = [list(pair.values()) for pair in PAIRS]


def present(x):
    """[N, 3]: which pairs are complete."""
    return torch.stack(
        [torch.stack([x[:, p] == t for p, t in pair.items()]).all(0) for pair in PAIRS], 1
    )


def counts(x, tokens):
    return torch.stack([(x == t).sum(1) for t in range(tokens)], 1)


@pytest.mark.parametrize("length", [21, 32, 77, 512])
@pytest.mark.parametrize("tokens", [10, 20])
def test_exactly_the_pair_of_the_class_is_present(length, tokens):
    s = make(f"pattern:test=3000,tokens={tokens}").samples("test", 1, length)
    assert torch.equal(present(s.x), torch.nn.functional.one_hot(s.y, 3).bool())


def test_classes_are_as_frequent_as_can_be_and_shuffled():
    task = make("pattern:train=302")
    assert sorted(task.samples("train", 0).y.bincount().tolist()) == [100, 101, 101]
    y = make("pattern").samples("test", 0).y
    assert y.bincount().tolist() == [334, 333, 333]
    assert y[:500].bincount().min() > 130


def test_noise_is_uniform_but_for_pairs_that_were_drawn_again():
    tokens = 10
    s = make("pattern:train=300000,tokens=10").samples("train", 0)
    for c, pair in enumerate(PAIRS):
        x = s.x[s.y == c]
        shares = torch.stack([x[:, p].bincount(minlength=tokens) / len(x) for p in range(32)])
        want = torch.full((32, tokens), 1 / tokens)
        for p, t in pair.items():
            want[p] = torch.arange(tokens) == t
        for p, t in (item for other in PAIRS if other is not pair for item in other.items()):
            # Uniform over the two places, without the one case of both halves.
            want[p] = tokens / (tokens**2 - 1)
            want[p, t] = (tokens - 1) / (tokens**2 - 1)
        error = (want * (1 - want) / len(x)).sqrt()
        assert ((shares - want).abs() <= 4.5 * error).all()
        # The tokens of different places are independent: here, of two of noise.
        assert (x[:, 25] == x[:, 26]).float().mean().sub(1 / tokens).abs() < 4.5 * (
            0.09 / len(x)
        ) ** 0.5


@pytest.mark.parametrize(("n", "tokens"), [(6, 7), (7, 7), (6, 9)])
def test_the_order_blind_line_is_what_counting_all_sequences_gives(n, tokens):
    """Pairs 0 1, 2 3 and 4 5 at the first places, in all sequences: places do not matter to it."""
    x = torch.cartesian_prod(*[torch.arange(tokens)] * n)
    pairs = torch.stack([(x[:, [2 * c, 2 * c + 1]] == torch.tensor([2 * c, 2 * c + 1])).all(1)
                         for c in range(3)], 1)  # fmt: skip
    one = pairs.sum(1) == 1
    y = pairs[one].int().argmax(1)
    bags, which = x[one].sort(1).values.unique(dim=0, return_inverse=True)
    table = torch.zeros(len(bags), 3).index_put_((which, y), torch.ones(()), accumulate=True)
    best = table.max(1).values.sum() / table.sum()
    assert order_blind(n, tokens) == pytest.approx(best.item(), abs=1e-6)


@pytest.mark.parametrize(("length", "tokens"), [(21, 10), (32, 20), (45, 13), (512, 20)])
def test_the_ideal_reader_of_counts_reaches_the_order_blind_line(length, tokens):
    n = 200_000 if length < 100 else 20_000
    task = make(f"pattern:tokens={tokens},test={n}")
    s, line = task.samples("test", 2, length), task.lines(length)[1].value
    said = counts(s.x, tokens)[:, TOKENS].prod(-1).argmax(1)
    got = (said == s.y).double().mean().item()
    assert got == pytest.approx(line, abs=4 * (line * (1 - line) / n) ** 0.5)


def test_no_learned_reader_of_counts_is_better_than_the_line():
    task = make("pattern:train=40000,test=40000")
    line = task.lines()[1].value

    def features(x):
        c = counts(x, 20).float()
        return torch.cat([c, (c + 0.1).log()], 1)

    train, test = task.samples("train", 0), task.samples("test", 0)
    model = torch.nn.Linear(40, 3)
    torch.nn.init.zeros_(model.weight)
    steps = torch.optim.LBFGS(model.parameters(), max_iter=60, line_search_fn="strong_wolfe")
    x = features(train.x)

    def loss():
        steps.zero_grad()
        value = torch.nn.functional.cross_entropy(model(x), train.y)
        value.backward()
        return value

    steps.step(loss)
    got = (model(features(test.x)).argmax(1) == test.y).double().mean().item()
    # It comes near, so that being below is not for want of learning.
    assert line - 0.015 < got < line + 4 * (line * (1 - line) / 40_000) ** 0.5


def test_a_reader_of_places_is_perfect_and_of_half_the_pairs_is_not():
    s = make("pattern").samples("test", 0)
    assert torch.equal(present(s.x).int().argmax(1), s.y)
    halves = torch.stack([s.x[:, p] == t for p, t in ((3, 5), (5, 3), (15, 7))], 1)
    assert (halves.sum(1) > 1).any()  # by chance, as documented


def test_a_grid_holds_the_same_tokens_and_grows_by_rows():
    line, grid = make("pattern"), make("pattern:grid=4x8")
    assert grid.grid == (4, 8) and line.grid is None
    for length in (32, 64, 512):
        assert torch.equal(line.samples("test", 0, length).x, grid.samples("test", 0, length).x)
    for ask in (lambda: grid.samples("test", 0, 60), lambda: grid.lines(60)):
        with pytest.raises(ValueError, match="rows of 8: length is a multiple of that, got 60"):
            ask()


def test_every_class_is_equally_hard_without_order():
    task = make("pattern:test=90000")
    s = task.samples("test", 0)
    w = counts(s.x, 20)[:, TOKENS].prod(-1).double()
    said = (w + torch.rand(w.shape, generator=torch.Generator().manual_seed(0)) * 0.5).argmax(1)
    right = torch.stack([(said == s.y)[s.y == c].double().mean() for c in range(3)])
    assert right.max() - right.min() < 0.015


def test_places_and_tokens_of_the_pairs_are_all_different():
    # The line counts on it: no place or token is shared.
    items = [item for pair in PAIRS for item in pair.items()]
    assert all(
        a[0] != b[0] and a[1] != b[1]
        for (i, a), (j, b) in product(enumerate(items), repeat=2)
        if i < j
    )
