"""t5: s_ij = q_i·k_j + w_h[bucket(j - i)] (Raffel et al. 2020, section 2.1, and their code).

Half of the buckets are single steps, the others grow by a constant factor up to `max_distance`.
"""

import pytest
import torch

import ordinate as od
from methods.formula import draw, redraw, repeated, scores
from methods.places import places, solves


def bucket(gap, buckets=32, far=128, bidirectional=True):
    """In whole numbers: bucket e + k starts where d >= e (far/e)^(k/(n-e)), e = n/2."""
    if bidirectional:
        n, base, d = buckets // 2, buckets // 2 * (gap > 0), abs(gap)
    else:
        n, base, d = buckets, 0, max(-gap, 0)
    e = n // 2
    if d < e:
        return base + d
    k = max(k for k in range(n - e) if d ** (n - e) * e**k >= e ** (n - e) * far**k)
    return base + e + k


def bias(weight, gap, far, bidirectional):
    """weight [buckets, H] and gaps [b, n, m]: [b, H, n, m]."""
    rows = [bucket(g, len(weight), far, bidirectional) for g in gap.flatten().tolist()]
    return weight[torch.tensor(rows)].unflatten(0, gap.shape).movedim(-1, 1)


@pytest.mark.parametrize("place", places(real=False), ids=str)
@pytest.mark.parametrize("bidirectional", [None, False, True])
@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (8, 20)])
@pytest.mark.parametrize("scaled", [True, False])
def test_is_the_formula(place, bidirectional, buckets, far, scaled):
    t5 = redraw(
        od.make(
            "t5", heads=4, dim=24, buckets=buckets, max_distance=far, scaled=scaled,
            bidirectional=bidirectional,
        )
    )  # fmt: skip
    both = not place.causal if bidirectional is None else bidirectional
    q, k, v = place.draw()
    s = scores(q, k) if scaled else q @ repeated(k, 4).mT
    s = s + bias(t5.weight, place.gap, far, both)
    solves(place.problem(q, k, v, t5), s, place.mask, q, k, v, t5.weight)


def buckets_of(t5, n, *, causal=False):
    """The buckets of the last of n queries' keys, from distance n-1 to 0."""
    with torch.no_grad():
        t5.weight.copy_(torch.arange(float(len(t5.weight)))[:, None])
    return [int(b) for b in t5.bias(1, n, causal=causal)[0, 0]]


@pytest.mark.parametrize(
    ("bidirectional", "first"),
    [
        (True, [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]),
        (
            False,
            [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113],
        ),
    ],
    ids=["bidirectional", "causal"],
)
def test_borders_of_32_buckets_up_to_128(bidirectional, first):
    found = buckets_of(od.make("t5", heads=1, bidirectional=bidirectional), 400)[::-1]
    assert [found.index(b) for b in range(len(first))] == first
    assert found[113:] == [len(first) - 1] * 287
    assert found == [bucket(-d, bidirectional=bidirectional) for d in range(400)]


def test_bucket_16_is_never_used_in_both_directions():
    t5 = od.make("t5", heads=1)
    buckets_of(t5, 1)
    used = set(t5.bias(300)[0].flatten().tolist())
    assert used == set(range(32)) - {16}


def test_the_future_has_no_distance_in_the_causal_form():
    t5 = od.make("t5", heads=1, bidirectional=False)
    buckets_of(t5, 1)
    assert t5.bias(4)[0].tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [2, 1, 0, 0], [3, 2, 1, 0]]


def test_direction_follows_the_mask_unless_it_is_said():
    t5 = redraw(od.make("t5", heads=2))
    one, both = (od.make("t5", heads=2, bidirectional=b).double() for b in (False, True))
    for other in (one, both):
        other.load_state_dict(t5.state_dict())
    assert torch.equal(t5.bias(40, causal=True), one.bias(40))
    assert torch.equal(t5.bias(40), both.bias(40, causal=True))
    assert not torch.equal(one.bias(40), both.bias(40))


def test_one_table_serves_every_layer():
    t5 = redraw(od.make("t5", heads=2, layers=6))
    assert [tuple(p.shape) for p in t5.parameters()] == [(32, 2)]
    assert torch.equal(t5.bias(9), t5.bias(9, layer=5))


@pytest.mark.parametrize(("sizes", "variance"), [({"dim": 400}, 1 / 400), ({}, 1 / (64 * 8))])
def test_begins_with_the_variance_of_one_over_the_width(sizes, variance):
    torch.manual_seed(0)
    weight = od.make("t5", heads=8, buckets=4000, max_distance=9000, **sizes).weight
    assert weight.var().item() == pytest.approx(variance, rel=0.05)
    assert weight.mean().abs() < 0.002


def test_an_empty_table_is_no_position():
    q, k, v = draw()
    t5 = od.make("t5", heads=3)
    torch.nn.init.zeros_(t5.weight)
    torch.testing.assert_close(od.attention(q, k, v, t5), od.attention(q, k, v, "none"))


@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (16, 64), (64, 512), (20, 100)])
def test_transformers_agrees(decoder, buckets, far):
    theirs = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = theirs.T5Config(
        d_model=12, d_kv=4, num_heads=3, is_decoder=decoder,
        relative_attention_num_buckets=buckets, relative_attention_max_distance=far,
    )  # fmt: skip
    layer = theirs.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = od.make("t5", heads=3, buckets=buckets, max_distance=far)
    with torch.no_grad():
        ours.weight.copy_(layer.relative_attention_bias.weight)
    for n, m in ((9, 9), (3, 700)):
        wanted = layer.compute_bias(n, m, past_seen_tokens=m - n)[0]
        assert torch.equal(ours.bias(n, m, causal=decoder), wanted)


def test_bad_input():
    q, k, v = draw()
    with pytest.raises(ValueError, match=r"t5 counts whole steps.*integers"):
        od.attention(q, k, v, od.make("t5", heads=3), position_ids=torch.arange(7.0))
    with pytest.raises(ValueError, match=r"t5:bidirectional is true or false"):
        od.make("t5", heads=3, bidirectional="perhaps")
    with pytest.raises(ValueError, match=r"t5 needs heads"):
        od.make("t5")


@pytest.mark.parametrize(
    ("buckets", "far", "bidirectional", "fine"),
    [
        (4, 3, None, True), (4, 2, None, False), (2, 9, None, False), (7, 99, None, False),
        (32, 17, False, True), (32, 16, False, False), (32, 9, True, True), (32, 8, True, False),
    ],
)  # fmt: skip
def test_logarithmic_buckets_need_room(buckets, far, bidirectional, fine):
    """max_distance lies beyond the buckets of one step, half of those of a direction."""
    options = {"buckets": buckets, "max_distance": far, "bidirectional": bidirectional}
    if fine:
        t5 = redraw(od.make("t5", heads=1, **options))
        assert t5.bias(30, causal=True).isfinite().all()
    else:
        words = rf"t5 .*even number.*max_distance.*got buckets={buckets} and max_distance={far}"
        with pytest.raises(ValueError, match=words):
            od.make("t5", heads=1, **options)
