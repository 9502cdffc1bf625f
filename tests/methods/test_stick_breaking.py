"""stick-breaking: A_ij = β_ij ∏_{j<t<i} (1 - β_it), β = σ(q_i·k_j/√D) (Tan et al. 2024, eq. 2-4).

The stick is broken from the nearest key backwards and the token itself gets nothing; in an encoder
ours goes outwards, at equal distance the key before the query first.
"""

import pytest
import torch

import ordinate as od
from methods.formula import causal, draw, equal, repeated, scores
from methods.places import Place, places
from methods.sticks import broken


def without_itself(place):
    index = torch.arange(place.m)
    return place.mask & (index != index[place.m - place.n :, None])


@pytest.mark.parametrize("place", places(), ids=str)
@pytest.mark.parametrize("order", ["nearest", "first"])
@pytest.mark.parametrize("current", [False, True])
def test_is_the_formula(place, order, current):
    stick = od.make("stick-breaking", order=order, current=current)
    q, k, v = place.draw()
    mask = place.mask if current else without_itself(place)
    w = broken(scores(q, k), mask, place.gap, order)
    a = place.problem(q, k, v, stick)
    torch.testing.assert_close(od.weights(a), w, rtol=1e-9, atol=1e-12)
    equal(od.backends.run(a, "reference"), w @ repeated(v, 4), q, k, v)
    ours = od.attention(q, k, v, stick, causal=place.causal, position_ids=place.ids)
    torch.testing.assert_close(ours, w @ repeated(v, 4), rtol=1e-8, atol=1e-10)


def test_default_is_the_papers():
    """A_ij = β_ij ∏_{j<t<i} (1 - β_it), written once more as it is printed."""
    q, k, v = draw()
    beta = scores(q, k).sigmoid()
    a = torch.zeros(2, 3, 7, 7, dtype=torch.float64)
    for i in range(7):
        for j in range(i):
            a[:, :, i, j] = beta[:, :, i, j] * (1 - beta[:, :, i, j + 1 : i]).prod(-1)
    problem = od.problem(q, k, v, "stick-breaking", causal=True)
    torch.testing.assert_close(od.weights(problem), a.detach())


def maps_of(beta, stick, **how):
    """The maps of queries that all have the same β [m] for the m keys."""
    k = torch.tensor(beta, dtype=torch.float64).logit()[None, None, :, None]
    q = torch.ones_like(k)
    return od.weights(od.problem(q, k, k, stick, scale=1.0, **how))[0, 0]


FIVE = [0.30, 0.25, 0.40, 0.35, 0.50]


def test_worked_example():
    first = maps_of(FIVE, od.make("stick-breaking", order="first", current=True))
    wanted = torch.tensor([0.3, 0.175, 0.21, 0.11025, 0.102375]).double()
    torch.testing.assert_close(first, wanted.expand(5, 5))
    torch.testing.assert_close(1 - first.sum(-1), torch.full((5,), 0.102375).double())


def test_worked_example_from_the_nearest():
    """The last query: .5, .35·.5, .40·.325, .25·.195, .30·.14625; the middle one: 2, 1, 3, 0, 4."""
    nearest = maps_of(FIVE, od.make("stick-breaking", current=True))
    last = [0.3 * 0.14625, 0.25 * 0.195, 0.4 * 0.325, 0.35 * 0.5, 0.5]
    torch.testing.assert_close(nearest[4], torch.tensor(last).double())
    middle = [
        0.3 * 0.6 * 0.75 * 0.65,
        0.25 * 0.6,
        0.4,
        0.35 * 0.6 * 0.75,
        0.5 * 0.6 * 0.75 * 0.65 * 0.7,
    ]
    torch.testing.assert_close(nearest[2], torch.tensor(middle).double())


