"""exposb: softmax over RoPE with three exponentials (Wu 2026; no stick is broken).

1. q and k are turned, each times 1 + .2 e^(-.001 p) at its own position p;
2. their channels c are multiplied by .8 + .4 e^(-(c - D/4)²/(2 (D/8)²)) and by the head's band;
3. the scaled score is multiplied by .7 + .3 e^(-r|i - j|), r = .005 at first; or, "weights", the
   weights after the softmax are, and renormalised.
"""

import math

import pytest
import torch

import ordinate as od
from methods.formula import draw, equal, pairs, redraw, repeated, theta
from methods.places import REAL, Place, maps, places, solves


def turned(x, pos, pairing, base):
    """Pairs of channels as complex numbers, times e^(ipθ)."""
    z = pairs(x, x.shape[-1], pairing)
    z = z * torch.polar(torch.ones(()).double(), pos[:, None, :, None] * theta(x.shape[-1], base))
    return torch.stack([z.real, z.imag], -2 if pairing == "half" else -1).flatten(-2)


def enveloped(x, pos, band, pairing, base):
    """Steps 1 and 2 of q or k [b, h, n, D]; band [H]."""
    d = x.shape[-1]
    near = 1 + 0.2 * (-0.001 * pos).exp()
    middle = [0.8 + 0.4 * math.exp(-((c - d / 4) ** 2) / (2 * (d / 8) ** 2)) for c in range(d)]
    x = turned(x, pos, pairing, base) * near[:, None, :, None]
    return x * torch.tensor(middle, dtype=torch.float64) * band[:, None, None]


def paper(q, k, band, log_decay, pos, modulate="scores", pairing="half", base=10000.0):
    """pos [b, m], the queries at the last n; what goes into the softmax."""
    n, pos = q.shape[2], pos.double()
    pos_q = pos[:, pos.shape[1] - n :]
    left = enveloped(q, pos_q, band, pairing, base)
    right = enveloped(repeated(k, q.shape[1]), pos, band, pairing, base)
    s = left @ right.mT / q.shape[-1] ** 0.5
    far = (pos[:, None] - pos_q[:, :, None]).abs()[:, None]
    fade = 0.7 + 0.3 * (-log_decay.exp()[:, None, None] * far).exp()
    return s * fade if modulate == "scores" else s + fade.log()


@pytest.mark.parametrize("place", places(), ids=str)
@pytest.mark.parametrize("modulate", ["scores", "weights"])
@pytest.mark.parametrize(
    ("pairing", "base", "shared", "layer"),
    [("half", 10000.0, False, 0), ("interleaved", 30.0, False, 1), ("half", 9.0, True, 1)],
)
def test_is_the_formula(place, modulate, pairing, base, shared, layer):
    options = {"modulate": modulate, "pairing": pairing, "shared": shared}
    options |= {"base": base} if base != 10000 else {}
    exposb = redraw(od.make("exposb", heads=4, head_dim=8, layers=2, **options))
    q, k, v = place.draw(d=8)
    own = 0 if shared else layer
    s = paper(q, k, exposb.band[own], exposb.log_decay[own], place.pos, modulate, pairing, base)
    solves(place.problem(q, k, v, exposb, layer), s, place.mask, q, k, v, *exposb.parameters())


def test_weights_are_modulated_after_the_softmax_and_renormalised():
    place = Place(5, 7, 2, True, REAL)
    exposb = redraw(od.make("exposb", heads=4, head_dim=8, modulate="weights"))
    q, k, v = place.draw(d=8)
    s = enveloped(q, place.pos[:, 2:], exposb.band[0], "half", 1e4)
    s = s @ enveloped(repeated(k, 4), place.pos, exposb.band[0], "half", 1e4).mT / 8**0.5
    fade = 0.7 + 0.3 * (-exposb.log_decay[0].exp()[:, None, None] * place.gap.abs()[:, None]).exp()
    w = maps(s, place.mask) * fade
    w = w / w.sum(-1, keepdim=True)
    torch.testing.assert_close(od.weights(place.problem(q, k, v, exposb)), w)


