"""What there is to see of a method, as numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ordinate.attend import Attend
from ordinate.backends.reference import scores, step
from ordinate.cli.panels import Curves, Heat, Picture, some, spots
from ordinate.cli.subject import Scene, problem, said, space, vectors
from ordinate.position import Position, leaves
from ordinate.rotation import Rotation
from ordinate.solve import weights
from ordinate.terms import Dense, Distance, Local, Product

#: Random problems that an average of attention is taken over.
DRAWS = 32


@torch.no_grad()
def picture(
    name: str, position: Position, scene: Scene, state: str = "at initialisation"
) -> Picture:
    """The panels that say something about this method; `state` is that of what it learns."""
    panels: list[Curves | Heat] = []
    if position.facts.causal_only:
        scene = replace(scene, causal=True)
    if (table := vectors(position, scene)) is not None:
        panels += _table(table)
    probe = problem(position, scene)
    grid = position.facts.axes == 2
    if probe.rotations:
        panels += _rotation(position, probe, scene)
    acts = probe.terms or probe.score is not None or probe.norm is not None
    if acts and _reads_content(probe):
        panels += _attention(position, scene, heat=True) if not grid else []
    elif acts:
        panels += _response(position, probe, scene)
        if not grid:
            panels += _attention(position, scene, heat=probe.norm is not None)
    learned = list(position.parameters())
    at_zero = bool(learned) and not max(learned, key=torch.Tensor.numel).any()
    note = ""
    if not panels:
        note = "Nothing to see: it changes nothing in this layer."
    elif learned and state == "at initialisation" and (at_zero or any(map(_flat, panels))):
        note = "It learns from a flat start: --draw draws what it learns at random instead."
    way = "causal" if scene.causal else "both directions"
    learned_as = f", {state}" if learned else ""
    about = f"{way}, layer {scene.layer}{learned_as}; {said(scene.sizes)}"
    return Picture(name=name, about=about, panels=panels, note=note)


def _table(table: Tensor) -> list[Curves | Heat]:
    n = len(table)
    unit = torch.nn.functional.normalize(table.double(), dim=-1)
    cosine = unit @ unit.T
    by_distance = np.array([cosine.diagonal(d).mean().item() for d in range(n)])
    return [
        Heat(
            title="The vectors", x_label="channel", y_label="position",
            value="value", values=table.double().numpy(),
        ),
        Curves(
            title="How alike two of them are", x_label="distance (tokens)",
            y_label="mean cosine similarity", x=np.arange(n), lines={"": by_distance},
            marks=spots(n),
        ),
    ]  # fmt: skip


def _rotation(position: Position, probe: Attend, scene: Scene) -> list[Curves | Heat]:
    panels: list[Curves | Heat] = []
    grid = position.facts.axes == 2
    for i, rotation in enumerate(probe.rotations):
        lines = _wavelengths(rotation, probe.pos_k)
        if position.facts.length_dependent and "seed" not in position.facts.needs:
            beyond = replace(scene, length=4 * scene.sizes["max_len"])
            longer = problem(position, beyond)
            lines = {f"{scene.length} tokens": lines[""]}
            lines[f"{beyond.length} tokens"] = _wavelengths(longer.rotations[i], longer.pos_k)[""]
        panels.append(
            Curves(
                title="Rotation spectrum", x_label="pair of channels",
                y_label=f"wavelength ({'cells' if grid else 'tokens'})",
                x=np.arange(len(next(iter(lines.values())))), lines=some(lines), log=True,
                points=True, marks=spots(len(next(iter(lines.values())))),
            )
        )  # fmt: skip
    heads, width = scene.sizes["heads"], scene.sizes["head_dim"]
    q = torch.full((1, heads, probe.space.size, width), width**-0.5)
    q, k = problem(position, scene, q.double(), q.double()).rotated()
    if grid:
        here = _centre(probe)
        alike = (k[0, 0] @ q[0, 0, here]).reshape(_sides(probe))
        panels.append(_map("Score seen from the centre, q = k all equal", alike, "q · k"))
        return panels
    alike = q[0, :, -1:] @ k[0].mT if scene.causal else q[0, :, :1] @ k[0].mT
    alike = alike[:, 0].flip(-1) if scene.causal else alike[:, 0]
    per_head = (alike - alike[:1]).abs().max() > 1e-9
    lines = {f"head {h}": alike[h].numpy() for h in range(len(alike))} if per_head else {}
    panels.append(
        Curves(
            title="Score by distance, q = k all equal", x_label="distance (tokens)",
            y_label="q · k after turning", x=np.arange(probe.space.size),
            lines=some(lines) or {"": alike[0].numpy()}, marks=spots(probe.space.size),
        )
    )  # fmt: skip
    return panels


def _wavelengths(rotation: Rotation, places: Tensor) -> dict[str, np.ndarray]:
    """How many steps each pair of channels needs to come round, per head and axis."""
    axes = places.shape[-1]
    step = torch.eye(axes, dtype=torch.float64)
    here = torch.cat([torch.zeros_like(step[:1]), step])[None]
    angle = rotation.angles(here, *(t.double() for t in rotation.tensors))
    angle = angle if angle.ndim == 4 else angle[:, None]
    speed = (angle[0, :, 1:] - angle[0, :, :1]).abs().numpy()
    lines = {}
    for head, axis in np.ndindex(speed.shape[:2]):
        label = f"head {head}" if len(speed) > 1 else f"along {'yx'[axis]}" if axes > 1 else ""
        # A pair that does not turn along this axis has no wavelength.
        turn = speed[head, axis]
        lines[label] = np.where(turn > 1e-12, 2 * math.pi / np.maximum(turn, 1e-12), np.nan)
    return lines


def _reads_content(a: Attend) -> bool:
    """True if a term reads more than places and scores."""
    for term in a.terms:
        if isinstance(term, Local) and (term.query or term.key):
            return True
        if not isinstance(term, Distance | Product | Dense | Local):
            return True
    return a.values is not None


def _response(position: Position, probe: Attend, scene: Scene) -> list[Curves | Heat]:
    """What is added to a score, or what becomes of a score of 1."""
    adds = probe.score is None and all(
        isinstance(t, Product | Dense)
        or (isinstance(t, Distance) and t.op == "add")
        or (isinstance(t, Local) and t.op == "add")
        for t in probe.terms
    )
    if not probe.terms and probe.score is None:
        return []
    # q and k of which every scaled product is 1, or 0 if what is added is to be seen alone.
    heads, width = scene.sizes["heads"], scene.sizes["head_dim"]
    each = 0.0 if adds else (width**0.5 / width) ** 0.5
    grid = position.facts.axes == 2
    wide = scene if scene.causal or grid else replace(scene, length=2 * scene.length + 1)
    size = space(position, wide).size
    q = torch.full((1, heads, size, width), each, dtype=torch.float64)
    a = problem(position, wide, q, q)
    a = replace(a, rotations=())
    tile = a.tile
    s = scores(a, tile)
    for term in a.terms:
        s = step(term, s, tile)
    s = s[0].double()
    label = "added to the score" if adds else "what a score of 1 becomes"
    if grid:
        return [
            _map(f"Seen from the centre, head {h}", s[h, _centre(a)].reshape(_sides(a)), label)
            for h in (range(0, len(s), max(1, len(s) // 2)))[:2]
        ]
    row = size - 1 if scene.causal else scene.length
    gap = np.arange(size) - row
    title = "Bias by distance" if adds else "Factor by distance"
    panels: list[Curves | Heat] = [_by_gap(title, label, s[:, row].numpy(), gap, scene)]
    if (s[:, 1:, 1:] - s[:, :-1, :-1]).abs().max() > 1e-9:
        part = s[0, :64, :64].numpy()
        part = np.where(np.tri(len(part), dtype=bool), part, 0) if scene.causal else part
        panels.append(
            Heat(
                title="The matrix, head 0", x_label="key", y_label="query", value=label, values=part
            )
        )
    return panels


def _attention(position: Position, scene: Scene, *, heat: bool) -> list[Curves | Heat]:
    """Attention weights by distance, averaged over random q and k and over queries side by side."""
    length = min(scene.length, 64)
    near = length // 8
    size = length + near if scene.causal else 2 * (length + near) + 1
    total = torch.zeros(())
    for part in range(DRAWS // 16):
        wide = replace(scene, batch=16, length=size, seed=scene.seed + part)
        total = total + weights(problem(position, wide)).double().mean(0) / (DRAWS // 16)
    # Rows of queries that all see the same range of distances, each shifted to start there.
    if scene.causal:
        rows, gap = range(length, size), np.arange(-length, 1)
    else:
        rows, gap = range(length, size - length), np.arange(-length, length + 1)
    lines = torch.stack([total[:, i, i + gap[0] : i + gap[-1] + 1] for i in rows]).mean(0).numpy()
    if not any(leaf.heads for leaf in leaves(position)):
        lines = lines.mean(0, keepdims=True)
    seen = [i + 1 if scene.causal else size for i in rows]
    plain = np.full(len(gap), np.mean([1 / n for n in seen]))
    curves = _by_gap("Mean attention, random q and k", "mean weight", lines, gap, scene, plain)
    if not heat:
        return [curves]
    return [
        curves,
        Heat(
            title="Mean attention, all heads", x_label="key", y_label="query", value="mean weight",
            values=total.mean(0).numpy(), floor=0.0,
            # The first rows of causal attention see few keys and would outshine the rest.
            ceiling=total.mean(0)[length // 8 :].max().item(),
        ),
    ]  # fmt: skip


def _by_gap(
    title: str,
    label: str,
    rows: np.ndarray,
    gap: np.ndarray,
    scene: Scene,
    plain: np.ndarray | None = None,
) -> Curves:
    """One line per head: by how far back in causal attention, else by signed distance."""
    x, x_label = gap, "key − query position (tokens)"
    if scene.causal:
        x, rows, x_label = -gap[::-1], rows[:, ::-1], "distance back (tokens)"
    same = len(rows) > 1 and np.allclose(rows, rows[:1], equal_nan=True)
    lines = (
        {"all heads": rows[0]}
        if same or len(rows) == 1
        else {f"head {h}": r for h, r in enumerate(rows)}
    )
    far = int(x.max())
    marks = [m for m in (0, 1, 4, 16, 64, 256) if m <= far]
    if not scene.causal:
        marks = sorted({0, *(side * m for m in (1, 16, 64, 256) for side in (-1, 1) if m <= far)})
    start = int(x[0])
    return Curves(
        title=title, x_label=x_label, y_label=label, x=x, lines=some(lines), plain=plain,
        marks=tuple(m - start for m in marks),
    )  # fmt: skip


def _map(title: str, values: Tensor, label: str) -> Heat:
    return Heat(title=title, x_label="column", y_label="row", value=label, values=values.numpy())


def _sides(a: Attend) -> tuple[int, int]:
    y, x = (int(a.pos_k[0, :, axis].max()) + 1 for axis in (0, 1))
    return y, x


def _centre(a: Attend) -> int:
    y, x = _sides(a)
    return y // 2 * x + x // 2


def _flat(panel: Curves | Heat) -> bool:
    values = list(panel.lines.values()) if isinstance(panel, Curves) else [panel.values]
    return all(np.ptp(v[np.isfinite(v)]) < 1e-12 for v in values if np.isfinite(v).any())
