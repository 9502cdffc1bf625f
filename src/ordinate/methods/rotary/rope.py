from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ordinate.attend import Attend
from ordinate.facts import Facts
from ordinate.position import Position
from ordinate.rotation import Pairing, Rotation, frequencies


class RoPE(Position):
    """Rotary position: query and key pairs turn by position × frequency.

        q̃_k ← q̃_k e^(i m θ_k),   θ_k = base^(-2k/r),   k = 0 … r/2-1

    where q̃_k is a pair of channels seen as a complex number, so that the score of a pair depends
    on m - n. `width` r turns the first r channels only, with exponents over r (as GPT-NeoX does);
    the rest passes through. No parameters.

    `pairing="half"` pairs channels (c, c + r/2), as Llama, Qwen and Gemma do; "interleaved" pairs
    (2c, 2c + 1), as the paper, GPT-J and GLM do. They are the same method on permuted channels:
    weights trained with one do not fit the other.

    >>> import ordinate as od, torch
    >>> q = k = torch.randn(1, 2, 5, 8)
    >>> q, k = od.make("rope", head_dim=8).rotate(q, k)
    """

    variants: ClassVar = ("pairing=interleaved", "width=4", "base=100")

    facts = Facts(paper=("su2021roformer",), relative=True, cross=True)

    def __init__(
        self,
        *,
        head_dim: int,
        base: float = 10000.0,
        pairing: Pairing = "half",
        width: int | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.base = base
        self.pairing: Pairing = pairing
        self.width = rotary_width("rope", head_dim, width)

    def attend(self, a: Attend) -> Attend:
        width, base = self.width, self.base

        def angles(pos: Tensor) -> Tensor:
            return pos * frequencies(width, base, pos)

        return a.turn(Rotation(angles, pairing=self.pairing))


def rotary_width(name: str, head_dim: int, width: int | None) -> int:
    """`width`, or all of `head_dim`, if pairs of channels can be made of it."""
    width = head_dim if width is None else width
    if width < 2 or width % 2 or width > head_dim:
        raise ValueError(
            f"{name} turns pairs of channels: its width is even and at most head_dim={head_dim}, "
            f"got {width}"
        )
    return width
