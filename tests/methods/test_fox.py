"""fox: s_ij = q_i·k_j/√D + Σ_{t=j+1}^{i} ln f_t, f_t = σ(w_h·x_t + b_h) (Lin et al. 2025)."""

import math

import pytest
import torch

import ordinate as od
from methods.formula import attention, draw, equal, leaf, redraw, repeated, scores
from methods.places import Place, places, solves


def gates(fox, x, layer):
    """ln f [b, m, H] of the hidden states [b, m, dim]."""
    f = 1 / (1 + (-(x @ fox.weight[layer].T + fox.shift[layer])).exp())
    return f.log()


def decay(gate, n):
    """Σ_{t=j+1}^{i} ln f_t for the last n of m queries, a pair at a time: [b, H, n, m]."""
    m = gate.shape[1]
    rows = [
        torch.stack([gate[:, j + 1 : i + 1].sum(1) for j in range(m)], -1) for i in range(m - n, m)
    ]
    return torch.stack(rows, 2)


@pytest.mark.parametrize("place", places(causal=[True]), ids=str)
@pytest.mark.parametrize("layer", [0, 1])
def test_is_the_formula(place, layer):
    fox = redraw(od.make("fox", dim=8, heads=4, layers=2))
    q, k, v = place.draw()
    x = leaf(2, place.m, 8, generator=torch.Generator().manual_seed(4))
    space = od.Space.line(place.m)
    kept = fox.remember(x, space, layer)
    theirs = gates(fox, x, layer)
    equal(kept["gate"], theirs, x, *fox.parameters())
    a = place.attend(q, k, v, fox, layer, kept=kept)
    solves(a, scores(q, k) + decay(theirs, place.n), place.mask, q, k, v, x, *fox.parameters())


def test_a_token_does_not_forget_itself():
    """The product starts after the key: ones on the diagonal, f_i just before it."""
    fox = od.make("fox", dim=8, heads=1).double()
    gate = torch.tensor([0.9, 0.5, 0.25]).double().log()[None, :, None]
    zero = torch.zeros(1, 1, 3, 2, dtype=torch.float64)
    w = od.weights(Place(3, 3, 1, True).attend(zero, zero, zero, fox, kept={"gate": gate}))[0, 0]
    ratio = w / w.diagonal()[:, None]
    wanted = torch.tensor([[1, 0, 0], [0.5, 1, 0], [0.125, 0.25, 1]]).double()
    torch.testing.assert_close(ratio, wanted)


def test_a_constant_gate_is_alibi():
    """ln σ(b) = -m where b = -ln(e^m - 1): ALiBi's slopes, head by head."""
    fox = od.make("fox", dim=8, heads=4).double()
    fox.weight.data.zero_()
    m = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], dtype=torch.float64)
    fox.shift.data.copy_(-m.expm1().log())
    place = Place(7, 7, 2, True)
    q, k, v = place.draw()
    x = torch.randn(2, 7, 8).double()
    a = place.attend(q, k, v, fox, kept=fox.remember(x, od.Space.line(7), 0))
    wanted = od.attention(q, k, v, "alibi", causal=True)
    torch.testing.assert_close(od.backends.run(a, "reference"), wanted, rtol=1e-9, atol=1e-10)


def test_padding_forgets_nothing():
    """Tokens on both sides of padding are as near as if it were not there."""
    fox = redraw(od.make("fox", dim=8, heads=4))
    valid = torch.tensor([[1, 1, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]]).bool()
    q, k, v = Place(7, 7, 4, True).draw()
    x = leaf(2, 7, 8)
    space = od.Space.line(7, valid=valid)
    mask = od.Mask(causal=True, valid=valid)
    kept = fox.remember(x, space, 0)
    a = fox.attend(od.Attend(q, k, v, space, scale=6**-0.5, mask=mask, kept=kept))
    gate = gates(fox, x, 0) * valid[:, :, None]
    seen = torch.ones(7, 7).tril().bool() & valid[:, None, None]
    equal(
        od.backends.run(a, "reference")[valid[:, None].expand(2, 4, 7)],
        attention(scores(q, k) + decay(gate, 7), v, seen)[valid[:, None].expand(2, 4, 7)],
        q, k, v, x, *fox.parameters(),
    )  # fmt: skip


