"""What broke once, or would have been silent: each is right now, or says what is wrong."""

import warnings

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import ordinate as od
from ordinate.models import Cache, Config, Memory, Transformer

F64 = torch.float64


def qkv(n=6, m=None, b=2, h=4, d=8, dtype=F64):
    g = torch.Generator().manual_seed(0)
    sizes = ((b, h, n, d), (b, h, m or n, d), (b, h, m or n, d))
    return [torch.randn(s, generator=g, dtype=F64).to(dtype) for s in sizes]


def model(position="rope", *, cross="none", **config):
    torch.manual_seed(0)
    sizes = {"dim": 16, "layers": 2, "heads": 2, "vocab": 20, "max_len": 32, "output": "tokens"}
    return Transformer(Config(**{**sizes, "kind": "decoder", **config}), position, cross=cross)


def ids(n=8, b=2, seed=0):
    return torch.randint(20, (b, n), generator=torch.Generator().manual_seed(seed))


Q = torch.randn(2, 4, 6, 8)

# Masks.


@pytest.mark.parametrize("shape", [(2, 1, 1, 6), (1, 1, 6, 1), (1, 4, 6, 6), (2, 4, 6, 6)])
@pytest.mark.parametrize("backend", ["sdpa", "reference"])
def test_a_mask_broadcasts(shape, backend):
    q, k, v = qkv()
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.3
    got = od.attention(q, k, v, "rope", mask=mask, backend=backend)
    rotated = od.make("rope", head_dim=8).rotate(q, k)
    want = scaled_dot_product_attention(*rotated, v, mask).nan_to_num(0)
    torch.testing.assert_close(got, want.masked_fill(~mask.any(-1, keepdim=True), 0))


@pytest.mark.parametrize("backend", ["sdpa", "reference"])
def test_rows_that_see_nothing_have_finite_gradients(backend):
    inputs = [x.requires_grad_() for x in qkv()]
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[0, :3] = False
    out = od.attention(*inputs, "rope", causal=True, mask=mask, backend=backend)
    out.square().sum().backward()
    assert out[0, :, :3].eq(0).all()
    assert all(x.grad.isfinite().all() for x in inputs)


@pytest.mark.parametrize("name", ["none", "alibi", "rope"])
def test_padding_and_windows_take_no_matrix_of_indices(name):
    from torch.profiler import ProfilerActivity, profile

    n = 2048
    q = torch.randn(1, 1, n, 8)
    valid = torch.ones(1, n, dtype=torch.bool)
    options = {"mask": od.Mask(window=9)} if name == "alibi" else {"mask": valid}
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as log:
        od.attention(q, q, q, name, backend="sdpa", **options)
    assert max(e.cpu_memory_usage for e in log.events()) < 2 * n * n


# Precision and places.


def test_a_bias_is_not_rounded_to_the_type_of_the_queries():
    q, k, v = (x * s for x, s in zip(qkv(300, h=8, dtype=torch.bfloat16), (10, 1, 1), strict=True))
    exact = od.attention(q.double(), k.double(), v.double(), "alibi")
    far = [
        (od.attention(q, k, v, "alibi", backend=name).double() - exact).norm()
        for name in ("sdpa", "reference")
    ]
    assert far[0] <= 1.2 * far[1]


def test_parameters_are_wide_under_a_narrow_default_type():
    plain = od.make("sininit+tupe", dim=16, heads=2, max_len=300)
    try:
        torch.set_default_dtype(torch.bfloat16)
        narrow = od.make("sininit+tupe", dim=16, heads=2, max_len=300)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {p.dtype for p in narrow.parameters()} == {torch.float32}
    table, same = narrow.parts[0].weight, plain.parts[0].weight
    assert torch.equal(table, same) and not torch.equal(table[0, 256], table[0, 257])


def test_a_space_is_a_place_too():
    q, k, v = qkv(7)
    grid = od.Space.grid(2, 3, prefix=1)
    position = od.make("axial-rope", head_dim=8)
    got = od.attention(q, k, v, position, position_ids=grid)
    moved = grid.but(positions=grid.positions + (torch.arange(7) == 0)[None, :, None] * 5)
    torch.testing.assert_close(od.attention(q, k, v, position, position_ids=moved), got)


def test_rows_far_apart_make_no_large_table():
    places = torch.stack([torch.arange(6), torch.arange(6) + 10**7])
    a = od.problem(*qkv(), "alibi", position_ids=places)
    assert a.reach() == (-5, 5)


def test_meta_tensors_pass():
    q = torch.empty(1, 2, 5, 8, device="meta")
    with torch.device("meta"):
        position = od.make("rope+t5", heads=2, head_dim=8)
    assert od.attention(q, q, q, position, backend="reference").is_meta


def test_a_score_mod_is_loud_beyond_its_reach():
    mod = od.make("alibi", heads=2).score_mod(reach=4)
    one = torch.ones(())
    at = [torch.tensor(i) for i in range(8)]
    assert mod(one, at[0], at[1], at[4], at[0]).isfinite()
    assert mod(one, at[0], at[1], at[5], at[0]).isnan()


