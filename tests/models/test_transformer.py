"""The model as its users meet it: kinds, outputs, norms, and what it says to wrong input."""

import pytest
import torch
from torch import nn

import ordinate as od
from ordinate.models import Attention, Cache, Config, Memory, Transformer

SIZES = {"dim": 24, "layers": 2, "heads": 3, "vocab": 30, "max_len": 40}


def model(position="rope", *, seed=0, **config):
    torch.manual_seed(seed)
    cross = config.pop("cross", "none")
    return Transformer(Config(**{**SIZES, **config}), position, cross=cross).double().eval()


def tokens(n=9, b=2, seed=0):
    return torch.randint(30, (b, n), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_plain_encoder_is_torch_s_own(norm):
    """With no position our encoder is nn.TransformerEncoder, weight for weight."""
    ours = model("none", norm=norm, activation="relu", vocab=None)
    layer = nn.TransformerEncoderLayer(
        24, 3, 96, 0.0, "relu", batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    )
    final = nn.LayerNorm(24, dtype=torch.float64) if norm == "pre" else None
    theirs = nn.TransformerEncoder(layer, 2, final, enable_nested_tensor=False).eval()
    for mine, other in zip(ours.encoder.blocks, theirs.layers, strict=True):
        attention = mine.attention
        with torch.no_grad():
            parts = (attention.q, attention.k, attention.v)
            other.self_attn.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
            other.self_attn.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
        other.self_attn.out_proj.load_state_dict(attention.out.state_dict())
        other.linear1.load_state_dict(mine.feed[0].state_dict())
        other.linear2.load_state_dict(mine.feed[2].state_dict())
        other.norm1.load_state_dict(mine.norms[0].state_dict())
        other.norm2.load_state_dict(mine.norms[1].state_dict())
    x = torch.randn(2, 7, 24, dtype=torch.float64)
    valid = torch.ones(2, 7, dtype=torch.bool)
    valid[1, 5:] = False
    want = theirs(x, src_key_padding_mask=~valid)
    torch.testing.assert_close(ours(x, valid=valid)[valid], want[valid])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_plain_encoder_decoder_is_torch_s_own(norm):
    ours = model("none", kind="encoder-decoder", norm=norm, activation="relu", vocab=None)
    theirs = nn.TransformerDecoderLayer(
        24, 3, 96, 0.0, "relu", batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    ).eval()
    block = ours.decoder.blocks[0]
    for mine, other in ((block.attention, theirs.self_attn), (block.across, theirs.multihead_attn)):
        parts = (mine.q, mine.k, mine.v)
        with torch.no_grad():
            other.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
            other.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
        other.out_proj.load_state_dict(mine.out.state_dict())
    theirs.linear1.load_state_dict(block.feed[0].state_dict())
    theirs.linear2.load_state_dict(block.feed[2].state_dict())
    for mine, other in zip(block.norms, (theirs.norm1, theirs.norm3, theirs.norm2), strict=True):
        other.load_state_dict(mine.state_dict())
    x, source = (torch.randn(2, n, 24, dtype=torch.float64) for n in (5, 7))
    space, there = od.Space.line(5), od.Space.line(7)
    from ordinate.masks import Mask

    got = block(
        x, ours.decoder.position, space, Mask(causal=True), 0, "auto",
        context=(source, there, ours.decoder.between),
    )  # fmt: skip
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(got, theirs(x, source, tgt_mask=future))


@pytest.mark.parametrize(
    ("output", "shape"),
    [("tokens", (2, 9, 30)), ("classes", (2, 4)), ("numbers", (2, 4)), ("hidden", (2, 9, 24))],
)
@pytest.mark.parametrize("kind", ["encoder", "decoder", "encoder-decoder"])
def test_outputs_have_their_shape(kind, output, shape):
    made = model(kind=kind, output=output, outputs=4 if output in ("classes", "numbers") else None)
    extra = {"source": tokens(5)} if kind == "encoder-decoder" else {}
    assert made(tokens(), **extra).shape == shape


@pytest.mark.parametrize("pool", ["mean", "first", "last"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_pooling_skips_padding(pool, side):
    made, text = model(output="classes", outputs=4, pool=pool), tokens()
    valid = torch.ones(2, 9, dtype=torch.bool)
    own = slice(3, 9) if side == "left" else slice(0, 6)
    valid[0] = False
    valid[0, own] = True
    got = made(text, valid=valid)
    torch.testing.assert_close(got[:1], made(text[:1, own]))


@pytest.mark.parametrize("kv_heads", [1, 3])
def test_grouped_heads_have_fewer_keys(kv_heads):
    made = model(kv_heads=kv_heads)
    assert made.encoder.blocks[0].attention.k.out_features == kv_heads * 8
    assert made(tokens()).shape == (2, 9, 24)


def test_an_encoder_decoder_decodes_with_a_cache_and_a_padded_source():
    made = model(kind="encoder-decoder", output="tokens", cross="rope")
    text, source = tokens(6), tokens(5, seed=1)
    source_valid = torch.tensor([[True] * 5, [False] * 2 + [True] * 3])
    whole = made(text, source=source, source_valid=source_valid)
    alone = made(text[1:], source=source[1:, 2:])
    torch.testing.assert_close(whole[1:], alone)
    cache, parts = Cache(), []
    for i, step in enumerate(text.split(2, 1)):
        given = {"source": source, "source_valid": source_valid} if i == 0 else {}
        parts.append(made(step, cache=cache, **given))
    torch.testing.assert_close(torch.cat(parts, 1), whole)


def test_cross_attention_has_no_position_unless_asked():
    plain, placed = (model(kind="encoder-decoder", cross=c) for c in ("none", "rope"))
    placed.load_state_dict(plain.state_dict())
    text, source = tokens(4), tokens(6, seed=2)
    assert not torch.allclose(plain(text, source=source), placed(text, source=source))


def test_a_pair_gives_each_stack_its_method():
    made = model(("t5", "xpos"), kind="encoder-decoder")
    assert [s.position.name for s in (made.encoder, made.decoder)] == ["t5", "xpos"]
    same = model("t5", kind="encoder-decoder")
    assert same.encoder.position is not same.decoder.position


def test_packed_documents_equal_separate_runs():
    made, text = model("rope+t5", output="tokens"), tokens(9, 1)
    ids = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1]])
    packed = made(text, documents=ids)
    torch.testing.assert_close(packed[:, :4], made(text[:, :4]))
    torch.testing.assert_close(packed[:, 4:], made(text[:, 4:]))


