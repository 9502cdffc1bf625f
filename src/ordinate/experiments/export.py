"""Runs for other programs: a flat table as CSV, Parquet or JSON, and curves for TensorBoard."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ordinate.training.checkpoint import replace
from ordinate.training.outcome import Cost, Made, Outcome, Result, Score
from ordinate.training.trial import Trial

Row = dict[str, Any]
ENDINGS = (".csv", ".parquet", ".json")


def rows(outcomes: Iterable[Outcome]) -> list[Row]:
    """A row per trial and tested length, all with the same columns; None where there is nothing.

    Fields keep their names. `length`, `loss`, `accuracy`, `targets` and `refused` are of a test, and
    `trained` says whether at the length trained at; `validation.loss` is that of the best weights,
    `part.NAME.accuracy` that of a part of the test. A trial without a result has one row.
    """
    found = [row for outcome in outcomes for row in _rows(outcome)]
    columns = dict.fromkeys(key for row in found for key in row)
    return [{key: row.get(key) for key in columns} for row in found]


def trained_length(outcome: Outcome) -> int | None:
    """The length trained at: the one that is tested without being asked for, or the shortest."""
    tested = outcome.result.test if outcome.result else {}
    return min(tested.keys() - {*outcome.trial.lengths} or tested, default=None)


def write(outcomes: Iterable[Outcome], path: str | Path) -> int:
    """Writes the rows in the format that the file's ending names; how many there are."""
    target = check_table(path)
    table = rows(outcomes)
    ending = target.suffix.lower()
    content = _parquet(table) if ending == ".parquet" else _text(table, ending).encode()
    replace(target, content)
    return len(table)


def check_table(path: str | Path) -> Path:
    """Refuses a file that cannot be written, before anything is read for it."""
    target = Path(path)
    if target.suffix.lower() not in ENDINGS:
        given = f"got {target.suffix}" if target.suffix else "got no ending"
        raise ValueError(f"a table ends in {', '.join(ENDINGS)}, {given}: {path}")
    if target.is_dir():
        raise ValueError(f"a table is a file, and {path} is a directory")
    if not target.parent.is_dir():
        raise ValueError(f"there is no directory {target.parent}")
    if target.suffix.lower() == ".parquet":
        _extra("pyarrow", "a .parquet file")
    return target


def tensorboard(outcomes: Iterable[Outcome], folder: str | Path) -> int:
    """Writes the curves of every trial that has one, as METHOD/seed-0; how many there are.

    What else differs between the trials stands in the middle: METHOD/task=copy,rate=0.001/seed-0.
    """
    target = check_curves(folder)
    writer = _extra("tensorboardX", "TensorBoard's files").SummaryWriter
    chosen = [(o.trial, o.result) for o in outcomes if o.result is not None]
    names = run_names([trial for trial, _ in chosen])
    for name, (_, result) in zip(names, chosen, strict=True):
        with writer(str(target / name)) as out:
            for point in result.curve:
                out.add_scalar("train/loss", point.train_loss, point.step)
                out.add_scalar("validation/loss", point.loss, point.step)
                out.add_scalar("validation/accuracy", point.accuracy, point.step)
    return len(chosen)


def check_curves(folder: str | Path) -> Path:
    """Refuses a folder with something in it: TensorBoard draws all the files of a run as one."""
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise ValueError(f"TensorBoard reads a folder, and {folder} is a file")
    if target.is_dir() and any(target.iterdir()):
        raise ValueError(f"{folder} is not empty, and would mix old curves with new: name another")
    _extra("tensorboardX", "TensorBoard's files")
    return target


def run_names(trials: Sequence[Trial]) -> list[str]:
    """A folder for each trial: its method, what differs between these trials, and its seed."""
    fields = [_trial(trial) for trial in trials]
    apart = [
        key
        for key in (fields[0] if fields else ())
        if key not in ("position", "seed") and len({row[key] for row in fields}) > 1
    ]
    names = []
    for row in fields:
        parts = [row["position"], ",".join(f"{key}={row[key]}" for key in apart)]
        parts = [re.sub(r"[^\w.+=,()-]", "_", part) for part in parts if part]
        names.append("/".join([*parts, f"seed-{row['seed']}"]))
    # Two names may differ in nothing but what a folder cannot be called.
    often = Counter(names)
    return [
        f"{name}-{trial.id}" if often[name] > 1 else name
        for name, trial in zip(names, trials, strict=True)
    ]


def fields(outcome: Outcome) -> Row:
    """All that is said of a trial besides its tests and its curve."""
    return _joined(
        {"id": outcome.trial.id},
        _trial(outcome.trial),
        {"status": outcome.status, "reason": outcome.reason},
        _fields(Result, outcome.result, without={"curve", "validation", "test"}),
        _score(outcome.result.validation if outcome.result else None, "validation."),
        _fields(Cost, outcome.cost),
        _fields(Made, outcome.made),
    )


def _rows(outcome: Outcome) -> Iterator[Row]:
    own, trained = fields(outcome), trained_length(outcome)
    tests = outcome.result.test if outcome.result else {}
    for length, score in tests.items():
        yield _joined(own, {"length": length, "trained": length == trained}, _score(score))
    if not tests:
        yield _joined(own, {"length": None, "trained": None}, _score(None))


def _trial(trial: Trial) -> Row:
    own = trial.model_dump(exclude={"sizes", "recipe"})
    lengths = " ".join(map(str, trial.lengths))
    return _joined({**own, "lengths": lengths}, trial.sizes.model_dump(), trial.recipe.model_dump())


def _score(score: Score | None, before: str = "") -> Row:
    own = _fields(Score, score, without={"parts"})
    parts = [_score(part, f"part.{name}.") for name, part in (score.parts if score else {}).items()]
    return {f"{before}{key}": value for key, value in _joined(own, *parts).items()}


def _fields(kind: type[BaseModel], record: BaseModel | None, without: Iterable[str] = ()) -> Row:
    """The fields of a record; the same ones, empty, where there is no record."""
    return {
        key: None if record is None else getattr(record, key)
        for key in kind.model_fields
        if key not in without
    }


def _joined(*parts: Row) -> Row:
    joined = {key: value for part in parts for key, value in part.items()}
    assert len(joined) == sum(map(len, parts)), "two fields of a record have one name"
    return joined


def _text(table: list[Row], ending: str) -> str:
    out = io.StringIO()
    if ending == ".json":
        # JSON has no NaN and no infinity: they are null.
        sound = [{key: _finite(value) for key, value in row.items()} for row in table]
        json.dump(sound, out, indent=1, allow_nan=False)
        out.write("\n")
    else:
        lines = csv.DictWriter(out, [*table[0]] if table else [], lineterminator="\n")
        lines.writeheader()
        lines.writerows(table)
    return out.getvalue()


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parquet(table: list[Row]) -> bytes:
    arrow, parquet = _extra("pyarrow", "a .parquet file"), import_module("pyarrow.parquet")
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.Table.from_pylist(table), sink)
    return sink.getvalue().to_pybytes()


def _extra(package: str, what: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise ValueError(
            f"{what} takes the package {package}: pip install 'ordinate[export]'"
        ) from None
