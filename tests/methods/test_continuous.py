"""continuous: P_p = W₂ gelu(W₁ t + b₁) + b₂ with t = p/(L - 1), or 2p/(L - 1) - 1.

Ours (no canonical paper): L = max_len is fixed, the positions are not, and gelu is the exact one.
"""

import math

import pytest
import torch

import ordinate as od
from methods.formula import equal, leaf, redraw

PLACES = {
    "line": torch.arange(5),
    "jumps": torch.tensor([7, 0, -4, 7, 300]),
    "real": torch.tensor([0.5, 3.25, -2.0, 1e-3, 80.1], dtype=torch.float64),
    "rows": torch.tensor([[0, 1, 2, 3, 4], [8, 7, 5, 3, 1]]),
}


def paper(method, pos, max_len, centred=False):
    """[..., m] positions to [..., m, d], token by token and unit by unit."""
    w1, b1 = method.inner.weight[:, 0], method.inner.bias
    rows = []
    for p in pos.flatten().tolist():
        t = p / max(max_len - 1, 1)
        z = w1 * (2 * t - 1 if centred else t) + b1
        active = z * 0.5 * (1 + torch.erf(z / math.sqrt(2)))
        rows.append((method.outer.weight * active).sum(1) + method.outer.bias)
    return torch.stack(rows).view(*pos.shape, -1)


@pytest.mark.parametrize("max_len", [1, 2, 9])
@pytest.mark.parametrize("range_", ["unit", "centred"])
@pytest.mark.parametrize("places", PLACES)
def test_tokens_get_the_output_of_the_network(places, range_, max_len):
    x, space = leaf(2, 5, 4), od.Space.points(PLACES[places])
    method = redraw(od.make("continuous", dim=4, max_len=max_len, hidden=3, range=range_))
    ours, same = method.embed(x, space, 0)
    p = paper(method, PLACES[places], max_len, range_ == "centred")
    equal(ours, x + p, x, *method.parameters())
    assert same is space
    assert torch.equal(method.embed(x, space, 1)[0], x)


@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("at", ["qk", "qkv"])
@pytest.mark.parametrize("join", ["add", "concat"])
def test_one_network_serves_the_sources_of_every_layer(join, at, layer):
    space = od.Space.points(PLACES["jumps"])
    sources = od.Sources(leaf(2, 3, 4), leaf(2, 5, 4), leaf(2, 5, 4))
    method = redraw(od.make("continuous", dim=4, max_len=9, layers=3, at=at, join=join))
    network = [*method.inner.parameters(), *method.outer.parameters()]
    for name, x, ours in zip("qkv", sources, method.before(sources, space, layer), strict=True):
        p = paper(method, PLACES["jumps"], 9)[-x.shape[1] :].expand_as(x)
        if name not in at:
            assert torch.equal(ours, x)
        elif join == "add":
            equal(ours, x + p, x, *network)
        else:
            equal(ours, torch.cat([x, p], -1) @ method.mix[layer].T, x, method.mix, *network)


@pytest.mark.parametrize(("hidden", "width"), [(None, 6), (10, 10)])
def test_parameters_are_two_linear_maps(hidden, width):
    method = od.make("continuous", dim=6, max_len=9, layers=4, hidden=hidden)
    assert {n: tuple(p.shape) for n, p in method.named_parameters()} == {
        "inner.weight": (width, 1),
        "inner.bias": (width,),
        "outer.weight": (6, width),
        "outer.bias": (6,),
    }


def test_initialisation_is_that_of_torch():
    torch.manual_seed(0)
    method = od.make("continuous", dim=400, max_len=9)
    assert 0.95 < method.inner.weight.abs().max() <= 1
    assert 0.045 < method.outer.weight.abs().max() <= 0.05
    assert 0.04 < method.outer.bias.abs().max() <= 0.05


def test_ends_of_the_range():
    """Unit: 0 … 1 over max_len positions; centred: -1 … 1; beyond it goes on."""
    for range_, ends in (("unit", [0, 1, 2]), ("centred", [-1, 1, 3])):
        method = od.make("continuous", dim=2, max_len=9, hidden=2, range=range_).double()
        with torch.no_grad():
            # gelu(t) - gelu(-t) = t: the network is the identity of its input.
            method.inner.weight.copy_(torch.tensor([[1.0], [-1.0]]))
            method.outer.weight.copy_(torch.tensor([[1.0, -1.0], [0, 0]]))
            method.inner.bias.zero_()
            method.outer.bias.zero_()
        space = od.Space.points(torch.tensor([0, 8, 16]))
        out, _ = method.embed(torch.zeros(1, 3, 2, dtype=torch.float64), space, 0)
        assert out[0, :, 0].tolist() == pytest.approx(ends, abs=1e-12)


def test_positions_beyond_the_length_are_allowed():
    method = od.make("continuous", dim=4, max_len=9)
    assert method.facts.max_len is None
    assert method.table(40).shape == (40, 4)
    assert method.table(40).isfinite().all()


def test_one_layer_unless_told():
    assert od.make("continuous", dim=4, max_len=9, at="qk", join="concat").mix.shape == (1, 4, 8)


def test_table_lists_positions():
    method = redraw(od.make("continuous", dim=4, max_len=9))
    wanted = paper(method, torch.arange(12), 9)
    torch.testing.assert_close(method.table(12).double(), wanted, rtol=0, atol=1e-6)


def test_special_tokens_get_no_vector():
    x, special = leaf(2, 5, 4), torch.tensor([[True, False, False, True, False]])
    method = redraw(od.make("continuous", dim=4, max_len=9))
    space = od.Space.points(PLACES["jumps"], special=special)
    p = paper(method, PLACES["jumps"], 9).masked_fill(special[0, :, None], 0)
    equal(method.embed(x, space, 0)[0], x + p, x, *method.parameters())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dim": 4}, "continuous needs max_len"),
        ({"max_len": 4}, "continuous needs dim"),
        ({"dim": 4, "max_len": 4, "range": "zero"}, "range is one of unit, centred"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        od.make("continuous", **options)
