"""What decides the numbers of a run, and nothing else: frozen, and named by its own content."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ordinate.files import digest

# Another number whenever the trainer changes what a trial computes: old records stay what they are.
PROTOCOL = 1

Whole = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Sizes(Frozen):
    """The model around the method: what `models.Config` needs and the task does not say."""

    layers: Whole = 3
    dim: Whole = 128
    heads: Whole = 8
    hidden: Whole | None = None
    dropout: Share = 0.1
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["gelu", "relu", "silu"] = "gelu"
    pool: Literal["mean", "first", "last"] = "mean"


class Recipe(Frozen):
    """How it is trained: AdamW, a constant learning rate after `warmup` steps.

    every:     steps between two looks at the validation samples
    goal:      stop when `agree` looks in a row reach this accuracy; None to go on to the end
    patience:  stop after so many looks without a better validation loss; None to go on
    """

    epochs: Whole = 20
    batch: Whole = 32
    rate: Positive = 1e-3
    decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    warmup: Annotated[int, Field(ge=0)] = 0
    clip: Positive | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    every: Whole = 50
    goal: Annotated[float, Field(gt=0, le=1)] | None = 0.995
    agree: Whole = 2
    patience: Whole | None = None


class Trial(Frozen):
    """One run: a method, on a task, in a model, by a recipe, from a seed.

    lengths:  lengths tested beyond the one trained at
    files:    what the files in the names held (see `ordinate.files.digest`)
    """

    task: str
    position: str
    sizes: Sizes = Sizes()
    recipe: Recipe = Recipe()
    seed: Seed = 0
    lengths: tuple[Whole, ...] = ()
    files: str | None = None
    protocol: int = PROTOCOL

    @model_validator(mode="before")
    @classmethod
    def _with_files(cls, given: object) -> object:
        if isinstance(given, dict) and given.get("files") is None:
            return {**given, "files": digest(f"{given.get('task')}+{given.get('position')}")}
        return given

    @cached_property
    def id(self) -> str:
        """Sixteen letters that only this trial has: the start of the SHA-256 of its content."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    @property
    def shape(self) -> str:
        """Trials of one shape differ in their seed and learning rate alone and train stacked."""
        recipe = self.recipe.model_copy(update={"rate": 1.0})
        return self.model_copy(update={"seed": 0, "recipe": recipe}).model_dump_json()
