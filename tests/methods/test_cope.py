"""cope: s_ij + q_i·e[p_ij], p_ij = Σ_{t=j}^{i} σ(s_it), between two rows by interpolation.

Golovneva et al. 2024, section 4 and the code in their appendix: the gates read the scaled scores,
the table meets the unscaled query, p ends at the last row, and masked keys have closed gates.
"""

import pytest
import torch

import ordinate as od
from methods.formula import attention, causal, draw, equal, redraw, scores
from methods.places import places, solves


def paper(q, k, table, mask):
    """table [P, D]; mask [n, m]; counted one pair at a time."""
    s, (n, m), last = scores(q, k), mask.shape, len(table) - 1
    gates = s.sigmoid() * mask
    columns = []
    for j in range(m):
        rows = []
        for i in range(n):
            p = gates[:, :, i, j : i + m - n + 1].sum(-1).clamp(max=last)
            low = p.detach().floor().long()
            below, above = table[low], table[(low + 1).clamp(max=last)]
            part = (p - low)[..., None]
            e = (1 - part) * below + part * above
            rows.append((q[:, :, i] * e).sum(-1))
        columns.append(torch.stack(rows, -1))
    return s + torch.stack(columns, -1)


@pytest.mark.parametrize("place", places(causal=[True]), ids=str)
@pytest.mark.parametrize(("layer", "positions"), [(0, 64), (1, 3), (1, 2), (0, 9)])
def test_is_the_formula(place, layer, positions):
    cope = redraw(od.make("cope", head_dim=6, layers=2, positions=positions))
    q, k, v = place.draw()
    s = paper(q, k, cope.weight[layer], place.mask)
    solves(place.problem(q, k, v, cope, layer), s, place.mask, q, k, v, cope.weight)


def test_keys_behind_another_mask_are_not_counted():
    """Padding has no gate: what lies beyond it is nearer by its length."""
    cope = redraw(od.make("cope", head_dim=6))
    q, k, v = draw(b=1)
    seen = torch.tensor([[1, 1, 0, 0, 1, 1, 1]]).bool()
    mask = causal(7) & seen
    ours = od.attention(q, k, v, cope, causal=True, mask=seen)
    theirs = attention(paper(q, k, cope.weight[0], mask), v, mask)
    equal(ours, theirs, q, k, v, cope.weight)


def test_a_window_closes_gates_too():
    cope = redraw(od.make("cope", head_dim=6))
    q, k, v = draw()
    index = torch.arange(7)
    mask = causal(7) & (index[:, None] - index < 3)
    ours = od.attention(q, k, v, cope, causal=True, mask=od.Mask(window=3))
    theirs = attention(paper(q, k, cope.weight[0], mask), v, mask)
    equal(ours, theirs, q, k, v, cope.weight)


def test_open_gates_count_tokens_from_one():
    """All gates 1: a learned bias on i - j + 1 that depends on the query; row 0 is never read."""
    cope = redraw(od.make("cope", head_dim=2, positions=5))
    q = torch.full((1, 1, 7, 2), 40.0, dtype=torch.float64)
    w = od.weights(od.problem(q, q, q, cope, causal=True))
    index = torch.arange(7)
    count = (index[:, None] - index + 1).clamp(0, 4)
    s = (cope.weight[0].sum(-1) * 40)[count].masked_fill(index > index[:, None], -torch.inf)
    torch.testing.assert_close(w[0, 0], s.softmax(-1))
    (found,) = torch.autograd.grad(w[0, 0, :, 0].sum(), cope.weight)
    assert found[0, 0].abs().max() == 0 and found[0, 1:].abs().max() > 0


def test_a_key_counts_itself():
    """One key: p = σ(s), so its row is a mix of e[0] and e[1]."""
    cope = redraw(od.make("cope", head_dim=1, positions=4))
    cope.weight.data[0, :, 0] = torch.tensor([0.0, 1.0, 7.0, 9.0])
    q = torch.tensor([0.0, 1.0]).double().view(1, 1, 2, 1)
    k = torch.zeros(1, 1, 2, 1, dtype=torch.float64)
    # σ(0) = 1/2: the query's own token at p = .5, the one before at p = 1.
    w = od.weights(od.problem(q, k, k, cope, causal=True))[0, 0, 1].log()
    assert (w[0] - w[1]).item() == pytest.approx(1.0 - 0.5)


def test_positions_are_not_read():
    cope = redraw(od.make("cope", head_dim=6))
    q, k, v = draw()
    anywhere = torch.tensor([5, -3, 5, 900, 0, 1, 2])
    moved = od.attention(q, k, v, cope, causal=True, position_ids=anywhere)
    assert torch.equal(moved, od.attention(q, k, v, cope, causal=True))


def test_begins_as_no_position():
    cope = od.make("cope", head_dim=6, layers=3)
    assert cope.weight.shape == (3, 64, 6)
    q, k, v = draw()
    equal(
        od.attention(q, k, v, cope, causal=True),
        od.attention(q, k, v, "none", causal=True),
        q, k, v,
    )  # fmt: skip


@pytest.mark.parametrize("positions", [3, 64])
@pytest.mark.parametrize("n", [7, 3])
def test_x_transformers_agrees(positions, n):
    xt = pytest.importorskip("x_transformers.x_transformers")
    theirs = xt.CoPE(dim=6, heads=3, max_pos=positions).double()
    ours = redraw(od.make("cope", head_dim=6, positions=positions))
    theirs.pos_emb.data.copy_(ours.weight[0])
    q, k, v = draw(n=n, m=7)
    s = scores(q, k).masked_fill(~causal(n, 7), -torch.finfo(torch.float64).max)
    wanted = attention(s + theirs(q, s), v)
    torch.testing.assert_close(od.attention(q, k, v, ours, causal=True), wanted)


def test_bad_input():
    q, k, v = draw()
    cope = od.make("cope", head_dim=6)
    with pytest.raises(ValueError, match=r"cope is for causal attention only: give causal=True"):
        od.attention(q, k, v, cope)
    with pytest.raises(ValueError, match=r"cope needs head_dim"):
        od.make("cope")
    with pytest.raises(ValueError, match=r"cope was made for 1 layers, got layer 1"):
        od.attention(q, k, v, cope, causal=True, layer=1)
    with pytest.raises(ValueError, match=r"content of queries and keys"):
        cope.bias(4)
