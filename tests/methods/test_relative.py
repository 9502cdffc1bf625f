"""relative: s_ij = q_i·k_j/√D + w_h[clip(j - i, ±k) + k], a number per head and distance."""

import pytest
import torch

import ordinate as od
from methods.formula import draw, redraw, scores
from methods.places import places, solves


def bias(weight, gap):
    """weight [H, 2k+1] read at the clipped gaps [b, n, m]: [b, H, n, m]."""
    k = weight.shape[1] // 2
    return weight[:, gap.clamp(-k, k) + k].movedim(0, 1)


@pytest.mark.parametrize("place", places(real=False), ids=str)
@pytest.mark.parametrize("clip", [1, 3, 50])
@pytest.mark.parametrize(("shared", "layer"), [(False, 0), (False, 2), (True, 2)])
def test_is_the_formula(place, clip, shared, layer):
    relative = redraw(od.make("relative", heads=4, layers=3, clip=clip, shared=shared))
    q, k, v = place.draw()
    s = scores(q, k) + bias(relative.weight[0 if shared else layer], place.gap)
    solves(place.problem(q, k, v, relative, layer), s, place.mask, q, k, v, relative.weight)


def test_a_key_after_the_query_reads_the_second_half_of_the_table():
    relative = od.make("relative", heads=1, clip=2)
    relative.weight.data[0, 0] = torch.arange(5.0)
    assert relative.bias(4)[0].tolist() == [[2, 3, 4, 4], [1, 2, 3, 4], [0, 1, 2, 3], [0, 0, 1, 2]]
    assert relative.bias(2, 4)[0].tolist() == [[0, 1, 2, 3], [0, 0, 1, 2]]


def test_layers_have_their_own_tables():
    relative = redraw(od.make("relative", heads=2, layers=2, clip=3))
    one, two = relative.bias(4, layer=0), relative.bias(4, layer=1)
    assert not torch.allclose(one, two)


def test_begins_as_nothing():
    relative = od.make("relative", heads=3, layers=2, clip=4)
    assert relative.weight.shape == (2, 3, 9)
    q, k, v = draw()
    assert torch.equal(od.attention(q, k, v, relative), od.attention(q, k, v, "none"))


@pytest.mark.parametrize(("shared", "layers"), [(True, 1), (False, 5)])
def test_parameters(shared, layers):
    relative = od.make("relative", heads=3, layers=5, shared=shared)
    assert relative.weight.shape == (layers, 3, 2 * 128 + 1)
    assert relative.weight.dtype == torch.float32


def test_bad_input():
    q, k, v = draw()
    with pytest.raises(ValueError, match=r"relative counts whole steps.*integers"):
        ids = torch.arange(7) + 0.5
        od.attention(q, k, v, od.make("relative", heads=3), position_ids=ids)
    with pytest.raises(ValueError, match=r"relative was made for 1 layers, got layer 1"):
        od.attention(q, k, v, od.make("relative", heads=3), layer=1)
    with pytest.raises(ValueError, match=r"no option 'clipp' \(did you mean clip\?\)"):
        od.make("relative", heads=3, clipp=4)
