"""Contracts in several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from ordinate.testing import Result, run, subjects

Task = Callable[[tuple[str, int]], list[Result]]


def prepare(device: str) -> None:
    """The work is small and many processes share it; results must not depend on the machine."""
    torch.set_num_threads(1)
    if device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.use_deterministic_algorithms(True, warn_only=True)


def work(
    item: tuple[str, int], device: str, dtypes: list[torch.dtype], contracts: list[str]
) -> list[Result]:
    """All contracts on one method or variant, named so that another process can make it."""
    name, index = item
    return [*run([subjects(name)[index]], device=device, dtypes=dtypes, contracts=contracts)]


def results(
    items: list[tuple[str, int]], jobs: int, device: str, task: Task
) -> Iterator[list[Result]]:
    """The results of each item in order, as they are done."""
    if jobs == 1:
        prepare(device)
        yield from map(task, items)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=prepare, initargs=(device,)) as pool:
        try:
            yield from pool.map(task, items)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
