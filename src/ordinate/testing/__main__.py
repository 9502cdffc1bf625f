"""python -m ordinate.testing --device cuda: every contract on every method, without pytest."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from functools import partial

import torch

from ordinate.methods import names
from ordinate.testing import CONTRACTS, subjects
from ordinate.testing.processes import results, work


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ordinate.testing", description=__doc__)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="all, if none is named")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--contract", action="append", choices=sorted(CONTRACTS), metavar="NAME")
    parser.add_argument(
        "--jobs", type=int, help="processes; by default 1 on a CPU, and up to 16 on a GPU"
    )
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    if cuda and not torch.cuda.is_available():
        parser.error("this torch sees no CUDA device")
    jobs = (min(16, os.cpu_count() or 1) if cuda else 1) if options.jobs is None else options.jobs
    if jobs < 1:
        parser.error(f"--jobs is at least 1, got {jobs}")
    # Set before the processes start: CUDA's products repeat their bits only so.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    contracts = options.contract or [*CONTRACTS]
    dtypes = [torch.float32, torch.bfloat16 if cuda else torch.float64]
    try:
        chosen = options.methods or names()
        items = [(name, i) for name in chosen for i in range(len(subjects(name)))]
    except ValueError as error:
        parser.error(str(error))
    start, counts = time.perf_counter(), Counter[str]()
    task = partial(work, device=options.device, dtypes=dtypes, contracts=contracts)
    try:
        for found in results(items, jobs, options.device, task):
            mine = Counter(result.verdict for result in found)
            counts += mine
            for r in found:
                if r.verdict == "fail":
                    print(f"  {r.method} · {r.contract} · {r.dtype}: {r.why}")
            tally = "".join(f"{mine[v]:>4} {v}" for v in ("pass", "skip", "fail"))
            print(f"{found[0].method:<40}{tally}", flush=True)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    where = torch.cuda.get_device_name() if cuda else options.device
    types = " and ".join(str(d).removeprefix("torch.") for d in dtypes)
    print(
        f"{len(items)} methods and variants × {len(contracts)} contracts in {types} on {where} "
        f"(torch {torch.__version__}): {counts['pass']} pass, {counts['skip']} skip, "
        f"{counts['fail']} fail, {time.perf_counter() - start:.0f} s"
    )
    return 1 if counts["fail"] else 0


if __name__ == "__main__":
    sys.exit(main())
