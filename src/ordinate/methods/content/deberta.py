from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.terms import Lookup

Terms = Literal["both", "c2p", "p2c"]
Index = Literal["code", "paper"]


class DeBERTa(Position):
    """Disentangled attention: content meets content, distance, and again content.

        s_ij = (q_i · k_j + q_i · K_δ + k_j · Q_δ) / √(d (1 + #terms)),   δ = clip(i - j + clip)

    K_δ and Q_δ are rows of one table [2·clip, dim], shared by all layers, sent through a key and
    a query projection per layer, or with `share=true` through the layer's own, as v2 and v3 do.
    δ is kept between 0 and 2·clip-1, so that one distance fewer is told apart behind than ahead.
    `terms` says which of content-to-position and position-to-content there are.

    The released code has the same δ in both terms; the paper has clip(j - i + clip) in the last:
    `p2c="paper"`. `log_buckets` first makes i - j logarithmic beyond clip/2, up to `max_distance`
    (v2: clip=256, max_distance=512); these are not T5's buckets. `norm` is v2's LayerNorm on the
    table. The absolute positions that DeBERTa adds before its last softmax are not part of this.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 5, 8)
    >>> od.attention(q, q, q, od.make("deberta", dim=16, heads=2, clip=4)).shape
    torch.Size([1, 2, 5, 8])
    """

    variants: ClassVar = (
        "clip=4", "terms=c2p", "terms=p2c,clip=3", "p2c=paper,clip=4", "share=true,clip=4",
        "log_buckets=true,clip=8,max_distance=12", "norm=true",
    )  # fmt: skip

    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        head_dim: int,
        layers: int = 1,
        clip: int = 512,
        terms: Terms = "both",
        p2c: Index = "code",
        share: bool = False,
        log_buckets: bool = False,
        max_distance: int = 512,
        norm: bool = False,
    ) -> None:
        super().__init__()
        if log_buckets and not 1 <= clip // 2 < max_distance - 1:
            raise ValueError(
                "deberta's log_buckets need clip >= 2 and max_distance - 1 above half of clip, "
                f"got clip={clip} and max_distance={max_distance}"
            )
        self.dim, self.heads, self.head_dim, self.layers = dim, heads, head_dim, layers
        self.clip, self.max_distance, self.log_buckets = clip, max_distance, log_buckets
        self.terms = ("c2p", "p2c") if terms == "both" else (terms,)
        self.p2c, self.share = p2c, share
        self.facts = Facts(
            paper=("he2021deberta",), relative=True, cross=not share, integer=True,
            needs=frozenset({"projections"} if share else ()),
        )  # fmt: skip
        self.weight = nn.Parameter(torch.empty(2 * clip, dim))
        self.norm = nn.LayerNorm(dim, eps=1e-7) if norm else None
        size = (layers, heads * head_dim)
        q, k = (term in self.terms and not share for term in ("p2c", "c2p"))
        self.pos_q = nn.Parameter(torch.empty(*size, dim)) if q else None
        self.pos_q_bias = nn.Parameter(torch.empty(size)) if q else None
        self.pos_k = nn.Parameter(torch.empty(*size, dim)) if k else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in (self.weight, self.pos_q, self.pos_k):
            if parameter is not None:
                nn.init.normal_(parameter, std=0.02)
        if self.pos_q_bias is not None:
            nn.init.zeros_(self.pos_q_bias)
        if self.norm is not None:
            self.norm.reset_parameters()

    def attend(self, a: Attend) -> Attend:
        clip, far, forward = self.clip, self.max_distance, self.p2c == "paper"
        bent = self.log_buckets

        def behind(gap: Tensor) -> Tensor:
            back = log_bucket(-gap, clip // 2, far) if bent else -gap
            return (back + clip).clamp(0, 2 * clip - 1)

        def ahead(gap: Tensor) -> Tensor:
            return behind(-gap)

        table = self.weight.to(a.wide)
        if (n := self.norm) is not None:
            table = layer_norm(
                table, n.normalized_shape, n.weight.to(a.wide), n.bias.to(a.wide), n.eps
            )
        a = a.but(scale=a.scale * (1 + len(self.terms)) ** -0.5)
        if "c2p" in self.terms:
            keys = self._project(a, table, a.project_k, self.pos_k, None)
            a = a.add(Lookup(a.q, keys, side="q", row=behind, scale=a.scale))
        if "p2c" in self.terms:
            queries = self._project(a, table, a.project_q, self.pos_q, self.pos_q_bias)
            a = a.add(
                Lookup(a.k, queries, side="k", row=ahead if forward else behind, scale=a.scale)
            )
        return a

    def _project(
        self,
        a: Attend,
        table: Tensor,
        own: Callable[[Tensor], Tensor] | None,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        """The table as keys or queries, [h, 2·clip, d]."""
        if weight is None:
            assert own is not None
            # The layer's projection takes the type that content has, and may have fewer key heads.
            rows = own(table.to(a.q.dtype)).transpose(0, 1)
            return rows.repeat_interleave(a.q.shape[1] // len(rows), 0)
        bias = None if bias is None else bias[a.layer].to(a.wide)
        rows = linear(table, weight[a.layer].to(a.wide), bias)
        return rows.unflatten(-1, (-1, a.q.shape[3])).transpose(0, 1)


def log_bucket(back: Tensor, mid: int, max_distance: int) -> Tensor:
    """DeBERTa v2's buckets: distances up to `mid` for themselves, then by their logarithm."""
    distance = back.abs()
    # As published, logarithms are in float32: wider ones would move a few borders.
    top = torch.full((), (max_distance - 1) / mid, dtype=torch.float32, device=back.device).log()
    ratio = (distance.clamp_min(mid).float() / mid).log() / top
    far = (ratio * (mid - 1)).ceil().long() + mid
    return torch.where(distance <= mid, back, far * back.sign())
