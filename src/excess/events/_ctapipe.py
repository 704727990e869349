"""ctapipe's HDF5 layout: tables of telescope events (DL1) or of array events (DL2), and the simulated truth.

Files are read with h5py alone: attributes that are Python pickles are never loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._core.errors import EventFileError, require
from excess.events._arrays import as_native, slices
from excess.events._bounds import check_columns
from excess.events._derived import Origin
from excess.events._hdf5 import check_sizes, open_hdf5, stored_names, stored_node

__all__ = ["chunks", "columns", "count", "count_array_events", "data_level"]

logger = logging.getLogger("excess.events")

KEYS = ["obs_id", "event_id"]
PARAMETERS = "/dl1/event/telescope/parameters"
TRIGGER = "/dl1/event/subarray/trigger"
SHOWER = "/simulation/event/subarray/shower"
RECONSTRUCTED = "/dl2/event/subarray"
KINDS = ("geometry", "energy", "classification", "particle_type")


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
    """A column as a table of the file holds it."""

    name: str
    dtype: np.dtype[Any]
    fixed_point: FixedPoint | None


class StoredTable(NamedTuple):
    """A table of the file: its path inside, its length and its scalar columns by their public names."""

    path: str
    n_rows: int
    fields: dict[str, Field]


class Layout(NamedTuple):
    """The tables whose rows are the events, one after the other, and those that add columns by key."""

    rows: tuple[StoredTable, ...]
    added: tuple[StoredTable, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that all events have."""
        first, *others = self.rows
        common = [name for name in first.fields if all(name in other.fields for other in others)]
        return tuple(dict.fromkeys([*common, *(name for table in self.added for name in table.fields)]))


