"""learned: x_p + E[p], a table of max_len vectors (Gehring et al. 2017, section 3.1)."""

import pytest
import torch

import ordinate as od
from methods.formula import equal, leaf, redraw

PLACES = {
    "line": torch.arange(5),
    "jumps": torch.tensor([7, 0, 3, 7, 8]),
    "rows": torch.tensor([[0, 1, 2, 3, 4], [8, 7, 5, 3, 1]]),
}


def make(**options):
    return od.make("learned", dim=4, max_len=9, layers=3, **options)


def look_up(table, pos):
    """Rows of `table` [max_len, d], one token at a time."""
    return torch.stack([table[p] for p in pos.flatten().tolist()]).view(*pos.shape, -1)


@pytest.mark.parametrize("n", [1, 3, 5])
@pytest.mark.parametrize("places", PLACES)
def test_tokens_get_the_row_of_their_position(places, n):
    x, space = leaf(2, n, 4), od.Space.points(PLACES[places])
    learned = redraw(make())
    ours, same = learned.embed(x, space, 0)
    equal(ours, x + look_up(learned.weight[0], PLACES[places])[..., -n:, :], x, learned.weight)
    assert same is space
    for layer in (1, 2):
        assert torch.equal(learned.embed(x, space, layer)[0], x)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("at", ["qk", "qkv"])
@pytest.mark.parametrize("join", ["add", "concat"])
def test_sources_of_every_layer_get_rows_of_its_table(join, at, layer, shared):
    """At q, k and v this is the `standard` of the blog that ExpoSB comes from."""
    space = od.Space.points(PLACES["jumps"])
    sources = od.Sources(leaf(2, 3, 4), leaf(2, 5, 4), leaf(2, 5, 4))
    learned = redraw(make(at=at, join=join, shared=shared))
    assert learned.facts.needs == {"hidden"}
    assert torch.equal(learned.embed(sources.q, space, layer)[0], sources.q)
    table = learned.weight[0 if shared else layer]
    for name, x, ours in zip("qkv", sources, learned.before(sources, space, layer), strict=True):
        p = look_up(table, PLACES["jumps"])[-x.shape[1] :].expand_as(x)
        if name not in at:
            assert torch.equal(ours, x)
        elif join == "add":
            equal(ours, x + p, x, learned.weight)
        else:
            theirs = torch.cat([x, p], -1) @ learned.mix[layer].T
            equal(ours, theirs, x, learned.weight, learned.mix)


def test_concatenates_tokens():
    x, space = leaf(2, 5, 4), od.Space.points(PLACES["rows"])
    learned = redraw(make(join="concat"))
    both = torch.cat([x, look_up(learned.weight[0], PLACES["rows"])], -1)
    ours = learned.embed(x, space, 0)[0]
    equal(ours, both @ learned.mix[0].T, x, learned.weight, learned.mix)


@pytest.mark.parametrize(
    ("options", "copies"),
    [({}, 1), ({"at": "qk"}, 3), ({"at": "qkv"}, 3), ({"at": "qkv", "shared": True}, 1)],
    ids=str,
)
def test_parameters(options, copies):
    """Golden: 196 608 numbers per module at 512 × 384; std .02 as BERT."""
    torch.manual_seed(0)
    learned = od.make("learned", dim=384, max_len=512, layers=3, **options)
    assert {n: tuple(p.shape) for n, p in learned.named_parameters()} == {
        "weight": (copies, 512, 384)
    }
    assert learned.weight.numel() == copies * 196_608
    assert learned.weight.std().item() == pytest.approx(0.02, rel=0.01)
    assert abs(learned.weight.mean().item()) < 2e-4


@pytest.mark.parametrize("at", ["tokens", "qk"])
def test_one_layer_unless_told(at):
    assert od.make("learned", dim=4, max_len=9, at=at).weight.shape == (1, 9, 4)
    both = od.make("learned", dim=4, max_len=9, at=at, join="concat")
    assert both.mix.shape == (1, 4, 8)


def test_table_lists_rows():
    learned = redraw(make())
    torch.testing.assert_close(learned.table(6), learned.weight[0, :6], rtol=0, atol=0)


def test_special_tokens_get_no_row():
    x, special = leaf(2, 5, 4), torch.tensor([[True, False, False, True, False]])
    learned = redraw(make())
    space = od.Space.points(PLACES["jumps"], special=special)
    p = look_up(learned.weight[0], PLACES["jumps"]).masked_fill(special[0, :, None], 0)
    equal(learned.embed(x, space, 0)[0], x + p, x, learned.weight)


@pytest.mark.parametrize("at", ["tokens", "qk"])
@pytest.mark.parametrize("far", [9, 1000, -1])
def test_a_position_outside_the_table_is_refused(far, at):
    """Never a clamp, a wrap or an index error: the message names the position and the length."""
    x, space = leaf(1, 3, 4), od.Space.points(torch.tensor([0, far, 2]))
    learned = make(at=at)
    with pytest.raises(ValueError, match=rf"positions 0 … 8, got position {far}\b"):
        learned.embed(x, space, 0)
        learned.before(od.Sources(x, x, x), space, 0)


@pytest.mark.parametrize("which", ["special", "valid"])
def test_tokens_without_a_place_may_stand_anywhere(which):
    """The position of padding or of a special token is not read."""
    flag = torch.tensor([[False, True, False]])
    space = od.Space.points(torch.tensor([0, 999, 2])).but(
        **{which: flag if which == "special" else ~flag}
    )
    learned = redraw(make())
    out, _ = learned.embed(torch.zeros(1, 3, 4).double(), space, 0)
    torch.testing.assert_close(out[0, [0, 2]], learned.weight[0, [0, 2]], rtol=0, atol=0)


def test_a_table_beyond_its_rows_is_refused():
    with pytest.raises(ValueError, match="positions 0 … 8, got position 9"):
        make().table(10)


def test_positions_are_whole_numbers():
    space = od.Space.points(torch.tensor([0, 1.5, 2]))
    with pytest.raises(ValueError, match="learned counts whole steps"):
        make().embed(torch.ones(1, 3, 4), space, 0)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [({"dim": 4}, "learned needs max_len"), ({"max_len": 4}, "learned needs dim")],
)
def test_missing_sizes_are_named(sizes, words):
    with pytest.raises(ValueError, match=words):
        od.make("learned", **sizes)


@pytest.mark.parametrize(("at", "words"), [("tokens", "embedding stage"), ("qkv", "hidden states")])
def test_attention_alone_cannot_give_what_it_needs(at, words):
    q = torch.ones(1, 1, 3, 4)
    with pytest.raises(ValueError, match=f"learned.*needs.*{words}"):
        od.attention(q, q, q, make(at=at))
