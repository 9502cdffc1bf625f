"""One process of several that train a trial together: torchrun starts it, `Torchrun` hears it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

from ordinate.experiments.engines.child import bound, private, tell

#: Seconds one process waits for the others, who may be longer at a look.
PATIENCE = 600


def main(text: str, folder: str, kind: str, own: int) -> int:
    """Trains a process's share of each batch; rank 0 says how it goes, all say what goes wrong."""
    import torch
    from torch import distributed

    from ordinate.experiments.work import settle, work
    from ordinate.training import Trial
    from ordinate.training.loop import Progress

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = kind
    if kind == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    settle()

    def say(progress: Progress) -> None:
        tell(own, json.dumps({"progress": asdict(progress)}))

    backend = "nccl" if kind == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=timedelta(seconds=PATIENCE))
    (outcome,) = work(
        [Trial.model_validate_json(text)], Path(folder), engine="torchrun", device=device,
        share=(rank, ranks), progress=say if rank == 0 else lambda _: None,
    )  # fmt: skip
    if rank == 0 or outcome.result is None:
        tell(own, json.dumps({"rank": rank, "outcome": outcome.model_dump()}))
    if outcome.result is None:
        # The others may wait for this one in vain: torchrun ends them.
        return 1
    distributed.barrier()
    distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    bound()
    _, text, folder, kind = sys.argv
    # Not by sys.exit: libraries clean up there, and wait for processes that may be gone.
    os._exit(main(text, folder, kind, private()))
