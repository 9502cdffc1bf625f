"""On local cores, one process of one thread each, or on any dask cluster by its address."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import astuple
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ordinate.experiments.engines import Say
from ordinate.experiments.engines.child import Child
from ordinate.training import Outcome, Trial
from ordinate.training.loop import Progress

TOPIC = "ordinate"
#: Seconds in which a scheduler has to answer, and to have a worker.
PATIENCE = 8
#: A trial is given up after so many workers died of it; a place, after so many failed to start.
TRIES = 3
SETTINGS = {
    "distributed.scheduler.allowed-failures": TRIES - 1,
    # No trial waits behind another one while a third worker has nothing to do.
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.comm.timeouts.connect": f"{PATIENCE}s",
}
LOGS = "distributed", "tornado"


class Dask:
    """`address`: a scheduler's; without one, `jobs` worker processes are started here.

    Workers write checkpoints and results under `folder`, which a cluster has to share; results
    also come back over the wire, so without a shared folder only resuming is lost.
    """

    name = "dask"

    def __init__(
        self, folder: Path, *, jobs: int = 1, address: str | None = None, device: str = "cpu"
    ) -> None:
        self.folder, self.device = folder.resolve(), device
        # Everything that happens comes through here, so that one thread hears it, in its order.
        self.news: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.places: list[Place] = []
        self.given_up = 0
        self.open = ExitStack()
        try:
            self._quiet()
            self.client = self._joined(address) if address else self._started(jobs)
            self.client.subscribe_topic(TOPIC, lambda event: self.news.put(("progress", event[1])))
        except BaseException:
            self.close()
            raise

    def _quiet(self) -> None:
        import distributed  # noqa: F401  which reads its own settings first
        from dask import config

        self.open.enter_context(config.set(SETTINGS))
        for logger in map(logging.getLogger, LOGS):
            self.open.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL + 1)

    def _started(self, jobs: int) -> Any:
        """A client of a scheduler in this process, and of workers that are children of it."""
        from distributed import Client, Scheduler, SpecCluster

        here = {
            "host": "127.0.0.1",
            "port": 0,
            "dashboard": False,
            "dashboard_address": "127.0.0.1:0",
        }
        cluster = SpecCluster(scheduler={"cls": Scheduler, "options": here}, silence_logs=False)
        self.open.callback(cluster.close, timeout=5)
        self.places = [Place(cluster.scheduler_address, self.news.put) for _ in range(jobs)]
        client = self.open.enter_context(Client(cluster, set_as_default=False))
        for _ in self.places:
            what, why = self.news.get()
            if what == "gone":
                raise RuntimeError(f"no worker process could be started: {why}")
        return client

    def _joined(self, address: str) -> Any:
        """A client of somebody else's scheduler."""
        from distributed import Client

        advice = "start it with `dask scheduler` and `dask worker --nthreads 1 ADDRESS`"
        try:
            # A client that finds nobody leaves a thread behind, whose end may block everything.
            with ThreadPoolExecutor(1) as apart:
                apart.submit(asyncio.run, _called(address)).result()
        except (OSError, ValueError) as error:
            why = str(error).splitlines()[0]
            raise ValueError(f"no dask scheduler answers at {address}: {advice} ({why})") from None
        client = self.open.enter_context(Client(address, set_as_default=False))
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise ValueError(f"the dask scheduler at {address} has no workers: {advice}") from None
        return client

    def run(self, trials: Sequence[Trial], say: Say) -> Iterator[Outcome]:
        here = os.getcwd()
        waiting: dict[str, tuple[Trial, Any]] = {}
        # Earlier ones first: the order of the plan puts the methods of one seed side by side.
        for order, trial in enumerate(trials):
            # Pairs whose first parts are equal are one group, whose members wait at the scheduler.
            future = self.client.submit(
                _work, trial.model_dump_json(), str(self.folder), self.device, here,
                key=("ordinate", trial.id), pure=False, priority=-order,
            )  # fmt: skip
            waiting[trial.id] = trial, future
            future.add_done_callback(lambda _, id=trial.id: self.news.put(("done", id)))
        while waiting:
            what, about = self.news.get()
            if what == "progress":
                say(Progress(*about))
            elif what == "done":
                yield _outcome(*waiting.pop(about))
            elif what == "gone":
                self.given_up += 1
            if self.places and self.given_up == len(self.places):
                reason = f"no worker process could be started again: {about}"
                for trial, _ in waiting.values():
                    yield Outcome(trial=trial, status="lost", reason=reason)
                return

    def close(self) -> None:
        """Ends the workers started here; those of a cluster go on."""
        for place in self.places:
            place.close()
        with suppress(TimeoutError, OSError):
            self.open.close()


class Place(threading.Thread):
    """Where one worker process is, or the next one if that dies."""

    def __init__(self, address: str, tell: Callable[[tuple[str, Any]], None]) -> None:
        super().__init__(daemon=True)
        self.address, self.tell = address, tell
        self.child: Child | None = None
        self.closed, self.change = False, threading.Lock()
        self.start()

    def run(self) -> None:
        try:
            self.tell(("gone", self._kept()))
        except OSError as error:
            self.tell(("gone", error.strerror))

    def _kept(self) -> str:
        """Keeps a process here until all is over; or why it could not."""
        failures, why = 0, ""
        while failures < TRIES and (child := self._next()) is not None:
            failures += 1
            for line in child.lines():
                if line == "ready":
                    failures = 0
                    self.tell(("ready", None))
            why = child.complaint()
            child.end()
        return why

    def _next(self) -> Child | None:
        with self.change:
            if not self.closed:
                self.child = Child("ordinate.experiments.engines.worker", self.address)
            return None if self.closed else self.child

    def close(self) -> None:
        with self.change:
            self.closed = True
            if self.child is not None:
                self.child.end()
        self.join()


async def _called(address: str) -> None:
    """Raises an OSError, or a ValueError if it is no address, unless a scheduler answers."""
    from distributed.comm.core import connect

    await (await connect(address, timeout=PATIENCE)).close()


def _outcome(trial: Trial, future: Any) -> Outcome:
    """What a worker made of a trial; what it did not say itself, happened around the trial."""
    from distributed import KilledWorker

    try:
        return Outcome.model_validate(json.loads(future.result()))
    except KilledWorker:
        why = f"{TRIES} worker processes were killed over it; perhaps there is too little memory"
    except Exception as error:
        why = f"dask: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    finally:
        future.release()
    return Outcome(trial=trial, status="lost", reason=why)


# Workers of a cluster may have several threads, and torch's random state is one per process.
_one = threading.Lock()


def _work(text: str, folder: str, device: str, here: str) -> str:
    """What runs on a worker: text in, text out, so that nothing is pickled but strings."""
    from distributed import get_worker

    from ordinate.experiments.work import settle, work

    worker = get_worker()

    def say(progress: Progress) -> None:
        worker.log_event(TOPIC, astuple(progress))

    with _one:
        # Files of one's own are named from where the command was typed.
        with suppress(OSError):
            os.chdir(here)
        settle()
        trial = Trial.model_validate_json(text)
        (outcome,) = work([trial], Path(folder), engine="dask", device=device, progress=say)
        return outcome.text()
