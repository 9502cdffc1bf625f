"""rse: z_ij = ⟨R_i q_i, R_j k_j⟩/√D - λ|i - j|, A_ij = σ(z_ij) ∏_{t before j} (1 - σ(z_it)).

Wu 2026, after the source's own worked example: keys in order, the first key first, over all allowed
keys; one learned λ for each layer.
"""

import pytest
import torch

import ordinate as od
from methods.formula import draw, equal, redraw, repeated, theta, turned_scores
from methods.places import places
from methods.sticks import broken


def paper(q, k, rate, gap, pairing="half", base=10000.0):
    angle = -gap[:, None, :, :, None] * theta(q.shape[-1], base)
    s = turned_scores(q, k, torch.polar(torch.ones_like(angle), angle), pairing)
    return s / q.shape[-1] ** 0.5 - rate * gap.abs()[:, None]


@pytest.mark.parametrize("place", places(), ids=str)
@pytest.mark.parametrize("order", ["first", "nearest"])
@pytest.mark.parametrize(
    ("pairing", "base", "shared", "layer"),
    [("half", 10000.0, False, 0), ("interleaved", 30.0, False, 1), ("half", 9.0, True, 1)],
)
def test_is_the_formula(place, order, pairing, base, shared, layer):
    options = {"order": order, "pairing": pairing, "shared": shared}
    options |= {"base": base} if base != 10000 else {}
    rse = redraw(od.make("rse", head_dim=6, layers=2, **options))
    q, k, v = place.draw()
    z = paper(q, k, rse.rate[0 if shared else layer], place.gap, pairing, base)
    w = broken(z, place.mask, place.gap, order)
    a = place.problem(q, k, v, rse, layer)
    torch.testing.assert_close(od.weights(a), w, rtol=1e-9, atol=1e-12)
    equal(od.backends.run(a, "reference"), w @ repeated(v, 4), q, k, v, *rse.parameters())
    ours = od.attention(q, k, v, rse, causal=place.causal, position_ids=place.ids, layer=layer)
    torch.testing.assert_close(ours, w @ repeated(v, 4), rtol=1e-8, atol=1e-10)


def test_worked_example_of_the_source():
    """β = .30 .25 .40 .35 .50 → A = .300 .175 .210 .11025 .102375, and .102375 remain."""
    beta = torch.tensor([0.30, 0.25, 0.40, 0.35, 0.50]).double()
    q = torch.tensor([1.0, 0.0]).double().expand(1, 1, 5, 2)
    k = torch.stack([beta.logit(), torch.zeros_like(beta)], -1)[None, None]
    # All at one place: nothing turns and nothing fades.
    rse = od.make("rse", head_dim=2)
    a = od.problem(q, k, k, rse, scale=1.0, position_ids=torch.zeros(5, dtype=torch.long))
    w = od.weights(a)[0, 0]
    wanted = torch.tensor([0.3, 0.175, 0.21, 0.11025, 0.102375]).double()
    torch.testing.assert_close(w, wanted.expand(5, 5))
    torch.testing.assert_close(1 - w[0].sum(), torch.tensor(0.102375).double())


def test_a_decoder_breaks_from_the_first_key_too():
    """Nothing turns q = 0: β = σ(-λ|i - j|), the oldest key takes its part first."""
    zero = torch.zeros(1, 1, 3, 2, dtype=torch.float64)
    rse = od.make("rse", head_dim=2, rate=1.0)
    w = od.weights(od.problem(zero, zero, zero, rse, causal=True))[0, 0]
    two, one, own = (torch.tensor(-z).double().sigmoid().item() for z in (2.0, 1.0, 0.0))
    assert w[0].tolist() == pytest.approx([own, 0, 0])
    assert w[1].tolist() == pytest.approx([one, own * (1 - one), 0])
    assert w[2].tolist() == pytest.approx([two, one * (1 - two), own * (1 - two) * (1 - one)])


def test_never_a_softmax_and_never_clipped():
    """Rows sum to 1 - ∏(1 - β), and a score of -50 is not one of -20."""
    q, k, v = draw()
    w = od.weights(od.problem(q, k, v, od.make("rse", head_dim=6)))
    assert (w.sum(-1) < 1 - 1e-4).any()
    one = torch.ones(1, 1, 1, 2, dtype=torch.float64)
    w = od.weights(od.problem(one, -25 * one, one, od.make("rse", head_dim=2), scale=1.0))
    assert w.item() == pytest.approx(1.9287498479639178e-22, rel=1e-9)


def test_without_a_rate_and_at_one_place_is_stick_breaking():
    q, k, v = draw()
    rse = od.make("rse", head_dim=6, order="nearest")
    rse.rate.data.zero_()
    same = torch.zeros(7, dtype=torch.long)
    wanted = "stick-breaking:current=true,order=nearest"
    equal(
        od.attention(q, k, v, rse, position_ids=same, causal=True),
        od.attention(q, k, v, wanted, position_ids=same, causal=True),
        q, k, v,
    )  # fmt: skip


@pytest.mark.parametrize(("shared", "copies"), [(False, 6), (True, 1)])
def test_one_rate_for_each_layer(shared, copies):
    rse = od.make("rse", head_dim=6, layers=6, shared=shared)
    assert [(n, tuple(p.shape)) for n, p in rse.named_parameters()] == [("rate", (copies,))]
    torch.testing.assert_close(rse.rate.data, torch.full((copies,), 0.01))
    assert od.make("rse", head_dim=6, rate=0.5).rate.item() == 0.5
    assert (rse.domain("rate", torch.tensor([-1.0, 2.0])) >= 0).all()


def test_bad_input():
    q, k, v = draw()
    with pytest.raises(ValueError, match=r"rse:order is one of (first, nearest|nearest, first)"):
        od.make("rse", head_dim=6, order="last")
    with pytest.raises(ValueError, match=r"rse was made for 1 layers, got layer 1"):
        od.attention(q, k, v, od.make("rse", head_dim=6), layer=1)
    with pytest.raises(ValueError, match=r"rse needs head_dim"):
        od.make("rse")
    with pytest.raises(ValueError, match=r"head_dim.*even|even.*head_dim"):
        od.make("rse", head_dim=5)
