"""python -m ordinate.testing --device cuda: every contract on every method, without pytest."""

from __future__ import annotations

import argparse
import sys
import time

import torch

from ordinate.testing import CONTRACTS, run, subjects


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ordinate.testing", description=__doc__)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="all, if none is named")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--contract", action="append", choices=sorted(CONTRACTS), metavar="NAME")
    options = parser.parse_args()
    if options.device.startswith("cuda"):
        if not torch.cuda.is_available():
            parser.error("this torch sees no CUDA device")
        # One thread here: the work is small, and the results must not depend on the machine.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(1)
    narrow = torch.bfloat16 if options.device.startswith("cuda") else torch.float64
    dtypes = (torch.float32, narrow)
    start, counts, failed = time.perf_counter(), {"pass": 0, "skip": 0, "fail": 0}, []
    try:
        chosen = subjects(*options.methods)
    except ValueError as error:
        parser.error(str(error))
    for subject in chosen:
        mine = {"pass": 0, "skip": 0, "fail": 0}
        for result in run(
            [subject], device=options.device, dtypes=dtypes, contracts=options.contract or CONTRACTS
        ):
            counts[result.verdict] += 1
            mine[result.verdict] += 1
            if result.verdict == "fail":
                failed.append(result)
                print(f"  {result.method} · {result.contract} · {result.dtype}: {result.why}")
        print(
            f"{subject.name:<40} {mine['pass']:>3} pass {mine['skip']:>3} skip {mine['fail']:>3} fail"
        )
    seconds = time.perf_counter() - start
    where = torch.cuda.get_device_name() if options.device.startswith("cuda") else options.device
    print(
        f"{len(chosen)} methods and variants × {len(options.contract or CONTRACTS)} contracts in "
        f"{' and '.join(str(d).removeprefix('torch.') for d in dtypes)} on {where} (torch "
        f"{torch.__version__}): {counts['pass']} pass, {counts['skip']} skip, {counts['fail']} fail, "
        f"{seconds:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
