"""transformer-xl: s_ij = [(q_i + u)·k_j + (q_i + v)·W R_{i-j}] / √D (Dai et al. 2019, section 3.3).

R_t = [sin ω_0 t … sin ω_{d/2-1} t, cos ω_0 t … cos ω_{d/2-1} t] with ω_k = 10000^(-2k/d): as wide
as the model, and both directions of t.
"""

import pytest
import torch

import ordinate as od
from methods.formula import draw, equal, redraw, repeated
from methods.places import places, solves


def sinusoid(t, dim, base=10000.0):
    """[..., dim] at the numbers t: sines, then cosines."""
    angle = t.double()[..., None] * base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    return torch.cat([angle.sin(), angle.cos()], -1)


def paper(q, k, u, v, w, gap, base=10000.0):
    """u, v [H, D], w [H·D, dim]; gap [b, n, m] is j - i."""
    r = (sinusoid(-gap, w.shape[1], base) @ w.T).unflatten(-1, u.shape).movedim(3, 1)
    content = (q + u[:, None]) @ repeated(k, q.shape[1]).mT
    place = ((q + v[:, None])[:, :, :, None] * r).sum(-1)
    return (content + place) / q.shape[-1] ** 0.5


@pytest.mark.parametrize("place", places(real=False), ids=str)
@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize(("dim", "base"), [(24, 10000.0), (10, 50.0)])
def test_is_the_formula(place, layer, untied, dim, base):
    options = {"untied": untied} | ({"base": base} if base != 10000 else {})
    xl = redraw(od.make("transformer-xl", dim=dim, heads=4, head_dim=6, layers=3, **options))
    q, k, v = place.draw()
    u, c = (x[layer if untied else 0] for x in (xl.u, xl.v))
    s = paper(q, k, u, c, xl.w[layer], place.gap, base)
    solves(place.problem(q, k, v, xl, layer), s, place.mask, q, k, v, *xl.parameters())


@pytest.mark.parametrize(("untied", "copies"), [(False, 1), (True, 3)])
def test_parameters(untied, copies):
    torch.manual_seed(0)
    xl = od.make("transformer-xl", dim=64, heads=4, head_dim=16, layers=3, untied=untied)
    assert {n: tuple(p.shape) for n, p in xl.named_parameters()} == {
        "u": (copies, 4, 16),
        "v": (copies, 4, 16),
        "w": (3, 64, 64),
    }
    for p in xl.parameters():
        assert p.std().item() == pytest.approx(0.02, rel=0.3)


def test_direction_shows_in_the_sines_alone():
    """W that reads cosines only is symmetric in i and j; sines only is antisymmetric."""
    xl = od.make("transformer-xl", dim=4, heads=1, head_dim=1).double()
    zero = torch.zeros(1, 1, 5, 1, dtype=torch.float64)
    for p in (xl.u, xl.v, xl.w):
        p.data.zero_()
    xl.v.data.fill_(1)
    for columns, sign in ((slice(0, 2), -1), (slice(2, 4), 1)):
        xl.w.data.zero_()[..., columns] = 1
        s = od.weights(od.problem(zero, zero, zero, xl))[0, 0].log()
        s = s - s.diagonal()[:, None]
        torch.testing.assert_close(s, sign * s.T, rtol=0, atol=1e-12)
        assert s.abs().max() > 0.1


def test_sine_of_a_past_key_is_positive():
    """R takes i - j: the token before the query is at +1."""
    xl = od.make("transformer-xl", dim=2, heads=1, head_dim=1).double()
    xl.u.data.zero_()
    xl.v.data.fill_(1)
    xl.w.data.copy_(torch.tensor([[1.0, 0.0]]))
    zero = torch.zeros(1, 1, 2, 1, dtype=torch.float64)
    w = od.weights(od.problem(zero, zero, zero, xl))[0, 0]
    assert (w[1, 0] / w[1, 1]).log().item() == pytest.approx(0.8414709848, rel=1e-9)


def test_zeros_are_no_position():
    q, k, v = draw()
    xl = od.make("transformer-xl", dim=18, heads=3, head_dim=6)
    for p in xl.parameters():
        p.data.zero_()
    equal(od.attention(q, k, v, xl), od.attention(q, k, v, "none"), q, k, v)


@pytest.mark.parametrize("memory", [0, 4])
def test_xlnet_agrees(memory):
    """XLNet's attention, both directions; u is its r_w_bias, v its r_r_bias."""
    xlnet = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    n, m = 5, 5 + memory
    config = xlnet.XLNetConfig(
        vocab_size=3, d_model=12, n_layer=1, n_head=2, d_inner=4, dropout=0, attn_type="bi"
    )
    model = xlnet.XLNetModel(config).double()
    theirs = model.layer[0].rel_attn
    ours = redraw(od.make("transformer-xl", dim=12, heads=2, head_dim=6))
    with torch.no_grad():
        theirs.r_w_bias.copy_(ours.u[0])
        theirs.r_r_bias.copy_(ours.v[0])
        theirs.r.copy_(ours.w[0].T.unflatten(1, (2, 6)))
    q, k, v = draw(1, 2, n, m, 6)
    qx, kx, vx = (x.permute(2, 0, 1, 3) for x in (q, k, v))
    r = model.relative_positional_encoding(n, m, bsz=1).double()
    k_r = torch.einsum("ibh,hnd->ibnd", r, theirs.r)
    wanted = theirs.rel_attn_core(qx, kx, vx, k_r).permute(1, 2, 0, 3)
    # XLNet's sinusoids are float32.
    torch.testing.assert_close(od.attention(q, k, v, ours), wanted, rtol=1e-5, atol=1e-5)


def test_bad_input():
    q, k, v = draw(h=4)
    with pytest.raises(ValueError, match=r"(?i)dim.*even|even.*dim"):
        od.make("transformer-xl", dim=9, heads=3, head_dim=3)
    xl = od.make("transformer-xl", dim=24, heads=4, head_dim=6)
    with pytest.raises(ValueError, match=r"transformer-xl counts whole steps.*integers"):
        od.attention(q, k, v, xl, position_ids=torch.arange(7.0))
    with pytest.raises(ValueError, match=r"transformer-xl was made for 1 layers, got layer 1"):
        od.attention(q, k, v, xl, layer=1)
    with pytest.raises(ValueError, match=r"transformer-xl needs (dim|heads|head_dim)"):
        od.make("transformer-xl")
