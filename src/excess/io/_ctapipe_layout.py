"""Layout of ctapipe's HDF5 files: tables and their columns, the pointing, array events and telescope images.

Names are those of ctapipe's `TableLoader`. Files are read with h5py alone: pickled attributes are never loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.checks import FloatArray
from excess._utils.errors import EventFileError, require
from excess.io import _files
from excess.io._coordinates import DAY, UNIX_EPOCH, Derivation
from excess.io._files import as_native, check_columns, check_sizes, open_hdf5, stored_names, stored_node, stored_table
from excess.io._images import N_TELESCOPES, ShowerColumn, shower_columns

HIGH_RESOLUTION = "ctao_high_res"  # times as two integers: seconds since 1970 in TAI, and quarters of a nanosecond
_TRANSFORM = ("_TRANSFORM_SCALE", "_TRANSFORM_OFFSET", "_TRANSFORM_DTYPE", "INF_VALUE", "NAN_VALUE")
_ATTRIBUTES = ("_UNIT", "_TIME_FORMAT", *_TRANSFORM)  # suffixes of the attributes that are read
_DESCRIBED = ("UNIT", "TRANSFORM_SCALE", "TIME_FORMAT")  # a column has one of them at least, or none at all
_DEGREES = {"deg": 1.0, "rad": 180 / np.pi}


class FixedPoint(NamedTuple):
    """Floats stored as scaled integers; ``special`` are the integers that represent -inf, NaN and inf."""

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
    """A column of a table: its name in the file, its type, and the encoding of its values."""

    name: str
    dtype: np.dtype[Any]
    fixed_point: FixedPoint | None = None
    is_high_resolution_time: bool = False
    unit: str = ""

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """Type of the decoded values."""
        if self.is_high_resolution_time:
            return np.dtype(np.float64)
        return self.fixed_point.dtype if self.fixed_point else self.dtype

    @property
    def degrees(self) -> float:
        """Factor that converts an angle to degrees."""
        return _DEGREES.get(self.unit, 1.0)

    def of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the values of some rows; times are modified Julian dates in TAI."""
        values = rows[self.name]
        if self.is_high_resolution_time:
            seconds, quarters = (values[:, number].astype(np.float64) for number in (0, 1))
            return UNIX_EPOCH + (seconds + 0.25e-9 * quarters) / DAY
        if self.fixed_point is not None:
            return self.fixed_point.decode(values)
        native = as_native(np.ascontiguousarray(values))
        return native.astype(bool, copy=False) if self.dtype.kind == "b" else native  # a bit field is read as integers


# tables of open files by path: looking one up takes longer than reading a few rows
_opened: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


class StoredTable(NamedTuple):
    """A table of the file: its path inside, its length and its scalar columns by their public names."""

    path: str
    n_rows: int
    fields: dict[str, Field]

    def read(self, file: Any, names: Iterable[str], part: slice = slice(None)) -> NDArray[Any]:
        """Return rows with some columns, by their names in the file or public names."""
        opened = _opened.setdefault(file, {})
        if self.path not in opened:
            opened[self.path] = stored_table(file, self.path)
        stored = dict.fromkeys(self.fields[name].name if name in self.fields else name for name in names)
        start, stop, _ = part.indices(self.n_rows)
        return np.asarray(opened[self.path].fields(list(stored))[start : max(start, stop)])

    def values(self, file: Any, names: Sequence[str], part: slice = slice(None)) -> dict[str, NDArray[Any]]:
        """Return columns of some rows, decoded."""
        rows = self.read(file, names, part)
        return {name: self.fields[name].of(rows) for name in names}

    def without(self, names: Iterable[str]) -> StoredTable:
        """Return the table without some of its columns."""
        left_out = set(names)
        return self._replace(fields={name: field for name, field in self.fields.items() if name not in left_out})

    def check(self, keys: Sequence[str], source: Any) -> None:
        """Raise EventFileError unless the table has the columns that identify its rows."""
        for key in keys:
            if key not in self.fields:
                raise EventFileError(f"{source}: the table {self.path} has no column {key!r}; it may be incomplete")


def find_tables(file: Any, inside: str) -> list[str]:
    """Return the paths of the tables in a group, in order of their names; a table is returned itself."""
    if getattr(stored_node(file, inside), "dtype", None) is not None:
        return [inside] if _is_table(file, inside) else []
    # PyTables keeps its indices next to the tables, in names that start with an underscore.
    paths = [f"{inside}/{name}" for name in _members(file, inside) if not name.startswith("_")]
    return [path for path in paths if _is_table(file, path)]


