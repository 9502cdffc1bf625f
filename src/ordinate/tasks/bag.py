"""What a reader of a bag of tokens, who does not see their order, can know."""

from __future__ import annotations

import math
from functools import cache

import torch


@cache
def largest_counts(draws: int, tokens: int) -> list[float]:
    """How often the commonest token is there among 0 … `draws` uniform ones, on average, exactly.

    With P_v(k, t) the probability that none of v tokens is there more than k times among t,

        P_v(k, t) = Σ_{j≤k} Binomial(j; t, 1/v) P_{v-1}(k, t-j)

    where j is the count of the last of them. The mean is Σ_k 1 - P(k, t).
    """
    rate = draws / tokens
    top = min(draws, int(rate + 9 * rate**0.5 + 20))  # beyond it lies less than 1e-15
    t = torch.arange(draws + 1, dtype=torch.float64)
    factorial = torch.lgamma(t + 1)
    within = (t <= t[:top, None]).double()
    for v in range(2, tokens + 1):
        before, within = within, torch.zeros_like(within)
        for j in range(top):
            choose = factorial[j:] - factorial[: draws + 1 - j] - factorial[j]
            hits = (choose + (t[j:] - j) * math.log1p(-1 / v) - j * math.log(v)).exp()
            within[j:, j:] += hits * before[j:, : draws + 1 - j]
    return (1 - within).sum(0).tolist()
