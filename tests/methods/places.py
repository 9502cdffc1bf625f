"""Where the tokens of a test are, and the comparison of a stated problem with dense scores."""

from dataclasses import dataclass

import torch

import ordinate as od
from methods.formula import attention, draw, equal

#: Unsorted and repeated, in two rows; the second kind lies between the whole numbers.
WHOLE = torch.tensor([[3, -7, 3, 40, 0, -1, 11], [5, 5, 2, -30, 9, 1, 0]])
REAL = WHOLE.double() + torch.tensor([0.25, 0, -0.5, 0.125, 0.7, 0, 0.25], dtype=torch.float64)


@dataclass(frozen=True)
class Place:
    """`n` queries, the last of `m` keys; positions are `ids` [b, m], or 0 … m-1."""

    n: int
    m: int
    kv: int
    causal: bool
    ids: torch.Tensor | None = None

    def __str__(self):
        kind = "line" if self.ids is None else "real" if self.ids.is_floating_point() else "whole"
        return f"{kind}-{self.n}of{self.m}-{'causal' if self.causal else 'all'}-kv{self.kv}"

    def draw(self, h=4, d=6):
        return draw(2, h, self.n, self.m, d, kv=self.kv)

    @property
    def pos(self):
        """[b|1, m]"""
        return torch.arange(self.m)[None] if self.ids is None else self.ids

    @property
    def gap(self):
        """Key minus query position, [b|1, n, m]."""
        return self.pos[:, None, :] - self.pos[:, self.m - self.n :, None]

    @property
    def mask(self):
        """[n, m], True where a query may look: causality is of the order, not of positions."""
        key, query = torch.arange(self.m), torch.arange(self.m - self.n, self.m)
        return (key <= query[:, None]) | torch.tensor(not self.causal)

    def problem(self, q, k, v, position, layer=0):
        return od.problem(q, k, v, position, causal=self.causal, position_ids=self.ids, layer=layer)

    def attend(self, q, k, v, position, layer=0, **given):
        """The problem of a method that needs more than q, k and v: `kept`, `project_q` …"""
        space = od.Space.line(self.m) if self.ids is None else od.Space.points(self.ids)
        scale, mask = q.shape[-1] ** -0.5, od.Mask(causal=self.causal)
        return position.attend(
            od.Attend(q, k, v, space, scale=scale, mask=mask, layer=layer, **given)
        )


def places(*, real=True, causal=(True, False)):
    """Squares, the last three of nine, positions anywhere; one, two or four key heads."""
    found = [Place(*sizes, c) for c in causal for sizes in ((7, 7, 4), (3, 9, 2), (1, 5, 1))]
    found += [Place(7, 7, 2, c, WHOLE) for c in causal] + [Place(4, 7, 1, c, WHOLE) for c in causal]
    return found + [Place(5, 7, 4, c, REAL) for c in causal] * real


def maps(s, mask):
    """softmax(s) where the mask is True."""
    return s.masked_fill(~mask, -torch.inf).softmax(-1)


def solves(a, s, mask, *leaves):
    """Asserts that a problem's maps, output and all gradients are those of the scores `s`."""
    torch.testing.assert_close(od.weights(a), maps(s, mask), rtol=1e-9, atol=1e-10)
    equal(od.backends.run(a, "reference"), attention(s, a.v, mask), *leaves)