def test_lengths_do_not_each_compile():
    torch.compiler.reset()
    position, graphs = od.make("alibi", heads=2), []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def call(q):
        return od.attention(q, q, q, position, causal=True, backend="sdpa")

    compiled = torch.compile(call, backend=count, fullgraph=True)
    for n in range(70, 400, 30):
        q = torch.randn(1, 2, n, 8)
        torch.testing.assert_close(compiled(q), call(q))
    assert len(graphs) <= 2


# The cache.


def test_what_comes_out_of_a_cache_has_no_gradient():
    assert not model()(ids(), cache=Cache()).requires_grad


@pytest.mark.parametrize("name", ["rope", "dynamic-ntk"])
def test_a_call_that_fails_in_the_middle_can_be_repeated(name):
    made, text, cache = model(name, max_len=4).eval(), ids(10), Cache()
    made(text[:, :8], cache=cache)
    block = made.decoder.blocks[1]
    hook = block.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("stop")))
    with pytest.raises(RuntimeError, match="stop"):
        made(text[:, 8:], cache=cache)
    hook.remove()
    assert len(cache) == 8
    torch.testing.assert_close(made(text[:, 8:], cache=cache), made(text)[:, 8:])


def test_a_cache_goes_back():
    made, text, cache = model().eval(), ids(), Cache()
    made(text, cache=cache)
    cache.rewind(3)
    torch.testing.assert_close(made(text[:, 3:], cache=cache), made(text)[:, 3:])
    cache.rewind(0)
    assert made(ids(4, b=5), cache=cache).shape == (5, 4, 20)
    with pytest.raises(ValueError, match="holds 4 tokens, it cannot go back to 9"):
        cache.rewind(9)


def test_the_source_of_a_failed_call_is_forgotten():
    made, cache = model(kind="encoder-decoder").eval(), Cache()
    with pytest.raises(ValueError, match="token ids"):
        made(ids() + 20, source=ids(5, seed=1), cache=cache)
    got = made(ids(), source=ids(5, seed=2), cache=cache)
    torch.testing.assert_close(got, made(ids(), source=ids(5, seed=2)))


def wrong_cache(*calls, **config):
    def run():
        made, cache = model(**config), Cache()
        for call in calls:
            made(**{"x": ids(), "cache": cache, **call})

    return run


VALID_BEHIND = torch.tensor([[True] * 8, [True] * 5 + [False] * 3])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (wrong_cache({"valid": VALID_BEHIND}), "pad texts in front, not behind"),
        (wrong_cache({}, {"valid": torch.ones(2, 16).bool()}), "valid is that of the new tokens"),
        (wrong_cache({}, output="classes", outputs=2), "pooled output is of a whole text"),
        (
            wrong_cache({"source": ids(4)}, {"source": ids(4)}, kind="encoder-decoder"),
            "holds a source already",
        ),
        (wrong_cache({"memory": Memory(4)}), "does not go with a cache"),
        (
            lambda: model(kind="encoder-decoder")(
                ids(), source=ids(4), documents=torch.zeros(2, 8, dtype=torch.long)
            ),
            "would share one source",
        ),
        (
            lambda: model(kind="encoder-decoder")(ids(), source=ids(4, b=3)),
            "as many sources, got 3",
        ),
        (lambda: model(kind="encoder", output="hidden")(ids(), source=ids()), "encoder-decoder"),
        (lambda: model(None), "position is a name or a method from od.make, got None"),
        (lambda: model(("rope", "t5", "t5"), kind="encoder-decoder"), "is two methods"),
        (lambda: od.models.Attention(10, 3), "does not split into 3 heads"),
        (lambda: model(cross="rope"), "has no cross-attention: leave out cross"),
        (lambda: model(outputs=3), "outputs=3 is for output='classes' or 'numbers'"),
    ],
)
def test_models_refuse_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


# Methods.


def test_cross_attention_keeps_what_its_method_says():
    made = model(kind="encoder-decoder", cross="tener")
    assert isinstance(made.decoder.blocks[0].across.k, torch.nn.Identity)
    assert isinstance(made.decoder.blocks[0].attention.k, torch.nn.Linear)


def test_padding_may_lie_beyond_a_table():
    q, k, v = qkv(6)
    for name in ("tupe", "tupe:cls=true"):
        position = od.make(name, dim=32, heads=4, head_dim=8, max_len=4).double()
        mask = torch.tensor([[True] * 4 + [False] * 2] * 2)
        got = od.attention(q, k, v, position, mask=mask)[:, :, :4]
        alone = od.attention(*(x[:, :, :4] for x in (q, k, v)), position)
        torch.testing.assert_close(got, alone)


def attend(position, *, n=6, m=None, dtype=F64, **options):
    def run():
        made = od.make(position, dim=32, heads=4, head_dim=8, max_len=64)
        return od.attention(*qkv(n, m, dtype=dtype), made, **options)

    return run


