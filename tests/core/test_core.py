"""The nouns one by one: spaces, masks, terms, names, composition, plain numbers."""

import pytest
import torch

import ordinate as od
from ordinate.names import parse, split
from ordinate.tensors import hankel, toeplitz

F64 = torch.float64


# Spaces.


def test_a_line_counts_from_the_first_valid_token_and_in_each_document():
    valid = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]]).bool()
    line = od.Space.line(4, valid=valid)
    assert line.positions[..., 0].tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
    ids = torch.tensor([[4, 4, 4, 4, 9, 9, 9]])
    valid = torch.tensor([[0, 1, 0, 1, 0, 1, 1], [1, 1, 1, 1, 0, 0, 1]]).bool()
    both = od.Space.line(7, valid=valid, documents=ids).positions[..., 0]
    assert both.tolist() == [[0, 0, 1, 2, 0, 0, 1], [0, 1, 2, 3, 0, 0, 0]]
    packed = od.Space.line(5, documents=torch.tensor([[7, 7, 2, 2, 2]]))
    assert packed.positions[..., 0].tolist() == [[0, 1, 0, 1, 2]]
    assert line.unit and packed.unit


def test_a_grid_is_rows_of_y_x_behind_its_prefix():
    grid = od.Space.grid(2, 3, prefix=1)
    assert grid.positions[0].tolist() == [[0, 0], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert grid.special[0].tolist() == [True] + 6 * [False]
    assert (grid.axes, grid.size, grid.unit) == (2, 7, False)


def test_a_space_is_a_value():
    line = od.Space.line(3)
    assert line.but(seed=2).seed == 2 and line.seed is None
    with pytest.raises(AttributeError):
        line.seed = 3


# Masks.


def dense(mask, n, m):
    allowed = mask.allowed(torch.arange(n), torch.arange(m), m - n)
    return torch.ones(1, 1, n, m).bool() if allowed is None else allowed


def test_masks_allow_what_they_say_and_together_what_all_allow():
    n, m = 4, 6
    i, j = torch.arange(n)[:, None] + m - n, torch.arange(m)
    assert dense(od.Mask(), n, m).all()
    assert torch.equal(dense(od.Mask(causal=True), n, m)[0, 0], j <= i)
    assert torch.equal(dense(od.Mask(window=2), n, m)[0, 0], (i - j).abs() < 2)
    assert torch.equal(dense(od.Mask(current=False), n, m)[0, 0], i != j)
    ids = torch.tensor([[0, 0, 1, 1, 1, 2]])
    assert torch.equal(dense(od.Mask(documents=ids), n, m)[0, 0], ids[0][i] == ids[0][j])
    valid = torch.rand(2, m) > 0.3
    free = torch.rand(2, 3, n, m) > 0.5
    parts = [
        od.Mask(causal=True), od.Mask(window=3), od.Mask(window=5), od.Mask(current=False),
        od.Mask(documents=ids), od.Mask(documents=torch.tensor([[0, 1, 1, 1, 0, 0]])),
        od.Mask(valid=valid), od.Mask(dense=free),
    ]  # fmt: skip
    both, want = od.Mask(), torch.ones(2, 3, n, m).bool()
    for part in parts:
        both, want = both & part, want & dense(part, n, m)
    assert torch.equal(dense(both, n, m).expand_as(want), want)


# Matrices of distances.


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (5, 1), (3, 7), (7, 3), (4, 4)])
def test_toeplitz_and_hankel_read_a_line(n, m):
    line = torch.randn(2, n + m - 1, dtype=F64, requires_grad=True)
    i, j = torch.arange(n)[:, None], torch.arange(m)
    t = toeplitz(line, n, m)
    assert torch.equal(t, line[:, j - i + n - 1])
    view = hankel(line.detach(), n, m)
    assert torch.equal(view.flip(-2), t.detach()) and view.stride()[-2:] == (1, 1)
    weight = torch.randn_like(t)
    (ours,) = torch.autograd.grad((t * weight).sum(), line)
    (want,) = torch.autograd.grad((line[:, j - i + n - 1] * weight).sum(), line)
    torch.testing.assert_close(ours, want)


# Terms on their own, over arbitrary places.


