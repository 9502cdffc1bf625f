from __future__ import annotations

import time
from typing import Annotated, Any

import tyro

# Method, and whether it looks back only: one of each kind of problem.
PROBLEMS = (
    ("none", False),
    ("none", True),
    ("rope", True),
    ("alibi", True),
    ("alibi", False),
    ("rope+alibi", True),
    ("t5", False),
    ("huang3", False),
    ("shaw", False),
    ("deberta", False),
    ("fox", True),
    ("stick-breaking", True),
    ("swin", False),
)
LENGTH = 160
REPEATS = 3
# The largest error allowed, relative to the largest number.
ALLOWED = {"float32": 1e-4, "bfloat16": 3e-2}


def run(
    device: Annotated[
        str | None,
        tyro.conf.arg(metavar="DEVICE", help="cpu or cuda; by default the best there is"),
    ] = None,
) -> int:
    """Every engine against the float64 reference on this machine; exit code 1 if one is wrong."""
    import torch
    from rich.text import Text

    from ordinate import backends
    from ordinate.cli.output import console, table
    from ordinate.tensors import usable

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    kind = torch.device(usable(device)).type
    out, progress = console(), console(stderr=True)
    for key, value in machine(device):
        out.print(f"{key:<9} {value}")
    dtypes = ("float32", "bfloat16") if kind == "cuda" else ("float32",)
    columns = [
        "problem",
        "engine",
        *(["type"] if len(dtypes) > 1 else []),
        "output",
        "gradient",
        "ms",
        "",
    ]
    grid = table(*columns, right=("output", "gradient", "ms"))
    wrong = 0
    with progress.status("") as status:
        for name, causal in PROBLEMS:
            label = f"{name}, causal" if causal else name
            exact = None
            for dtype in dtypes:
                for engine in backends.ENGINES:
                    status.update(f"{label}, {engine}")
                    exact = exact or solve(name, causal, "float64", "cpu", "reference")
                    tried = solve(name, causal, dtype, device, engine)
                    typed = [dtype] if len(dtypes) > 1 else []
                    if isinstance(tried, str):
                        grid.add_row(
                            label, engine, *typed, "", "", "", f"refuses: {tried}", style="dim"
                        )
                    else:
                        errors = [far(*pair) for pair in zip(tried[0], exact[0], strict=True)]
                        good = max(errors) <= ALLOWED[dtype]
                        wrong += not good
                        grid.add_row(
                            label, engine, *typed, f"{errors[0]:.0e}", f"{max(errors[1:]):.0e}",
                            f"{tried[1]:.1f}",
                            Text("right", "green") if good else Text("WRONG", "bold red"),
                        )  # fmt: skip
                    label = ""
    out.print()
    out.print(grid)
    limits = " and ".join(f"{ALLOWED[d]:.0e} in {d}" for d in dtypes)
    out.print(
        "\nErrors against the dense reference in float64 on the CPU, relative to the largest "
        f"number, at most {limits}. Batch 1, 8 heads of 64, {LENGTH} tokens (swin 196); ms is one "
        "forward pass.",
        style="dim",
    )
    out.print(f"{wrong} wrong." if wrong else "Every engine that does not refuse is right.")
    return 1 if wrong else 0


def machine(device: str) -> list[tuple[str, str]]:
    import platform
    from importlib.util import find_spec

    import numpy
    import torch

    from ordinate import __version__

    gpu = torch.cuda.get_device_name() if device.startswith("cuda") else ""
    return [
        ("ordinate", __version__),
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("torch", f"{torch.__version__}, numpy {numpy.__version__}"),
        ("device", f"{device} {gpu}".strip() + f", {torch.get_num_threads()} CPU threads"),
        (
            "pictures",
            "matplotlib is there" if find_spec("matplotlib") else "pip install matplotlib",
        ),
    ]


def solve(name: str, causal: bool, dtype: str, device: str, engine: str) -> Any:
    """Output and gradients of q, k and v, with the time in ms; or why the engine refuses."""
    import torch

    from ordinate import backends
    from ordinate.cli import subject

    # What is learned stays fixed here, as in inference; the contract tests its gradients.
    position = subject.made(name, {"layers": 1}, draw=True).requires_grad_(False).to(device)
    kind = getattr(torch, dtype)
    position = position.double() if kind == torch.float64 else position
    scene = subject.Scene(length=LENGTH, causal=causal, device=device, dtype=kind)
    a = subject.problem(position, scene)
    leaves = [x.clone().requires_grad_() for x in (a.q, a.k, a.v)]
    # Stated again, so that terms that read q and k read the ones whose gradients are asked for.
    a = subject.problem(position, scene, leaves[0], leaves[1])
    a = a.but(v=leaves[2])
    if why := backends.refuses(a, engine):
        return why
    out = backends.run(a, engine)
    (out.float() if kind != torch.float64 else out).square().sum().backward()
    results = [out.detach(), *(x.grad for x in leaves)]
    times = []
    with torch.no_grad():
        for _ in range(REPEATS):
            synchronise(device)
            start = time.perf_counter()
            backends.run(a, engine)
            synchronise(device)
            times.append(time.perf_counter() - start)
    return [x.double().cpu() for x in results], 1000 * sorted(times)[len(times) // 2]


def synchronise(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()


def far(a: Any, b: Any) -> float:
    """The largest difference, relative to the largest number."""
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-12))
