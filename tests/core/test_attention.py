"""od.attention as its users meet it: what it equals, and what it says to wrong input."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import ordinate as od


def qkv(n=7, m=None, b=2, h=4, kv=None, d=8, dv=None):
    g = torch.Generator().manual_seed(0)
    m = m or n

    def draw(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64)

    return draw(b, h, n, d), draw(b, kv or h, m, d), draw(b, kv or h, m, dv or d)


@pytest.mark.parametrize("backend", ["sdpa", "reference"])
@pytest.mark.parametrize("causal", [False, True])
def test_without_position_it_is_torch_s_own(causal, backend):
    q, k, v = qkv(dv=5)
    want = scaled_dot_product_attention(q, k, v, is_causal=causal)
    torch.testing.assert_close(od.attention(q, k, v, causal=causal, backend=backend), want)


def test_grouped_heads_are_copies():
    q, k, v = qkv(kv=2)
    want = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(od.attention(q, k, v), want)


def test_the_other_layout_is_a_transpose():
    q, k, v = qkv()
    flipped = [x.transpose(1, 2) for x in (q, k, v)]
    got = od.attention(*flipped, "rope", layout="bnhd")
    torch.testing.assert_close(got.transpose(1, 2), od.attention(q, k, v, "rope"))


def test_position_ids_place_tokens_and_by_default_they_count():
    q, k, v = qkv()
    position = od.make("rope+alibi", heads=4, head_dim=8)
    counted = od.attention(q, k, v, position)
    torch.testing.assert_close(
        od.attention(q, k, v, position, position_ids=torch.arange(7)), counted
    )
    own = torch.stack([torch.arange(7), torch.arange(7) * 3])
    both = od.attention(q, k, v, position, position_ids=own)
    torch.testing.assert_close(both[:1], counted[:1])
    assert not torch.allclose(both[1:], counted[1:])


def test_packed_documents_are_separate():
    q, k, v = qkv(b=1)
    position = od.make("rope+alibi", heads=4, head_dim=8)
    packed = od.attention(q, k, v, position, causal=True, cu_seqlens=torch.tensor([0, 3, 7]))
    for part in (slice(0, 3), slice(3, 7)):
        alone = od.attention(*(x[:, :, part] for x in (q, k, v)), position, causal=True)
        torch.testing.assert_close(packed[:, :, part], alone)


def test_padding_in_front_starts_the_count_behind_it():
    q, k, v = qkv()
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[0, :3] = False
    got = od.attention(q, k, v, "xpos", causal=True, mask=mask)
    alone = od.attention(*(x[:1, :, 3:] for x in (q, k, v)), "xpos", causal=True)
    torch.testing.assert_close(got[:1, :, 3:], alone)


def test_two_sequences_have_positions_each():
    q, k, v = qkv(3, 5)
    here, there = torch.tensor([0, 2, 9]), torch.arange(5)
    position = od.make("alibi", heads=4)
    got = od.attention(q, k, v, position, position_ids=here, key_position_ids=there)
    slopes = torch.tensor([2.0 ** -(2 * h) for h in range(1, 5)], dtype=torch.float64)
    bias = -slopes[:, None, None] * (there - here[:, None]).abs()
    want = scaled_dot_product_attention(q, k, v, bias.expand(2, -1, -1, -1))
    torch.testing.assert_close(got, want)


def test_weights_are_the_maps():
    q, k, v = qkv()
    a = od.problem(q, k, v, od.make("t5", heads=4), causal=True)
    maps = od.weights(a)
    assert maps.shape == (2, 4, 7, 7)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 4, 7, dtype=torch.float64))
    torch.testing.assert_close(maps @ v, od.backends.run(a))
    assert not maps.triu(1).any()


def test_dropout_drops_weights():
    q, k, v = qkv()
    torch.manual_seed(0)
    assert not torch.equal(od.attention(q, k, v, dropout=0.5), od.attention(q, k, v))


def test_a_slice_of_heads_equals_the_slice_of_all():
    q, k, v = qkv()
    a = od.attention(q, k, v, od.make("rope", head_dim=8))
    torch.testing.assert_close(od.attention(q[:, :1], k[:, :1], v[:, :1], "rope"), a[:, :1])


def call(*changed, position="rope", **options):
    def inner():
        tensors = list(qkv(b=1))
        for i, x in changed:
            tensors[i] = x
        return od.attention(*tensors, position, **options)

    return inner


def made(name):
    return od.make(name, dim=32, heads=4, head_dim=8)


Q = torch.zeros(1, 4, 7, 8, dtype=torch.float64)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (call((0, Q[0])), r"q is \[b, h, n, d\] .* got \[4, 7, 8\]"),
        (call((0, Q[:, :, :0])), r"q is empty: its shape is \[1, 4, 0, 8\]"),
        (call((0, Q[:, :0])), "q is empty"),
        (call((1, Q[..., :4])), r"k \[b, kv, m, d\].* got q \[1, 4, 7, 8\], k \[1, 4, 7, 4\]"),
        (call((1, Q[:, :3]), (2, Q[:, :3])), "4 query heads do not group over 3 key heads"),
        (call((0, Q.repeat(1, 1, 2, 1))), "14 queries for 7 keys"),
        (call(layout="bdhn"), "layout is 'bhnd' or 'bnhd', got 'bdhn'"),
        (call(position="ropes"), r"no method is called 'ropes' \(did you mean rope\?\)"),
        (call(position="rope:bse=2"), r"rope has no option 'bse' \(did you mean base\?\); it takes"),
        (call(position="rope:base=big"), "rope:base is a number, got 'big'"),
        (call(position="rope:pairing=halves"), r"one of half, interleaved, .*mean half"),
        (call(position="rope:width=3"), "its width is even and at most head_dim=8, got 3"),
        (call(position="rope:width=16"), "its width is even and at most head_dim=8, got 16"),
        (call(position=od.make("alibi", heads=3)), "made with heads=3, the queries have 4"),
        (call(position=od.make("rope", head_dim=6)), "made with head_dim=6, the queries have 8"),
        (call(position=made("shaw"), layer=1), "made for 1 layers, got layer 1"),
        (call(position=made("shaw"), layer=-1), "counted from 0, got layer -1"),
        (call(position="xpos"), "xpos is for causal attention only: give causal=True"),
        (call(position="sinusoidal:dim=32"), "needs the embedding stage .* od.attention cannot give"),
        (call(position=made("fox"), causal=True), "needs the hidden states"),
        (call(position="axial-rope"), "2 coordinates, got positions with 1"),
        (call(position_ids=torch.zeros(1, 7, 2)), "1 coordinate, got positions with 2"),
        (call(position_ids=torch.arange(5)), r"position_ids is \[7\], \[1, 7\] or .* got shape"),
        (call(position_ids=torch.zeros(1, 1, 7, 1)), "got shape"),
        (call(position_ids=torch.full((7,), torch.nan)), "NaN or infinity"),
        (call(position_ids=torch.zeros(7, dtype=torch.bfloat16)), "cannot tell 256 from 257"),
        (call(position_ids=torch.zeros(7, device="meta")), "on meta and the queries on cpu"),
        (call(position=made("t5"), position_ids=torch.rand(7)), "t5 counts whole steps"),
        (call(key_position_ids=torch.arange(7)), "give position_ids of the queries"),
        (
            call(position_ids=torch.arange(7), key_position_ids=torch.arange(7), causal=True),
            "between two sequences",
        ),
        (
            call(position="stick-breaking", position_ids=torch.arange(7),
                 key_position_ids=torch.arange(7)),
            "means nothing between two sequences",
        ),
        (call(mask=torch.zeros(1, 7)), "mask is boolean"),
        (call(mask=torch.ones(7, dtype=torch.bool)), "has four dimensions"),
        (call(mask=torch.ones(1, 7, dtype=torch.bool, device="meta")), "mask is on meta"),
        (call(cu_seqlens=torch.tensor([0, 3])), r"rising from 0 to 7, got \[0, 3\]"),
        (call(position=od.make("t5", heads=4).to("meta")), "t5 is on meta and the queries on cpu"),
        (call(position="t5"), "t5 learns, .* make it once with od.make"),
        (call(position="rope+", causal=True), "'rope\\+' is not a method: write names joined by"),
        (call(position="randomized"), r"randomized wraps another method: write randomized\(NAME\)"),
        (call(position="alibi(rope)"), "alibi wraps no other method"),
        (call(position=made("stick-breaking+rse")), "two methods of this chain both replace the norm"),
        (call(position="rope+axial-rope"), "parts for the same space"),
        (call(position="none:x=1"), "none takes no options"),
        (call(position="rope:on=sometimes"), "on='sometimes' names no layers"),
    ],
)  # fmt: skip
def test_wrong_input_gets_one_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        wrong()
    assert "\n" not in str(caught.value)


def test_nan_comes_out_where_it_went_in():
    q, k, v = qkv()
    q[0, 0, 6] = torch.nan
    out = od.attention(q, k, v, "rope+alibi", causal=True)
    assert out[:, :, :6].isfinite().all() and out[0, 0, 6].isnan().all()
    assert out[1].isfinite().all() and out[0, 1:].isfinite().all()
