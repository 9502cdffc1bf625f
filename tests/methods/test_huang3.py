"""huang3: s_ij = Σ_c q_ic k_jc a_c[clip(j - i)] / √D (Huang et al. 2020, method 3)."""

import pytest
import torch

import ordinate as od
from methods.formula import draw, equal, redraw, repeated
from methods.places import places, solves


def paper(q, k, table, gap):
    """table [2·clip - 1, D] at the gaps [b, n, m]."""
    reach = len(table) // 2
    a = table[gap.clamp(-reach, reach) + reach][:, None]
    product = q[:, :, :, None] * repeated(k, q.shape[1])[:, :, None]
    return (product * a).sum(-1) / q.shape[-1] ** 0.5


@pytest.mark.parametrize("place", places(real=False), ids=str)
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("clip", [1, 3, 60])
def test_is_the_formula(place, layer, clip):
    huang = redraw(od.make("huang3", head_dim=6, layers=2, clip=clip))
    q, k, v = place.draw()
    s = paper(q, k, huang.weight[layer], place.gap)
    solves(place.problem(q, k, v, huang, layer), s, place.mask, q, k, v, huang.weight)


def test_begins_as_the_plain_product():
    huang = od.make("huang3", head_dim=6, layers=2)
    assert huang.weight.shape == (2, 255, 6)
    assert od.make("huang3", head_dim=6).weight.shape == (1, 255, 6)
    assert (huang.weight == 1).all()
    q, k, v = draw()
    equal(od.attention(q, k, v, huang), od.attention(q, k, v, "none"), q, k, v)


def test_the_last_table_rows_are_for_keys_after_the_query():
    """clip=2: rows -1, 0, 1; with a = (0, 1, 5) the future weighs five times, the past nothing."""
    huang = od.make("huang3", head_dim=1, clip=2).double()
    huang.weight.data.copy_(torch.tensor([0.0, 1.0, 5.0])[None, :, None])
    x = torch.ones(1, 1, 4, 1, dtype=torch.float64)
    s = od.weights(od.problem(x, x, x, huang))[0, 0].log()
    s = (s - s.diagonal()[:, None] + 1).round(decimals=9)
    assert s.tolist() == [[1, 5, 5, 5], [0, 1, 5, 5], [0, 0, 1, 5], [0, 0, 0, 1]]


def test_one_number_in_every_channel_is_method_2():
    """a_c equal in all channels: (q·k) a_{j-i} / √D."""
    q, k, v = draw()
    huang = od.make("huang3", head_dim=6, clip=9).double()
    a = torch.randn(17, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    huang.weight.data.copy_(a[None, :, None])
    gap = torch.arange(7) - torch.arange(7)[:, None]
    s = (q @ k.mT) * a[gap + 8] / 6**0.5
    torch.testing.assert_close(od.weights(od.problem(q, k, v, huang)), s.softmax(-1))


def test_bad_input():
    q, k, v = draw()
    with pytest.raises(ValueError, match=r"huang3 counts whole steps.*integers"):
        od.attention(q, k, v, od.make("huang3", head_dim=6), position_ids=torch.arange(7.0))
    with pytest.raises(ValueError, match=r"made with head_dim=8, the queries have 6"):
        od.attention(q, k, v, od.make("huang3", head_dim=8))
    with pytest.raises(ValueError, match=r"huang3 needs head_dim"):
        od.make("huang3")
    with pytest.raises(ValueError, match=r"both replace the score"):
        od.attention(q, k, v, od.make("huang3+huang3", head_dim=6))
