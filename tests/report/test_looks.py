"""What is shown of a trained model is what was kept, or coarser and said to be."""

import io
import json
import struct
import zlib
from base64 import b64decode

import pytest
import torch
from PIL import Image

from ordinate.report import looks as inside
from ordinate.training.looks import Looks, Maps
from report.made import quick


def attention(k, n, seed=0):
    w = torch.randn(k, n, n, generator=torch.Generator().manual_seed(seed)).mul(3).softmax(-1)
    tops = w.amax(-1)
    parts = (255 * w / tops[..., None]).round().to(torch.uint8)
    which = [(i // 2, i % 2) for i in range(k)]
    return Maps(torch.arange(n, dtype=torch.int32) % 7, which, parts, tops)


def some(learned=None, **lengths):
    comparison = quick(seeds=1, failing=False, methods=("rope", "none"))
    maps = {int(n[1:]): attention(k, int(n[1:])) for n, k in lengths.items()}
    return inside.seen(comparison, lambda _: Looks(maps, learned or {}))


def unpacked(one):
    content = zlib.decompress(b64decode(one["data"]))
    k, rows, columns = len(one["which"]), one["rows"], one["columns"]
    parts = torch.frombuffer(bytearray(content[: k * rows * columns]), dtype=torch.uint8)
    tops = struct.unpack(f"<{k * rows}f", content[k * rows * columns :])
    share = (parts.view(k, rows, columns).float() / one["shades"]) ** (1 + (one["shades"] < 255))
    return share * torch.tensor(tops).view(k, rows, 1)


def test_maps_that_fit_are_whole():
    text, left = inside.maps(some(n32=4, n128=4), 32, 10**7)
    entries = json.loads(text)["entries"]
    assert [e["method"] for e in entries] == ["rope", "none"] and left == []
    for one, n in zip(entries[0]["sets"], (32, 128), strict=True):
        assert (one["block"], one["shades"], one["rows"], one["length"]) == (1, 255, n, n)
        kept = attention(4, n)
        assert torch.allclose(unpacked(one), kept.maps / 255 * kept.tops[..., None])


@pytest.mark.parametrize(("share", "side", "shades"), [(0.95, 1, 63), (0.6, 2, 63), (0.35, 3, 63)])
def test_maps_that_do_not_fit_are_coarser_the_long_ones_first(share, side, shades):
    room = int(share * len(inside.maps(some(n32=4, n128=4), 32, 10**7)[0]))
    text, left = inside.maps(some(n32=4, n128=4), 32, room)
    assert len(text) < room + 5_000 and left == []
    short, long = json.loads(text)["entries"][1]["sets"]
    assert (short["block"], short["shades"]) == (1, 255)
    assert (long["block"], long["shades"], long["rows"]) == (side, shades, -(-128 // side))
    kept = attention(4, 128)
    true = kept.maps / 255 * kept.tops[..., None]
    largest = torch.nn.functional.max_pool2d(true, side, ceil_mode=True)
    row = largest.amax(-1, keepdim=True)
    assert ((unpacked(long) - largest).abs() <= row / 60).all()


def test_what_fits_in_no_way_is_left_out_and_named():
    text, left = inside.maps(some(n32=4), 32, 4_000)
    assert [e["method"] for e in json.loads(text)["entries"]] == ["rope"]
    assert left == ["none, 3 layers, 4 epochs"]
    assert json.loads(inside.maps(some(n32=4), 32, 0)[0])["entries"] == []


def test_no_tag_can_stand_in_the_maps():
    (one, _) = some(n32=1)
    evil = one._replace(cell="</script><script>alert(1)")
    text, _ = inside.maps([evil], 32, 10**6)
    assert "<" not in text and json.loads(text)["entries"][0]["cell"] == evil.cell


def test_a_picture_is_what_another_program_reads():
    levels = torch.arange(256, dtype=torch.uint8).view(8, 32)
    colours = inside.palette(inside.TWO_SIDED)
    picture = Image.open(io.BytesIO(inside.png(levels, colours)))
    assert picture.size == (32, 8)
    assert list(picture.tobytes()) == levels.flatten().tolist()
    assert bytes(picture.getpalette()) == colours
    assert tuple(colours[:3]) == (0x2D, 0x00, 0x4B) and tuple(colours[-3:]) == (0x7F, 0x3B, 0x08)


def test_tables_are_shown_before_and_after_with_their_similarity():
    table = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
    shown = inside.learned(some({"table": (table, 2 * table)}), 10**6)
    assert shown.count("<svg") == 2 * 4 and shown.count("data-save") == 2 * 4
    assert "Vectors of the positions, before training" in shown
    assert "Cosine similarity of positions, after training" in shown
    assert "nan" not in shown
    fixed = inside.learned(some({"table": (table, table)}), 10**6)
    assert fixed.count("<svg") == 2 * 2 and "before training" not in fixed


def test_a_bias_has_its_distances_on_the_axis():
    both, back = torch.zeros(4, 63), torch.zeros(4, 32)
    assert ">−31</text>" in inside.learned(some({"bias": (both, both)}), 10**6)
    causal = inside.learned(some({"bias": (back, back + 1)}), 10**6)
    assert ">−31</text>" in causal and 'text-anchor="end">0</text>' in causal


def test_large_parameters_are_thinned_and_said_to_be():
    large = torch.randn(2, 300, 40)
    shown = inside.learned(some({"parameter weight": (large, -large)}), 10**6)
    assert "600 × 40, every 5th row shown" in shown
    assert "Left out to keep the page small: none." in inside.learned(
        some({"parameter weight": (large, -large)}), 30_000
    )
