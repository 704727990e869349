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
_SPACES = 64
"""Spaces in front of a quote, at the end of a piece, behind which it is still seen where the value starts."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SEPARATES = np.isin(np.arange(256), list(b",\n\r"))
"""Whether a letter stands between values."""


class _Lines(io.RawIOBase):
    """A file that raises EventFileError when a line does not end, or has too many values."""

    def __init__(self, path: Path, file: Any, most_values: int | None) -> None:
        self._path, self._file, self._most_values = path, file, most_values
        self._since_end = 0  # of the last line
        self._in_quotes = False
        self._last = b""  # letter before this piece that is no space; none at the start of the file
        self._n_ends = {b"\n": 0, b"\r": 0}  # before this piece
        self._n_commas = 0  # of the line that goes on in this piece

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._file.read(min(len(buffer), _PIECE))
        outside = self._without_texts(piece) if b'"' in piece or self._in_quotes else piece
        self._last = piece[-_SPACES:].rstrip(b" ")[-1:] or self._last
        self._follow(outside)
        if self._most_values is not None:
            self._count_values(piece, outside, self._most_values)
        buffer[: len(piece)] = piece
        return len(piece)

    def _without_texts(self, piece: bytes) -> bytes:
        """Return a piece with zeros in the place of texts inside of quotes, where commas and line ends are letters."""
        if not self._last and piece.startswith(_BYTE_ORDER_MARK):
            piece = piece.replace(_BYTE_ORDER_MARK, b" " * len(_BYTE_ORDER_MARK), 1)
        letters = np.frombuffer((self._last or b"\n") + piece, dtype=np.uint8)
        quotes = letters == ord('"')
        quotes[0] = False  # counted with the piece before
        inside = (np.cumsum(quotes, dtype=np.uint8) & 1).astype(np.bool_) ^ self._in_quotes  # odd numbers stay odd
        # A quote opens a text at the start of a value, behind spaces or not, or goes on with it right behind another
        # quote. For pandas, one in the midst of a value is a letter: which commas are in texts is not known from there.
        opening = np.flatnonzero(quotes & inside)
        before = opening - 1
        goes_on = letters[before] == ord('"')
        while (spaces := letters[before] == ord(" ")).any():
            before = before - spaces
        if not (goes_on | _SEPARATES[letters[before]]).all():
            self._most_values = None
        self._in_quotes = bool(inside[-1])
        return np.where(inside, np.uint8(0), letters)[1:].tobytes()

    def _follow(self, outside: bytes) -> None:
        """Count the bytes since a line has ended."""
        end = max(outside.rfind(b"\n"), outside.rfind(b"\r"))
        self._since_end = self._since_end + len(outside) if end < 0 else len(outside) - end - 1
        if self._since_end > LONGEST_LINE:
            raise EventFileError(
                f"{self._path}: has a line of more than {LONGEST_LINE >> 20} MiB, or a quote that is not closed; is it "
                "a table of events?"
            )

    def _count_values(self, piece: bytes, outside: bytes, most: int) -> None:
        """Look for a line with more values than there are columns; an empty piece is the end of the last line."""
        letters = np.frombuffer(outside or b"\n", dtype=np.uint8)
        is_end = letters == ord("\n")
        if b"\r" in outside:
            is_end |= letters == ord("\r")
        ends = np.flatnonzero(is_end)
        before = np.searchsorted(np.flatnonzero(letters == ord(",")), ends) + self._n_commas
        too_many = np.diff(before, prepend=0) >= most
        if too_many.any():
            end = int(ends[too_many.argmax()])
            line = max(number + piece.count(kind, 0, end) for kind, number in self._n_ends.items()) + 1
            raise EventFileError(f"{self._path}: reading CSV failed: line {line} has more values than {most} columns")
        for kind in self._n_ends:
            self._n_ends[kind] += piece.count(kind)
        self._n_commas = outside.count(b",", int(ends[-1])) if len(ends) else self._n_commas + outside.count(b",")


@contextmanager
def open_lines(path: Path, most_values: int | None = None) -> Iterator[Any]:
    """Open a text file for a parser; EventFileError where a line does not end, or has more values than it may."""
    with path.open("rb") as file, io.BufferedReader(_Lines(path, file, most_values), _PIECE) as lines:
        yield lines
