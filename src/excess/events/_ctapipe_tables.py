"""Tables of ctapipe's HDF5 files: their columns with units and transformations, read by slices of rows.

Files are read with h5py alone: attributes that are Python pickles are never loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from excess._core.errors import EventFileError, require
from excess.events._arrays import as_native
from excess.events._bounds import check_columns
from excess.events._hdf5 import check_sizes, stored_names, stored_node
from excess.events.times import DAY, UNIX_EPOCH

__all__ = ["Field", "FixedPoint", "StoredTable", "common_dtypes", "find_tables", "open_table", "text_of"]

HIGH_RESOLUTION = "ctao_high_res"
"""Times as two integers: seconds since 1970 in TAI, and quarters of a nanosecond."""
_ATTRIBUTES = (
    "_UNIT",
    "_TRANSFORM_SCALE",
    "_TRANSFORM_OFFSET",
    "_TRANSFORM_DTYPE",
    "_TIME_FORMAT",
    "INF_VALUE",
    "NAN_VALUE",
)
_DEGREES = {"deg": 1.0, "rad": 180 / np.pi}


class FixedPoint(NamedTuple):
    """Floats that are stored as scaled integers; ``special`` gives the integers that stand for -inf, NaN and inf."""

    scale: float
    offset: float
    dtype: np.dtype[Any]
    special: dict[int, float]

    def decode(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Return the floats."""
        values = (stored.astype(self.dtype) - self.dtype.type(self.offset)) / self.dtype.type(self.scale)
        for code, meaning in self.special.items():
            values[stored == code] = meaning
        return values


