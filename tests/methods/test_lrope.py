"""lrope: RoPE whose log-frequencies are learned, per layer, per head or once for the model.

s_ij = Re Σ_c q̃_c conj(k̃_c) e^{i (p_i - p_j) exp(log θ_c)} / √D. Ours; begins as RoPE.
"""

import math

import pytest
import torch

import ordinate as od
from methods.formula import attention, causal, draw, equal, gaps, redraw, theta, turned_scores

SIZES = {"layer": (3, 3), "head": (3, 4, 3), "model": (1, 3)}  # 3 layers, 4 heads, D = 6


def make(per="layer", **options):
    return od.make("lrope", head_dim=6, heads=4, layers=3, per=per, **options)


def paper(q, k, pos, log_freqs, pairing):
    """`log_freqs` [r/2] or [h, r/2]."""
    gap = gaps(q.shape[2], pos=pos).double()
    angle = -gap[:, :, None] * log_freqs.reshape(-1, 1, 1, log_freqs.shape[-1]).exp()
    s = turned_scores(q, k, torch.polar(torch.ones_like(angle), angle), pairing)
    return s / math.sqrt(q.shape[-1])


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("per", SIZES)
def test_is_the_formula(per, layer, pairing):
    q, k, v = draw(h=4, n=5, m=7, d=6)
    lrope = redraw(make(per, pairing=pairing))
    pos = torch.tensor([0, 3, 4, -2, 10, 11, 5])
    ours = od.attention(
        q, k, v, lrope, causal=True, position_ids=pos, layer=layer, backend="reference"
    )
    own = lrope.log_freqs[0 if per == "model" else layer]
    equal(
        ours, attention(paper(q, k, pos, own, pairing), v, causal(5, 7)), q, k, v, lrope.log_freqs
    )


@pytest.mark.parametrize("width", [2, 4])
def test_a_partial_width_learns_as_many_frequencies(width):
    q, k, v = draw(h=4, n=7, d=6, kv=2)
    lrope = redraw(make(width=width))
    assert lrope.log_freqs.shape == (3, width // 2)
    pos = torch.linspace(-3, 5, 7, dtype=torch.float64)
    ours = od.attention(q, k, v, lrope, position_ids=pos, layer=1, backend="reference")
    theirs = attention(paper(q, k, pos, lrope.log_freqs[1], "half"), v)
    equal(ours, theirs, q, k, v, lrope.log_freqs)


@pytest.mark.parametrize(("per", "shape"), SIZES.items())
def test_begins_as_the_logarithm_of_rope(per, shape):
    lrope = make(per, base=500.0)
    assert {n: tuple(p.shape) for n, p in lrope.named_parameters()} == {"log_freqs": shape}
    start = theta(6, 500.0).log().float().expand(shape)
    torch.testing.assert_close(lrope.log_freqs.detach(), start, rtol=1e-6, atol=1e-6)
    q, k, _ = draw(h=4, n=7, d=6)
    rope = od.make("rope", head_dim=6, base=500.0)
    for ours, theirs in zip(lrope.rotate(q, k, layer=2), rope.rotate(q, k), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_one_layer_and_base_ten_thousand_unless_told():
    (log_freqs,) = od.make("lrope", head_dim=6).parameters()
    torch.testing.assert_close(log_freqs.double(), theta(6).log()[None], rtol=1e-6, atol=1e-6)


def test_begins_as_partial_rope():
    lrope = make(width=4)
    torch.testing.assert_close(lrope.log_freqs[1].double(), theta(4).log(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("per", SIZES)
def test_is_relative_for_any_frequencies(per):
    q, k, v = draw(h=4, n=7, d=6)
    lrope, pos = redraw(make(per)), torch.tensor([4, 1, 0, 9, 2, 2, 30])
    one, other = (od.attention(q, k, v, lrope, position_ids=p) for p in (pos, pos + 1000))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("per", ["layer", "head"])
def test_a_layer_trains_its_own_frequencies_only(per):
    q, k, v = draw(h=4, n=7, d=6)
    lrope = redraw(make(per))
    od.attention(q, k, v, lrope, layer=1).square().sum().backward()
    moved = lrope.log_freqs.grad.flatten(1).abs().amax(1)
    assert moved[1] > 1e-6
    assert moved[[0, 2]].tolist() == [0, 0]


def test_heads_turn_at_their_own_speed():
    """With the frequencies of a head at -inf (θ = 0) that head knows no position, the others do."""
    q, k, v = draw(h=4, n=7, d=6)
    lrope = redraw(make("head"))
    with torch.no_grad():
        lrope.log_freqs[0, 2] = -torch.inf
    difference = od.attention(q, k, v, lrope) - od.attention(q, k, v, "none")
    still = difference.abs().amax((0, 2, 3)) < 1e-12
    assert still.tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head_dim": 6, "per": "head"}, "heads"),
        ({"head_dim": 6, "per": "token"}, "per is one of layer, head, model"),
        ({"head_dim": 5}, "even.*5"),
        ({}, "lrope needs head_dim"),
    ],
)
def test_bad_sizes_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        od.make("lrope", **options)


def test_a_missing_layer_is_named():
    q, k, v = draw(h=4, d=6)
    with pytest.raises(ValueError, match="made for 3 layers, got layer 3"):
        od.attention(q, k, v, make(), layer=3)


def test_frequencies_of_a_head_need_a_key_of_that_head():
    q, k, v = draw(h=4, kv=2, d=6)
    with pytest.raises(ValueError, match=r"per=head.*4 query heads and 2 key heads.*per=layer"):
        od.attention(q, k, v, make("head"))
