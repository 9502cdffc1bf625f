"""Continue a template: an arithmetic sequence across a marker, token by token."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from ordinate.tasks import IGNORED, SPLITS, Line, Samples, Split, Task, generator

PADDING, START, MIDDLE, END, ZERO = range(5)


class Template(Task):
    """Say the next token of: start, a, a+s, …, middle, the terms that follow, end, padding.

        START 7 10 13 16 MIDDLE 19 22 25 END 0 0 …    x_t is given, y_t = x_{t+1} is asked

    Ids: padding 0, start 1, middle 2, end 3, number v is 4 + v. The form and the split of four
    fifths to one are the authors'; the sizes are ours: a is uniform in 0 … `first`, s in 1 … `step`,
    and `least` … `most` terms come before the middle, and again after it: 1,680 sequences, none
    beyond 75. `sequences` are drawn with replacement; validation and test halve the held-out fifth.
    `distinct` gives each split its own: 1,344, 168 and 168. Without it all draw from all, as the
    authors may have done, and 99.1 % of the test is also in training. Either way training has all
    105 pairs (a, s): new is only where the markers fall. Padding is neither scored nor valid; with
    `padding` it is a token like the others: 20 of 31 targets, all certain after the end.

    A longer test is several sequences in a row, as many as surely fit, so that late places carry
    content; a start after an end is not scored. More terms would be no fair test: after `most`
    terms training allows only a marker, and whoever has learned that best would score worst.

    Parts: "numbers" (the score without markers), "markers" (middle and end), and "continuation"
    (from a middle to its end). Terms rise, so up to the middle, itself included, their bag says as
    much as their order. After it order helps: it tells how long ago the middle was. In nats:

                       all   numbers   markers   continuation
        perfect      0.675     0.649     0.795          0.252
        order-blind  0.716     0.664     0.952          0.335
    """

    about = "An arithmetic sequence goes on across a marker: the next token is asked."
    kind = "decoder"
    output = "tokens"
    metric = "loss"

    def __init__(
        self,
        *,
        length: int = 32,
        numbers: int = 100,
        first: int = 20,
        step: int = 5,
        least: int = 3,
        most: int = 6,
        sequences: int = 10_000,
        distinct: bool = True,
        padding: bool = False,
    ) -> None:
        given = {"first": first, "step": step, "least": least, "most": most, "sequences": sequences}
        for (name, value), low in zip(given.items(), (0, 1, 1, least, 10), strict=True):
            if not isinstance(value, int) or value < low:
                raise ValueError(f"{name} is a whole number of at least {low}, got {value!r}")
        self.longest = 2 * most + 3
        if (largest := first + step * (2 * most - 1)) >= numbers:
            raise ValueError(f"numbers={numbers} is too few: they start at 0 and reach {largest}")
        if length < self.longest:
            raise ValueError(f"length={length} is too short: a sequence has up to {self.longest}")
        self.length, self.vocab, self.classes = length, ZERO + numbers, None
        self.sequences, self.distinct, self.padding = sequences, distinct, padding
        self._all, count = [], range(least, most + 1)
        for a, s, m, n in itertools.product(range(first + 1), range(1, step + 1), count, count):
            terms = range(ZERO + a, ZERO + a + s * (m + n), s)
            self._all.append([START, *terms[:m], MIDDLE, *terms[m:], END])
        if distinct and (made := len(self._all)) < 10:
            raise ValueError(f"{made} sequences are too few to keep splits apart: distinct=false")
        self._table = pad_sequence([torch.tensor(s) for s in self._all], batch_first=True)

    def samples(self, split: Split, seed: int, length: int | None = None) -> Samples:
        length, row = self._row(length)
        g = generator(self, split, seed, length)
        if length != self.length and split != "test":
            raise ValueError(f"{split} has length {self.length}: longer ones are in the split test")
        pool = self._table
        if self.distinct:  # no sample has length 0: numbers of their own, the same for all splits
            order = torch.randperm(len(pool), generator=generator(self, "train", seed, 0))
            pool = pool[order[_share(split, len(pool))]]
        drawn = range(self.sequences)[_share(split, self.sequences)]
        x = pool[torch.randint(len(pool), (len(drawn), row), generator=g)].flatten(1)
        packed = x.gather(1, (x == PADDING).long().argsort(dim=1, stable=True))
        y, parts = self._asked(x := pad(packed, (0, length - x.shape[1])))
        return Samples(x, y, None if self.padding else x != PADDING, parts)

    def lines(self, length: int | None = None) -> list[Line]:
        return self.part_lines("", length)

    def part_lines(self, part: str, length: int | None = None) -> list[Line]:
        """Nats per target, of all or a part; length matters only where padding is scored.

        Exact, over all sequences alike; those drawn differ by chance, some 0.01. On average none
        beats "perfect" on all or the continuation; numbers or markers gain at each other's cost.
        """
        length, row = self._row(length)
        y, parts = self._asked(self._table)
        if part and part not in parts:
            raise ValueError(f"part is one of {', '.join(parts)}, got {part!r}")
        asked = parts[part] if part else y > PADDING
        targets = asked.sum().item()
        if self.padding and not part:  # certain to every reader: no nats, but more targets
            targets += length * len(y) / row - (self._table != PADDING).sum().item()
        perfect, blind = (nats[asked].sum().item() / targets for nats in self._nats)
        return [
            Line("chance", math.log(self.vocab), "every id alike"),
            Line("order-blind", blind, "knows the bag of tokens since the start, not their order"),
            Line("perfect", perfect, "knows the tokens since the start, in order"),
        ]

    def _row(self, length: int | None) -> tuple[int, int]:
        """The length of a sample and how many sequences it holds."""
        if length in (None, self.length):
            return self.length, 1
        if length < (two := max(self.length, 2 * self.longest)):
            raise ValueError(f"a longer test has a length of at least {two}, got {length}")
        return length, length // self.longest

    def _asked(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        y = pad(x[:, 1:], (0, 1), value=IGNORED)
        y[(y == START) | ((y == PADDING) & (not self.padding))] = IGNORED
        after = ((x == MIDDLE).long() - (x == END).long()).cumsum(1) > 0
        parts = {"numbers": y >= ZERO, "markers": (y == MIDDLE) | (y == END)}
        return y, parts | {"continuation": after}

    @cached_property
    def _nats(self) -> list[Tensor]:
        """What the next token costs who knows the prefix, and who knows it sorted."""
        costs = []
        for read in (list, sorted):
            said = [[(*read(s[:t]), s[t]) for t in range(1, len(s))] for s in self._all]
            both = Counter(itertools.chain(*said))
            known = Counter(state[:-1] for state in both.elements())
            rows = [[math.log(known[k[:-1]] / both[k]) for k in row] + [0.0] for row in said]
            costs.append(pad_sequence([torch.tensor(r, dtype=torch.float64) for r in rows], True))
        return costs


def _share(split: Split, size: int) -> slice:
    cuts, i = (0, size * 4 // 5, size * 9 // 10, size), SPLITS.index(split)
    return slice(cuts[i], cuts[i + 1])
