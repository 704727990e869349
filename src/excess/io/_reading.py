"""Reading events from files: as one table, in chunks, or only their metadata."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple

import pandas as pd

from excess._utils.checks import as_choice, as_int, check_regular_file
from excess._utils.errors import EventFileError, missing_column, require, wrap_errors
from excess.io import _csv, _ctapipe, _ctapipe_layout, _fact, _fits, _lstchain, _parquet, _root
from excess.io._coordinates import Derivation, Location, Origin, Plan, derivations
from excess.io._files import open_hdf5, stored_names, stored_node

HDF5_MAGIC, PARQUET_MAGIC, FITS_MAGIC = b"\x89HDF\r\n\x1a\n", b"PAR1", b"SIMPLE  ="
START_BYTES = 65536


FORMATS: dict[str, ModuleType] = {  # modules with the functions columns, count, chunks and, with metadata, origin
    "FACT HDF5": _fact,
    **dict.fromkeys(("lstchain HDF5 DL2", "lstchain HDF5 DL1"), _lstchain),
    **dict.fromkeys(("ctapipe HDF5 DL2", "ctapipe HDF5 DL1"), _ctapipe),
    **{"FITS event list": _fits, "Parquet": _parquet, "ROOT": _root, "CSV": _csv},
}


def _origin(path: Path, known: ModuleType) -> Origin:
    return known.origin(path) if hasattr(known, "origin") else Origin()


def recognise(path: Path) -> str:
    """Return the format of a file, a key of FORMATS, from its first bytes and its layout."""
    check_regular_file(path)
    with wrap_errors(path, "opening"), path.open("rb") as file:
        start = file.read(START_BYTES)
    if not start:
        raise EventFileError(f"{path}: is empty")
    if start.startswith(HDF5_MAGIC):
        return _hdf5_layout(path)
    if start.startswith(PARQUET_MAGIC):
        return "Parquet"
    if start.startswith(_root.MAGIC) and b"\0" in start[:64]:
        return "ROOT"
    if start.startswith(FITS_MAGIC) or (start.startswith(_fits.GZIP_MAGIC) and _is_compressed_fits(path)):
        return "FITS event list"
    try:
        # a character may be truncated at the end of the bytes
        text = start.decode("utf-8-sig", "strict" if len(start) < START_BYTES else "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise EventFileError(f"{path}: is neither HDF5, FITS, Parquet, ROOT nor CSV")
    if not _csv.looks_like_csv(text):
        raise EventFileError(f"{path}: is text, but not a CSV table with column names and comma-separated values")
    return "CSV"


def _hdf5_layout(path: Path) -> str:
    h5py = require("h5py", "reading HDF5")
    with wrap_errors(path, "reading HDF5"), open_hdf5(path) as file:
        if isinstance(stored_node(file, _fact.GROUP), h5py.Group):
            return "FACT HDF5"
        for name, level in (("lstchain", _lstchain.data_level(file)), ("ctapipe", _ctapipe_layout.data_level(file))):
            if level is not None:
                return f"{name} HDF5 {level}"
        found = ", ".join(stored_names(file)[:8]) or "nothing"
    known = f"neither a group '{_fact.GROUP}' nor ctapipe's or lstchain's tables of events"
    raise EventFileError(f"{path}: this HDF5 file has {known}; it contains {found}")


def _is_compressed_fits(path: Path) -> bool:
    with wrap_errors(path, "reading gzip"), gzip.open(path) as file:
        return file.read(len(FITS_MAGIC)) == FITS_MAGIC


def expand_folders(paths: Iterable[str | PathLike[str]]) -> list[Path]:
    """Replace folders in paths by their event files, sorted by name; other files there are ignored."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append(path)
            continue
        own = [one for one in sorted(path.iterdir()) if not one.name.startswith(".") and _has_events(one)]
        if not own:
            raise EventFileError(f"{path}: this folder has no event files; pass files or another folder")
        found += own
    return found


