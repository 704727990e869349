"""Reading events from files: as one table, in chunks, or only their description."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

import pandas as pd

from excess._core.checks import as_int
from excess._core.errors import EventFileError, missing_column, wrap_errors
from excess.events._formats import FORMATS, recognise

__all__ = ["FileInfo", "describe", "iter_events", "read_events"]

logger = logging.getLogger("excess.events")

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
JOIN_KEYS = ("event_num", "night", "run_id")
"""Columns that identify an event in FACT's files."""


@dataclass(frozen=True)
class FileInfo:
    """Description of an event file.

    Attributes
    ----------
    path : Path
        The file.
    format : str
        "FACT HDF5", "ctapipe HDF5 DL2", "ctapipe HDF5 DL1", "FITS event list", "Parquet" or "CSV".
    n_events : int
        Rows. In ctapipe's DL1 a row is an event of one telescope.
    columns : tuple of str
        Names of the scalar columns, in the current spelling.
    n_array_events : int or None
        Events of the whole array in ctapipe's files, None for other formats.

    See Also
    --------
    describe : Makes one.

    Examples
    --------
    >>> from pathlib import Path
    >>> from excess.events import FileInfo
    >>> FileInfo(Path("crab.csv"), "CSV", 3, ("width", "length")).n_events
    3
    """

    path: Path
    format: str
    n_events: int
    columns: tuple[str, ...]
    n_array_events: int | None = None


def describe(path: str | PathLike[str]) -> FileInfo:
    r"""Describe a file without reading its events.

    Parameters
    ----------
    path : path-like
        A file of any format that ``read_events`` knows.

    Returns
    -------
    FileInfo
        Format, number of events and names of columns.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.events import describe
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "events.csv")
    ...     _ = path.write_text("night,width\n20131103,5.5\n20131103,7.25\n")
    ...     info = describe(path)
    >>> info.format, info.n_events, info.columns
    ('CSV', 2, ('night', 'width'))
    """
    file = Path(path)
    name = recognise(file)
    with wrap_errors(file, f"reading {name}"):
        known = FORMATS[name]
        return FileInfo(file, name, known.count(file), known.columns(file), known.count_array_events(file))


def iter_events(
    paths: Paths, columns: Sequence[str] | None = None, *, chunk_rows: int = 100_000
) -> Iterator[pd.DataFrame]:
    r"""Yield the events of files in chunks, in constant memory.

    The rows and their order are those of ``read_events``. In CSV files the dtype of a column may differ between
    chunks, if only some of them have missing values.

    Parameters
    ----------
    paths : path-like or sequence of them
        Files of one format.
    columns : sequence of str, default=None
        Names of columns; None means all scalar columns of the first file.
    chunk_rows : int, default=100_000
        The largest number of events in a chunk.

    Returns
    -------
    iterator of DataFrame
        Chunks with at least one event; files without any event give one table without rows.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.events import iter_events
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "events.csv")
    ...     _ = path.write_text("night,width\n20131103,5.5\n20131103,7.25\n20131104,6.0\n")
    ...     [len(chunk) for chunk in iter_events(path, ["width"], chunk_rows=2)]
    [2, 1]
    """
    rows = as_int("chunk_rows", chunk_rows, minimum=1)
    files = _Files("paths", paths)
    wanted = _as_columns(columns, files.columns)
    files.check(wanted)
    return files.chunks(wanted, rows)


def read_events(paths: Paths, columns: Sequence[str] | None = None, *, join: Paths | None = None) -> pd.DataFrame:
    r"""Read the events of files into one table.

    The format is recognised by the content of a file, never by its name: FACT HDF5, ctapipe HDF5 (DL2, DL1), FITS
    event lists, Parquet or CSV. Columns get their current names: older spellings of FACT are translated, and its theta
    in mm of the camera plane becomes degrees.

    Parameters
    ----------
    paths : path-like or sequence of them
        Files of one format, whose events follow each other.
    columns : sequence of str, default=None
        Names of columns; None means all scalar columns of the first file (and of the first to join).
    join : path-like or sequence of them, default=None
        Files with further columns of the same events, such as DL3 beside DL2, joined on ``event_num``,
        ``night`` and ``run_id``. A column that both have is taken from ``paths``.

    Returns
    -------
    DataFrame
        One row per event. After a join, ``table.attrs["join"]`` has the number of events, of events in only one of
        the two, and of duplicates, of which the first is kept.

    Raises
    ------
    EventFileError
        If a file is missing, damaged, of another format than the others, or lacks a column.

    See Also
    --------
    iter_events : The same in chunks, in constant memory.
    describe : Describes a file without reading its events.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.events import read_events
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "events.csv")
    ...     _ = path.write_text("night,width\n20131103,5.5\n20131103,7.25\n")
    ...     read_events(path)
          night  width
    0  20131103   5.50
    1  20131103   7.25
    """
    files = _Files("paths", paths)
    if join is None:
        return files.read(_as_columns(columns, files.columns))
    others = _Files("join", join)
    wanted = _as_columns(columns, tuple(dict.fromkeys((*files.columns, *others.columns))))
    for column in wanted:
        if column not in files.columns and column not in others.columns:
            known = (*files.columns, *others.columns)
            raise EventFileError(f"{files.first}: {missing_column(column, known)} (nor has {others.first})")
    of_files = tuple(dict.fromkeys((*JOIN_KEYS, *(column for column in wanted if column in files.columns))))
    of_others = tuple(dict.fromkeys((*JOIN_KEYS, *(column for column in wanted if column not in files.columns))))
    files.check(of_files)
    others.check(of_others)
    return _join(files.read(of_files), others.read(of_others), files.first, others.first)[list(wanted)]


