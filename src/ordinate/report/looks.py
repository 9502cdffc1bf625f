"""What is to be seen inside trained models, as HTML: what methods learned, and attention maps."""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, normalize

from ordinate.experiments.comparison import Comparison, Row
from ordinate.report.tables.numbers import count
from ordinate.training.looks import Looks, Maps

# Viridis, for what begins at 0; purple over white to orange (ColorBrewer) for what has two signs.
ONE_SIDED = "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725"
TWO_SIDED = "2d004b 542788 8073ac b2abd2 d8daeb f7f7f7 fee0b6 fdb863 e08214 b35806 7f3b08"
#: Rows or columns of a heat map; of larger ones every second, third … is shown.
MOST = 128
#: How coarse a map can be: the side of a square, and the number of shades.
GRAINS = [(1, 255), (1, 63), *((side, 63) for side in (2, 3, 4, 6, 8, 12, 16, 24, 32, 10**6))]
#: The side of the smallest map that is made from a larger one.
COARSEST = 32


class Seen(NamedTuple):
    """What was kept of a method in a cell."""

    row: Row
    cell: str
    looks: Looks


def seen(comparison: Comparison, looks_of: Callable[[str], Looks | None]) -> list[Seen]:
    """What there is of the first seed of every row."""
    found = []
    for row in comparison.rows:
        outcome = row.outcomes.get(row.seeds[0])
        looks = looks_of(outcome.trial.id) if outcome else None
        if looks is not None:
            cell = f"{count(row.cell.layers, 'layer')}, {count(row.cell.epochs, 'epoch')}"
            found.append(Seen(row, cell, looks))
    return found


def learned(found: Sequence[Seen], room: int) -> str:
    """What each method learned, as heat maps, until there is no more room."""
    made, left = [], []
    several = len({one.cell for one in found}) > 1
    for row, cell, looks in found:
        if not looks.learned:
            continue
        name = f"{row.method}, {cell}" if several else row.method
        shown = "".join(
            panel for what, pair in looks.learned.items() for panel in _panels(name, what, *pair)
        )
        room -= len(shown)
        if room < 0:
            left.append(name)
            continue
        opened = "" if made else " open"
        made.append(
            f"<details{opened}><summary>{escape(name)}</summary>"
            f'<div class="panels">{shown}</div></details>'
        )
    if left:
        made.append(
            f"<p class=soft>Left out to keep the page small: {escape('; '.join(left))}.</p>"
        )
    return "\n".join(made)


def _panels(method: str, what: str, before: Tensor, after: Tensor) -> list[str]:
    changed = bool((before != after).any())
    times = {"before training": before, "after training": after} if changed else {"": after}
    bound = float(max(before.abs().max(), after.abs().max())) or 1.0
    axes = {"table": ("position", "dimension"), "bias": ("head", "distance, key - query")}
    rows, columns = axes.get(what, ("row", "column"))
    title = {"table": "Vectors of the positions", "bias": "Added to the score, first layer"}
    made = []
    for when, t in times.items():
        head = ", ".join(filter(None, [title.get(what, what.capitalize()), when]))
        start = -_backward(t) if what == "bias" else 0
        made.append(_panel(method, head, t, bound, rows, columns, start))
    if what == "table":
        for when, t in times.items():
            head = ", ".join(filter(None, ["Cosine similarity of positions", when]))
            near = normalize(t, dim=-1)
            made.append(_panel(method, head, near @ near.T, 1.0, "position", "position", 0))
    return made


def _backward(bias: Tensor) -> int:
    """How many keys before the query a bias has: all its columns (causal), or half of them."""
    n = bias.shape[-1]
    return n - 1 if n % 2 == 0 else (n - 1) // 2


