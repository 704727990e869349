"""ctapipe's HDF5 files (DL1 and DL2): array events with statistics of their images, or the images themselves.

Columns have the names of ctapipe's `TableLoader`. Files are read with h5py alone: pickled attributes are never loaded.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.errors import EventFileError
from excess.io import _coordinates, _ctapipe_layout, _files
from excess.io._coordinates import Derivation, Direction, Location, Origin, Telescope
from excess.io._ctapipe_layout import KEYS, POINTING_COLUMNS, TEL_KEYS, TRIGGER, Layout, StoredTable, read_layout
from excess.io._files import CopySink
from excess.io._images import N_TELESCOPES, aggregate, multiplicity, parameters_needed

logger = logging.getLogger("excess.io")

MAX_IMAGES = 200_000  # maximum number of images in memory at a time, independent of the number of images per shower
PREFERRED = "HillasReconstructor"  # its directions become sky positions if there are several, as in ctapipe
CLASSIFICATION = "/dl2/event/subarray/particle_type"  # group of ctapipe with a table per classifier
_EARLIER = "/dl2/event/subarray/classification"  # its path in earlier versions and in ctapipe's event writer
_DESCRIPTIONS = {
    "obs_id": "ID of the observation",
    "event_id": "ID of the event",
    "prediction": "Signal probability, calibrated on On and Off events",
    "is_valid": "Whether the event passes the quality cuts of the model and has all its features",
    "score": "Score of the model, an estimate of the probability that the event is On",
    "selected": "Whether the score exceeds the threshold of the model",
}

Columns = dict[str, NDArray[Any]]


class Images(NamedTuple):
    """Images of some array events, in their order, and by telescope within an event."""

    events: slice
    keys: Columns
    shower: NDArray[np.intp]
    columns: Columns


class _NotAligned(Exception):  # noqa: N818
    """Tables whose rows do not follow the order of triggers."""


class Joined:
    """Columns of a table for the rows of another one, by key."""

    def __init__(
        self, file: Any, table: StoredTable, names: Sequence[str], by: Sequence[str], *, complete: bool = False
    ) -> None:
        self.file, self.table, self.names, self.by, self.complete = file, table, list(names), list(by), complete
        self._kept: pd.DataFrame | None = None

    def of(self, wanted: Mapping[str, NDArray[Any]], part: slice | None) -> Columns:
        """Return the columns for some keys, which may be those of a slice of the table."""
        if self._kept is None:
            rows = self.table.read(self.file, [*self.by, *self.names], slice(0) if part is None else part)
            if part is not None and _same_keys(rows, wanted, self.by):
                return {name: self.table.fields[name].of(rows) for name in self.names}
            rows = self.table.read(self.file, [*self.by, *self.names])
            kept = {key: rows[key] for key in self.by} | {name: self.table.fields[name].of(rows) for name in self.names}
            self._kept = pd.DataFrame(kept, copy=False).drop_duplicates(self.by)
        found, known = lookup(self._kept, wanted, self.by)
        if not known.all():
            if self.complete:
                number, path = f"{np.count_nonzero(~known)} of {len(known)}", self.table.path
                logger.warning(f"{self.file.filename}: {number} events are not in the table {path}")
            for name in self.names:
                if self.table.fields[name].dtype.kind == "b":
                    found[name] = found[name].eq(True)
        return {name: found[name].to_numpy() for name in self.names}


def lookup(
    kept: pd.DataFrame, wanted: Mapping[str, NDArray[Any]], by: Sequence[str]
) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Return rows of a table for requested keys, missing for unknown keys, and whether they are known."""
    keys = pd.DataFrame({name: np.asarray(wanted[name]) for name in by}, copy=False)
    found = keys.merge(kept, on=list(by), how="left", indicator="_known")
    return found, (found["_known"] == "both").to_numpy()


def _same_keys(rows: NDArray[Any], wanted: Mapping[str, NDArray[Any]], by: Sequence[str]) -> bool:
    return len(rows) == len(wanted[by[0]]) and all(np.array_equal(rows[key], wanted[key]) for key in by)


