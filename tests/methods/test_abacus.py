"""abacus: E[place in the run of digits, from 1], other tokens E[0].

McLeish et al. 2024, section 3. In training one random k is added to every index that is not zero,
the same for the whole batch.
"""

import pytest
import torch

import ordinate as od
from methods.formula import equal, leaf, redraw


def places(tokens, digits=frozenset(range(10)), k=0, documents=None, valid=None):
    """The index of every token, walking along each row."""
    index = []
    for b, row in enumerate(tokens.tolist()):
        run, found = 0, []
        for i, token in enumerate(row):
            pad = valid is not None and not valid[b, i]
            border = documents is not None and i > 0 and documents[b, i] != documents[b, i - 1]
            run = 0 if pad or border else run
            run = run + 1 if token in digits and not pad else 0
            found.append(run + k if run else 0)
        index.append(found)
    return torch.tensor(index)


def sum_of(sizes, seed=0):
    """Rows of tokens with runs of every kind."""
    return torch.randint(0, 13, sizes, generator=torch.Generator().manual_seed(seed))


def space_of(tokens, **rest):
    return od.Space.line(tokens.shape[1]).but(tokens=tokens, **rest)


def make(**options):
    return redraw(od.make("abacus", dim=4, **{"rows": 40, **options}))


def found(abacus, tokens, **rest):
    """The indices that a table with E[i] = i gives away."""
    ramp = torch.arange(abacus.weight.shape[0], dtype=torch.float64)
    with torch.no_grad():
        abacus.weight.copy_(ramp[:, None].expand_as(abacus.weight))
    x = torch.zeros(*tokens.shape, 4, dtype=torch.float64)
    return abacus.embed(x, space_of(tokens, **rest), 0)[0][..., 0].long()


def test_golden():
    """3 4 + 5 6 7 = 1 → 1 2 0 1 2 3 0 1"""
    tokens = torch.tensor([[3, 4, 10, 5, 6, 7, 11, 1]])
    assert found(make(), tokens).tolist() == [[1, 2, 0, 1, 2, 3, 0, 1]]


@pytest.mark.parametrize("n", [1, 6, 15])
def test_tokens_get_the_row_of_their_place(n):
    """The run is counted over the whole context, also when only its last tokens are computed."""
    tokens, x, abacus = sum_of((3, 15)), leaf(3, n, 4), make()
    ours, same = abacus.embed(x, space_of(tokens), 0)
    rows = torch.stack([abacus.weight[i] for i in places(tokens)[:, 15 - n :].flatten().tolist()])
    equal(ours, x + rows.view(3, n, 4), x, abacus.weight)
    assert same.tokens is tokens
    assert torch.equal(abacus.embed(x, same, 1)[0], x)


@pytest.mark.parametrize(
    ("digits", "ids"),
    [("0-9", range(10)), ("3 5 7-9", {3, 5, 7, 8, 9}), ("11", {11}), ("2-4 6-7", {2, 3, 4, 6, 7})],
)
def test_digits_are_named_by_their_ids(digits, ids):
    tokens = sum_of((4, 30))
    assert torch.equal(found(make(digits=digits), tokens), places(tokens, set(ids)))


def test_a_run_ends_at_a_document_border():
    tokens = torch.tensor([[1, 2, 3, 4, 5, 10, 6, 7]])
    documents = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 2]])
    wanted = [[1, 2, 1, 2, 3, 0, 1, 1]]
    assert places(tokens, documents=documents).tolist() == wanted
    assert found(make(), tokens, documents=documents).tolist() == wanted


def test_a_run_ends_at_padding():
    """A digit as padding token counts for nothing, before, between or after."""
    tokens = torch.tensor([[0, 0, 5, 6, 10, 7], [5, 6, 0, 0, 7, 8]])
    valid = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1]]).bool()
    ours = found(make(), tokens, valid=valid)
    assert torch.equal(ours.where(valid, -1), places(tokens, valid=valid).where(valid, -1))
    assert ours[0, 2:].tolist() == [1, 2, 0, 1]


