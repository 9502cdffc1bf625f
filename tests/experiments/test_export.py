import csv
import json
import math
import struct
import sys

import pytest

from experiments.test_store import made
from ordinate.experiments import export
from ordinate.training.outcome import Cost, Made, Result, Score
from ordinate.training.trial import Recipe, Sizes


def kept():
    return [made(0), made(1, lengths=(64, 128)), made(2, "failed"), made(3, "lost")]


def test_there_is_a_row_per_trial_and_tested_length():
    rows = export.rows(kept())
    assert [(row["seed"], row["length"]) for row in rows] == [
        (0, 32), (0, 64), (1, 32), (1, 64), (1, 128), (2, None), (3, None),
    ]  # fmt: skip
    assert [row["trained"] for row in rows] == [True, False, True, False, False, None, None]
    assert len({tuple(row) for row in rows}) == 1
    first, refused, failed = rows[0], rows[1], rows[5]
    assert first["id"] == made(0).trial.id
    assert (first["loss"], first["accuracy"], first["targets"]) == (math.inf, 0.75, 20)
    assert (first["part.first.loss"], first["part.first.targets"]) == (0.1 + 0.2, 7)
    assert first["validation.accuracy"] == 1 / 3
    assert (first["rate"], first["layers"], first["engine"], first["seconds"]) == (
        1e-3, 3, "in process", 1.5,
    )  # fmt: skip
    assert refused["refused"] == "no row for place 63" and refused["accuracy"] is None
    assert failed["status"] == "failed" and failed["reason"].startswith("failed: é")
    assert failed["layers"] == 3 and failed["seconds"] is None


def test_every_field_of_a_record_has_a_column():
    (row, *_) = export.rows([made(0)])
    apart = {"curve", "validation", "test", "parts", "sizes", "recipe", "trial"}
    for kind in (Result, Cost, Made, Score, Sizes, Recipe, type(made(0).trial), type(made(0))):
        assert kind.model_fields.keys() - apart - {"result", "cost", "made"} <= row.keys()


def test_two_fields_of_one_name_are_found():
    with pytest.raises(AssertionError, match="two fields"):
        export._joined({"loss": 1}, {"loss": 2})


def test_the_length_trained_at_is_the_one_nobody_asked_for():
    assert export.trained_length(made(lengths=(16, 64))) == 32
    assert export.trained_length(made(lengths=(32, 64))) == 32
    assert export.trained_length(made(status="failed")) is None


def test_csv_keeps_every_number(tmp_path):
    file = tmp_path / "runs.csv"
    assert export.write(kept(), file) == 7
    rows = export.rows(kept())
    with open(file, newline="", encoding="utf-8") as text:
        read = [*csv.DictReader(text)]
    assert len(read) == len(rows)
    for own, row in zip(read, rows, strict=True):
        assert own == {key: "" if value is None else str(value) for key, value in row.items()}
        assert own["loss"] == "" or float(own["loss"]) == row["loss"]


def test_json_is_json_and_keeps_every_number(tmp_path):
    file = tmp_path / "runs.json"
    export.write(kept(), file)
    read = json.loads(file.read_text(), parse_constant=lambda name: pytest.fail(name))
    rows = export.rows(kept())
    assert rows[0]["loss"] == math.inf
    for row in rows:
        row["loss"] = None if row["loss"] == math.inf else row["loss"]
    assert read == rows


def test_parquet_keeps_every_number_and_its_type(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "runs.PARQUET"
    export.write(kept(), file)
    read = parquet.read_table(file)
    assert read.to_pylist() == export.rows(kept())
    types = {name: str(read.schema.field(name).type) for name in ("loss", "flops", "trained")}
    assert types == {"loss": "double", "flops": "int64", "trained": "bool"}


@pytest.mark.parametrize("ending", [".csv", ".json", ".parquet"])
def test_no_runs_are_an_empty_table(tmp_path, ending):
    assert export.write([], tmp_path / f"runs{ending}") == 0
    assert (tmp_path / f"runs{ending}").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("runs.xlsx", "a table ends in .csv, .parquet, .json, got .xlsx"),
        ("runs", "got no ending"),
        ("folder.csv", "a table is a file, and .* is a directory"),
        ("no/such/runs.csv", "there is no directory .*no/such"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(tmp_path, name, sentence):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match=sentence):
        export.write(kept(), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"]


def test_a_write_that_fails_leaves_the_old_table(tmp_path, monkeypatch):
    file = tmp_path / "runs.csv"
    file.write_text("old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ordinate.training.checkpoint.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        export.write(kept(), file)
    assert file.read_text() == "old" and [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("package", ["pyarrow", "tensorboardX"])
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"takes the package {package}: pip install .*\[export\]"):
        if package == "pyarrow":
            export.write(kept(), tmp_path / "runs.parquet")
        else:
            export.tensorboard(kept(), tmp_path / "curves")
    assert [*tmp_path.iterdir()] == []


def scalars(folder):
    """{tag: [(step, value)]} of an event file: length, crc, protocol buffer, crc, and again."""
    event = pytest.importorskip("tensorboardX.proto.event_pb2")
    (file,) = folder.iterdir()
    content, place, found = file.read_bytes(), 0, {}
    while place < len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        said = event.Event.FromString(content[place + 12 : place + 12 + size])
        for value in said.summary.value:
            found.setdefault(value.tag, []).append((said.step, value.simple_value))
        place += 16 + size
    return found


def test_tensorboard_gets_a_run_per_trial_with_its_curves(tmp_path):
    pytest.importorskip("tensorboardX")
    assert export.tensorboard([*kept(), made(0, method="alibi", looks=3)], tmp_path / "tb") == 3
    # The lengths of made(1) differ from the others', so every name says them.
    runs = {str(path.parent.relative_to(tmp_path / "tb")) for path in tmp_path.rglob("events.*")}
    assert runs == {
        "rope/lengths=64/seed-0", "rope/lengths=64_128/seed-1", "alibi/lengths=64/seed-0",
    }  # fmt: skip
    read = scalars(tmp_path / "tb" / "alibi" / "lengths=64" / "seed-0")
    assert set(read) == {"train/loss", "validation/loss", "validation/accuracy"}
    assert read["validation/loss"] == [(0, 1.0), (50, 0.5), (100, pytest.approx(1 / 3))]
    assert read["validation/accuracy"] == [(0, 0.5), (50, 0.5), (100, 0.5)]
    assert all(math.isnan(value) for _, value in read["train/loss"])


def test_names_of_runs_say_what_differs_and_are_never_the_same():
    names = export.run_names([made(s).trial for s in (0, 1)])
    assert names == ["rope/seed-0", "rope/seed-1"]
    names = export.run_names([made(rate=1e-3).trial, made(rate=3e-4).trial])
    assert names == ["rope/rate=0.001/seed-0", "rope/rate=0.0003/seed-0"]
    odd = [t.model_copy(update={"position": p}) for t, p in
           zip([made().trial] * 3, ["a/b.py:M", "a:b.py:M", "../up"], strict=True)]  # fmt: skip
    names = export.run_names(odd)
    assert len(set(names)) == 3 and names[2] == ".._up/seed-0"
    assert all(name.startswith("a_b.py_M/seed-0-") for name in names[:2])
    assert export.run_names([]) == []


def test_curves_are_not_mixed_with_old_ones(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is not empty, and would mix old curves with new"):
        export.tensorboard(kept(), tmp_path)
    with pytest.raises(ValueError, match=r"reads a folder, and .* is a file"):
        export.tensorboard(kept(), tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
