"""dynamic-ntk: RoPE with the base B (s L/L₀ - (s - 1))^{r/(r-2)}, L = max(extent, L₀).

bloc97 and emozilla 2023; as `rope_type="dynamic"` of transformers. L is read off the positions,
for each row of the batch.
"""

import math

import pytest
import torch

import ordinate as od
from methods.formula import attention, causal, draw, equal, gaps, theta, turned_scores


def stretched(extent, max_len, factor, width, base=10000.0):
    length = max(extent, max_len)
    return base * (factor * length / max_len - (factor - 1)) ** (width / (width - 2))


def paper(q, k, pos, bases, pairing="half", width=None):
    """`pos` [b, m], and the base of each row."""
    freqs = torch.stack([theta(width or q.shape[-1], base) for base in bases])
    angle = -gaps(q.shape[2], pos=pos)[..., None] * freqs[:, None, None, :]
    phase = torch.polar(torch.ones_like(angle), angle)[:, None]
    return turned_scores(q, k, phase, pairing) / math.sqrt(q.shape[-1])


@pytest.mark.parametrize("n", [1, 6, 9])
@pytest.mark.parametrize("max_len", [4, 8, 9, 50])
@pytest.mark.parametrize(
    "options",
    [{}, {"factor": 3.5, "pairing": "interleaved"}, {"width": 4, "base": 300.0}],
    ids=str,
)
def test_is_the_formula(options, max_len, n):
    q, k, v = draw(n=n, m=9, d=6, kv=1)
    ntk = od.make("dynamic-ntk", head_dim=6, max_len=max_len, **options)
    ours = od.attention(q, k, v, ntk, causal=True, backend="reference")
    width, pairing = options.get("width", 6), options.get("pairing", "half")
    base = stretched(9, max_len, options.get("factor", 2.0), width, options.get("base", 10000.0))
    s = paper(q, k, torch.arange(9).expand(2, 9), [base, base], pairing, width)
    equal(ours, attention(s, v, causal(n, 9)), q, k, v)


def test_each_row_reads_its_own_extent():
    """max - min + 1 of the positions, wherever they begin and in whatever order."""
    q, k, v = draw(n=4, m=5, d=6)
    pos = torch.tensor([[100, 107, 103, 101, 105], [0, -30, 2, 5, 1]])
    ntk = od.make("dynamic-ntk", head_dim=6, max_len=6)
    ours = od.attention(q, k, v, ntk, position_ids=pos, backend="reference")
    s = paper(q, k, pos, [stretched(8, 6, 2.0, 6), stretched(36, 6, 2.0, 6)])
    equal(ours, attention(s, v), q, k, v)


def test_real_positions_have_a_real_extent():
    q, k, v = draw(n=5, d=6)
    pos = torch.tensor([[0.5, 7.25, 3.0, 1.0, 2.0]], dtype=torch.float64)
    ntk = od.make("dynamic-ntk", head_dim=6, max_len=4)
    ours = od.attention(q, k, v, ntk, position_ids=pos, backend="reference")
    base = stretched(7.75, 4, 2.0, 6)
    equal(ours, attention(paper(q, k, pos.expand(2, 5), [base, base]), v), q, k, v)


def test_padding_has_no_extent():
    """Neither padding in front nor padding with absurd positions stretches a row."""
    q, k, v = draw(n=5, d=6)
    valid = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]]).bool()
    pos = torch.tensor([[999, -999, 0, 3, 9], [4, 5, 6, 7, 10_000]])
    ntk = od.make("dynamic-ntk", head_dim=6, max_len=3)
    ours = od.attention(q, k, v, ntk, position_ids=pos, mask=valid, backend="reference")
    s = paper(q, k, pos, [stretched(10, 3, 2.0, 6), stretched(4, 3, 2.0, 6)])
    theirs = attention(s, v, valid[:, None, None, :])
    seen = valid[:, None, :, None]
    equal(ours.where(seen, 0), theirs.where(seen, 0), q, k, v)


