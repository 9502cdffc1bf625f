"""rope: ⟨R_i q_i, R_j k_j⟩ = Re Σ_c q̃_c conj(k̃_c) e^{i (p_i - p_j) θ_c}, θ_c = B^(-2c/D).

Su et al. 2021, eq. 12-16, here with complex numbers and no rotation of anything; partial form and
both pairings as in the published models.
"""

import math

import pytest
import torch

import ordinate as od
from methods.formula import attention, causal, draw, equal, gaps, theta, turned_scores

PLACES = {
    "line": None,
    "jumps": torch.tensor([3, 5, 0, 0, -40, 9000, 77]),
    "real": torch.tensor([0.25, -1.5, 2.0, 8.125, 3.0, 100.7, 0.1], dtype=torch.float64),
    "rows": torch.stack([torch.arange(7) + 2, torch.arange(7).flip(0) * 3]),
}


def paper(q, k, pos, pairing, width, base):
    angle = -gaps(q.shape[2], pos=pos)[..., None] * theta(width, base)
    angle = angle if pos.ndim == 1 else angle[:, None]
    s = turned_scores(q, k, torch.polar(torch.ones_like(angle), angle), pairing)
    return s / math.sqrt(q.shape[-1])


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize(("width", "base"), [(None, 10000.0), (4, 10000.0), (None, 50.0)])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_is_the_formula(pairing, width, base, places):
    q, k, v = draw(n=7, d=6, kv=1)
    rope = od.make("rope", head_dim=6, pairing=pairing, width=width, base=base)
    ours = od.attention(q, k, v, rope, position_ids=PLACES[places], backend="reference")
    pos = torch.arange(7) if PLACES[places] is None else PLACES[places]
    theirs = attention(paper(q, k, pos, pairing, width or 6, base), v)
    equal(ours, theirs, q, k, v)


@pytest.mark.parametrize("n", [1, 3, 7])
@pytest.mark.parametrize("places", PLACES)
def test_queries_are_the_last_tokens(n, places):
    q, k, v = draw(n=n, m=7, d=8)
    ours = od.attention(
        q, k, v, "rope", position_ids=PLACES[places], causal=True, backend="reference"
    )
    pos = torch.arange(7) if PLACES[places] is None else PLACES[places]
    theirs = attention(paper(q, k, pos, "half", 8, 10000.0), v, causal(n, 7))
    equal(ours, theirs, q, k, v)


def test_turns_queries_and_keys_of_two_sequences_at_their_own_places():
    q, k, v = draw(n=3, m=5, d=6)
    at_q, at_k = torch.tensor([8, 1, -5]), torch.tensor([0, 2, 4, 4, 70])
    ours = od.attention(
        q, k, v, "rope", position_ids=at_q, key_position_ids=at_k, backend="reference"
    )
    angle = (at_q[:, None] - at_k)[..., None] * theta(6)
    s = turned_scores(q, k, torch.polar(torch.ones_like(angle), angle), "half") / math.sqrt(6)
    equal(ours, attention(s, v), q, k, v)


