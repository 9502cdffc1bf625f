"""What is compared: methods × depths × epochs × seeds, as trials."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator

from ordinate.files import NAMED
from ordinate.names import head_width, make, nearest
from ordinate.tasks import make as make_task
from ordinate.training.trial import Frozen, Positive, Recipe, Sizes, Trial, Whole

PRESETS = Path(__file__).parent / "presets"


class Cell(NamedTuple):
    """Where methods are compared: trials of one cell differ in their method and seed alone."""

    layers: int
    epochs: int


class Plan(Frozen):
    """A comparison before it is made.

    layers, epochs:  depths and budgets, each with each; by default those of `sizes` and `recipe`
    seeds:           how many; every method gets the same ones, so that differences are paired
    lengths:         tested beyond the trained one
    rates:           learning rates to choose from, per method and cell, by the validation loss of
                     the first `sweep_seeds` seeds; none: `recipe.rate` for all
    equal_budget:    ranks what the budget gave, also where a model had not converged
    precision:       that of `recipe`, unless "auto": see `settled`
    """

    name: str
    about: str = ""
    task: str
    methods: tuple[str, ...]
    layers: tuple[Whole, ...] = ()
    epochs: tuple[Whole, ...] = ()
    seeds: Annotated[int, Field(ge=1, le=1000)] = 6
    lengths: tuple[Whole, ...] = ()
    rates: tuple[Positive, ...] = ()
    sweep_seeds: Whole = 2
    equal_budget: bool = False
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    sizes: Sizes = Sizes()
    recipe: Recipe = Recipe()

    @field_validator("methods", "lengths", "rates", "layers", "epochs")
    @classmethod
    def _once(cls, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(given))

    def settled(self, device: str) -> Plan:
        """This plan with its precision known: on a CPU that multiplies bfloat16 itself, "auto" is
        that, which is half as fast again (what it changes is in docs/compare.md); elsewhere
        float32."""
        chosen = self.precision
        if chosen == "auto":
            chosen = "bfloat16" if device == "cpu" and fast_bfloat16() else "float32"
        recipe = self.recipe.model_copy(update={"precision": chosen})
        return self.model_copy(update={"precision": chosen, "recipe": recipe})

    def checked(self) -> Plan:
        """This plan, if its task, sizes and methods fit; what does not is one sentence, before any
        work. What only training shows, such as a method that refuses encoders, stays a row."""
        if not self.methods:
            raise ValueError("a comparison needs at least one method")
        task = make_task(self.task)
        lengths = tuple(length for length in self.lengths if length != task.length)
        for length in lengths:
            task.samples("test", 0, length)
        for layers in {cell.layers for cell in self.cells}:
            sizes = self.sizes
            width = head_width(sizes.dim, sizes.heads)
            for method in self.methods:
                make(
                    method, dim=sizes.dim, heads=sizes.heads, head_dim=width, layers=layers,
                    max_len=max(task.length, *lengths, 1),
                )  # fmt: skip
        return self.model_copy(update={"lengths": lengths})

    @property
    def cells(self) -> list[Cell]:
        depths, budgets = self.layers or (self.sizes.layers,), self.epochs or (self.recipe.epochs,)
        return [Cell(layers, epochs) for layers in depths for epochs in budgets]

    def trial(self, method: str, cell: Cell, rate: float, seed: int) -> Trial:
        return Trial(
            task=self.task,
            position=method,
            sizes=self.sizes.model_copy(update={"layers": cell.layers}),
            recipe=self.recipe.model_copy(update={"epochs": cell.epochs, "rate": rate}),
            seed=seed,
            lengths=self.lengths,
        )

    def sweep(self) -> list[Trial]:
        """The trials from whose validation loss the learning rates are chosen."""
        if len(self.rates) < 2:
            return []
        seeds = range(min(self.sweep_seeds, self.seeds))
        return [t for rate in self.rates for seed in seeds for t in self._all(rate, seed)]

    def _all(self, rate: float, seed: int) -> Iterator[Trial]:
        return (
            self.trial(method, cell, rate, seed) for cell in self.cells for method in self.methods
        )

    def final(self, chosen: dict[tuple[str, Cell], float]) -> list[Trial]:
        """The trials that are compared; methods of one seed side by side."""
        fixed = self.rates[0] if self.rates else self.recipe.rate
        return [
            self.trial(method, cell, chosen.get((method, cell), fixed), seed)
            for seed in range(self.seeds)
            for cell in self.cells
            for method in self.methods
        ]


def fast_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware."""
    import torch

    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def presets() -> list[str]:
    """The names of the plans that come with Ordinate."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load(name: str) -> Plan:
    """A preset by name, or a plan of one's own from a .toml file."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise ValueError(
                f"there is no plan {name}: give a .toml file or one of {', '.join(presets())}"
            )
        text = path.read_text()
    elif name in presets():
        text = (PRESETS / f"{name}.toml").read_text()
    else:
        hint = nearest(name, presets())
        raise ValueError(f"no preset is called {name!r}{hint}; there are {', '.join(presets())}")
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name}: {error}") from None
    return changed(None, {"name": Path(name).stem, **given})


def changed(plan: Plan | None, changes: dict[str, Any]) -> Plan:
    """A plan with other values ("recipe.rate" reaches inside); wrong ones are one sentence."""
    content: dict[str, Any] = {} if plan is None else plan.model_dump()
    if "task" in changes and plan is not None:
        changes = {"about": "", **changes}
    if "recipe.precision" in changes:
        changes = {"precision": changes["recipe.precision"], **changes}
    for key, value in changes.items():
        *inside, last = key.split(".")
        target = content
        for part in inside:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise ValueError(f"a plan has no {key!r}: {part} has no parts")
        target[last] = value
    try:
        return Plan.model_validate(content)
    except ValidationError as wrong:
        raise ValueError("; ".join(map(_sentence, wrong.errors()))) from None


def _sentence(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        known = [*Plan.model_fields, *Sizes.model_fields, *Recipe.model_fields]
        return f"a plan has no {where!r}{nearest(str(error['loc'][-1]), known)}"
    if error["type"] == "missing":
        return f"the plan has no {where}: give it"
    message = error["msg"].removeprefix("Input should be ")
    return f"{where} is to be {message}, got {error['input']!r}"


def own_files(plan: Plan) -> list[str]:
    """The Python files a plan names, which a cluster must see too."""
    return [m["file"] for name in (plan.task, *plan.methods) for m in NAMED.finditer(name)]
