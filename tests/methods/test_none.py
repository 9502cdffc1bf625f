"""none: attention without positions (Haviv et al. 2022), the identity of the library."""

import pytest
import torch

import ordinate as od
from methods.formula import attention, causal, draw, equal, leaf, scores


@pytest.mark.parametrize("n", [1, 4, 7])
@pytest.mark.parametrize("is_causal", [True, False])
def test_is_attention_and_nothing_else(n, is_causal):
    q, k, v = draw(n=n, m=7, kv=1)
    ours = od.attention(q, k, v, "none", causal=is_causal, backend="reference")
    theirs = attention(scores(q, k), v, causal(n, 7) if is_causal else None)
    equal(ours, theirs, q, k, v)


def test_knows_no_order_but_the_mask():
    """Without a mask a permutation of the keys changes nothing; causality alone breaks that."""
    q, k, v = draw(n=3, m=9)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    mixed = od.attention(q, k[:, :, order], v[:, :, order], "none")
    torch.testing.assert_close(mixed, od.attention(q, k, v, "none"), rtol=0, atol=1e-12)
    one, other = (
        od.attention(q, x, y, "none", causal=True)
        for x, y in ((k, v), (k[:, :, order], v[:, :, order]))
    )
    assert (one - other).abs().max() > 0.1


@pytest.mark.parametrize("places", [torch.tensor([5, 5, -3, 99, 0]), torch.randn(2, 5, 3)])
def test_does_not_read_positions(places):
    q, k, v = draw(n=5)
    moved = od.attention(q, k, v, "none", position_ids=places, causal=True)
    torch.testing.assert_close(moved, od.attention(q, k, v, "none", causal=True), rtol=0, atol=0)


def test_changes_no_stage():
    none = od.make("none", dim=6, heads=3, layers=2)
    x, space = leaf(2, 5, 6), od.Space.line(5)
    assert list(none.parameters()) == []
    assert none.embed(x, space, 0) == (x, space)
    sources = od.Sources(x, x, x)
    assert none.before(sources, space, 1) == sources
    assert none.remember(x, space, 1) == {}
    assert none.epoch(5) == none.epoch(5000)


def test_is_defined_between_two_sequences():
    q, k, v = draw(n=4, m=7)
    ours = od.attention(
        q, k, v, "none", position_ids=torch.arange(4), key_position_ids=torch.arange(7)
    )
    equal(ours, attention(scores(q, k), v), q, k, v)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda none: od.make("none", base=5), "no options"),
        (lambda none: none.table(4), "no table"),
        (lambda none: none.bias(4), "adds nothing.*no bias"),
        (lambda none: none.rotate(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2)), "no rotation"),
        (lambda none: none.score_mod(), "does nothing to the scores"),
    ],
)
def test_refuses_what_it_has_not(act, words):
    with pytest.raises(ValueError, match=words):
        act(od.make("none"))
