"""axial-rope: the first half of the pairs turns by x, the second by y, at base^(-4c/D).

Heo et al. 2024, `rope-vit`: interleaved pairs, base 100, the class token is not turned.
Our positions are (y, x), so that the *first* pairs read the *second* coordinate.
"""

import math

import pytest
import torch

import ordinate as od
from methods.formula import attention, draw, equal, turned_scores


def paper(q, k, places, base=100.0):
    """`places` [m, 2] as (y, x)."""
    d, n = q.shape[-1], q.shape[2]
    freqs = torch.tensor([base ** (-4 * c / d) for c in range(d // 4)], dtype=torch.float64)
    y, x = places.double().T
    ahead = [p[-n:, None] - p[None, :] for p in (x, y)]
    angle = torch.cat([a[..., None] * freqs for a in ahead], -1)
    phase = torch.polar(torch.ones_like(angle), angle)
    return turned_scores(q, k, phase, "interleaved") / math.sqrt(d)


def grid(height, width):
    return torch.tensor([(y, x) for y in range(height) for x in range(width)])


@pytest.mark.parametrize("base", [100.0, 7.0])
@pytest.mark.parametrize("d", [4, 8, 12])
@pytest.mark.parametrize(("height", "width"), [(2, 3), (3, 2), (1, 5), (5, 1)])
def test_is_the_formula_on_grids(height, width, d, base):
    q, k, v = draw(n=height * width, d=d, kv=1)
    axial = od.make("axial-rope", head_dim=d, base=base)
    space = od.Space.grid(height, width)
    a = od.Attend(q, k, v, space, d**-0.5, od.Mask())
    ours = od.backends.run(axial.attend(a), "reference")
    equal(ours, attention(paper(q, k, grid(height, width), base), v), q, k, v)


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("real", [False, True])
def test_is_the_formula_anywhere(real, n):
    q, k, v = draw(n=n, m=5, d=8)
    places = torch.tensor([[3, 4], [0, -2], [70, 1], [3, 4], [5, 9]])
    places = places.double() + 0.125 if real else places
    ours = od.attention(q, k, v, "axial-rope", position_ids=places[None], backend="reference")
    equal(ours, attention(paper(q, k, places), v), q, k, v)


def test_x_turns_the_first_half_and_y_the_second():
    """Golden, D = 8: at (y, x) = (2, 3) the pairs turn by 3, .3, 2, .2."""
    one = torch.tensor([1.0, 0, 1, 0, 1, 0, 1, 0], dtype=torch.float64).view(1, 1, 1, 8)
    turned, _ = od.make("axial-rope", head_dim=8).rotate(
        one, one, position_ids=torch.tensor([[[2, 3]]])
    )
    turned = turned.view(4, 2)
    angle = torch.atan2(turned[:, 1], turned[:, 0])
    torch.testing.assert_close(angle, torch.tensor([3, 0.3, 2, 0.2]).double(), rtol=0, atol=1e-7)


def test_along_a_row_is_partial_rope():
    """With y = 0 the first half of the channels is RoPE of width D/2, the second is as it was."""
    q, k, _ = draw(n=6, d=8)
    row = torch.stack([torch.zeros(6), torch.arange(6)], -1).long()[None]
    ours = od.make("axial-rope", head_dim=8).rotate(q, k, position_ids=row)
    rope = od.make("rope", head_dim=8, width=4, base=100.0, pairing="interleaved")
    for one, other in zip(ours, rope.rotate(q, k), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_the_class_token_is_not_turned():
    q, k, v = draw(n=7, d=8)
    space = od.Space.grid(2, 3, prefix=1)
    a = od.Attend(q, k, v, space, 8**-0.5, od.Mask())
    ours = od.backends.run(od.make("axial-rope", head_dim=8).attend(a), "reference")
    places = torch.cat([torch.tensor([[0, 0]]), grid(2, 3)])
    equal(ours, attention(paper(q, k, places), v), q, k, v)


def test_is_relative_along_both_axes():
    q, k, v = draw(n=6, d=8)
    axial, places = od.make("axial-rope", head_dim=8), grid(2, 3)[None]
    one = od.attention(q, k, v, axial, position_ids=places)
    other = od.attention(q, k, v, axial, position_ids=places + torch.tensor([40, -7]))
    swapped = od.attention(q, k, v, axial, position_ids=places.flip(-1))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
    assert (one - swapped).abs().max() > 1e-3
    assert list(axial.parameters()) == []


@pytest.mark.parametrize("d", [2, 6, 7, 10])
def test_a_head_splits_into_pairs_for_two_axes(d):
    with pytest.raises(ValueError, match=rf"head_dim.*(4|four).*{d}|{d}.*(4|four)"):
        od.make("axial-rope", head_dim=d)


def test_positions_have_two_coordinates():
    q, k, v = draw(n=5, d=8)
    with pytest.raises(ValueError, match="2 coordinates, got positions with 1"):
        od.attention(q, k, v, "axial-rope", position_ids=torch.arange(5))


def test_equals_sam_2():
    """SAM 2 shares the frequencies and the pairing; its first half reads row 0 of its positions."""
    sam = pytest.importorskip("transformers.models.sam2_video.modeling_sam2_video")
    config = sam.Sam2VideoConfig(
        memory_attention_hidden_size=8, memory_attention_downsample_rate=1,
        memory_attention_num_attention_heads=1,
        memory_attention_rope_parameters={"rope_type": "axial", "rope_theta": 100.0},
    )  # fmt: skip
    config.rope_parameters = {"rope_type": "axial", "rope_theta": 100.0}
    q, k, _ = draw(n=6, d=8)
    places = grid(2, 3)
    cos, sin = sam.Sam2VideoVisionRotaryEmbedding(config)(q, places.flip(-1).T[None])
    ours = od.make("axial-rope", head_dim=8).rotate(q, k, position_ids=places[None])
    theirs = sam.apply_rotary_pos_emb_2d(q, k, cos, sin)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
