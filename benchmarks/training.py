"""What training costs: our trainer against a plain training loop as people write it.

The same encoder (3 layers, width 128, 8 heads, 32 tokens, dropout 0.1) on the same samples of the
task "pattern", batch 32, AdamW at 1e-3. Both take turns on all cores. A turn in which anyone else
computed is repeated: what else runs slows threads that wait for each other far more than processes
that do not, and would flatter us.

plain: one process with torch's default threads (all cores); eager float32; a DataLoader with its
       defaults, of per-sample tensors, shuffled; a relative bias gathered from its table in every
       forward pass; `loss.item()` at every step; validation by a DataLoader after every epoch.
ours:  a process of one thread per core, each with a trial of its own, as `ordinate compare` has
       them, and their steps added up ("one": a single process); validation every 50 steps.

Checked first: as many parameters, the same loss from the same weights, losses that start alike.
What differs: plain drops from tokens plus positions, ours from tokens; plain trains on the smaller
batch that ends an epoch too; order and dropout are drawn otherwise. A trial is `--epochs` epochs
with their validations, without early stopping, start and tests. With --to-accuracy, seconds until
as many seeds as cores were seen at it: plain one after the other, ours at once; nan if not all.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from itertools import chain, count
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ordinate.experiments.run import cores
from ordinate.experiments.work import settle
from ordinate.training import Recipe, Trial, build
from ordinate.training.cost import processor
from ordinate.training.loop import Run

DIM, LENGTH, BATCH, LAYERS, HEADS, VOCAB, CLASSES = 128, 32, 32, 3, 8, 20, 3
METHODS = ("learned", "sinusoidal", "none", "relative", "continuous", "rope", "alibi")
# What the parts of our model are called in the plain one.
NAMES = {"encoder.": "", "attention.": "", "head.out": "head", "position.weight": "table",
         "position.inner": "mlp.0", "position.outer": "mlp.2"}  # fmt: skip


class Block(nn.Module):
    def __init__(self, position: str) -> None:
        super().__init__()
        self.position = position
        self.q, self.k, self.v, self.out = (nn.Linear(DIM, DIM) for _ in range(4))
        self.feed = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2))
        self.dropout = nn.Dropout(0.1)
        if position == "relative":
            self.table = nn.Parameter(torch.zeros(2 * LENGTH - 1, HEADS))
        if position == "rope":
            angle = torch.cat([angles(DIM // HEADS), angles(DIM // HEADS)], dim=-1)
            self.cos, self.sin = angle.cos(), angle.sin()

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        y = self.norms[0](x)
        q = self.q(y).view(b, n, HEADS, -1).transpose(1, 2)
        k = self.k(y).view(b, n, HEADS, -1).transpose(1, 2)
        v = self.v(y).view(b, n, HEADS, -1).transpose(1, 2)
        if self.position == "rope":
            q = q * self.cos + rotate_half(q) * self.sin
            k = k * self.cos + rotate_half(k) * self.sin
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        if self.position in ("relative", "alibi"):
            gap = torch.arange(n)[None, :] - torch.arange(n)[:, None]
            if self.position == "relative":
                scores = scores + self.table[gap + LENGTH - 1].permute(2, 0, 1)
            else:
                slopes = 2.0 ** (-8 * torch.arange(1, HEADS + 1) / HEADS)
                scores = scores - slopes[:, None, None] * gap.abs()
        weights = self.dropout(torch.softmax(scores, dim=-1))
        y = torch.matmul(weights, v).transpose(1, 2).contiguous().view(b, n, DIM)
        x = x + self.dropout(self.out(y))
        return x + self.dropout(self.feed(self.norms[1](x)))


class Encoder(nn.Module):
    def __init__(self, position: str) -> None:
        super().__init__()
        self.position, self.tokens = position, nn.Embedding(VOCAB, DIM)
        if position == "learned":
            self.table = nn.Parameter(torch.randn(1, LENGTH, DIM) * 0.02)
        if position == "sinusoidal":
            self.table = torch.stack([angles(DIM).sin(), angles(DIM).cos()], dim=-1).flatten(-2)
        if position == "continuous":
            self.mlp = nn.Sequential(nn.Linear(1, DIM), nn.GELU(), nn.Linear(DIM, DIM))
        self.blocks = nn.ModuleList(Block(position) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        if self.position in ("learned", "sinusoidal"):
            x = x + self.table
        if self.position == "continuous":
            x = x + self.mlp(torch.arange(LENGTH).float()[:, None] / (LENGTH - 1))
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


def angles(width: int) -> Tensor:
    return torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)


def rotate_half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)


class Trainer:
    steps: Iterator[None]  # each item is a step
    look: Callable[[], object]  # at the validation samples
    reaches: Callable[[], bool]  # trains, and says whether `goal` was seen within `epochs`

    def ready(self) -> None:
        pass

    def turn(self, seconds: float) -> tuple[float, float]:
        """Steps per second, and the seconds of a look."""
        start, steps = time.perf_counter(), 0
        while (spent := time.perf_counter() - start) < seconds:
            next(self.steps)
            steps += 1
        self.look()
        return steps / spent, time.perf_counter() - start - spent

    def time(self) -> float:
        """Seconds to the goal; NaN if it was not reached."""
        start = time.perf_counter()
        reached = self.reaches()
        return time.perf_counter() - start if reached else math.nan


class Plain(Trainer):
    def __init__(self, method: str, seed: int, kind: str, epochs: int, goal: float | None) -> None:
        trial = trial_of(method, seed)
        parts = [build.samples(trial, build.task(trial), s) for s in ("train", "validation")]
        train, held_out = (TensorDataset(s.x, s.y) for s in parts)
        torch.manual_seed(seed)
        self.loader = DataLoader(train, batch_size=BATCH, shuffle=True)
        self.held_out = DataLoader(held_out, batch_size=BATCH)
        self.model, self.criterion = Encoder(method), nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.epochs, self.goal, self.running_loss = epochs, goal, 0.0
        self.steps = chain.from_iterable(self.epoch() for _ in count())

    def epoch(self) -> Iterator[None]:
        self.model.train()
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.running_loss += loss.item()
            yield

    def look(self) -> float:
        self.model.eval()
        right, loss = 0, 0.0
        with torch.no_grad():
            for x, y in self.held_out:
                logits = self.model(x)
                loss += self.criterion(logits, y).item()
                right += int((logits.argmax(dim=-1) == y).sum().item())
        self.model.train()
        return right / 1000

    def reaches(self) -> bool:
        for _ in range(self.epochs):
            for _ in self.epoch():
                pass
            if self.look() >= (self.goal or 1.0):
                return True
        return False


class Ours(Trainer):
    def __init__(self, method: str, seed: int, kind: str, epochs: int, goal: float | None) -> None:
        trial = trial_of(method, seed, precision=kind, epochs=epochs, goal=goal, agree=1)
        self.run = Run([trial], None, "cpu", (0, 1))
        self.steps = map(self.run.learner.step, count())

    def look(self) -> object:
        return self.run.learner.scores(self.run.held_out, self.run.learner.theta)

    def reaches(self) -> bool:
        self.run.train(lambda _: None)
        return self.run.states[0].stop == "goal"


def trial_of(method: str, seed: int = 0, **recipe: Any) -> Trial:
    position = f"relative:clip={LENGTH - 1}" if method == "relative" else method
    recipe = {"batch": BATCH, "rate": 1e-3, **recipe}
    return Trial(task="pattern", position=position, recipe=Recipe(**recipe), seed=seed)


def alike(method: str) -> list[float]:
    """Asserts that both train the same model; returns their losses before training."""
    plain, ours = Plain(method, 0, "float32", 1, 1.0), Ours(method, 0, "float32", 1, 1.0)
    data, models = ours.run.held_out[0], (plain.model.eval(), ours.run.learner.model.eval())
    sizes = [sum(p.numel() for p in model.parameters()) for model in models]
    with torch.no_grad():
        first = [float(plain.criterion(m(data.x), data.y)) for m in models]
        state = plain.model.state_dict()
        if method == "relative":
            state["table"] = torch.stack([b.table.normal_().T for b in plain.model.blocks])
        for name, tensor in models[1].state_dict().items():
            for theirs, its in NAMES.items():
                name = name.replace(theirs, its)
            tensor.copy_(state[name])
        torch.testing.assert_close(*(m(data.x) for m in models))
    assert sizes[0] == sizes[1] and abs(first[0] - first[1]) < 0.2, (sizes, first)
    return first


MADE: dict[tuple[Any, ...], Trainer] = {}


def do(key: tuple[Any, ...], what: str, *args: Any) -> Any:
    """In a process of its own: asks a trainer, which is made where it is first asked for."""
    if key not in MADE:
        MADE[key] = (Plain if key[2] == "plain" else Ours)(*key)
    return getattr(MADE[key], what)(*args)


def asked(processes: Sequence[Executor], keys: Sequence[Any], *what: Any) -> list[Any]:
    """The answers of processes that do the same at once."""
    for words in (("ready",), what):
        futures = [p.submit(do, key, *words) for p, key in zip(processes, keys, strict=False)]
        answers = [future.result() for future in futures]
    return answers


def undisturbed(what: Callable[[], Any], options: argparse.Namespace) -> Any:
    """What is returned once others took less than `options.others` of a core meanwhile."""
    end = time.monotonic() + options.wait
    while time.monotonic() < end:
        time.sleep(0.3)  # torch's threads wait in a loop for a while
        before, start = others(), time.monotonic()
        answer = what()
        if others() - before < options.others * (time.monotonic() - start):
            return answer
    sys.exit("this machine does other things: wait, or allow more with --others")


def others() -> float:
    """Seconds that the cores have spent on anything but this."""
    me, every = psutil.Process(), psutil.cpu_times()
    mine = sum(sum(p.cpu_times()[:2]) for p in (me, *me.children()))
    return sum(every[:3]) - mine


def measured(
    method: str, plain: Executor, ours: Sequence[Executor], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row per precision of ours: medians of the rounds, and ratios within each round."""
    first, epochs, goal = alike(method), options.epochs, options.to_accuracy

    def keys(p: str, goal: float | None = None) -> list[Any]:
        return [(method, seed, p, epochs, goal) for seed in range(len(ours))]

    turns = {"plain": ([plain], keys("plain"))}
    turns |= {f"{p} one": (ours[:1], keys(p)) for p in options.precision}
    turns |= {f"{p} all": (ours, keys(p)) for p in options.precision}
    found: dict[str, list[Any]] = {name: [] for name in turns}
    for round_ in range(options.rounds + 1):
        for name in turns if round_ % 2 else reversed(turns):
            turn = partial(asked, *turns[name], "turn", options.seconds)
            found[name].append(undisturbed(turn, options) if round_ else turn())

    def rate(name: str, steps: int = 1, looks: int = 0, unit: float = 1) -> list[float]:
        """How often per `unit` seconds so many steps and looks; the first round warmed up."""
        return [sum(unit / (steps / r + looks * look) for r, look in a) for a in found[name][1:]]

    rows, steps = [], 5000 // BATCH * epochs
    theirs, theirs_hourly = rate("plain"), rate("plain", steps + epochs, epochs, 3600)
    spent = [asked([plain], [key], "time")[0] for key in keys("plain", goal)] if goal else []
    for p in options.precision:
        mine = rate(f"{p} all")
        hourly = rate(f"{p} all", steps, math.ceil(steps / Recipe().every), 3600)
        row = {
            "method": method, "precision": p, "plain": median(theirs),
            "one": median(rate(f"{p} one")), "all": median(mine), "ratio": ratio(mine, theirs),
            "plain/h": median(theirs_hourly), "ours/h": median(hourly),
            "ratio/h": ratio(hourly, theirs_hourly), "first losses": first, "rounds": found,
        }  # fmt: skip
        if goal:
            longest = max(asked(ours, keys(p, goal), "time"))
            row |= {"plain s": sum(spent), "ours s": longest, "ratio s": sum(spent) / longest}
        rows.append(row)
    return rows


