"""tupe: s_ij = q_i·k_j/√(2D) + (p_i U^Q)·(p_j U^K)/√(2D) + b_{bucket(j-i)} (Ke et al. 2021).

The table goes through a norm before it is projected, once for all layers. Section 3.2 unties the
class token: its scores to the others and theirs to it are learned numbers, here as in the published
code the products of p_0 with itself and of p_1 with itself.
"""

import math

import pytest
import torch
from torch import nn

import ordinate as od
from methods.formula import attention, draw, equal, redraw, scores
from methods.places import Place, solves
from methods.sticks import broken

# The table has eleven rows: positions run from 0 to 10.
ANYWHERE = torch.tensor([[3, 0, 10, 3, 7, 1, 0], [5, 5, 2, 9, 0, 4, 6]])
PLACES = [Place(*s, c) for s in ((7, 7, 4), (3, 9, 2), (1, 5, 1)) for c in (True, False)]
PLACES += [Place(*s, False, ANYWHERE) for s in ((7, 7, 2), (6, 7, 1))]


def bucket(gap, buckets=32, far=128):
    """T5's, in both directions, counted in whole numbers."""
    n, d = buckets // 2, abs(gap)
    e, base = n // 2, n * (gap > 0)
    if d < e:
        return base + d
    return base + e + max(k for k in range(n - e) if d ** (n - e) * e**k >= e ** (n - e) * far**k)


def products(tupe, h, d):
    """[H, rows, rows]: (p_i U^Q)·(p_j U^K) / √(2D) between all rows of the table."""
    table = nn.functional.layer_norm(
        tupe.weight, tupe.weight.shape[1:], tupe.norm.weight, tupe.norm.bias
    )
    p = table @ tupe.project.weight.T + tupe.project.bias
    left, right = (x.unflatten(-1, (h, d)).movedim(1, 0) for x in p.split(h * d, -1))
    return left @ right.mT / math.sqrt(2 * d)


def paper(q, k, tupe, pos_q, pos_k, *, cls=False, relative=True, buckets=32, far=128):
    """One pair of positions [b, n], [b, m] at a time."""
    h, d = q.shape[1], q.shape[3]
    table = products(tupe, h, d)
    b, n, m = len(pos_q), pos_q.shape[1], pos_k.shape[1]
    out = []
    for x in range(b):
        for i in pos_q[x].tolist():
            for j in pos_k[x].tolist():
                if cls and i == 0:
                    place, row = table[:, 0, 0], buckets // 2
                elif cls and j == 0:
                    place, row = table[:, 1, 1], buckets
                else:
                    place, row = table[:, i + cls, j + cls], bucket(j - i, buckets, far)
                out.append(place + tupe.buckets_weight[row] if relative else place)
    bias = torch.stack(out).view(b, n, m, h).movedim(-1, 1)
    return scores(q, k) / math.sqrt(2) + bias


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("cls", [False, True])
@pytest.mark.parametrize(
    ("relative", "buckets", "far"), [(True, 32, 128), (True, 8, 9), (False, 32, 128)]
)
def test_is_the_formula(place, cls, relative, buckets, far):
    tupe = redraw(
        od.make(
            "tupe", dim=10, heads=4, head_dim=6, max_len=11, cls=cls, relative=relative,
            buckets=buckets, max_distance=far,
        )
    )  # fmt: skip
    q, k, v = place.draw()
    pos_q = place.pos[:, place.m - place.n :]
    options = {"cls": cls, "relative": relative, "buckets": buckets, "far": far}
    s = paper(q, k, tupe, pos_q, place.pos, **options)
    solves(place.problem(q, k, v, tupe), s, place.mask, q, k, v, *tupe.parameters())


@pytest.mark.parametrize("cls", [False, True])
@pytest.mark.parametrize("relative", [False, True])
def test_parameters(cls, relative):
    torch.manual_seed(0)
    tupe = od.make(
        "tupe", dim=20, heads=4, head_dim=6, max_len=50, cls=cls, relative=relative, layers=7
    )
    shapes = {n: tuple(p.shape) for n, p in tupe.named_parameters()}
    wanted = {
        "weight": (50 + cls, 20), "norm.weight": (20,), "norm.bias": (20,),
        "project.weight": (48, 20), "project.bias": (48,),
    } | ({"buckets_weight": (33, 4)} if relative else {})  # fmt: skip
    assert shapes == wanted
    assert tupe.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert tupe.project.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert (tupe.project.bias == 0).all()
    if relative:
        assert tupe.buckets_weight.std().item() == pytest.approx(0.02, rel=0.2)


def test_every_layer_adds_the_same():
    tupe = redraw(od.make("tupe", dim=20, heads=4, head_dim=6, max_len=9, layers=3))
    assert torch.equal(tupe.bias(9, layer=0), tupe.bias(9, layer=2))


