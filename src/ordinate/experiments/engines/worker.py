"""A dask worker of one thread; the dask engine starts it and starts it again if it dies."""

from __future__ import annotations

import asyncio
import logging
import sys

from ordinate.experiments.engines.child import bound, private, tell


async def work(address: str, own: int) -> None:
    from distributed import Worker

    async with Worker(
        address, nthreads=1, memory_limit=0, host="127.0.0.1", dashboard=False,
        silence_logs=logging.CRITICAL,
    ) as worker:  # fmt: skip
        tell(own, "ready")
        await worker.finished()


if __name__ == "__main__":
    bound()
    own = private()
    # Here, and not when the first trial comes: both take a second.
    import ordinate.experiments.work  # noqa: F401

    asyncio.run(work(sys.argv[1], own))