class _Files:
    """Files of one format, and the columns of each."""

    def __init__(self, argument: str, paths: Paths) -> None:
        given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
        if not given:
            raise ValueError(f"{argument} is empty; name at least one file")
        self.paths = [Path(fspath(path)) for path in given]
        self.first = self.paths[0]
        formats = {path: recognise(path) for path in self.paths}
        self.format = formats[self.first]
        for path, name in formats.items():
            if name != self.format:
                raise EventFileError(f"{path}: mixed formats, this file is {name} and {self.first} is {self.format}")
        self._columns = {}
        for path in formats:
            with wrap_errors(path, f"reading {self.format}"):
                self._columns[path] = FORMATS[self.format].columns(path)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the first file."""
        return self._columns[self.first]

    def check(self, wanted: tuple[str, ...]) -> None:
        """Raise EventFileError unless all files have these columns."""
        for path, known in self._columns.items():
            for column in wanted:
                if column not in known:
                    raise EventFileError(f"{path}: {missing_column(column, known)}")

    def read(self, columns: tuple[str, ...]) -> pd.DataFrame:
        """Return all events."""
        self.check(columns)
        parts = list(self.chunks(columns, None))
        return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)

    def chunks(self, columns: tuple[str, ...], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
        """Yield chunks with events; if there are none at all, one table without rows that shows the columns."""
        empty = None
        any_events = False
        for path in self.paths:
            with wrap_errors(path, f"reading {self.format}"):
                for chunk in FORMATS[self.format].chunks(path, columns, chunk_rows):
                    if len(chunk):
                        any_events = True
                        chunk.attrs["file"] = str(path)
                        yield chunk
                    elif empty is None:
                        empty = chunk
        if not any_events and empty is not None:
            yield empty


def _join(first: pd.DataFrame, second: pd.DataFrame, first_path: Path, second_path: Path) -> pd.DataFrame:
    """Return the events that both tables have, in the order of the first; ``attrs["join"]`` counts the others."""
    keys = list(JOIN_KEYS)
    unique = [table.drop_duplicates(keys) for table in (first, second)]
    try:
        table = unique[0].merge(unique[1], on=keys, how="inner")
    except ValueError as error:
        raise EventFileError(
            f"{second_path}: {', '.join(keys)} are of other types than in {first_path}, so the events cannot be joined"
        ) from error
    if table.empty and not (first.empty and second.empty):
        raise EventFileError(f"{second_path}: has no event of {first_path}; {', '.join(keys)} never agree")
    only_first, only_second = (len(one) - len(table) for one in unique)
    n_duplicates = len(first) + len(second) - len(unique[0]) - len(unique[1])
    if only_first or only_second or n_duplicates:
        logger.warning(
            f"{len(table)} events joined; {only_first} only in {first_path}, {only_second} only in {second_path}, "
            f"{n_duplicates} duplicates dropped"
        )
    table.attrs["join"] = {
        "n_events": len(table),
        "n_only_first": only_first,
        "n_only_second": only_second,
        "n_duplicates": n_duplicates,
    }
    return table


def _as_columns(columns: Sequence[str] | None, available: tuple[str, ...]) -> tuple[str, ...]:
    if columns is None:
        return available
    if isinstance(columns, str):
        raise TypeError(f"columns must be a sequence of names, got the text {columns!r}; write [{columns!r}]")
    wanted = tuple(dict.fromkeys(columns))
    if not wanted:
        raise ValueError("columns is empty; name at least one column, or leave it out to read all")
    return wanted
