from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.space import Space
from ordinate.terms import Local, Tile


class FoX(Position):
    """The forgetting transformer: every token after key j may make the query forget it.

        s_ij ← s_ij + Σ_{t=j+1…i} ln f_t,   f_t = σ(w_h · x_t + b_h)

    added after scaling by 1/√d. x are the hidden states that the keys are projected from; w
    [heads, dim] and b [heads] are per layer, N(0, .02) and 0. A token never forgets itself, and
    padding makes nobody forget. Tokens count in the order they stand in; positions are not read.

    With b = 0 half is forgotten at each step at first, as in the authors' code; their "fixed"
    gates, which are ALiBi, are not repeated here. CABLE is the same with the sign of w and b
    turned.

    >>> import ordinate as od, torch
    >>> fox = od.make("fox", dim=16, heads=2)
    >>> fox.remember(torch.randn(1, 5, 16), od.Space.line(5), layer=0)["gate"].shape
    torch.Size([1, 5, 2])
    """

    facts = Facts(
        paper=("lin2025fox",), relative=True, extrapolates=True, causal_only=True,
        needs=frozenset({"hidden"}),
    )  # fmt: skip

    def __init__(self, *, dim: int, heads: int, layers: int = 1) -> None:
        super().__init__()
        self.dim, self.heads, self.layers = dim, heads, layers
        self.weight = nn.Parameter(torch.empty(layers, heads, dim))
        self.shift = nn.Parameter(torch.empty(layers, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)
        nn.init.zeros_(self.shift)

    def remember(self, x: Tensor, space: Space, layer: int) -> dict[str, Tensor]:
        wide = torch.promote_types(x.dtype, torch.float32)
        weight, shift = (p[layer].to(wide) for p in (self.weight, self.shift))
        return {"gate": logsigmoid(linear(x.to(wide), weight, shift))}

    def attend(self, a: Attend) -> Attend:
        wide = a.wide
        gate = a.kept["gate"].mT
        if a.space.valid is not None:
            gate = gate.masked_fill(~a.space.valid[:, None], 0)
        # The difference of two long sums cancels: float64 keeps it exact to float32.
        total = gate.to(torch.float32 if gate.device.type == "mps" else torch.float64).cumsum(-1)

        def forgotten(tile: Tile, query: Tensor, key: Tensor) -> Tensor:
            return (query.unsqueeze(3) - key.unsqueeze(2)).to(wide)

        return a.add(Local(forgotten, query=(total[..., a.offset :],), key=(total,), op="add"))
