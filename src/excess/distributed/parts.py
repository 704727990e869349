"""Parts: the events of a fit in portions, as records of codes or with their scores, in memory or in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.estimators._forest.bags import WHOLE, Bag
from excess.estimators._forest.layout import ON_BIT, as_codes

BLOCK_ROWS = 1 << 17
"""Rows of a part."""
_GROUPS, _WEIGHTS = "groups", "weights"
"""Files beside that of the records."""


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view of an array that cannot be written.

    Arrays from another process are read-only, and Numba compiles a kernel once for these and once for others. With
    read-only views of all arrays, kernels are compiled once.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def record_bytes(n_features: int) -> int:
    """Return the size of a record: a byte per feature and one for the label, in whole words of eight bytes."""
    return 8 * -(-(n_features + 1) // 8)


@dataclass(frozen=True)
class EventRecords:
    """Events as records of codes.

    Byte ``j`` of a record is the code of feature ``j``: 0 for a missing value, otherwise 1 plus the number of the bin.
    The next byte has the label in its highest bit; its other bits are for the bootstrap weight, which is 0 here and is
    set by ``take_nodes`` in the copy for a tree. The rest of the last word is not used.
    """

    records: NDArray[np.uint64]  # of shape (n_events, n_words)
    first_row: int  # number of the first event among all events, by which bootstrap weights are drawn
    n_features: int
    bag: Bag = WHOLE  # groups and weights of the events, if they have any

    def __post_init__(self) -> None:
        """Make the records read-only."""
        object.__setattr__(self, "records", read_only(self.records))

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The records as codes."""
        return as_codes(self.records, np.uint8)

    @property
    def on(self) -> BoolArray:
        """Whether each event is On."""
        return (self.codes[:, self.n_features] >> ON_BIT).astype(np.bool_)


@dataclass(frozen=True)
class ScoredPart:
    """Events with their out-of-bag scores."""

    on: BoolArray  # whether each event is On
    score: FloatArray  # NaN for events in the bags of all trees
    first_row: int  # number of the first event among all events
    weights: FloatArray | None = None  # events that each one stands for; None for one each


class Part(Protocol):
    """A portion of the events, which is loaded when it is needed."""

    def load(self) -> Any:
        """Return the events."""


@dataclass(frozen=True)
class InMemory:
    """A part in memory."""

    value: Any

    def load(self) -> Any:
        """Return the events."""
        return self.value


@dataclass(frozen=True)
class InFile:
    """A part in a file of records. It is read, not mapped, so that it takes no memory when it is not in use."""

    path: Path
    first_row: int
    n_rows: int
    n_features: int
    n_groups: int = 0  # 0 where events have no groups
    has_weights: bool = False

    def load(self) -> EventRecords:
        """Return the events."""
        n_bytes = record_bytes(self.n_features)
        size = self.n_rows * n_bytes // 8
        records = np.fromfile(self.path, dtype=np.uint64, count=size, offset=self.first_row * n_bytes)
        if len(records) != size:
            raise OSError(f"{self.path}: the file of binned events was cut short while it was in use")
        groups = self._load_column(_GROUPS, np.int32) if self.n_groups > 0 else None
        weights = self._load_column(_WEIGHTS, np.float64) if self.has_weights else None
        bag = Bag(groups, self.n_groups, weights)
        return EventRecords(records.reshape(self.n_rows, -1), self.first_row, self.n_features, bag)

    def _load_column(self, name: str, dtype: Any) -> NDArray[Any]:
        """Return a number of each event from a file beside that of the records."""
        path = self.path.with_name(name)
        offset = np.dtype(dtype).itemsize * self.first_row
        found = np.fromfile(path, dtype=dtype, count=self.n_rows, offset=offset)
        if len(found) != self.n_rows:
            raise OSError(f"{path}: the file of {name} was cut short while it was in use")
        return found


class RecordStore:
    """Records that are appended in order and returned as parts; a context manager that removes its temporary file.

    Records that need more than a sixteenth of the ``memory`` of the fit (bytes) go to the file.
    """

    def __init__(
        self, n_rows: int, n_features: int, memory: int, n_groups: int = 0, *, has_weights: bool = False
    ) -> None:
        self._n_rows, self._n_features, self._n_groups, self._has_weights = 0, n_features, n_groups, has_weights
        self._blocks: list[Part] = []
        self._path: Path | None = None
        n_bytes = n_rows * (record_bytes(n_features) + (4 if n_groups > 0 else 0) + (8 if has_weights else 0))
        if n_bytes <= memory // 16:
            return
        self._folder = TemporaryDirectory(prefix="excess-")
        free = disk_usage(self._folder.name).free
        if free < n_bytes:
            self._folder.cleanup()
            raise OSError(
                f"{Path(self._folder.name).parent}: binned events take {n_bytes / 1e9:.2f} GB, {free / 1e9:.2f} GB are "
                "free; set TMPDIR to a folder with more room"
            )
        self._path = Path(self._folder.name) / "records"

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the file."""
        if self._path is not None:
            self._folder.cleanup()

    def append(self, records: NDArray[np.uint64], bag: Bag = WHOLE) -> None:
        """Add records, with their groups and weights if the store has any, after those that are there."""
        if self._path is None:
            for start in range(0, len(records), BLOCK_ROWS):
                rows = slice(start, start + BLOCK_ROWS)
                first = self._n_rows + start
                self._blocks.append(InMemory(EventRecords(records[rows], first, self._n_features, bag.part(rows))))
        else:
            try:
                with self._path.open("ab") as file:
                    records.tofile(file)
                for name, column in ((_GROUPS, bag.groups), (_WEIGHTS, bag.weights)):
                    if column is not None:
                        with self._path.with_name(name).open("ab") as file:
                            column.tofile(file)
            except OSError as error:
                raise OSError(
                    f"{self._path.parent.parent}: the binned events cannot be written ({error}); is there room? TMPDIR "
                    "names another folder"
                ) from error
        self._n_rows += len(records)

    def parts(self) -> list[Part]:
        """Return all records as parts."""
        if self._path is None:
            return self._blocks
        options = self._n_features, self._n_groups, self._has_weights
        return [
            InFile(self._path, row, min(BLOCK_ROWS, self._n_rows - row), *options)
            for row in range(0, self._n_rows, BLOCK_ROWS)
        ]
