"""ctapipe's HDF5 files (DL1 and DL2): array events with statistics of their images, or the images themselves.

Columns have the names that ctapipe's `TableLoader` gives them. Files are read with h5py alone: attributes that are
Python pickles are never loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess.events._ctapipe_images import ImageReader, lookup
from excess.events._ctapipe_layout import KEYS, SHOWER, TELESCOPES, Layout, data_level, read_layout
from excess.events._ctapipe_pointing import array_pointing
from excess.events._ctapipe_tables import StoredTable, text_of
from excess.events._derived import UNIX_TIME, Derivation, Direction, Origin
from excess.events._hdf5 import open_hdf5, stored_node
from excess.events._images import N_TELESCOPES, aggregate, multiplicity, parameters_needed
from excess.events.telescopes import Location, Telescope, find_telescope
from excess.events.times import MJD_RANGE, unix_from_mjd

__all__ = ["chunks", "columns", "count", "count_showers", "data_level", "image_chunks", "origin", "shower_chunks"]

logger = logging.getLogger("excess.events")

MAX_IMAGES = 200_000
"""Images in memory at a time, so that showers with many images need no more than those with few."""
PREFERRED = "HillasReconstructor"
"""The algorithm whose directions become sky positions where there are several, as in ctapipe's own tools."""


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns."""
    return read_layout(path).columns


def count(path: Path) -> int:
    """Return the number of rows: array events, or images where these are all of one telescope."""
    layout = read_layout(path)
    if layout.is_single:
        return layout.n_images
    if layout.events is not None:
        return layout.events.n_rows
    with open_hdf5(path) as file:
        return count_showers(file, layout)


def count_showers(file: Any, layout: Layout) -> int:
    """Return the number of array events by the keys of their images, where they have no table of their own."""
    return len(ImageReader(file, layout, []).event_keys()["obs_id"])


def origin(path: Path) -> Origin:
    """Return what a file says about its events: telescope, location, times, directions and pointing."""
    layout = read_layout(path)
    with open_hdf5(path) as file:
        telescope = _telescope(file)
        pointing = array_pointing(file)
        level = data_level(file)
        simulated = stored_node(file, SHOWER) is not None or (
            text_of(file.attrs.get("CTA PROCESS TYPE", "")).lower() == "simulation"
        )
        location = _location(file) or (None if telescope is None else telescope.location)
    derived = []
    if "time" in layout.event_fields or (layout.is_single and "time" in layout.image_columns):
        derived.append(Derivation((UNIX_TIME,), ("time",), _unix))
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
    """Yield rows in order, at most ``chunk_rows`` at a time, and those of one shower together.

    Rows are images where a column is asked for that only images have, else array events.
    """
    layout = read_layout(path)
    with open_hdf5(path) as file:
        if layout.is_single or not set(names) <= set(layout.columns):
            yield from image_chunks(file, layout, names, chunk_rows)
        elif not layout.units or set(names) <= set(layout.event_fields):
            yield from _events(file, layout, names, chunk_rows)
        else:
            yield from shower_chunks(file, layout, names, chunk_rows)


def _events(file: Any, layout: Layout, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield array events without anything of their images."""
    assert layout.events is not None
    step = max(layout.events.n_rows, 1) if chunk_rows is None else chunk_rows
    events = _EventColumns(file, layout, names)
    for start in range(0, max(layout.events.n_rows, 1), step):
        found = events.read(slice(start, min(start + step, layout.events.n_rows)))
        yield pd.DataFrame({name: found[name] for name in names}, copy=False)