def data_level(file: Any) -> str | None:
    """Return "DL2" or "DL1" for an open file with tables of events, None for another layout."""
    if any(_tables_of(file, f"{RECONSTRUCTED}/{kind}") for kind in KINDS):
        return "DL2"
    return "DL1" if _tables_of(file, PARAMETERS) else None


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns."""
    return _layout(path).columns


def count(path: Path) -> int:
    """Return the number of rows: telescope events in DL1, array events in DL2."""
    return sum(table.n_rows for table in _layout(path).rows)


def origin(path: Path) -> Origin:
    """Return what a file says about its events."""
    return Origin(n_array_events=count_array_events(path))


def count_array_events(path: Path) -> int | None:
    """Return the number of triggered array events, or of reconstructed ones where no trigger is stored."""
    with open_hdf5(path) as file:
        trigger = stored_node(file, TRIGGER)
        if trigger is not None:
            return len(trigger)
        level = data_level(file)
    return count(path) if level == "DL2" else None


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    layout = _layout(path)
    in_rows = set(layout.rows[0].fields)
    others = set(names) - in_rows
    needed = [(table, [name for name in names if name in others & set(table.fields)]) for table in layout.added]
    dtypes = _common_dtypes(layout.rows, [name for name in names if name in in_rows])
    with open_hdf5(path) as file:
        lookups: dict[str, pd.DataFrame] = {}
        for table in layout.rows:
            node = stored_node(file, table.path)
            for part in slices(table.n_rows, chunk_rows):
                rows = node[part]
                data = {name: _column(rows, table.fields[name]).astype(dtypes[name], copy=False) for name in dtypes}
                for other, wanted in needed:
                    if wanted:
                        data |= _added_columns(file, other, wanted, rows, part, lookups, path)
                yield pd.DataFrame({name: data[name] for name in names}, copy=False)


def _added_columns(
    file: Any,
    table: StoredTable,
    names: list[str],
    rows: NDArray[Any],
    part: slice,
    lookups: dict[str, pd.DataFrame],
    path: Path,
) -> dict[str, Any]:
    """Return columns of another table for the events of a chunk.

    ctapipe writes the tables of a file event by event, so mostly the same slice fits. Where it does not, the
    columns asked for are held in memory and looked up by key.
    """
    node = stored_node(file, table.path)
    if table.path not in lookups:
        same = node[part]
        if len(same) == len(rows) and all(np.array_equal(same[key], rows[key]) for key in KEYS):
            return {name: _column(same, table.fields[name]) for name in names}
        stored = node[:]
        held = {name: _column(stored, table.fields[name]) for name in names}
        lookup = pd.DataFrame({key: as_native(stored[key]) for key in KEYS} | held).drop_duplicates(KEYS)
        lookups[table.path] = lookup
    keys = pd.DataFrame({key: as_native(rows[key]) for key in KEYS})
    merged = keys.merge(lookups[table.path], on=KEYS, how="left", indicator="_found")
    unmatched = int((merged["_found"] == "left_only").sum())
    if unmatched:
        logger.warning("%s: %d of %d events are not in the table %s", path, unmatched, len(merged), table.path)
        for name in names:
            if table.fields[name].dtype.kind == "b":
                merged[name] = merged[name].fillna(False).astype(bool)
    return {name: merged[name] for name in names}


def _layout(path: Path) -> Layout:
    with open_hdf5(path) as file:
        shower = _stored(file, SHOWER) if stored_node(file, SHOWER) is not None else None
        truth = [shower] if shower and all(key in shower.fields for key in KEYS) else []
        others: list[StoredTable] = []
        if data_level(file) == "DL1":
            found = [_stored(file, inside) for inside in _tables_of(file, PARAMETERS)]
        else:
            others = _reconstructed(file)
            longest = max(range(len(others)), key=lambda number: others[number].n_rows)
            found = [others.pop(longest)]
    for table in (*found, *others):
        for key in KEYS:
            if key not in table.fields:
                raise EventFileError(f"{path}: the table {table.path} has no column {key!r}; is it complete?")
    added = [
        table._replace(fields={name: field for name, field in table.fields.items() if name not in KEYS})
        for table in (*others, *truth)
    ]
    return Layout(tuple(found), tuple(added))


def _reconstructed(file: Any) -> list[StoredTable]:
    """Return the DL2 tables; names carry the algorithm, and the kind of quantity where that is not enough."""
    used: set[str] = set()
    found = []
    for kind in KINDS:
        for inside in _tables_of(file, f"{RECONSTRUCTED}/{kind}"):
            table = _stored(file, inside)
            algorithm = inside.rpartition("/")[2]
            fields = {}
            # what `excess apply` has written: ctapipe calls it a prediction
            ours = {f"{algorithm}_score", f"{algorithm}_selected"} <= set(table.fields)
            for name, field in table.fields.items():
                if ours and name == f"{algorithm}_prediction":
                    fields[f"{algorithm}_signal_probability"] = field
                    continue
                public = name if name in KEYS or name.startswith(algorithm) else f"{algorithm}_{name}"
                public = f"{kind}_{public}" if public in used else public
                fields[public] = field
            used |= set(fields) - set(KEYS)
            found.append(table._replace(fields=fields))
    return found


def _tables_of(file: Any, inside: str) -> list[str]:
    """Return the paths of the tables in a group, in order of their names; a table stands for itself."""
    h5py = require("h5py", "reading HDF5")
    node = stored_node(file, inside)
    if isinstance(node, h5py.Dataset):
        return [inside] if node.dtype.names else []
    if not isinstance(node, h5py.Group):
        return []
    # PyTables keeps its indices beside the tables, in names that start with an underscore.
    paths = [f"{inside}/{name}" for name in stored_names(node) if not name.startswith("_")]
    return [path for path in paths if getattr(getattr(stored_node(file, path), "dtype", None), "names", None)]


def _stored(file: Any, inside: str) -> StoredTable:
    """Return the scalar columns of a table."""
    h5py = require("h5py", "reading HDF5")
    dataset = stored_node(file, inside)
    check_sizes(Path(file.filename), [dataset])
    check_columns(Path(file.filename), len(dataset.dtype.names))
    stored = dataset.id.get_type()
    fields = {}
    for position, name in enumerate(dataset.dtype.names):
        # PyTables keeps booleans as bit fields, which h5py takes for integers.
        is_bool = stored.get_member_class(position) == h5py.h5t.BITFIELD
        dtype = np.dtype(bool) if is_bool and not dataset.dtype[name].shape else dataset.dtype[name]
        if dtype.shape == () and dtype.kind in "biufS":
            fields[name] = Field(name, dtype, _fixed_point(dataset.attrs, position, name, dtype))
    return StoredTable(inside, len(dataset), fields)


def _fixed_point(attributes: Mapping[str, Any], position: int, name: str, dtype: np.dtype[Any]) -> FixedPoint | None:
    """Return how a column is scaled, None where it is stored as it is.

    Since version 4 of its data model ctapipe names these attributes by the position of the column, before that by its
    name.
    """
    for prefix in (f"CTAFIELD_{position}_", f"{name}_"):
        scale = attributes.get(f"{prefix}TRANSFORM_SCALE")
        if scale is None or dtype.kind not in "iu":
            continue
        limits = np.iinfo(dtype)
        unsigned = dtype.kind == "u"
        codes = {
            "NEGINF_VALUE": (limits.max - 2 if unsigned else limits.min, -np.inf),
            "NAN_VALUE": (limits.max - 1 if unsigned else limits.min + 1, np.nan),
            "POSINF_VALUE": (limits.max, np.inf),
        }
        special = {int(attributes.get(prefix + key, code)): value for key, (code, value) in codes.items()}
        source = attributes.get(f"{prefix}TRANSFORM_DTYPE", "float32")
        floats = np.dtype(source.decode() if isinstance(source, bytes) else str(source))
        if floats.kind != "f":
            raise ValueError(f"{prefix}TRANSFORM_DTYPE must be a type of floats, got {floats}")
        return FixedPoint(float(scale), float(attributes.get(f"{prefix}TRANSFORM_OFFSET", 0)), floats, special)
    return None


def _common_dtypes(tables: Sequence[StoredTable], names: list[str]) -> dict[str, Any]:
    """Return one dtype per column that holds the values of all tables: telescopes differ in precision."""
    common = {}
    for name in names:
        fields = [table.fields[name] for table in tables]
        dtypes = [field.fixed_point.dtype if field.fixed_point else field.dtype for field in fields]
        common[name] = object if any(dtype.kind == "S" for dtype in dtypes) else np.result_type(*dtypes)
    return common


def _column(rows: NDArray[Any], field: Field) -> NDArray[Any]:
    values = rows[field.name]
    if field.fixed_point is not None:
        return field.fixed_point.decode(values)
    # h5py returns a bit field as an integer
    return values.astype(bool) if field.dtype.kind == "b" else as_native(np.ascontiguousarray(values))
