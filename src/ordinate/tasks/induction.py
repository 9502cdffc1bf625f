from __future__ import annotations

from typing import ClassVar

import torch

from ordinate.tasks import IGNORED, Line, Samples, Split, Task, balanced, generator
from ordinate.tasks.bag import largest_counts


class Induction(Task):
    """The last token stood once before: say the token that followed it there.

        x = … s a … s      the answer is a

    Tokens are uniform in 0 … tokens-1. The special token s is the id `tokens`; it stands at a
    uniform place such that the answer comes before the last place, and at the last place, as in
    the synthetic task of Mamba. Each token is the answer equally often in every split (to one
    sample), so that no constant answer is better than chance. Nothing but the last place is asked.
    """

    about: ClassVar = "The last token stood once before: say the token that followed it."
    kind: ClassVar = "decoder"
    output: ClassVar = "tokens"
    classes = None

    def __init__(
        self,
        *,
        length: int = 32,
        tokens: int = 16,
        train: int = 5000,
        validation: int = 1000,
        test: int = 1000,
    ) -> None:
        if tokens < 2:
            raise ValueError(
                f"induction needs something to tell apart: tokens is at least 2, got {tokens}"
            )
        self.length, self.tokens = length, tokens
        self.vocab = tokens + 1
        self.sizes: dict[str, int] = {"train": train, "validation": validation, "test": test}
        self._at(length)

    def _at(self, length: int | None) -> int:
        length = self.length if length is None else length
        if length < 3:
            raise ValueError(
                "induction needs a length of at least 3, for the special token, the answer and the "
                f"special token again; got {length}"
            )
        return length

    def samples(self, split: Split, seed: int, length: int | None = None) -> Samples:
        length = self._at(length)
        g = generator(self, split, seed, length)
        size = self.sizes[split]
        answer = balanced(size, self.tokens, g)
        x = torch.randint(self.tokens, (size, length), generator=g)
        place = torch.randint(length - 2, (size, 1), generator=g)
        x.scatter_(1, place, self.tokens)
        x.scatter_(1, place + 1, answer[:, None])
        x[:, -1] = self.tokens
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
                "the best reader of the bag of tokens up to the current one: it says the commonest "
                "that is not special; exact. A causal model without positions can do better, for "
                "its layers also see earlier bags",
            ),
            Line("perfect", 1.0, "the special token stood once before, with the answer after it"),
        ]
