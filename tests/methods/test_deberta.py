"""deberta: s_ij = [Q_i·K_j + Q_i·K^r_{δ(i,j)} + K_j·Q^r_{δ(i,j)}] / √(3D) (He et al. 2021).

δ(i, j) = clip(i - j + k, 0, 2k - 1), eq. 3. The paper writes δ(j, i) in the third term, the code of
v1, v2 and v3 has δ(i, j) in both: `p2c`.
"""

import math

import pytest
import torch
from torch import nn

import ordinate as od
from methods.formula import draw, equal, redraw, repeated
from methods.places import WHOLE, Place, places, solves


def bucket(d, size, far):
    """v2's bucket of the distance d = i - j: itself up to size/2, then on a logarithmic scale."""
    mid = size // 2
    if abs(d) <= mid:
        return d
    log = math.log(abs(d) / mid) / math.log((far - 1) / mid) * (mid - 1)
    # Whole numbers (far - 1 is one) are not rounded up.
    return int(math.copysign(math.ceil(log - 1e-9) + mid, d))


def delta(gap, k, far=None):
    """Rows of the table for gaps j - i."""
    d = -gap
    if far is not None:
        d = torch.tensor([bucket(x, 2 * k // 2, far) for x in d.flatten().tolist()]).view(d.shape)
    return (d + k).clamp(0, 2 * k - 1)


def heads_first(x, h):
    """[2k, h·D] as [h, 2k, D]."""
    return x.unflatten(-1, (h, -1)).movedim(-2, 0)


def paper(q, k, gap, *, pos_k=None, pos_q=None, p2c="code", far=None):
    """pos_k, pos_q: [H, 2k, D], the projected table, for the terms that are there."""
    terms = 1 + (pos_k is not None) + (pos_q is not None)
    k = repeated(k, q.shape[1])
    s = q @ k.mT
    if pos_k is not None:
        rows = delta(gap, pos_k.shape[1] // 2, far)
        s = s + (q[:, :, :, None] * pos_k[:, rows].movedim(0, 1)).sum(-1)
    if pos_q is not None:
        rows = delta(gap if p2c == "code" else -gap, pos_q.shape[1] // 2, far)
        s = s + (k[:, :, None] * pos_q[:, rows].movedim(0, 1)).sum(-1)
    return s / math.sqrt(q.shape[-1] * terms)


def projected(deberta, layer, terms, heads=4):
    """The position keys and queries of a layer from its own projections."""
    table, found = deberta.weight, {}
    if norm := getattr(deberta, "norm", None):
        table = nn.functional.layer_norm(table, table.shape[1:], norm.weight, norm.bias, 1e-7)
    if terms != "p2c":
        found["pos_k"] = heads_first(table @ deberta.pos_k[layer].T, heads)
    if terms != "c2p":
        bias = deberta.pos_q_bias[layer]
        found["pos_q"] = heads_first(table @ deberta.pos_q[layer].T + bias, heads)
    return found


@pytest.mark.parametrize("place", places(real=False), ids=str)
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("terms", ["both", "c2p", "p2c"])
@pytest.mark.parametrize("p2c", ["code", "paper"])
def test_is_the_formula(place, layer, terms, p2c):
    deberta = redraw(
        od.make("deberta", dim=10, heads=4, head_dim=6, layers=2, clip=3, terms=terms, p2c=p2c)
    )
    q, k, v = place.draw()
    s = paper(q, k, place.gap, **projected(deberta, layer, terms), p2c=p2c)
    solves(place.problem(q, k, v, deberta, layer), s, place.mask, q, k, v, *deberta.parameters())


@pytest.mark.parametrize("place", places(real=False), ids=str)
@pytest.mark.parametrize("p2c", ["code", "paper"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("far", [None, 30])
def test_is_the_formula_with_a_norm_and_log_buckets(place, p2c, norm, far):
    options = {"log_buckets": far is not None, "max_distance": far or 512, "norm": norm}
    deberta = redraw(od.make("deberta", dim=10, heads=4, head_dim=6, clip=8, p2c=p2c, **options))
    q, k, v = place.draw()
    s = paper(q, k, place.gap, **projected(deberta, 0, "both"), p2c=p2c, far=far)
    solves(place.problem(q, k, v, deberta), s, place.mask, q, k, v, *deberta.parameters())


@pytest.mark.parametrize("kv", [4, 2])
@pytest.mark.parametrize("terms", ["both", "c2p", "p2c"])
def test_shared_projections_are_the_layers_own(kv, terms):
    """`share_att_key` of v2, v3: the table goes through the layer's query and key projections."""
    place = Place(7, 7, kv, False, WHOLE)
    deberta = redraw(
        od.make("deberta", dim=10, heads=4, head_dim=6, clip=3, share=True, terms=terms)
    )
    assert [name for name, _ in deberta.named_parameters()] == ["weight"]
    to_q, to_k = nn.Linear(10, 24).double(), nn.Linear(10, 6 * kv).double()
    q, k, v = place.draw()
    a = place.attend(
        q, k, v, deberta,
        project_q=lambda x: to_q(x).unflatten(-1, (4, 6)),
        project_k=lambda x: to_k(x).unflatten(-1, (kv, 6)),
    )  # fmt: skip
    parts = {}
    if terms != "p2c":
        parts["pos_k"] = heads_first(to_k(deberta.weight), kv).repeat_interleave(4 // kv, 0)
    if terms != "c2p":
        parts["pos_q"] = heads_first(to_q(deberta.weight), 4)
    # The keys' own bias adds the same to a whole row, which softmax cannot see.
    used = [*to_q.parameters()] * (terms != "c2p") + [to_k.weight] * (terms != "p2c")
    s = paper(q, k, place.gap, **parts)
    solves(a, s, place.mask, q, k, v, deberta.weight, *used)


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        ("both", {"pos_q", "pos_q_bias", "pos_k"}),
        ("c2p", {"pos_k"}),
        ("p2c", {"pos_q", "pos_q_bias"}),
    ],
)
def test_parameters(terms, names):
    torch.manual_seed(0)
    deberta = od.make("deberta", dim=20, heads=4, head_dim=6, layers=2, clip=50, terms=terms)
    shapes = {
        "weight": (100, 20),
        "pos_q": (2, 24, 20),
        "pos_q_bias": (2, 24),
        "pos_k": (2, 24, 20),
    }
    found = dict(deberta.named_parameters())
    assert {n: tuple(p.shape) for n, p in found.items()} == {
        n: shapes[n] for n in {"weight", *names}
    }
    for name, p in found.items():
        wanted = 0.0 if name == "pos_q_bias" else 0.02
        assert p.std().item() == pytest.approx(wanted, rel=0.15)


def test_the_table_is_shared_by_the_layers():
    deberta = od.make("deberta", dim=20, heads=4, head_dim=6, layers=5)
    assert deberta.weight.shape == (1024, 20)
    assert deberta.pos_k.shape == (5, 24, 20)


def test_both_terms_divide_by_the_root_of_three():
    """Without a table, content attention at 1/√(3D); with one term, 1/√(2D)."""
    q, k, v = draw()
    for terms, count in (("both", 3), ("c2p", 2), ("p2c", 2)):
        deberta = od.make("deberta", dim=4, heads=3, head_dim=6, terms=terms)
        deberta.weight.data.zero_()
        plain = od.attention(q, k, v, "none", scale=(6 * count) ** -0.5)
        equal(od.attention(q, k, v, deberta), plain, q, k, v)


def rows_of(deberta, distances):
    """The table rows that c2p reads for keys `distances` before the query, from the maps alone."""
    size = len(deberta.weight)
    with torch.no_grad():
        deberta.weight.copy_(torch.arange(float(size))[:, None] / size)
        deberta.pos_k.fill_(1)
    ids = torch.tensor([*(-d for d in distances), 0])
    q = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    k = torch.zeros(1, 1, len(ids), 1, dtype=torch.float64)
    w = od.weights(od.problem(q, k, k, deberta, position_ids=ids)).flatten().log()
    rows = (w - w[-1]) * 2**0.5 * size + size / 2
    assert (rows - rows.round()).abs().max() < 1e-6
    return [int(x) - size // 2 for x in rows[:-1].round()]


def test_log_buckets_of_v2():
    """Checked against the published function for 256 buckets up to 512."""
    wanted = {
        0: 0, 1: 1, -1: -1, 127: 127, 128: 128, 129: 129, -128: -128, -129: -129,
        511: 255, -511: -255, 512: 255, -512: -256, 600: 255, -600: -256,
    }  # fmt: skip
    assert bucket(511, 256, 512) == 255 and bucket(512, 256, 512) == 256
    assert bucket(600, 256, 512) == 270 and bucket(-600, 256, 512) == -270
    deberta = od.make(
        "deberta", dim=1, heads=1, head_dim=1, clip=256, log_buckets=True, terms="c2p"
    ).double()
    # Rows end at 2k - 1: 256 and more share the row of 255.
    assert rows_of(deberta, list(wanted)) == list(wanted.values())


def test_log_buckets_agree_with_transformers():
    theirs = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    distances = torch.arange(-700, 701)
    for size, far in ((256, 512), (64, 300), (20, 128)):
        wanted = theirs.make_log_bucket_position(distances, size, far).long()
        assert [bucket(d, size, far) for d in distances.tolist()] == wanted.tolist()
        deberta = od.make(
            "deberta", dim=1, heads=1, head_dim=1, clip=size, log_buckets=True, terms="c2p",
            max_distance=far,
        ).double()  # fmt: skip
        assert rows_of(deberta, distances.tolist()) == wanted.clamp(-size, size - 1).tolist()


def test_plain_distances_end_one_earlier_in_the_past():
    deberta = od.make("deberta", dim=1, heads=1, head_dim=1, clip=4, terms="c2p").double()
    assert rows_of(deberta, range(-6, 7)) == [-4, -4, -4, -3, -2, -1, 0, 1, 2, 3, 3, 3, 3]


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("buckets", [-1, 8])
@pytest.mark.parametrize("terms", ["both", "c2p", "p2c"])
def test_deberta_v2_agrees(share, buckets, terms):
    hf = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    config = hf.DebertaV2Config(
        hidden_size=12, num_attention_heads=2, relative_attention=True, share_att_key=share,
        max_relative_positions=20 if buckets > 0 else 5, position_buckets=buckets,
        pos_att_type=["c2p", "p2c"] if terms == "both" else [terms],
        hidden_dropout_prob=0, attention_probs_dropout_prob=0,
    )  # fmt: skip
    theirs = hf.DisentangledSelfAttention(config).double()
    ours = redraw(
        od.make(
            "deberta", dim=12, heads=2, head_dim=6, clip=buckets if buckets > 0 else 5,
            log_buckets=buckets > 0, max_distance=20, share=share, terms=terms,
        )
    )  # fmt: skip
    with torch.no_grad():
        if not share and terms != "p2c":
            # v2 has a bias here, v1 and ours do not.
            theirs.pos_key_proj.weight.copy_(ours.pos_k[0])
            theirs.pos_key_proj.bias.zero_()
        if not share and terms != "c2p":
            theirs.pos_query_proj.weight.copy_(ours.pos_q[0])
            theirs.pos_query_proj.bias.copy_(ours.pos_q_bias[0])
    g = torch.Generator().manual_seed(3)
    x = torch.randn(2, 13, 12, generator=g, dtype=torch.float64)
    sent = (theirs.query_proj, theirs.key_proj, theirs.value_proj)
    q, k, v = (f(x).unflatten(-1, (2, 6)).transpose(1, 2) for f in sent)
    a = Place(13, 13, 2, False).attend(
        q, k, v, ours,
        project_q=lambda t: theirs.query_proj(t).unflatten(-1, (2, 6)),
        project_k=lambda t: theirs.key_proj(t).unflatten(-1, (2, 6)),
    )  # fmt: skip
    found = od.backends.run(a, "reference").transpose(1, 2).flatten(2)
    mask = torch.ones(2, 1, 13, 13, dtype=torch.bool)
    wanted = theirs(x, mask, rel_embeddings=ours.weight)[0]
    # Their square root of the width is float32.
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_bad_input():
    q, k, v = draw(h=4)
    deberta = od.make("deberta", dim=24, heads=4, head_dim=6)
    with pytest.raises(ValueError, match=r"deberta counts whole steps.*integers"):
        od.attention(q, k, v, deberta, position_ids=torch.arange(7.0))
    with pytest.raises(
        ValueError, match=r"deberta needs the layer's own query and key projections"
    ):
        shared = od.make("deberta", dim=24, heads=4, head_dim=6, share=True)
        od.attention(q, k, v, shared)
    with pytest.raises(ValueError, match=r"log_buckets need .*max_distance.*got clip=8.*=5"):
        od.make("deberta", dim=1, heads=1, head_dim=1, clip=8, log_buckets=True, max_distance=5)
    od.make("deberta", dim=1, heads=1, head_dim=1, clip=8, log_buckets=True, max_distance=6)
    with pytest.raises(ValueError, match=r"deberta:terms is one of both, c2p, p2c"):
        od.make("deberta", dim=24, heads=4, head_dim=6, terms="none")
    with pytest.raises(ValueError, match=r"deberta was made for 1 layers, got layer 1"):
        od.attention(q, k, v, deberta, layer=1)