def test_the_first_token_sees_nothing():
    q, k, v = draw()
    out = od.attention(q, k, v, "stick-breaking", causal=True)
    assert (out[:, :, 0] == 0).all()
    (found,) = torch.autograd.grad(out.sum(), q)
    assert found.isfinite().all() and (found[:, :, 0] == 0).all()
    own = od.attention(q, k, v, "stick-breaking:current=true", causal=True)
    torch.testing.assert_close(own[:, :, 0], scores(q, k)[:, :, 0, :1].sigmoid() * v[:, :, 0])


@pytest.mark.parametrize("order", ["nearest", "first"])
def test_what_nobody_takes_is_dropped(order):
    """Σ_j A_ij = 1 - ∏_j (1 - β_ij) in either order: less than one, and not renormalised."""
    q, k, v = draw()
    w = od.weights(od.problem(q, k, v, f"stick-breaking:order={order}", causal=True))
    beta = scores(q, k).sigmoid() * causal(7).tril(-1)
    torch.testing.assert_close(w.sum(-1), (1 - (1 - beta).prod(-1)).detach())
    assert w.sum(-1).max() < 1


def test_two_equal_keys_differ_by_recency():
    """No position is needed: β of each is .5, and the nearer takes twice as much."""
    w = maps_of([0.5] * 4, od.make("stick-breaking"), causal=True)
    torch.testing.assert_close(w[3], torch.tensor([0.125, 0.25, 0.5, 0]).double())


@pytest.mark.parametrize("z", [-800.0, -90.0, 40.0, 800.0])
def test_extreme_scores_stay_exact(z):
    """In float32, in log space: no score is clipped and nothing overflows."""
    q = torch.full((1, 1, 4, 1), z, requires_grad=True)
    k = torch.ones(1, 1, 4, 1)
    a = od.problem(q, k, k, "stick-breaking", causal=True, scale=1.0)
    w = od.weights(a)
    beta, rest = (torch.tensor(x).double().sigmoid() for x in (z, -z))
    wanted = [beta * rest**t for t in (2, 1, 0)]
    torch.testing.assert_close(w[0, 0, 3, :3].double(), torch.stack(wanted), rtol=1e-4, atol=1e-30)
    (found,) = torch.autograd.grad(w.sum(), q)
    assert found.isfinite().all()


def test_small_parts_do_not_cancel():
    """Nineteen keys of β = .9 before the last: its part is .9 · 1e-19, not a difference of sums."""
    w = maps_of([0.9] * 20, od.make("stick-breaking", order="first", current=True))
    torch.testing.assert_close(w[0, 19].item(), 0.9 * 0.1**19, rtol=1e-9, atol=0)


def test_padding_takes_nothing():
    """β of a masked key is 0: the others are as without it."""
    q, k, v = draw(b=1)
    valid = torch.tensor([[1, 1, 0, 1, 0, 1, 1]]).bool()
    stick = od.make("stick-breaking")
    ours = od.attention(q, k, v, stick, causal=True, mask=valid)[:, :, valid[0]]
    q, k, v = (x[:, :, valid[0]] for x in (q, k, v))
    torch.testing.assert_close(ours, od.attention(q, k, v, stick, causal=True))


def test_has_no_parameters_and_reads_order_alone_when_causal():
    stick = od.make("stick-breaking", heads=4, layers=2)
    assert list(stick.parameters()) == []
    place = Place(7, 7, 2, True)
    q, k, v = place.draw()
    far = od.attention(q, k, v, stick, causal=True, position_ids=torch.arange(7) * 50 - 9)
    torch.testing.assert_close(far, od.attention(q, k, v, stick, causal=True))


def test_bad_input():
    q, k, v = draw()
    with pytest.raises(ValueError, match=r"stick-breaking:order is one of nearest, first"):
        od.make("stick-breaking", order="last")
    with pytest.raises(ValueError, match=r"stick-breaking:current is true or false"):
        od.make("stick-breaking", current="maybe")
    with pytest.raises(ValueError, match=r"both replace the norm"):
        od.attention(q, k, v, "stick-breaking+stick-breaking")
    with pytest.raises(ValueError, match=r"stick-breaking adds nothing to the scores"):
        od.make("stick-breaking").bias(4)
