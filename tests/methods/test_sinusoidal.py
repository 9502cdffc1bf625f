"""sinusoidal: P_p = (sin p ω_k, cos p ω_k)_k, ω_k = B^(-2k/d), in the four layouts in use.

Vaswani et al. 2017, section 3.5 (interleaved); RoFormer and Transformer-XL (split); the released
tensor2tensor code, fairseq and Whisper (B^(-k/(d/2 - 1))); Conformer (a table of distances).
"""

import math

import pytest
import torch

import ordinate as od
from methods.formula import equal, leaf, redraw

LAYOUTS = ["interleaved", "split", "tensor2tensor", "conformer"]
PLACES = {
    "line": torch.arange(5),
    "jumps": torch.tensor([7, 0, -12, 7, 5000]),
    "real": torch.tensor([0.5, 3.25, -2.0, 1e-3, 800.1], dtype=torch.float64),
    "rows": torch.tensor([[0, 1, 2, 3, 4], [9, 7, 5, 3, 1]]),
}


def vector(p, d, layout="interleaved", base=10000.0):
    """The vector of position `p`, channel by channel."""
    p, half = float(p), d // 2
    if layout in ("interleaved", "conformer"):
        wave = [(math.sin, math.cos)[c % 2] for c in range(d)]
        return [f(p * base ** (-2 * (c // 2) / d)) for c, f in enumerate(wave)]
    if layout == "split":
        sines = [math.sin(p * base ** (-2 * k / d)) for k in range(d - half)]
        return sines + [math.cos(p * base ** (-2 * k / d)) for k in range(half)]
    omega = [base ** (-k / max(half - 1, 1)) for k in range(half)]
    return [math.sin(p * w) for w in omega] + [math.cos(p * w) for w in omega] + [0.0] * (d % 2)


def paper(pos, d, layout="interleaved", base=10000.0):
    """[..., m] positions to [..., m, d]."""
    rows = [vector(p, d, layout, base) for p in pos.flatten().tolist()]
    return torch.tensor(rows, dtype=torch.float64).view(*pos.shape, d)


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("base", [10000.0, 30.0])
@pytest.mark.parametrize("d", [2, 3, 5, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tokens_get_the_vector_of_their_position(layout, d, base, places):
    x, space = leaf(2, 5, d), od.Space.points(PLACES[places])
    ours, same = od.make("sinusoidal", dim=d, layout=layout, base=base).embed(x, space, 0)
    equal(ours, x + paper(PLACES[places], d, layout, base), x)
    assert same is space


@pytest.mark.parametrize("n", [1, 3, 5])
def test_new_tokens_are_the_last_of_the_context(n):
    x, space = leaf(2, n, 6), od.Space.points(PLACES["jumps"])
    ours, _ = od.make("sinusoidal", dim=6).embed(x, space, 0)
    equal(ours, x + paper(PLACES["jumps"], 6)[-n:], x)


@pytest.mark.parametrize("join", ["add", "concat"])
def test_acts_on_tokens_once(join):
    x, space = leaf(2, 5, 6), od.Space.line(5)
    method = od.make("sinusoidal", dim=6, layers=3, join=join)
    for layer in (1, 2):
        assert torch.equal(method.embed(x, space, layer)[0], x)
    for before, after in zip((x,) * 3, method.before(od.Sources(x, x, x), space, 0), strict=True):
        assert torch.equal(after, before)
    assert method.facts.needs == {"embed"}


@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize(("at", "touched"), [("qk", "qk"), ("qkv", "qkv")])
@pytest.mark.parametrize("join", ["add", "concat"])
def test_acts_on_the_sources_of_every_layer(join, at, touched, layer):
    """q stands at the last 3 of 5 places, its keys and values (memory in front) at all of them."""
    space = od.Space.points(PLACES["jumps"])
    sources = od.Sources(leaf(2, 3, 6), leaf(2, 5, 6), leaf(2, 5, 6))
    method = redraw(od.make("sinusoidal", dim=6, layers=3, at=at, join=join))
    assert method.facts.needs == {"hidden"}
    assert torch.equal(method.embed(sources.q, space, layer)[0], sources.q)
    ours = method.before(sources, space, layer)
    for name, x, found in zip("qkv", sources, ours, strict=True):
        p = paper(PLACES["jumps"], 6)[-x.shape[1] :]
        if name not in touched:
            assert torch.equal(found, x)
        elif join == "add":
            equal(found, x + p, x)
        else:
            mix = method.mix[layer]
            theirs = x @ mix[:, :6].T + (mix[:, 6:] @ p.T).T
            equal(found, theirs, x, method.mix)


def test_concatenation_is_a_linear_map_of_both():
    """x' = M [x ; P]; with the block of P at zero and that of x at one, nothing happens."""
    x, space = leaf(2, 5, 4), od.Space.points(PLACES["rows"])
    method = redraw(od.make("sinusoidal", dim=4, layers=3, join="concat"))
    both = torch.cat([x, paper(PLACES["rows"], 4)], -1)
    ours, _ = method.embed(x, space, 0)
    equal(ours, torch.einsum("oc,bnc->bno", method.mix[0], both), x, method.mix)
    with torch.no_grad():
        method.mix.copy_(torch.eye(4, 8))
    torch.testing.assert_close(method.embed(x, space, 0)[0], x, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("at", "copies"), [("tokens", 1), ("qk", 3), ("qkv", 3)])
def test_parameters_are_the_mixing_maps_only(at, copies):
    torch.manual_seed(0)
    assert list(od.make("sinusoidal", dim=32, layers=3, at=at).parameters()) == []
    mix = od.make("sinusoidal", dim=32, layers=3, at=at, join="concat").mix
    assert tuple(mix.shape) == (copies, 32, 64)
    bound = math.sqrt(6 / (32 + 64))  # xavier-uniform of each map by itself
    assert 0.98 * bound < mix.abs().max() <= bound
    assert mix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)


@pytest.mark.parametrize("join", ["add", "concat"])
def test_special_tokens_get_no_vector(join):
    x = leaf(2, 5, 6)
    special = torch.tensor([[True, False, False, True, False]])
    space = od.Space.points(PLACES["jumps"], special=special)
    method = redraw(od.make("sinusoidal", dim=6, join=join))
    p = paper(PLACES["jumps"], 6).masked_fill(special[0, :, None], 0)
    wanted = x + p if join == "add" else torch.cat([x, p.expand(2, 5, 6)], -1) @ method.mix[0].T
    equal(method.embed(x, space, 0)[0], wanted, x)


@pytest.mark.parametrize("d", [4, 7])
@pytest.mark.parametrize("layout", LAYOUTS[:3])
def test_table_lists_positions(layout, d):
    table = od.make("sinusoidal", dim=d, layout=layout).table(9)
    torch.testing.assert_close(table.double(), paper(torch.arange(9), d, layout), rtol=0, atol=1e-6)


def test_conformers_table_lists_distances_from_far_left_to_far_right():
    table = od.make("sinusoidal", dim=6, layout="conformer").table(4)
    wanted = paper(torch.tensor([3, 2, 1, 0, -1, -2, -3]), 6)
    torch.testing.assert_close(table.double(), wanted, rtol=0, atol=1e-6)


def test_golden_numbers():
    """d = 4, position 1: sin 1, cos 1, sin .01, cos .01, and tensor2tensor's slowest is 1/B."""
    sin1, cos1 = 0.8414709848078965, 0.5403023058681398
    golden = {
        "interleaved": [sin1, cos1, 0.009999833334166664, 0.9999500004166653],
        "split": [sin1, 0.009999833334166664, cos1, 0.9999500004166653],
        "tensor2tensor": [sin1, 9.999999983333334e-05, cos1, 0.999999995],
    }
    for layout, numbers in golden.items():
        row = od.make("sinusoidal", dim=4, layout=layout).table(2)[1]
        torch.testing.assert_close(row.double(), torch.tensor(numbers).double(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("layout", LAYOUTS[:3])
def test_products_depend_on_the_distance_and_norms_on_nothing(layout):
    """⟨P_p, P_q⟩ = Σ_k cos ω_k (p - q); ‖P‖² = d/2."""
    method, x = od.make("sinusoidal", dim=8, layout=layout), torch.zeros(1, 6, 8).double()
    pos = torch.tensor([0, 3, 40, 41, -7, 12])
    p = method.embed(x, od.Space.points(pos), 0)[0][0]
    omega = [10000 ** (-k / (3 if layout == "tensor2tensor" else 4)) for k in range(4)]
    wanted = sum(torch.cos((pos[:, None] - pos).double() * w) for w in omega)
    torch.testing.assert_close(p @ p.T, wanted, rtol=0, atol=1e-11)
    assert p.square().sum(1).tolist() == pytest.approx([4.0] * 6)


def test_a_shift_is_a_rotation():
    """P_{p+t} = R_t P_p with (sin, cos) as the pair: a turn by -ω_k t."""
    pos, x = torch.arange(5), torch.zeros(1, 5, 6).double()
    method = od.make("sinusoidal", dim=6)
    here, there = (method.embed(x, od.Space.points(pos + t), 0)[0][0] for t in (0, 9))
    rope = od.make("rope", head_dim=6, pairing="interleaved")
    turned, _ = rope.rotate(here[None, None], here[None, None], position_ids=torch.full((5,), -9))
    torch.testing.assert_close(there, turned[0, 0], rtol=0, atol=1e-11)


def test_split_is_interleaved_permuted_and_tensor2tensor_is_not():
    tables = {layout: od.make("sinusoidal", dim=6, layout=layout).table(9) for layout in LAYOUTS}
    inter = tables["interleaved"][:, [0, 2, 4, 1, 3, 5]]
    torch.testing.assert_close(tables["split"], inter, rtol=0, atol=1e-7)
    assert (tables["tensor2tensor"] - inter).abs().max() > 0.01


def test_bfloat16_tokens_get_vectors_of_full_precision():
    x, pos = torch.zeros(1, 5, 8).bfloat16(), torch.arange(5) + 100_001
    ours, _ = od.make("sinusoidal", dim=8).bfloat16().embed(x, od.Space.points(pos), 0)
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours[0].double(), paper(pos, 8), rtol=2**-8, atol=0.01)


@pytest.mark.parametrize("d", [6, 7])
def test_split_equals_roformer(d):
    roformer = pytest.importorskip("transformers.models.roformer.modeling_roformer")
    theirs = roformer.RoFormerSinusoidalPositionalEmbedding(40, d).create_weight()
    ours = od.make("sinusoidal", dim=d, layout="split").table(40)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_tensor2tensor_equals_whisper():
    whisper = pytest.importorskip("transformers.models.whisper.modeling_whisper")
    ours = od.make("sinusoidal", dim=8, layout="tensor2tensor").table(40)
    torch.testing.assert_close(ours, whisper.sinusoids(40, 8), rtol=0, atol=1e-5)


def test_conformer_equals_wav2vec2_conformer():
    hf = pytest.importorskip("transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer")
    config = hf.Wav2Vec2ConformerConfig(hidden_size=8, max_source_positions=50)
    theirs = hf.Wav2Vec2ConformerRelPositionalEmbedding(config)(torch.zeros(1, 9, 8))[0]
    ours = od.make("sinusoidal", dim=8, layout="conformer").table(9)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_one_layer_unless_told():
    assert od.make("sinusoidal", dim=4, max_len=9, at="qk", join="concat").mix.shape == (1, 4, 8)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "sinusoidal needs dim"),
        ({"dim": 4, "layout": "whisper"}, "layout is one of interleaved, split, tensor2tensor"),
        ({"dim": 4, "at": "kv"}, "at is one of tokens, qk, qkv"),
        ({"dim": 4, "join": "sum"}, "join is one of add, concat"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        od.make("sinusoidal", **options)


@pytest.mark.parametrize(("at", "words"), [("tokens", "embedding stage"), ("qk", "hidden states")])
def test_attention_alone_cannot_give_what_it_needs(at, words):
    q = torch.ones(1, 1, 3, 4)
    with pytest.raises(ValueError, match=f"sinusoidal.*needs.*{words}"):
        od.attention(q, q, q, od.make("sinusoidal", dim=4, at=at))
