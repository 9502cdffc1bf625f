"""What there is to look at in a trained model: attention maps, and what the method learned.

FOLDER/looks.safetensors
    maps.N [k, n, m]    uint8: 255 · weight / the largest of its row, of the sample at length N
    tops.N [k, n]       the largest of each row, float32
    which.N [k, 2]      layer and head of each map
    tokens.N [n]        the token ids of the sample
    before.X, after.X   X of the method before training and after: `parameter NAME`, `table`
                        (the vectors of the places), `bias` (by head and distance)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ordinate.backends.reference import weights
from ordinate.models import Transformer
from ordinate.models.attention import watched
from ordinate.position import Position
from ordinate.tasks import Task
from ordinate.training import build, checkpoint
from ordinate.training.learner import Learner, positions
from ordinate.training.trial import Trial

LOOKS = "looks.safetensors"
#: Bytes of all maps of a trial at one length; of longer samples fewer heads are kept.
ROOM = 8_000_000
LONGEST = 1024
#: Numbers of the largest parameter that is kept.
LARGEST = 100_000


@dataclass(frozen=True)
class Maps:
    """Attention of one sample: `maps` [k, n, m] in 255ths of `tops` [k, n], largest per row."""

    tokens: Tensor
    which: list[tuple[int, int]]
    maps: Tensor
    tops: Tensor


@dataclass(frozen=True)
class Looks:
    """The attention maps by length, and what of the method changed: name -> before, after."""

    maps: dict[int, Maps] = field(default_factory=dict)
    learned: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


def keep(
    folder: Path, learner: Learner, trial: Trial, task: Task, theta: Tensor, lengths: Sequence[int]
) -> str:
    """Writes what there is to see in a trained trial; why it could not, or nothing.

    theta:    the trained parameters, a row of the learner
    lengths:  those the method answers at; seen are the one trained at and the longest other
    """
    try:
        seen = look(learner, trial, task, theta, lengths)
        checkpoint.replace(folder / LOOKS, save(dump(seen)))
    # Pictures are worth no trial: whatever a method of one's own raises is said in the record.
    except Exception as error:
        return f"no looks inside: {type(error).__name__}: {str(error).split(chr(10))[0]}"
    return ""


@torch.no_grad()
def look(
    learner: Learner, trial: Trial, task: Task, theta: Tensor, lengths: Sequence[int]
) -> Looks:
    """What there is to see, the same on every run."""
    model = build.model(trial, task).to(learner.device).eval()
    before = _learned(model, task)
    nn.utils.vector_to_parameters(theta, [p for p in model.parameters() if p.requires_grad])
    after = _learned(model, task)
    beyond = [n for n in lengths if task.length != n <= LONGEST]
    maps = {
        n: _maps(learner, model, trial, task, n)
        for n in [*([task.length] if task.length <= LONGEST else []), *beyond[-1:]]
    }
    return Looks(maps, {x: (before[x], after[x]) for x in before if x in after})


def _maps(learner: Learner, model: Transformer, trial: Trial, task: Task, length: int) -> Maps:
    own = None if length == task.length else length
    sample = build.samples(trial, task, "test", own)
    x = sample.x[:1].to(learner.device)
    valid = None if sample.valid is None else sample.valid[:1].to(learner.device)
    with watched(model) as problems:
        learner.forward(model, x, valid, None)
    every = [(a.layer, head) for a in problems for head in range(a.q.shape[1])]
    n = problems[0].q.shape[2] * problems[0].k.shape[2]
    chosen = _spread(every, max(1, ROOM // n))
    whole = {a.layer: weights(a)[0] for a in problems if a.layer in {at for at, _ in chosen}}
    w = torch.stack([whole[layer][head].float() for layer, head in chosen]).cpu()
    w = w.nan_to_num().clamp(min=0)
    tops = w.amax(-1)
    maps = (255 * w / tops[..., None].clamp(min=torch.finfo(tops.dtype).tiny)).round()
    return Maps(x[0].cpu().to(torch.int32), chosen, maps.to(torch.uint8), tops)


def _spread(every: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """At most `count` of all (layer, head): the same heads of every layer, or of some layers."""
    if count >= len(every):
        return every
    layers = sorted({layer for layer, _ in every})
    heads = max(1, count // len(layers))
    if count < len(layers):
        steps = max(1, count - 1)
        layers = [layers[i * (len(layers) - 1) // steps] for i in range(count)]
    return [(layer, head) for layer, head in every if layer in layers and head < heads]


def _learned(model: Transformer, task: Task) -> dict[str, Tensor]:
    """What the method holds at the moment, as pictures show it."""
    position, *_ = positions(model)
    parameters = {
        f"parameter {name}": p.detach().clone().float().cpu()
        for name, p in position.named_parameters()
        if 1 < p.numel() <= LARGEST
    }
    found = {
        "table": _table(position, task.length),
        "bias": _bias(position, task) if parameters else None,
        **parameters,
    }
    return {name: t for name, t in found.items() if t is not None}


def _table(position: Position, n: int) -> Tensor | None:
    try:
        return position.table(n).detach().clone().float().cpu()
    except (ValueError, NotImplementedError):
        return None


def _bias(position: Position, task: Task) -> Tensor | None:
    """What is added to scores in the first layer, [heads, distances], if distance decides."""
    n = task.length
    try:
        square = position.bias(n, causal=task.kind == "decoder").float().cpu()
    except (ValueError, NotImplementedError):
        return None
    # Row n-1 has the distances back to the first key, row 0 those on to the last.
    line = torch.cat([square[:, n - 1, :], square[:, 0, 1:]], 1)
    i = torch.arange(n)
    same = torch.allclose(square, line[:, i[None, :] - i[:, None] + n - 1], atol=1e-5)
    ahead = n if task.kind == "decoder" else 2 * n - 1
    return line[:, :ahead].clone() if same else None


def dump(seen: Looks) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for n, maps in seen.maps.items():
        tensors[f"tokens.{n}"] = maps.tokens
        tensors[f"which.{n}"] = torch.tensor(maps.which, dtype=torch.int32)
        tensors[f"maps.{n}"], tensors[f"tops.{n}"] = maps.maps, maps.tops
    for name, (before, after) in seen.learned.items():
        tensors[f"before.{name}"], tensors[f"after.{name}"] = before, after
    return {name: t.contiguous() for name, t in tensors.items()}


def read(folder: Path) -> Looks | None:
    """What `keep` wrote in a trial's folder; None if nothing is there, or nothing whole."""
    try:
        tensors = load((folder / LOOKS).read_bytes())
        lengths = sorted(int(name[7:]) for name in tensors if name.startswith("tokens."))
        maps = {
            n: Maps(
                tensors[f"tokens.{n}"],
                [(int(layer), int(head)) for layer, head in tensors[f"which.{n}"]],
                tensors[f"maps.{n}"],
                tensors[f"tops.{n}"],
            )
            for n in lengths
        }
        # A file has its own order: what a method adds comes first, then what it is made of.
        names = sorted({name[7:] for name in tensors if name.startswith("before.")}, key=_order)
        return Looks(maps, {x: (tensors[f"before.{x}"], tensors[f"after.{x}"]) for x in names})
    except (OSError, ValueError, KeyError, SafetensorError):
        return None


def _order(name: str) -> tuple[bool, bool, str]:
    return name != "table", name != "bias", name
