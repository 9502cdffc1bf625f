"""tener: s_ij = q_i·k_j + q_i·R_{i-j} + u·k_j + v·R_{i-j}, k = x, unscaled (Yan et al. 2019).

The published code turns R around in both terms and adds k_j·R_{i-j}: mode="code". R is the
sinusoid of tensor2tensor, as wide as a head: sines before cosines, the slowest of frequency
1/10000.
"""

import pytest
import torch

import ordinate as od
from methods.formula import draw, redraw, repeated
from methods.places import places, solves


def sinusoid(t, width):
    half = width // 2
    k = torch.arange(half, dtype=torch.float64)
    angle = t.double()[..., None] * 10000.0 ** (-k / max(half - 1, 1))
    zero = torch.zeros(*t.shape, width % 2, dtype=torch.float64)
    return torch.cat([angle.sin(), angle.cos(), zero], -1)


def paper(q, k, u, v, gap, mode):
    """u, v [H, D]; gap [b, n, m] is j - i."""
    k = repeated(k, q.shape[1])
    forward = sinusoid(-gap, q.shape[-1])[:, None]  # R_{i-j}
    r = forward if mode == "paper" else sinusoid(gap, q.shape[-1])[:, None]
    s = q @ k.mT + (u[:, None] @ k.mT)
    s = s + ((q + v[:, None])[:, :, :, None] * r).sum(-1)
    return s if mode == "paper" else s + (k[:, :, None] * forward).sum(-1)


@pytest.mark.parametrize("place", places(real=False), ids=str)
@pytest.mark.parametrize("mode", ["paper", "code"])
@pytest.mark.parametrize(("scaled", "d", "layer"), [(False, 6, 0), (True, 5, 1), (False, 2, 1)])
def test_is_the_formula(place, layer, mode, scaled, d):
    options = {} if (mode, scaled) == ("paper", False) else {"mode": mode, "scaled": scaled}
    tener = redraw(od.make("tener", heads=4, head_dim=d, layers=2, **options))
    q, k, v = place.draw(d=d)
    s = paper(q, k, tener.u[layer], tener.v[layer], place.gap, mode)
    s = s / d**0.5 if scaled else s
    solves(place.problem(q, k, v, tener, layer), s, place.mask, q, k, v, *tener.parameters())


def test_slowest_frequency_is_one_over_the_base():
    """Denominator D/2 - 1, not D/2: at width 4 the angles of a step are 1 and 1/10000."""
    tener = od.make("tener", heads=1, head_dim=4).double()
    tener.u.data.zero_()
    tener.v.data.copy_(torch.tensor([0.0, 1.0, 0.0, 0.0]))
    zero = torch.zeros(1, 1, 2, 4, dtype=torch.float64)
    w = od.weights(od.problem(zero, zero, zero, tener))[0, 0]
    assert (w[1, 0] / w[1, 1]).log().item() == pytest.approx(1e-4, rel=1e-6)


@pytest.mark.parametrize(("mode", "sign"), [("paper", 1), ("code", -1)])
def test_direction_shows_in_the_sines(mode, sign):
    tener = od.make("tener", heads=1, head_dim=2, mode=mode).double()
    tener.u.data.zero_()
    tener.v.data.copy_(torch.tensor([1.0, 0.0]))
    zero = torch.zeros(1, 1, 2, 2, dtype=torch.float64)
    w = od.weights(od.problem(zero, zero, zero, tener))[0, 0]
    past, future = (w[1, 0] / w[1, 1]).log().item(), (w[0, 1] / w[0, 0]).log().item()
    assert past == pytest.approx(sign * 0.8414709848, rel=1e-9)
    assert future == pytest.approx(-past, rel=1e-12)


def test_modes_differ():
    q, k, v = draw()
    one, two = (redraw(od.make("tener", heads=3, head_dim=6, mode=m)) for m in ("paper", "code"))
    assert (od.attention(q, k, v, one) - od.attention(q, k, v, two)).abs().max() > 1e-2


def test_parameters():
    """u and v alone, 2·d per layer, xavier-normal as H × D matrices."""
    torch.manual_seed(0)
    tener = od.make("tener", heads=40, head_dim=60, layers=3)
    assert {n: tuple(p.shape) for n, p in tener.named_parameters()} == {
        "u": (3, 40, 60),
        "v": (3, 40, 60),
    }
    assert od.make("tener", heads=3, head_dim=6).u.shape == (1, 3, 6)
    for layer in range(3):
        assert tener.u[layer].std().item() == pytest.approx((2 / 100) ** 0.5, rel=0.1)
        assert tener.v[layer].std().item() == pytest.approx((2 / 100) ** 0.5, rel=0.1)
        # A uniform of this spread would end at √3 of it.
        assert tener.u[layer].abs().max() > 1.8 * (2 / 100) ** 0.5


def test_keys_are_not_projected():
    assert od.make("tener", heads=3, head_dim=6).facts.key_projection is False
    assert od.make("transformer-xl", dim=18, heads=3, head_dim=6).facts.key_projection is True


def test_bad_input():
    q, k, v = draw()
    with pytest.raises(ValueError, match=r"tener counts whole steps.*integers"):
        tener = od.make("tener", heads=3, head_dim=6)
        od.attention(q, k, v, tener, position_ids=torch.arange(7.0))
    with pytest.raises(ValueError, match=r"tener:mode is one of paper, code"):
        od.make("tener", heads=3, head_dim=6, mode="papers")
    with pytest.raises(ValueError, match=r"made with head_dim=8, the queries have 6"):
        od.attention(q, k, v, od.make("tener", heads=3, head_dim=8))
    with pytest.raises(ValueError, match=r"tener needs (heads|head_dim)"):
        od.make("tener")
