"""On local cores, one process of one thread each, or on any dask cluster by its address."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ordinate.experiments.engines import Say
from ordinate.training import Outcome, Trial
from ordinate.training.loop import Progress

TOPIC = "ordinate"


class Dask:
    """`address`: a scheduler's; without one, `jobs` worker processes are started here.

    Workers write checkpoints and results under `folder`, which a cluster has to share; results
    also come back over the wire, so without a shared folder only resuming is lost.
    """

    name = "dask"

    def __init__(
        self, folder: Path, *, jobs: int = 1, address: str | None = None, device: str = "cpu"
    ) -> None:
        from dask import config
        from distributed import Client, LocalCluster

        self.folder, self.device = folder.resolve(), device
        for name in ("distributed", "distributed.nanny", "distributed.worker", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        config.set(
            {
                # A worker that dies takes its trial with it at most so often.
                "distributed.scheduler.allowed-failures": 3,
                # Programs of one's own may start processes (a DataLoader, say).
                "distributed.worker.daemon": False,
                "distributed.scheduler.work-stealing": True,
                "distributed.comm.timeouts.connect": "10s",
            }
        )
        self.cluster = None
        if address is None:
            self.cluster = LocalCluster(
                n_workers=jobs, threads_per_worker=1, processes=True,
                dashboard_address=None,  # type: ignore[arg-type]
               
                host="127.0.0.1", memory_limit=None, silence_logs=logging.CRITICAL,
            )  # fmt: skip
        try:
            self.client = Client(address or self.cluster, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise ValueError(
                f"no dask scheduler answers at {address}: start one with `dask scheduler` ({error})"
            ) from None

    def run(self, trials: Sequence[Trial], say: Say) -> Iterator[Outcome]:
        from distributed import as_completed

        from ordinate.experiments.work import failed

        def heard(event: tuple[object, dict]) -> None:  # type: ignore[type-arg]
            say(Progress(**event[1]))

        self.client.subscribe_topic(TOPIC, heard)
        by_key = {}
        # Earlier ones first: the order of the plan puts the methods of one seed side by side.
        for place, trial in enumerate(trials):
            future = self.client.submit(
                _work, trial.model_dump_json(), str(self.folder), self.device,
                key=f"{trial.id}", pure=False, priority=-place,
            )  # fmt: skip
            by_key[future.key] = trial
            by_key[future.key, "future"] = future
        futures = [v for k, v in by_key.items() if isinstance(k, tuple)]
        for future in as_completed(futures, loop=self.client.loop):
            trial = by_key[future.key]
            try:
                outcome = Outcome.model_validate_json(future.result())
            except Exception as error:
                outcome = _died(trial, error) or failed(trial, error)
            future.release()
            yield outcome

    def close(self) -> None:
        """Ends the workers started here; those of a cluster go on."""
        with suppress(TimeoutError, OSError):
            self.client.close(timeout=5)
        if self.cluster is not None:
            with suppress(TimeoutError, OSError):
                self.cluster.close(timeout=10)


def _died(trial: Trial, error: Exception) -> Outcome | None:
    from distributed.scheduler import KilledWorker

    if not isinstance(error, KilledWorker):
        return None
    reason = "its worker process was killed again and again; perhaps there is too little memory"
    return Outcome(trial=trial, status="lost", reason=reason)


def _work(text: str, folder: str, device: str) -> str:
    """What runs on a worker: text in, text out, so that nothing is pickled but strings."""
    from distributed import get_worker

    from ordinate.experiments.work import settle, work

    worker = get_worker()

    def say(progress: Progress) -> None:
        worker.log_event(TOPIC, vars(progress))

    settle()
    trial = Trial.model_validate_json(text)
    (outcome,) = work([trial], Path(folder), engine="dask", device=device, progress=say)
    return outcome.model_dump_json()
