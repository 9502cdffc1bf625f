"""Ordinate tells a transformer where its tokens are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ordinate import backends, experiments, methods, models, tasks, testing, training
    from ordinate.attend import Attend
    from ordinate.cite import bibtex
    from ordinate.experiments import compare
    from ordinate.facts import Facts
    from ordinate.masks import Mask
    from ordinate.names import make
    from ordinate.norms import Softmax, StickBreaking
    from ordinate.position import Chain, Only, Position, Sources
    from ordinate.rotation import Rotation, frequencies
    from ordinate.solve import attention, explain, problem, weights
    from ordinate.space import Space
    from ordinate.tasks import Task
    from ordinate.terms import Dense, Distance, Local, Lookup, Product, Score, Tile, Values

__version__ = "0.1.0"

_HOME = {
    "Attend": "attend",
    "Chain": "position",
    "Dense": "terms",
    "Distance": "terms",
    "Facts": "facts",
    "Local": "terms",
    "Lookup": "terms",
    "Mask": "masks",
    "Only": "position",
    "Position": "position",
    "Product": "terms",
    "Rotation": "rotation",
    "Score": "terms",
    "Softmax": "norms",
    "Sources": "position",
    "Space": "space",
    "StickBreaking": "norms",
    "Task": "tasks",
    "Tile": "terms",
    "Values": "terms",
    "attention": "solve",
    "bibtex": "cite",
    "compare": "experiments.run",
    "explain": "solve",
    "frequencies": "rotation",
    "make": "names",
    "problem": "solve",
    "weights": "solve",
}
_PACKAGES = ("backends", "experiments", "methods", "models", "tasks", "testing", "training")

__all__ = [*_HOME, *_PACKAGES, "__version__"]


def __getattr__(name: str) -> Any:
    # Lazily, so that the command starts without torch.
    if name in _HOME:
        value = getattr(import_module(f"ordinate.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _PACKAGES:
        return import_module(f"ordinate.{name}")
    raise AttributeError(f"module 'ordinate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
