"""Tables as PyTables stores them, written with h5py: rows of bytes, booleans as bit fields, names as attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core.errors import EventFileError, require

__all__ = [
    "StoredRows",
    "add_members",
    "copy_attributes",
    "create_group",
    "create_rows",
    "describe_columns",
    "row_type",
]

_GROUP = {"CLASS": "GROUP", "TITLE": "", "VERSION": "1.0"}
_TABLE = {"CLASS": "TABLE", "TITLE": "", "VERSION": "2.7"}
_ROWS_IN_CHUNK = 4096


class StoredRows:
    """Rows of a table of an open file, read and written as they are stored, without any conversion."""

    def __init__(self, dataset: Any) -> None:
        self._id = dataset.id
        self._type = self._id.get_type()
        self.row_bytes = int(self._type.get_size())

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._id.shape[0])

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Return rows as an array of bytes, a line for each."""
        rows = np.empty((stop - start, self.row_bytes), dtype=np.uint8)
        if stop > start:
            memory, stored = self._spaces(start, stop)
            self._id.read(memory, stored, self._as_rows(rows), self._type)
        return rows

    def write(self, start: int, rows: NDArray[np.uint8]) -> None:
        """Write rows, given as an array of bytes with a line for each."""
        if len(rows):
            memory, stored = self._spaces(start, start + len(rows))
            self._id.write(memory, stored, self._as_rows(np.ascontiguousarray(rows)), self._type)

    def _as_rows(self, rows: NDArray[np.uint8]) -> NDArray[Any]:
        return rows.view(f"V{self.row_bytes}").reshape(len(rows))

    def _spaces(self, start: int, stop: int) -> tuple[Any, Any]:
        h5s = require("h5py", "writing HDF5").h5s
        stored = self._id.get_space()
        stored.select_hyperslab((start,), (stop - start,))
        return h5s.create_simple((stop - start,)), stored


def row_type(dtype: np.dtype[Any]) -> Any:
    """Return how HDF5 stores rows of a structured type, given as in NumPy."""
    h5t = require("h5py", "writing HDF5").h5t
    return add_members(h5t.create(h5t.COMPOUND, dtype.itemsize), 0, dtype)


def add_members(compound: Any, start: int, dtype: np.dtype[Any]) -> Any:
    """Add the fields of a structured type to a type of rows, from a place in each row on; return it."""
    h5t = require("h5py", "writing HDF5").h5t
    for name in dtype.names or ():
        field, offset, *_ = dtype.fields[name]  # type: ignore[index]
        # PyTables keeps booleans as bit fields
        member = h5t.STD_B8LE if field == np.bool_ else h5t.py_create(field)
        compound.insert(name.encode(), start + offset, member)
    return compound


def create_group(file: Any, inside: str) -> Any:
    """Return a group of an open file by its path; those that are not there are made."""
    h5py = require("h5py", "writing HDF5")
    group = file
    for name in inside.strip("/").split("/"):
        if name not in group:
            made = group.create_group(name)
            for key, value in _GROUP.items():
                set_text(made, key, value)
        group = group[name]
        if not isinstance(group, h5py.Group):
            raise EventFileError(f"{file.filename}: {group.name} is a table, where a group of tables should be")
    return group


def create_rows(group: Any, name: str, stored_type: Any, n_rows: int, like: Any = None) -> Any:
    """Create a table in a group and return its dataset; it is stored in pieces and compressed as another one."""
    h5py = require("h5py", "writing HDF5")
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    chunk_rows = _ROWS_IN_CHUNK
    if like is not None:
        given = like.id.get_create_plist()
        chunk_rows = like.chunks[0] if like.chunks else _ROWS_IN_CHUNK
        for number in range(given.get_nfilters()):
            code, flags, values, _ = given.get_filter(number)
            settings.set_filter(code, flags, values)
    settings.set_chunk((chunk_rows,))
    space = h5py.h5s.create_simple((n_rows,), (h5py.h5s.UNLIMITED,))
    h5py.h5d.create(group.id, name.encode(), stored_type, space, settings)
    return group[name]


def describe_columns(dataset: Any, n_rows: int) -> None:
    """Set the attributes by which PyTables knows a table and its columns; those that are there stay."""
    h5py = require("h5py", "writing HDF5")
    names = dataset.dtype.names
    wanted = _TABLE | {f"FIELD_{number}_NAME": name for number, name in enumerate(names)}
    for key, value in wanted.items():
        if key not in dataset.attrs:
            set_text(dataset, key, value)
    dataset.attrs["NROWS"] = np.int64(n_rows)
    rows = dataset.id.get_type()
    for number in range(len(names)):
        key = f"FIELD_{number}_FILL"
        if key not in dataset.attrs:  # the default value of a column: PyTables wants it for all of them, or for none
            member = rows.get_member_type(number)
            attribute = h5py.h5a.create(dataset.id, key.encode(), member, h5py.h5s.create(h5py.h5s.SCALAR))
            attribute.write(np.zeros((), dtype=f"V{member.get_size()}"), member)


def set_text(node: Any, name: str, text: str) -> None:
    """Set an attribute to a text that PyTables takes for one, and not for bytes."""
    h5py = require("h5py", "writing HDF5")
    stored = text.encode()
    node.attrs.create(name, stored, dtype=h5py.string_dtype("utf-8", max(len(stored), 1)))


def copy_attributes(source: Any, target: Any) -> None:
    """Copy all attributes of a node to another one, as they are stored: pickles of PyTables are never loaded."""
    h5py = require("h5py", "writing HDF5")
    for name in source.attrs:
        key = name.encode()
        given = h5py.h5a.open(source.id, key)
        stored = given.get_type()
        if stored.detect_class(h5py.h5t.VLEN) or getattr(stored, "is_variable_str", lambda: False)():
            target.attrs[name] = source.attrs[name]
            continue
        space = given.get_space()
        values = np.empty(space.get_simple_extent_npoints(), dtype=f"V{stored.get_size()}")
        copied = h5py.h5a.create(target.id, key, stored, space)
        if len(values):
            values = values.reshape(given.shape)
            given.read(values, stored)
            copied.write(values, stored)