def tile(n=3, m=5):
    g = torch.Generator().manual_seed(0)
    q, k = (torch.randint(-9, 9, (2, size, 1), generator=g) for size in (n, m))
    return od.Tile(q, k), k[..., 0][:, None, :] - q[..., 0][:, :, None]


def test_a_distance_adds_or_multiplies_a_number_per_head_and_gap():
    t, gap = tile()
    m = torch.tensor([0.5, 2.0], dtype=F64)
    s = torch.randn(2, 2, 3, 5, dtype=F64)
    want = m[None, :, None, None] * gap[:, None]
    for op, result in (("add", s + want), ("mul", s * want)):
        term = od.Distance(lambda g, m: m[:, None] * g, m, op=op)
        torch.testing.assert_close(term.at(s, t, *term.tensors), result)


@pytest.mark.parametrize("side", ["q", "k"])
def test_a_lookup_is_content_times_a_row_per_gap(side):
    t, gap = tile()
    table = torch.randn(2, 5, 4, dtype=F64)
    left = torch.randn(2, 1 if side == "k" else 2, 3 if side == "q" else 5, 4, dtype=F64)
    term = od.Lookup(left, table, side, row=lambda g: g.clamp(-2, 2) + 2, scale=0.3)
    rows = table[:, gap.clamp(-2, 2) + 2].movedim(0, 1)
    content = left.expand(2, 2, -1, -1)
    content = content[:, :, :, None] if side == "q" else content[:, :, None]
    want = 0.3 * (content * rows).sum(-1)
    s = torch.zeros(2, 2, 3, 5, dtype=F64)
    torch.testing.assert_close(term.at(s, t, left, table), want)


def test_order_matters_where_terms_multiply():
    q = torch.ones(1, 1, 3, 2, dtype=F64)
    a = od.problem(q, q, q)
    plus = od.Distance(lambda g: torch.ones(1, len(g), dtype=F64))
    times = od.Distance(lambda g: 2.0 + 0 * g[None].to(F64), op="mul")
    line = od.Distance(lambda g: g[None].to(F64))
    first, second = (od.weights(a.add(line, *x)) for x in ((plus, times), (times, plus)))
    torch.testing.assert_close(first, second)  # a constant does not show
    first, second = (od.weights(a.add(*x)) for x in ((line, times), (times, line)))
    assert not torch.allclose(first, second)


def test_a_sink_takes_part_of_every_row():
    q = torch.randn(1, 2, 4, 3, dtype=F64)
    a = od.problem(q, q, q).but(norm=od.Softmax(torch.tensor([0.0, 1.0], dtype=F64)))
    s = q @ q.mT / 3**0.5
    want = torch.cat(
        [s, torch.tensor([0.0, 1.0]).double()[None, :, None, None].expand(1, 2, 4, 1)], -1
    )
    torch.testing.assert_close(od.weights(a), want.softmax(-1)[..., :-1])


# Names.


def test_names_split_at_plus_but_not_inside():
    assert split("rope+alibi") == ["rope", "alibi"]
    assert split("rope:base=1e+6+t5") == ["rope:base=1e+6", "t5"]
    assert split("randomized(rope+alibi):draw_from=9+t5")[0] == "randomized(rope+alibi):draw_from=9"
    assert parse("randomized(rope:base=5):draw_from=9") == (
        "randomized", "rope:base=5", {"draw_from": "9"},
    )  # fmt: skip


def test_options_in_the_name_and_beside_it_are_the_same():
    a, b = od.make("rope:base=1e6", head_dim=8), od.make("rope", head_dim=8, base=1e6)
    assert a.base == b.base == 1e6
    assert od.make("alibi:trainable=true", heads=2).log_slopes is not None
    assert od.make("t5:bidirectional=none", heads=2).bidirectional is None


def test_sizes_are_taken_where_they_are_needed():
    made = od.make("rope+alibi+learned", dim=24, heads=3, layers=2, max_len=9)
    assert [p.name for p in made] == ["rope", "alibi", "learned"]
    with pytest.raises(ValueError, match="alibi needs heads"):
        od.make("alibi")
    with pytest.raises(ValueError, match="heads is a whole number of at least 1, got 0"):
        od.make("alibi", heads=0)
    with pytest.raises(ValueError, match="dim=10 does not split into 4 heads"):
        od.make("rope", dim=10, heads=4)
    with pytest.raises(ValueError, match="write them in the name, as rope:base=…"):
        od.make("rope+alibi", heads=2, head_dim=4, base=5)


