from __future__ import annotations

from functools import cache
from typing import ClassVar

import torch

from ordinate.tasks import Line, Samples, Split, Task, balanced, generator

# What each class has at which places, counted from 0.
PLACES = torch.tensor([[3, 7], [5, 10], [15, 20]])
IDS = torch.tensor([[5, 8], [3, 9], [7, 4]])


class Pattern(Task):
    """Two tokens at fixed places tell the class.

        class 0: token 5 at place 3 and token 8 at place 7
        class 1: token 3 at place 5 and token 9 at place 10
        class 2: token 7 at place 15 and token 4 at place 20

    Places and tokens count from 0; all other tokens are uniform. The classes are equally frequent
    in every split (to one sample) and shuffled. Where chance completes the pair of another class,
    that pair is drawn again until exactly one pair is there; half of another pair may stand there
    by chance. In longer sequences the pairs stay where they are, and more noise follows.

    `grid` lays the same tokens row by row on a grid: "4x8" is 4 rows of 8 columns, and longer
    sequences have more rows.
    """

    about: ClassVar = "Two tokens at fixed places among uniform ones tell which of three classes."
    kind: ClassVar = "encoder"
    output: ClassVar = "classes"
    classes = 3

    def __init__(
        self,
        *,
        length: int = 32,
        tokens: int = 20,
        train: int = 5000,
        validation: int = 1000,
        test: int = 1000,
        grid: str = "",
    ) -> None:
        if tokens < 10:
            raise ValueError(f"pattern uses the tokens 0 to 9: tokens is at least 10, got {tokens}")
        self.length, self.vocab = length, tokens
        self.sizes: dict[str, int] = {"train": train, "validation": validation, "test": test}
        if grid:
            rows, _, columns = grid.partition("x")
            if not (rows.isdecimal() and columns.isdecimal()):
                raise ValueError(f"pattern:grid is rows x columns, as 4x8, got {grid!r}")
            self.grid = (int(rows), int(columns))
            if self.grid[0] * self.grid[1] != length:
                raise ValueError(
                    f"pattern:grid={grid} holds {self.grid[0] * self.grid[1]} tokens, "
                    f"but length is {length}: make them equal"
                )
        self._at(length)

    def _at(self, length: int | None) -> int:
        length = self.length if length is None else length
        if length < 21:
            raise ValueError(
                f"pattern has tokens up to place 20: length is at least 21, got {length}"
            )
        if self.grid and length % self.grid[1]:
            raise ValueError(
                f"pattern has rows of {self.grid[1]}: length is a multiple of that, got {length}"
            )
        return length

    def samples(self, split: Split, seed: int, length: int | None = None) -> Samples:
        length = self._at(length)
        g = generator(self, split, seed, length)
        size = self.sizes[split]
        y = balanced(size, 3, g)
        x = torch.randint(self.vocab, (size, length), generator=g)
        x.scatter_(1, PLACES[y], IDS[y])
        wrong = torch.arange(3) != y[:, None]
        while (again := (x[:, PLACES] == IDS).all(-1) & wrong).any():
            fresh = torch.randint(self.vocab, (size, 3, 2), generator=g)
            x[:, PLACES] = torch.where(again[..., None], fresh, x[:, PLACES])
        return Samples(x, y)

    def lines(self, length: int | None = None) -> list[Line]:
        value = order_blind(self._at(length), self.vocab)
        return [
            Line("chance", 1 / 3, "three classes, equally frequent"),
            Line(
                "order-blind",
                value,
                "the best reader of how often each token occurs: it says the class for which the "
                "product of the counts of its two tokens is largest; exact, drawing again included",
            ),
            Line("perfect", 1.0, "both tokens of exactly one class stand at their places"),
        ]


@cache
def order_blind(n: int, tokens: int) -> float:
    """The accuracy of the best reader of counts, exactly.

    Sequences of class c are equally likely, so with w_c the product of the counts of its two
    tokens, and (n)_k = n (n-1) … (n-k+1), the share of the orders of a bag that are of class c is

        w_c/(n)_2 - w_c (w_d + w_e)/(n)_4 + w_c w_d w_e/(n)_6

    by inclusion and exclusion: largest where w_c is. Its mean over uniform bags needs the
    distribution of the largest w, and E[w_0 w_1 w_2] given it. Counts are independent Poisson
    numbers, given their sum: so both are sums over three pairs and the rest, one convolution.
    """
    rate = n / tokens
    top = min(n, int(rate + 9 * rate**0.5 + 20))  # outside lies less than 1e-15
    bottom = max(0, int(rate - 9 * rate**0.5))
    count = torch.arange(bottom, top + 1)
    one = poisson(count, rate)
    mass, product = one[:, None] * one, count[:, None] * count
    values, which = product.unique(return_inverse=True)
    pair = count[:, None] + count - 2 * bottom
    width = 2 * (top - bottom) + 1
    size = 2 ** (3 * width).bit_length()
    left = n - 6 * bottom - torch.arange(size)
    rest = torch.where(left < 0, 0, poisson(left.clamp(min=0), rate * (tokens - 6)))
    rest /= poisson(torch.tensor(n), n)

    def below(weight: torch.Tensor) -> torch.Tensor:
        """E[product of three weights; no w above values[i]] for each i."""
        table = torch.zeros(len(values), width, dtype=torch.float64)
        table.index_put_((which, pair), weight, accumulate=True)
        pieces = table.cumsum(0).split(256)
        cubes = (torch.fft.irfft(torch.fft.rfft(p, size) ** 3, size) @ rest for p in pieces)
        return torch.cat(list(cubes))

    zero = torch.zeros(1, dtype=torch.float64)
    largest, three = (below(w).diff(prepend=zero) for w in (mass, mass * product))
    mean = (largest * values).sum() / (n * (n - 1))
    mean += (three / values.clamp(min=1)).sum() / (n * (n - 1) * (n - 2) * (n - 3))
    mean += tokens**-6 - 3 * tokens**-4
    return float(mean * tokens**2 / 3 / (1 - tokens**-2) ** 2)


def poisson(k: torch.Tensor, rate: float) -> torch.Tensor:
    """The probability of k, in float64."""
    k = k.double()
    return (torch.xlogy(k, torch.tensor(rate).double()) - rate - torch.lgamma(k + 1)).exp()