def _has_events(path: Path) -> bool:
    """Return whether a path is a file of events."""
    try:
        kind = recognise(path)  # an error for a folder
        # text of other types, such as YAML, may look like CSV
        return bool(_fits.columns(path)) if kind.startswith("FITS") else kind != "CSV" or path.suffix.lower() == ".csv"
    except (ValueError, OSError):  # unknown format, or instrument response and indices
        return False


Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
Rows = Literal["events", "telescopes"]
LOCATION_COLUMNS = ("_file", "_row")  # columns with the origin of an event: its file, and its row there, from 0
_PEEK_ROWS = 100  # rows used to recognise the origin of a column of times
_TELESCOPE = "tel_id"


class Content(NamedTuple):
    """Content of a file: its columns, its metadata, and computable columns."""

    stored: tuple[str, ...]
    origin: Origin
    derivations: tuple[Derivation, ...]
    derived: tuple[str, ...]

    @classmethod
    def of(cls, path: Path, known: ModuleType) -> Content:
        """Inspect a file."""

        def peek(name: str) -> pd.Series:
            if name not in stored:
                raise KeyError(name)
            return next(iter(known.chunks(path, [name], _PEEK_ROWS)))[name]

        stored, origin = known.columns(path), _origin(path, known)
        return cls(stored, origin, *derivations(stored, origin, peek))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of events."""
        return (*self.stored, *self.derived)

    @property
    def of_images(self) -> tuple[str, ...]:
        """Columns of telescope images, including those of the whole shower."""
        return (*self.origin.telescope_columns, *self.derived)

    def plan(self, wanted: tuple[str, ...]) -> Plan:
        """Return the plan to read columns."""
        return Plan.of(wanted, (*self.stored, *self.origin.telescope_columns), self.derivations)


class OpenedFiles:
    """Files of one format and one telescope, and their contents."""

    def __init__(
        self, argument: str, paths: Paths, rows: Rows | None = None, wanted: Sequence[str] | None = None
    ) -> None:
        given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
        if not given:
            raise ValueError(f"{argument} is empty; pass at least one file")
        self.paths = [Path(fspath(path)) for path in given]
        self.first = self.paths[0]
        formats = {path: recognise(path) for path in self.paths}
        self.format = formats[self.first]
        for path, name in formats.items():
            if name != self.format:
                raise EventFileError(f"{path}: mixed formats, this file is {name}, but {self.first} is {self.format}")
        self._content = {}
        for path in formats:
            with wrap_errors(path, f"reading {self.format}"):
                self._content[path] = Content.of(path, FORMATS[self.format])
        compare_telescopes({path: content.origin.telescope for path, content in self._content.items()})
        self._of_images = self._choose_images(rows, wanted or ())

    def _choose_images(self, rows: Rows | None, wanted: Sequence[str]) -> bool:
        """Return whether rows are telescope images, also implied by a column that exists for images only."""
        if rows is not None:
            as_choice("rows", rows, ("events", "telescopes"))
        content = self._content[self.first]
        of_images, of_events = (
            [name for name in wanted if name in own and name not in other]
            for own, other in ((content.of_images, content.columns), (content.columns, content.of_images))
        )
        if rows == "telescopes" and not content.origin.telescope_columns:
            raise EventFileError(f"{self.first}: has no tables of telescope images, so `rows` cannot be telescopes")
        if rows is not None or not of_images:
            return rows == "telescopes"
        if of_events:
            problem = f"{of_images[0]!r} has one value per telescope image, but {of_events[0]!r} one per shower"
            remedy = f"use columns of showers, such as '{of_images[0]}_mean', or of images only"
            raise EventFileError(f"{self.first}: {problem}; {remedy}")
        return True

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the first file."""
        return self._columns_of(self.first)

    def _columns_of(self, path: Path) -> tuple[str, ...]:
        content = self._content[path]
        return content.of_images if self._of_images else content.columns

    def check(self, wanted: tuple[str, ...]) -> None:
        """Raise EventFileError unless all files have these columns."""
        for path in self._content:
            known = self._columns_of(path)
            for column in wanted:
                if column not in known:
                    raise EventFileError(f"{path}: {missing_column(column, known)}")

    def read(self, columns: tuple[str, ...], locate: bool = False) -> pd.DataFrame:
        """Return all events, with their files and rows if requested."""
        self.check(columns)
        parts = [_located(part) if locate else part for part in self.chunks(columns, None)]
        return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)

    def chunks(self, columns: tuple[str, ...], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
        """Yield chunks with events; without events, one empty table with the columns."""
        empty = None
        any_events = False
        for path in self.paths:
            plan, first_row = self._content[path].plan(columns), 0
            # the telescope number, which makes the format read images
            stored = dict.fromkeys((*plan.stored, *((_TELESCOPE,) if self._of_images else ())))
            parts = FORMATS[self.format].chunks(path, tuple(stored), chunk_rows)
            while True:
                # only here, so the file is logged while it is read, and not while a chunk is processed
                with wrap_errors(path, f"reading {self.format}"):
                    part = next(parts, None)
                    chunk = None if part is None else plan.complete(part, columns)
                if chunk is None:
                    break
                if len(chunk):
                    any_events = True
                    chunk.attrs.update(file=str(path), first_row=first_row)
                    first_row += len(chunk)
                    yield chunk
                elif empty is None:
                    empty = chunk
        if not any_events and empty is not None:
            yield empty


def compare_telescopes(telescopes: Mapping[Path, str | None]) -> None:
    """Raise EventFileError if telescopes differ; None is an unknown one."""
    known = {path: name for path, name in telescopes.items() if name is not None}
    if len(set(known.values())) > 1:
        first, name = next(iter(known.items()))
        path, other = next((path, other) for path, other in known.items() if other != name)
        remedy = "define one observation per telescope in a list of observations"
        raise EventFileError(f"{path}: is of {other}, but {first} is of {name}; {remedy}")


def _located(chunk: pd.DataFrame) -> pd.DataFrame:
    """Return a chunk with the file and the row of each event."""
    first_row = chunk.attrs.get("first_row", 0)
    rows = range(first_row, first_row + len(chunk))
    return chunk.assign(**dict(zip(LOCATION_COLUMNS, (chunk.attrs.get("file", ""), rows), strict=True)))


logger = logging.getLogger("excess.io")
JOIN_KEYS = ("event_num", "night", "run_id")  # columns that identify an event in FACT's files


@dataclass(frozen=True)
class FileInfo:
    """Metadata of an event file.

    Attributes
    ----------
    path, format : Path and str
        The file, and its format, such as "FACT HDF5", "ctapipe HDF5 DL2", "FITS event list", "Parquet" or "CSV".
    n_events, n_array_events, n_images : int
        Rows (one per event or shower); events of the array and telescope images, None for files of one telescope.
    columns, derived, telescope_columns : tuple of str
        Scalar columns; those computed while reading; those of images (``rows`` of `read_events`).
    telescope, data_level, location : str, str and Location
        Name and location of the telescope or array, and "DL1", "DL2" or "DL3"; None if unknown.
    is_simulated : bool
        Whether the events are simulated.

    Examples
    --------
    >>> from pathlib import Path
    >>> from excess.io import FileInfo
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
        """Columns of the file itself, without computed ones."""
        return tuple(name for name in self.columns if name not in self.derived)


def describe(path: str | PathLike[str]) -> FileInfo:
    r"""Return the metadata of a file without reading its events.

    Parameters
    ----------
    path : path-like
        A file of any format supported by `read_events`.

    Returns
    -------
    FileInfo

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.io import describe
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
        content, n_events = Content.of(file, FORMATS[name]), FORMATS[name].count(file)
        about = content.origin._asdict()
        metadata = {key: value for key, value in about.items() if key in FileInfo.__dataclass_fields__}
        return FileInfo(file, name, n_events, content.columns, derived=content.derived, **metadata)


def list_columns(path: str | PathLike[str]) -> tuple[str, ...]:
    r"""Return the names of the scalar columns of a file, in the current spelling, without counting its events."""
    return OpenedFiles("path", path).columns


def iter_events(
    paths: Paths, columns: Sequence[str] | None = None, *, chunk_rows: int = 100_000, rows: Rows | None = None
) -> Iterator[pd.DataFrame]:
    r"""Yield the events of files in chunks, in constant memory.

    Rows and order are as in `read_events`; in CSV files missing values may change the dtype of a column between chunks.

    Parameters
    ----------
    paths, columns, rows
        As for `read_events`.
    chunk_rows : int, default=100_000
        Maximum number of rows in a chunk; images of one shower are in the same chunk.

    Returns
    -------
    iterator of DataFrame
        Chunks with events, or one empty table; ``attrs`` has its ``file`` and the ``first_row`` there, from 0.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.io import iter_events
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

    The format is detected from the content of a file: FACT HDF5, ctapipe or lstchain HDF5 (DL2, DL1), FITS event lists,
    Parquet, ROOT (one flat tree) or CSV. Older names of FACT are translated, and its theta in mm is converted to deg.
    If metadata allow it, ``unix_time``, ``night``, ``ra``, ``dec``, ``pointing_ra`` and ``pointing_dec`` are computed.

    Parameters
    ----------
    paths : path-like or sequence of them
        Files of one format, whose events are concatenated.
    columns : sequence of str, default=None
        Names of columns; None reads all scalar columns of the first file (and of the first to join).
    join : path-like or sequence of them, default=None
        Files with further columns of the same events, joined on ``event_num``, ``night`` and ``run_id``.
    rows : {"events", "telescopes"} or None, default=None
        Unit of a row: a shower with statistics of its images, or one image; by default images only if ``columns``
        contains some that exist for images only, such as ``tel_id``.
    locate : bool, default=False
        Add the columns of ``LOCATION_COLUMNS``: the file of each event among ``paths``, and its row there, from 0.

    Returns
    -------
    DataFrame
        One row per event. After a join, ``attrs["join"]`` counts events, events in one table only, and duplicates.

    Raises
    ------
    EventFileError
        If a file is missing, damaged, of another format or telescope than the others, or lacks a column.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.io import read_events
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
    known = tuple(dict.fromkeys((*files.columns, *others.columns)))
    wanted = _as_columns(columns, known)
    for column in wanted:
        if column not in known:
            raise EventFileError(f"{files.first}: {missing_column(column, known)} (nor has {others.first})")
    of_files = tuple(dict.fromkeys((*JOIN_KEYS, *(column for column in wanted if column in files.columns))))
    of_others = tuple(dict.fromkeys((*JOIN_KEYS, *(column for column in wanted if column not in files.columns))))
    files.check(of_files)
    others.check(of_others)
    joined = _join(files.read(of_files, locate), others.read(of_others), files.first, others.first)
    return joined[[*wanted, *(LOCATION_COLUMNS if locate else ())]]


def _join(first: pd.DataFrame, second: pd.DataFrame, first_path: Path, second_path: Path) -> pd.DataFrame:
    """Return the events common to both tables, in the order of the first; ``attrs["join"]`` counts the others."""
    keys = list(JOIN_KEYS)
    unique = [table.drop_duplicates(keys) for table in (first, second)]
    try:
        table = unique[0].merge(unique[1], on=keys, how="inner")
    except ValueError as error:
        problem = f"{', '.join(keys)} have other types than in {first_path}, so the events cannot be joined"
        raise EventFileError(f"{second_path}: {problem}") from error
    if table.empty and not (first.empty and second.empty):
        raise EventFileError(f"{second_path}: has no event of {first_path}; {', '.join(keys)} never agree")
    only_first, only_second = (len(one) - len(table) for one in unique)
    n_duplicates = len(first) + len(second) - len(unique[0]) - len(unique[1])
    if only_first or only_second or n_duplicates:
        single = f"{only_first} only in {first_path}, {only_second} only in {second_path}"
        logger.warning(f"{len(table)} events joined; {single}, {n_duplicates} duplicates dropped")
    counts = {"n_only_first": only_first, "n_only_second": only_second, "n_duplicates": n_duplicates}
    table.attrs["join"] = {"n_events": len(table), **counts}
    return table


def check_one_telescope(paths: Sequence[str | PathLike[str]]) -> None:
    """Raise EventFileError if files are of different telescopes."""
    found = {}
    for path in map(Path, paths):
        name = recognise(path)
        with wrap_errors(path, f"reading {name}"):
            found[path] = _origin(path, FORMATS[name]).telescope
    compare_telescopes(found)


def _as_columns(columns: Sequence[str] | None, available: tuple[str, ...]) -> tuple[str, ...]:
    if columns is None:
        return available
    if isinstance(columns, str):
        raise TypeError(f"columns must be a sequence of names, got the text {columns!r}; write [{columns!r}]")
    wanted = tuple(dict.fromkeys(columns))
    if not wanted:
        raise ValueError("columns is empty; pass at least one column, or omit it to read all")
    return wanted