def test_an_empty_table_is_scaled_content_attention():
    tupe = od.make("tupe", dim=18, heads=3, head_dim=6, max_len=7)
    for p in (tupe.weight, tupe.buckets_weight):
        p.data.zero_()
    q, k, v = draw()
    equal(od.attention(q, k, v, tupe), attention(scores(q, k) / 2**0.5, v), q, k, v)


def maps_of_nothing(tupe, n):
    """The maps of queries and keys without content."""
    zero = torch.zeros(1, tupe.heads or 1, n, 6, dtype=torch.float64)
    return od.weights(od.problem(zero, zero, zero, tupe))


def test_the_class_token_is_outside_the_order():
    """All of its row is one number, the corner too; its column is p_1·p_1 and the extra bucket."""
    tupe = redraw(od.make("tupe", dim=20, heads=4, head_dim=6, max_len=9, cls=True))
    w = maps_of_nothing(tupe, 9)[0]
    torch.testing.assert_close(w[:, 0], torch.full((4, 9), 1 / 9).double())
    assert (w[:, 1:, 1:] - w[:, 1:, 1:2]).abs().max() > 1e-3
    table = products(tupe, 4, 6)
    own = table[:, 2, 2] + tupe.buckets_weight[0]
    to_cls = table[:, 1, 1] + tupe.buckets_weight[32]
    torch.testing.assert_close((w[:, 1, 0] / w[:, 1, 1]).log(), (to_cls - own).detach())


def test_buckets_that_t5_leaves_free_are_the_class_tokens():
    """Column 0 reads the extra bucket 32; row 0 reads 16, which no distance uses."""
    tupe = od.make("tupe", dim=20, heads=1, head_dim=6, max_len=300, cls=True).double()
    tupe.project.weight.data.zero_()
    tupe.buckets_weight.data.copy_(torch.arange(33.0)[:, None] / 10)
    w = maps_of_nothing(tupe, 300)[0, 0]
    rows = ((w / w.diagonal()[:, None]).log() * 10).round().long()
    assert rows[1:, 0].unique().tolist() == [32]
    row = tupe.bias(300)[0, 0] * 10
    assert row.round().unique().tolist() == [16]
    assert rows[250, 1:].tolist() == [bucket(j - 250) for j in range(1, 300)]
    assert set(rows[1:, 1:].flatten().tolist()) == set(range(32)) - {16}


@pytest.mark.parametrize("relative", [False, True])
def test_the_row_of_the_class_token_is_p0_with_itself_and_bucket_16(relative):
    """A softmax cannot see what a whole row shares, sticks can."""
    sizes = {"dim": 10, "heads": 4, "head_dim": 6, "max_len": 11}
    name = f"tupe:cls=true,relative={relative}+stick-breaking:order=first,current=true"
    both = redraw(od.make(name, **sizes))
    tupe = both.parts[0]
    place = Place(7, 7, 2, False, ANYWHERE)
    q, k, v = place.draw()
    s = paper(q, k, tupe, place.pos, place.pos, cls=True, relative=relative)
    w = broken(s, place.mask, place.gap, "first")
    ours = od.weights(place.problem(q, k, v, both))
    equal(ours, w, q, k, *both.parameters())


def test_buckets_have_both_directions_even_if_causal():
    tupe = redraw(od.make("tupe", dim=20, heads=2, head_dim=6, max_len=9))
    assert torch.equal(tupe.bias(9, causal=True), tupe.bias(9))


def test_facts():
    facts = od.make("tupe", dim=20, heads=2, head_dim=6, max_len=9).facts
    assert facts.integer and not facts.relative and facts.max_len == 9


@pytest.mark.parametrize("cls", [False, True])
def test_bad_input(cls):
    q, k, v = draw(h=4)
    tupe = od.make("tupe", dim=24, heads=4, head_dim=6, max_len=6, cls=cls)
    with pytest.raises(ValueError, match=r"tupe counts whole steps.*integers"):
        od.attention(q, k, v, tupe, position_ids=torch.arange(7.0))
    with pytest.raises(
        ValueError, match=r"tupe was made with max_len=6, got positions from 0 to 6"
    ):
        od.attention(q, k, v, tupe)
    with pytest.raises(ValueError, match=r"max_len=6, got positions from -1 to 5"):
        od.attention(q, k, v, tupe, position_ids=torch.tensor([-1, 0, 1, 2, 3, 4, 5]))
    od.attention(q, k, v, tupe, position_ids=torch.tensor([5, 0, 1, 2, 3, 4, 5]))
    with pytest.raises(ValueError, match=r"tupe needs (dim|heads|head_dim|max_len)"):
        od.make("tupe", dim=24)
