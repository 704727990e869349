"""FACT's HDF5 layout: a group ``events`` with one dataset per column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.errors import EventFileError, require
from excess.io import _files
from excess.io._coordinates import KNOWN_TELESCOPES, Origin
from excess.io._files import FileCopy, WritableHdf5

GROUP = "events"
DEGREES_PER_MM = math.degrees(1 / 4889.0)  # from the focal length: older files have theta in mm in the camera plane
_NAMES = [(re.compile(row["older"]), row["current"]) for row in _files.read_catalogue("fact_columns.csv")]
Datasets = dict[str, tuple[Any, float | None]]  # of each column, and the factor of its values (None: none)


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns."""
    with _files.open_hdf5(path) as file:
        return tuple(_datasets(file, path))


def count(path: Path) -> int:
    """Return the number of events."""
    with _files.open_hdf5(path) as file:
        return _n_events(_datasets(file, path), path)


def origin(path: Path) -> Origin:
    """Return the metadata of a file; third-party tables in this layout have no telescope."""
    names = set(columns(path))
    of_fact = {"night", "event_num"} <= names or "num_pixel_in_shower" in names
    return Origin(
        telescope="FACT" if of_fact else None,
        location=KNOWN_TELESCOPES["FACT"].location if of_fact else None,
        data_level=("DL2" if "width" in names else "DL3") if of_fact else None,
        is_simulated=any(name.startswith(("corsika_", "ceres_")) for name in names),
    )


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    h5py = require("h5py", "reading HDF5")
    with _files.open_hdf5(path) as file:
        datasets = _datasets(file, path)
        for part in _files.slices(_n_events(datasets, path), chunk_rows):
            table = {}
            for name in names:
                dataset, factor = datasets[name]
                is_text = h5py.check_string_dtype(dataset.dtype)
                values = _files.read_texts(dataset, part, path) if is_text else _files.as_native(dataset[part])
                table[name] = values if factor is None else values * factor
            yield pd.DataFrame(table, copy=False)


def _datasets(file: Any, path: Path) -> Datasets:
    """Return dataset and factor of each column by its current name, which takes precedence over an older one."""
    h5py = require("h5py", "reading HDF5")
    found: Datasets = {}
    older: Datasets = {}
    for given in _files.stored_names(file[GROUP]):
        dataset = _files.stored_node(file, f"{GROUP}/{given}")
        if not isinstance(dataset, h5py.Dataset) or dataset.ndim != 1 or given in _files.INDEX_COLUMNS:
            continue
        if dataset.dtype.kind in "biufS" or h5py.check_string_dtype(dataset.dtype):
            name, factor = canonical_name(given)
            (found if name == given else older)[name] = (dataset, factor)
    merged = older | found
    if not merged:
        raise EventFileError(f"{path}: the group '{GROUP}' has no columns")
    _files.check_sizes(path, [dataset for dataset, _ in merged.values()])
    return merged


def _n_events(datasets: Datasets, path: Path) -> int:
    lengths = {name: len(dataset) for name, (dataset, _) in datasets.items()}
    first = next(iter(lengths))
    for name, length in lengths.items():
        if length != lengths[first]:
            problem = f"column {name!r} has {length} rows and column {first!r} has {lengths[first]}"
            raise EventFileError(f"{path}: {problem}; write the file again")
    return lengths[first]


def canonical_name(name: str) -> tuple[str, float | None]:
    """Return the current name of a column, and the factor of its values (None: none)."""
    for older, current in _NAMES:
        if match := older.fullmatch(name):
            return match.expand(current), DEGREES_PER_MM if current.startswith("theta_deg") else None
    return name, None


SMALLEST_CHUNK, LARGEST_CHUNK = 1024, 16384


class FactFile:
    """FACT's layout: one resizable dataset per column in the group ``events``."""

    def __init__(self, path: Path, first: pd.DataFrame, copy: FileCopy | None = None) -> None:
        self._n_wanted = None if copy is None else count(copy.path)
        self._path = path if copy is None else copy.path
        self._hdf5 = WritableHdf5(path, None if copy is None else copy.path)
        self._n_rows = 0
        self._create(first)

    @_files.defer_signals()
    def _create(self, first: pd.DataFrame) -> None:
        h5py = require("h5py", "writing HDF5")
        group = self._hdf5.file.require_group(GROUP)
        rows = min(max(len(first), SMALLEST_CHUNK), LARGEST_CHUNK)
        for name in first.columns:
            if name in group:
                raise EventFileError(f"{self._path}: already has {name!r}; choose another name")
            values = _for_hdf5(first[name])
            dtype = h5py.string_dtype("utf-8") if values.dtype == object else values.dtype
            group.create_dataset(name, shape=(0,), maxshape=(None,), chunks=(rows,), dtype=dtype)

    @_files.defer_signals()
    def append(self, chunk: pd.DataFrame) -> None:
        """Write rows."""
        stop = self._n_rows + len(chunk)
        for name in chunk.columns:
            dataset = self._hdf5.file[GROUP][name]
            dataset.resize((stop,))
            dataset[self._n_rows : stop] = _for_hdf5(chunk[name])
        self._n_rows = stop
        self._hdf5.check()

    @_files.defer_signals()
    def close(self) -> None:
        """Complete the file."""
        self._hdf5.close()
        if self._n_wanted not in (None, self._n_rows):
            raise ValueError(f"columns of {self._n_rows} rows do not match a file of {self._n_wanted}")


def _for_hdf5(column: pd.Series[Any]) -> NDArray[Any]:
    """Return a column as numbers, or as objects that are all text."""
    if column.dtype.kind in "biuf" and isinstance(column.dtype, np.dtype):
        return column.to_numpy()
    if pd.api.types.is_numeric_dtype(column.dtype) and not isinstance(column.dtype, pd.CategoricalDtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    text = column.astype(object)
    return text.map(str).where(text.notna(), "").to_numpy(dtype=object)