# Composition.


def test_facts_of_a_chain_come_from_its_parts():
    chain = od.make("learned+fox", dim=8, heads=2, max_len=5)
    assert chain.facts.needs == {"embed", "hidden"} and chain.facts.causal_only
    assert not chain.facts.relative and chain.facts.max_len == 5 and chain.facts.integer
    assert od.make("none+rope", head_dim=4).facts == od.make("rope", head_dim=4).facts


@pytest.mark.parametrize(
    ("on", "acts"),
    [
        ("0-2", [0, 1, 2]), ("1 4", [1, 4]), ("every 4th", [3, 7]), ("not every 4th", [0, 1, 2, 4, 5, 6]),
    ],
)  # fmt: skip
def test_a_method_acts_only_in_its_layers(on, acts):
    position = od.make(f"rope:on={on}", head_dim=4)
    assert [layer for layer in range(8) if position.acts(layer)] == acts
    q = torch.randn(1, 1, 3, 4)
    for layer in range(8):
        ours, none = (od.attention(q, q, q, p, layer=layer) for p in (position, "none"))
        assert torch.equal(ours, none) is (layer not in acts)


def test_parameters_stay_wide_when_a_model_is_narrowed():
    position = od.make("learned+continuous", dim=4, max_len=3)
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2), position]).bfloat16()
    assert model[0].weight.dtype == torch.bfloat16
    assert {p.dtype for p in position.parameters()} == {torch.float32}
    assert {p.dtype for p in position.double().parameters()} == {F64}


# Plain numbers.


def test_plain_numbers_are_what_the_methods_state():
    assert od.make("t5", heads=8).bias(128).shape == (8, 128, 128)
    assert od.make("sinusoidal", dim=512).table(128).shape == (128, 512)
    alibi = od.make("alibi", heads=4)
    assert torch.equal(alibi.bias(3, 5), alibi.bias(5)[:, 2:])
    q = torch.randn(2, 4, 6, 8, dtype=F64)
    bias = alibi.bias(6).double()
    want = torch.nn.functional.scaled_dot_product_attention(q, q, q, bias.expand(2, -1, -1, -1))
    torch.testing.assert_close(od.attention(q, q, q, alibi), want)
    rope = od.make("rope", head_dim=8)
    ids = torch.tensor([0, 5, 2, 9, 1, 1])
    turned, keys = rope.rotate(q, q, position_ids=ids)
    want = torch.nn.functional.scaled_dot_product_attention(turned, keys, q)
    torch.testing.assert_close(od.attention(q, q, q, rope, position_ids=ids), want)


def test_queries_and_keys_turn_at_places_of_their_own():
    rope, x = od.make("rope", head_dim=8), torch.randn(1, 2, 6, 8, dtype=F64)
    _, keys = rope.rotate(x, x)
    last, _ = rope.rotate(
        x[:, :, 4:], x, position_ids=torch.tensor([4, 5]), key_position_ids=torch.arange(6)
    )
    torch.testing.assert_close(last, keys[:, :, 4:])
    with pytest.raises(ValueError, match="2 queries and 6 keys need positions each"):
        rope.rotate(x[:, :, 4:], x, position_ids=torch.tensor([4, 5]))


@pytest.mark.parametrize("name", ["alibi", "t5", "relative", "da", "alibi+t5"])
def test_a_score_mod_gives_what_attention_gives(name):
    position = od.make(name, heads=4, head_dim=8).double()
    if name == "da":
        with pytest.raises(ValueError, match="da cannot be a score_mod: it needs a Local term"):
            position.score_mod()
        return
    for p in position.parameters():
        torch.nn.init.normal_(p)
    mod = position.score_mod(offset=2)
    q, k = torch.randn(1, 4, 3, 8, dtype=F64), torch.randn(1, 4, 5, 8, dtype=F64)
    s = q @ k.mT * 8**-0.5
    index = [torch.tensor(x) for x in range(5)]
    want = torch.stack(
        [
            torch.stack([torch.stack([mod(s[0, h, i, j], index[0], index[h], index[i], index[j])
                                      for j in range(5)]) for i in range(3)])
            for h in range(4)
        ]
    )  # fmt: skip
    a = od.problem(q, k, k, position)
    torch.testing.assert_close(od.weights(a)[0], want.softmax(-1))


