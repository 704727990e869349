"""Locks on folders, so that one run at a time writes into each."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from excess._core.interrupts import removed_at_exit

__all__ = ["LOCK", "locked"]

LOCK = ".lock"
"""File that holds the lock of a folder while a run writes into it."""

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def locked(folder: Path, name: str = LOCK, patience: float = 0.0) -> Iterator[None]:
    """Keep a folder to one run, or wait some seconds for another one; the system unlocks it however a run ends.

    The file of the lock is removed at the end. A file system without locks is used without them. Work of several kinds
    in one folder has a lock of each kind: pages are written while trials are run.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess._core.locks import locked
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder)):
    ...     with locked(Path(folder)):
    ...         pass
    Traceback (most recent call last):
        ...
    ValueError: ...: another run is writing into this folder; wait for it to end, or give another folder
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, until = folder / name, time.monotonic() + patience
    while True:
        with path.open("a") as file:
            try:
                _lock(file)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    if time.monotonic() >= until:
                        raise ValueError(
                            f"{folder}: another run is writing into this folder; wait for it to end, or give another "
                            "folder"
                        ) from error
                    time.sleep(0.1)
                    continue
            if not _is_at(file, path):  # the run that held the lock has removed its file
                continue
            try:
                with removed_at_exit(str(path)):
                    yield
            finally:
                with suppress(OSError):  # Windows keeps files that are open
                    path.unlink()
            return


def _is_at(file: Any, path: Path) -> bool:
    """Say whether an open file is the one that a path names."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: Any) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