class Field(NamedTuple):
    """A column as a table of the file holds it: its name there, its type, and how its values are stored."""

    name: str
    dtype: np.dtype[Any]
    fixed_point: FixedPoint | None = None
    is_high_resolution_time: bool = False
    unit: str = ""

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """Type of the values that are read."""
        if self.is_high_resolution_time:
            return np.dtype(np.float64)
        return self.fixed_point.dtype if self.fixed_point else self.dtype

    @property
    def degrees(self) -> float:
        """What to multiply an angle by to get degrees."""
        return _DEGREES.get(self.unit, 1.0)

    def of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the values of some rows; times are modified Julian dates in TAI."""
        values = rows[self.name]
        if self.is_high_resolution_time:
            seconds, quarters = (values[:, number].astype(np.float64) for number in (0, 1))
            return UNIX_EPOCH + (seconds + 0.25e-9 * quarters) / DAY
        if self.fixed_point is not None:
            return self.fixed_point.decode(values)
        # a bit field is read as an integer
        return values.astype(bool) if self.dtype.kind == "b" else as_native(np.ascontiguousarray(values))


class _Handle(NamedTuple):
    """An open table with what is needed for reading, because each of it takes longer than reading a few rows."""

    dataset: Any
    dtype: np.dtype[Any]
    stored_type: Any
    space: Any
    make_space: Any

    def read(self, start: int, n_rows: int) -> NDArray[Any]:
        """Return rows from one on."""
        rows = np.empty(n_rows, dtype=self.dtype)
        if n_rows:
            # With the type of the file in memory as well, HDF5 copies rows as they are; conversion would take longer.
            self.space.select_hyperslab((start,), (n_rows,))
            self.dataset.id.read(self.make_space((n_rows,)), self.space, rows, self.stored_type)
        return rows


_handles: WeakKeyDictionary[Any, dict[str, _Handle]] = WeakKeyDictionary()


def _handle(file: Any, path: str) -> _Handle:
    """Return an open table of an open file, the same one in each call."""
    known = _handles.setdefault(file, {})
    if path not in known:
        dataset = stored_node(file, path)
        make_space = require("h5py", "reading HDF5").h5s.create_simple
        known[path] = _Handle(dataset, dataset.dtype, dataset.id.get_type(), dataset.id.get_space(), make_space)
    return known[path]


class StoredTable(NamedTuple):
    """A table of the file: its path inside, its length and its scalar columns by their public names."""

    path: str
    n_rows: int
    fields: dict[str, Field]

    def read(self, file: Any, part: slice = slice(None)) -> NDArray[Any]:
        """Return rows as the file stores them."""
        start, stop, _ = part.indices(self.n_rows)
        return _handle(file, self.path).read(start, max(stop - start, 0))

    def without(self, names: Iterable[str]) -> StoredTable:
        """Return the table without some of its columns."""
        left_out = set(names)
        return self._replace(fields={name: field for name, field in self.fields.items() if name not in left_out})

    def check(self, keys: Sequence[str], source: Any) -> None:
        """Raise EventFileError unless the table has the columns that identify its rows."""
        for key in keys:
            if key not in self.fields:
                raise EventFileError(f"{source}: the table {self.path} has no column {key!r}; is it complete?")


def find_tables(file: Any, inside: str) -> list[str]:
    """Return the paths of the tables in a group, in order of their names; a table stands for itself."""
    h5py = require("h5py", "reading HDF5")
    node = stored_node(file, inside)
    if isinstance(node, h5py.Dataset):
        return [inside] if node.dtype.names else []
    if not isinstance(node, h5py.Group):
        return []
    # PyTables keeps its indices beside the tables, in names that start with an underscore.
    names = [name for name in stored_names(node) if not name.startswith("_")]
    return [
        f"{inside}/{name}" for name in names if getattr(getattr(stored_node(node, name), "dtype", None), "names", None)
    ]


def open_table(file: Any, inside: str) -> StoredTable:
    """Return a table with its scalar columns and its times."""
    h5py = require("h5py", "reading HDF5")
    dataset = stored_node(file, inside)
    stored, types = dataset.id.get_type(), dataset.dtype
    check_sizes(Path(file.filename), [dataset])
    check_columns(Path(file.filename), len(types.names))
    # reading an attribute takes as long as reading hundreds of rows, and PyTables writes several for each column
    attributes = {name: dataset.attrs[name] for name in dataset.attrs if name.endswith(_ATTRIBUTES)}
    fields = {}
    for position, name in enumerate(types.names):
        # PyTables keeps booleans as bit fields, which h5py takes for integers.
        is_bool = stored.get_member_class(position) == h5py.h5t.BITFIELD
        dtype = np.dtype(bool) if is_bool and not types[name].shape else types[name]
        # Since version 4 of its data model ctapipe names attributes by the position of the column, before by its name.
        prefix = next((one for one in (f"CTAFIELD_{position}_", f"{name}_") if _describes(attributes, one)), "")
        if dtype.shape == () and dtype.kind in "biufS":
            unit = text_of(attributes.get(f"{prefix}UNIT", "")) if prefix else ""
            fields[name] = Field(name, dtype, _fixed_point(attributes, prefix, dtype), unit=unit)
        elif dtype.shape == (2,) and prefix and text_of(attributes.get(f"{prefix}TIME_FORMAT")) == HIGH_RESOLUTION:
            fields[name] = Field(name, dtype, is_high_resolution_time=True)
    return StoredTable(inside, len(dataset), fields)


def text_of(value: Any) -> str:
    """Return an attribute as text; nothing for one that is no text."""
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def common_dtypes(tables: Sequence[StoredTable], names: Iterable[str]) -> dict[str, Any]:
    """Return one dtype per column that holds the values of all tables: telescopes differ in precision."""
    common = {}
    for name in names:
        dtypes = [table.fields[name].result_dtype for table in tables]
        common[name] = object if any(dtype.kind == "S" for dtype in dtypes) else np.result_type(*dtypes)
    return common


def _describes(attributes: Mapping[str, Any], prefix: str) -> bool:
    return any(prefix + key in attributes for key in ("UNIT", "TRANSFORM_SCALE", "TIME_FORMAT"))


def _fixed_point(attributes: Mapping[str, Any], prefix: str, dtype: np.dtype[Any]) -> FixedPoint | None:
    """Return how a column is scaled, None where it is stored as it is."""
    scale = attributes.get(f"{prefix}TRANSFORM_SCALE") if prefix else None
    if scale is None or dtype.kind not in "iu":
        return None
    limits = np.iinfo(dtype)
    unsigned = dtype.kind == "u"
    codes = {
        "NEGINF_VALUE": (limits.max - 2 if unsigned else limits.min, -np.inf),
        "NAN_VALUE": (limits.max - 1 if unsigned else limits.min + 1, np.nan),
        "POSINF_VALUE": (limits.max, np.inf),
    }
    special = {int(attributes.get(prefix + key, code)): value for key, (code, value) in codes.items()}
    source = attributes.get(f"{prefix}TRANSFORM_DTYPE", "float32")
    floats = np.dtype(text_of(source) or str(source))
    if floats.kind != "f":
        raise ValueError(f"{prefix}TRANSFORM_DTYPE must be a type of floats, got {floats}")
    return FixedPoint(float(scale), float(attributes.get(f"{prefix}TRANSFORM_OFFSET", 0)), floats, special)
