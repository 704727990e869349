"""How much an event file may hold, so that a small or damaged one does not take all memory or never ends."""

from __future__ import annotations

import gzip
from errno import ENOSPC
from pathlib import Path
from tempfile import gettempdir
from typing import BinaryIO

from excess._core.errors import EventFileError

__all__ = ["MOST_COLUMNS", "check_columns", "check_expansion", "decompress", "largest_expansion"]

MOST_COLUMNS = 10_000
"""Columns of an event file."""
LARGEST_RATIO = 100
"""Times that the events of a file may be larger than the file; numbers are seldom compressed to a tenth."""
ALWAYS_ALLOWED = 256 << 20
"""Bytes of events that any file may hold, however small it is: columns that are constant need next to nothing."""

_PIECE = 1 << 20


def largest_expansion(path: Path) -> int:
    """Return how many bytes of events a file may hold."""
    return max(ALWAYS_ALLOWED, LARGEST_RATIO * path.stat().st_size)


def check_expansion(path: Path, n_bytes: int) -> None:
    """Raise EventFileError if a file says that it holds far more events than fit into it."""
    if n_bytes > largest_expansion(path):
        raise expansion_error(path, f"{n_bytes / 2**20:,.0f} MiB")


def expansion_error(path: Path, size: str) -> EventFileError:
    """Return the error about a file that holds too much for its size."""
    most = f"{LARGEST_RATIO} times its size and {ALWAYS_ALLOWED >> 20} MiB"
    return EventFileError(
        f"{path}: holds {size} of events in a file of {path.stat().st_size / 2**20:,.1f} MiB; more than {most} are not "
        "read; if it is not damaged, write it again without compression"
    )


def decompress(path: Path, target: BinaryIO) -> None:
    """Write what a gzip file holds to another file, from its beginning; EventFileError as soon as it is too much."""
    left = largest_expansion(path)
    with gzip.open(path) as file:
        while piece := file.read(_PIECE):
            left -= len(piece)
            if left < 0:
                raise expansion_error(path, f"more than {largest_expansion(path) >> 20:,} MiB")
            try:
                target.write(piece)
            except OSError as error:
                if error.errno != ENOSPC:
                    raise
                raise EventFileError(
                    f"{path}: there is no space to decompress it in {gettempdir()}; name another folder by the "
                    "environment variable TMPDIR, or decompress the file yourself"
                ) from error
    target.flush()
    target.seek(0)


def check_columns(path: Path, n_columns: int) -> None:
    """Raise EventFileError if a file has too many columns."""
    if n_columns > MOST_COLUMNS:
        raise EventFileError(f"{path}: has {n_columns:,} columns; {MOST_COLUMNS:,} are the most")
