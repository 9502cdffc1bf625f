"""What a task is: samples of every split and length, how they are scored, and what can be reached."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

#: Targets that are neither learned nor scored.
IGNORED = -100


@dataclass(frozen=True)
class Samples:
    """All samples of a split.

    x:      token ids [N, n]
    y:      what is to be said: a class per sample [N], or a token per place [N, n], `IGNORED`
            where nothing is
    valid:  [N, n], False for padding; None if there is none
    parts:  scores of their own, by name: which targets they are of, bool [N, n] or [N]
    """

    x: Tensor
    y: Tensor
    valid: Tensor | None = None
    parts: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Line:
    """A score to compare with, computed and not measured: chance, order-blind, perfect."""

    name: str
    value: float
    why: str


class Task(ABC):
    """A task of one's own is a class like this one: `FILE:Class` names it everywhere.

    The options of a task are the keywords of its `__init__`, each with a type and a default.
    """

    #: One sentence: what a sample is and what is asked.
    about: ClassVar[str]
    #: "encoder" or "decoder", and whether it says a class per sample or a token per place.
    kind: ClassVar[Literal["encoder", "decoder"]]
    output: ClassVar[Literal["classes", "tokens"]]
    #: What is ranked: "accuracy" (more is better), or "loss" (less is better).
    metric: ClassVar[Literal["accuracy", "loss"]] = "accuracy"

    #: The name it was made by, with its options: `make` sets it.
    name: str
    #: How many token ids, how many classes (None for tokens), the length trained at.
    vocab: int
    classes: int | None
    length: int
    #: The shape of the tokens, if they are on a grid rather than a line; its product is `length`.
    grid: tuple[int, int] | None = None

    @abstractmethod
    def samples(self, split: Split, seed: int, length: int | None = None) -> Samples:
        """The samples of a split: the same for the same seed, others for another.

        `length` is that of training by default; longer ones are asked of the split "test".
        """

    @abstractmethod
    def lines(self, length: int | None = None) -> list[Line]:
        """What chance, a reader without order, and a perfect reader score, in `metric`."""

    def part_lines(self, part: str, length: int | None = None) -> list[Line]:
        """The same for a part of the targets; none, if they are not known."""
        return []
