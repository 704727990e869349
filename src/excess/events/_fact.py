"""FACT's HDF5 layout: a group ``events`` that holds one dataset per column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from excess._core.errors import EventFileError, require
from excess.events._arrays import INDEX_COLUMNS, as_native, slices
from excess.events._fact_names import canonical_name
from excess.events._hdf5 import open_hdf5, stored_names, stored_node

__all__ = ["chunks", "columns", "count"]

GROUP = "events"
Datasets = dict[str, tuple[Any, float | None]]
"""Dataset of each column, and what to multiply its values by (None: nothing)."""


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns."""
    with open_hdf5(path) as file:
        return tuple(_datasets(file, path))


def count(path: Path) -> int:
    """Return the number of events."""
    with open_hdf5(path) as file:
        return _n_events(_datasets(file, path), path)


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    h5py = require("h5py", "reading HDF5")
    with open_hdf5(path) as file:
        datasets = _datasets(file, path)
        for part in slices(_n_events(datasets, path), chunk_rows):
            table = {}
            for name in names:
                dataset, factor = datasets[name]
                if h5py.check_string_dtype(dataset.dtype):
                    values = dataset.asstr(errors="replace")[part].astype(object)
                else:
                    values = as_native(dataset[part])
                table[name] = values if factor is None else values * factor
            yield pd.DataFrame(table, copy=False)


def _datasets(file: Any, path: Path) -> Datasets:
    """Return dataset and factor of each column by its current name; the current spelling wins over an older one."""
    h5py = require("h5py", "reading HDF5")
    found: Datasets = {}
    older: Datasets = {}
    for given in stored_names(file[GROUP]):
        dataset = stored_node(file, f"{GROUP}/{given}")
        if not isinstance(dataset, h5py.Dataset) or dataset.ndim != 1 or given in INDEX_COLUMNS:
            continue
        if dataset.dtype.kind in "biufS" or h5py.check_string_dtype(dataset.dtype):
            name, factor = canonical_name(given)
            (found if name == given else older)[name] = (dataset, factor)
    merged = older | found
    if not merged:
        raise EventFileError(f"{path}: the group '{GROUP}' holds no columns")
    return merged


def _n_events(datasets: Datasets, path: Path) -> int:
    lengths = {name: len(dataset) for name, (dataset, _) in datasets.items()}
    first = next(iter(lengths))
    for name, length in lengths.items():
        if length != lengths[first]:
            raise EventFileError(
                f"{path}: column {name!r} has {length} rows and column {first!r} has {lengths[first]}; "
                "write the file again"
            )
    return lengths[first]
