"""Images of ctapipe's HDF5 files: tables of all telescopes side by side, shower after shower, in bounded memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess.events._ctapipe_layout import KEYS, MASK, POINTING_COLUMNS, TEL_KEYS, Layout, Unit
from excess.events._ctapipe_pointing import TelescopePointing, read_pointing
from excess.events._ctapipe_tables import StoredTable

__all__ = ["ImageReader", "Images", "lookup"]

logger = logging.getLogger("excess.events")

Columns = dict[str, NDArray[Any]]


class Images(NamedTuple):
    """Images of some array events, in their order, and by telescope within an event.

    ``events`` are the numbers of the first event and of that after the last, ``keys`` their identifiers, and ``shower``
    the number of each image's event, counted from the first.
    """

    events: slice
    keys: Columns
    shower: NDArray[np.intp]
    columns: Columns


class _NotAligned(Exception):  # noqa: N818
    """Tables whose rows do not follow the order of triggers."""


class ImageReader:
    """Reads images of one file.

    ctapipe writes the images of a telescope in the order of array events, and the mask of triggers says which events
    have one. So the rows of an event are where the masks of all events before it say, which is checked by the
    identifiers. Where that fails, the columns asked for are held in memory and ordered by key.
    """

    def __init__(self, file: Any, layout: Layout, names: Sequence[str]) -> None:
        self.file, self.layout = file, layout
        self._pointings: dict[int, TelescopePointing | None] = {}
        self.names = [name for name in names if name not in TEL_KEYS]
        self.common = {name: layout.image_dtypes[name] for name in self.names}
        self.of_trigger = [name for name in self.names if layout.trigger is not None and name in layout.trigger.fields]
        if set(self.names) & set(POINTING_COLUMNS) and layout.trigger is not None and "time" not in self.of_trigger:
            self.of_trigger += [name for name in ("time",) if name in layout.trigger.fields]

    def parts(self, max_events: int, max_images: int) -> Iterator[Images]:
        """Yield images, at most so many events and, unless one event alone has more, so many images at a time."""
        start = 0
        if self._may_be_aligned():
            try:
                for part in self._aligned(max_events, max_images):
                    start = part.events.stop
                    yield part
                return
            except _NotAligned:
                logger.info("%s: tables are not in the order of triggers; they are read at once", self.layout.path)
        yield from self._by_key(start, max_events, max_images)

    def _may_be_aligned(self) -> bool:
        mask, units = self.layout.mask, self.layout.units
        return mask is not None and all(unit.tel_id is not None and unit.tel_id in mask for unit in units)

    def _aligned(self, max_events: int, max_images: int) -> Iterator[Images]:
        events, mask = self.layout.events, self.layout.mask
        assert events is not None
        assert mask is not None
        position = [mask.index(unit.tel_id) for unit in self.layout.units if unit.tel_id is not None]
        offsets = np.zeros(len(mask), dtype=np.int64)
        start = 0
        while start < events.n_rows:
            rows = events.read(self.file, slice(start, start + min(max_events, max_images)))
            has_image = rows[MASK].astype(bool)
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
            if start + stop >= events.n_rows and any(
                offsets[number] != unit.images.n_rows for number, unit in zip(position, self.layout.units, strict=True)
            ):
                raise _NotAligned
            shower, columns = self._ordered(parts, showers)
            if self.of_trigger:
                columns |= self._trigger_columns(slice(first, int(offsets.sum())), has_image, keys, shower, columns)
            yield Images(slice(start, start + stop), keys, shower, self._with_pointing(columns))
            start += stop

    def _columns_of(self, unit: Unit, part: slice, keys: Columns | None) -> Columns:
        """Return the columns of one telescope; raise _NotAligned where its rows are not those that keys say."""
        rows = unit.images.read(self.file, part)
        if keys is not None and (
            len(rows) != len(keys["obs_id"]) or not all(np.array_equal(rows[key], keys[key]) for key in KEYS)
        ):
            raise _NotAligned
        own = {key: unit.images.fields[key].of(rows) for key in KEYS}
        own["tel_id"] = (
            unit.images.fields["tel_id"].of(rows)
            if "tel_id" in unit.images.fields
            else np.full(len(rows), unit.tel_id or 0, dtype=np.int16)
        )
        for name in self.names:
            if name in unit.images.fields:
                own[name] = unit.images.fields[name].of(rows)
        for table in unit.further:
            wanted = [name for name in self.names if name in table.fields and name not in own]
            if wanted:
                own |= self._further(table, wanted, part, rows, own)
        for name, dtype in self.common.items():
            if name not in own:
                own[name] = _missing(dtype, len(rows))
        return own

    def _further(self, table: StoredTable, wanted: list[str], part: slice, rows: NDArray[Any], own: Columns) -> Columns:
        """Return columns of another table of the same telescope: the same rows, or those with the same keys."""
        same = table.read(self.file, part)
        if len(same) == len(rows) and all(np.array_equal(same[key], rows[key]) for key in KEYS):
            return {name: table.fields[name].of(same) for name in wanted}
        stored = table.read(self.file)
        keys = {key: stored[key] for key in KEYS}
        found = lookup(keys, {name: table.fields[name].of(stored) for name in wanted}, own, KEYS)
        return {name: found[name].to_numpy() for name in wanted}

    def _ordered(self, parts: list[Columns], showers: list[NDArray[np.intp]]) -> tuple[NDArray[np.intp], Columns]:
        """Return the images of all telescopes by event."""
        shower = np.concatenate(showers)
        tel_id = np.concatenate([part["tel_id"] for part in parts])
        order = np.lexsort((tel_id, shower))
        columns: Columns = {"tel_id": tel_id[order]}
        for name in (*KEYS, *self.names):
            if name in parts[0]:
                values = np.concatenate([part[name] for part in parts])
                columns[name] = values[order]
        return shower[order], columns

    def _trigger_columns(
        self, part: slice, has_image: NDArray[np.bool_], keys: Columns, shower: NDArray[np.intp], columns: Columns
    ) -> Columns:
        """Return columns of the triggers of telescopes; the table has them event by event."""
        table = self.layout.trigger
        assert table is not None
        rows = table.read(self.file, part)
        of_rows = np.repeat(np.arange(len(has_image)), has_image.sum(axis=1))
        if len(rows) == len(of_rows) and all(np.array_equal(rows[key], keys[key][of_rows]) for key in KEYS):
            order = np.lexsort((rows["tel_id"], of_rows))
            if np.array_equal(rows["tel_id"][order], columns["tel_id"]):
                return {name: table.fields[name].of(rows)[order] for name in self.of_trigger}
        return self._trigger_by_key(columns)

    def _trigger_by_key(self, columns: Columns) -> Columns:
        table = self.layout.trigger
        assert table is not None
        stored = table.read(self.file)
        values = {name: table.fields[name].of(stored) for name in self.of_trigger}
        found = lookup({key: stored[key] for key in TEL_KEYS}, values, columns, TEL_KEYS)
        return {name: found[name].to_numpy() for name in self.of_trigger}

    def _with_pointing(self, columns: Columns) -> Columns:
        """Return columns with the pointing of each image's telescope, at the time of its trigger or in its run."""
        wanted = [name for name in POINTING_COLUMNS if name in self.names]
        if wanted:
            both = np.full((2, len(columns["tel_id"])), np.nan)
            for number in self.layout.pointings:
                rows = np.flatnonzero(columns["tel_id"] == number)
                pointing = self._pointing_of(number)
                if pointing is not None and pointing.key in columns:
                    both[:, rows] = pointing.of(columns[pointing.key][rows])
            columns |= dict(zip(POINTING_COLUMNS, both, strict=True))
        return columns

    def _pointing_of(self, number: int) -> TelescopePointing | None:
        if number not in self._pointings:
            self._pointings[number] = read_pointing(self.file, self.layout.pointings[number])
        return self._pointings[number]

    def event_keys(self) -> Columns:
        """Return the identifiers of all array events; those of images, in order, where events have no table."""
        if self.layout.events is not None:
            rows = self.layout.events.read(self.file)
            return {key: self.layout.events.fields[key].of(rows) for key in KEYS}
        found = []
        for unit in self.layout.units:
            rows = unit.images.read(self.file)
            found.append(pd.DataFrame({key: unit.images.fields[key].of(rows) for key in KEYS}))
        unique = pd.concat(found).drop_duplicates().sort_values(list(KEYS))
        return {key: unique[key].to_numpy() for key in KEYS}

    def _by_key(self, start: int, max_events: int, max_images: int) -> Iterator[Images]:
        """Yield images of all events from one on, with all columns in memory."""
        keys = self.event_keys()
        n_events = len(keys["obs_id"])
        parts = [self._columns_of(unit, slice(None), None) for unit in self.layout.units]
        numbers = {"number": np.arange(n_events)}
        showers = [lookup(keys, numbers, part, KEYS)["number"].fillna(-1).to_numpy().astype(np.intp) for part in parts]
        shower, columns = self._ordered(parts, showers)
        lost = int(np.searchsorted(shower, 0))
        if lost:
            logger.warning("%s: %d images belong to no array event", self.layout.path, lost)
        if self.of_trigger:
            columns |= self._trigger_by_key(columns)
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


def lookup(keys: Columns, values: Columns, wanted: Columns, by: Sequence[str]) -> pd.DataFrame:
    """Return values for wanted keys; missing where a key is not known."""
    names = list(by)
    known = pd.DataFrame({name: np.asarray(keys[name]) for name in names} | dict(values), copy=False).drop_duplicates(
        names
    )
    found = pd.DataFrame({name: np.asarray(wanted[name]) for name in names}, copy=False)
    return found.merge(known, on=names, how="left")


def _missing(dtype: np.dtype[Any], n_rows: int) -> NDArray[Any]:
    return np.zeros(n_rows, dtype=bool) if dtype.kind == "b" else np.full(n_rows, np.nan)
