"""Parts: events where they are kept for a fit, as records of codes or with their scores, in memory or in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.estimators._forest.layout import ON_BIT, as_codes

__all__ = ["Binned", "InFile", "InMemory", "Part", "RecordFile", "Scored", "frozen"]

BLOCK_ROWS = 1 << 17
"""Rows of a part that is read from a file at a time."""


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that is only to be read, as those are that come from another process.

    Numba compiles anew for arrays that may be written; so that it need not, all are treated alike.
    """
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class Binned:
    """Events as records of codes.

    Attributes
    ----------
    records : ndarray of uint64 of shape (n_events, n_words)
        Codes and label, a byte each; see ``_forest.layout``.
    first_row : int
        Number of the first of them among all events.
    n_features : int
        Number of features.
    """

    records: NDArray[np.uint64]
    first_row: int
    n_features: int

    def __post_init__(self) -> None:
        """See to it that kernels are compiled once, for arrays that are only read."""
        object.__setattr__(self, "records", frozen(self.records))

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The records as codes."""
        return as_codes(self.records, np.uint8)

    @property
    def on(self) -> BoolArray:
        """Who is On."""
        return (self.codes[:, self.n_features] >> ON_BIT).astype(np.bool_)


@dataclass(frozen=True)
class Scored:
    """Events with their out-of-bag scores.

    Attributes
    ----------
    on : ndarray of bool
        Who is On.
    score : ndarray
        Scores; NaN for none.
    first_row : int
        Number of the first of them among all events.
    """

    on: BoolArray
    score: FloatArray
    first_row: int


class Part(Protocol):
    """Where some events are."""

    def load(self) -> Any:
        """Return them."""


@dataclass(frozen=True)
class InMemory:
    """Events in memory."""

    value: Any

    def load(self) -> Any:
        """Return them."""
        return self.value


@dataclass(frozen=True)
class InFile:
    """Records in a file; they are read, not mapped, so that they take no memory when they are not in use."""

    path: Path
    offset: int
    n_rows: int
    n_words: int
    first_row: int
    n_features: int

    def load(self) -> Binned:
        """Return them."""
        size = self.n_rows * self.n_words
        records = np.fromfile(self.path, dtype=np.uint64, count=size, offset=self.offset)
        if len(records) != size:
            raise OSError(f"{self.path}: the file of binned events was cut short while it was in use")
        return Binned(records.reshape(self.n_rows, self.n_words), self.first_row, self.n_features)


class RecordFile:
    """A file that takes records in order and gives them back as parts of equal size.

    Parameters
    ----------
    path : Path or None
        The file; None keeps records in memory.
    n_features : int
        Number of features.
    """

    def __init__(self, path: Path | None, n_features: int) -> None:
        self._path, self._n_features = path, n_features
        self._file = None if path is None else path.open("wb")
        self._kept: list[NDArray[np.uint64]] = []
        self._n_rows = self._n_words = 0

    def append(self, records: NDArray[np.uint64]) -> None:
        """Add records after those that are there."""
        if self._file is None:
            self._kept.append(records)
        else:
            try:
                records.tofile(self._file)
                self._file.flush()
            except OSError as error:
                assert self._path is not None
                raise OSError(
                    f"{self._path.parent.parent}: the binned events cannot be written ({error}); is there room? TMPDIR "
                    "names another folder"
                ) from error
        self._n_rows += len(records)
        self._n_words = records.shape[1]

    def parts(self) -> list[Part]:
        """Return all records as parts; none can be added any more."""
        if self._file is None:
            return self._parts_in_memory()
        assert self._path is not None
        self._file.close()
        n, words = self._n_rows, self._n_words
        return [
            InFile(self._path, 8 * words * row, min(BLOCK_ROWS, n - row), words, row, self._n_features)
            for row in range(0, n, BLOCK_ROWS)
        ]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _parts_in_memory(self) -> list[Part]:
        parts: list[Part] = []
        row = 0
        for records in self._kept:
            for start in range(0, len(records), BLOCK_ROWS):
                block = records[start : start + BLOCK_ROWS]
                parts.append(InMemory(Binned(block, row, self._n_features)))
                row += len(block)
        return parts