class ImageReader:
    """Reads images of one file."""

    def __init__(self, file: Any, layout: Layout, names: Sequence[str]) -> None:
        self.file, self.layout = file, layout
        self._pointings: dict[int, _ctapipe_layout.TelescopePointing | None] = {}
        self._tables: dict[str, Joined] = {}
        self.names = [name for name in names if name not in TEL_KEYS]
        self.common = {name: layout.image_dtypes[name] for name in self.names}
        self.of_trigger = [name for name in self.names if layout.trigger is not None and name in layout.trigger.fields]
        if set(self.names) & set(POINTING_COLUMNS) and layout.trigger is not None and "time" not in self.of_trigger:
            self.of_trigger += [name for name in ("time",) if name in layout.trigger.fields]

    def parts(self, max_events: int, max_images: int) -> Iterator[Images]:
        """Yield images, with limited numbers of events and, unless one event has more, of images at a time."""
        start = 0
        mask = self.layout.mask
        if mask is not None and all(unit.tel_id in mask for unit in self.layout.units):
            try:
                for part in self._aligned(max_events, max_images):
                    start = part.events.stop
                    yield part
                return
            except _NotAligned:
                logger.info("%s: tables are not in the order of triggers; reading them at once", self.layout.path)
        yield from self._by_key(start, max_events, max_images)

    def _aligned(self, max_events: int, max_images: int) -> Iterator[Images]:
        events, mask = self.layout.events, self.layout.mask
        assert events is not None
        assert mask is not None
        position = [mask.index(unit.tel_id) for unit in self.layout.units if unit.tel_id is not None]
        offsets = np.zeros(len(mask), dtype=np.int64)
        start = 0
        while start < events.n_rows:
            part = slice(start, start + min(max_events, max_images))
            rows = events.read(self.file, [*KEYS, _ctapipe_layout.MASK], part)
            has_image = _files.as_native(rows[_ctapipe_layout.MASK]).astype(bool, copy=False)
            n_images = np.cumsum(has_image.sum(axis=1))
            stop = max(int(np.searchsorted(n_images, max_images, side="right")), 1)
            rows, has_image = rows[:stop], has_image[:stop]
            keys = {key: events.fields[key].of(rows) for key in KEYS}
            parts, showers = [], []
            for number, unit in zip(position, self.layout.units, strict=True):
                shower = np.flatnonzero(has_image[:, number])
                part = slice(int(offsets[number]), int(offsets[number]) + len(shower))
                parts.append(self._columns_of(unit, part, {key: keys[key][shower] for key in KEYS}))
                showers.append(shower)
            first = int(offsets.sum())
            offsets += has_image.sum(axis=0)
            n_rows = [unit.images.n_rows for unit in self.layout.units]
            if start + stop >= events.n_rows and (offsets[position] != n_rows).any():
                raise _NotAligned
            shower, columns = self._ordered(parts, showers)
            if self.of_trigger:
                columns |= self._triggers().of(columns, slice(first, int(offsets.sum())))
            yield Images(slice(start, start + stop), keys, shower, self._with_pointing(columns))
            start += stop

    def _columns_of(self, unit: _ctapipe_layout.Unit, part: slice, keys: Columns | None) -> Columns:
        """Return the columns of one telescope; raise _NotAligned if its rows have other keys."""
        of_images = [name for name in ("tel_id", *self.names) if name in unit.images.fields]
        rows = unit.images.read(self.file, [*KEYS, *of_images], part)
        if keys is not None and not _same_keys(rows, keys, KEYS):
            raise _NotAligned
        own = {name: unit.images.fields[name].of(rows) for name in (*KEYS, *of_images)}
        if "tel_id" not in own:
            own["tel_id"] = np.full(len(rows), unit.tel_id or 0, dtype=np.int16)
        for table in unit.further:
            if wanted := [name for name in self.names if name in table.fields and name not in own]:
                own |= self._joined(table, wanted, KEYS).of(own, part)
        for name, dtype in self.common.items():
            if name not in own:
                own[name] = np.zeros(len(rows), dtype=bool) if dtype.kind == "b" else np.full(len(rows), np.nan)
        return own

    def _ordered(self, parts: list[Columns], showers: list[NDArray[np.intp]]) -> tuple[NDArray[np.intp], Columns]:
        """Return the images of all telescopes by event."""
        shower = np.concatenate(showers)
        tel_id = np.concatenate([part["tel_id"] for part in parts])
        order = np.lexsort((tel_id, shower))
        names = [name for name in (*KEYS, *self.names) if name in parts[0]]
        columns = {name: np.concatenate([part[name] for part in parts])[order] for name in names}
        return shower[order], {"tel_id": tel_id[order]} | columns

    def _joined(self, table: StoredTable, names: list[str], by: Sequence[str]) -> Joined:
        """Return a table of the file to join columns from, cached."""
        return self._tables.setdefault(table.path, Joined(self.file, table, names, by))

    def _triggers(self) -> Joined:
        assert self.layout.trigger is not None
        return self._joined(self.layout.trigger, self.of_trigger, TEL_KEYS)

    def _with_pointing(self, columns: Columns) -> Columns:
        """Return columns with the pointing of each image's telescope, at the time of its trigger or in its run."""
        if not set(POINTING_COLUMNS) & set(self.names):
            return columns
        both = np.full((2, len(columns["tel_id"])), np.nan)
        for number, path in self.layout.pointings.items():
            rows = np.flatnonzero(columns["tel_id"] == number)
            if number not in self._pointings:
                self._pointings[number] = _ctapipe_layout.read_pointing(self.file, path)
            pointing = self._pointings[number]
            if pointing is not None and pointing.key in columns:
                both[:, rows] = pointing.of(columns[pointing.key][rows])
        return columns | dict(zip(POINTING_COLUMNS, both, strict=True))

    def event_keys(self) -> Columns:
        """Return the identifiers of all array events; those of images, in order, if events have no table."""
        if self.layout.events is not None:
            return self.layout.events.values(self.file, KEYS)
        found = [pd.DataFrame(unit.images.values(self.file, KEYS)) for unit in self.layout.units]
        unique = pd.concat(found).drop_duplicates().sort_values(list(KEYS))
        return {key: unique[key].to_numpy() for key in KEYS}

    def _by_key(self, start: int, max_events: int, max_images: int) -> Iterator[Images]:
        """Yield images of all events from one on, with all columns in memory."""
        keys = self.event_keys()
        n_events = len(keys["obs_id"])
        parts = [self._columns_of(unit, slice(None), None) for unit in self.layout.units]
        events = pd.DataFrame({**keys, "number": np.arange(n_events)}).drop_duplicates(KEYS)
        showers = [lookup(events, part, KEYS)[0]["number"].fillna(-1).to_numpy().astype(np.intp) for part in parts]
        shower, columns = self._ordered(parts, showers)
        lost = int(np.searchsorted(shower, 0))
        if lost:
            logger.warning("%s: %d images belong to no array event", self.layout.path, lost)
        if self.of_trigger:
            columns |= self._triggers().of(columns, None)
        columns = self._with_pointing(columns)
        while start < n_events:
            stop = min(start + min(max_events, max_images), n_events)
            first, last = np.searchsorted(shower, [start, stop])
            if last - first > max_images:
                stop = max(int(shower[first + max_images]), start + 1)
                last = np.searchsorted(shower, stop)
            rows = slice(int(first), int(last))
            own = {name: values[rows] for name, values in columns.items()}
            of_events = {key: values[start:stop] for key, values in keys.items()}
            yield Images(slice(start, stop), of_events, shower[rows] - start, own)
            start = stop


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns."""
    return read_layout(path).columns


def count(path: Path) -> int:
    """Return the number of rows: array events, or images if these are all of one telescope."""
    layout = read_layout(path)
    if layout.is_single:
        return layout.n_images
    if layout.events is not None:
        return layout.events.n_rows
    with _files.open_hdf5(path) as file:
        return count_showers(file, layout)


def count_showers(file: Any, layout: Layout) -> int:
    """Return the number of array events by the keys of their images, if they have no table."""
    return len(ImageReader(file, layout, []).event_keys()["obs_id"])


def origin(path: Path) -> Origin:
    """Return the metadata of a file: telescope, location, times, directions and pointing."""
    layout = read_layout(path)
    with _files.open_hdf5(path) as file:
        telescope = _telescope(file)
        pointing = _ctapipe_layout.array_pointing(file)
        level = _ctapipe_layout.data_level(file)
        process = _ctapipe_layout.text_of(_files.read_attribute(file, "CTA PROCESS TYPE"))
        simulated = _files.stored_node(file, _ctapipe_layout.SHOWER) is not None or process.lower() == "simulation"
        location = _location(file) or (None if telescope is None else telescope.location)
    derived = []
    if "time" in layout.event_fields or (layout.is_single and "time" in layout.image_columns):
        derived.append(Derivation((_coordinates.UNIX_TIME,), ("time",), _unix))
    if pointing is not None and set(pointing.needs) <= set(layout.columns):
        derived.append(pointing)
    return Origin(
        telescope=None if telescope is None else telescope.name,
        location=location,
        data_level=level,
        is_simulated=simulated,
        n_array_events=None if layout.events is None else layout.events.n_rows,
        directions=_directions(layout),
        derivations=tuple(derived),
        telescope_columns=() if layout.is_single else layout.telescope_columns,
        n_images=layout.n_images if layout.units and not layout.is_single else None,
    )


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield rows in order, at most ``chunk_rows`` at a time; rows of one shower are in one chunk."""
    with _files.open_hdf5(path) as file:
        yield from chunks_of(file, read_layout(path), names, chunk_rows)