def _is_table(file: Any, inside: str) -> bool:
    return bool(getattr(getattr(stored_node(file, inside), "dtype", None), "names", None))


def _members(file: Any, inside: str) -> list[str]:
    """Return the names in a group; empty if it does not exist."""
    group = stored_node(file, inside)
    return stored_names(group) if isinstance(group, require("h5py", "reading HDF5").Group) else []


def open_table(file: Any, inside: str) -> StoredTable:
    """Return a table with its scalar columns and its times."""
    h5py = require("h5py", "reading HDF5")
    dataset = stored_table(file, inside)
    stored, types = dataset.id.get_type(), dataset.dtype
    check_sizes(Path(file.filename), [dataset])
    check_columns(Path(file.filename), len(types.names))
    # reading an attribute takes as long as hundreds of rows, and PyTables writes several per column
    attributes = {name: _files.read_attribute(dataset, name) for name in dataset.attrs if name.endswith(_ATTRIBUTES)}
    fields = {}
    for position, name in enumerate(types.names):
        # PyTables stores booleans as bit fields, which h5py reads as integers.
        is_bool = stored.get_member_class(position) == h5py.h5t.BITFIELD
        dtype = np.dtype(bool) if is_bool and not types[name].shape else types[name]
        # Since version 4 of its data model ctapipe names attributes by the position of the column, before by its name.
        prefixes = (f"CTAFIELD_{position}_", f"{name}_")
        prefix = next((one for one in prefixes if any(one + key in attributes for key in _DESCRIBED)), "")
        if dtype.shape == () and dtype.kind in "biufS":
            unit = text_of(attributes.get(f"{prefix}UNIT", "")) if prefix else ""
            fields[name] = Field(name, dtype, _fixed_point(attributes, prefix, dtype), unit=unit)
        elif dtype.shape == (2,) and prefix and text_of(attributes.get(f"{prefix}TIME_FORMAT")) == HIGH_RESOLUTION:
            fields[name] = Field(name, dtype, is_high_resolution_time=True)
    return StoredTable(inside, len(dataset), fields)


def text_of(value: Any) -> str:
    """Return an attribute as text; empty for other types."""
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _fixed_point(attributes: Mapping[str, Any], prefix: str, dtype: np.dtype[Any]) -> FixedPoint | None:
    """Return the scaling of a column, None if it is not scaled."""
    scale = attributes.get(f"{prefix}TRANSFORM_SCALE") if prefix else None
    if scale is None or dtype.kind not in "iu":
        return None
    limits = np.iinfo(dtype)
    lowest = limits.max - 2 if dtype.kind == "u" else limits.min
    codes = (("NEGINF", lowest, -np.inf), ("NAN", lowest + 1, np.nan), ("POSINF", limits.max, np.inf))
    special = {int(attributes.get(f"{prefix}{key}_VALUE", code)): value for key, code, value in codes}
    source = attributes.get(f"{prefix}TRANSFORM_DTYPE", "float32")
    floats = np.dtype(text_of(source) or str(source))
    if floats.kind != "f":
        raise ValueError(f"{prefix}TRANSFORM_DTYPE must be a type of floats, got {floats}")
    return FixedPoint(float(scale), float(attributes.get(f"{prefix}TRANSFORM_OFFSET", 0)), floats, special)


MONITORING = "/dl0/monitoring/telescope/pointing"
FIXED = "/configuration/telescope/pointing"
ARRAY_MONITORING = "/dl1/monitoring/subarray/pointing"
OLD_MONITORING = "/dl1/monitoring/telescope/pointing"
BLOCKS = "/configuration/observation/observation_block"
ALTAZ, ICRS = 0, 1  # frames of the coordinates of an observation block


