import errno
import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from ordinate.experiments.store import FORMAT, RESULT, Store, write_result
from ordinate.training import Outcome, Point, Recipe, Score, Trial
from ordinate.training.outcome import Cost, Made, Result

posix = pytest.mark.skipif(os.name != "posix", reason="processes and locks as on POSIX")


def made(seed=0, status="done", method="rope", rate=1e-3, lengths=(64,), looks=2, seconds=1.5):
    """An outcome with numbers that are hard to keep: NaN, infinity, 0.1 + 0.2."""
    trial = Trial(
        task="pattern", position=method, seed=seed, lengths=lengths, recipe=Recipe(rate=rate)
    )
    if status != "done":
        return Outcome(trial=trial, status=status, reason=f"{status}: é, “quoted”\nand more")
    part = Score(loss=0.1 + 0.2, accuracy=1 / 3, targets=7)
    score = Score(loss=math.inf, accuracy=0.75, targets=20, parts={"first": part})
    curve = [Point(step=50 * i, train_loss=math.nan, loss=1 / (i + 1), accuracy=0.5)
             for i in range(looks)]  # fmt: skip
    tests = {32: score, **{n: Score(refused="no row for place 63") for n in lengths}}
    return Outcome(
        trial=trial,
        status="done",
        result=Result(
            stop="budget", steps=100, best=50, curve=curve, validation=part, test=tests,
            digest="ab" * 32,
        ),
        cost=Cost(
            parameters=10, of_position=2, flops=2**40, saved=1, peak=None, seconds=seconds,
            step_seconds=0.01,
        ),
        made=Made(
            engine="in process", device="cpu", threads=1, attention="reference", graph=False,
            stacked=1, ordinate="0.1.0", torch="2", python="3", machine="m", commit=None,
            started="2026-01-01T00:00:00Z",
        ),
    )  # fmt: skip


def same(a, b):
    """Equal to the bit; NaN, which is not equal to itself, too."""
    return repr(a) == repr(b)


