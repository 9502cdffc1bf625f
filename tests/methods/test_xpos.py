"""xpos: s_ij = Re Σ_c q̃_c conj(k̃_c) ζ_c^{(p_i - p_j)/512} e^{i (p_i - p_j) θ_c} / √D.

Sun et al. 2023, eq. 13 and algorithm 1: ζ_c = (2c/D + γ)/(1 + γ), γ = .4; causal only, since
the factor grows without bound for keys ahead of the query.
"""

import math

import pytest
import torch

import ordinate as od
from methods.formula import attention, causal, draw, equal, gaps, theta, turned_scores


def zeta(width, gamma=0.4):
    return torch.tensor(
        [(2 * c / width + gamma) / (1 + gamma) for c in range(width // 2)], dtype=torch.float64
    )


def paper(
    q, k, pos, *, pairing="interleaved", base=10000.0, scale_base=512.0, gamma=0.4, power=None
):
    d = q.shape[-1]
    ahead = -gaps(q.shape[2], pos=pos).double()[..., None]
    power = ahead if power is None else -gaps(q.shape[2], pos=power).double()[..., None]
    phase = torch.polar(zeta(d, gamma) ** (power / scale_base), ahead * theta(d, base))
    return turned_scores(q, k, phase, pairing) / math.sqrt(d)


@pytest.mark.parametrize("n", [1, 4, 7])
@pytest.mark.parametrize(
    "options",
    [{}, {"pairing": "half"}, {"base": 50.0, "scale_base": 8.0}, {"gamma": 0.1, "scale_base": 3.0}],
    ids=str,
)
@pytest.mark.parametrize(
    "pos",
    [torch.arange(7), torch.tensor([5, -3, 14, 0, 0, 11, 8]),
     torch.tensor([0.5, -3.25, 14, 0, 1e-3, 9.5, 2], dtype=torch.float64)],
    ids=["line", "jumps", "real"],
)  # fmt: skip
def test_is_the_formula(pos, options, n):
    q, k, v = draw(n=n, m=7, d=6, kv=1)
    xpos = od.make("xpos", head_dim=6, max_len=64, **options)
    ours = od.attention(q, k, v, xpos, causal=True, position_ids=pos, backend="reference")
    equal(ours, attention(paper(q, k, pos, **options), v, causal(n, 7)), q, k, v)


def test_has_no_parameters():
    assert list(od.make("xpos", head_dim=6).parameters()) == []


@pytest.mark.parametrize("max_len", [9, 10])
def test_scales_by_centred_and_turns_by_uncentred_positions(max_len):
    """Algorithm 1: q ζ^{(p - ⌊L/2⌋)/512}, k ζ^{-(p - ⌊L/2⌋)/512}, both turned by p θ."""
    q, k, _ = draw(n=8, d=6)
    xpos = od.make("xpos", head_dim=6, max_len=max_len, scale_base=4.0)
    rope = od.make("rope", head_dim=6, pairing="interleaved")
    gain = zeta(6).repeat_interleave(2) ** (
        (torch.arange(8.0).double()[:, None] - max_len // 2) / 4
    )
    ours, turned = xpos.rotate(q, k), rope.rotate(q, k)
    equal(ours[0], turned[0] * gain, q)
    equal(ours[1], turned[1] / gain, k)


def test_settings_of_the_paper_are_the_defaults():
    """γ = .4, base 512 and a centre of 1024: q weighs ζ^{(p - 1024)/512}."""
    q, k, _ = draw(n=3, d=6)
    pos = torch.tensor([0, 1024, 1536])
    ours = od.make("xpos", head_dim=6).rotate(q, k, position_ids=pos)[0]
    gain = zeta(6) ** torch.tensor([-2.0, 0, 1]).double()[:, None]
    wanted = q.unflatten(-1, (3, 2)).norm(dim=-1) * gain
    equal(ours.unflatten(-1, (3, 2)).norm(dim=-1), wanted, q)


def test_half_pairing_scales_both_channels_of_a_pair_alike():
    q, k, _ = draw(n=8, d=6)
    xpos = od.make("xpos", head_dim=6, max_len=10, scale_base=4.0, pairing="half")
    rope = od.make("rope", head_dim=6)
    gain = zeta(6).repeat(2) ** ((torch.arange(8.0).double()[:, None] - 5) / 4)
    equal(xpos.rotate(q, k)[0], rope.rotate(q, k)[0] * gain, q)


def test_decays_with_the_distance_of_the_golden_zetas():
    """D = 4: ζ = .2857142857, .6428571429; 512 steps away each pair weighs ζ less."""
    one = torch.zeros(1, 1, 513, 4, dtype=torch.float64)
    one[..., [0, 2]] = 1
    q, k = od.make("xpos", head_dim=4, max_len=513).rotate(one, one)
    length = (q[0, 0, 512].view(2, 2).norm(dim=-1) * k[0, 0, 0].view(2, 2).norm(dim=-1)).tolist()
    assert length == pytest.approx([0.2857142857142857, 0.6428571428571429], abs=1e-10)


def test_is_relative_and_blind_to_the_centre():
    q, k, v = draw(n=7, d=6)
    pos = torch.tensor([4, 1, 0, 9, 2, 2, 30])

    def at(pos, max_len):
        xpos = od.make("xpos", head_dim=6, max_len=max_len, scale_base=16.0)
        return od.attention(q, k, v, xpos, causal=True, position_ids=pos)

    torch.testing.assert_close(at(pos + 50, 64), at(pos, 64), rtol=0, atol=1e-10)
    torch.testing.assert_close(at(pos, 31), at(pos, 64), rtol=0, atol=1e-10)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("flat", [{"gamma": 1e15}, {"scale_base": 1e15}])
def test_without_decay_is_rope(flat, pairing):
    q, k, v = draw(n=7, d=6)
    xpos = od.make("xpos", head_dim=6, pairing=pairing, **flat)
    rope = od.make("rope", head_dim=6, pairing=pairing)
    ours, theirs = (od.attention(q, k, v, p, causal=True) for p in (xpos, rope))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_special_tokens_are_neither_turned_nor_scaled():
    q, k, v = draw(n=6, d=6)
    pos, special = torch.tensor([5, 1, 2, 8, 4, 7]), torch.tensor([0, 0, 1, 0, 1, 0]).bool()
    space = od.Space.points(pos, special=special[None])
    a = od.Attend(q, k, v, space, 6**-0.5, od.Mask(causal=True))
    xpos = od.make("xpos", head_dim=6, max_len=10, scale_base=4.0)
    ours = od.backends.run(xpos.attend(a), "reference")
    centred = (pos - 5).masked_fill(special, 0)
    s = paper(q, k, pos.masked_fill(special, 0), scale_base=4.0, power=centred)
    equal(ours, attention(s, v, causal(6)), q, k, v)


def test_equals_x_transformers():
    theirs = pytest.importorskip("x_transformers.x_transformers")
    freqs, scale = theirs.RotaryEmbedding(8, use_xpos=True, scale_base=16)(torch.arange(9))
    q, k, _ = draw(n=9, d=8)
    xpos = od.make("xpos", head_dim=8, max_len=9, scale_base=16.0)
    for ours, x, factor in zip(xpos.rotate(q, k), (q, k), (scale, scale**-1), strict=True):
        other = theirs.apply_rotary_pos_emb(x, freqs, factor)
        torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-5)


def test_is_for_causal_attention_only():
    q, k, v = draw(n=7, d=6)
    with pytest.raises(ValueError, match="xpos is for causal attention only: give causal=True"):
        od.attention(q, k, v, "xpos")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head_dim": 5}, "even.*5"),
        ({}, "xpos needs head_dim"),
        ({"head_dim": 6, "pairing": "both"}, "pairing is one of half, interleaved"),
    ],
)
def test_bad_sizes_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        od.make("xpos", **options)
