"""The training step and the scores of trials in lock-step: one alone, or several stacked."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from ordinate.dice import Dice, mixed
from ordinate.models import Transformer
from ordinate.position import Position
from ordinate.space import Space
from ordinate.tasks import IGNORED, Samples
from ordinate.training.measure import Tallies, summed
from ordinate.training.optimiser import AdamW
from ordinate.training.seeds import derived, order
from ordinate.training.trial import Trial

STRIDE = 40503  # odd, so that steps give different dice


class Learner:
    """Models of trials that differ in seed and learning rate, trained one step at a time.

    All of a trial is one row: its parameters are theta[i], its samples x[i]. With `stacked` the
    rows are computed at once (vmap); otherwise there is one row, computed by its own module.

    share: (rank, ranks) of a batch that several processes split
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        models: Sequence[Transformer],
        data: Sequence[Samples],
        device: str,
        *,
        grid: tuple[int, int] | None = None,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self.trials, self.device, self.grid, self.share = list(trials), device, grid, share
        self.recipe, self.model = trials[0].recipe, models[0].to(device)
        self.stacked = len(trials) > 1
        self.backend = "reference" if self.stacked else "auto"
        (position,) = {id(p): p for p in positions(self.model)}.values()
        self.axes, self.draws = position.facts.axes, "seed" in position.facts.needs
        if self.stacked and self.draws:
            raise ValueError(f"{position.name} draws anew at every step")
        learned = [{k: p for k, p in m.named_parameters() if p.requires_grad} for m in models]
        self.shapes = {name: p.shape for name, p in learned[0].items()}
        rows = [torch.cat([p.detach().reshape(-1) for p in one.values()]) for one in learned]
        self.theta = torch.stack([row.to(device) for row in rows])
        self.buffers = _stacked_buffers(models, device) if self.stacked else {}
        self._bind(learned[0])
        r, rates = self.recipe, [t.recipe.rate for t in trials]
        self.optimiser = AdamW(self.theta, rates, decay=r.decay, warmup=r.warmup, clip=r.clip)
        self.gradient = self.optimiser.gradient
        self.x, self.y = (torch.stack([getattr(d, k) for d in data]).to(device) for k in "xy")
        valid = [d.valid for d in data if d.valid is not None]
        self.valid = torch.stack(valid).to(device) if valid else None
        seeds = [derived(t.seed, "dice") for t in trials]
        self.seeds = torch.tensor(seeds, dtype=torch.int32, device=device)
        self.order = torch.zeros(len(trials), self.x.shape[1], dtype=torch.int64, device=device)
        self.every = torch.arange(len(trials), device=device)[:, None]
        self.step_count = torch.zeros((), dtype=torch.int64, device=device)
        self.losses = torch.zeros(len(trials), device=device)
        #: The captured graph of `train_once`, if there is one.
        self.replay: Callable[[], Any] | None = None

    @property
    def per_epoch(self) -> int:
        """Steps in an epoch; what does not fill a batch waits for another epoch's order."""
        return self.x.shape[1] // self.recipe.batch

    @property
    def steps(self) -> int:
        return self.per_epoch * self.recipe.epochs

    def step(self, step: int) -> None:
        """Trains step number `step`, from 0."""
        epoch, within = divmod(step, self.per_epoch)
        if within == 0 or int(self._epoch) != epoch:
            self.order.copy_(
                torch.stack([order(t.seed, epoch, self.x.shape[1]) for t in self.trials])
            )
            self._epoch = epoch
        self._draw = derived(self.trials[0].seed, "draw", step) if self.draws else None
        (self.replay or self.train_once)()

    _epoch = -1
    _draw: int | None = None

    def train_once(self) -> None:
        """A step, as tensors alone: which one it is stands in `step_count`."""
        batch, (rank, ranks) = self.recipe.batch, self.share
        first = (self.step_count % self.per_epoch) * batch
        rows = self.order.index_select(1, first + torch.arange(batch, device=self.device))
        seeds = mixed(self.seeds + (self.step_count * STRIDE).to(torch.int32))
        y = self.y[self.every, rows]
        count = (y != IGNORED).flatten(1).sum(1)
        size = batch // ranks
        mine = slice(rank * size, (rank + 1) * size)
        rows, y = rows[:, mine], y[:, mine]
        x = self.x[self.every, rows]
        valid = None if self.valid is None else self.valid[self.every, rows]
        loss = self._gradient(x, y, valid, seeds, count, rank * size)
        if ranks > 1:
            # What DistributedDataParallel does, in one call: each process has a part of the sum.
            torch.distributed.all_reduce(self.gradient)
            torch.distributed.all_reduce(loss)
        self.losses.add_(loss)
        self.step_count.add_(1)
        self.optimiser.update(self.step_count)

    def _gradient(
        self, x: Tensor, y: Tensor, valid: Tensor | None, seeds: Tensor, count: Tensor, row: int
    ) -> Tensor:
        """The losses of all rows; their gradients are left in `self.gradient`."""
        if not self.model.training:  # saying so visits every module
            self.model.train()
        if not self.stacked:
            seen = None if valid is None else valid[0]
            loss = self._loss(x[0], y[0], seen, seeds[0], count[0], row)
            # A method may have parameters that nothing reads, as those of a layer it skips.
            pieces = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
            torch.cat([piece.reshape(-1) for piece in pieces], out=self.gradient[0])
            return loss.detach()[None]
        gradients, losses = self._losses(self.views, x, y, valid, seeds, count)
        pieces = [gradients[name].flatten(1) for name in self.shapes]
        torch.cat(pieces, 1, out=self.gradient)
        return losses.detach()

    def _loss(
        self, x: Tensor, y: Tensor, valid: Tensor | None, seed: Tensor, count: Tensor, row: int
    ) -> Tensor:
        """Of the one row, by its module."""
        return summed(self.forward(self.model, x, valid, Dice(seed, row)), y) / count

    def _losses(
        self, views: dict[str, Tensor], x: Tensor, y: Tensor, valid: Tensor | None,
        seeds: Tensor, count: Tensor,
    ) -> tuple[dict[str, Tensor], Tensor]:  # fmt: skip
        """Gradients and losses of all rows at once."""

        def of_one(
            views: dict[str, Tensor], buffers: Any, x: Any, y: Any, v: Any, seed: Any, n: Any
        ) -> Tensor:
            call = _Functional(self.model, {**views, **buffers})
            return summed(self.forward(call, x, v, Dice(seed)), y) / n

        dims = (0, 0, 0, 0, None if valid is None else 0, 0, 0)
        each = vmap(grad_and_value(of_one), in_dims=dims)
        return each(views, self.buffers, x, y, valid, seeds, count)

    def compile(self, on: bool) -> None:
        """Lets inductor fuse what a step computes, or not; it takes most of a minute."""
        for name in ("_loss", "_losses"):
            self.__dict__.pop(name, None)
            if on:
                self.__dict__[name] = torch.compile(getattr(self, name), dynamic=False)

    def probe(self) -> None:
        """The gradient of a batch, for its cost; nothing is changed by it."""
        batch = self.recipe.batch
        valid = None if self.valid is None else self.valid[:, :batch]
        y = self.y[:, :batch]
        count = (y != IGNORED).flatten(1).sum(1)
        self._draw = derived(self.trials[0].seed, "probe") if self.draws else None
        self._gradient(self.x[:, :batch], y, valid, self.seeds, count, 0)
        self.gradient.zero_()

    @property
    def attention(self) -> str:
        """The engines that solved the attention last."""
        found = (getattr(module, "solved_by", "") for module in self.model.modules())
        return ", ".join(sorted(set(filter(None, found))))

    @torch.no_grad()
    def scores(self, data: Sequence[Samples], theta: Tensor, rows: int = 256) -> list[Tallies]:
        """Sums over the samples of each trial, for all targets and for each part, with `theta`."""
        self.model.eval()
        kept = self.theta.clone()
        self._draw = derived(self.trials[0].seed, "look") if self.draws else None
        self.theta.copy_(theta)
        try:
            totals = [Tallies() for _ in data]
            for low in range(0, len(data[0]), rows):
                part = slice(low, low + rows)
                logits = self._logits([d.x[part] for d in data], [d.valid for d in data], part)
                for row, d, total in zip(logits, data, totals, strict=True):
                    total.add(row, d, part, self.device)
            return totals
        finally:
            self.theta.copy_(kept)

    def _logits(self, x: list[Tensor], valid: list[Tensor | None], part: slice) -> Sequence[Tensor]:
        xs = torch.stack(x).to(self.device)
        seen = None if valid[0] is None else torch.stack([v[part] for v in valid if v is not None])
        seen = None if seen is None else seen.to(self.device)
        if not self.stacked:
            return [self.forward(self.model, xs[0], None if seen is None else seen[0], None)]

        def call(views: Any, buffers: Any, x: Tensor, v: Tensor | None) -> Tensor:
            return self.forward(_Functional(self.model, {**views, **buffers}), x, v, None)

        dims = (0, 0, 0, None if seen is None else 0)
        return list(vmap(call, in_dims=dims)(self.views, self.buffers, xs, seen))

    def forward(
        self, call: Callable[..., Tensor], x: Tensor, valid: Tensor | None, dice: Dice | None
    ) -> Tensor:
        half = self.recipe.precision == "bfloat16"
        kind = torch.device(self.device).type
        with torch.autocast(kind, torch.bfloat16) if half else contextlib.nullcontext():
            space = self._space(x.shape[-1])
            return call(x, valid=valid, space=space, backend=self.backend, dice=dice)

    def _space(self, length: int) -> Space | None:
        space = None
        if self.grid is not None and self.axes == 2:
            space = Space.grid(length // self.grid[1], self.grid[1], device=self.device)
        if self._draw is not None:
            space = (space or Space.line(length, device=self.device)).but(seed=self._draw)
        return space

    def _bind(self, parameters: dict[str, nn.Parameter]) -> None:
        """Names for the parts of theta; alone, they are the module's parameters."""
        self.parameters = list(parameters.values())
        pieces = self.theta.split([shape.numel() for shape in self.shapes.values()], 1)
        self.views = {
            name: piece.view(-1, *shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }
        if not self.stacked:
            for name, parameter in parameters.items():
                parameter.data = self.views[name][0]


class _Functional:
    """A module with other parameters and buffers than its own."""

    def __init__(self, module: nn.Module, tensors: dict[str, Tensor]) -> None:
        self.module, self.tensors = module, tensors

    def __call__(self, x: Tensor, **keywords: Any) -> Tensor:
        return functional_call(self.module, self.tensors, (x,), keywords)


def positions(model: nn.Module) -> list[Position]:
    """The method of each stack of a model."""
    stacks = (m for m in model.children() if hasattr(m, "position"))
    return [stack.position for stack in stacks]  # type: ignore[misc]


def _stacked_buffers(models: Sequence[nn.Module], device: str) -> dict[str, Tensor]:
    every = [dict(m.named_buffers()) for m in models]
    fixed = [
        {**buffers, **{k: p for k, p in m.named_parameters() if not p.requires_grad}}
        for m, buffers in zip(models, every, strict=True)
    ]
    return {k: torch.stack([one[k].detach() for one in fixed]).to(device) for k in fixed[0]}