def by_hand(x, pos, pairing, width, base):
    """Each pair of channels times its 2 × 2 rotation matrix, one at a time."""
    out = x.clone()
    for n in range(x.shape[2]):
        for c in range(width // 2):
            one, two = (c, c + width // 2) if pairing == "half" else (2 * c, 2 * c + 1)
            angle = float(pos[n]) * base ** (-2 * c / width)
            a, b = x[:, :, n, one], x[:, :, n, two]
            out[:, :, n, one] = math.cos(angle) * a - math.sin(angle) * b
            out[:, :, n, two] = math.sin(angle) * a + math.cos(angle) * b
    return out


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("width", [8, 4, 2])
def test_rotate_turns_each_pair(pairing, width):
    q, k, _ = draw(n=3, m=5, d=8)
    rope = od.make("rope", head_dim=8, pairing=pairing, width=width, base=100.0)
    at_q, at_k = torch.tensor([4, -2, 900]), torch.tensor([0.5, 7, 0, 1e4, 2], dtype=torch.float64)
    turned_q, turned_k = rope.rotate(q, k, position_ids=at_q, key_position_ids=at_k)
    equal(turned_q, by_hand(q, at_q, pairing, width, 100.0), q)
    equal(turned_k, by_hand(k, at_k, pairing, width, 100.0), k)


def test_rotate_of_fewer_queries_needs_no_positions():
    q, k, _ = draw(n=2, m=5, d=8)
    turned_q, turned_k = od.make("rope", head_dim=8).rotate(q, k)
    equal(turned_q, by_hand(q, [3, 4], "half", 8, 10000.0), q)
    equal(turned_k, by_hand(k, range(5), "half", 8, 10000.0), k)


def test_first_pair_turns_by_one_and_the_last_frequency_is_not_the_base():
    """D = 4: θ = 1, 1/100; the slowest is B^(-(D-2)/D), not 1/B as in tensor2tensor's sinusoid."""
    x = torch.tensor([[[[1.0, 1.0, 0.0, 0.0]]]], dtype=torch.float64)
    turned, _ = od.make("rope", head_dim=4).rotate(x, x, position_ids=torch.tensor([1]))
    wanted = torch.tensor([0.5403023058681398, 0.9999500004166653,
                           0.8414709848078965, 0.009999833334166664])  # fmt: skip
    torch.testing.assert_close(turned.flatten(), wanted.double(), rtol=0, atol=1e-7)


def test_rotations_form_a_group_of_isometries():
    """‖R_p x‖ = ‖x‖, R_0 = 1, R_m R_n = R_{m+n}, and m = n leaves q·k alone."""
    q, k, _ = draw(n=5, d=8)
    rope = od.make("rope", head_dim=8)

    def at(x, p):
        return rope.rotate(x, x, position_ids=torch.full((5,), p))[0]

    close = {"rtol": 1e-11, "atol": 1e-11}
    torch.testing.assert_close(at(q, 123).norm(dim=-1), q.norm(dim=-1), **close)
    torch.testing.assert_close(at(q, 0), q, **close)
    torch.testing.assert_close(at(at(q, 11), -30), at(q, -19), **close)
    torch.testing.assert_close((at(q, 17) * at(k, 17)).sum(-1), (q * k).sum(-1), **close)
    assert (at(q, 1) - q).abs().max() > 0.1


def test_half_and_interleaved_are_one_permutation_apart():
    """half(x[perm]) = interleaved(x)[perm] with the evens before the odds, and not without it."""
    q, k, _ = draw(n=5, d=8)
    perm = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    half, interleaved = (od.make("rope", head_dim=8, pairing=p) for p in ("half", "interleaved"))
    one = half.rotate(q[..., perm], k[..., perm])[0]
    two = interleaved.rotate(q, k)[0]
    torch.testing.assert_close(one, two[..., perm], rtol=0, atol=1e-12)
    assert (half.rotate(q, k)[0] - two).abs().max() > 0.1


def test_a_partial_width_divides_exponents_by_the_width():
    """Rotating r of D channels is RoPE of width r on them, and the tail passes through."""
    q, k, _ = draw(n=5, d=8)
    partial = od.make("rope", head_dim=8, width=4).rotate(q, k)[0]
    whole = od.make("rope", head_dim=4).rotate(q[..., :4], k[..., :4])[0]
    torch.testing.assert_close(partial[..., :4], whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(partial[..., 4:], q[..., 4:], rtol=0, atol=0)


def test_special_tokens_are_not_turned():
    q, k, v = draw(n=6, d=6)
    special = torch.tensor([[True, False, False, True, False, False]])
    space = od.Space.points(torch.tensor([5, 1, 2, 8, 4, 7]), special=special)
    a = od.Attend(q, k, v, space, 6**-0.5, od.Mask())
    ours = od.backends.run(od.make("rope", head_dim=6).attend(a), "reference")
    theirs = attention(paper(q, k, torch.tensor([0, 1, 2, 0, 4, 7]), "half", 6, 10000.0), v)
    equal(ours, theirs, q, k, v)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_bfloat16_turns_by_angles_of_full_precision(pairing):
    """At position 100 000 a bfloat16 angle would be off by hundreds of radians."""
    q, k, _ = draw(n=5, d=8)
    q, k = q.bfloat16(), k.bfloat16()
    pos = torch.arange(5) + 100_000
    rope = od.make("rope", head_dim=8, pairing=pairing).bfloat16()
    ours = rope.rotate(q, k, position_ids=pos)[0]
    assert ours.dtype == torch.bfloat16
    wanted = by_hand(q.double(), pos, pairing, 8, 10000.0)
    torch.testing.assert_close(ours.double(), wanted, rtol=2**-8, atol=0.02)


def test_equals_llama():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(hidden_size=32, num_attention_heads=4, num_hidden_layers=1)
    q, k, _ = draw(n=9, h=4, kv=2, d=8)
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, torch.arange(9)[None])
    theirs = llama.apply_rotary_pos_emb(q, k, cos, sin)
    for ours, other in zip(od.make("rope", head_dim=8).rotate(q, k), theirs, strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=1e-5)


def test_equals_gpt_j():
    """GPT-J pairs neighbours and turns the first rotary_dim channels."""
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    q, k, _ = draw(n=9, h=4, d=8)
    sin, cos = gptj.create_sinusoidal_positions(9, 6)[None].chunk(2, -1)
    rope = od.make("rope", head_dim=8, width=6, pairing="interleaved")
    for ours, x in zip(rope.rotate(q, k), (q, k), strict=True):
        turned = gptj.apply_rotary_pos_emb(x.transpose(1, 2)[..., :6], sin, cos).transpose(1, 2)
        torch.testing.assert_close(ours[..., :6], turned, rtol=0, atol=1e-5)
        torch.testing.assert_close(ours[..., 6:], x[..., 6:], rtol=0, atol=0)


def test_equals_roformer():
    roformer = pytest.importorskip("transformers.models.roformer.modeling_roformer")
    table = roformer.RoFormerSinusoidalPositionalEmbedding(9, 8)
    table.weight.data = table.create_weight()
    q, k, _ = draw(n=9, h=4, d=8)
    turn = roformer.RoFormerSelfAttention.apply_rotary_position_embeddings
    theirs = turn(table((1, 9))[None, None], q, k)
    rope = od.make("rope", head_dim=8, pairing="interleaved")
    for ours, other in zip(rope.rotate(q, k), theirs, strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=1e-6)


def test_equals_gpt_neox():
    """NeoX turns a quarter of the head, in halves, with exponents over that quarter."""
    neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")
    parameters = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    config = neox.GPTNeoXConfig(
        hidden_size=64, num_attention_heads=4, num_hidden_layers=1, rope_parameters=parameters
    )
    q, k, _ = draw(n=9, h=4, d=16)
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(q, torch.arange(9)[None])
    assert cos.shape[-1] == 4
    theirs = neox.apply_rotary_pos_emb(q, k, cos, sin)
    for ours, other in zip(od.make("rope", head_dim=16, width=4).rotate(q, k), theirs, strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head_dim": 5}, "even.*5"),
        ({"head_dim": 8, "width": 3}, "width.*even.*3"),
        ({"head_dim": 8, "width": 10}, "width.*10"),
        ({"head_dim": 8, "pairing": "halves"}, "pairing.*did you mean half"),
        ({}, "rope needs head_dim"),
    ],
)
def test_bad_sizes_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        od.make("rope", **options)


def test_a_wrong_head_is_named():
    q, k, v = draw(d=6)
    with pytest.raises(ValueError, match="head_dim=8, the queries have 6"):
        od.attention(q, k, v, od.make("rope", head_dim=8))


def test_has_neither_table_nor_bias():
    rope = od.make("rope", head_dim=8)
    for read, words in ((rope.table, "no table"), (rope.bias, "no bias")):
        with pytest.raises(ValueError, match=words):
            read(4)
