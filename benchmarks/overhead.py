"""What the interface costs: a training step against the same model written in one plain file.

Width 128, length 32, batch 32, 3 layers, 8 heads: the size at which Python counts most. Both models
do the same mathematics (checked first: same loss, same gradients from the same weights), and take
turns in one run, so that the ratio means something on a noisy machine.

    python benchmarks/overhead.py [--mode eager] [--threads 1] [--rounds 60] [POSITION...]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import ordinate as od

DIM, LENGTH, BATCH, LAYERS, HEADS, VOCAB = 128, 32, 32, 3, 8, 20


class PlainBlock(nn.Module):
    """A block as one writes it by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(DIM, DIM) for _ in range(4))
        self.feed = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2))

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor] | None) -> Tensor:
        y = self.norms[0](x)
        q, k, v = (
            p(y).view(*x.shape[:2], HEADS, -1).transpose(1, 2) for p in (self.q, self.k, self.v)
        )
        if turn is not None:
            q, k = (rotated(t, *turn) for t in (q, k))
        # At this length the explicit softmax is faster than torch's fused kernel.
        y = (q * q.shape[-1] ** -0.5 @ k.mT).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.feed(self.norms[1](x))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Plain(nn.Module):
    """The same classifier as ours, in one file; cos and sin are computed once, when it is made."""

    def __init__(self, position: str) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, DIM)
        self.table = nn.Parameter(torch.zeros(LENGTH, DIM)) if position == "learned" else None
        self.blocks = nn.ModuleList(PlainBlock() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, 3)
        angle = torch.arange(LENGTH)[:, None] * od.frequencies(DIM // HEADS, 10000.0, torch.ones(1))
        self.turn = (angle.cos(), angle.sin()) if position == "rope" else None

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        if self.table is not None:
            x = x + self.table
        for block in self.blocks:
            x = block(x, self.turn)
        return self.head(self.norm(x).mean(1))


def same_weights(plain: Plain, ours: od.models.Transformer) -> None:
    """Copies ours into the plain model."""
    stack = ours.encoder
    assert stack is not None
    pairs = [(plain.tokens, stack.tokens), (plain.norm, stack.norm), (plain.head, ours.head.out)]
    for mine, theirs in zip(plain.blocks, stack.blocks, strict=True):
        parts = ("q", "k", "v", "out")
        pairs += [(getattr(mine, p), getattr(theirs.attention, p)) for p in parts]
        pairs += [(mine.feed, theirs.feed), (mine.norms, theirs.norms)]
    for mine, theirs in pairs:
        mine.load_state_dict(theirs.state_dict())
    if plain.table is not None:
        plain.table.data.copy_(stack.position.weight[0])


class Trainer:
    """One model and its optimiser."""

    def __init__(self, model: nn.Module, compiled: bool) -> None:
        self.model, self.step_of = model, torch.compile(model) if compiled else model
        self.optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def loss(self, ids: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.step_of(ids), labels)

    def seconds(self, ids: Tensor, labels: Tensor) -> float:
        start = time.perf_counter()
        self.loss(ids, labels).backward()
        self.optimiser.step()
        self.optimiser.zero_grad()
        return time.perf_counter() - start


def compare(position: str, compiled: bool, rounds: int) -> tuple[float, float, float]:
    """Medians of both in milliseconds, and the median ratio of neighbouring steps."""
    torch.manual_seed(0)
    config = od.models.Config(
        dim=DIM, layers=LAYERS, heads=HEADS, vocab=VOCAB, output="classes", outputs=3,
        max_len=LENGTH,
    )  # fmt: skip
    ours, plain = od.models.Transformer(config, position), Plain(position)
    same_weights(plain, ours)
    trainers = [Trainer(m, compiled) for m in (ours, plain)]
    ids, labels = torch.randint(VOCAB, (BATCH, LENGTH)), torch.randint(3, (BATCH,))
    losses = [t.loss(ids, labels) for t in trainers]
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    assert ours.encoder is not None and ours.encoder.tokens is not None
    torch.testing.assert_close(ours.encoder.tokens.weight.grad, plain.tokens.weight.grad)
    for trainer in trainers:
        trainer.model.zero_grad()
    times: list[list[float]] = [[], []]
    for round_ in range(rounds + 5):
        for which in (0, 1) if round_ % 2 else (1, 0):
            seconds = trainers[which].seconds(ids, labels)
            if round_ >= 5:
                times[which].append(seconds)
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    a, b = (1e3 * statistics.median(t) for t in times)
    return a, b, ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("positions", nargs="*", default=["none", "learned", "rope"])
    parser.add_argument("--mode", choices=["eager", "compiled", "both"], default="both")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"One training step (forward, backward, AdamW): width {DIM}, length {LENGTH},")
    print(
        f"batch {BATCH}, {LAYERS} layers, float32, {options.threads} thread(s), "
        f"torch {torch.__version__}"
    )
    print(f"{'position':<10}{'mode':<10}{'ours, ms':>10}{'plain, ms':>11}{'ratio':>8}")
    modes = {"eager": (False,), "compiled": (True,), "both": (False, True)}[options.mode]
    for compiled in modes:
        for position in options.positions:
            torch.compiler.reset()
            ours, plain, ratio = compare(position, compiled, options.rounds)
            mode = "compiled" if compiled else "eager"
            print(f"{position:<10}{mode:<10}{ours:>10.1f}{plain:>11.1f}{ratio:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
