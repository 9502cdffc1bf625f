from __future__ import annotations

from typing import ClassVar

import torch

from ordinate.tasks import IGNORED, Line, Samples, Split, Task, balanced, generator
from ordinate.tasks.bag import largest_counts


class Copy(Task):
    """At each place from `distance` on, say the token that stood `distance` places before.

        y_t = x_{t - distance}      for t ≥ distance

    Tokens are uniform in 0 … tokens-1. Over all places of a split each token is asked for equally
    often (to one), so that no constant answer is better than chance. The order-blind line is that
    of independent tokens: by the balance it loses about one part in twice the number of samples of
    what it is above chance.
    """

    about: ClassVar = "At each place, say the token that stood a fixed distance before."
    kind: ClassVar = "decoder"
    output: ClassVar = "tokens"
    classes = None

    def __init__(
        self,
        *,
        length: int = 32,
        tokens: int = 16,
        distance: int = 8,
        train: int = 5000,
        validation: int = 1000,
        test: int = 1000,
    ) -> None:
        if tokens < 2:
            raise ValueError(
                f"copy needs something to tell apart: tokens is at least 2, got {tokens}"
            )
        if distance < 1:
            raise ValueError(
                f"copy asks for an earlier token: distance is at least 1, got {distance}"
            )
        self.length, self.distance = length, distance
        self.vocab = tokens
        self.sizes: dict[str, int] = {"train": train, "validation": validation, "test": test}
        self._at(length)

    def _at(self, length: int | None) -> int:
        length = self.length if length is None else length
        if length <= self.distance:
            raise ValueError(
                f"copy over distance={self.distance} needs a length of at least "
                f"{self.distance + 1}, got {length}"
            )
        return length

    def samples(self, split: Split, seed: int, length: int | None = None) -> Samples:
        length = self._at(length)
        g = generator(self, split, seed, length)
        size, asked = self.sizes[split], length - self.distance
        source = balanced(size * asked, self.vocab, g).view(size, asked)
        last = torch.randint(self.vocab, (size, self.distance), generator=g)
        x = torch.cat([source, last], 1)
        y = torch.cat([torch.full_like(last, IGNORED), source], 1)
        return Samples(x, y)

    def lines(self, length: int | None = None) -> list[Line]:
        length = self._at(length)
        counts = largest_counts(length - 1, self.vocab)
        shares = [counts[t] / t for t in range(self.distance, length)]
        return [
            Line("chance", 1 / self.vocab, "each token is asked for equally often"),
            Line(
                "order-blind",
                sum(shares) / len(shares),
                "the best reader of the bag of tokens up to the current one, which it knows and "
                "which is never the answer: it says the commonest of those before; exact for independent "
                "tokens, the mean over all places asked. A causal model without positions can do "
                "better, for its layers also see earlier bags",
            ),
            Line("perfect", 1.0, "the answer stands in the sequence"),
        ]
