"""Processes that never outlive the one that started them, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator


class Child:
    """`python -m ...`, which says lines on stdout and ends when its stdin is closed.

    The kernel closes it when this process dies, be it by `kill -9`. Ctrl-C in the terminal reaches
    this process alone. What a child complains of is kept, for `complaint`.
    """

    def __init__(self, *words: str) -> None:
        with tempfile.TemporaryFile() as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                start_new_session=True, env=_environment(),
            )  # fmt: skip
            self.stderr = os.dup(stderr.fileno())
            weakref.finalize(self, os.close, self.stderr)

    def lines(self) -> Iterator[str]:
        """What it says, until all that hold its stdout have ended."""
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                yield line.decode(errors="replace").rstrip("\n")

    def let_go(self) -> None:
        """Closes its stdin, upon which it ends, and those that it started."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> None:
        """Ends it at once."""
        self.let_go()
        self.process.kill()
        self.process.wait()

    def errors(self) -> str:
        """The end of what it wrote on stderr."""
        size = os.fstat(self.stderr).st_size
        return os.pread(self.stderr, 65536, max(0, size - 65536)).decode(errors="replace")

    def complaint(self) -> str:
        """The last line on its stderr, or how it ended."""
        code = self.process.wait()
        lines = [line.strip() for line in self.errors().split("\n") if line.strip()]
        return lines[-1] if lines else f"signal {-code}" if code < 0 else f"exit code {code}"


def _environment() -> dict[str, str]:
    # It finds modules where this process does, and not in the current folder: `python -m` would
    # take a random.py there for Python's.
    path = os.pathsep.join(filter(None, sys.path))
    return {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def bound() -> None:
    """In a child: ends this process when its stdin is closed."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def private() -> int:
    """In a child: a file descriptor for its lines; what else is printed goes to stderr."""
    own = os.dup(1)
    os.dup2(2, 1)
    return own


def tell(own: int, line: str) -> None:
    """A line, whole even where several processes share the pipe (up to 4096 bytes)."""
    os.write(own, f"{line}\n".encode())
