from __future__ import annotations

from typing import Annotated, Any

import tyro

LENGTH = 512
DISTANCES = (1, 4, 16, 64, 256)
NEAR = 64
# What is smaller is drawn here.
LEAST = 1e-3
PICTURE = "ordinate-compare.png"


def run(
    methods: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="METHOD ...", help="all of them, if none is named"),
    ] = (),
    out: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="FILE", help=f"where to draw: .png, .svg or .html; by default {PICTURE}"
        ),
    ] = None,
    draw: Annotated[
        bool, tyro.conf.arg(help="draw what is learned from N(0, 0.5) rather than start flat")
    ] = False,
) -> int:
    """How methods differ, without training: who attends to whom when all tokens are alike."""
    from ordinate.cli import figure
    from ordinate.cli.list import by_family
    from ordinate.cli.output import console, table
    from ordinate.methods import names

    if out is not None or figure.matplotlib_there():
        out = out or PICTURE
        figure.check(out)
    chosen = list(methods) or sorted(names(), key=by_family)
    page, progress = console(), console(stderr=True)
    state = "parameters drawn from N(0, 0.5)" if draw else "at initialisation"
    numbers = ["para-\nmeters", *(f"at\n{d}" for d in DISTANCES)]
    numbers += [f"last {NEAR}\nof {n}" for n in (LENGTH, 4 * LENGTH)]
    grid = table("method", "rela-\ntive", *numbers, right=tuple(numbers))
    grid.padding = (0, 1, 0, 0)
    for column in grid.columns:
        column.no_wrap = True
    rows, notes = [], []
    with progress.status("") as status:
        for name in chosen:
            status.update(name)
            found = measure(name, draw)
            if isinstance(found, str):
                notes.append(found)
                continue
            rows.append(found)
            times = found["attention"] * LENGTH
            grid.add_row(
                found["name"], "yes" if found["relative"] else "-", short(found["parameters"]),
                *(f"{times[d]:.3g}" if times[d] >= 0.005 else "0" for d in DISTANCES),
                f"{found['near']:.0%}", found["longer"],
            )  # fmt: skip
            notes += found["notes"]
    if not rows:
        raise ValueError(f"nothing to compare on a line of tokens: {'; '.join(notes)}")
    if out is not None:
        # Before anything is printed: a reader such as head may leave early.
        summary = f"{{}} of attention on the last {NEAR} of {LENGTH} tokens, {{}} of {4 * LENGTH}"
        facts = {r["name"]: summary.format(f"{r['near']:.0%}", r["longer"]) for r in rows}
        figure.write(out, drawing(rows, state), facts)
    page.print(
        "A demonstration, without training: all tokens are alike, so that attention differs by "
        "place alone.\n"
    )
    page.print(grid)
    page.print(
        f"\nThe last of {LENGTH} tokens looks back, mean of 8 heads, {state}: its attention to the "
        f"token at that distance, times {LENGTH} (1 is even attention), and the share that goes to "
        f"the last {NEAR} of {LENGTH} tokens and of four times as many. Without a method every "
        f"score is about 8; what starts at or near zero, such as t5, is still even, and rse takes "
        f"the first keys first. Made with dim 512, 8 heads of 64, 6 layers, max_len {LENGTH}.",
        style="dim",
    )
    for note in notes:
        page.print(f"· {note}", style="dim")
    page.print(
        "\nNo picture: pip install 'ordinate[plot]' brings matplotlib."
        if out is None
        else f"\nDrawn in {out}"
    )
    return 0


def measure(name: str, draw: bool) -> dict[str, Any] | str:
    """One method's row, or why it has none."""
    import torch

    from ordinate.cli import subject
    from ordinate.solve import weights

    position = subject.made(name, {"max_len": LENGTH}, draw=draw)
    if position.facts.axes != 1:
        return f"{name} is for a grid: ordinate show {name}"
    scene = subject.Scene(length=LENGTH, causal=True, alike=True)

    def look(length: int) -> torch.Tensor:
        wide = subject.Scene(length=length, causal=True, alike=True)
        return weights(subject.problem(position, wide)).double().mean((0, 1))[0].flip(0)

    with torch.no_grad():
        attention = look(scene.length)
        notes = []
        try:
            longer = look(4 * LENGTH)
            beyond = f"{float(longer[:NEAR].sum() / longer.sum()):.0%}"
        except ValueError as why:
            beyond = "refused"
            notes.append(f"{name} at {4 * LENGTH}: {why}")
    return {
        "name": name, "family": subject.family(name), "relative": position.facts.relative,
        "parameters": sum(p.numel() for p in position.parameters()),
        "attention": attention.numpy(), "near": float(attention[:NEAR].sum() / attention.sum()),
        "longer": beyond, "notes": notes,
    }  # fmt: skip


def drawing(rows: list[dict[str, Any]], state: str) -> Any:
    """One panel per family, the same axes in all."""
    from itertools import pairwise

    import numpy as np

    from ordinate.cli.list import FAMILIES
    from ordinate.cli.panels import Curves, Picture

    # Means over distances side by side, as many as the logarithmic axis has room for.
    edges = np.unique(np.geomspace(1, LENGTH, 64).round().astype(int))
    middle = np.sqrt(edges[:-1] * (edges[1:] - 1))

    def even(attention: np.ndarray) -> np.ndarray:
        parts = (attention[a:b].mean() for a, b in pairwise(edges))
        return np.maximum(LENGTH * np.fromiter(parts, float), LEAST)

    panels = []
    for family in FAMILIES:
        mine = [r for r in rows if r["family"] == family and family != "-"]
        for part in range(0, len(mine), 8):
            lines = {r["name"]: even(r["attention"]) for r in mine[part : part + 8]}
            panels.append(
                Curves(
                    title=family, x_label="distance back (tokens)",
                    y_label="attention / even attention",
                    x=middle, lines=lines, plain=np.ones(len(middle)),
                    log=True, log_x=True, y_range=(LEAST / 1.5, 2 * LENGTH),
                )
            )  # fmt: skip
    about = (
        f"the last of {LENGTH} tokens, all alike, looks back; mean of 8 heads; {state}; "
        f"values below {LEAST:g} drawn there"
    )
    return Picture(name="How methods differ, without training", about=about, panels=panels)


def short(count: int) -> str:
    """A count in at most five characters."""
    if count < 10000:
        return f"{count:,}"
    return f"{count / 1000:.0f}k" if count < 1_000_000 else f"{count / 1e6:.1f}M"