def test_left_padded_prompts_decode_as_they_would_alone():
    made, text = model(kind="decoder", output="tokens"), tokens(8)
    valid = torch.ones(2, 5, dtype=torch.bool)
    valid[0, :3] = False
    cache = Cache()
    parts = [made(text[:, :5], valid=valid, cache=cache)]
    parts += [made(text[:, i : i + 1], cache=cache) for i in range(5, 8)]
    got = torch.cat(parts, 1)
    torch.testing.assert_close(got[1:], made(text[1:]))
    torch.testing.assert_close(got[:1, 3:], made(text[:1, 3:]))


def test_a_failed_step_leaves_the_cache_as_it_was():
    made, text, cache = model(kind="decoder", output="tokens"), tokens(6), Cache()
    first = made(text[:, :3], cache=cache)
    with pytest.raises(ValueError, match=r"token ids are 0 … 29 \(vocab=30\), got"):
        made(text[:, 3:] + 30, cache=cache)
    assert len(cache) == 3
    rest = made(text[:, 3:], cache=cache)
    torch.testing.assert_close(torch.cat([first, rest], 1), made(text))


def test_keys_are_kept_turned_and_only_new_ones_are_turned():
    made, text, cache = model("rope", kind="decoder"), tokens(6), Cache()
    made(text[:, :5], cache=cache)
    assert cache.layer(0).turned == 5
    made(text[:, 5:], cache=cache)
    assert cache.layer(0).turned == 6
    raw = Cache()
    model("rope+deberta:clip=4", kind="decoder")(text, cache=raw)
    assert raw.layer(0).turned == 0, "a lookup reads keys without their rotation"


