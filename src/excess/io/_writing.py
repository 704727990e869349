"""Atomic writing of tables of events to files."""

import os
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import pandas as pd

from excess._utils.errors import EventFileError, wrap_errors
from excess._utils.files import replacing
from excess.io._csv import CsvFile
from excess.io._ctapipe import CtapipeCopy
from excess.io._fact import FactFile
from excess.io._files import CopySink, FileCopy
from excess.io._fits import FitsCopy
from excess.io._lstchain import LstchainCopy
from excess.io._parquet import ParquetFile
from excess.io._reading import recognise


class Sink(Protocol):
    """An open file that accepts chunks; created from its path and the first chunk."""

    def append(self, chunk: pd.DataFrame) -> None: ...

    def close(self) -> None: ...


class CopyFormat(NamedTuple):
    """Method to add columns to a copy of a file."""

    open: Callable[..., Sink]
    suffixes: tuple[str, ...]  # of a copy, in addition to that of the file itself
    keys: tuple[str, ...] = ()  # columns of the file required in chunks in addition to the new ones
    selects: bool = False  # whether events can be excluded


AnyPath = str | os.PathLike[str]
NewFile = Callable[[Path, pd.DataFrame], Sink]
NEW_FILES: dict[str, NewFile] = {"FACT HDF5": FactFile, "Parquet": ParquetFile, "CSV": CsvFile}
SUFFIXES = {".hdf5": "FACT HDF5", ".h5": "FACT HDF5", ".parquet": "Parquet", ".csv": "CSV"}  # formats of new files
_EVENT, _HDF5 = ("obs_id", "event_id"), (".h5", ".hdf5")
COPIES = {
    "FACT HDF5": CopyFormat(FactFile, _HDF5),
    **dict.fromkeys(("ctapipe HDF5 DL2", "ctapipe HDF5 DL1"), CopyFormat(CtapipeCopy, _HDF5, keys=_EVENT)),
    **dict.fromkeys(("lstchain HDF5 DL2", "lstchain HDF5 DL1"), CopyFormat(LstchainCopy, _HDF5, keys=_EVENT)),
    "FITS event list": CopyFormat(FitsCopy, (".fits", ".fit", ".fts", ".gz"), selects=True),
}


def new_format(path: Path) -> str:
    """Return the format of a new file, a key of NEW_FILES."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: the suffix must be .hdf5 (or .h5), .parquet or .csv, got {suffix!r}")
    return SUFFIXES[suffix]


def copy_format(source_format: str, source: Path, target: Path) -> CopyFormat | None:
    """Return the method to add columns to a copy of a file, None if a file of that name is newly written."""
    found = COPIES.get(source_format)
    return found if found and target.suffix.lower() in (*found.suffixes, source.suffix.lower()) else None


class EventWriter:
    """Writer of a table of events in chunks; the file appears when it is complete."""

    def __init__(self, path: AnyPath, *, copy_of: FileCopy | AnyPath | None = None, format: str | None = None) -> None:
        self.path = Path(path)
        self._make_sink: NewFile
        if copy_of is None:
            self._make_sink = NEW_FILES[format or new_format(self.path)]
        else:
            copy = copy_of if isinstance(copy_of, FileCopy) else FileCopy(copy_of)
            found = copy_format(recognise(copy.path), copy.path, self.path)
            if found is None:
                only = f"columns can be added to a copy in the format of {copy.path} only, FITS or HDF5"
                raise ValueError(f"{self.path}: {only}; use the same suffix")
            self._make_sink = partial(found.open, copy=copy)
        self._sink: Sink | None = None
        self._temporary: Path | None = None
        self._first: pd.DataFrame | None = None
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        """Create the temporary file, so a folder without write permission is an error at the start."""
        if self.path.is_dir():
            raise EventFileError(f"{self.path}: is a folder; pass the name of a file")
        with wrap_errors(self.path, "writing"):
            # The target of a symbolic link is replaced, not the link.
            self._temporary = self._exits.enter_context(replacing(Path(os.path.realpath(self.path))))
        self._exits.push(self._close)
        return self

    def append(self, chunk: pd.DataFrame) -> None:
        """Write the rows of a table; its index is not written."""
        if self._temporary is None:
            raise ValueError(f"{self.path}: append inside a with statement: with EventWriter(path) as writer: ...")
        if self._first is None:
            _check_names(chunk, self.path)
            chunk = _plain(chunk)
            with wrap_errors(self.path, "writing"):
                self._sink = self._make_sink(self._temporary, chunk)
            self._first = chunk.iloc[:0].copy()
        else:
            chunk = _conform(_plain(chunk), self._first, self.path)
        assert self._sink is not None
        with wrap_errors(self.path, "writing"):
            self._sink.append(chunk)

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        """Rename the temporary file, or remove it after an exception."""
        with wrap_errors(self.path, "writing") if kind is None else nullcontext():
            self._exits.__exit__(kind, *error)

    def _close(self, kind: type[BaseException] | None, *_: Any) -> None:
        sink, self._sink, self._temporary, self._first = self._sink, None, None, None
        if kind is None:
            if sink is None:
                raise EventFileError(f"{self.path}: no table was appended; append at least one, with rows or without")
            sink.close()
        elif sink is not None and not isinstance(sink, CopySink):  # nothing written yet
            with suppress(Exception):  # the file is removed, so errors on closing are irrelevant
                sink.close()


def write_events(table: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a table of events to a file, which appears when it is complete.

    Parameters
    ----------
    table : DataFrame
        Events; the index is not written.
    path : path-like
        Path of the file; its suffix defines the format: ``.hdf5`` or ``.h5`` (FACT's layout), ``.parquet`` or ``.csv``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from excess.io import read_events, write_events
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "events.csv")
    ...     write_events(pd.DataFrame({"event_num": [1, 2], "width": [5.5, 0.1]}), path)
    ...     read_events(path)
       event_num  width
    0          1    5.5
    1          2    0.1
    """
    with EventWriter(path) as writer:
        writer.append(table)


def _check_names(table: pd.DataFrame, path: Path) -> None:
    if not len(table.columns):
        raise ValueError(f"{path}: a table without columns cannot be written")
    for name in table.columns:
        if not isinstance(name, str) or not name or "/" in name or name == ".":
            raise ValueError(f"{path}: {name!r} cannot name a column; use text without '/'")
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()][0]
        raise ValueError(f"{path}: two columns have the name {twice!r}")


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without index and attributes, which no format stores."""
    plain = table.reset_index(drop=True)
    plain.attrs = {}
    return plain


def _conform(chunk: pd.DataFrame, first: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a chunk in the column order and dtypes of the first one; values that would change are an error."""
    if set(chunk.columns) != set(first.columns) or len(chunk.columns) != len(first.columns):
        other = sorted(set(map(str, chunk.columns)) ^ set(first.columns))
        raise ValueError(f"{path}: a chunk has other columns than the first one: {', '.join(other[:5])}")
    chunk = chunk[list(first.columns)]
    for name in first.columns:
        if chunk[name].dtype == first[name].dtype:
            continue
        try:
            converted = chunk[name].astype(first[name].dtype)
            exact = bool(((converted == chunk[name]) | (converted.isna() & chunk[name].isna())).all())
        except (TypeError, ValueError):
            exact = False
        if not exact:
            change = f"changes from {first[name].dtype} to {chunk[name].dtype} between chunks"
            raise ValueError(f"{path}: column {name!r} {change}; convert it before writing")
        chunk = chunk.assign(**{name: converted})
    return chunk
