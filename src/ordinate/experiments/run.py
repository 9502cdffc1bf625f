"""From a plan to a comparison: what is not in the store yet is run, what is there is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ordinate.experiments.comparison import Comparison, chosen
from ordinate.experiments.engines import Engine
from ordinate.experiments.plan import Plan, changed, load
from ordinate.experiments.store import HOME, Store
from ordinate.tensors import usable
from ordinate.training import Outcome, Trial
from ordinate.training.loop import Progress

#: How many trials of one shape a GPU trains at once.
STACK = 96


@dataclass(frozen=True)
class Event:
    """What a run says while it goes on.

    stage:    "sweep" or "trials"
    todo:     how many trials of the stage are to be run, and how many the store had already
    names:    of the trials to be run, "rope, seed 3", by their id
    progress: of a running trial
    outcome:  of a finished one
    """

    stage: str
    todo: int = 0
    kept: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None
    outcome: Outcome | None = None


Hear = Callable[[Event], None]


def compare(
    preset: str | Plan = "quick",
    methods: Sequence[str] | None = None,
    *,
    folder: str | Path = HOME,
    device: str = "auto",
    jobs: int | None = None,
    cluster: str | None = None,
    processes: int = 1,
    hear: Hear = lambda _: None,
    **changes: Any,
) -> Comparison:
    """Trains and compares methods, and returns the table as objects.

    preset:     a name (quick, pattern, template-grid, depth), a .toml file, or a `Plan`
    methods:    other methods than the preset's; a class of one's own is "FILE:Class"
    folder:     where records are kept; a second call runs only what is missing there
    device:     cpu, cuda, or auto
    jobs:       how many trials at once on this machine, a process each; 1 stays in this process
    cluster:    the address of a dask scheduler instead
    processes:  over how many processes one trial is split (torchrun)
    changes:    anything else of the plan: task=, seeds=, lengths=, rates=, epochs=, layers=,
                recipe={"rate": 3e-4}, sizes={"dim": 64}

    >>> import ordinate as od
    >>> table = od.compare("quick", ["rope", "none"], seeds=1, epochs=1)     # doctest: +SKIP
    >>> print(table.ranking().sentence)                                      # doctest: +SKIP
    """
    if cluster is not None and processes > 1:
        raise ValueError("a cluster trains each trial in one process: leave out one of the two")
    plan = preset if isinstance(preset, Plan) else load(preset)
    if methods is not None:
        changes["methods"] = tuple(methods)
    device = found(device, cluster)
    plan = changed(plan, settled(changes)).settled(device).checked()
    with Store(folder) as store:
        where = {"device": device, "jobs": jobs, "cluster": cluster, "processes": processes}
        return run(plan, lambda: engine(store.trials, **where), store, hear)


def settled(changes: dict[str, Any]) -> dict[str, Any]:
    """Changes of a plan, with epochs and layers as the tuples they are, and parts by their path."""
    found: dict[str, Any] = {}
    for key, value in changes.items():
        if key in ("epochs", "layers", "lengths", "rates") and isinstance(value, int | float):
            value = (value,)
        if isinstance(value, dict):
            found.update({f"{key}.{name}": one for name, one in value.items()})
        else:
            found[key] = value
    return found


def engine(
    trials: Path,
    *,
    device: str = "auto",
    jobs: int | None = None,
    cluster: str | None = None,
    processes: int = 1,
) -> Engine:
    """The engine that suits: a GPU in this process, stacked; else dask on the cores there are."""
    if cluster is not None:
        from ordinate.experiments.engines.dask import Dask

        return Dask(trials, address=cluster, device=device)
    if processes > 1:
        from ordinate.experiments.engines.torchrun import Torchrun

        return Torchrun(trials, processes=processes, device=device)
    if device != "cpu" or jobs == 1:
        from ordinate.experiments.engines.process import InProcess

        return InProcess(trials, device=device, stack=1 if device == "cpu" else STACK)
    from ordinate.experiments.engines.dask import Dask

    return Dask(trials, jobs=jobs or cores(), device=device)


def found(device: str, cluster: str | None = None) -> str:
    """The device that "auto" means, or the one named, if this torch can use it.

    What the workers of a cluster have is not known here: "auto" is then their CPUs.
    """
    if cluster is not None:
        return "cpu" if device == "auto" else device
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return usable(device)


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(plan: Plan, start: Callable[[], Engine], store: Store, hear: Hear) -> Comparison:
    """Runs what the store has not, the sweep of learning rates first.

    start:  starts the engine, which is not done if there is nothing to run
    """
    store.collect()
    store.keep_plan(plan.model_dump(mode="json"))
    with ExitStack() as stack:
        started: list[Engine] = []

        def engine() -> Engine:
            if not started:
                started.append(start())
                stack.callback(started[0].close)
            return started[0]

        _stage("sweep", plan.sweep(), engine, store, hear)
        _stage("trials", plan.final(_rates(plan, store)), engine, store, hear)
    return read(plan, store)


def todo(plan: Plan, store: Store | None) -> list[Trial]:
    """The trials that are still to be run, as far as that is known before the sweep is over."""
    trials = [*plan.sweep(), *plan.final({} if store is None else _rates(plan, store))]
    known = set() if store is None else _known(trials, store)
    return list({t.id: t for t in trials if t.id not in known}.values())


def _known(trials: list[Trial], store: Store) -> set[str]:
    wanted = {trial.id for trial in trials}
    return {o.trial.id for o in store.outcomes(wanted) if o.status != "lost"}


def read(plan: Plan, store: Store) -> Comparison:
    """The comparison as the store has it, finished or not."""
    rates = _rates(plan, store)
    wanted = {trial.id for trial in (*plan.sweep(), *plan.final(rates))}
    return Comparison.of(plan, store.outcomes(wanted), str(store.folder))


def _rates(plan: Plan, store: Store) -> dict:  # type: ignore[type-arg]
    swept = store.outcomes({trial.id for trial in plan.sweep()})
    return chosen(plan, {outcome.trial.id: outcome for outcome in swept})


def _stage(
    name: str, trials: list[Trial], engine: Callable[[], Engine], store: Store, hear: Hear
) -> None:
    known = _known(trials, store)
    todo = [trial for trial in trials if trial.id not in known]
    names = {t.id: f"{t.position}, seed {t.seed}" for t in todo}
    hear(Event(name, todo=len(todo), kept=len(trials) - len(todo), names=names))
    if not todo:
        return
    say = lambda progress: hear(Event(name, progress=progress))  # noqa: E731
    for outcome in engine().run(todo, say):
        store.add(outcome)
        hear(Event(name, outcome=outcome))
