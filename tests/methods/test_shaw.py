"""shaw: s_ij = q_i·(k_j + a^K_{clip(j-i)})/√D, o_i = Σ_j w_ij (v_j + a^V_{clip(j-i)}).

Shaw et al. 2018, eq. 3-5: clip(x) = max(-k, min(k, x)).
"""

import pytest
import torch

import ordinate as od
from methods.formula import draw, equal, redraw, repeated
from methods.places import maps, places


def paper(q, k, v, keys, values, gap, mask):
    """keys and values [2·clip + 1, D] or None; gap [b, n, m]: the output and the maps."""
    k, v = repeated(k, q.shape[1]), repeated(v, q.shape[1])
    clip = len(keys) // 2
    row = gap.clamp(-clip, clip) + clip
    beside = k[:, :, None] + keys[row][:, None]
    w = maps((q[:, :, :, None] * beside).sum(-1) / q.shape[-1] ** 0.5, mask)
    read = v[:, :, None] if values is None else v[:, :, None] + values[row][:, None]
    return (w[..., None] * read).sum(3), w


@pytest.mark.parametrize("place", places(real=False), ids=str)
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("clip", [1, 3, 60])
@pytest.mark.parametrize("values", [True, False])
def test_is_the_formula(place, layer, clip, values):
    shaw = redraw(od.make("shaw", head_dim=6, layers=2, clip=clip, values=values))
    q, k, v = place.draw()
    table = shaw.values[layer] if values else None
    theirs, w = paper(q, k, v, shaw.keys[layer], table, place.gap, place.mask)
    a = place.problem(q, k, v, shaw, layer)
    torch.testing.assert_close(od.weights(a), w, rtol=1e-9, atol=1e-10)
    equal(od.backends.run(a, "reference"), theirs, q, k, v, *shaw.parameters())
    ours = od.attention(q, k, v, shaw, causal=place.causal, position_ids=place.ids, layer=layer)
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)


def test_two_tables_per_layer_shared_by_the_heads():
    shaw = od.make("shaw", head_dim=6, layers=3, clip=4)
    assert {n: tuple(p.shape) for n, p in shaw.named_parameters()} == {
        "keys": (3, 9, 6),
        "values": (3, 9, 6),
    }
    (keys,) = od.make("shaw", head_dim=6, values=False).parameters()
    assert keys.shape == (1, 2 * 128 + 1, 6)


def test_a_key_after_the_query_reads_the_second_half_of_the_table():
    shaw = od.make("shaw", head_dim=1, clip=1, values=False).double()
    shaw.keys.data[0, :, 0] = torch.tensor([0.0, 1.0, 5.0])
    x = torch.ones(1, 1, 3, 1, dtype=torch.float64)
    s = od.weights(od.problem(x, x, x, shaw))[0, 0].log()
    s = (s - s.diagonal()[:, None] + 1).round(decimals=9)
    assert s.tolist() == [[1, 5, 5], [0, 1, 5], [0, 0, 1]]


def test_the_key_term_is_divided_by_the_root_of_the_width_too():
    shaw = od.make("shaw", head_dim=16, clip=1, values=False).double()
    shaw.keys.data[0] = torch.tensor([0.0, 0.0, 1.0])[:, None]
    q = torch.ones(1, 1, 2, 16, dtype=torch.float64)
    w = od.weights(od.problem(q, torch.zeros_like(q), q, shaw))[0, 0, 0]
    assert (w[1] / w[0]).log().item() == pytest.approx(16 / 4)


def test_empty_tables_are_no_position():
    q, k, v = draw()
    shaw = od.make("shaw", head_dim=6, clip=3)
    for p in shaw.parameters():
        p.data.zero_()
    equal(od.attention(q, k, v, shaw), od.attention(q, k, v, "none"), q, k, v)


def test_wav2vec2_bert_agrees_on_the_keys():
    """`relative_key`: an embedding of clip(j - i), a distance that is 0 for the query itself."""
    bert = pytest.importorskip("transformers.models.wav2vec2_bert.modeling_wav2vec2_bert")
    config = bert.Wav2Vec2BertConfig(
        hidden_size=12, num_attention_heads=2, position_embeddings_type="relative_key",
        left_max_position_embeddings=3, right_max_position_embeddings=3,
    )  # fmt: skip
    layer = bert.Wav2Vec2BertSelfAttention(config).double().eval()
    shaw = od.make("shaw", head_dim=6, clip=3, values=False).double()
    with torch.no_grad():
        shaw.keys[0].copy_(layer.distance_embedding.weight)
    x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0)).double()
    sent = (layer.linear_q, layer.linear_k, layer.linear_v)
    q, k, v = (f(x).unflatten(-1, (2, 6)).transpose(1, 2) for f in sent)
    ours = layer.linear_out(od.attention(q, k, v, shaw).transpose(1, 2).flatten(2))
    theirs = layer(x)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_tables_start_as_glorot_uniform():
    """As tensor2tensor's: uniform within √(6 / (2·clip + 1 + D)), per layer."""
    torch.manual_seed(0)
    shaw = od.make("shaw", head_dim=64, layers=2, clip=128)
    end = (6 / (257 + 64)) ** 0.5
    for table in (*shaw.keys, *shaw.values):
        assert 0.99 * end < table.abs().max() <= end
        assert table.std().item() == pytest.approx(end / 3**0.5, rel=0.02)


def test_bad_input():
    q, k, v = draw()
    with pytest.raises(ValueError, match=r"shaw counts whole steps.*integers"):
        od.attention(q, k, v, od.make("shaw", head_dim=6), position_ids=torch.arange(7.0))
    with pytest.raises(ValueError, match=r"made with head_dim=8, the queries have 6"):
        od.attention(q, k, v, od.make("shaw", head_dim=8))
    with pytest.raises(ValueError, match=r"content of queries and keys"):
        od.make("shaw", head_dim=6).bias(4)
