"""randomized: position p becomes the p-th smallest of L numbers drawn from {0 … draw_from - 1}.

Ruoss et al. 2023, section 3: without replacement, sorted, one draw for the batch, at test too.
"""

import pytest
import torch

import ordinate as od
from methods.formula import draw, equal, leaf, redraw


def numbers(n, draw_from, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.tensor(sorted(torch.randperm(draw_from, generator=g)[:n].tolist()))


def make(inner="rope", draw_from=50, **sizes):
    sizes = {"dim": 8, "heads": 2, "head_dim": 4, "layers": 3, "max_len": 50, **sizes}
    return od.make(f"randomized({inner}):draw_from={draw_from}", **sizes)


def moved(method, space, b=2):
    """The positions after the embedding stage, [b|1, m]."""
    x = torch.zeros(b, space.size, 8)
    return method.embed(x, space, 0)[1].positions[..., 0]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("n", "draw_from"), [(1, 50), (7, 50), (7, 8), (7, 7)])
def test_draws_sorted_numbers_without_replacement(n, draw_from, seed, training):
    method = make(draw_from=draw_from).train(training)
    places = moved(method, od.Space.line(n).but(seed=seed))
    assert places.shape == (1, n)
    assert torch.equal(places[0], numbers(n, draw_from, seed))
    assert places.min() >= 0 and places.max() < draw_from
    assert (places.diff() > 0).all()


def test_draws_from_2048_unless_told():
    method = od.make("randomized(rope)", head_dim=4)
    assert torch.equal(moved(method, od.Space.line(9).but(seed=3))[0], numbers(9, 2048, 3))


def test_seeds_differ_and_repeat():
    one, other, again = (moved(make(), od.Space.line(9).but(seed=s)) for s in (1, 2, 1))
    assert not torch.equal(one, other)
    assert torch.equal(one, again)


def test_a_position_is_looked_up_in_the_draw():
    """Where positions are not 0 … n-1 the draw is as long as the highest of the batch requires."""
    pos = torch.tensor([[4, 0, 9, 9], [1, 2, 3, 0]])
    places = moved(make(), od.Space.points(pos, seed=5))
    assert torch.equal(places, numbers(10, 50, 5)[pos])


def test_packed_documents_read_the_same_draw():
    documents = torch.tensor([[0, 0, 1, 1, 1]])
    space = od.Space.line(5, documents=documents).but(seed=5)
    assert space.positions[0, :, 0].tolist() == [0, 1, 0, 1, 2]
    assert torch.equal(moved(make(), space)[0], numbers(5, 50, 5)[[0, 1, 0, 1, 2]])


def test_the_space_handed_on_is_no_longer_unit():
    valid, tokens = torch.ones(2, 5).bool(), torch.arange(10).view(2, 5)
    space = od.Space.line(5, valid=valid).but(seed=5, tokens=tokens)
    x = torch.zeros(2, 2, 8)
    _, new = make().embed(x, space, 0)
    assert not new.unit
    assert (new.valid is valid, new.tokens is tokens, new.size) == (True, True, 5)
    assert torch.equal(make().embed(x, new, 1)[1].positions, new.positions)


@pytest.mark.parametrize("inner", ["rope", "alibi", "t5:max_distance=30", "shaw:clip=20"])
def test_attention_sees_the_drawn_positions(inner):
    q, k, v = draw(h=2, n=4, m=7, d=4)
    method = redraw(make(inner))
    space = od.Space.line(7).but(seed=11)
    _, new = method.embed(torch.zeros(2, 4, 8), space, 0)
    a = od.Attend(q, k, v, new, 0.5, od.Mask(causal=True), layer=1)
    ours = od.backends.run(method.attend(a), "reference")
    plain = redraw(od.make(inner, dim=8, heads=2, head_dim=4, layers=3))
    theirs = od.attention(
        q, k, v, plain, causal=True, layer=1, position_ids=numbers(7, 50, 11), backend="reference"
    )
    equal(ours, theirs, q, k, v)


def test_a_table_gives_the_rows_of_the_draw():
    method = redraw(make("learned"))
    x = leaf(2, 4, 8)
    ours, _ = method.embed(x, od.Space.line(7).but(seed=3), 0)
    (weight,) = method.parameters()
    equal(ours, x + weight[0][numbers(7, 50, 3)[-4:]], x, weight)


def test_a_table_of_every_layer_reads_the_same_draw():
    method = redraw(make("learned:at=qk"))
    x = leaf(2, 7, 8)
    same, space = method.embed(x, od.Space.line(7).but(seed=3), 0)
    assert torch.equal(same, x)
    _, space = method.embed(x, space, 2)
    ours = method.before(od.Sources(x, x, x), space, 2)
    (weight,) = method.parameters()
    equal(ours.q, x + weight[2][numbers(7, 50, 3)], x, weight)
    assert torch.equal(ours.v, x)


def test_drawing_every_number_is_the_identity():
    assert moved(make(draw_from=9), od.Space.line(9).but(seed=4))[0].tolist() == list(range(9))


def test_the_draw_goes_stale_when_the_length_grows():
    method = make()
    assert len({method.epoch(od.Space.line(n)) for n in (1, 2, 9, 10)}) == 4
    assert method.facts.length_dependent
    assert method.facts.integer
    assert not method.facts.relative


@pytest.mark.parametrize(
    ("inner", "needs"),
    [("rope", {"embed", "seed"}), ("learned:at=qk", {"embed", "seed", "hidden"})],
)
def test_needs_the_embedding_stage_and_a_seed_and_what_is_inside(inner, needs):
    assert make(inner).facts.needs == needs


@pytest.mark.parametrize(
    "space", [od.Space.line(9), od.Space.points(torch.tensor([0, 8]))], ids=["line", "points"]
)
def test_more_tokens_than_numbers_are_refused(space):
    with pytest.raises(ValueError, match=r"(?s)(?=.*9)(?=.*8)(?=.*draw_from)"):
        moved(make(draw_from=8), space.but(seed=1))


@pytest.mark.parametrize(
    ("pos", "words"), [([0.5, 1, 2], "whole steps"), ([0, -1, 2], "from 0, got -1")]
)
def test_positions_are_counted_from_zero(pos, words):
    with pytest.raises(ValueError, match=words):
        moved(make(), od.Space.points(torch.tensor(pos), seed=1))


def test_a_seed_is_needed():
    with pytest.raises(ValueError, match="seed"):
        moved(make(), od.Space.line(3))


def test_attention_alone_has_no_seed():
    q = torch.ones(1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"randomized.*needs"):
        od.attention(q, q, q, make())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("randomized", r"randomized wraps another method: write randomized\(NAME\)"),
        ("randomized(ropa)", "rope"),
        ("randomized(rope):draw_from=0", "draw_from"),
        ("randomized(rope):draw=5", "no option 'draw'.*draw_from"),
    ],
)
def test_bad_names_are_explained(name, words):
    with pytest.raises(ValueError, match=words):
        od.make(name, head_dim=4)