def _panel(
    method: str, head: str, t: Tensor, bound: float, rows: str, columns: str, start: int
) -> str:
    t = t.reshape(-1, t.shape[-1]) if t.ndim > 1 else t[None]
    whole, every = t.shape, [max(1, -(-n // MOST)) for n in t.shape]
    t = t[:: every[0], :: every[1]]
    note = " and ".join(
        f"every {k}th {name}" for k, name in zip(every, (rows, columns), strict=True) if k > 1
    )
    said = f"{whole[0]} × {whole[1]}" + (f", {note} shown" if note else "")
    drawing = heat(t, bound, f"{method}: {head}", (rows, columns), (whole[0], whole[1]), start)
    name = "-".join("".join(c if c.isalnum() else " " for c in f"{method} {head}").split())
    return (
        f'<figure class="panel"><figcaption>{escape(head)} '
        f'<span class="unit">{said}</span></figcaption>{drawing}'
        f'<button type="button" data-save="{name}">Save SVG</button></figure>'
    )


def heat(
    t: Tensor, bound: float, title: str, axes: tuple[str, str], whole: tuple[int, int], start: int
) -> str:
    """A heat map as SVG: the numbers are a small picture inside, what is written is text."""
    high, wide = t.shape
    width = 250.0
    height = min(250.0, max(width * high / wide, 14.0 * min(high, 8)))
    levels = ((t / bound).clamp(-1, 1) * 127.5 + 127.5).round().to(torch.uint8)
    strip = torch.arange(256, dtype=torch.uint8)[None]
    end, bottom = 34 + width, 8 + height
    return (
        f'<svg viewBox="0 0 296 {bottom + 52:.0f}" role="img" aria-label="{escape(title)}" '
        f'font-size="11" fill="currentColor"><title>{escape(title)}</title>'
        f'{_image(levels, 34, 8, width, height)}'
        f'<rect x="34" y="8" width="{width:g}" height="{height:g}" fill="none" '
        'stroke="currentColor" stroke-opacity=".4"/>'
        f'<text x="30" y="17" text-anchor="end">0</text>'
        f'<text x="30" y="{bottom:.1f}" text-anchor="end">{whole[0] - 1 or ""}</text>'
        f'<text x="11" y="{8 + height / 2:.1f}" text-anchor="middle" '
        f'transform="rotate(-90 11 {8 + height / 2:.1f})">{axes[0] if whole[0] > 1 else ""}</text>'
        f'<text x="34" y="{bottom + 13:.1f}">{_signed(start)}</text>'
        f'<text x="{end:g}" y="{bottom + 13:.1f}" text-anchor="end">{start + whole[1] - 1}</text>'
        f'<text x="{34 + width / 2:g}" y="{bottom + 13:.1f}" text-anchor="middle">{axes[1]}</text>'
        f"{_image(strip, 94, bottom + 28, 130, 8)}"
        f'<text x="90" y="{bottom + 36:.1f}" text-anchor="end">{_signed(-bound)}</text>'
        f'<text x="228" y="{bottom + 36:.1f}">{bound:.3g}</text></svg>'
    )  # fmt: skip


def _signed(x: float) -> str:
    return f"{x:.3g}".replace("-", "−")


def _image(levels: Tensor, x: float, y: float, width: float, height: float) -> str:
    content = b64encode(png(levels, palette(TWO_SIDED))).decode()
    return (
        f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        'preserveAspectRatio="none" style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{content}"/>'
    )


@cache
def palette(anchors: str) -> bytes:
    """256 colours through those given."""
    points = torch.tensor([list(bytes.fromhex(one)) for one in anchors.split()], dtype=torch.float)
    at = torch.linspace(0, len(points) - 1, 256)
    low = at.long().clamp(max=len(points) - 2)
    mixed = torch.lerp(points[low], points[low + 1], (at - low)[:, None])
    return bytes(mixed.round().to(torch.uint8).flatten().tolist())


def png(levels: Tensor, colours: bytes) -> bytes:
    """[rows, columns] of uint8 as a picture of 256 colours."""
    high, wide = levels.shape
    lines = torch.cat([levels.new_zeros(high, 1), levels], 1)
    chunks = {
        b"IHDR": struct.pack(">2I5B", wide, high, 8, 3, 0, 0, 0),
        b"PLTE": colours,
        b"IDAT": zlib.compress(lines.numpy().tobytes(), 9),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks.items()
    )


def maps(found: Sequence[Seen], trained: int, room: int) -> tuple[str, list[str]]:
    """The attention maps as the viewer reads them, and who was left out.

    What does not fit into `room` letters is made coarser, the longest sequences first and all
    methods alike: fewer shades, and then squares that are the largest of 2 × 2, 4 × 4 … weights.
    """
    entries = [one for one in found if one.looks.maps]
    sets = {(i, n): m for i, one in enumerate(entries) for n, m in one.looks.maps.items()}
    coarse = dict.fromkeys(sorted({n for _, n in sets}), 0)
    packed: dict[tuple[int, int, int], str] = {}
    while True:
        sizes = dict.fromkeys(coarse, 0)
        for (i, n), m in sets.items():
            key = (i, n, coarse[n])
            if key not in packed:
                packed[key] = _packed(m, *GRAINS[coarse[n]])
            sizes[n] += len(packed[key])
        if sum(sizes.values()) <= room or not sets:
            break
        finer = [n for n in coarse if n >= COARSEST * GRAINS[coarse[n] + 1][0]]
        if finer:
            coarse[max(finer, key=lambda n: sizes[n])] += 1
        else:
            last = max(i for i, _ in sets)
            sets = {key: m for key, m in sets.items() if key[0] != last}
    shown = []
    for i, (row, cell, _) in enumerate(entries):
        own = [
            _set(n, m, *GRAINS[coarse[n]], packed[i, n, coarse[n]], row)
            for (j, n), m in sets.items()
            if j == i
        ]
        if own:
            shown.append({"method": row.method, "cell": cell, "trained": trained, "sets": own})
    left = [f"{row.method}, {cell}" for row, cell, _ in entries[len(shown) :]]
    text = json.dumps({"colours": palette(ONE_SIDED).hex(), "entries": shown})
    # Inside a page, "</script" would end it wherever it stands.
    return text.replace("<", "\\u003c"), left


def _set(n: int, m: Maps, block: int, shades: int, data: str, row: Row) -> dict[str, object]:
    outcome = row.outcomes[row.seeds[0]]
    rows, columns = (-(-side // block) for side in m.maps.shape[1:])
    return {
        "length": n, "block": block, "shades": shades, "rows": rows, "columns": columns,
        "which": m.which, "whole": outcome.trial.sizes.heads * row.cell.layers,
        "tokens": m.tokens.tolist(), "data": data,
    }  # fmt: skip


def _packed(m: Maps, block: int, shades: int) -> str:
    parts, tops = m.maps, m.tops
    if shades != 255:
        w = max_pool2d(parts.float() * tops[..., None] / 255, block, ceil_mode=True)
        tops = w.amax(-1)
        # Steps of the root: what is weak stays more than nothing.
        parts = (shades * (w / tops[..., None].clamp(min=1e-38)).sqrt()).round().to(torch.uint8)
    content = parts.numpy().tobytes() + tops.float().numpy().astype("<f4").tobytes()
    return b64encode(zlib.compress(content, 6)).decode()