def shower_chunks(file: Any, layout: Layout, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield array events with statistics of their images."""
    wanted = [layout.shower_columns[name] for name in names if name in layout.shower_columns]
    parameters = parameters_needed(wanted, layout.image_dtypes)
    events = _EventColumns(file, layout, [name for name in names if name in layout.event_fields])
    factors = layout.degrees()
    empty = True
    for part in ImageReader(file, layout, parameters).parts(chunk_rows or MAX_IMAGES, MAX_IMAGES):
        n_showers = part.events.stop - part.events.start
        found: dict[str, Any] = dict(part.keys)
        found |= events.read(part.events)
        found |= aggregate(part.columns, part.shower, n_showers, wanted, factors)
        if N_TELESCOPES in names:
            found[N_TELESCOPES] = multiplicity(part.columns, part.shower, n_showers)
        empty = False
        yield pd.DataFrame({name: found[name] for name in names}, copy=False)
    if empty:
        yield pd.DataFrame({name: np.empty(0) for name in names})


def image_chunks(file: Any, layout: Layout, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield images, with what belongs to their array event."""
    stored = [layout.image_columns[name] for name in names if name in layout.image_columns]
    events = _EventColumns(file, layout, [name for name in names if name not in layout.image_columns])
    limit = chunk_rows or MAX_IMAGES
    empty = True
    for part in ImageReader(file, layout, stored).parts(limit, limit):
        of_events = events.read(part.events) if events.names else {}
        found = {name: np.asarray(values)[part.shower] for name, values in of_events.items()}
        for name in names:
            if name in layout.image_columns:
                found[name] = part.columns[layout.image_columns[name]]
        empty = False
        yield pd.DataFrame({name: found[name] for name in names}, copy=False)
    if empty:
        yield pd.DataFrame({name: np.empty(0) for name in names})


class _EventColumns:
    """Columns of array events: of their main table, and of others by key.

    ctapipe writes the tables of a file event by event, so mostly the same slice fits. Where it does not, the columns
    asked for are held in memory and looked up by key.
    """

    def __init__(self, file: Any, layout: Layout, names: Sequence[str]) -> None:
        self.file, self.layout, self.names = file, layout, list(names)
        self._held: dict[str, tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]] = {}

    def read(self, part: slice) -> dict[str, Any]:
        """Return the columns of some events."""
        events = self.layout.events
        if events is None:
            return {}
        rows = events.read(self.file, part)
        found: dict[str, Any] = {name: events.fields[name].of(rows) for name in self.names if name in events.fields}
        for table in self.layout.added:
            wanted = [name for name in self.names if name in table.fields and name not in found]
            if wanted:
                found |= self._added(table, wanted, rows, part)
        return found

    def _added(self, table: StoredTable, names: list[str], rows: NDArray[Any], part: slice) -> dict[str, Any]:
        if table.path not in self._held:
            same = table.read(self.file, part)
            if len(same) == len(rows) and all(np.array_equal(same[key], rows[key]) for key in KEYS):
                return {name: table.fields[name].of(same) for name in names}
            stored = table.read(self.file)
            values = {name: table.fields[name].of(stored) for name in names}
            self._held[table.path] = {key: stored[key] for key in KEYS}, values
        merged = lookup(*self._held[table.path], {key: rows[key] for key in KEYS}, KEYS)
        known = lookup(
            self._held[table.path][0],
            {"known": np.ones(len(self._held[table.path][0]["obs_id"]))},
            {key: rows[key] for key in KEYS},
            KEYS,
        )["known"].notna()
        if not known.all():
            unmatched, path = int((~known).sum()), self.layout.path
            logger.warning("%s: %d of %d events are not in the table %s", path, unmatched, len(merged), table.path)
            for name in names:
                if table.fields[name].dtype.kind == "b":
                    merged[name] = merged[name].eq(True)
        return {name: merged[name].to_numpy() for name in names}


def _unix(table: pd.DataFrame) -> tuple[NDArray[Any]]:
    days = table["time"].to_numpy(dtype=np.float64)
    # simulated events have times that are none, such as 0
    return (unix_from_mjd(np.where((days > MJD_RANGE[0]) & (days < MJD_RANGE[1]), days, np.nan), scale="tai"),)


def _directions(layout: Layout) -> dict[str, Direction]:
    """Return the reconstructed direction that becomes the sky position, and the pointing."""
    found = {"pointing_": Direction("pointing_alt", "pointing_az")}
    known = layout.columns
    pairs = [name.removesuffix("_alt") for name in known if name.endswith("_alt") and f"{name[:-3]}az" in known]
    pairs = [name for name in pairs if name not in ("true", "pointing")]
    if pairs:
        chosen = PREFERRED if PREFERRED in pairs else pairs[0]
        field = layout.event_fields.get(f"{chosen}_alt")
        factor = layout.degrees().get(f"{chosen}_alt", 1.0) if field is None else field.degrees
        return found | {"": Direction(f"{chosen}_alt", f"{chosen}_az", factor)}
    means = [name for name in known if name.endswith("_alt_mean") and f"{name[:-8]}az_mean" in known]
    if means:
        chosen = means[0]
        factor = layout.degrees().get(chosen.removesuffix("_mean"), 1.0)
        return found | {"": Direction(chosen, f"{chosen[:-8]}az_mean", factor)}
    return found


def _telescope(file: Any) -> Telescope | None:
    """Return the site or the array, from the metadata of the file."""
    attributes = dict(getattr(stored_node(file, TELESCOPES), "attrs", {}))
    given = [text_of(file.attrs.get(f"CTA INSTRUMENT {key}", "")) for key in ("SITE", "ID")]
    given += [text_of(attributes.get(key, "")) for key in ("SUBARRAY", "name")]
    found = [telescope for telescope in map(find_telescope, given) if telescope is not None]
    return next((telescope for telescope in found if telescope.location is not None), found[0] if found else None)


def _location(file: Any) -> Location | None:
    node = stored_node(file, TELESCOPES)
    values = [] if node is None else [node.attrs.get(f"reference_itrs_{axis}") for axis in "xyz"]
    if len(values) < 3 or any(value is None for value in values):
        return None
    found = Location.from_geocentric(*(float(value) for value in values if value is not None))
    # ctapipe writes a place on the equator where the location is not known
    return None if abs(found.longitude) < 1e-6 and abs(found.latitude) < 1e-6 else found
