"""The whole training step as one CUDA graph: small models are bound by launches, not arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ordinate.training.learner import Learner

# Steps before the capture, in which libraries make what they keep.
WARM = 3
# Steps that are timed.
TIMED = 20


def captured(learner: Learner) -> str:
    """Makes the learner replay its step; returns why not, if it cannot, and changes nothing."""
    if learner.draws:
        return "no graph: the method draws anew at every step"
    if learner.share[1] > 1:
        return "no graph: processes wait for each other in every step"
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with unchanged(learner):
        try:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM):
                    learner.train_once()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                learner.train_once()
            learner.replay = graph.replay
            return ""
        except RuntimeError as error:
            torch.cuda.synchronize()
            return f"no graph: {(str(error).splitlines() or [''])[0]}"


def compiled(learner: Learner) -> str:
    """Captures the step again, fused by inductor; if that fails, the graph there was stays."""
    before = learner.replay
    learner.compile(True)
    why = captured(learner)
    if why:
        learner.compile(False)
        learner.replay = before
        return f"not compiled: {why}"
    return "compiled"


def seconds(learner: Learner) -> float:
    """What a replayed step takes."""
    with unchanged(learner):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(TIMED):
            learner.train_once() if learner.replay is None else learner.replay()
        end.record()
        torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / TIMED


@contextmanager
def unchanged(learner: Learner) -> Iterator[None]:
    """Steps taken inside leave no trace."""
    optimiser = learner.optimiser
    state = (learner.theta, optimiser.mean, optimiser.square, learner.step_count, learner.losses)
    state = (*state, *optimiser.steps)
    kept = [t.clone() for t in state]
    try:
        yield
    finally:
        for t, old in zip(state, kept, strict=True):
            t.copy_(old)
