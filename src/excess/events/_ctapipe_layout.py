"""Layout of ctapipe's HDF5 files: the tables of array events and of telescope images, and their columns by public name.

Names are those of ctapipe's `TableLoader`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from excess._core.errors import require
from excess.events._ctapipe_pointing import telescope_pointings
from excess.events._ctapipe_tables import Field, StoredTable, find_tables, open_table
from excess.events._hdf5 import open_hdf5, stored_names, stored_node
from excess.events._images import N_TELESCOPES, ShowerColumn, shower_columns

__all__ = ["KEYS", "TEL_KEYS", "Layout", "Unit", "data_level", "read_layout"]

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
    """Tables of images of one telescope, or of one type: that whose rows are the images, and further ones."""

    tel_id: int | None
    images: StoredTable
    further: tuple[StoredTable, ...]


class Layout:
    """Tables of a file: array events and what is added to them by key, and images by telescope.

    Attributes
    ----------
    path : Path
        The file.
    events : StoredTable or None
        The table whose rows are the array events, in order.
    added : tuple of StoredTable
        Tables with further columns of array events.
    units : tuple of Unit
        Images, by telescope.
    trigger : StoredTable or None
        Triggers of single telescopes, one row per image.
    mask : tuple of int or None
        Telescopes that the mask of triggered telescopes stands for; None if there is no mask.
    pointings : dict of int to str
        Table with the pointing of each telescope.
    """

    def __init__(
        self,
        path: Path,
        events: StoredTable | None,
        added: tuple[StoredTable, ...],
        units: tuple[Unit, ...],
        trigger: StoredTable | None,
        mask: tuple[int, ...] | None,
        pointings: dict[int, str],
        is_single: bool,
    ) -> None:
        self.path, self.events, self.added, self.units = path, events, added, units
        self.trigger, self.mask, self.pointings, self.is_single = trigger, mask, pointings, is_single

    @cached_property
    def event_fields(self) -> dict[str, Field]:
        """Columns of array events."""
        fields = {} if self.events is None else dict(self.events.fields)
        for table in self.added:
            fields |= {name: field for name, field in table.fields.items() if name not in fields}
        return fields

    @cached_property
    def image_dtypes(self) -> dict[str, np.dtype[Any]]:
        """Types of the columns of images, without those of array events.

        A column of the main table of images counts where all telescopes have it; predictions may be of some only.
        """
        first, *others = (unit.images.fields for unit in self.units)
        found = {
            name: np.result_type(*(fields[name].result_dtype for fields in (first, *others)))
            if field.dtype.kind != "S"
            else field.dtype
            for name, field in first.items()
            if all(name in other for other in others)
        }
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
        """Columns of images by public name: one that array events have as well ends with "_mono"."""
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
        """Columns of images, those of their array event included."""
        return tuple(dict.fromkeys((*self.image_columns, *self.event_fields))) if self.units else ()

    @property
    def n_images(self) -> int:
        """Number of images."""
        return sum(unit.images.n_rows for unit in self.units)

    def degrees(self) -> Mapping[str, float]:
        """Return what angles of images have to be multiplied by to get degrees."""
        tables = [table for unit in self.units for table in (unit.images, *unit.further)]
        return {name: field.degrees for table in tables for name, field in table.fields.items() if field.unit}


def data_level(file: Any) -> str | None:
    """Return "DL2" or "DL1" for an open file with tables of events, None for another layout."""
    if any(True for _ in _grouped_tables(file, RECONSTRUCTED)) or any(True for _ in _algorithms(file)):
        return "DL2"
    return "DL1" if find_tables(file, PARAMETERS) else None


def read_layout(path: Path) -> Layout:
    """Return the tables of a file; raise EventFileError where one lacks the columns that identify its rows."""
    state = path.stat()
    return _read_layout(path.absolute(), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)  # a file is described several times before it is read, and has hundreds of attributes
def _read_layout(path: Path, changed: int, size: int) -> Layout:
    with open_hdf5(path) as file:
        events = [open_table(file, TRIGGER)] if find_tables(file, TRIGGER) else []
        simulated = [open_table(file, SHOWER)] if find_tables(file, SHOWER) else []
        simulated = [table for table in simulated if set(KEYS) <= set(table.fields)]
        reconstructed = _reconstructed(file)
        if not events and reconstructed:  # the longest has all events
            longest = max(range(len(reconstructed)), key=lambda number: reconstructed[number].n_rows)
            events = [reconstructed.pop(longest)]
        if not events and simulated:
            events = [simulated.pop()]
        added = (*simulated, *reconstructed)
        units = tuple(sorted(_units(file), key=lambda unit: unit.tel_id or 0))
        trigger = open_table(file, TEL_TRIGGER) if find_tables(file, TEL_TRIGGER) else None
        for table in (*events, *added, *(unit.images for unit in units)):
            table.check(KEYS, path)
        if trigger is not None and not set(TEL_KEYS) <= set(trigger.fields):
            trigger = None
        return Layout(
            path=path,
            events=events[0] if events else None,
            added=tuple(table.without(KEYS) for table in added),
            units=units,
            trigger=None if trigger is None else trigger.without(TEL_KEYS),
            mask=_mask(file),
            pointings=telescope_pointings(file) if units else {},
            is_single=_is_single(file, units),
        )


def _units(file: Any) -> Iterator[Unit]:
    """Yield the tables of images, by telescope."""
    further = [path for group in TEL_SIMULATED for path in find_tables(file, group)] + [
        path for algorithm in _algorithms(file) for path in find_tables(file, algorithm)
    ]
    images = find_tables(file, PARAMETERS)
    if not images:  # predictions without parameters: the first algorithm has the rows
        names = dict.fromkeys(path.rpartition("/")[2] for path in further if path.startswith(TEL_RECONSTRUCTED))
        images = [next(path for path in further if path.endswith(f"/{name}")) for name in names]
    for path in images:
        leaf = path.rpartition("/")[2]
        tables = [open_table(file, other) for other in further if other.rpartition("/")[2] == leaf and other != path]
        known = open_table(file, path)
        own = {*known.fields}
        kept = []
        for table in tables:
            if set(TEL_KEYS) <= set(table.fields):
                kept.append(table.without((own - set(TEL_KEYS)) | set(TEL_KEYS)))
                own |= set(table.fields)
        number = leaf.removeprefix("tel_")
        yield Unit(int(number) if number.isdigit() else None, known, tuple(table for table in kept if table.fields))


def _is_single(file: Any, units: tuple[Unit, ...]) -> bool:
    """Say whether all images are of one telescope, so that there is nothing to aggregate."""
    if len(units) != 1:
        return False
    (unit,) = units
    if unit.tel_id is not None or "tel_id" not in unit.images.fields:
        return True
    return len(np.unique(unit.images.read(file)["tel_id"])) < 2


def _mask(file: Any) -> tuple[int, ...] | None:
    """Return the telescopes of the mask of triggers; None if there is none that can be understood."""
    trigger, telescopes = stored_node(file, TRIGGER), stored_node(file, TELESCOPES)
    if trigger is None or telescopes is None or MASK not in (trigger.dtype.names or ()):
        return None
    if "tel_id" not in (telescopes.dtype.names or ()) or trigger.dtype[MASK].shape != (len(telescopes),):
        return None
    return tuple(open_table(file, TELESCOPES).read(file)["tel_id"].tolist())


def _grouped_tables(file: Any, inside: str) -> Iterator[tuple[str, str]]:
    """Yield kind and path of the tables in the groups of a group."""
    h5py = require("h5py", "reading HDF5")
    group = stored_node(file, inside)
    for kind in stored_names(group) if isinstance(group, h5py.Group) else ():
        for path in find_tables(file, f"{inside}/{kind}"):
            yield kind, path


def _algorithms(file: Any) -> Iterator[str]:
    """Yield the groups of telescope-wise predictions, one per algorithm, that hold tables of telescopes."""
    h5py = require("h5py", "reading HDF5")
    group = stored_node(file, TEL_RECONSTRUCTED)
    for kind in stored_names(group) if isinstance(group, h5py.Group) else ():
        algorithms = stored_node(file, f"{TEL_RECONSTRUCTED}/{kind}")
        for name in stored_names(algorithms) if isinstance(algorithms, h5py.Group) else ():
            path = f"{TEL_RECONSTRUCTED}/{kind}/{name}"
            if isinstance(stored_node(file, path), h5py.Group) and find_tables(file, path):
                yield path


def _reconstructed(file: Any) -> list[StoredTable]:
    """Return the DL2 tables; names carry the algorithm, and the kind of quantity where that is not enough."""
    used: set[str] = set()
    found = []
    for kind, inside in _grouped_tables(file, RECONSTRUCTED):
        table = open_table(file, inside)
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
