from __future__ import annotations

from typing import ClassVar

import torch

from ordinate.tasks import IGNORED, Line, Samples, Split, Task, balanced, generator
from ordinate.tasks.bag import largest_counts


class Marker(Task):
    """At the last place, say the token `offset` places after the marker.

        x = … m a b c … z      with offset=3 the answer is c

    Tokens are uniform in 0 … tokens-1. The marker is the id `tokens`; it stands once, at a uniform
    place such that the answer comes before the last place. Each token is the answer equally often
    in every split (to one sample), so that no constant answer is better than chance. Nothing but
    the last place is asked.
    """

    about: ClassVar = "Say the token that stands some places after the only marker."
    kind: ClassVar = "decoder"
    output: ClassVar = "tokens"
    classes = None

    def __init__(
        self,
        *,
        length: int = 32,
        tokens: int = 16,
        offset: int = 3,
        train: int = 5000,
        validation: int = 1000,
        test: int = 1000,
    ) -> None:
        if tokens < 2:
            raise ValueError(
                f"marker needs something to tell apart: tokens is at least 2, got {tokens}"
            )
        if offset < 1:
            raise ValueError(
                f"marker asks for a token after it: offset is at least 1, got {offset}"
            )
        self.length, self.tokens, self.offset = length, tokens, offset
        self.vocab = tokens + 1
        self.sizes: dict[str, int] = {"train": train, "validation": validation, "test": test}
        self._at(length)

    def _at(self, length: int | None) -> int:
        length = self.length if length is None else length
        if length < self.offset + 2:
            raise ValueError(
                f"marker with offset={self.offset} needs a length of at least {self.offset + 2}, "
                f"for the marker, the answer and the place that asks; got {length}"
            )
        return length

    def samples(self, split: Split, seed: int, length: int | None = None) -> Samples:
        length = self._at(length)
        g = generator(self, split, seed, length)
        size = self.sizes[split]
        answer = balanced(size, self.tokens, g)
        x = torch.randint(self.tokens, (size, length), generator=g)
        place = torch.randint(length - 1 - self.offset, (size, 1), generator=g)
        x.scatter_(1, place, self.tokens)
        x.scatter_(1, place + self.offset, answer[:, None])
        y = torch.full_like(x, IGNORED)
        y[:, -1] = answer
        return Samples(x, y)

    def lines(self, length: int | None = None) -> list[Line]:
        others = self._at(length) - 2
        return [
            Line("chance", 1 / self.tokens, "each token is the answer equally often"),
            Line(
                "order-blind",
                largest_counts(others, self.tokens)[others] / others,
                "the best reader of the bag of tokens up to the current one, which it knows and "
                "which is never the answer: it says the commonest of the others; exact. A causal "
                "model without positions can do better, for its layers also see earlier bags",
            ),
            Line("perfect", 1.0, "the marker stands once, and the answer before the last place"),
        ]
