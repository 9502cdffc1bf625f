"""swin: s_ij + w_h[(Δy + M - 1)(2N - 1) + Δx + N - 1], Δ = query - key, windows of M × N tokens.

Liu et al. 2021, eq. 4, with the index of the published code.
"""

import pytest
import torch

import ordinate as od
from methods.formula import attention, draw, equal, redraw, scores


def bias(table, places_q, places_k, height, width):
    """Entry by entry; `table` [(2M-1)(2N-1), H], places [n, 2] as (y, x)."""
    rows = []
    for yq, xq in places_q.tolist():
        row = []
        for yk, xk in places_k.tolist():
            at = (yq - yk + height - 1) * (2 * width - 1) + xq - xk + width - 1
            row.append(table[at])
        rows.append(torch.stack(row))
    return torch.stack(rows).permute(2, 0, 1)


def window(height, width):
    return torch.tensor([(y, x) for y in range(height) for x in range(width)])


def solve(swin, q, k, v, space, layer=0):
    a = od.Attend(q, k, v, space, q.shape[-1] ** -0.5, od.Mask(), layer=layer)
    return od.backends.run(swin.attend(a), "reference")


@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize(("height", "width"), [(2, 3), (3, 2), (1, 4), (4, 1), (1, 1)])
def test_is_the_formula_on_windows(height, width, layer):
    q, k, v = draw(n=height * width, kv=1)
    swin = redraw(od.make("swin", heads=3, height=height, width=width, layers=3))
    ours = solve(swin, q, k, v, od.Space.grid(height, width), layer)
    places = window(height, width)
    b = bias(swin.weight[layer], places, places, height, width)
    leaves = (q, k, v, swin.weight) if height * width > 1 else (v,)
    equal(ours, attention(scores(q, k) + b, v), *leaves)


@pytest.mark.parametrize("n", [2, 5])
def test_tokens_may_lie_anywhere_in_the_window(n):
    q, k, v = draw(n=n, m=5)
    swin = redraw(od.make("swin", heads=3, height=4, width=3, layers=2))
    places = torch.tensor([[3, 2], [0, 0], [1, 2], [0, 0], [2, 1]])
    ours = od.attention(q, k, v, swin, position_ids=places[None], layer=1, backend="reference")
    b = bias(swin.weight[1], places[-n:], places, 4, 3)
    equal(ours, attention(scores(q, k) + b, v), q, k, v, swin.weight)


def test_rows_of_a_batch_may_differ():
    q, k, v = draw(n=3)
    swin = redraw(od.make("swin", heads=3, height=4, width=3))
    places = torch.tensor([[[3, 2], [0, 0], [1, 2]], [[0, 1], [0, 0], [3, 0]]])
    ours = od.attention(q, k, v, swin, position_ids=places, backend="reference")
    b = torch.stack([bias(swin.weight[0], p, p, 4, 3) for p in places])
    equal(ours, attention(scores(q, k) + b, v), q, k, v, swin.weight)


def test_the_class_token_has_no_bias():
    q, k, v = draw(n=7)
    swin = redraw(od.make("swin", heads=3, height=2, width=3))
    ours = solve(swin, q, k, v, od.Space.grid(2, 3, prefix=1))
    b = bias(swin.weight[0], window(2, 3), window(2, 3), 2, 3)
    b = torch.nn.functional.pad(b, (1, 0, 1, 0))
    equal(ours, attention(scores(q, k) + b, v), q, k, v, swin.weight)


def test_the_class_token_may_stand_anywhere():
    q, k, v = draw(n=3)
    swin, special = redraw(od.make("swin", heads=3, height=2, width=3)), [[True, False, False]]
    space = od.Space.points(
        torch.tensor([[[90, 90], [0, 1], [1, 0]]]), special=torch.tensor(special)
    )
    b = bias(swin.weight[0], space.positions[0, 1:], space.positions[0, 1:], 2, 3)
    b = torch.nn.functional.pad(b, (1, 0, 1, 0))
    equal(solve(swin, q, k, v, space), attention(scores(q, k) + b, v), q, k, v, swin.weight)