def test_goldens_of_the_modulation():
    """.7 + .3 e^(-.005 d) at 0, 5, 10, 50, 100, 500, 1000."""
    bias = od.make("exposb", heads=3, head_dim=8, modulate="weights").bias(1, 1001)[:, 0]
    found = bias.exp().flip(-1)[:, [0, 5, 10, 50, 100, 500, 1000]]
    wanted = torch.tensor([1, 0.9926, 0.9854, 0.9336, 0.8820, 0.7246, 0.7020]).expand(3, 7)
    torch.testing.assert_close(found, wanted, rtol=0, atol=5.1e-5)


def test_scores_are_modulated_negative_ones_too():
    """A far logit of -8 becomes -8 · .7246: nearer to zero, so more likely, as in the source."""
    exposb = od.make("exposb", heads=1, head_dim=8).double()
    fade = 0.7 + 0.3 * math.exp(-0.005 * 500)
    place = Place(1, 2, 1, False, torch.tensor([[500, 0]]))
    for sign in (-1, 1):
        q = torch.randn(1, 1, 1, 8).double()
        k = torch.cat([sign * q, 0 * q], 2)
        s = paper(q, k, exposb.band[0], exposb.log_decay[0], place.pos)
        plain = paper(q, k, exposb.band[0], torch.full((1,), -99.0).double(), place.pos)
        torch.testing.assert_close(s, plain * torch.tensor([fade, 1]))
        torch.testing.assert_close(od.weights(place.problem(q, k, k, exposb)), s.softmax(-1))


def test_is_a_softmax():
    q, k, v = draw(d=8)
    for modulate in ("scores", "weights"):
        exposb = redraw(od.make("exposb", heads=3, head_dim=8, modulate=modulate))
        w = od.weights(od.problem(q, k, v, exposb, causal=True))
        torch.testing.assert_close(w.sum(-1), torch.ones_like(w[..., 0]))


def test_band_acts_on_both_sides():
    """Twice the band is four times the score."""
    q, k, v = draw(d=8)
    one, two = (od.make("exposb", heads=3, head_dim=8) for _ in range(2))
    two.band.data.fill_(2.0)
    equal(od.attention(2 * q, 2 * k, v, one), od.attention(q, k, v, two), q, k, v)


def test_positions_are_not_relative():
    """Step 1 fades with the position itself."""
    q, k, v = draw(d=8)
    exposb = od.make("exposb", heads=3, head_dim=8)
    here, there = (
        od.attention(q, k, v, exposb, position_ids=torch.arange(7) + c) for c in (0, 900)
    )
    assert (here - there).abs().max() > 1e-3
    assert not exposb.facts.relative


@pytest.mark.parametrize(("shared", "copies"), [(False, 5), (True, 1)])
def test_two_numbers_for_each_head(shared, copies):
    exposb = od.make("exposb", heads=6, head_dim=8, layers=5, shared=shared)
    assert {n: tuple(p.shape) for n, p in exposb.named_parameters()} == {
        "band": (copies, 6),
        "log_decay": (copies, 6),
    }
    assert (exposb.band == 1).all()
    assert od.make("exposb", heads=6, head_dim=8).band.shape == (1, 6)
    torch.testing.assert_close(exposb.log_decay.exp(), torch.full((copies, 6), 0.005))


def test_bad_input():
    with pytest.raises(ValueError, match=r"head_dim.*even|even.*head_dim"):
        od.make("exposb", heads=2, head_dim=7)
    with pytest.raises(ValueError, match=r"exposb:modulate is one of scores, weights"):
        od.make("exposb", heads=2, head_dim=8, modulate="logits")
    with pytest.raises(ValueError, match=r"exposb is no plain bias: it multiplies the scores"):
        od.make("exposb", heads=2, head_dim=8).bias(4)
    with pytest.raises(ValueError, match=r"exposb needs (heads|head_dim)"):
        od.make("exposb", heads=2)
