"""fire: b_ij = f(ψ(i - j) / ψ(max(i, L))), ψ(x) = ln(c x + 1), f: 1 → 32 → H (Li et al. 2024).

With the choices of the published code: |i - j|, the learned threshold L = |m · 512|,
ψ(x) = ln(1 + |c x|) and 1e-6 beside the denominator.
"""

import math

import pytest
import torch

import ordinate as od
from methods.formula import draw, redraw, scores
from methods.places import Place, places, solves


def psi(c, x):
    return torch.log(1 + (c * x).abs())


def bias(fire, layer, gap, pos_q, length):
    """gap [b, n, m] and the queries' own positions [b, n]: [b, H, n, m]."""
    c, m = fire.c[layer], fire.m[layer]
    border = torch.maximum(pos_q.double(), (m * length).abs())[:, :, None]
    x = psi(c, gap.abs().double()) / (psi(c, border) + 1e-6)
    hidden = (x[..., None] * fire.w1[layer] + fire.b1[layer]).relu()
    return (hidden @ fire.w2[layer].T + fire.b2[layer]).movedim(-1, 1)


@pytest.mark.parametrize("place", places(), ids=str)
@pytest.mark.parametrize(("layer", "hidden"), [(0, 32), (1, 9)])
@pytest.mark.parametrize("length", [512, 20])
def test_is_the_formula(place, layer, hidden, length):
    fire = redraw(od.make("fire", heads=4, layers=2, hidden=hidden, length=length))
    fire.m.data.copy_(torch.tensor([-0.9, 1.2]))
    fire.c.data.copy_(torch.tensor([1.3, -0.7]))
    # The bends of the network lie among the few x of short rows, or b1 would have no gradient.
    fire.b1.data.copy_(-fire.w1 * torch.linspace(0.01, 0.4, hidden))
    q, k, v = place.draw()
    pos_q = place.pos[:, place.m - place.n :]
    s = scores(q, k) + bias(fire, layer, place.gap, pos_q, length)
    solves(place.problem(q, k, v, fire, layer), s, place.mask, q, k, v, *leaves(fire))


def leaves(fire):
    # What every row gets alike, b2, the softmax cannot see.
    return [p for name, p in fire.named_parameters() if name != "b2"]


def test_bias_holds_the_constant_that_softmax_cannot_see():
    place = Place(7, 7, 4, False)
    fire = redraw(od.make("fire", heads=4))
    ours = fire.bias(7)
    theirs = bias(fire, 0, place.gap, place.pos, 512)[0]
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-6)
    towards = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(0)).double()
    for p in fire.parameters():
        (one,), (two,) = (
            torch.autograd.grad(x, p, towards.to(x), retain_graph=True) for x in (ours, theirs)
        )
        assert two.abs().max() > 0
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_begins_as_published():
    fire = od.make("fire", heads=4, layers=2)
    assert fire.c.tolist() == [pytest.approx(0.1)] * 2
    assert fire.m.tolist() == [1, 1]
    shapes = {name: tuple(p.shape) for name, p in fire.named_parameters()}
    assert shapes == {
        "w1": (2, 32), "b1": (2, 32), "w2": (2, 4, 32), "b2": (2, 4), "c": (2,), "m": (2,),
    }  # fmt: skip
    assert sum(p.numel() for p in fire.parameters()) == 2 * (64 + 33 * 4 + 2)


def test_the_network_begins_as_linear_layers_do():
    """Uniform between ±1/√(inputs), weights and biases: one input, then `hidden`."""
    torch.manual_seed(0)
    fire = od.make("fire", heads=50, layers=2, hidden=900)
    for p, border in ((fire.w1, 1), (fire.b1, 1), (fire.w2, 1 / 30), (fire.b2, 1 / 30)):
        assert p.abs().max() <= border
        assert p.min() < -0.9 * border and p.max() > 0.9 * border
        assert p.std().item() == pytest.approx(border / 3**0.5, rel=0.12)


def test_short_sequences_share_a_denominator_and_long_ones_do_not():
    """Up to position |m L| the bias is a function of i - j, beyond it shrinks with i."""
    fire = redraw(od.make("fire", heads=2, length=10))
    fire.m.data.fill_(0.5)
    b = fire.bias(9)
    torch.testing.assert_close(b[:, 1, 0], b[:, 5, 4], rtol=1e-6, atol=1e-6)
    assert (b[:, 1, 0] - b[:, 8, 7]).abs().max() > 1e-3


def test_rows_beyond_the_threshold_end_at_the_same_number():
    """ψ(i)/ψ(i) = 1: the first key of every long row, whatever its length."""
    fire = redraw(od.make("fire", heads=2, length=1))
    fire.m.data.fill_(1.0)
    b = fire.bias(300)[:, 2:, 0]
    torch.testing.assert_close(b, b[:, :1].expand_as(b), rtol=1e-4, atol=1e-4)


def test_future_and_past_are_alike():
    b = redraw(od.make("fire", heads=2)).bias(9)
    torch.testing.assert_close(b, b.mT, rtol=1e-5, atol=1e-6)


def test_a_number_by_hand():
    """w1 = w2 = 1, no bias terms: b = ln(1 + .1·3) / (ln(1 + .1·512) + 1e-6)."""
    fire = od.make("fire", heads=1, hidden=1)
    for name, p in fire.named_parameters():
        p.data.fill_({"w1": 1, "w2": 1, "c": 0.1, "m": 1}.get(name, 0))
    wanted = math.log(1.3) / (math.log(52.2) + 1e-6)
    assert fire.bias(1, 4)[0, 0, 0].item() == pytest.approx(wanted, rel=1e-5)


def test_a_silent_network_is_no_position():
    q, k, v = draw()
    fire = redraw(od.make("fire", heads=3))
    fire.w2.data.zero_()
    torch.testing.assert_close(od.attention(q, k, v, fire), od.attention(q, k, v, "none"))


def test_facts():
    facts = od.make("fire", heads=3).facts
    assert not facts.relative and not facts.cross and not facts.integer


def test_bad_input():
    q, k, v = draw()
    with pytest.raises(ValueError, match=r"fire means nothing between two sequences"):
        ids = torch.arange(7)
        od.attention(q, k, v, od.make("fire", heads=3), position_ids=ids, key_position_ids=ids)
    with pytest.raises(ValueError, match=r"fire needs heads"):
        od.make("fire")
    with pytest.raises(ValueError, match=r"fire was made for 1 layers, got layer 1"):
        od.attention(q, k, v, od.make("fire", heads=3), layer=1)
