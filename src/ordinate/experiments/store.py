"""What was run, on disk: a database with one writer, and beside it a folder per trial.

    ordinate-runs/records.sqlite          a row per trial and per plan
    ordinate-runs/lock                    held by the writer, with its pid in it
    ordinate-runs/trials/ID/result.json   by whoever ran the trial; its checkpoints are beside it

A row is on disk when `add` returns, and that of a finished trial never changes. Rows and result
files carry a checksum. Not for network file systems: readers share memory with the writer.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from weakref import WeakSet

if TYPE_CHECKING:
    from ordinate.training.outcome import Outcome

HOME = "ordinate-runs"
RECORDS, LOCK, TRIALS, RESULT = "records.sqlite", "lock", "trials", "result.json"
ID = re.compile(r"[0-9a-f]{16}")
#: Seconds to wait while another connection recovers or closes the database.
WAIT = 30.0
# "Ordi", in the header of the file: whose database it is.
OURS, FORMAT = 0x4F726469, 1
NOW = "TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))"
SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE outcomes (place INTEGER PRIMARY KEY AUTOINCREMENT, time {NOW},
    id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, body TEXT NOT NULL) STRICT;
CREATE TABLE plans (place INTEGER PRIMARY KEY AUTOINCREMENT, time {NOW},
    id TEXT NOT NULL UNIQUE, body TEXT NOT NULL) STRICT;
CREATE TRIGGER final BEFORE UPDATE ON outcomes WHEN OLD.status <> 'lost'
BEGIN SELECT RAISE(ABORT, 'a finished trial stays as it is'); END;
PRAGMA application_id = {OURS};
PRAGMA user_version = {FORMAT};
COMMIT;
"""
ADD = """
INSERT INTO outcomes (id, status, body) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE
SET status = excluded.status, time = excluded.time, body = excluded.body
WHERE outcomes.status = 'lost' AND outcomes.body <> excluded.body
"""
OUR_MISTAKES = sqlite3.IntegrityError, sqlite3.ProgrammingError
AMONG = "WHERE id IN (SELECT value FROM json_each(?))"


