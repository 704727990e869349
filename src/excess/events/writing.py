"""Writing tables of events to files: either the complete file is written, or none."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import pandas as pd

from excess._core.errors import EventFileError, wrap_errors
from excess._core.files import replacing
from excess.events._formats import recognise
from excess.events._sinks import NEW_FILES, Sink, copy_format, new_format
from excess.events.file_copy import FileCopy

__all__ = ["EventWriter", "write_events"]


class EventWriter:
    """Writes a table of events chunk by chunk; the file appears when it is complete.

    The format follows from the suffix: ``.hdf5`` or ``.h5`` (FACT's layout), ``.parquet`` or ``.csv``; a copy has the
    format of what is copied. Chunks go to a temporary file in the same folder, which takes the name when the context
    ends. If it ends with an exception, the temporary file is removed and an older file of that name stays as it was.

    Parameters
    ----------
    path : path-like
        The file to write.
    copy_of : FileCopy, path-like or None, default=None
        Begin with a copy of an event file, FITS or HDF5, and add columns to it. Chunks then have only the new columns
        (and ``obs_id`` and ``event_id`` for ctapipe's files), for as many rows as the file has. All content of the file
        stays: a column of the same name is an error.
    format : str or None, default=None
        "FACT HDF5", "Parquet" or "CSV", whatever the suffix is.

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

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        copy_of: FileCopy | str | os.PathLike[str] | None = None,
        format: str | None = None,
    ) -> None:
        self.path = Path(path)
        self._make_sink: Callable[[Path, pd.DataFrame], Sink]
        if copy_of is None:
            self._make_sink = NEW_FILES[format or new_format(self.path)]
        else:
            copy = copy_of if isinstance(copy_of, FileCopy) else FileCopy(copy_of)
            found = copy_format(recognise(copy.path), copy.path, self.path)
            if found is None:
                raise ValueError(
                    f"{self.path}: columns can be added to a copy in the format of {copy.path} only, FITS or HDF5; "
                    "give the copy the same suffix"
                )
            self._make_sink = partial(found.open, copy=copy)
        self._sink: Sink | None = None
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