class TelescopePointing(NamedTuple):
    """Directions of a telescope, at times (modified Julian dates in TAI) or in observations, in the file's unit."""

    key: str
    at: NDArray[Any]
    altitude: FloatArray
    azimuth: FloatArray
    degrees: float

    def of(self, keys: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Return altitude and azimuth at times, by interpolation, or of observations, NaN if unknown."""
        if self.key == "time":
            turned = np.unwrap(self.azimuth, period=360 / self.degrees)
            return np.interp(keys, self.at, self.altitude), np.interp(keys, self.at, turned)
        position = np.clip(np.searchsorted(self.at, keys), 0, len(self.at) - 1)
        known = self.at[position] == keys
        return np.where(known, self.altitude[position], np.nan), np.where(known, self.azimuth[position], np.nan)

    def in_degrees(self, table: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
        """Return altitude and azimuth of the rows of a table."""
        altitude, azimuth = self.of(table[self.key].to_numpy())
        return altitude * self.degrees, azimuth * self.degrees


def telescope_pointings(file: Any) -> dict[int, str]:
    """Return the table with the pointing of each telescope; monitoring comes before fixed directions, as in ctapipe."""
    return _tables(file, MONITORING) or _tables(file, FIXED)


def array_pointing(file: Any) -> Derivation | None:
    """Return the pointing of the array as a computed column, None if unknown."""
    blocks = _blocks(file)
    if blocks is not None and (blocks["frame"] == ICRS).all():
        return Derivation(("pointing_ra", "pointing_dec"), ("obs_id",), partial(_of_block, blocks=blocks))
    paths = [*find_tables(file, ARRAY_MONITORING), *telescope_pointings(file).values()]
    for path in (*paths, *_tables(file, OLD_MONITORING).values()):
        pointing = read_pointing(file, path)
        if pointing is not None:
            return Derivation(("pointing_alt", "pointing_az"), (pointing.key,), pointing.in_degrees)
    if blocks is not None and (blocks["frame"] == ALTAZ).all():
        return Derivation(("pointing_az", "pointing_alt"), ("obs_id",), partial(_of_block, blocks=blocks))
    return None


def read_pointing(file: Any, path: str) -> TelescopePointing | None:
    """Return the directions of a table, None if it lacks a column or is empty."""
    table = open_table(file, path)
    key = "obs_id" if path.startswith(FIXED) else "time"
    ends = (key, "altitude", "azimuth")
    names = [next((name for name in table.fields if f"_{name}".endswith(f"_{end}")), None) for end in ends]
    known = [name for name in names if name is not None]
    if len(known) < len(ends) or table.n_rows == 0:
        return None
    at, altitude, azimuth = table.values(file, known).values()
    order = np.argsort(at, kind="stable")
    altitude, azimuth = (angle[order].astype(np.float64) for angle in (altitude, azimuth))
    return TelescopePointing(key, at[order], altitude, azimuth, table.fields[known[1]].degrees)


def _of_block(table: pd.DataFrame, blocks: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
    known = blocks.reindex(table["obs_id"].to_numpy())
    return known["lon"].to_numpy(dtype=np.float64), known["lat"].to_numpy(dtype=np.float64)


def _blocks(file: Any) -> pd.DataFrame | None:
    """Return the coordinates of observation blocks in deg by obs_id; None if there are none."""
    if stored_node(file, BLOCKS) is None:
        return None
    table = open_table(file, BLOCKS)
    names = {"lon": "subarray_pointing_lon", "lat": "subarray_pointing_lat", "frame": "subarray_pointing_frame"}
    if not {"obs_id", *names.values()} <= set(table.fields) or table.n_rows == 0:
        return None
    found = table.values(file, ["obs_id", *names.values()])
    columns = {short: found[name] * table.fields[name].degrees for short, name in names.items()}
    blocks = pd.DataFrame(columns, index=found["obs_id"])
    blocks = blocks[~blocks.index.duplicated()]
    return blocks if np.isfinite(blocks[["lon", "lat"]]).all(axis=None) else None


def _tables(file: Any, group: str) -> dict[int, str]:
    """Return the tables of a group by the number of their telescope."""
    paths = {path.rpartition("_")[2]: path for path in find_tables(file, group)}
    return {int(number): path for number, path in paths.items() if number.isdigit()}


KEYS = ["obs_id", "event_id"]
TEL_KEYS = (*KEYS, "tel_id")
PARAMETERS = "/dl1/event/telescope/parameters"
TRIGGER = "/dl1/event/subarray/trigger"
TEL_TRIGGER = "/dl1/event/telescope/trigger"
SHOWER = "/simulation/event/subarray/shower"
RECONSTRUCTED = "/dl2/event/subarray"
TEL_RECONSTRUCTED = "/dl2/event/telescope"
TEL_SIMULATED = ("/simulation/event/telescope/parameters", "/simulation/event/telescope/impact")
TELESCOPES = "/configuration/instrument/subarray/layout"
MASK = "tels_with_trigger"
POINTING_COLUMNS = ("telescope_pointing_altitude", "telescope_pointing_azimuth")


class Unit(NamedTuple):
    """Tables of images of one telescope, or of one type: the table whose rows are the images, and further ones."""

    tel_id: int | None
    images: StoredTable
    further: tuple[StoredTable, ...]


@dataclasses.dataclass
class Layout:
    """Tables of a file: array events and tables joined to them by key, and images by telescope."""

    path: Path
    events: StoredTable | None = None  # its rows are the array events, in order
    added: tuple[StoredTable, ...] = ()  # further columns of array events
    units: tuple[Unit, ...] = ()
    trigger: StoredTable | None = None  # triggers of single telescopes, one row per image
    mask: tuple[int, ...] | None = None  # telescopes of the mask of triggered telescopes
    pointings: dict[int, str] = dataclasses.field(default_factory=dict)  # table with the pointing of each telescope
    is_single: bool = False

    @cached_property
    def event_fields(self) -> dict[str, Field]:
        """Columns of array events."""
        fields = {} if self.events is None else dict(self.events.fields)
        for table in self.added:
            fields |= {name: field for name, field in table.fields.items() if name not in fields}
        return fields

    @cached_property
    def image_dtypes(self) -> dict[str, np.dtype[Any]]:
        """Types of the columns of images, without those of array events."""
        first, *others = (unit.images.fields for unit in self.units)
        found = {name: one.dtype for name, one in first.items() if all(name in other for other in others)}
        for name in (name for name, dtype in found.items() if dtype.kind != "S"):
            found[name] = np.result_type(*(fields[name].result_dtype for fields in (first, *others)))
        for unit in self.units:
            for table in unit.further:
                for name, field in table.fields.items():
                    found[name] = np.result_type(found.get(name, field.result_dtype), field.result_dtype)
        if self.trigger is not None:
            found |= {name: field.result_dtype for name, field in self.trigger.fields.items() if name not in found}
        if self.pointings:
            found |= {name: np.dtype(np.float64) for name in POINTING_COLUMNS}
        return found

    @cached_property
    def image_columns(self) -> dict[str, str]:
        """Columns of images by public name: names that array events have as well end in "_mono"."""
        taken = set(self.event_fields) - set(KEYS)
        return {f"{name}_mono" if name in taken else name: name for name in self.image_dtypes}

    @cached_property
    def shower_columns(self) -> dict[str, ShowerColumn]:
        """Columns of array events that are computed from their images."""
        if self.is_single or not self.units:
            return {}
        own = {name: dtype for name, dtype in self.image_dtypes.items() if name not in POINTING_COLUMNS}
        return {name: one for name, one in shower_columns(own).items() if name not in self.event_fields}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns of a row by default."""
        if self.is_single:
            return self.telescope_columns
        aggregated = (N_TELESCOPES, *self.shower_columns) if self.units else ()
        keys = () if self.events is not None else KEYS
        return tuple(dict.fromkeys((*keys, *self.event_fields, *aggregated)))

    @cached_property
    def telescope_columns(self) -> tuple[str, ...]:
        """Columns of images, including those of their array event."""
        return tuple(dict.fromkeys((*self.image_columns, *self.event_fields))) if self.units else ()

    @property
    def n_images(self) -> int:
        """Number of images."""
        return sum(unit.images.n_rows for unit in self.units)

    def degrees(self) -> Mapping[str, float]:
        """Return the factor that converts angles of images to degrees."""
        tables = [table for unit in self.units for table in (unit.images, *unit.further)]
        return {name: field.degrees for table in tables for name, field in table.fields.items() if field.unit}


def data_level(file: Any) -> str | None:
    """Return "DL2" or "DL1" for an open file with tables of events, None for another layout."""
    if any(True for _ in _grouped_tables(file, RECONSTRUCTED)) or any(True for _ in _algorithms(file)):
        return "DL2"
    return "DL1" if find_tables(file, PARAMETERS) else None


def read_layout(path: Path) -> Layout:
    """Return the tables of a file; raise EventFileError if one lacks the columns that identify its rows."""
    state = path.stat()
    return _read_layout(path.absolute(), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)  # a file is described several times before it is read, and has hundreds of attributes
def _read_layout(path: Path, changed: int, size: int) -> Layout:
    with open_hdf5(path) as file:
        events, simulated, triggers = (
            [open_table(file, inside)] if find_tables(file, inside) else [] for inside in (TRIGGER, SHOWER, TEL_TRIGGER)
        )
        simulated = [table for table in simulated if set(KEYS) <= set(table.fields)]
        reconstructed = _reconstructed(file)
        if not events and reconstructed:  # the longest contains all events
            events = [reconstructed.pop(int(np.argmax([table.n_rows for table in reconstructed])))]
        if not events and simulated:
            events = [simulated.pop()]
        added = (*simulated, *reconstructed)
        units = tuple(sorted(_units(file), key=lambda unit: unit.tel_id or 0))
        triggers = [table.without(TEL_KEYS) for table in triggers if set(TEL_KEYS) <= set(table.fields)]
        for table in (*events, *added, *(unit.images for unit in units)):
            table.check(KEYS, path)
        return Layout(
            path=path,
            events=events[0] if events else None,
            added=tuple(table.without(KEYS) for table in added),
            units=units,
            trigger=triggers[0] if triggers else None,
            mask=_mask(file),
            pointings=telescope_pointings(file) if units else {},
            is_single=_is_single(file, units),
        )


def _units(file: Any) -> Iterator[Unit]:
    """Yield the tables of images, by telescope."""
    further = [path for group in (*TEL_SIMULATED, *_algorithms(file)) for path in find_tables(file, group)]
    images = find_tables(file, PARAMETERS)
    if not images:  # predictions without parameters: the first algorithm defines the rows
        names = dict.fromkeys(path.rpartition("/")[2] for path in further if path.startswith(TEL_RECONSTRUCTED))
        images = [next(path for path in further if path.endswith(f"/{name}")) for name in names]
    for path in images:
        leaf = path.rpartition("/")[2]
        tables = [open_table(file, other) for other in further if other.rpartition("/")[2] == leaf and other != path]
        known = open_table(file, path)
        own = {*known.fields, *TEL_KEYS}
        kept = []
        for table in tables:
            if set(TEL_KEYS) <= set(table.fields):
                kept.append(table.without(own))
                own |= set(table.fields)
        number = leaf.removeprefix("tel_")
        yield Unit(int(number) if number.isdigit() else None, known, tuple(table for table in kept if table.fields))


def _is_single(file: Any, units: tuple[Unit, ...]) -> bool:
    """Return whether all images are of one telescope, so there is nothing to aggregate."""
    if len(units) != 1:
        return False
    table, is_known = units[0].images, units[0].tel_id is not None or "tel_id" not in units[0].images.fields
    return is_known or len(np.unique(table.read(file, ["tel_id"])["tel_id"])) < 2


def _mask(file: Any) -> tuple[int, ...] | None:
    """Return the telescopes of the mask of triggers; None if it cannot be interpreted."""
    trigger, telescopes = stored_node(file, TRIGGER), stored_node(file, TELESCOPES)
    if trigger is None or telescopes is None or MASK not in (trigger.dtype.names or ()):
        return None
    if "tel_id" not in (telescopes.dtype.names or ()) or trigger.dtype[MASK].shape != (len(telescopes),):
        return None
    return tuple(open_table(file, TELESCOPES).read(file, ["tel_id"])["tel_id"].tolist())


def _grouped_tables(file: Any, inside: str) -> Iterator[tuple[str, str]]:
    """Return kind and path of the tables in the groups of a group."""
    return ((kind, path) for kind in _members(file, inside) for path in find_tables(file, f"{inside}/{kind}"))


def _algorithms(file: Any) -> Iterator[str]:
    """Return the groups of telescope-wise predictions, one per algorithm, with tables of telescopes."""
    kinds = [f"{TEL_RECONSTRUCTED}/{kind}" for kind in _members(file, TEL_RECONSTRUCTED)]
    paths = [f"{kind}/{name}" for kind in kinds for name in _members(file, kind)]
    return (path for path in paths if _members(file, path) and find_tables(file, path))


def _reconstructed(file: Any) -> list[StoredTable]:
    """Return the DL2 tables; names include the algorithm, and the type of quantity if necessary."""
    used: set[str] = set()
    found = []
    for kind, inside in _grouped_tables(file, RECONSTRUCTED):
        table = open_table(file, inside)
        algorithm = inside.rpartition("/")[2]
        fields = {}
        # output of `excess apply`, which ctapipe calls a prediction
        ours = {f"{algorithm}_score", f"{algorithm}_selected"} <= set(table.fields)
        for name, field in table.fields.items():
            public = name if name in KEYS or name.startswith(algorithm) else f"{algorithm}_{name}"
            public = f"{kind}_{public}" if public in used else public
            is_ours = ours and name == f"{algorithm}_prediction"
            fields[f"{algorithm}_signal_probability" if is_ours else public] = field
        used |= set(fields) - set(KEYS)
        found.append(table._replace(fields=fields))
    return found
