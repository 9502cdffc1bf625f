"""alibi: s_ij = q_i·k_j/√D - m_h |i - j|, m_h = 2^(-8h/H) (Press et al. 2022, section 3)."""

import math

import pytest
import torch

import ordinate as od
from methods.formula import redraw, scores
from methods.places import places, solves


def slopes(heads):
    """A geometric sequence; other numbers take every second slope of twice the power of two."""
    power = 2 ** int(math.log2(heads))
    first = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    rest = [2.0 ** (-8 * h / (2 * power)) for h in range(1, 2 * power, 2)]
    return torch.tensor(first + rest[: heads - power], dtype=torch.float64)


def shape(gap, sides):
    """What a slope of one adds; gap is j - i."""
    return -gap.abs().double() + (0.5 * (gap < 0) if sides == "offset" else 0)


def sight(gap, sides, heads):
    """[b, h, n, m], True where a head looks: with `split` half of them back, the others ahead."""
    past = torch.arange(heads)[:, None, None] < heads / 2
    return torch.where(past, gap <= 0, gap >= 0) if sides == "split" else gap == gap


# Causal and split: a head that looks forward still sees the query's own token.
@pytest.mark.parametrize("place", places(), ids=str)
@pytest.mark.parametrize("sides", ["symmetric", "offset", "split"])
@pytest.mark.parametrize("trainable", [False, True])
def test_is_the_formula(place, sides, trainable):
    alibi = redraw(od.make("alibi", heads=4, sides=sides, trainable=trainable))
    fixed = torch.cat([slopes(2), slopes(2)]) if sides == "split" else slopes(4)
    m = alibi.log_slopes.exp() if trainable else fixed
    q, k, v = place.draw(h=4)
    gap = place.gap[:, None]
    s = scores(q, k) + m[:, None, None] * shape(gap, sides)
    mask = place.mask & sight(gap, sides, 4)
    solves(place.problem(q, k, v, alibi), s, mask, q, k, v, *alibi.parameters())


@pytest.mark.parametrize("heads", range(1, 65))
def test_slopes_of_any_number_of_heads(heads):
    found = -od.make("alibi", heads=heads).bias(1, 2)[:, 0, 0]
    torch.testing.assert_close(found.double(), slopes(heads), rtol=1e-6, atol=0)
    assert len(set(found.tolist())) == heads


def test_slopes_beyond_a_power_of_two_are_appended_not_sorted():
    found = -od.make("alibi", heads=12).bias(1, 2)[:, 0, 0]
    wanted = [2.0**-h for h in range(1, 9)] + [0.707107, 0.353553, 0.176777, 0.088388]
    torch.testing.assert_close(found, torch.tensor(wanted), rtol=1e-5, atol=0)
    six = -od.make("alibi", heads=6).bias(1, 2)[:, 0, 0]
    assert six.tolist() == [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]


def test_trained_slopes_begin_where_the_fixed_ones_are():
    fixed, trained = (od.make("alibi", heads=6, trainable=t) for t in (False, True))
    torch.testing.assert_close(trained.bias(5), fixed.bias(5), rtol=1e-6, atol=1e-7)
    assert list(fixed.parameters()) == []


def test_is_not_divided_by_the_root_of_the_width_as_falcon_does():
    q = torch.zeros(1, 1, 2, 64, dtype=torch.float64)
    w = od.weights(od.problem(q, q, q, "alibi", causal=True))[0, 0, 1]
    assert (w[0] / w[1]).log().item() == pytest.approx(-(2.0**-8), rel=1e-9)


def test_offset_is_the_asymmetry_of_deepminds_code():
    """np.tri sums: -(i - j) + 1/2 in the past, -(j - i) in the future."""
    bias = od.make("alibi", heads=2, sides="offset").bias(3)[0] * 16
    assert bias.tolist() == [[0, -1, -2], [-0.5, 0, -1], [-1.5, -0.5, 0]]


def test_split_gives_each_direction_half_of_the_heads():
    bias = od.make("alibi", heads=4, sides="split").bias(3)
    past = [bool(b[0, 2].isinf() and b[2, 0].isfinite()) for b in bias]
    future = [bool(b[2, 0].isinf() and b[0, 2].isfinite()) for b in bias]
    assert past == [True, True, False, False] and future == [False, False, True, True]
    assert (-bias[:2, 2, 1]).tolist() == (-bias[2:, 0, 1]).tolist() == [1 / 16, 1 / 256]
    assert (bias.diagonal(dim1=-2, dim2=-1) == 0).all()


def test_bias_of_fewer_queries_is_the_last_rows():
    alibi = od.make("alibi", heads=3)
    assert torch.equal(alibi.bias(2, 6), alibi.bias(6)[:, 4:])


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 20, 25, 40, 64])
def test_bloom_agrees_up_to_a_constant_per_row(heads):
    """BLOOM keeps m_h · j, which softmax cannot tell from -m_h (i - j)."""
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 9), heads, torch.float32)
    ours = od.make("alibi", heads=heads).bias(9, causal=True)
    last = ours[:, 8:] - ours[:, 8:, :1]
    torch.testing.assert_close(last, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("heads", [2, 8, 16])
def test_mpt_agrees_for_powers_of_two(heads):
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    theirs = mpt.build_mpt_alibi_tensor(heads, 9)
    torch.testing.assert_close(od.make("alibi", heads=heads).bias(1, 9), theirs)


@pytest.mark.parametrize("heads", [1, 4, 6, 12])
def test_x_transformers_agrees(heads):
    theirs = pytest.importorskip("x_transformers.x_transformers").AlibiPositionalBias(heads)
    ours = od.make("alibi", heads=heads).bias(4, 7)
    torch.testing.assert_close(ours, theirs(4, 7), rtol=1e-5, atol=1e-6)


def test_bad_input():
    with pytest.raises(ValueError, match=r"alibi needs heads"):
        od.make("alibi")
    with pytest.raises(ValueError, match=r"alibi:sides is one of symmetric.*did you mean split"):
        od.make("alibi", heads=4, sides="splitt")
    with pytest.raises(ValueError, match=r"heads=4, the queries have 2"):
        q = torch.randn(1, 2, 3, 4)
        od.attention(q, q, q, od.make("alibi", heads=4))