def chunks_of(file: Any, layout: Layout, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield images if a requested column exists for images only, else array events."""
    if layout.is_single or not set(names) <= set(layout.columns):
        parts = _images(file, layout, names, chunk_rows or MAX_IMAGES)
    elif layout.events is not None and (not layout.units or set(names) <= set(layout.event_fields)):
        events = _EventColumns(file, layout, names)
        parts = map(events.read, _files.slices(layout.events.n_rows, chunk_rows))
    else:
        parts = _showers(file, layout, names, chunk_rows or MAX_IMAGES)
    found = None
    for found in parts:
        yield pd.DataFrame({name: found[name] for name in names}, copy=False)
    if found is None:
        yield pd.DataFrame({name: np.empty(0) for name in names})


def _showers(file: Any, layout: Layout, names: Sequence[str], limit: int) -> Iterator[dict[str, Any]]:
    """Yield columns of array events with statistics of their images."""
    wanted = [layout.shower_columns[name] for name in names if name in layout.shower_columns]
    parameters = parameters_needed(wanted, layout.image_dtypes)
    events = _EventColumns(file, layout, [name for name in names if name in layout.event_fields])
    factors = layout.degrees()
    for part in ImageReader(file, layout, parameters).parts(limit, MAX_IMAGES):
        n_showers = part.events.stop - part.events.start
        found = part.keys | events.read(part.events)
        found |= aggregate(part.columns, part.shower, n_showers, wanted, factors)
        if N_TELESCOPES in names:
            found[N_TELESCOPES] = multiplicity(part.columns, part.shower, n_showers)
        yield found


def _images(file: Any, layout: Layout, names: Sequence[str], limit: int) -> Iterator[dict[str, Any]]:
    """Yield columns of images, with columns of their array event."""
    own = {name: layout.image_columns[name] for name in names if name in layout.image_columns}
    events = _EventColumns(file, layout, [name for name in names if name not in own])
    for part in ImageReader(file, layout, list(own.values())).parts(limit, limit):
        of_events = events.read(part.events) if events.names else {}
        found = {name: np.asarray(values)[part.shower] for name, values in of_events.items()}
        yield found | {name: part.columns[stored] for name, stored in own.items()}


class _EventColumns:
    """Columns of array events: of their main table, and of others by key."""

    def __init__(self, file: Any, layout: Layout, names: Sequence[str]) -> None:
        self.file, self.events, self.names = file, layout.events, list(names)
        found = set() if self.events is None else set(self.events.fields)
        self._added = []
        for table in layout.added:
            if wanted := [name for name in names if name in table.fields and name not in found]:
                found |= set(wanted)
                self._added.append(Joined(file, table, wanted, KEYS, complete=True))

    def read(self, part: slice) -> dict[str, Any]:
        """Return the columns of some events."""
        if self.events is None:
            return {}
        own = [name for name in self.names if name in self.events.fields]
        rows = self.events.read(self.file, [*KEYS, *own], part)
        found: dict[str, Any] = {name: self.events.fields[name].of(rows) for name in own}
        for joined in self._added:
            found |= joined.of({key: rows[key] for key in KEYS}, part)
        return found


def _unix(table: pd.DataFrame) -> tuple[NDArray[Any]]:
    days = table["time"].to_numpy(dtype=np.float64)
    low, high = _coordinates.MJD_RANGE  # simulated events have invalid times, such as 0
    return (_coordinates.unix_from_mjd(np.where((days > low) & (days < high), days, np.nan), scale="tai"),)


def _directions(layout: Layout) -> dict[str, Direction]:
    """Return the reconstructed direction used as sky position, and the pointing."""
    found = {"pointing_": Direction("pointing_alt", "pointing_az")}
    known = layout.columns
    for end in ("", "_mean"):
        names = [name.removesuffix(f"_alt{end}") for name in known if name.endswith(f"_alt{end}")]
        pairs = [name for name in names if f"{name}_az{end}" in known and name not in ("true", "pointing")]
        if pairs:
            chosen = PREFERRED if PREFERRED in pairs else pairs[0]
            field = layout.event_fields.get(f"{chosen}_alt{end}")
            factor = layout.degrees().get(f"{chosen}_alt", 1.0) if field is None else field.degrees
            return found | {"": Direction(f"{chosen}_alt{end}", f"{chosen}_az{end}", factor)}
    return found


def _telescope(file: Any) -> Telescope | None:
    """Return the site or the array, from the metadata of the file."""
    table = _files.stored_node(file, _ctapipe_layout.TELESCOPES)
    given = [_ctapipe_layout.text_of(_files.read_attribute(file, f"CTA INSTRUMENT {key}")) for key in ("SITE", "ID")]
    if table is not None:
        given += [_ctapipe_layout.text_of(_files.read_attribute(table, key)) for key in ("SUBARRAY", "name")]
    found = [telescope for telescope in map(_coordinates.find_telescope, given) if telescope is not None]
    return next((telescope for telescope in found if telescope.location is not None), found[0] if found else None)


def _location(file: Any) -> Location | None:
    node = _files.stored_node(file, _ctapipe_layout.TELESCOPES)
    values = [None if node is None else _files.read_attribute(node, f"reference_itrs_{axis}", None) for axis in "xyz"]
    if any(value is None for value in values):
        return None
    found = Location.from_geocentric(*(float(value) for value in values if value is not None))
    # ctapipe writes a location on the equator if it is unknown
    return None if abs(found.longitude) < 1e-6 and abs(found.latitude) < 1e-6 else found


class CtapipeCopy(CopySink):
    """A copy with the additional table ``/dl2/event/subarray/particle_type/<prefix>``."""

    def check(self, first: pd.DataFrame) -> None:
        """Raise EventFileError if the file already has the table, or no readable table of triggers."""
        self._inside = f"{CLASSIFICATION}/{self.copy.prefix}"
        with _files.open_hdf5(self.copy.path) as file:
            for inside in (self._inside, f"{_EARLIER}/{self.copy.prefix}"):
                if _files.stored_node(file, inside) is not None:
                    raise EventFileError(f"{self.copy.path}: already has a table {inside}; choose another prefix")
            if _files.stored_node(file, TRIGGER) is not None:
                _files.stored_table(file, TRIGGER)

    def write(self, table: pd.DataFrame) -> None:
        """Write the copy, with the scores of events in their rows."""
        prefix = self.copy.prefix
        # ctapipe calls the signal probability a prediction
        names = {n: n.replace("_signal_probability", "_prediction") for n in map(str, table) if n not in KEYS}
        floats = [name for name in names if table[name].dtype.kind == "f"]
        table = table.assign(**{f"{prefix}_is_valid": np.isfinite(table[floats].to_numpy()).all(axis=1)})
        names[f"{prefix}_is_valid"] = f"{prefix}_is_valid"
        with _files.copied_hdf5(self.path, self.copy.path) as file:
            places: Any = slice(None)
            keys: Any = table[KEYS].to_records(index=False)
            if _files.stored_node(file, TRIGGER) is not None:
                keys = _files.stored_table(file, TRIGGER).fields(KEYS)[:]
                if len(keys) != len(table) or any((keys[key] != table[key].to_numpy()).any() for key in KEYS):
                    # others have no scores, such as images of telescopes rejected by the quality cuts
                    table = table[table[f"{prefix}_is_valid"]]
                    places = self._find(table, keys)
            columns = [(key, keys.dtype[key]) for key in KEYS]
            columns += [(stored, table[name].dtype) for name, stored in names.items()]
            dataset = _files.create_table(file, self._inside, np.dtype(columns), len(keys))
            rows = np.zeros(len(keys), dtype=dataset.dtype)
            for key in KEYS:
                rows[key] = keys[key]
            for name, stored in names.items():
                if name in floats:
                    rows[stored] = np.nan
                rows[stored][places] = table[name].to_numpy()
            dataset[:] = rows
            for number, (stored, _) in enumerate(columns):
                text = _DESCRIPTIONS.get(stored.removeprefix(f"{prefix}_"), "")
                _files.set_text(dataset, f"CTAFIELD_{number}_DESC", text)
            _files.write_history(dataset, self.copy)

    def _find(self, table: pd.DataFrame, keys: NDArray[Any]) -> NDArray[np.intp]:
        """Return the rows of events in the table of triggers."""
        known = pd.MultiIndex.from_arrays([keys[key] for key in KEYS], names=KEYS)
        given = pd.MultiIndex.from_frame(table[KEYS])
        for index, problem in (
            (known[known.duplicated()], f"is twice in {TRIGGER}, so the row of its score is ambiguous"),
            (given[~given.isin(known)], f"is not in {TRIGGER}; the file may be incomplete"),
            (given[given.duplicated()], "has several rows with a score; write to a file with the suffix .parquet"),
        ):
            if len(index):
                raise EventFileError(f"{self.copy.path}: {_files.event_words(KEYS, index[0])} {problem}")
        return known.get_indexer(given)
