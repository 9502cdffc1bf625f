from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.terms import Distance


class T5(Position):
    """A learned number per head and bucket of signed distance, the buckets widening with distance.

        b_h(i, j) = w[bucket(j - i), h]

    Half of the buckets hold one distance each, the others share the distances up to
    `max_distance` by their logarithm, and the last takes all beyond. One table [buckets, heads]
    serves all layers. `bidirectional` gives the past and the future half of the buckets each;
    otherwise the future falls into bucket 0. By default it is whatever the mask is not: causal.

    T5 has no bias between decoder and encoder, so it refuses to act there. T5 also leaves out the
    1/√d before the softmax (its initialisation makes up for it): `scaled=false` does the same.
    Going both ways, bucket `buckets`/2 is never used, as published. The borders come from
    logarithms in float32, as in the published code.

    The table starts as N(0, 1/dim); without `dim` the model is taken to be 64·heads wide.

    >>> import ordinate as od
    >>> od.make("t5", heads=8).bias(128).shape
    torch.Size([8, 128, 128])
    """

    variants: ClassVar = ("scaled=false", "bidirectional=true", "buckets=8,max_distance=11")

    facts = Facts(paper=("raffel2020t5",), relative=True, extrapolates=True, integer=True)

    def __init__(
        self,
        *,
        heads: int,
        dim: int | None = None,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool | None = None,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.buckets, self.max_distance = buckets, max_distance
        self.bidirectional, self.scaled = bidirectional, scaled
        check_buckets("t5", buckets, max_distance, halved=bidirectional is True)
        self.weight = nn.Parameter(torch.empty(buckets, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=(self.dim or 64 * self.weight.shape[1]) ** -0.5)

    def attend(self, a: Attend) -> Attend:
        buckets, far = self.buckets, self.max_distance
        both = not a.mask.causal if self.bidirectional is None else self.bidirectional

        def bias(gap: Tensor, weight: Tensor) -> Tensor:
            return embedding(bucket(gap, buckets, far, bidirectional=both), weight).T

        a = a.add(Distance(bias, self.weight))
        return a if self.scaled else a.but(scale=1.0)


def bucket(gap: Tensor, buckets: int, max_distance: int, *, bidirectional: bool) -> Tensor:
    """T5's bucket of each gap, key minus query position."""
    if bidirectional:
        buckets //= 2
        first = (gap > 0) * buckets
        distance = gap.abs()
    else:
        first = torch.zeros_like(gap)
        distance = (-gap).clamp_min(0)
    exact = buckets // 2
    ratio = (distance.clamp_min(exact).float() / exact).log() / math.log(max_distance / exact)
    shared = exact + (ratio * (buckets - exact)).long()
    return first + torch.where(distance < exact, distance, shared.clamp_max(buckets - 1))


def check_buckets(name: str, buckets: int, max_distance: int, *, halved: bool) -> None:
    """Refuses buckets that leave a direction without exact distances or without shared ones."""
    exact = buckets // 4 if halved else buckets // 2
    if buckets < 4 or buckets % 2 or max_distance <= exact:
        raise ValueError(
            f"{name} takes an even number of buckets from 4 on, of which {exact} hold one distance "
            f"each, and a max_distance above that, got buckets={buckets} and "
            f"max_distance={max_distance}"
        )
