"""Notes of which file is being read, for a second process that names the file when this one crashes or hangs.

A library in C may crash at a damaged file, or never return from it, and then no code of Python runs any more, neither
to say what happened nor in another thread. So the command line starts a small process, `watching`, and tells it through
a pipe which files are being read. When the pipe ends while there are some, or nothing is said for long, it says which.
Without `start_watch`, as in a library, notes go nowhere and cost nothing.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

__all__ = ["noted", "start_watch"]

LONGEST_NAME = 1000
"""Bytes of a path in a note: notes are short, so that each is written at once."""

SECONDS = 60.0
"""How long a file may be read before it is said which one that is."""

_watch: list[Watch] = []


class Watch:
    """The process that is told which files are being read; it is started with the first of them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = False

    def tell(self, sign: str, path: str) -> None:
        """Say that a file is being read (+), or is not any more (-)."""
        if self._failed or os.getpid() != self._owner:  # a fork has the pipe, but not the process
            return
        name = path.encode("utf-8", "surrogateescape").replace(b"\n", b" ")[-LONGEST_NAME:]
        # a watch that cannot be started, or has been ended, is no reason not to read
        try:
            if self._process is None:
                self._process = self._start()
                atexit.register(self.end)
            assert self._process.stdin is not None
            os.write(self._process.stdin.fileno(), sign.encode() + name + b"\n")
        except (OSError, ValueError):
            self._failed = True

    def end(self) -> None:
        """End the process; it has nothing to say."""
        if self._process is None or os.getpid() != self._owner:
            return
        with suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        import subprocess  # which `excess --help` does not need

        # a session of its own, so that Ctrl-C does not end it; isolated and without site packages, which is quick
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("watching.py")), str(self._seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)  # nobody waits for the watch
        return process


def start_watch(seconds: float = SECONDS) -> None:
    """From now on, let a process beside this one say which file was being read, if this one cannot.

    Parameters
    ----------
    seconds : float, default=60
        How long a file may be read before it is said which one that is.
    """
    if os.name == "posix" and not _watch:
        _watch.append(Watch(seconds))


@contextmanager
def noted(path: str | Path) -> Iterator[None]:
    """Note that a file is being read inside the block.

    Examples
    --------
    >>> from excess._core.reading_watch import noted
    >>> with noted("crab.hdf5"):
    ...     pass  # a library reads the file
    """
    if not _watch:
        yield
        return
    _watch[0].tell("+", str(path))
    try:
        yield
    finally:
        _watch[0].tell("-", str(path))
