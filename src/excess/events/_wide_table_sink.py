"""Copies of HDF5 files in which one table has a row for each event: its rows get further columns."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._core.errors import EventFileError, require
from excess._core.interrupts import defer_interrupts
from excess.events._arrays import event_words
from excess.events._hdf5 import open_hdf5, stored_names, stored_node
from excess.events._pytables import StoredRows, add_members, copy_attributes, create_rows, describe_columns, set_text
from excess.events._writable_hdf5 import WritableHdf5
from excess.events.file_copy import FileCopy

__all__ = ["WideTableCopy"]


class WideTableCopy:
    """A copy whose table of events is written anew, with further columns at the end of each row.

    Other tables, the attributes of the table and its compression stay. Rows are copied as bytes. The table of the copy
    is removed before the new one is written, so that this one takes its place in the file.

    Parameters
    ----------
    path : Path
        The copy.
    first : DataFrame
        The first chunk: new columns, and columns of the file that must agree with its rows.
    copy : FileCopy
        What is copied.
    groups : tuple of str
        Groups of the file; the table is the one in the first of them that the file has.
    keys : tuple of str
        Columns of chunks that the table has too.
    """

    def __init__(
        self, path: Path, first: pd.DataFrame, copy: FileCopy, *, groups: tuple[str, ...], keys: tuple[str, ...]
    ) -> None:
        self._copy, self._keys = copy, keys
        self._n_rows = 0
        with ExitStack() as opened:
            file = opened.enter_context(open_hdf5(copy.path))
            self._inside = _find_table(file, groups, copy.path)
            source = stored_node(file, self._inside)
            self._stored_dtype = source.dtype
            new = [name for name in first.columns if name not in keys]
            for name in new:
                if name in source.dtype.names:
                    raise EventFileError(
                        f"{copy.path}: has {name!r} already, and no column is replaced; choose another name"
                    )
            self._dtype = np.dtype([(name, first[name].dtype) for name in new])
            self._source = StoredRows(source)
            self._hdf5 = WritableHdf5(path, copy.path)
            self._create(source)
            self._opened = opened.pop_all()

    @defer_interrupts()
    def _create(self, source: Any) -> None:
        h5t = require("h5py", "writing HDF5").h5t
        file = self._hdf5.file
        parent, _, name = self._inside.rpartition("/")
        del file[self._inside]
        given = source.id.get_type()
        wide = h5t.create(h5t.COMPOUND, self._source.row_bytes + self._dtype.itemsize)
        for member in range(given.get_nmembers()):
            wide.insert(given.get_member_name(member), given.get_member_offset(member), given.get_member_type(member))
        add_members(wide, self._source.row_bytes, self._dtype)
        dataset = create_rows(file[parent], name, wide, len(self._source), like=source)
        copy_attributes(source, dataset)
        describe_columns(dataset, len(self._source))
        for number, line in enumerate(self._copy.history):
            set_text(dataset, f"{self._copy.prefix}_history_{number}", line)
        self._target = StoredRows(dataset)

    @defer_interrupts()
    def append(self, chunk: pd.DataFrame) -> None:
        """Write the next rows with their new columns."""
        rows, places = self._next_rows(chunk)
        added = np.empty(len(chunk), dtype=self._dtype)
        for name in self._dtype.names or ():
            added[name] = chunk[name].to_numpy()
        wide = np.empty((len(rows), self._target.row_bytes), dtype=np.uint8)
        wide[:, : self._source.row_bytes] = rows
        wide[:, self._source.row_bytes :] = added[places].view(np.uint8).reshape(len(rows), self._dtype.itemsize)
        self._target.write(self._n_rows, wide)
        self._n_rows += len(rows)
        self._hdf5.check()

    def _next_rows(self, chunk: pd.DataFrame) -> tuple[NDArray[np.uint8], Any]:
        """Return the rows of the file that belong to a chunk, and to which of its events each of them does.

        Mostly there is one row for each event. Where rows are images of several telescopes, those of an event follow
        each other.
        """
        n_events = len(chunk)
        stop = min(self._n_rows + n_events + 1, len(self._source))  # one more, which may be of the last event
        rows = self._source.read(self._n_rows, stop)
        stored = self._keys_of(rows)
        same = [np.array_equal(stored[key][:n_events], chunk[key].to_numpy()) for key in self._keys]
        if all(same) and (n_events == 0 or len(rows) == n_events or stored[n_events - 1] != stored[n_events]):
            return rows[:n_events], slice(None)
        events = pd.MultiIndex.from_frame(chunk[list(self._keys)])
        places = self._find(events, stored)
        while len(rows) and (places >= 0).all() and stop < len(self._source):
            start, stop = stop, min(stop + len(chunk), len(self._source))
            more = self._source.read(start, stop)
            rows, places = (
                np.concatenate([rows, more]),
                np.concatenate([places, self._find(events, self._keys_of(more))]),
            )
        n_rows = len(rows) if (places >= 0).all() else int(np.argmax(places < 0))
        missing = set(range(len(chunk))) - set(places[:n_rows].tolist())
        if missing:
            event = event_words(self._keys, events[min(missing)])
            raise EventFileError(
                f"{self._copy.path}: {event} is not where it was expected in {self._inside}; write to a file with the "
                "suffix .parquet"
            )
        return rows[:n_rows], places[:n_rows]

    def _keys_of(self, rows: NDArray[np.uint8]) -> NDArray[Any]:
        return rows.view(self._stored_dtype).reshape(len(rows))[list(self._keys)]

    def _find(self, events: pd.MultiIndex, stored: NDArray[Any]) -> NDArray[np.int64]:
        if not events.is_unique:
            return np.full(len(stored), -1)
        return events.get_indexer(pd.MultiIndex.from_arrays([stored[key] for key in self._keys]))

    @defer_interrupts()
    def close(self) -> None:
        """Complete the file."""
        with self._opened:
            self._hdf5.close()
            if self._n_rows != len(self._source):
                raise ValueError(f"columns of {self._n_rows} rows do not fit to a file of {len(self._source)}")


def _find_table(file: Any, groups: tuple[str, ...], path: Path) -> str:
    """Return the path of the only table in the first group that the file has."""
    h5py = require("h5py", "reading HDF5")
    for inside in groups:
        group = stored_node(file, inside)
        if isinstance(group, h5py.Group):
            # PyTables keeps its indices beside the tables, in names that start with an underscore
            found = [f"{inside}/{name}" for name in stored_names(group) if not name.startswith("_")]
            found = [name for name in found if isinstance(stored_node(file, name), h5py.Dataset)]
            if len(found) == 1:
                return found[0]
            raise EventFileError(
                f"{path}: {inside} has {len(found)} tables, where one was expected; write to a file with the suffix "
                ".parquet"
            )
    raise EventFileError(f"{path}: has no table in {' or '.join(groups)}")
