"""da: softmax(ReLU(Q Kᵀ/√D) ∘ R̂), R̂_ij = (1 + e^v) / (1 + e^(v - w|i - j|)) (Wu et al. 2021)."""

import math

import pytest
import torch

import ordinate as od
from methods.formula import attention, draw, equal, redraw, repeated, scores
from methods.places import places, solves


def rescale(w, v, gap):
    """w, v [H] and gaps [b, n, m]: [b, H, n, m]."""
    w, v, far = w[:, None, None], v[:, None, None], gap.abs().double()[:, None]
    return (1 + v.exp()) / (1 + (v - w * far).exp())


@pytest.mark.parametrize("place", places(), ids=str)
@pytest.mark.parametrize("layer", [0, 1])
def test_is_the_formula(place, layer):
    da = redraw(od.make("da", heads=4, layers=2))
    q, k, v = place.draw()
    s = scores(q, k).relu() * rescale(da.w[layer], da.v[layer], place.gap)
    solves(place.problem(q, k, v, da, layer), s, place.mask, q, k, v, *da.parameters())


def test_begins_as_the_positive_scores_alone():
    """w = v = 0: R̂ = 1 everywhere, but the scores are rectified: not NoPE."""
    q, k, v = draw()
    da = od.make("da", heads=3, layers=2)
    assert {n: (tuple(p.shape), p.abs().sum().item()) for n, p in da.named_parameters()} == {
        "w": ((2, 3), 0),
        "v": ((2, 3), 0),
    }
    ours = od.attention(q, k, v, da)
    equal(ours, attention(scores(q, k).relu(), v), q, k, v)
    assert (ours - od.attention(q, k, v, "none")).abs().max() > 1e-3


@pytest.mark.parametrize("w", [-3.0, 0.7, 3.0])
def test_distance_zero_is_left_alone_and_far_tokens_reach_the_limit(w):
    """R̂(0) = 1; far away R̂ is 1 + e^v for w > 0 and 0 for w < 0."""
    da = od.make("da", heads=1).double()
    da.w.data.fill_(w)
    da.v.data.fill_(0.4)
    q = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    k = torch.ones(1, 1, 3, 1, dtype=torch.float64)
    ids = torch.tensor([1000, 0, 0])
    found = od.weights(od.problem(q, k, k, da, position_ids=ids)).flatten().log()
    limit = 1 + math.exp(0.4) if w > 0 else 0.0
    assert (found[0] - found[2]).item() == pytest.approx(limit - 1, abs=1e-9)
    assert found[1] == found[2]


def test_negative_scores_are_rectified_before_they_are_rescaled():
    """All scores negative: the weights are uniform over what the mask allows, at any w and v."""
    da = redraw(od.make("da", heads=3))
    q, k, _ = draw()
    w = od.weights(od.problem(q.abs(), -k.abs(), k, da, causal=True))
    rows = torch.ones(7, 7).tril() / torch.arange(1, 8)[:, None]
    torch.testing.assert_close(w, rows.double().expand_as(w))


def test_grouped_heads_have_their_own_scalars():
    da = redraw(od.make("da", heads=4))
    q, k, v = draw(h=4, kv=2)
    ours = od.attention(q, k, v, da)
    equal(ours, od.attention(q, repeated(k, 4), repeated(v, 4), da), q, k, v)


def test_bad_input():
    q, k, v = draw()
    with pytest.raises(ValueError, match=r"da needs heads"):
        od.make("da")
    with pytest.raises(ValueError, match=r"made with heads=4, the queries have 3"):
        od.attention(q, k, v, od.make("da", heads=4))
    with pytest.raises(ValueError, match=r"da was made for 1 layers, got layer 3"):
        od.attention(q, k, v, od.make("da", heads=3), layer=3)
    with pytest.raises(ValueError, match=r"multiplies|no plain bias|content"):
        od.make("da", heads=3).bias(4)