def test_golden_index_of_a_window_of_two_by_two():
    """The table of the paper's code for M = N = 2, queries along rows."""
    swin = od.make("swin", heads=1, height=2, width=2).double()
    with torch.no_grad():
        swin.weight.copy_(torch.arange(9.0).view(1, 9, 1) / 10)
    x = torch.zeros(1, 1, 4, 2, dtype=torch.float64)
    a = od.Attend(x, x, x, od.Space.grid(2, 2), 1.0, od.Mask())
    w = od.weights(swin.attend(a))[0, 0]
    index = torch.tensor([[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]])
    torch.testing.assert_close(w, (index.double() / 10).softmax(-1), rtol=0, atol=1e-7)


def test_parameters_are_a_table_for_each_block():
    torch.manual_seed(0)
    swin = od.make("swin", heads=12, height=7, width=5, layers=4)
    assert {n: tuple(p.shape) for n, p in swin.named_parameters()} == {"weight": (4, 13 * 9, 12)}
    assert swin.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert abs(swin.weight.mean().item()) < 0.001


def test_one_layer_unless_told():
    assert od.make("swin", heads=2, height=3, width=3).weight.shape == (1, 25, 2)


def test_with_a_table_of_zeros_is_no_position():
    q, k, v = draw(n=6)
    swin = od.make("swin", heads=3, height=2, width=3)
    torch.nn.init.zeros_(swin.weight)
    ours = solve(swin, q, k, v, od.Space.grid(2, 3))
    torch.testing.assert_close(ours, attention(scores(q, k), v), rtol=0, atol=1e-12)


def test_only_the_place_within_the_window_counts():
    """A window elsewhere in the image is the same window."""
    q, k, v = draw(n=6)
    swin, places = redraw(od.make("swin", heads=3, height=2, width=3)), window(2, 3)[None]
    one, other, turned = (
        od.attention(q, k, v, swin, position_ids=p)
        for p in (places, places + torch.tensor([14, -7]), torch.tensor([1, 2]) - places)
    )
    assert torch.equal(one, other)
    assert (one - turned).abs().max() > 1e-3


def test_bridges_two_windows():
    q, k, v = draw(n=2, m=4)
    swin = redraw(od.make("swin", heads=3, height=3, width=3))
    at_q, at_k = torch.tensor([[0, 2], [1, 1]]), torch.tensor([[2, 0], [2, 1], [2, 2], [0, 0]])
    ours = od.attention(
        q, k, v, swin, position_ids=at_q[None], key_position_ids=at_k[None], backend="reference"
    )
    b = bias(swin.weight[0], at_q, at_k, 3, 3)
    equal(ours, attention(scores(q, k) + b, v), q, k, v, swin.weight)


@pytest.mark.parametrize(("height", "width"), [(3, 3), (2, 4)])
def test_equals_transformers(height, width):
    hf = pytest.importorskip("transformers.models.swin.modeling_swin")
    theirs = hf.SwinRelativePositionBias(3, (height, width))
    swin = redraw(od.make("swin", heads=3, height=height, width=width))
    theirs.relative_position_bias_table.data = swin.weight[0].detach()
    q, k, v = draw(n=height * width)
    ours = solve(swin, q, k, v, od.Space.grid(height, width))
    torch.testing.assert_close(ours, attention(scores(q, k) + theirs(), v), rtol=0, atol=1e-10)


@pytest.mark.parametrize("far", [[2, 0], [0, 3], [-1, 0], [1, -2]])
def test_tokens_further_apart_than_a_window_are_refused(far):
    q, k, v = draw(n=3)
    swin = od.make("swin", heads=3, height=2, width=3)
    places = torch.tensor([[[0, 0], far, [1, 1]]])
    with pytest.raises(ValueError, match=r"window of 2 × 3, got positions"):
        od.attention(q, k, v, swin, position_ids=places)


@pytest.mark.parametrize(
    ("places", "words"),
    [
        (torch.arange(3), "2 coordinates, got positions with 1"),
        (torch.zeros(1, 3, 2), "whole steps.*integers"),
    ],
)
def test_positions_are_pairs_of_integers(places, words):
    q, k, v = draw(n=3)
    with pytest.raises(ValueError, match=words):
        od.attention(q, k, v, od.make("swin", heads=3, height=2, width=3), position_ids=places)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"heads": 3, "width": 2}, "swin needs height"),
        ({"heads": 3, "height": 2}, "swin needs width"),
        ({"height": 2, "width": 2}, "swin needs heads"),
    ],
)
def test_missing_sizes_are_named(sizes, words):
    with pytest.raises(ValueError, match=words):
        od.make("swin", **sizes)