def ratio(ours: list[float], others: list[float]) -> float:
    return median(a / b for a, b in zip(ours, others, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn")
    kinds = ["float32", "bfloat16"]
    parser.add_argument("--precision", nargs="+", choices=kinds, default=kinds, help="of ours")
    parser.add_argument("--epochs", type=int, default=20, help="of a trial")
    parser.add_argument("--to-accuracy", type=float, metavar="0.95", help="time that too (long)")
    parser.add_argument("--others", type=float, default=0.06, help="cores anyone else may use")
    parser.add_argument("--wait", type=float, default=300.0, help="seconds, for a quiet turn")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options, context = parser.parse_args(), get_context("spawn")
    plain = ProcessPoolExecutor(1, context)
    ours = [ProcessPoolExecutor(1, context, initializer=settle) for _ in range(cores())]
    machine = f"{processor()}, {cores()} cores, torch {torch.__version__}"
    print(f"{machine}; load before: {os.getloadavg()[0]:.1f}")
    print(f"plain: 1 process of {torch.get_num_threads()} threads; ours: {len(ours)} of 1 thread")
    print(f"steps per second, then trials of {options.epochs} epochs per hour")
    rows: list[dict[str, Any]] = []
    for method in options.methods:
        for row in measured(method, plain, ours, options):
            rows.append(row)
            numbers = {k: v for k, v in row.items() if isinstance(v, float)}
            if len(rows) == 1:
                print(f"{'method':<12}{'precision':<10}" + "".join(f"{k:>9}" for k in numbers))
            cells = "".join(f"{v:>9.2f}" for v in numbers.values())
            print(f"{method:<12}{row['precision']:<10}{cells}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}))


if __name__ == "__main__":
    main()