def test_a_stale_cache_is_computed_again_unless_asked_otherwise():
    made, text = model("dynamic-ntk", kind="decoder", output="tokens", max_len=5), tokens(9)
    outs = []
    for approximate in (False, True):
        cache = Cache(approximate=approximate)
        parts = [made(text[:, i : i + 1], cache=cache) for i in range(9)]
        outs.append(parts[-1])
    whole = made(text)[:, -1:]
    torch.testing.assert_close(outs[0], whole)
    assert not torch.allclose(outs[1], whole)


def test_memory_reaches_back_and_projections_learn_from_it():
    made, text = model("transformer-xl", kind="decoder", output="tokens"), tokens(9)
    memory = Memory(9)
    made(text[:, :5], memory=memory)
    assert len(memory) == 5
    out = made(text[:, 5:], memory=memory)
    torch.testing.assert_close(out, made(text)[:, 5:])
    short = Memory(2)
    for part in text.split(3, 1):
        last = made(part, memory=short)
    assert len(short) == 2 and not torch.allclose(last, made(text)[:, 6:])
    # Only what is remembered differs between these two: the keys' weight learns from it.
    grads = []
    for m in (Memory(9), None):
        if m is not None:
            made(text[:, :5], memory=m)
        made.zero_grad()
        made(text[:, 5:], memory=m).sum().backward()
        grads.append(made.decoder.blocks[0].attention.k.weight.grad.clone())
    assert not torch.allclose(*grads)
    assert not any(t.requires_grad for t in memory.inputs)


def test_dropout_acts_in_training_only():
    made, text = model(dropout=0.5), tokens()
    assert torch.equal(made(text), made(text))
    made.train()
    assert not torch.equal(made(text), made(text))


def test_only_methods_that_draw_touch_the_random_state():
    for name, draws in (("rope", False), ("randomized(rope):draw_from=40", True)):
        made, text = model(name), tokens()
        before = torch.random.get_rng_state()
        made(text)
        assert torch.equal(before, torch.random.get_rng_state()) is not draws


def test_checkpointing_recomputes_blocks():
    made = model(checkpoint=True).train()
    calls = []
    made.encoder.blocks[1].register_forward_pre_hook(lambda *_: calls.append(1))
    made(tokens()).sum().backward()
    assert len(calls) == 2


def test_grids_and_other_places_are_given_as_a_space():
    made = model("axial-rope", vocab=None)
    x = torch.randn(2, 7, 24, dtype=torch.float64)
    space = od.Space.grid(2, 3, prefix=1)
    assert made(x, space=space).shape == (2, 7, 24)
    turned = od.Space.grid(3, 2, prefix=1)
    assert not torch.allclose(made(x, space=space), made(x, space=turned))


