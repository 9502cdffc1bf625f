"""sininit: a learned table that begins as the sinusoids of Vaswani et al. 2017, section 3.5."""

import pytest
import torch

import ordinate as od
from methods.formula import equal, leaf, redraw
from methods.test_sinusoidal import paper

PLACES = torch.tensor([7, 0, 3, 7, 8])


def make(dim=6, **options):
    return od.make("sininit", dim=dim, max_len=9, layers=3, **options)


@pytest.mark.parametrize("dim", [5, 6])
@pytest.mark.parametrize("at", ["tokens", "qkv"])
@pytest.mark.parametrize("layout", ["interleaved", "split", "tensor2tensor"])
def test_every_layer_begins_as_the_sinusoids(layout, at, dim):
    method = make(dim, layout=layout, base=70.0, at=at)
    start = paper(torch.arange(9), dim, layout, 70.0).expand(1 if at == "tokens" else 3, 9, dim)
    torch.testing.assert_close(method.weight.detach().double(), start, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dim", [5, 6])
def test_equals_sinusoidal_at_the_start(dim):
    x, space = torch.randn(2, 5, dim), od.Space.points(PLACES)
    ours, theirs = (m.embed(x, space, 0)[0] for m in (make(dim), od.make("sinusoidal", dim=dim)))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", [2, 5])
def test_is_trained(n):
    """After any step it is a table like another: rows are looked up, and gradients reach them."""
    x, space = leaf(2, n, 6), od.Space.points(PLACES)
    method = redraw(make())
    rows = torch.stack([method.weight[0, p] for p in PLACES[-n:].tolist()])
    equal(method.embed(x, space, 0)[0], x + rows, x, method.weight)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("at", ["qk", "qkv"])
def test_acts_on_sources_too(at, shared):
    space = od.Space.points(PLACES)
    sources = od.Sources(leaf(2, 3, 6), leaf(2, 5, 6), leaf(2, 5, 6))
    method = redraw(make(at=at, shared=shared, join="concat"))
    assert method.weight.shape[0] == (1 if shared else 3)
    table = method.weight[0 if shared else 1]
    for name, x, ours in zip("qkv", sources, method.before(sources, space, 1), strict=True):
        p = table[PLACES][-x.shape[1] :].expand_as(x)
        if name in at:
            theirs = torch.cat([x, p], -1) @ method.mix[1].T
            equal(ours, theirs, x, method.weight, method.mix)
        else:
            assert torch.equal(ours, x)


def test_reset_returns_to_the_sinusoids():
    method = redraw(make()).float()
    method.reset_parameters()
    start = paper(torch.arange(9), 6)
    torch.testing.assert_close(method.weight[0].double(), start, rtol=0, atol=1e-6)


def test_one_layer_unless_told():
    assert od.make("sininit", dim=6, max_len=9, at="qk").weight.shape == (1, 9, 6)


def test_table_lists_rows():
    method = redraw(make())
    torch.testing.assert_close(method.table(9), method.weight[0], rtol=0, atol=0)


@pytest.mark.parametrize("far", [9, -1])
def test_a_position_outside_the_table_is_refused(far):
    space = od.Space.points(torch.tensor([0, far, 2]))
    with pytest.raises(ValueError, match=rf"positions 0 … 8, got position {far}\b"):
        make().embed(torch.ones(1, 3, 6), space, 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dim": 6}, "sininit needs max_len"),
        ({"dim": 6, "max_len": 9, "layout": "conformer"}, "layout is one of interleaved, split"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        od.make("sininit", **options)