def drawn(seed, offset):
    return int(torch.randint(offset, (1,), generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("seed", range(5))
def test_training_adds_one_number_to_all_runs_of_the_batch(seed):
    tokens, abacus = sum_of((3, 15)), make(rows=60, offset=30).train()
    k = drawn(seed, 30)
    assert torch.equal(found(abacus, tokens, seed=seed), places(tokens, k=k))


def test_training_reaches_every_offset_below_the_limit():
    tokens, abacus = torch.tensor([[1]]), make(offset=3).train()
    ks = {int(found(abacus, tokens, seed=seed)[0, 0]) - 1 for seed in range(40)}
    assert ks == {0, 1, 2}


@pytest.mark.parametrize(("training", "seed"), [(False, 7), (True, None)])
def test_evaluation_or_no_seed_adds_nothing(training, seed):
    assert drawn(7, 30) > 0
    tokens, abacus = sum_of((3, 15)), make(offset=30).train(training)
    assert torch.equal(found(abacus, tokens, seed=seed), places(tokens))


def test_the_row_of_other_tokens_is_learned():
    """Row 0 is a vector like another, not a hole."""
    abacus, x = make(), leaf(1, 3, 4)
    out, _ = abacus.embed(x, space_of(torch.tensor([[10, 11, 12]])), 0)
    equal(out, x + abacus.weight[0], x, abacus.weight)


def test_special_tokens_get_no_row_and_end_a_run():
    # Digits all of them, so that only being special sets the first and the fourth apart.
    tokens = torch.tensor([[2, 3, 4, 6, 5]])
    special = torch.tensor([[True, False, False, True, False]])
    abacus, x = make(), leaf(2, 5, 4)
    out, _ = abacus.embed(x, space_of(tokens.expand(2, 5), special=special), 0)
    w = abacus.weight
    zero = torch.zeros(4, dtype=torch.float64)
    equal(out, x + torch.stack([zero, w[1], w[2], zero, w[1]]), x, w)


def test_parameters_are_one_table():
    torch.manual_seed(0)
    abacus = od.make("abacus", dim=64, layers=3)
    assert {n: tuple(p.shape) for n, p in abacus.named_parameters()} == {"weight": (1024, 64)}
    assert abacus.weight.std().item() == pytest.approx(1, rel=0.02)
    assert abacus.facts.needs == {"embed", "tokens", "seed"}


def test_counts_places_not_positions():
    """Any positions give the same: runs are read off the tokens."""
    tokens, x, abacus = sum_of((2, 9)), leaf(2, 9, 4), make()
    one = abacus.embed(x, space_of(tokens), 0)[0]
    far = od.Space.points(torch.arange(9) * 7 - 100, tokens=tokens)
    assert torch.equal(abacus.embed(x, far, 0)[0], one)


def test_a_table_has_as_many_rows_as_it_says():
    """With 10 rows nine digits fit, since row 0 is for the others; ten do not."""
    abacus, tokens = make(rows=10), torch.ones(1, 10, dtype=torch.long)
    assert found(abacus, tokens[:, :9])[0, -1] == 9
    with pytest.raises(ValueError, match="rows 0 … 9, got index 10"):
        found(abacus, tokens)


def test_draws_below_100_unless_told():
    abacus, tokens = make(rows=200).train(), torch.tensor([[1]])
    assert [int(found(abacus, tokens, seed=s)) for s in range(9)] == [
        1 + drawn(s, 100) for s in range(9)
    ]


@pytest.mark.parametrize("n", [1, 12])
def test_a_run_longer_than_the_table_is_refused(n):
    abacus = make(rows=10)
    tokens = torch.ones(1, 12, dtype=torch.long)
    with pytest.raises(ValueError, match=r"rows 0 … 9, got index 12"):
        abacus.embed(torch.zeros(1, n, 4), space_of(tokens), 0)


def test_an_offset_beyond_the_table_is_refused():
    abacus = make(rows=10, offset=100).train()
    seed = next(s for s in range(99) if drawn(s, 100) > 50)
    with pytest.raises(ValueError, match=r"rows 0 … 9, got index \d\d"):
        abacus.embed(torch.zeros(1, 1, 4), space_of(torch.tensor([[1]]), seed=seed), 0)


def test_an_offset_below_one_is_refused():
    with pytest.raises(ValueError, match=r"offset is .*at least 1.*got 0"):
        make(offset=0)


def test_token_ids_are_needed():
    with pytest.raises(ValueError, match="token"):
        make().embed(torch.zeros(1, 3, 4), od.Space.line(3), 0)


@pytest.mark.parametrize("digits", ["a-b", "9-0", "1-", "1,2"])
def test_digits_that_name_nothing_are_refused(digits):
    with pytest.raises(ValueError, match="digits"):
        make(digits=digits)