def wrong(**changes):
    return lambda: Config(**{**SIZES, **changes})


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (wrong(heads=0), "heads is a whole number of at least 1, got 0"),
        (wrong(dim=2.5), "dim is a whole number of at least 1, got 2.5"),
        (wrong(heads=5), "dim=24 does not split into 5 heads: give head_dim too"),
        (wrong(kv_heads=2), "3 query heads do not group over 2 key heads"),
        (wrong(kind="enc"), "kind is one of encoder, decoder, encoder-decoder, got 'enc'"),
        (wrong(norm="prep"), r"norm is one of pre, post, got 'prep' \(did you mean pre\?\)"),
        (wrong(dropout=1.0), "dropout is at least 0 and below 1, got 1.0"),
        (wrong(output="tokens", vocab=None), "give vocab"),
        (wrong(output="classes"), "give outputs"),
        (lambda: model("xpos"), "xpos is for causal attention only and an encoder looks both ways"),
        (lambda: model("nope"), "no method is called 'nope'"),
        (lambda: model("learned", max_len=None), "learned needs max_len"),
        (lambda: model(od.make("rope", head_dim=8), kind="encoder-decoder"), "an instance"),
        (lambda: model(("rope", "rope")), "has one stack: give one position"),
        (lambda: model(kind="encoder-decoder", cross="fox"), "fox means nothing between two"),
        (lambda: model(od.make("shaw", head_dim=8, layers=1)), "made for 1 layers, the model has 2"),
        (lambda: model(od.make("learned", dim=8, max_len=9)), "made with dim=8, the model has 24"),
        (lambda: model(od.make("alibi", heads=8))(tokens()), "made with heads=8, the queries have 3"),
        (lambda: model("learned", max_len=5)(tokens()), "positions 0 … 4, got position 8"),
        (lambda: model()(tokens()[0]), r"a batch is \[b, n\] or \[b, n, dim\]"),
        (lambda: model()(tokens()[:, :0]), "not empty"),
        (lambda: model()(tokens() + 30), r"token ids are 0 … 29 \(vocab=30\), got"),
        (lambda: model()(torch.randn(2, 3, 7)), "dim=24, got"),
        (lambda: model(vocab=None)(tokens()), "give its Config a vocab"),
        (lambda: model()(tokens(), valid=torch.ones(2, 3)), r"valid is \[2, 9\] here, got \[2, 3\]"),
        (lambda: model()(tokens(), space=od.Space.line(4)), "places 4 tokens, the text has 9"),
        (lambda: model()(tokens(), cache=Cache()), "for causal models: use kind='decoder'"),
        (lambda: model(kind="encoder-decoder")(tokens()), "give source"),
        (lambda: model(kind="decoder")(tokens(), source=tokens()), "use kind='encoder-decoder'"),
        (lambda: model("learned", kind="decoder")(tokens(), memory=Memory(4)), "not relative"),
        (lambda: model(kind="decoder")(tokens(), memory=Memory(4), cache=Cache()), "go with a cache"),
        (lambda: Memory(0), "a whole number of tokens, 1 or more, got 0"),
        (lambda: model("abacus", vocab=None)(torch.randn(2, 3, 24).double()), "needs the token ids"),
        (lambda: Attention(24, 3, kv_heads=1, key_projection=False), "without a key projection"),
        (
            lambda: model(output="classes", outputs=2)(tokens(), documents=torch.zeros(2, 9)),
            "give documents as rows",
        ),
        (
            lambda: [c := Cache(), model(kind="decoder")(tokens(), cache=c),
                     model(kind="decoder")(tokens(b=3), cache=c)],
            "the cache holds 2 texts, got 3",
        ),
    ],
)  # fmt: skip
def test_wrong_input_gets_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


COMMON = ["learned", "rope+alibi", "t5"]


@pytest.mark.parametrize("name", COMMON)
def test_compiles_without_a_graph_break(name):
    """Traced whole; what a compiler then makes of the graph is torch's matter."""
    torch.compiler.reset()
    made = model(name, kind="decoder", output="tokens", dropout=0.1)
    traced = torch.compile(made, fullgraph=True, backend="eager")
    torch.testing.assert_close(traced(tokens()), made(tokens()))


# Methods that draw, or live on a grid, are not on the common path.
OTHERS = {*od.methods.names()} - {*COMMON, "randomized", "swin", "axial-rope"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OTHERS))
def test_every_method_compiles_without_a_graph_break(name):
    made = model(name, kind="decoder", output="tokens")
    torch.compiler.reset()
    traced = torch.compile(made, fullgraph=True, backend="eager")
    torch.testing.assert_close(traced(tokens()), made(tokens()))