class Store(AbstractContextManager["Store"]):
    """The runs in a folder, to write (one process at a time) or to read (any, at the same time).

    A reader opens the database anew for each question, so it may live as long as it likes.
    """

    def __init__(self, folder: str | Path, *, writer: bool = True) -> None:
        self.folder = Path(folder)
        self.records, self.trials = self.folder / RECORDS, self.folder / TRIALS
        #: Result files that `collect` left out, and why; damaged ones by their new name.
        self.refused: dict[Path, str] = {}
        self._db: sqlite3.Connection | None = None
        self._open = ExitStack()
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{folder} is a file, and runs are kept in a folder: name another")
        if not writer:
            with self._asking():
                return
        with _said(self.records), ExitStack() as opening:
            self.trials.mkdir(parents=True, exist_ok=True)
            opening.enter_context(_locked(self.folder / LOCK))
            # Any thread may bring an outcome: SQLite itself takes them one at a time.
            db = sqlite3.connect(self.records, WAIT, isolation_level=None, check_same_thread=False)
            self._begin(opening.enter_context(closing(db)))
            self._db, self._open = db, opening.pop_all()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the database and of the lock."""
        self._db = None
        self._open.close()

    def add(self, outcome: Outcome) -> bool:
        """Keeps an outcome; False if there is one that is not lost, which stays."""
        row = outcome.trial.id, outcome.status, _text(outcome)
        with self._asking(write=True) as db:
            return db.execute(ADD, row).rowcount > 0

    def get(self, id: str) -> Outcome | None:
        """The outcome of a trial; None if there is none."""
        return next(iter(self.outcomes([id])), None)

    def outcomes(self, ids: Iterable[str] | None = None) -> list[Outcome]:
        """Every outcome, or those of some trials, in the order they came in."""
        which, given = ("", ()) if ids is None else (AMONG, (json.dumps([*ids]),))
        with self._asking() as db:
            rows = db.execute(f"SELECT id, body FROM outcomes {which} ORDER BY place", given)
            return [_parse(text, id) for id, text in rows.fetchall()]

    def statuses(self) -> dict[str, str]:
        """The status of every trial that has a row, without reading the rows."""
        with self._asking() as db:
            return dict(db.execute("SELECT id, status FROM outcomes ORDER BY place"))

    def unfinished(self) -> list[str]:
        """Trials with a folder and no row: running, interrupted, or not collected yet."""
        folders = {path.name for path in self.trials.glob("*") if ID.fullmatch(path.name)}
        return sorted(folders - self.statuses().keys())

    def collect(self) -> int:
        """Takes in what finished while no writer lived; how many came in.

        A damaged result file is moved aside, one that this Ordinate cannot read stays where it is:
        both are named in `refused`.
        """
        from ordinate.training.checkpoint import remove

        final = {id for id, status in self.statuses().items() if status != "lost"}
        taken = 0
        for file in sorted(self.trials.glob(f"*/{RESULT}")):
            if file.parent.name in final:
                continue
            try:
                outcome = _parse(file.read_bytes(), file.parent.name)
                if outcome.trial.id != file.parent.name:
                    raise ValueError(f"it is of trial {outcome.trial.id}")
            except Damage:
                aside = file.with_name(f"{RESULT}.damaged")
                with suppress(OSError):
                    file.replace(aside)
                self.refused[aside] = "damaged: its trial runs again when a plan asks for it"
            except (OSError, ValueError) as error:
                self.refused[file] = str(error)
            else:
                taken += self.add(outcome)
                # Whoever wrote it may have been killed before it got to this.
                with suppress(OSError):
                    remove(file.parent)
        return taken

    def keep_plan(self, plan: dict[str, Any]) -> str:
        """Keeps a plan under an id that its content decides; a repeated one becomes the newest."""
        id = _sum(json.dumps(plan, sort_keys=True))[:16]
        with self._asking(write=True) as db:
            new = "INSERT OR REPLACE INTO plans (id, body) VALUES (?, ?)"
            db.execute(new, (id, json.dumps(plan)))
        return id

    def plans(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Id, time and content of every plan, the newest last."""
        with self._asking() as db:
            rows = db.execute("SELECT id, time, body FROM plans ORDER BY place").fetchall()
        return [(id, time, json.loads(body)) for id, time, body in rows]

    def remove(self, ids: Iterable[str]) -> None:
        """Deletes trials, their folders first: one that is interrupted can be repeated."""
        gone = {id: self.folder_of(id) for id in ids}
        with self._asking(write=True) as db:
            for folder in filter(Path.exists, gone.values()):
                shutil.rmtree(folder)
            db.execute(f"DELETE FROM outcomes {AMONG}", (json.dumps([*gone]),))

    def folder_of(self, id: str) -> Path:
        """Where a trial's result and checkpoints are."""
        if not ID.fullmatch(id):
            raise ValueError(f"the id of a trial is 16 letters of 0-9 and a-f, got {id!r}")
        return self.trials / id

    def _begin(self, db: sqlite3.Connection) -> None:
        """Looks the database over, and makes it if it is not there."""
        db.execute("PRAGMA synchronous = FULL")
        if not self._begun(db):
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(SCHEMA)
        if (sound := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(sound)

    def _begun(self, db: sqlite3.Connection) -> bool:
        """Whether there is anything in it yet; another program's database is refused."""
        (whose,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if whose != OURS and db.execute("SELECT 1 FROM sqlite_schema").fetchone():
            raise ValueError(f"{self.records} is no database of runs: name another folder")
        if whose == OURS and version > FORMAT:
            newer = f"a newer Ordinate (format {version}; this one reads up to {FORMAT})"
            raise ValueError(f"{self.records} was written by {newer}: update Ordinate")
        return whose == OURS

    @contextmanager
    def _asking(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        if write and self._db is None:
            raise ValueError(f"{self.folder} is not open to be written: Store(…, writer=True)")
        none = ValueError(f"there are no runs in {self.folder}: run some, or name their folder")
        with _said(self.records), ExitStack() as opening:
            # A writer asks too: rows would go into a file that somebody deleted meanwhile.
            if not self.records.exists():
                raise none
            db = self._db or opening.enter_context(closing(self._reader()))
            if not self._begun(db):
                raise none
            yield db

    def _reader(self) -> sqlite3.Connection:
        # Where nobody can write there is no log to share; SQLite has to be told so.
        log = self.records.with_name(f"{RECORDS}-wal").exists()
        alone = "" if log or os.access(self.folder, os.W_OK) else "&immutable=1"
        where = f"{self.records.absolute().as_uri()}?mode=ro{alone}"
        return sqlite3.connect(where, WAIT, uri=True)


def write_result(trials: Path, outcome: Outcome) -> None:
    """For workers: ID/result.json in the `trials` of a store, whole or not at all."""
    from ordinate.training.checkpoint import replace

    path = trials / outcome.trial.id / RESULT
    with _said(path):
        replace(path, _text(outcome).encode())


class Damage(ValueError):
    """What is there is not what was written."""


def _text(outcome: Outcome) -> str:
    content = outcome.text()
    return f'{{"sha256": "{_sum(content)}", "outcome": {content}}}'


def _parse(text: str | bytes, id: str) -> Outcome:
    from ordinate.training.outcome import Outcome

    try:
        kept = json.loads(text)
        sound = _sum(json.dumps(kept["outcome"])) == kept["sha256"]
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise Damage(f"what is kept of trial {id} is damaged: delete it by ordinate runs rm {id}")
    try:
        return Outcome.model_validate(kept["outcome"])
    except ValueError as error:
        why = " ".join(str(error).splitlines()[:3])
        raise ValueError(f"trial {id} is of another Ordinate, to be updated to: {why}") from None


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


_locks: WeakSet[TextIO] = WeakSet()
if os.name == "posix":
    # A forked worker that outlives a killed writer must not keep its lock.
    os.register_at_fork(after_in_child=lambda: [file.close() for file in _locks])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a file with our pid in it, until we let go or this process ends, however it ends."""
    import fcntl

    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = f"process {file.read(20).strip()} is writing to {path.parent}"
            raise ValueError(f"{holder}: wait until it ends, or name another folder") from None
        file.truncate(0)
        print(os.getpid(), file=file, flush=True)
        _locks.add(file)
        yield


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """What a disk refuses is an OSError, damage a ValueError, either of them one sentence."""
    advice = "make room or name another folder; what is finished is kept"
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {advice}", error.filename or path) from error
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_ERROR" or isinstance(error, OUR_MISTAKES):
            raise
        if isinstance(error, sqlite3.OperationalError) and name:
            number = errno.ENOSPC if name == "SQLITE_FULL" else errno.EIO
            raise OSError(number, f"{error}: {advice}", path) from error
        what = f"{path} is damaged ({' '.join(str(error).split())}): nothing was deleted"
        again = f"move {RECORDS}* away, and the next run starts from {TRIALS}/*/{RESULT}"
        raise ValueError(f"{what}; {again}") from error
