"""Copies of FITS event lists with further columns: rows are widened, all other bytes stay as they are."""

from __future__ import annotations

import gzip
import io
import shutil
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._core.errors import EventFileError
from excess.events._fits_blocks import Header, add_checksums, copy_bytes, open_uncompressed, padding
from excess.events.file_copy import FileCopy

__all__ = ["FitsCopy"]

FORMS = {"b": "L", "i": "K", "u": "K", "f": "D"}
"""Formats of new columns by the kind of their values."""
_STORED = {"L": "S1", "K": ">i8", "D": ">f8"}
_COMPRESSION = 6


class FitsCopy:
    """A copy of a FITS file whose table of events gets further columns, in upper case.

    The file is read from its start to its end while chunks come in, so that a compressed one needs no memory either.
    The number of events that are kept, and checksums, are known at the end only, so the header of the table is written
    twice; where the copy is compressed, it is a temporary file until then.
    """

    def __init__(self, path: Path, first: pd.DataFrame, copy: FileCopy) -> None:
        self._path, self._copy = path, copy
        self._compressed = path.suffix.lower() == ".gz"
        self._exits = ExitStack()
        with self._exits:
            self._source = self._exits.enter_context(open_uncompressed(copy.path))
            plain = TemporaryFile(dir=path.parent) if self._compressed else path.open("w+b")  # noqa: SIM115
            self._file: IO[bytes] = self._exits.enter_context(plain)
            self._start(first)
            self._exits = self._exits.pop_all()  # stays open until `close`

    def _start(self, first: pd.DataFrame) -> None:
        """Copy all that stands before the rows of events, with their header changed."""
        self._header = self._find_events()
        self._n_wanted, self._row_bytes = self._header.number("NAXIS2"), self._header.number("NAXIS1")
        self._n_read = self._n_written = 0
        present = {name.upper() for name in self._header.column_names}
        forms = {name: FORMS[first[name].dtype.kind] for name in first.columns}
        self._dtype = np.dtype([(name, _STORED[form]) for name, form in forms.items()])
        for name, form in forms.items():
            if name.upper() in present:
                raise EventFileError(
                    f"{self._copy.path}: has {name.upper()!r} already, and no column is replaced; choose another name"
                )
            self._header.add_column(name.upper(), form, "added by excess")
        self._header.set("NAXIS1", self._row_bytes + self._dtype.itemsize)
        for line in self._copy.history:
            self._header.add_history(line)
        if self._copy.only is not None:
            selection = self._copy.only.upper()
            self._header.set("EVTSEL", selection, "only events with this column are here")
            self._header.set("EVTALL", self._n_wanted, "number of events before this selection")
            self._header.add_history(f"Only events with {selection} are here.")
        self._place = self._file.tell()
        self._file.write(self._header.to_bytes())

    def _find_events(self) -> Header:
        """Copy all that stands before the table of events; return the header of this one."""
        for _ in range(_number_of_events(self._copy.path)):
            header = Header.read(self._source)
            assert header is not None  # it was there a moment ago
            self._file.write(header.stored)
            size = header.data_size
            copy_bytes(self._source, self._file, size + padding(size), self._copy.path)
        header = Header.read(self._source)
        assert header is not None
        return header

    def append(self, chunk: pd.DataFrame) -> None:
        """Write the next rows with their new columns."""
        if self._n_read + len(chunk) > self._n_wanted:
            raise ValueError(f"more rows than the {self._n_wanted} of the file {self._copy.path}")
        added = np.empty(len(chunk), dtype=self._dtype)
        for name in chunk.columns:
            values = chunk[name].to_numpy()
            added[name] = np.where(values, b"T", b"F") if self._dtype[name].kind == "S" else values
        rows = np.empty((len(chunk), self._row_bytes + self._dtype.itemsize), dtype=np.uint8)
        rows[:, : self._row_bytes] = self._read_rows(len(chunk))
        rows[:, self._row_bytes :] = added.view(np.uint8).reshape(len(chunk), self._dtype.itemsize)
        if self._copy.only is not None:
            rows = rows[chunk[self._copy.only].to_numpy(dtype=bool)]
        self._file.write(rows.tobytes())
        self._n_read += len(chunk)
        self._n_written += len(rows)

    def _read_rows(self, n_rows: int) -> NDArray[np.uint8]:
        data = self._source.read(n_rows * self._row_bytes)
        if len(data) < n_rows * self._row_bytes:
            raise EventFileError(f"{self._copy.path}: the file ends before its table of events does; copy it again")
        return np.frombuffer(data, dtype=np.uint8).reshape(n_rows, self._row_bytes)

    def close(self) -> None:
        """Copy all that follows the rows, and complete the header of the table."""
        with self._exits:
            if self._n_read != self._n_wanted:
                raise ValueError(f"columns of {self._n_read} rows do not fit to a file of {self._n_wanted}")
            self._complete()

    def _complete(self) -> None:
        size, header = self._header.number("PCOUNT"), self._header
        old_size = self._n_wanted * self._row_bytes
        copy_bytes(self._source, self._file, size, self._copy.path)  # values of columns whose length varies
        table_size = self._n_written * header.number("NAXIS1")
        self._file.write(bytes(padding(table_size + size)))
        self._source.read(padding(old_size + size))
        shutil.copyfileobj(self._source, self._file)
        header.set("NAXIS2", self._n_written)
        if header.get("THEAP") is not None:
            header.set("THEAP", header.number("THEAP") - old_size + table_size)
        self._file.seek(self._place)
        self._file.write(header.to_bytes())
        add_checksums(self._file, header, self._place, table_size + size + padding(table_size + size))
        if self._compressed:
            self._file.seek(0)
            # without name and time, so that the same events give the same bytes
            with (
                self._path.open("wb") as target,
                gzip.GzipFile("", "wb", _COMPRESSION, target, mtime=0) as compressed,
            ):
                shutil.copyfileobj(self._file, compressed, io.DEFAULT_BUFFER_SIZE)


def _number_of_events(path: Path) -> int:
    """Return which HDU has the events, counted from 0, by the rules of the reader."""
    with_positions = []
    with open_uncompressed(path) as file:
        number = 0
        while (header := Header.read(file)) is not None:
            if "EVENTS" in (str(header.get("EXTNAME")).upper(), header.get("HDUCLAS1")):
                return number
            if {"RA", "DEC"} <= {name.upper() for name in header.column_names}:
                with_positions.append(number)
            size = header.data_size
            file.seek(size + padding(size), io.SEEK_CUR)
            number += 1
    if not with_positions:
        raise EventFileError(f"{path}: this FITS file has no extension EVENTS; is it complete?")
    return with_positions[0]
