"""How a comparison was made, as HTML: what is missing, on what it ran, and how to repeat it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from html import escape

from ordinate.experiments.comparison import Comparison, Row
from ordinate.experiments.plan import Plan
from ordinate.report.markup import grid
from ordinate.report.tables import Column, Line, Sheet
from ordinate.report.tables.numbers import count, short


def missing(comparison: Comparison) -> str:
    """Failures, refusals, and trials that were not run, each with its reason."""
    found: dict[tuple[str, str, str], list[str]] = {}

    def add(row: Row, seeds: Sequence[int], what: str) -> None:
        which = "all seeds" if len(seeds) == len(row.seeds) else _seeds(seeds)
        found.setdefault((row.method, which, what), []).append(_model(row))

    for row in comparison.rows:
        for seed, reason in row.failures.items():
            add(row, [seed], f"failed: {reason}")
        for length in comparison.lengths:
            if why := row.refused(length):
                add(row, row.seeds, f"refuses length {length}: {why}")
        if row.unconverged:
            add(row, row.unconverged, "the budget was over before it converged")
        if row.missing:
            add(row, row.missing, "not run yet")
    if not found:
        return "<p>Nothing: every trial is done, and none failed, refused or was cut short.</p>"
    cells = len(comparison.plan.cells)
    rows = [
        (method, f"all {cells}" if len(models) == cells > 1 else "; ".join(models), which, what)
        for (method, which, what), models in found.items()
    ]
    return grid(("method", "model", "which", "what"), rows, "text")


def _seeds(seeds: Sequence[int]) -> str:
    return ("seed " if len(seeds) == 1 else "seeds ") + ", ".join(map(str, seeds))


def costs(comparison: Comparison) -> Sheet:
    """What methods take, the means over their runs."""
    several, lines = len(comparison.plan.cells) > 1, []
    fields = {
        "parameters": ("parameters", 1),
        "of_position": ("of the\nmethod", 1),
        "flops": ("GFLOP\nper step", 1e9),
        "saved": ("MB kept for\nbackward", 1e6),
        "peak": ("peak MB\non device", 1e6),
        "step_seconds": ("ms\nper step", 1e-3),
        "seconds": ("seconds\nper run", 1),
    }
    for row in comparison.rows:
        means = ((row.cost(name), unit) for name, (_, unit) in fields.items())
        numbers = (short(None if mean is None else mean / unit) for mean, unit in means)
        lines.append(Line((row.method, *([_model(row)] if several else []), *numbers)))
    heads = [Column("method", right=False), *([Column("model", right=False)] if several else [])]
    columns = (*heads, *(Column(head) for head, _ in fields.values()))
    legend = {
        "": "Means over the runs that are done. A step is one batch; of trials trained together, "
        "its time is the share of one. The peak is known on GPUs alone. A run is training with its "
        "looks at the validation samples."
    }
    return Sheet("What each method takes", columns, tuple(lines), legend)


def _model(row: Row) -> str:
    return f"{count(row.cell.layers, 'layer')}, {count(row.cell.epochs, 'epoch')}"


def environment(comparison: Comparison) -> str:
    """On what and how trials were made: what differs between them is counted."""
    every = [o.made for row in comparison.rows for o in row.outcomes.values() if o.made]
    if not every:
        return ""
    rows = []
    names = {
        "attention": "attention solved by",
        "graph": "CUDA graph",
        "stacked": "trained together",
    }
    for name in type(every[0]).model_fields:
        values = Counter(_word(getattr(made, name)) for made in every)
        if name == "started":
            ends = sorted({min(values), max(values)})
            rows.append(("started", " to ".join(ends)))
        elif any(value not in ("", "0", "no") for value in values):
            said = "; ".join(
                f"{v or 'none'} ({n} of {len(every)} trials)" if len(values) > 1 else v
                for v, n in values.most_common()
            )
            rows.append((names.get(name, name), said))
    return grid(("of the runs", "what"), rows, "text")


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def configuration(plan: Plan) -> str:
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in plan.name)
    return (
        f"<p>All of it, defaults included. Saved as <code>{name}.toml</code>, it is run again by</p>"
        f"<pre><code>{escape(command(plan, f'{name}.toml'))}</code></pre>"
        f'<div class="wide" role="region" tabindex="0" aria-label="Configuration"><pre><code>'
        f"{escape(toml(plan))}</code></pre></div>"
    )


def command(plan: Plan, file: str) -> str:
    """What runs a plan again that was saved as a file."""
    # TOML has no word for "none"; a goal is all that can be none and is not by default.
    return f"ordinate compare --preset {file}" + " --set recipe.goal=none" * (not plan.recipe.goal)


def toml(plan: Plan) -> str:
    """A plan as the file that gives it."""
    whole = plan.model_dump(mode="json")
    parts = {"": {}, **{key: one for key, one in whole.items() if isinstance(one, dict)}}
    parts[""] = {key: one for key, one in whole.items() if key not in parts}
    made = []
    for name, content in parts.items():
        made += [f"\n[{name}]"] if name else []
        for key, value in content.items():
            if value is not None:
                made.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(made) + "\n"