def test_gates_come_from_the_keys_of_the_whole_context():
    """Decoding: what was remembered in pieces serves as if it came at once."""
    fox = redraw(od.make("fox", dim=8, heads=4))
    q, k, v = Place(7, 7, 4, True).draw()
    x = torch.randn(2, 7, 8).double()
    line = od.Space.line
    whole = fox.remember(x, line(7), 0)["gate"]
    first = fox.remember(x[:, :4], line(4), 0)["gate"]
    rest = fox.remember(x[:, 4:], line(7), 0)["gate"]
    torch.testing.assert_close(torch.cat([first, rest], 1), whole)
    full = od.backends.run(Place(7, 7, 4, True).attend(q, k, v, fox, kept={"gate": whole}))
    step = od.backends.run(
        Place(2, 7, 4, True).attend(q[:, :, 5:], k, v, fox, kept={"gate": whole})
    )
    torch.testing.assert_close(step, full[:, :, 5:])


def test_positions_are_not_read():
    fox = redraw(od.make("fox", dim=8, heads=4))
    moved = Place(7, 7, 4, True, torch.tensor([[5, -3, 8, 900, 0, 1, 2]]))
    q, k, v = moved.draw()
    kept = fox.remember(torch.randn(2, 7, 8).double(), od.Space.line(7), 0)
    one, two = (
        od.backends.run(place.attend(q, k, v, fox, kept=kept))
        for place in (moved, Place(7, 7, 4, True))
    )
    assert torch.equal(one, two)


def test_gates_are_never_narrower_than_float32():
    fox = od.make("fox", dim=8, heads=2).bfloat16()
    assert fox.weight.dtype == torch.float32
    x = torch.randn(1, 8, 8).bfloat16()
    gate = fox.remember(x, od.Space.line(5), 0)["gate"]
    assert gate.dtype == torch.float32
    wanted = gates(od.make("fox", dim=8, heads=2), x.float(), 0)
    assert gate.shape == wanted.shape == (1, 8, 2)


def test_begins_by_forgetting_half_each_step():
    torch.manual_seed(0)
    fox = od.make("fox", dim=300, heads=4, layers=2)
    assert {n: tuple(p.shape) for n, p in fox.named_parameters()} == {
        "weight": (2, 4, 300),
        "shift": (2, 4),
    }
    assert od.make("fox", dim=8, heads=4).weight.shape == (1, 4, 8)
    assert fox.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert (fox.shift == 0).all()
    gate = fox.remember(torch.zeros(1, 3, 300), od.Space.line(3), 0)["gate"]
    torch.testing.assert_close(gate, torch.full_like(gate, math.log(0.5)))


def test_x_transformers_agrees():
    xt = pytest.importorskip("x_transformers.x_transformers")
    theirs = xt.DataDependentAlibi(dim=8, heads=4, causal=True).double()
    ours = redraw(od.make("fox", dim=8, heads=4))
    linear = theirs.to_forget_gates[0]
    with torch.no_grad():
        linear.weight.copy_(ours.weight[0])
        linear.bias.copy_(ours.shift[0])
    place = Place(7, 7, 4, True)
    q, k, v = place.draw()
    x = torch.randn(2, 7, 8).double()
    wanted = attention(scores(q, k) + theirs(x), v, place.mask)
    a = place.attend(q, k, v, ours, kept=ours.remember(x, od.Space.line(7), 0))
    torch.testing.assert_close(od.backends.run(a, "reference"), wanted)


def test_grouped_heads_forget_by_query_head():
    fox = redraw(od.make("fox", dim=8, heads=4))
    q, k, v = Place(7, 7, 2, True).draw()
    kept = fox.remember(torch.randn(2, 7, 8).double(), od.Space.line(7), 0)
    assert kept["gate"].shape == (2, 7, 4)
    one = Place(7, 7, 2, True).attend(q, k, v, fox, kept=kept)
    two = Place(7, 7, 4, True).attend(q, repeated(k, 4), repeated(v, 4), fox, kept=kept)
    torch.testing.assert_close(od.backends.run(one), od.backends.run(two))


def test_bad_input():
    q, k, v = draw(h=4)
    fox = od.make("fox", dim=24, heads=4)
    with pytest.raises(ValueError, match=r"fox needs the hidden states .*od.attention cannot give"):
        od.attention(q, k, v, fox, causal=True)
    with pytest.raises(ValueError, match=r"fox needs (dim|heads)"):
        od.make("fox")
    assert fox.facts.causal_only and fox.facts.relative and fox.facts.needs == {"hidden"}
