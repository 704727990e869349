"""Writing tables of events to files: either the complete file is written, or none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._core.errors import EventFileError, require, wrap_errors
from excess._core.files import replacing
from excess._core.interrupts import defer_interrupts
from excess.events._error_keeping_file import ErrorKeepingFile
from excess.events._fact import GROUP, count
from excess.events._hdf5 import CHUNK_CACHE

__all__ = ["EventWriter", "write_events"]

LARGEST_CHUNK = 16384
SMALLEST_CHUNK = 1024


class EventWriter:
    """Writes a table of events chunk by chunk; the file appears when it is complete.

    The format follows from the suffix: ``.hdf5`` or ``.h5`` (FACT's layout), ``.parquet`` or ``.csv``. Chunks go
    to a temporary file in the same folder, which takes the name when the context ends. If it ends with an
    exception, the temporary file is removed and an older file of that name stays as it was.

    Parameters
    ----------
    path : path-like
        The file to write.
    copy_of : path-like or None, default=None
        Begin with a copy of a file in FACT's layout and add columns to it. Chunks then have only the new columns, for
        as many rows as the file has. All content of the file stays: a column of the same name is an error.

    See Also
    --------
    write_events : Writes one table.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from excess.events import EventWriter, describe
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "scores.csv")
    ...     with EventWriter(path) as writer:
    ...         for start in (0, 2):
    ...             writer.append(pd.DataFrame({"event_num": [start, start + 1], "score": [0.5, 0.25]}))
    ...     describe(path).n_events
    4
    """

    def __init__(self, path: str | os.PathLike[str], *, copy_of: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path)
        suffix = self.path.suffix.lower()
        if suffix not in _SINKS:
            raise ValueError(f"{self.path}: the suffix must be .hdf5 (or .h5), .parquet or .csv, got {suffix!r}")
        self._make_sink = _SINKS[suffix]
        if copy_of is not None:
            if self._make_sink is not _Hdf5Sink:
                raise ValueError(f"{self.path}: columns can be added to a copy in FACT's HDF5 layout only")
            self._make_sink = partial(_Hdf5Sink, copy_of=Path(copy_of))
        self._sink: _Sink | None = None
        self._temporary: Path | None = None
        self._first: pd.DataFrame | None = None
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        """Create the temporary file, so that a folder without write permission is an error at the start."""
        if self.path.is_dir():
            raise EventFileError(f"{self.path}: is a folder; name a file in it")
        with wrap_errors(self.path, "writing"):
            # The target of a symbolic link is replaced, not the link.
            self._temporary = self._exits.enter_context(replacing(Path(os.path.realpath(self.path))))
        self._exits.push(self._close)
        return self

    def append(self, chunk: pd.DataFrame) -> None:
        """Write the rows of a table; its index is not written.

        Parameters
        ----------
        chunk : DataFrame
            Rows with the columns of the first chunk, of the same types.
        """
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the file its name, or remove it after an exception."""
        with wrap_errors(self.path, "writing") if kind is None else nullcontext():
            self._exits.__exit__(kind, error, traceback)

    def _close(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sink, self._sink, self._temporary, self._first = self._sink, None, None, None
        if kind is None and sink is None:
            raise EventFileError(f"{self.path}: no table was appended; append at least one, with rows or without")
        if sink is not None:
            # After an exception the file is removed, so a failure to complete it does not matter.
            with nullcontext() if kind is None else suppress(Exception):
                sink.close()


def write_events(table: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a table of events to a file, which appears when it is complete.

    Parameters
    ----------
    table : DataFrame
        The events; the index is not written.
    path : path-like
        The file; its suffix says the format: ``.hdf5`` or ``.h5`` (FACT's layout), ``.parquet`` or ``.csv``.

    See Also
    --------
    EventWriter : Writes chunk by chunk.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from excess.events import read_events, write_events
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


class _Sink(Protocol):
    """An open file that takes chunks; made from its path and the first chunk."""

    def append(self, chunk: pd.DataFrame) -> None: ...

    def close(self) -> None: ...


class _Hdf5Sink:
    """FACT's layout: one resizable dataset per column in the group ``events``.

    The HDF5 library writes through a Python file object, and may end the process after an exception in it. So
    interrupts are deferred until the library returns.
    """

    def __init__(self, path: Path, first: pd.DataFrame, copy_of: Path | None = None) -> None:
        self._n_wanted: int | None = None
        if copy_of is not None:
            self._n_wanted = count(copy_of)
            shutil.copyfile(copy_of, path)
        self._path = path if copy_of is None else copy_of
        self._open(path, first)

    @defer_interrupts()
    def _open(self, path: Path, first: pd.DataFrame) -> None:
        h5py = require("h5py", "writing HDF5")
        adds = self._n_wanted is not None
        self._raw = ErrorKeepingFile(path, keep=adds)
        self._file = h5py.File(self._raw, "r+" if adds else "w", rdcc_nbytes=CHUNK_CACHE)
        self._n_rows = 0
        group = self._file.require_group(GROUP)
        rows = min(max(len(first), SMALLEST_CHUNK), LARGEST_CHUNK)
        for name in first.columns:
            if name in group:
                raise EventFileError(
                    f"{self._path}: has {name!r} already, and no column is replaced; choose another name"
                )
            values = _for_hdf5(first[name])
            dtype = h5py.string_dtype("utf-8") if values.dtype == object else values.dtype
            group.create_dataset(name, shape=(0,), maxshape=(None,), chunks=(rows,), dtype=dtype)

    @defer_interrupts()
    def append(self, chunk: pd.DataFrame) -> None:
        stop = self._n_rows + len(chunk)
        for name in chunk.columns:
            dataset = self._file[GROUP][name]
            dataset.resize((stop,))
            dataset[self._n_rows : stop] = _for_hdf5(chunk[name])
        self._n_rows = stop
        self._check()

    @defer_interrupts()
    def close(self) -> None:
        self._file.close()
        self._raw.close()
        self._check()
        if self._n_wanted not in (None, self._n_rows):
            raise ValueError(f"columns of {self._n_rows} rows do not fit to a file of {self._n_wanted}")

    def _check(self) -> None:
        if self._raw.error is not None:
            raise self._raw.error


class _ParquetSink:
    def __init__(self, path: Path, first: pd.DataFrame) -> None:
        self._arrow = require("pyarrow", "writing Parquet")
        self._schema = self._arrow.Schema.from_pandas(first, preserve_index=False).remove_metadata()
        # dictionary encoding of floats saves nothing, and takes four times as long to write
        words = [field.name for field in self._schema if not self._arrow.types.is_floating(field.type)]
        parquet = require("pyarrow.parquet", "writing Parquet")
        self._writer = parquet.ParquetWriter(path, self._schema, use_dictionary=words)

    def append(self, chunk: pd.DataFrame) -> None:
        self._writer.write_table(self._arrow.Table.from_pandas(chunk, schema=self._schema, preserve_index=False))

    def close(self) -> None:
        self._writer.close()


class _CsvSink:
    def __init__(self, path: Path, first: pd.DataFrame) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        first.iloc[:0].to_csv(self._file, index=False)

    def append(self, chunk: pd.DataFrame) -> None:
        chunk.to_csv(self._file, index=False, header=False)

    def close(self) -> None:
        self._file.close()


_SINKS: dict[str, Callable[[Path, pd.DataFrame], _Sink]] = {
    ".hdf5": _Hdf5Sink,
    ".h5": _Hdf5Sink,
    ".parquet": _ParquetSink,
    ".csv": _CsvSink,
}


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
    """Return a chunk in the column order and dtypes of the first one; values that change by that are an error."""
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
            raise ValueError(
                f"{path}: column {name!r} changes from {first[name].dtype} to {chunk[name].dtype} between chunks; "
                "convert it before writing"
            )
        chunk = chunk.assign(**{name: converted})
    return chunk


def _for_hdf5(column: pd.Series[Any]) -> NDArray[Any]:
    """Return a column as numbers, or as objects that are all text."""
    if column.dtype.kind in "biuf" and isinstance(column.dtype, np.dtype):
        return column.to_numpy()
    if pd.api.types.is_numeric_dtype(column.dtype) and not isinstance(column.dtype, pd.CategoricalDtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    text = column.astype(object)
    return np.array(
        ["" if missing else str(value) for value, missing in zip(text, text.isna(), strict=True)], dtype=object
    )
