"""Reading events from files: as one table, in chunks, or only their description."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import pandas as pd

from excess._core.checks import as_int
from excess._core.errors import EventFileError, missing_column, wrap_errors
from excess.events._event_files import LOCATION_COLUMNS, Content, OpenedFiles, Paths, Rows, compare_telescopes
from excess.events._formats import FORMATS, recognise
from excess.events.telescopes import Location

__all__ = [
    "LOCATION_COLUMNS",
    "FileInfo",
    "check_one_telescope",
    "describe",
    "iter_events",
    "list_columns",
    "read_events",
]

logger = logging.getLogger("excess.events")

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
        "FACT HDF5", "ctapipe HDF5 DL2", "ctapipe HDF5 DL1", "lstchain HDF5 DL2", "lstchain HDF5 DL1", "FITS event
        list", "Parquet" or "CSV".
    n_events : int
        Rows: one per event, or per shower, where several telescopes have seen it.
    columns : tuple of str
        Names of the scalar columns, in the current spelling; those that are computed are the last ones.
    n_array_events : int or None
        Events of the whole array in files of several telescopes, None for other formats.
    telescope : str or None
        Name of the telescope, or of the array; None where the file does not tell.
    data_level : str or None
        "DL1", "DL2" or "DL3"; None where the file does not tell.
    location : Location or None
        Where the telescope stands: as the file says, else from a table of known telescopes.
    is_simulated : bool
        The events are simulated ones.
    derived : tuple of str
        Columns that are not in the file, but computed while it is read: Unix times, nights, sky positions.
    telescope_columns : tuple of str
        Columns that have a value for each image of a shower, not for each event; see ``rows`` of `read_events`.
    n_images : int or None
        Telescope images in the file, where the events have several.

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
    telescope: str | None = None
    data_level: str | None = None
    location: Location | None = None
    is_simulated: bool = False
    derived: tuple[str, ...] = ()
    telescope_columns: tuple[str, ...] = ()
    n_images: int | None = None

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """Columns of the file itself, without those that are computed."""
        return tuple(name for name in self.columns if name not in self.derived)


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
        content = Content.of(file, FORMATS[name])
        origin = content.origin
        return FileInfo(
            path=file,
            format=name,
            n_events=FORMATS[name].count(file),
            columns=content.columns,
            n_array_events=origin.n_array_events,
            telescope=origin.telescope,
            data_level=origin.data_level,
            location=origin.location,
            is_simulated=origin.is_simulated,
            derived=content.derived,
            telescope_columns=origin.telescope_columns,
            n_images=origin.n_images,
        )


def list_columns(path: str | PathLike[str]) -> tuple[str, ...]:
    r"""Return the names of the scalar columns of a file, in the current spelling, without counting its events.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.events import list_columns
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "events.csv")
    ...     _ = path.write_text("night,width\n20131103,5.5\n")
    ...     list_columns(path)
    ('night', 'width')
    """
    return OpenedFiles("path", path).columns


def iter_events(
    paths: Paths, columns: Sequence[str] | None = None, *, chunk_rows: int = 100_000, rows: Rows | None = None
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
        The largest number of rows in a chunk. Images of one shower are never in different chunks.
    rows : {"events", "telescopes"} or None, default=None
        As for `read_events`.

    Returns
    -------
    iterator of DataFrame
        Chunks with at least one event; files without any event give one table without rows. ``attrs["file"]`` has the
        file of a chunk, ``attrs["first_row"]`` the row of its first event in that file, from 0.

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
    n_rows = as_int("chunk_rows", chunk_rows, minimum=1)
    files = OpenedFiles("paths", paths, rows, columns)
    wanted = _as_columns(columns, files.columns)
    files.check(wanted)
    return files.chunks(wanted, n_rows)


def read_events(
    paths: Paths,
    columns: Sequence[str] | None = None,
    *,
    join: Paths | None = None,
    rows: Rows | None = None,
    locate: bool = False,
) -> pd.DataFrame:
    r"""Read the events of files into one table.

    The format is recognised by the content of a file, never by its name: FACT HDF5, ctapipe HDF5 (DL2, DL1), lstchain
    HDF5 (DL2, DL1), FITS event lists, Parquet or CSV. Columns get their current names: older spellings of FACT are
    translated, and its theta in mm of the camera plane becomes degrees. Where a file tells enough, further columns are
    computed: ``unix_time``, ``night``, and the sky positions ``ra``, ``dec``, ``pointing_ra`` and ``pointing_dec``.

    Parameters
    ----------
    paths : path-like or sequence of them
        Files of one format, whose events follow each other.
    columns : sequence of str, default=None
        Names of columns; None means all scalar columns of the first file (and of the first to join).
    join : path-like or sequence of them, default=None
        Files with further columns of the same events, such as DL3 beside DL2, joined on ``event_num``,
        ``night`` and ``run_id``. A column that both have is taken from ``paths``.
    rows : {"events", "telescopes"} or None, default=None
        What a row is where several telescopes have seen a shower: the shower, with means and other statistics of its
        images, or one image of it. By default showers, unless ``columns`` has some of images only, such as ``tel_id``.
    locate : bool, default=False
        Add the columns of ``LOCATION_COLUMNS``: the file of each event among ``paths``, and its row there, from 0.

    Returns
    -------
    DataFrame
        One row per event. After a join, ``table.attrs["join"]`` has the number of events, of events in only one of
        the two, and of duplicates, of which the first is kept.

    Raises
    ------
    EventFileError
        If a file is missing, damaged, of another format or another telescope than the others, or lacks a column.

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
    files = OpenedFiles("paths", paths, rows, columns)
    if join is None:
        return files.read(_as_columns(columns, files.columns), locate)
    others = OpenedFiles("join", join, rows)
    wanted = _as_columns(columns, tuple(dict.fromkeys((*files.columns, *others.columns))))
    for column in wanted:
        if column not in files.columns and column not in others.columns:
            known = (*files.columns, *others.columns)
            raise EventFileError(f"{files.first}: {missing_column(column, known)} (nor has {others.first})")
    of_files = tuple(dict.fromkeys((*JOIN_KEYS, *(column for column in wanted if column in files.columns))))
    of_others = tuple(dict.fromkeys((*JOIN_KEYS, *(column for column in wanted if column not in files.columns))))
    files.check(of_files)
    others.check(of_others)
    joined = _join(files.read(of_files, locate), others.read(of_others), files.first, others.first)
    return joined[[*wanted, *(LOCATION_COLUMNS if locate else ())]]


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


def check_one_telescope(paths: Sequence[str | PathLike[str]]) -> None:
    """Raise EventFileError where files say that they are of different telescopes.

    Parameters
    ----------
    paths : sequence of path-like
        Event files, of any formats.

    Examples
    --------
    >>> from excess.events import check_one_telescope
    >>> check_one_telescope([])  # nothing differs
    """
    found = {}
    for path in map(Path, paths):
        name = recognise(path)
        with wrap_errors(path, f"reading {name}"):
            found[path] = FORMATS[name].origin(path).telescope
    compare_telescopes(found)


def _as_columns(columns: Sequence[str] | None, available: tuple[str, ...]) -> tuple[str, ...]:
    if columns is None:
        return available
    if isinstance(columns, str):
        raise TypeError(f"columns must be a sequence of names, got the text {columns!r}; write [{columns!r}]")
    wanted = tuple(dict.fromkeys(columns))
    if not wanted:
        raise ValueError("columns is empty; name at least one column, or leave it out to read all")
    return wanted
