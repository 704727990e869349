"""Helpers for all formats: columns, size limits, copies; and safe access to HDF5 files.

No other file is read (external links, external storage and virtual datasets of HDF5 are errors), no code in a file is
executed (PyTables is not used, since it unpickles attributes), and no pointer is read from it (rows of a table have
neither references nor values of variable length).
"""

import csv
import gzip
import io
import os
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOSPC
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from tempfile import gettempdir
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.errors import EventFileError as EventFileError
from excess._utils.errors import handle_once, require

INDEX_COLUMNS = frozenset({"index", "level_0", "Unnamed: 0", "__index_level_0__"})  # row numbers written by libraries


def read_catalogue(name: str, package: str = "excess.io") -> list[dict[str, str]]:
    """Return the rows of a table distributed with the package."""
    text = files(package).joinpath(f"data/{name}").read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def as_native(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in the byte order of this machine, bytes as text, and booleans that are 0 or 1."""
    if values.dtype.kind == "b":
        # a file may contain any byte there, for which NumPy would count True values incorrectly
        return values.view(np.uint8).astype(bool)
    if values.dtype.kind == "S":
        return np.array([value.decode("utf-8", "replace") for value in values.tolist()], dtype=object)
    if values.dtype.kind == "U":
        return values.astype(object)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def slices(n_rows: int, chunk_rows: int | None) -> Iterator[slice]:
    """Divide ``n_rows`` rows into slices of at most ``chunk_rows``; one empty slice for no rows."""
    step = max(n_rows, 1) if chunk_rows is None else chunk_rows
    for start in range(0, max(n_rows, 1), step):
        yield slice(start, min(start + step, n_rows))


def event_words(keys: Sequence[str], event: Sequence[Any]) -> str:
    """Describe an event by its identifiers."""
    return f"the event with {', '.join(f'{key} {value}' for key, value in zip(keys, event, strict=True))}"


@dataclass(frozen=True)
class FileCopy:
    """Source of a copy of an event file, for `EventWriter`."""

    source: str | PathLike[str]
    prefix: str = "excess"
    history: tuple[str, ...] = ()
    only: str | None = None

    @property
    def path(self) -> Path:
        """The file that is copied."""
        return Path(self.source)


class CopySink:
    """A copy of a file, written after all chunks of its new columns are available."""

    def __init__(self, path: Path, first: pd.DataFrame, copy: FileCopy) -> None:
        self.path, self.copy = path, copy
        self._chunks: list[pd.DataFrame] = []
        self.check(first)

    def check(self, first: pd.DataFrame) -> None:
        """Raise EventFileError if the columns of a chunk cannot be added."""
        raise NotImplementedError

    def write(self, table: pd.DataFrame) -> None:
        """Write the copy with its new columns."""
        raise NotImplementedError

    def append(self, chunk: pd.DataFrame) -> None:
        """Store the columns of the next rows."""
        self._chunks.append(chunk)

    def close(self) -> None:
        """Write the copy."""
        self.write(pd.concat(self._chunks, ignore_index=True))

    def check_new(self, names: Iterable[str], present: Iterable[str]) -> None:
        """Raise EventFileError if a column already exists."""
        for name in set(names) & set(present):
            raise EventFileError(f"{self.copy.path}: already has {name!r}; choose another name")


MOST_COLUMNS = 10_000  # maximum number of columns of an event file
LARGEST_RATIO = 100  # maximum ratio of the sizes of events and file; numbers are rarely compressed to a tenth
ALWAYS_ALLOWED = 256 << 20  # bytes of events allowed for any file: constant columns are compressed to almost nothing
_PIECE = 1 << 20


def largest_expansion(path: Path) -> int:
    """Return the maximum number of bytes of events in a file."""
    return max(ALWAYS_ALLOWED, LARGEST_RATIO * path.stat().st_size)


def check_expansion(path: Path, n_bytes: int) -> None:
    """Raise EventFileError if a file declares far more events than it can contain."""
    if n_bytes > largest_expansion(path):
        raise expansion_error(path, f"{n_bytes / 2**20:,.0f} MiB")


def expansion_error(path: Path, size: str) -> EventFileError:
    """Return the error about a file with too much data for its size."""
    most = f"more than {LARGEST_RATIO} times its size and {ALWAYS_ALLOWED >> 20} MiB are not read"
    problem = f"declares {size} of events in a file of {path.stat().st_size / 2**20:,.1f} MiB; {most}"
    return EventFileError(f"{path}: {problem}; if it is not damaged, write it again without compression")


def decompress(path: Path, target: BinaryIO) -> None:
    """Decompress a gzip file to another file; raise EventFileError as soon as it is too large."""
    left = largest_expansion(path)
    with gzip.open(path) as file:
        while piece := file.read(_PIECE):
            left -= len(piece)
            if left < 0:
                raise expansion_error(path, f"more than {largest_expansion(path) >> 20:,} MiB")
            try:
                target.write(piece)
            except OSError as error:
                if error.errno != ENOSPC:
                    raise
                problem = f"not enough space to decompress it in {gettempdir()}"
                raise EventFileError(f"{path}: {problem}; set TMPDIR to another folder, or decompress it") from error
    target.flush()
    target.seek(0)


def check_columns(path: Path, n_columns: int) -> None:
    """Raise EventFileError if a file has too many columns."""
    if n_columns > MOST_COLUMNS:
        raise EventFileError(f"{path}: has {n_columns:,} columns, above the maximum of {MOST_COLUMNS:,}")


class ErrorKeepingFile(io.FileIO):
    """A binary file that stores the first write error, and buffers unwritten data in memory."""

    def __init__(self, path: Path, *, keep: bool = False) -> None:
        super().__init__(path, "r+" if keep else "w+")
        self._kept: list[tuple[int, bytes]] = []
        self._size = os.fstat(self.fileno()).st_size
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position and return it; the end includes buffered data."""
        return super().seek(self._size + offset) if whence == os.SEEK_END else super().seek(offset, whence)

    def write(self, data: Any) -> int:
        """Write bytes, or buffer them after an error."""
        view = memoryview(data).cast("B")
        start, written = self.tell(), 0
        while written < len(view) and self.error is None:
            try:
                written += super().write(view[written:]) or 0
            except OSError as error:
                self.error = error
        if written < len(view):
            self._kept.append((start + written, bytes(view[written:])))
        self._size = max(self._size, self.seek(start + len(view)))
        return len(view)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the file and buffered data; gaps are zeros."""
        view = memoryview(buffer).cast("B")
        start = self.tell()
        stop = max(start, min(start + len(view), self._size))
        view[: stop - start] = bytes(stop - start)
        super().readinto(view[: stop - start])
        for offset, data in self._kept:
            first, last = max(offset, start), min(offset + len(data), stop)
            if first < last:
                view[first - start : last - start] = data[first - offset : last - offset]
        self.seek(stop)
        return stop - start

    def truncate(self, size: int | None = None) -> int:
        """Set the size, or only store it after an error."""
        self._size = self.tell() if size is None else size
        if self.error is None:
            try:
                super().truncate(self._size)
            except OSError as error:
                self.error = error
        return self._size

    def __del__(self) -> None:
        """Close a file whose creation failed, without the warning of FileIO."""
        self.close()


CHUNK_CACHE = 2**20  # bytes per column; the default of HDF5, up to 8 MiB, adds up over many columns
_LONGEST_ATTRIBUTE = 1024  # bytes of a unit, a name, or a number
_FIXED_SIZE = "biufcS"  # NumPy type kinds whose values are the bytes of the file
_FILTERS_WITHOUT_COMPRESSION = {2, 3, 5, 6}  # shuffle, fletcher32, nbit and scaleoffset: at most a constant factor


@contextmanager
def defer_signals() -> Iterator[None]:
    """Handle an interrupt at the end of the block: the HDF5 library crashes if its file object raises an exception."""
    if threading.current_thread() is not threading.main_thread():  # no handlers run there
        yield
        return
    caught: list[int] = []
    alarm = getattr(signal, "SIGALRM", signal.SIGINT)  # repeats an interrupt in the command line
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, alarm)}
    usual = {number: handler for number, handler in known.items() if callable(handler)}
    # as in the command line, a second signal ends the process
    install = {number: handle_once if hasattr(usual[number], "once") else signal.signal for number in usual}
    for number in usual:
        install[number](number, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        for number, handler in usual.items():
            install[number](number, handler)
        if caught:
            signal.raise_signal(caught[0])


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open a file for reading, with the compression filters that ctapipe and FACT use."""
    h5py = require("h5py", "reading HDF5")
    require("hdf5plugin", "reading HDF5")
    with h5py.File(path, "r", rdcc_nbytes=CHUNK_CACHE) as file:
        yield file


@cache  # searching for a library takes longer than looking up a name in a file
def _h5py() -> Any:
    return require("h5py", "reading HDF5")


def stored_names(group: Any) -> list[str]:
    """Return the names in a group, in order, including links that cannot be followed."""
    check_columns(Path(group.file.filename), len(group.id))
    return sorted(name.decode("utf-8", "surrogateescape") for name in group.id)


def stored_node(file: Any, inside: str) -> Any:
    """Return a group or dataset by its path inside a file or group, None if there is none; no other file is read."""
    h5py = _h5py()
    node = file
    for name in inside.strip("/").split("/"):
        key = name.encode("utf-8", "surrogateescape")
        if not isinstance(node, h5py.Group) or not node.id.links.exists(key):
            return None
        if node.id.links.get_info(key).type != h5py.h5l.TYPE_HARD:
            where = f"{file.file.filename}: {node.name.rstrip('/')}/{name}"
            raise EventFileError(f"{where} is a link; store the data itself")
        node = node[key]
    if isinstance(node, h5py.Dataset) and (node.external or node.is_virtual):
        raise EventFileError(f"{file.file.filename}: {node.name} is stored in another file; store the data itself")
    return node


def stored_table(file: Any, inside: str) -> Any:
    """Return a table by its path in a file; raise EventFileError unless rows are numbers and text of fixed size."""
    table = stored_node(file, inside)
    types = getattr(table, "dtype", None)
    if types is None or types.names is None or table.ndim != 1:
        raise EventFileError(f"{file.filename}: {inside} is not a table, a list of rows with named columns")
    for name in types.names:
        if types[name].base.kind not in _FIXED_SIZE:
            where = f"{file.filename}: the column {name!r} of the table {inside}"
            raise EventFileError(f"{where} has neither numbers nor text of fixed size; write the file without it")
    return table


def read_attribute(node: Any, name: str, default: Any = "") -> Any:
    """Return an attribute if it is a short text or a number; else "", before reading more than that."""
    if name not in node.attrs:
        return default
    # text of variable length is stored elsewhere in the file, and all elements may refer to the same long one
    about = node.attrs.get_id(name)
    if about.get_space().get_simple_extent_npoints() != 1 or about.dtype.itemsize > _LONGEST_ATTRIBUTE:
        return ""
    value = node.attrs[name]
    return value if not isinstance(value, (str, bytes)) or len(value) <= _LONGEST_ATTRIBUTE else ""


def check_sizes(path: Path, datasets: Sequence[Any]) -> None:
    """Raise EventFileError if datasets declare far more than their file can contain."""
    n_bytes = 0
    for dataset in datasets:
        # a chunk is read as a whole, and may be larger than the dataset
        n_rows = max(len(dataset), dataset.chunks[0] if dataset.chunks else 0)
        n_bytes += n_rows * dataset.dtype.itemsize
        filters = dataset.id.get_create_plist()
        codes = [filters.get_filter(number)[0] for number in range(filters.get_nfilters())]
        if sum(code not in _FILTERS_WITHOUT_COMPRESSION for code in codes) > 1:
            raise EventFileError(f"{path}: {dataset.name} is compressed more than once; write it with one compression")
    check_expansion(path, n_bytes)


def read_texts(dataset: Any, part: slice, path: Path) -> NDArray[Any]:
    """Return rows of a text dataset; raise EventFileError if they are far longer than the file."""
    # text of variable length is stored elsewhere in the file, and many rows may refer to a single long one
    texts = dataset.asstr(errors="replace")
    pieces = [np.empty(0, dtype=object)]
    n_letters = 0
    step = max(LARGEST_RATIO, 1)  # rows at once, each at most as long as the file
    for start in range(part.start, part.stop, step):
        pieces.append(texts[start : min(start + step, part.stop)].astype(object))
        n_letters += sum(map(len, pieces[-1]))
        check_expansion(path, n_letters)
    return np.concatenate(pieces)


class WritableHdf5:
    """A new HDF5 file, or a copy of another one."""

    def __init__(self, path: Path, copy_of: Path | None = None) -> None:
        h5py = require("h5py", "writing HDF5")
        if copy_of is not None:
            require("hdf5plugin", "writing HDF5")
            shutil.copyfile(copy_of, path)
        with defer_signals():
            self._raw = ErrorKeepingFile(path, keep=copy_of is not None)
            self.file = h5py.File(self._raw, "w" if copy_of is None else "r+", rdcc_nbytes=CHUNK_CACHE)

    def check(self) -> None:
        """Raise the first error of the disk, if there was one."""
        if self._raw.error is not None:
            raise self._raw.error

    def close(self) -> None:
        """Complete the file."""
        self.file.close()
        self._raw.close()
        self.check()


_GROUP = {"CLASS": "GROUP", "TITLE": "", "VERSION": "1.0"}
_TABLE = {"CLASS": "TABLE", "TITLE": "", "VERSION": "2.7"}
_ROWS_IN_CHUNK = 4096


@contextmanager
def copied_hdf5(path: Path, source: Path) -> Iterator[Any]:
    """Open a copy of a file for writing, and complete it at the end."""
    hdf5 = WritableHdf5(path, source)
    with defer_signals():
        try:
            yield hdf5.file
        finally:
            hdf5.close()


def create_table(file: Any, inside: str, new: np.dtype[Any], n_rows: int, like: Any = None) -> Any:
    """Create a table as PyTables stores it: the columns of another table, if given, and new ones."""
    h5py = require("h5py", "writing HDF5")
    h5t, names = h5py.h5t, new.names or ()
    members = []
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((_ROWS_IN_CHUNK if like is None or not like.chunks else like.chunks[0],))
    if like is not None:
        given, filters = like.id.get_type(), like.id.get_create_plist()
        members = [(given.get_member_name(i), given.get_member_type(i)) for i in range(given.get_nmembers())]
        for number in range(filters.get_nfilters()):
            settings.set_filter(*filters.get_filter(number)[:3])
    # PyTables stores booleans as bit fields
    members += [(name.encode(), h5t.STD_B8LE if new[name].kind == "b" else h5t.py_create(new[name])) for name in names]
    row = h5t.create(h5t.COMPOUND, sum(kind.get_size() for _, kind in members))
    place = 0
    for key, kind in members:
        row.insert(key, place, kind)
        place += kind.get_size()
    parent, _, name = inside.rpartition("/")
    group = create_group(file, parent)
    space = h5py.h5s.create_simple((n_rows,), (h5py.h5s.UNLIMITED,))
    h5py.h5d.create(group.id, name.encode(), row, space, settings)
    dataset = group[name]
    if like is not None:
        copy_attributes(like, dataset)
    for key, text in (_TABLE | {f"FIELD_{i}_NAME": key.decode() for i, (key, _) in enumerate(members)}).items():
        if key not in dataset.attrs:
            set_text(dataset, key, text)
    dataset.attrs["NROWS"] = np.int64(n_rows)
    if "FIELD_0_FILL" in dataset.attrs:  # PyTables requires default values of all columns, or of none
        for number, column in enumerate(names, len(members) - len(names)):
            dataset.attrs[f"FIELD_{number}_FILL"] = np.zeros((), dtype="u1" if new[column].kind == "b" else new[column])
    return dataset


def create_group(file: Any, inside: str) -> Any:
    """Return a group of an open file by its path; missing groups are created."""
    h5py = require("h5py", "writing HDF5")
    group = file
    for name in inside.strip("/").split("/"):
        if name not in group:
            made = group.create_group(name)
            for key, value in _GROUP.items():
                set_text(made, key, value)
        group = group[name]
        if not isinstance(group, h5py.Group):
            raise EventFileError(f"{file.filename}: {group.name} is a table, not a group of tables")
    return group


def set_text(node: Any, name: str, text: str) -> None:
    """Set an attribute to a text that PyTables reads as text, not as bytes."""
    h5py = require("h5py", "writing HDF5")
    stored = text.encode()
    node.attrs.create(name, stored, dtype=h5py.string_dtype("utf-8", max(len(stored), 1)))


def write_history(node: Any, copy: FileCopy) -> None:
    """Store the history of a copy as attributes."""
    for number, line in enumerate(copy.history):
        set_text(node, f"{copy.prefix}_history_{number}", line)


def copy_attributes(source: Any, target: Any) -> None:
    """Copy attributes of a node to another one in stored form: pickles of PyTables are never loaded."""
    h5py = require("h5py", "writing HDF5")
    # references and sequences of variable length are skipped, because their values are pointers
    for name in source.attrs:
        key = name.encode()
        given = h5py.h5a.open(source.id, key)
        if given.dtype.hasobject:
            n_texts = given.get_space().get_simple_extent_npoints()
            if h5py.check_string_dtype(given.dtype) and n_texts <= LARGEST_RATIO:  # each may be as long as the file
                target.attrs[name] = source.attrs[name]
            continue
        stored = given.get_type()
        space = given.get_space()
        values = np.empty(space.get_simple_extent_npoints(), dtype=f"V{stored.get_size()}")
        copied = h5py.h5a.create(target.id, key, stored, space)
        if len(values):
            values = values.reshape(given.shape)
            given.read(values, stored)
            copied.write(values, stored)