TWO = {"position_ids": torch.arange(6), "key_position_ids": torch.arange(3)}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (attend("rope", mask=torch.ones(2, 4, 6, 7).bool()), r"broadcast to \[b, h, n, m\]"),
        (attend("rope", mask=torch.ones(2, 3, 6, 6).bool()), r"broadcast to \[b, h, n, m\]"),
        (
            attend("rope", mask=od.Mask(valid=torch.ones(2, 5).bool())),
            r"padding, \[b, m\] = \[2, 6\]",
        ),
        (lambda: od.Mask(window=0), "a window is at least 1, the token itself, got 0"),
        (attend("rope", m=3, mask=od.Mask(window=2), **TWO), "between two sequences no token"),
        (attend("rope", m=3, mask=od.Mask(causal=True), **TWO), "between two sequences no token"),
        (attend("alibi:sides=split", m=3, **TWO), "means nothing between two sequences"),
        (attend("rope", dropout=1.0), "dropout is at least 0 and below 1"),
        (attend("rope", layer=-1), "got layer -1"),
        (attend("rope", position_ids=[0, 1]), "a tensor of positions, or an od.Space, got list"),
        (lambda: od.attention(*qkv(), None), "position is a name or a method"),
        (lambda: od.attention(qkv()[0], *qkv(dtype=torch.float32)[1:]), "real numbers of one type"),
        (lambda: od.attention(*(x.long() for x in qkv())), "real numbers of one type"),
        (lambda: od.attention(None, *qkv()[1:]), "q is a tensor, got NoneType"),
        (attend("xpos", causal=True, position_ids=torch.arange(6) + 10**6), "xpos in torch.float"),
        (attend("xpos", n=9000, causal=True, dtype=torch.float16), "reaches 3626 positions"),
        (attend("shaw+tupe"), "changes the scale that one before it has used: put it first"),
        (lambda: od.make("sinusoidal:on=1", dim=8), "on='1' means nothing for it"),
        (lambda: od.make("rope:on=every 0", head_dim=8), "names no layers"),
        (lambda: od.make("rope:on=5-2", head_dim=8), "names no layers"),
        (lambda: od.make("rope:base=1,base=2", head_dim=8), "base is given twice"),
        (lambda: od.make("rope:base=1", head_dim=8, base=2), "in the name .* and beside it"),
        (lambda: od.make("rope)(", head_dim=8), "is not a method"),
        (lambda: od.make(3), "a method is named by text"),
        (lambda: od.make("rope", head_dim=True), "head_dim is a whole number"),
        (lambda: od.make("rope:base=-2", head_dim=8), "a number of at least 0, got '-2'"),
        (lambda: od.make("rope:base=0", head_dim=8), "rope:base is a number above 0"),
        (lambda: od.make("ROPE", head_dim=8), r"no method is called 'ROPE' \(did you mean rope"),
        (lambda: od.make("rope:on=9", head_dim=8, layers=2), "none of the layers 0 … 1"),
        (lambda: od.make("fox"), "fox needs dim and heads"),
        (lambda: od.Space.grid(0, 3), "1 or more rows and columns"),
        (lambda: od.weights(Q, Q), "q, k, v and a method"),
        (lambda: od.explain(Q, Q, Q, "rope", backend="sdpa"), "leave out backend"),
        (lambda: od.make("relative:clip=0", heads=2), "a whole number of at least 1, got '0'"),
        (lambda: od.make("rse:rate=x", head_dim=8), "rse:rate is a number, got 'x'"),
        (lambda: od.make("sinusoidal", dim=8).table(0), "1 or more positions, got n=0"),
        (lambda: od.Space.line(0), "1 or more tokens, got n=0"),
        (lambda: od.make("swin", heads=2, height=2, width=2).bias(4), "2 coordinates, and a line"),
    ],
)
def test_methods_and_attention_refuse_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


ROPE = od.make("rope", head_dim=8)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ROPE.rotate(Q, Q[:, :, :5]), "6 queries for 5 keys"),
        (lambda: ROPE.rotate(Q, Q, key_position_ids=torch.arange(6)), "give position_ids of the"),
        (lambda: ROPE.rotate(Q, Q, position_ids=torch.tensor([7])), r"position_ids is \[6\]"),
        (lambda: ROPE.rotate(Q, Q, position_ids=torch.zeros(3, 6)), r"position_ids is \[6\]"),
        (lambda: ROPE.rotate(Q.repeat(1, 1, 1, 2), Q.repeat(1, 1, 1, 2)), "made with head_dim=8"),
        (lambda: od.make("axial-rope", head_dim=8).rotate(Q, Q), "2 coordinates"),
    ],
)
def test_rotate_refuses_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_explaining_takes_a_problem_or_what_attention_takes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        q = torch.randn(1, 8, 100, 16)
        assert od.explain(od.problem(q, q, q, "rope")) == od.explain(q, q, q, "rope")