@pytest.mark.parametrize(
    ("name", "method", "sentence"),
    [
        ("rope", "bias", "rope adds nothing to the scores, so it has no bias"),
        ("shaw", "bias", "shaw is no plain bias: it depends on the content"),
        ("alibi", "rotate", "alibi does not turn queries and keys"),
        ("alibi", "table", "alibi has no table"),
        ("rope", "score_mod", r"it turns queries and keys \(see rotate\)"),
        ("stick-breaking", "score_mod", "it replaces the softmax"),
        ("shaw", "score_mod", "replaces the product or adds to the values"),
        ("none", "score_mod", "does nothing to the scores"),
        ("fox:dim=8", "bias", "needs the hidden states"),
    ],
)
def test_what_a_method_has_not_it_says(name, method, sentence):
    position = od.make(name, heads=4, head_dim=8)
    q = torch.randn(1, 4, 3, 8)
    arguments = {"bias": (4,), "table": (4,), "rotate": (q, q), "score_mod": ()}[method]
    with pytest.raises(ValueError, match=sentence):
        getattr(position, method)(*arguments)


# The door.

DOOR = [
    "Attend",
    "Chain",
    "Dense",
    "Distance",
    "Facts",
    "Local",
    "Lookup",
    "Mask",
    "Only",
    "Position",
    "Product",
    "Rotation",
    "Score",
    "Softmax",
    "Sources",
    "Space",
    "StickBreaking",
    "Tile",
    "Values",
    "attention",
    "backends",
    "bibtex",
    "explain",
    "frequencies",
    "make",
    "methods",
    "models",
    "problem",
    "testing",
    "weights",
    "Task",
    "compare",
    "experiments",
    "tasks",
    "training",
    "__version__",
]


def test_the_public_door_is_as_agreed_and_every_name_is_documented():
    assert sorted(od.__all__) == sorted(DOOR)
    for name in DOOR:
        value = getattr(od, name)
        if name == "__version__":
            continue
        assert (value.__doc__ or "").strip(), f"{name} has no documentation"
    with pytest.raises(AttributeError, match="no attribute 'attenion'"):
        _ = od.attenion


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_a_score_mod_compiles_in_flex_attention(name):
    from torch.nn.attention.flex_attention import flex_attention

    position = od.make(name, heads=2)
    for p in position.parameters():
        torch.nn.init.normal_(p)
    q, k, v = torch.randn(3, 1, 2, 128, 16)
    with torch.no_grad():
        got = torch.compile(flex_attention)(q, k, v, score_mod=position.score_mod())
        want = od.attention(q, k, v, position)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


# Precision.


@pytest.mark.parametrize("name", ["none", "rope", "t5", "shaw", "fire", "xpos", "stick-breaking"])
def test_automatic_mixed_precision_narrows_projections_and_nothing_else(name):
    position = od.make(name, heads=2, head_dim=8)
    for p in position.parameters():
        torch.nn.init.normal_(p, std=0.5)
    q, k, v = torch.randn(3, 1, 2, 12, 8).bfloat16()
    plain = od.attention(q, k, v, position, causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(od.attention(q, k, v, position, causal=True), plain)


@pytest.mark.parametrize("name", ["fox", "learned:at=qk", "tupe", "rope", "abacus"])
def test_models_train_under_automatic_mixed_precision(name):
    config = od.models.Config(dim=16, layers=2, heads=2, vocab=9, kind="decoder", output="tokens",
                              max_len=12)  # fmt: skip
    model = od.models.Transformer(config, name).eval()
    ids = torch.randint(9, (2, 12))
    exact = model(ids)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(ids)
    torch.testing.assert_close(out.float(), exact, rtol=0.05, atol=0.05)
    out.float().sum().backward()
    assert all(p.grad is not None for p in model.decoder.position.parameters())
