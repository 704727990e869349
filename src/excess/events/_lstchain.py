"""lstchain's HDF5 files (DL1 and DL2): one wide table of images, which are events where there is one telescope.

Files are read with h5py alone: attributes that are Python pickles are never loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excess.events._arrays import slices
from excess.events._ctapipe import count_showers, image_chunks, shower_chunks
from excess.events._ctapipe_layout import KEYS, Layout, Unit
from excess.events._ctapipe_tables import Field, StoredTable, find_tables, open_table
from excess.events._derived import UNIX_TIME, Derivation, Direction, Origin
from excess.events._hdf5 import open_hdf5, stored_node
from excess.events.telescopes import KNOWN_TELESCOPES

__all__ = ["chunks", "columns", "count", "data_level", "origin"]

GROUPS = {"DL2": "/dl2/event/telescope/parameters", "DL1": "/dl1/event/telescope/parameters"}
MARKS = {"intensity", "width", "length"}
"""Columns that tell a table of lstchain from one of ctapipe, whose names of the same begin with "hillas"."""
TIMES = ("dragon_time", "trigger_time", "ucts_time")
"""Columns that hold Unix times; the first that has any is used."""
ANGLES = ("reco_alt", "reco_az", "alt_tel", "az_tel", "mc_alt", "mc_az", "mc_alt_tel", "mc_az_tel")
"""Angles in rad; the table does not tell their unit."""
FIRST_ROWS = 10_000
"""Rows that tell whether there are several telescopes, because images of a shower follow each other."""
TO_DEGREES = 180 / np.pi


def data_level(file: Any) -> str | None:
    """Return "DL2" or "DL1" for an open file of lstchain, None for another one."""
    return next((level for level in GROUPS if _path(file, level) is not None), None)


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns."""
    with open_hdf5(path) as file:
        table = _table(file, path)
        return tuple(table.fields) if _is_single(file, table) else _layout(path, table).columns


def count(path: Path) -> int:
    """Return the number of events."""
    with open_hdf5(path) as file:
        table = _table(file, path)
        return table.n_rows if _is_single(file, table) else count_showers(file, _layout(path, table))


def origin(path: Path) -> Origin:
    """Return what is known of lstchain's files."""
    with open_hdf5(path) as file:
        table = _table(file, path)
        first = table.read(file, slice(FIRST_ROWS))
        single = _is_single(file, table)
        level = data_level(file)
    known = {name: table.fields[name].of(first) for name in (*TIMES, "mc_energy") if name in table.fields}
    time = next((name for name in TIMES if name in known and (known[name] > 0).any()), None)
    numbers = np.unique(first["tel_id"]).tolist() if "tel_id" in table.fields else [1]
    layout = None if single else _layout(path, table)
    return Origin(
        telescope=f"LST-{numbers[0]}" if len(numbers) == 1 else "LST",
        location=KNOWN_TELESCOPES["LST-1"].location,
        data_level=level,
        is_simulated=bool(np.isfinite(known.get("mc_energy", np.array([np.nan]))).any()),
        directions={
            "": Direction("reco_alt", "reco_az", TO_DEGREES),
            "pointing_": Direction("alt_tel", "az_tel", TO_DEGREES),
        },
        derivations=() if time is None or not single else (Derivation((UNIX_TIME,), (time,), _unix),),
        telescope_columns=() if layout is None else layout.telescope_columns,
        n_images=None if layout is None else layout.n_images,
    )


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    with open_hdf5(path) as file:
        table = _table(file, path)
        if _is_single(file, table):
            for part in slices(table.n_rows, chunk_rows):
                rows = table.read(file, part)
                yield pd.DataFrame({name: table.fields[name].of(rows) for name in names}, copy=False)
            return
        layout = _layout(path, table)
        of_images = not set(names) <= set(layout.columns)
        yield from (image_chunks if of_images else shower_chunks)(file, layout, names, chunk_rows)


def _path(file: Any, level: str) -> str | None:
    """Return the table of a data level, None if there is none of lstchain."""
    paths = find_tables(file, GROUPS[level])
    return paths[0] if len(paths) == 1 and set(stored_node(file, paths[0]).dtype.names) >= MARKS else None


def _table(file: Any, path: Path) -> StoredTable:
    level = data_level(file)
    inside = None if level is None else _path(file, level)
    assert inside is not None
    table = open_table(file, inside)
    table.check(KEYS, path)
    units = {name: field._replace(unit="rad") for name, field in table.fields.items() if name in ANGLES}
    return table._replace(fields={**table.fields, **units})


def _is_single(file: Any, table: StoredTable) -> bool:
    field: Field | None = table.fields.get("tel_id")
    return field is None or len(np.unique(table.read(file, slice(FIRST_ROWS))["tel_id"])) < 2


def _layout(path: Path, table: StoredTable) -> Layout:
    """Return the layout of a table with images of several telescopes."""
    return Layout(path, None, (), (Unit(None, table, ()),), None, None, {}, is_single=False)


def _unix(table: pd.DataFrame) -> tuple[Any]:
    return (table.iloc[:, 0].to_numpy(dtype=np.float64),)