@contextmanager
def process(work):
    """A forked process that runs `work` and is gone afterwards."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(1)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def sound(folder):
    with sqlite3.connect(folder / "records.sqlite") as db:
        return db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_what_is_added_is_there_to_the_bit(tmp_path):
    kept = [made(seed, status) for seed, status in enumerate(["done", "failed", "lost", "done"])]
    with Store(tmp_path / "runs") as store:
        assert [store.add(outcome) for outcome in kept] == [True] * 4
        assert all(map(same, store.outcomes(), kept))
    store = Store(tmp_path / "runs", writer=False)
    assert len(store.outcomes()) == 4 and all(map(same, store.outcomes(), kept))
    assert same(store.get(kept[0].trial.id), kept[0])
    assert store.get("0" * 16) is None
    asked = {kept[3].trial.id, kept[1].trial.id, "0" * 16}
    assert [o.trial.seed for o in store.outcomes(asked)] == [1, 3]
    assert store.outcomes([]) == []
    assert store.statuses() == {o.trial.id: o.status for o in kept}


@pytest.mark.parametrize("first", ["done", "failed", "lost"])
@pytest.mark.parametrize("second", ["done", "failed", "lost"])
def test_only_a_lost_outcome_makes_room(tmp_path, first, second):
    before = made(status=first)
    after = made(status=second, seconds=99.0).model_copy(update={"reason": "another"})
    with Store(tmp_path) as store:
        assert store.add(before)
        assert not store.add(before)
        assert store.add(after) == (first == "lost")
        assert same(store.outcomes()[0], after if first == "lost" else before)
        assert len(store.outcomes()) == 1


def test_the_database_itself_refuses_to_change_a_finished_trial(tmp_path):
    with Store(tmp_path) as store:
        store.add(made())
    with (
        sqlite3.connect(tmp_path / "records.sqlite") as db,
        pytest.raises(sqlite3.IntegrityError, match="stays as it is"),
    ):
        db.execute("UPDATE outcomes SET body = ''")


def test_plans_are_kept_with_the_newest_last(tmp_path):
    with Store(tmp_path) as store:
        a, b = store.keep_plan({"name": "a", "seeds": 3}), store.keep_plan({"name": "b"})
        assert [(id, plan["name"]) for id, _, plan in store.plans()] == [(a, "a"), (b, "b")]
        assert store.keep_plan({"seeds": 3, "name": "a"}) == a
    plans = Store(tmp_path, writer=False).plans()
    assert [(id, plan["name"]) for id, _, plan in plans] == [(b, "b"), (a, "a")]
    assert all(abs(time.time() - _seconds(when)) < 60 for _, when, _ in plans)


def _seconds(when):
    from datetime import datetime

    return datetime.fromisoformat(when).timestamp()


@posix
def test_a_killed_writer_loses_nothing_it_said_was_kept(tmp_path):
    folder, dice, said = tmp_path / "runs", random.Random(7), set()
    made(0)  # what a process imports, it has before it is forked
    for start in range(0, 20_000, 1_000):
        read, write = os.pipe()

        def work(start=start, write=write):
            with Store(folder) as store:
                for seed in range(start, start + 1_000):
                    outcome = made(seed)
                    store.add(outcome)
                    os.write(write, f"{outcome.trial.id}\n".encode())

        with process(work):
            os.close(write)
            # Half of them while they open the store, half of them while they write.
            first = os.read(read, 17) if start % 2_000 else b""
            time.sleep(dice.uniform(0.0, 0.03))
        with open(read, "rb") as lines:
            new = (first + lines.read()).decode().split()
        said.update(new)
        if said:
            kept = Store(folder, writer=False)
            assert said <= kept.statuses().keys()
            assert all(same(o, made(o.trial.seed)) for o in kept.outcomes(new))
            assert sound(folder)
    assert len(said) >= 10
    with Store(folder) as store:
        assert store.add(made(30_000))


@posix
def test_one_reads_while_another_writes(tmp_path):
    count = 200

    def work():
        with Store(tmp_path) as store:
            for seed in range(count):
                store.add(made(seed))
            time.sleep(60)

    Store(tmp_path).close()
    with process(work):
        reader, seen, until = Store(tmp_path, writer=False), [0], time.monotonic() + 30
        while seen[-1] < count and time.monotonic() < until:
            found = reader.outcomes()
            assert [o.trial.seed for o in found] == [*range(len(found))]
            seen.append(len(found))
    assert seen == sorted(seen) and seen[-1] == count
    assert len(set(seen)) > 3


@posix
def test_there_is_one_writer_and_its_death_frees_the_store(tmp_path):
    ready, tell = os.pipe()

    def work():
        with Store(tmp_path) as store:
            store.add(made())
            os.write(tell, b"x")
            time.sleep(60)

    with process(work) as writer:
        os.read(ready, 1)
        with pytest.raises(ValueError, match=f"process {writer} is writing to {tmp_path}: wait"):
            Store(tmp_path)
        assert len(Store(tmp_path, writer=False).outcomes()) == 1
    # SIGKILL left the lock's file and the log of the database behind.
    assert (tmp_path / "records.sqlite-wal").exists()
    assert len(Store(tmp_path, writer=False).outcomes()) == 1
    with Store(tmp_path) as store:
        assert store.add(made(1))
        with pytest.raises(ValueError, match=f"process {os.getpid()} is writing"):
            Store(tmp_path)
    Store(tmp_path).close()


@posix
def test_a_worker_that_outlives_its_writer_holds_no_lock(tmp_path):
    ready, tell = os.pipe()

    def work():
        os.write(tell, b"x")
        time.sleep(60)

    store = Store(tmp_path)
    with process(work):
        os.read(ready, 1)
        store.close()
        Store(tmp_path).close()


def test_outcomes_may_come_from_any_thread(tmp_path):
    with Store(tmp_path) as store:
        many = [threading.Thread(target=store.add, args=(made(seed),)) for seed in range(20)]
        [thread.start() for thread in many]
        [thread.join() for thread in many]
        assert {o.trial.seed for o in store.outcomes()} == {*range(20)}


def test_results_without_a_writer_are_collected(tmp_path):
    with Store(tmp_path) as store:
        store.add(made(0))
        store.add(made(1, "lost"))
        for seed in range(4):
            write_result(store.trials, made(seed, seconds=9.0))
        store.folder_of("0" * 16).mkdir()
        assert store.unfinished() == sorted(["0" * 16, made(2).trial.id, made(3).trial.id])
        assert store.collect() == 3
        assert store.collect() == 0
        assert store.refused == {}
        kept = {o.trial.seed: o for o in store.outcomes()}
        assert all(same(kept[seed], made(seed, seconds=9.0)) for seed in (1, 2, 3))
        assert same(kept[0], made(0))
        assert store.unfinished() == ["0" * 16]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"steps": 100', '"steps": 101'),
        lambda text: "[]",
        lambda text: '{"outcome": 3}',
        lambda text: "\x00" * len(text),
    ],
    ids=["empty", "half", "another number", "no record", "no outcome", "zeros"],
)
def test_a_damaged_result_is_put_aside_and_named(tmp_path, damage):
    with Store(tmp_path) as store:
        write_result(store.trials, made(0))
        write_result(store.trials, made(1))
        file = store.folder_of(made(0).trial.id) / RESULT
        written = damage(file.read_text())
        file.write_text(written)
        assert store.collect() == 1
        (aside,) = store.refused
        assert aside == file.with_name("result.json.damaged") and aside.read_text() == written
        assert not file.exists()
        assert store.refused[aside].startswith("damaged")
        assert [o.trial.seed for o in store.outcomes()] == [1]


def test_a_result_that_is_not_understood_stays_where_it_is(tmp_path):
    with Store(tmp_path) as store:
        write_result(store.trials, made(0))
        home, away = store.folder_of(made(0).trial.id), store.folder_of("0" * 16)
        home.rename(away)
        newer = store.folder_of("1" * 16)
        newer.mkdir()
        _newer(newer / RESULT, made(1))
        assert store.collect() == 0
        assert set(store.refused) == {away / RESULT, newer / RESULT}
        assert f"of trial {made(0).trial.id}" in store.refused[away / RESULT]
        assert "another Ordinate" in store.refused[newer / RESULT]
        assert (away / RESULT).exists() and (newer / RESULT).exists()


def _newer(path, outcome):
    """A record with a field that this Ordinate does not know, and a checksum that is right."""
    import hashlib

    content = {**outcome.model_dump(), "mood": "good"}
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    path.write_text(json.dumps({"sha256": digest, "outcome": content}))
    return path.read_text()


@pytest.mark.parametrize("writer", [True, False])
@pytest.mark.parametrize(
    "damage", [lambda b: b"x" * len(b), lambda b: b[:100] + b"\xff" * (len(b) - 100)],
    ids=["no database", "torn"],
)  # fmt: skip
def test_a_damaged_database_is_one_sentence_and_stays(tmp_path, writer, damage):
    with Store(tmp_path) as store:
        [store.add(made(seed)) for seed in range(20)]
        [write_result(store.trials, made(seed)) for seed in range(20)]
    records = tmp_path / "records.sqlite"
    broken = damage(records.read_bytes())
    records.write_bytes(broken)
    with pytest.raises(ValueError, match=r"is damaged .*: nothing was deleted") as said:
        Store(tmp_path, writer=writer).outcomes()
    assert "\n" not in str(said.value) and str(records) in str(said.value)
    assert records.read_bytes() == broken
    # What the sentence advises.
    for file in tmp_path.glob("records.sqlite*"):
        file.rename(tmp_path / f"away-{file.name}")
    with Store(tmp_path) as store:
        assert store.collect() == 20


def test_a_writer_finds_damage_anywhere_before_it_adds_to_it(tmp_path):
    with Store(tmp_path) as store:
        [store.add(made(seed)) for seed in range(50)]
    with open(tmp_path / "records.sqlite", "r+b") as file:
        file.seek(-4096, os.SEEK_END)
        file.write(b"\xff" * 4096)
    with pytest.raises(ValueError, match=r"is damaged .*: nothing was deleted") as said:
        Store(tmp_path)
    assert "\n" not in str(said.value)


def test_a_damaged_row_is_named_and_can_be_removed(tmp_path):
    with Store(tmp_path) as store:
        store.add(made(0))
        store.add(made(1))
    body = sqlite3.connect(tmp_path / "records.sqlite", isolation_level=None)
    body.execute("DROP TRIGGER final")
    body.execute("UPDATE outcomes SET body = replace(body, '0.75', '0.85') WHERE place = 1")
    body.close()
    id = made(0).trial.id
    with Store(tmp_path) as store:
        with pytest.raises(ValueError, match=f"trial {id} is damaged: .*ordinate runs rm {id}"):
            store.outcomes()
        assert store.get(made(1).trial.id) is not None
        store.remove([id])
        assert [o.trial.seed for o in store.outcomes()] == [1]


def test_a_row_of_another_version_is_named(tmp_path):
    with Store(tmp_path) as store:
        store.add(made(0, "lost"))
    with sqlite3.connect(tmp_path / "records.sqlite") as db:
        db.execute("UPDATE outcomes SET body = ?", [_newer(tmp_path / "x", made())])
    with pytest.raises(ValueError, match=r"is of another Ordinate.*mood") as said:
        Store(tmp_path, writer=False).outcomes()
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("writer", [True, False])
def test_databases_of_others_are_refused(tmp_path, writer):
    with Store(tmp_path / "new") as store:
        store.add(made())
    with sqlite3.connect(tmp_path / "new" / "records.sqlite") as db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(ValueError, match=r"newer Ordinate .*: update Ordinate"):
        Store(tmp_path / "new", writer=writer)
    (tmp_path / "other").mkdir()
    with sqlite3.connect(tmp_path / "other" / "records.sqlite") as db:
        db.execute("CREATE TABLE music (song TEXT)")
    with pytest.raises(ValueError, match="is no database of runs: name another folder"):
        Store(tmp_path / "other", writer=writer)
    with sqlite3.connect(tmp_path / "other" / "records.sqlite") as db:
        assert db.execute("SELECT name FROM sqlite_schema").fetchall() == [("music",)]


def test_a_reader_needs_runs_and_makes_none(tmp_path):
    missing = tmp_path / "runs"
    with pytest.raises(ValueError, match=f"there are no runs in {missing}"):
        Store(missing, writer=False)
    assert not missing.exists()
    missing.mkdir()
    (missing / "records.sqlite").touch()
    with pytest.raises(ValueError, match="there are no runs in"):
        Store(missing, writer=False)
    with Store(missing) as store:
        store.add(made())
    reader = Store(missing, writer=False)
    for write in (
        lambda: reader.add(made(1)),
        lambda: reader.keep_plan({}),
        lambda: reader.remove([]),
    ):
        with pytest.raises(ValueError, match="not open to be written"):
            write()
    assert len(reader.outcomes()) == 1


def test_a_database_that_is_deleted_meanwhile_takes_no_more(tmp_path):
    with Store(tmp_path) as store:
        store.add(made(0))
        (tmp_path / "records.sqlite").unlink()
        with pytest.raises(ValueError, match="there are no runs"):
            store.add(made(1))


@pytest.mark.parametrize("writer", [True, False])
def test_a_file_is_no_folder(tmp_path, writer):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ValueError, match="is a file, and runs are kept in a folder"):
        Store(file, writer=writer)
    assert file.read_text() == "mine"


def test_names_with_odd_characters(tmp_path):
    for name in ("50% off?", "a#b", "é à"):
        with Store(tmp_path / name) as store:
            store.add(made())
        assert len(Store(tmp_path / name, writer=False).outcomes()) == 1


def test_removed_is_removed_with_every_file(tmp_path):
    with Store(tmp_path) as store:
        for seed in range(3):
            store.add(made(seed))
            write_result(store.trials, made(seed))
            (store.folder_of(made(seed).trial.id) / "checkpoint.json").write_text("{}")
        gone = [made(0).trial.id, made(2).trial.id]
        store.remove([*gone, "0" * 16])
        assert [o.trial.seed for o in store.outcomes()] == [1]
        assert [path.name for path in store.trials.iterdir()] == [made(1).trial.id]
        assert store.collect() == 0
        # Removed, it may be run again.
        assert store.add(made(0, seconds=3.0))


@pytest.mark.parametrize("id", ["", ".", "..", "../..", "0" * 15, "0" * 17, "x" * 16, "/"])
def test_nothing_but_a_trial_can_be_removed(tmp_path, id):
    with Store(tmp_path) as store:
        store.add(made())
        with pytest.raises(ValueError, match="the id of a trial is 16 letters"):
            store.remove([made().trial.id, id])
        assert len(store.outcomes()) == 1
    assert (tmp_path / "trials").is_dir()


def test_a_database_that_is_full_says_so_and_goes_on_later(tmp_path):
    with Store(tmp_path) as store:
        store.add(made(0))
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(OSError, match="full: make room") as said:
            [store.add(made(seed)) for seed in range(1, 100)]
        assert said.value.errno == errno.ENOSPC
        assert said.value.filename == tmp_path / "records.sqlite"
        kept = len(store.outcomes())
        store._db.execute("PRAGMA max_page_count = 1000000")
        assert store.add(made(kept))
        assert [o.trial.seed for o in store.outcomes()] == [*range(kept + 1)]
    assert sound(tmp_path)


@contextmanager
def mounted(path, options):
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=False)
    if done.returncode:
        pytest.skip("only root mounts a small disk")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


disks = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0, reason="only root mounts a disk"
)


@disks
def test_a_full_disk_loses_nothing(tmp_path):
    with mounted(tmp_path / "disk", "size=1m") as disk:
        said, ballast = 0, disk / "ballast"
        ballast.write_bytes(b"x" * 300_000)
        with Store(disk / "runs") as store:
            with pytest.raises(OSError, match=": make room") as full:
                for seed in range(10_000):
                    store.add(made(seed))
                    said += 1
            assert full.value.errno in (errno.ENOSPC, errno.EIO)
            with pytest.raises(OSError, match="No space left on device: make room"):
                for seed in range(10_000):
                    write_result(store.trials, made(seed))
            assert [o.trial.seed for o in store.outcomes()] == [*range(said)]
        assert said > 10
        assert not [*disk.rglob("*.part")]
        assert all(
            same(o, made(o.trial.seed)) for o in Store(disk / "runs", writer=False).outcomes()
        )
        # Not even a new store finds room, and says so.
        fill(disk / "rest")
        with pytest.raises(OSError, match=": make room"):
            Store(disk / "new")
        ballast.unlink()
        with Store(disk / "runs") as store:
            assert [o.trial.seed for o in store.outcomes()] == [*range(said)]
            store.add(made(20_000))
        assert sound(disk / "runs")


def fill(path):
    with open(path, "wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass


@disks
@pytest.mark.parametrize("killed", [False, True])
def test_a_disk_that_cannot_be_written_can_be_read(tmp_path, killed):
    with mounted(tmp_path / "disk", "size=4m") as disk:
        ready, tell = os.pipe()

        def work():
            store = Store(disk)
            store.add(made())
            if not killed:
                store.close()
            os.write(tell, b"x")
            time.sleep(60)

        with process(work):
            os.read(ready, 1)
        assert (disk / "records.sqlite-wal").exists() == killed
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert same(Store(disk, writer=False).outcomes()[0], made())
        with pytest.raises(OSError, match="Read-only file system: make room or name another"):
            Store(disk)
