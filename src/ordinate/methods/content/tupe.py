from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.methods.bias.t5 import bucket, check_buckets
from ordinate.position import Position
from ordinate.terms import Distance, Local, Product, Tile


class TUPE(Position):
    """Untied positions: content meets content and position meets position, never one the other.

        s_ij = (q_i · k_j + (U_Q p̄_i) · (U_K p̄_j)) / √(2d) + w[bucket(j - i), h]

    p̄ is a learned table [max_len, dim] after a LayerNorm; `project` is U_Q above U_K. There is one
    copy of everything for all layers, and nothing is added to the tokens. The last term is T5's
    bias, always with the buckets of both directions; `relative=false` leaves it out.

    `cls=true` unties the class token, which is the token at position 0: as a query it meets all
    with row 0 against itself, as a key all others meet it with row 1 against itself, whatever
    their positions; token t uses row t+1, so that the table has one row more. In T5's table it
    has the buckets `buckets` (as a key) and `buckets`/2 (as a query), which nobody else uses.
    The row of the query is written last, as in the authors' code.

    >>> import ordinate as od, torch
    >>> q = torch.randn(1, 2, 5, 8)
    >>> od.attention(q, q, q, od.make("tupe", dim=16, heads=2, max_len=5)).shape
    torch.Size([1, 2, 5, 8])
    """

    variants: ClassVar = (
        "cls=true", "relative=false", "cls=true,relative=false", "buckets=8,max_distance=11",
    )  # fmt: skip

    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        head_dim: int,
        max_len: int,
        cls: bool = False,
        relative: bool = True,
        buckets: int = 32,
        max_distance: int = 128,
    ) -> None:
        super().__init__()
        self.dim, self.heads, self.head_dim, self.max_len = dim, heads, head_dim, max_len
        self.cls, self.buckets, self.max_distance = cls, buckets, max_distance
        check_buckets("tupe", buckets, max_distance, halved=True)
        self.facts = Facts(paper=("ke2021tupe",), relative=False, integer=True, max_len=max_len)
        self.weight = nn.Parameter(torch.empty(max_len + cls, dim))
        self.norm = nn.LayerNorm(dim)
        self.project = nn.Linear(dim, 2 * heads * head_dim)
        self.buckets_weight = nn.Parameter(torch.empty(buckets + 1, heads)) if relative else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.norm.reset_parameters()
        nn.init.zeros_(self.project.bias)
        for parameter in (self.weight, self.project.weight, self.buckets_weight):
            if parameter is not None:
                nn.init.normal_(parameter, std=0.02)

    def attend(self, a: Attend) -> Attend:
        buckets, far = self.buckets, self.max_distance
        scale = a.scale * 0.5**0.5
        a = a.but(scale=scale)
        row = self._rows(a)

        def relative(gap: Tensor, weight: Tensor) -> Tensor:
            return F.embedding(bucket(gap, buckets, far, bidirectional=True), weight).T

        if not self.cls:
            q, k = (x.transpose(1, 2) for x in self._project(F.embedding(row, self.weight), a))
            a = a.add(Product(q[:, :, a.offset :], k, scale))
            weight = self.buckets_weight
            return a if weight is None else a.add(Distance(relative, weight))

        def untied(tile: Tile, q: Tensor, k: Tensor, weight: Tensor) -> Tensor:
            # What the class token gets, per head, as a query and as a key.
            spare = torch.stack([weight[buckets // 2], weight[buckets]])
            alone = (q[:2] * scale * k[:2]).sum(-1) + spare
            i, j = tile.pos_q[..., 0], tile.pos_k[..., 0]
            left, right = (
                F.embedding((t + 1).clamp(0, len(x) - 1), x.flatten(1))
                .unflatten(-1, x.shape[1:])
                .transpose(1, 2)
                for t, x in ((i, q), (j, k))
            )
            s = (left * scale) @ right.mT
            s = s + tile.spread(lambda gap: relative(gap, weight)).movedim(0, 1)
            s = torch.where((j == 0)[:, None, None, :], alone[1, :, None, None], s)
            return torch.where((i == 0)[:, None, :, None], alone[0, :, None, None], s)

        weight = self.buckets_weight
        if weight is None:
            weight = a.q.new_zeros(buckets + 1, 1)
        whole = (*self._project(self.weight, a), weight.to(a.wide))
        return a.add(Local(untied, whole=whole, op="add"))

    def _rows(self, a: Attend) -> Tensor:
        """Positions as rows of the table [b|1, m]; padding and special tokens may be anywhere."""
        row = a.pos_k[..., 0]
        if (idle := a.space.idle) is not None:
            row = torch.where(idle, 0, row)
        # A line that is short enough needs no look, which would make a GPU wait.
        if a.space.unit and a.space.size <= self.max_len:
            return row.clamp(0, self.max_len - 1)
        if not torch.compiler.is_compiling() and ((row < 0) | (row >= self.max_len)).any():
            raise ValueError(
                f"tupe was made with max_len={self.max_len}, got positions from {int(row.min())} "
                f"to {int(row.max())}: make it with max_len above the largest, and none below 0"
            )
        return row

    def _project(self, vectors: Tensor, a: Attend) -> tuple[Tensor, Tensor]:
        """Rows of the table [..., dim] as positional queries and keys, [..., h, d] each."""
        norm, linear = self.norm, self.project
        w = [p.to(a.wide) for p in (norm.weight, norm.bias, linear.weight, linear.bias)]
        p = F.layer_norm(vectors.to(a.wide), norm.normalized_shape, w[0], w[1], norm.eps)
        q, k = F.linear(p, w[2], w[3]).unflatten(-1, (2, -1, a.q.shape[3])).unbind(-3)
        return q, k
