"""Lines of a text file, of bounded length: a parser keeps a line in memory until it ends."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from excess._core.errors import EventFileError

__all__ = ["open_lines"]

LONGEST_LINE = 4 << 20
"""Bytes of a line, roughly: a row of 10,000 columns has a few hundred thousand."""
_PIECE = 1 << 18


class _Lines(io.RawIOBase):
    """A file that raises EventFileError when a line does not end, or has too many values."""

    def __init__(self, path: Path, file: Any, most_values: int | None) -> None:
        self._path, self._file, self._most_values = path, file, most_values
        self._since_end = 0  # of the last line
        self._in_quotes = False
        self._n_lines, self._n_commas = 0, 0  # before this piece, and in the line that goes on in it

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._file.read(min(len(buffer), _PIECE))
        self._follow(piece)
        if self._most_values is not None:
            self._count_values(piece, self._most_values)
        buffer[: len(piece)] = piece
        return len(piece)

    def _follow(self, piece: bytes) -> None:
        """Count the bytes since a line has ended; a line goes on inside of quotes."""
        end = self._last_end(piece) if b'"' in piece or self._in_quotes else max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        self._since_end = self._since_end + len(piece) if end < 0 else len(piece) - end - 1
        if self._since_end > LONGEST_LINE:
            raise EventFileError(
                f"{self._path}: has a line of more than {LONGEST_LINE >> 20} MiB, or a quote that is not closed; is it "
                "a table of events?"
            )

    def _count_values(self, piece: bytes, most: int) -> None:
        """Look for a line with more values than there are columns, up to the first quote in the file."""
        if b'"' in piece:
            self._most_values = None  # commas may be parts of texts from here on
            return
        letters = np.frombuffer(piece, dtype=np.uint8)
        ends = np.flatnonzero(letters == ord("\n"))
        before = np.cumsum(letters == ord(","))[ends] + self._n_commas
        too_many = np.diff(before, prepend=0) >= most
        if too_many.any():
            line = self._n_lines + int(too_many.argmax()) + 1
            raise EventFileError(f"{self._path}: reading CSV failed: line {line} has more values than {most} columns")
        self._n_lines += len(ends)
        self._n_commas = piece.count(b",", int(ends[-1])) if len(ends) else self._n_commas + piece.count(b",")

    def _last_end(self, piece: bytes) -> int:
        """Return where the last line ends that does so outside of quotes; -1 if there is none."""
        outside, end, start = not self._in_quotes, -1, 0
        for part in piece.split(b'"'):
            if outside and (found := max(part.rfind(b"\n"), part.rfind(b"\r"))) >= 0:
                end = start + found
            start += len(part) + 1
            outside = not outside
        # every quote but the one that is not there behind the last part
        self._in_quotes = outside
        return end


@contextmanager
def open_lines(path: Path, most_values: int | None = None) -> Iterator[Any]:
    """Open a text file for a parser; EventFileError where a line does not end, or has more values than it may."""
    with path.open("rb") as file, io.BufferedReader(_Lines(path, file, most_values), _PIECE) as lines:
        yield lines
