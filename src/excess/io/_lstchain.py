"""lstchain's HDF5 files (DL1 and DL2): one wide table of images, which are events for a single telescope.

Files are read with h5py alone: attributes that are Python pickles are never loaded.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.errors import EventFileError
from excess.io import _files
from excess.io._coordinates import KNOWN_TELESCOPES, UNIX_TIME, Derivation, Direction, Origin, first_column
from excess.io._ctapipe import chunks_of, count_showers
from excess.io._ctapipe_layout import KEYS, Field, Layout, StoredTable, Unit, find_tables, open_table
from excess.io._files import CopySink

GROUPS = {"DL2": "/dl2/event/telescope/parameters", "DL1": "/dl1/event/telescope/parameters"}
MARKS = {"intensity", "width", "length"}  # columns of lstchain, whose names in ctapipe begin with "hillas"
TIMES = ("dragon_time", "trigger_time", "ucts_time")  # columns of Unix times; the first with values is used
ANGLES = ("reco_alt", "reco_az", "alt_tel", "az_tel", "mc_alt", "mc_az", "mc_alt_tel", "mc_az_tel")  # in rad
FIRST_ROWS = 10_000  # rows searched for several telescopes, since images of a shower are consecutive
TO_DEGREES = 180 / np.pi
BLOCK = 100_000  # rows copied at once


def data_level(file: Any) -> str | None:
    """Return "DL2" or "DL1" for an open file of lstchain, None for another one."""
    return next((level for level in GROUPS if _path(file, level) is not None), None)


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns."""
    with _files.open_hdf5(path) as file:
        table = _table(file, path)
        return tuple(table.fields) if _is_single(file, table) else _layout(path, table).columns


def count(path: Path) -> int:
    """Return the number of events."""
    with _files.open_hdf5(path) as file:
        table = _table(file, path)
        return table.n_rows if _is_single(file, table) else count_showers(file, _layout(path, table))


def origin(path: Path) -> Origin:
    """Return the metadata of a file."""
    with _files.open_hdf5(path) as file:
        table = _table(file, path)
        known = [name for name in (*TIMES, "mc_energy", "tel_id") if name in table.fields]
        first = table.read(file, [*KEYS, *known], slice(FIRST_ROWS))
        single = _is_single(file, table)
        level = data_level(file)
    values = {name: table.fields[name].of(first) for name in (*TIMES, "mc_energy") if name in table.fields}
    time = next((name for name in TIMES if name in values and (values[name] > 0).any()), None)
    numbers = np.unique(first["tel_id"]).tolist() if "tel_id" in table.fields else [1]
    layout = None if single else _layout(path, table)
    return Origin(
        telescope=f"LST-{numbers[0]}" if len(numbers) == 1 else "LST",
        location=KNOWN_TELESCOPES["LST-1"].location,
        data_level=level,
        is_simulated=bool(np.isfinite(values.get("mc_energy", np.array([np.nan]))).any()),
        directions={
            "": Direction("reco_alt", "reco_az", TO_DEGREES),
            "pointing_": Direction("alt_tel", "az_tel", TO_DEGREES),
        },
        derivations=() if time is None or not single else (Derivation((UNIX_TIME,), (time,), first_column),),
        telescope_columns=() if layout is None else layout.telescope_columns,
        n_images=None if layout is None else layout.n_images,
    )


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    with _files.open_hdf5(path) as file:
        table = _table(file, path)
        if _is_single(file, table):
            for part in _files.slices(table.n_rows, chunk_rows):
                rows = table.read(file, names, part)
                yield pd.DataFrame({name: table.fields[name].of(rows) for name in names}, copy=False)
            return
        yield from chunks_of(file, _layout(path, table), names, chunk_rows)


def _path(file: Any, level: str) -> str | None:
    """Return the table of a data level, None if there is none of lstchain."""
    paths = find_tables(file, GROUPS[level])
    return paths[0] if len(paths) == 1 and set(_files.stored_node(file, paths[0]).dtype.names) >= MARKS else None


def _inside(file: Any, path: Path) -> str:
    level = data_level(file)
    inside = None if level is None else _path(file, level)
    if inside is None:
        raise EventFileError(f"{path}: has no table in {' or '.join(GROUPS.values())}, or several")
    return inside


def _table(file: Any, path: Path) -> StoredTable:
    table = open_table(file, _inside(file, path))
    table.check(KEYS, path)
    units = {name: field._replace(unit="rad") for name, field in table.fields.items() if name in ANGLES}
    return table._replace(fields={**table.fields, **units})


def _is_single(file: Any, table: StoredTable) -> bool:
    field: Field | None = table.fields.get("tel_id")
    return field is None or len(np.unique(table.read(file, ["tel_id"], slice(FIRST_ROWS))["tel_id"])) < 2


def _layout(path: Path, table: StoredTable) -> Layout:
    return Layout(path, units=(Unit(None, table, ()),))


class LstchainCopy(CopySink):
    """A copy whose table of images is rewritten, with further columns at the end of each row."""

    def check(self, first: pd.DataFrame) -> None:
        """Raise EventFileError if the table cannot be read, or already has a new column."""
        with _files.open_hdf5(self.copy.path) as file:
            self._inside = _inside(file, self.copy.path)
            self.check_new(set(first.columns) - set(KEYS), _files.stored_table(file, self._inside).dtype.names)

    def write(self, table: pd.DataFrame) -> None:
        """Write the copy; all images of an event get its values."""
        new = np.dtype([(name, table[name].dtype) for name in table.columns if name not in KEYS])
        with _files.open_hdf5(self.copy.path) as original:
            source = _files.stored_table(original, self._inside)
            keys = source.fields(KEYS)[:]
            if len(keys) != len(table) or any((keys[key] != table[key].to_numpy()).any() for key in KEYS):
                table = table.iloc[self._find(table, keys)]
            with _files.copied_hdf5(self.path, self.copy.path) as file:
                del file[self._inside]
                dataset = _files.create_table(file, self._inside, new, len(source), like=source)
                for part in _files.slices(len(source), BLOCK):
                    rows = np.empty(part.stop - part.start, dtype=dataset.dtype)
                    stored = source[part]
                    for name in rows.dtype.names or ():
                        rows[name] = stored[name] if name in stored.dtype.names else table[name].to_numpy()[part]
                    dataset[part] = rows
                _files.write_history(dataset, self.copy)

    def _find(self, table: pd.DataFrame, keys: NDArray[Any]) -> NDArray[np.intp]:
        """Return the event of each image."""
        events = pd.MultiIndex.from_frame(table[KEYS])
        images = pd.MultiIndex.from_arrays([keys[key] for key in KEYS], names=KEYS)
        wrong = events[events.duplicated() | ~events.isin(images)]
        if len(wrong):
            problem = f"{_files.event_words(KEYS, wrong[0])} is not at its expected position in {self._inside}"
            raise EventFileError(f"{self.copy.path}: {problem}; write to a file with the suffix .parquet")
        places = events.get_indexer(images)
        if (places < 0).any():
            raise ValueError(f"columns of {len(events)} rows do not match a file of {len(images)}")
        return places