def test_documents_of_a_row_share_its_extent():
    q, k, v = draw(b=1, n=7, d=6)
    ntk = od.make("dynamic-ntk", head_dim=6, max_len=2)
    borders = torch.tensor([0, 2, 7])
    ours = od.attention(q, k, v, ntk, cu_seqlens=borders, backend="reference")
    pos = torch.tensor([[0, 1, 0, 1, 2, 3, 4]])
    own = torch.tensor([0, 0, 1, 1, 1, 1, 1])
    s = paper(q, k, pos, [stretched(5, 2, 2.0, 6)])
    equal(ours, attention(s, v, own[:, None] == own), q, k, v)


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("max_len", [9, 50])
def test_within_the_trained_length_is_rope(max_len, factor):
    q, k, v = draw(n=9, d=6)
    ntk = od.make("dynamic-ntk", head_dim=6, max_len=max_len, factor=factor)
    ours, theirs = (od.attention(q, k, v, p) for p in (ntk, od.make("rope", head_dim=6)))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_at_factor_one_is_static_ntk_of_the_overrun_and_not_rope():
    """s = 1 leaves B (L/L₀)^{r/(r-2)}: unlike its relatives the formula is no identity there."""
    q, k, v = draw(n=9, d=6)
    ntk = od.make("dynamic-ntk", head_dim=6, max_len=3, factor=1.0)
    static, rope = od.make("rope", head_dim=6, base=1e4 * 3**1.5), od.make("rope", head_dim=6)
    ours, theirs, plain = (od.attention(q, k, v, p) for p in (ntk, static, rope))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert (ours - plain).abs().max() > 0.01


def test_the_slowest_frequency_is_divided_and_the_fastest_kept():
    """s = 2 at twice the length: θ₀ = 1 stays, the last θ is exactly a third (s L/L₀ - s + 1)."""
    x = torch.zeros(1, 1, 9, 6, dtype=torch.float64)
    x[..., :3] = 1
    pos = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 15])
    ntk = od.make("dynamic-ntk", head_dim=6, max_len=8)
    turned = ntk.rotate(x, x, position_ids=pos)[0][0, 0, 1]
    angle = torch.atan2(turned[3:], turned[:3])
    torch.testing.assert_close(angle[0].item(), 1.0, rtol=0, atol=1e-12)
    torch.testing.assert_close(angle[2].item(), 10000 ** (-4 / 6) / 3, rtol=1e-10, atol=0)


def test_cached_work_goes_stale_when_the_length_grows():
    """The epoch names the length, as transformers' recomputation forgets; short ones share one."""
    ntk = od.make("dynamic-ntk", head_dim=6, max_len=8)
    assert [ntk.epoch(od.Space.line(n)) for n in (1, 8, 9, 20)] == [8, 8, 9, 20]
    assert ntk.facts.length_dependent
    assert list(ntk.parameters()) == []


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("length", [5, 16, 17, 40])
def test_equals_transformers(length, scale):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    rules = pytest.importorskip("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    config = llama.LlamaConfig(
        hidden_size=32, num_attention_heads=4, num_hidden_layers=1, max_position_embeddings=16,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": scale},
    )  # fmt: skip
    freqs, factor = rules["dynamic"](config, seq_len=length)
    assert factor == 1.0
    x = torch.zeros(1, 1, length, 8, dtype=torch.float64)
    x[..., :4] = 1
    ntk = od.make("dynamic-ntk", head_dim=8, max_len=16, factor=scale)
    turned = ntk.rotate(x, x)[0][0, 0, 1]
    angle = torch.atan2(turned[4:], turned[:4])
    torch.testing.assert_close(angle, freqs.double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head_dim": 6}, "dynamic-ntk needs max_len"),
        ({"head_dim": 2, "max_len": 8}, "4 or more"),
        ({"head_dim": 6, "width": 2, "max_len": 8}, "width of 4 or more"),
        ({"head_dim": 5, "max_len": 8}, "even.*5"),
    ],
)
def test_bad_sizes_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        od.make("dynamic-ntk", **options)
