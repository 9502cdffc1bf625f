"""Every task by name; adding one is one file here and one line below."""

from __future__ import annotations

import hashlib
import inspect
import typing
from importlib import import_module

import torch
from torch import Tensor

from ordinate.files import NAMED, load_class
from ordinate.names import convert, nearest, parse
from ordinate.tasks.task import IGNORED, SPLITS, Line, Samples, Split, Task

INDEX = {
    "copy": "copy:Copy",
    "induction": "induction:Induction",
    "marker": "marker:Marker",
    "pattern": "pattern:Pattern",
    "template": "template:Template",
}

__all__ = [
    "IGNORED",
    "INDEX",
    "SPLITS",
    "Line",
    "Samples",
    "Split",
    "Task",
    "balanced",
    "find",
    "generator",
    "make",
]


def find(name: str) -> type[Task]:
    """The class behind a name, or in a file: "mine.py:Mine"."""
    if NAMED.fullmatch(name):
        file, cls = name.rsplit(":", 1)
        return load_class(file, cls, Task)
    if name not in INDEX:
        raise ValueError(
            f"no task is called {name!r}{nearest(name, INDEX)}; there are {', '.join(INDEX)}"
        )
    module, cls = INDEX[name].split(":")
    return getattr(import_module(f"ordinate.tasks.{module}"), cls)


def make(name: str) -> Task:
    """A task by name, with its options in the name: "pattern", "pattern:length=64,tokens=30"."""
    if not isinstance(name, str):
        raise ValueError(f'a task is named by text, as make("pattern"), got {name!r}')
    head, inner, written = parse(name)
    if inner is not None:
        raise ValueError(f"{name!r}: a task wraps nothing, so it has no parentheses")
    cls = find(head)
    if inspect.isabstract(cls):
        lacks = " and ".join(sorted(cls.__abstractmethods__))
        raise ValueError(f"{head} is no whole task: it has no {lacks}")
    takes, hints = inspect.signature(cls).parameters, typing.get_type_hints(cls.__init__)
    for key in written:
        if key not in takes:
            has = f"takes {', '.join(takes)}" if takes else "takes none"
            raise ValueError(f"{head} has no option {key!r}{nearest(key, takes)}; it {has}")
    for key, parameter in takes.items():
        if parameter.default is parameter.empty and key not in written:
            raise ValueError(f"{head} needs {key}: write {head}:{key}=…")
    task = cls(**{k: convert(f"{head}:{k}", v, hints.get(k, str)) for k, v in written.items()})
    task.name = name
    return task


def generator(task: Task, split: str, seed: int, length: int) -> torch.Generator:
    """Random numbers of their own for each task, split, seed and length, on every machine."""
    if split not in SPLITS:
        raise ValueError(f"a split is one of {', '.join(SPLITS)}, got {split!r}")
    key = f"{type(task).__name__} {split} {seed} {length}"
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
    return torch.Generator().manual_seed(number)


def balanced(count: int, kinds: int, g: torch.Generator) -> Tensor:
    """`count` numbers 0 … kinds-1 in random order, each as often as the others or once more."""
    return (torch.arange(count) % kinds)[torch.randperm(count, generator=g)]
