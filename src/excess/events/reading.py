"""Tables of events from files: all at once, in chunks, or only described."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

import pandas as pd

from excess._core.checks import as_int
from excess._core.errors import EventFileError, missing_column, wrap_errors
from excess.events._formats import FORMATS, recognise
from excess.events._joining import KEYS, joined

__all__ = ["FileInfo", "describe", "iter_events", "read_events"]

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True)
class FileInfo:
    """What a file of events holds.

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
    r"""Say what a file holds, without reading its events.

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

    The rows and their order are those of ``read_events``. A column of a CSV file may be of another dtype from
    chunk to chunk, when only some of them have missing values.

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
    files = _as_paths("paths", paths)
    rows = as_int("chunk_rows", chunk_rows, minimum=1)
    name, available = _inspect(files)
    wanted = _as_columns(columns, available[files[0]])
    _check_columns(available, wanted)
    return _chunks(files, name, wanted, rows)


def read_events(paths: Paths, columns: Sequence[str] | None = None, *, join: Paths | None = None) -> pd.DataFrame:
    r"""Read the events of files into one table.

    The format is recognised by what a file holds, never by its name: FACT HDF5, ctapipe HDF5 (DL2, DL1), FITS
    event lists, Parquet or CSV. Columns have their current names; older spellings of FACT are translated, and
    its theta in mm of the camera plane becomes degrees.

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
        One row per event. After a join, ``table.attrs["join"]`` counts the events, those that only one side
        has, and the duplicates, of which the first was kept.

    Raises
    ------
    EventFileError
        If a file is missing, damaged, of another format than the others, or lacks a column.

    See Also
    --------
    iter_events : The same in chunks, in constant memory.
    describe : What a file holds.

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
    files = _as_paths("paths", paths)
    name, available = _inspect(files)
    if join is None:
        wanted = _as_columns(columns, available[files[0]])
        _check_columns(available, wanted)
        return _read(files, name, wanted)

    others = _as_paths("join", join)
    other_name, other_available = _inspect(others)
    first, second = available[files[0]], other_available[others[0]]
    wanted = _as_columns(columns, tuple(dict.fromkeys((*first, *second))))
    for column in wanted:
        if column not in first and column not in second:
            raise EventFileError(f"{files[0]}: {missing_column(column, (*first, *second))} (nor has {others[0]})")
    of_first = tuple(dict.fromkeys((*KEYS, *(column for column in wanted if column in first))))
    of_second = tuple(dict.fromkeys((*KEYS, *(column for column in wanted if column not in first))))
    _check_columns(available, of_first)
    _check_columns(other_available, of_second)
    table = joined(_read(files, name, of_first), _read(others, other_name, of_second), files[0], others[0])
    return table[list(wanted)]


def _read(files: list[Path], name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    parts = list(_chunks(files, name, columns, None))
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def _chunks(files: list[Path], name: str, columns: tuple[str, ...], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield chunks with events; if there are none at all, one table without rows that shows the columns."""
    empty = None
    any_events = False
    for file in files:
        with wrap_errors(file, f"reading {name}"):
            for chunk in FORMATS[name].chunks(file, columns, chunk_rows):
                if len(chunk):
                    any_events = True
                    yield chunk
                elif empty is None:
                    empty = chunk
    if not any_events and empty is not None:
        yield empty


def _inspect(files: list[Path]) -> tuple[str, dict[Path, tuple[str, ...]]]:
    """Return the one format of several files, and the columns of each."""
    names = {file: recognise(file) for file in files}
    first = files[0]
    for file, name in names.items():
        if name != names[first]:
            raise EventFileError(f"{file}: mixed formats, this file is {name} and {first} is {names[first]}")
    available = {}
    for file, name in names.items():
        with wrap_errors(file, f"reading {name}"):
            available[file] = FORMATS[name].columns(file)
    return names[first], available


def _check_columns(available: dict[Path, tuple[str, ...]], wanted: tuple[str, ...]) -> None:
    for file, known in available.items():
        for column in wanted:
            if column not in known:
                raise EventFileError(f"{file}: {missing_column(column, known)}")


def _as_columns(columns: Sequence[str] | None, available: tuple[str, ...]) -> tuple[str, ...]:
    if columns is None:
        return available
    if isinstance(columns, str):
        raise TypeError(f"columns must be a sequence of names, got the text {columns!r}; write [{columns!r}]")
    wanted = tuple(dict.fromkeys(columns))
    if not wanted:
        raise ValueError("columns is empty; name at least one column, or leave it out to read all")
    return wanted


def _as_paths(name: str, paths: Paths) -> list[Path]:
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    if not given:
        raise ValueError(f"{name} is empty; name at least one file")
    return [Path(fspath(path)) for path in given]
