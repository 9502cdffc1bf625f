"""The whole training step as one CUDA graph: small models are bound by launches, not arithmetic."""

from __future__ import annotations

import torch

from ordinate.training.learner import Learner

# Steps before the capture, in which libraries make what they keep.
WARM = 3


def captured(learner: Learner) -> str:
    """Makes the learner replay its step; returns why not, if it cannot, and changes nothing."""
    if learner.draws:
        return "no graph: the method draws anew at every step"
    optimiser = learner.optimiser
    state = (learner.theta, optimiser.mean, optimiser.square, learner.step_count, learner.losses)
    state = (*state, *optimiser.steps)
    kept = [t.clone() for t in state]
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
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
    finally:
        for t, old in zip(state, kept, strict=True):
            t.copy_(old)
