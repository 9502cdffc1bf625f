"""A task of one's own, on which methods are compared by its name "my_task.py:Before".

ordinate compare rope alibi none --task my_task.py:Before
ordinate compare rope alibi none --task my_task.py:Before:length=48 --lengths 96
"""

import torch

import ordinate as od
from ordinate.tasks import Line, Samples, balanced, generator


class Before(od.Task):
    """Two special tokens stand somewhere among others: which comes first?

    x = … a … b …    class 0        x = … b … a …    class 1
    """

    about = "Two special tokens stand somewhere among others: which comes first?"
    kind = "encoder"
    output = "classes"
    classes = 2

    def __init__(
        self,
        *,
        length: int = 32,
        tokens: int = 16,
        train: int = 5000,
        validation: int = 1000,
        test: int = 1000,
    ) -> None:
        if length < 2:
            raise ValueError(f"before needs two places: length is at least 2, got {length}")
        # Ids 0 … tokens-1 are the others; a and b are the two after them.
        self.length, self.tokens, self.vocab = length, tokens, tokens + 2
        self.sizes = {"train": train, "validation": validation, "test": test}

    def samples(self, split: str, seed: int, length: int | None = None) -> Samples:
        length = length or self.length
        # Numbers of their own for each split, seed and length.
        g = generator(self, split, seed, length)
        size = self.sizes[split]
        x = torch.randint(self.tokens, (size, length), generator=g)
        places = torch.rand(size, length, generator=g).argsort(1)[:, :2].sort(1).values
        y = balanced(size, 2, g)
        special = torch.tensor([self.tokens, self.tokens + 1])
        x.scatter_(1, places, torch.where(y[:, None] == 0, special, special.flip(0)))
        return Samples(x, y)

    def lines(self, length: int | None = None) -> list[Line]:
        return [
            Line("chance", 1 / 2, "two classes, equally frequent"),
            Line("order-blind", 1 / 2, "both tokens are in every sequence, whatever the class"),
            Line("perfect", 1.0, "one of the two comes first"),
        ]
