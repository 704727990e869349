"""Files in FACT's layout, written chunk by chunk: new ones, and copies that get further columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._core.errors import EventFileError, require
from excess._core.interrupts import defer_interrupts
from excess.events._fact import GROUP, count
from excess.events._writable_hdf5 import WritableHdf5
from excess.events.file_copy import FileCopy

__all__ = ["FactFile"]

LARGEST_CHUNK = 16384
SMALLEST_CHUNK = 1024


class FactFile:
    """FACT's layout: one resizable dataset per column in the group ``events``."""

    def __init__(self, path: Path, first: pd.DataFrame, copy: FileCopy | None = None) -> None:
        self._n_wanted = None if copy is None else count(copy.path)
        self._path = path if copy is None else copy.path
        self._hdf5 = WritableHdf5(path, None if copy is None else copy.path)
        self._n_rows = 0
        self._create(first)

    @defer_interrupts()
    def _create(self, first: pd.DataFrame) -> None:
        h5py = require("h5py", "writing HDF5")
        group = self._hdf5.file.require_group(GROUP)
        rows = min(max(len(first), SMALLEST_CHUNK), LARGEST_CHUNK)
        for name in first.columns:
            if name in group:
                raise EventFileError(
                    f"{self._path}: has {name!r} already, and no column is replaced; choose another name"
                )
            values = _for_hdf5(first[name])
            dtype = h5py.string_dtype("utf-8") if values.dtype == object else values.dtype
            group.create_dataset(name, shape=(0,), maxshape=(None,), chunks=(rows,), dtype=dtype)

    @defer_interrupts()
    def append(self, chunk: pd.DataFrame) -> None:
        """Write rows."""
        stop = self._n_rows + len(chunk)
        for name in chunk.columns:
            dataset = self._hdf5.file[GROUP][name]
            dataset.resize((stop,))
            dataset[self._n_rows : stop] = _for_hdf5(chunk[name])
        self._n_rows = stop
        self._hdf5.check()

    @defer_interrupts()
    def close(self) -> None:
        """Complete the file."""
        self._hdf5.close()
        if self._n_wanted not in (None, self._n_rows):
            raise ValueError(f"columns of {self._n_rows} rows do not fit to a file of {self._n_wanted}")


def _for_hdf5(column: pd.Series[Any]) -> NDArray[Any]:
    """Return a column as numbers, or as objects that are all text."""
    if column.dtype.kind in "biuf" and isinstance(column.dtype, np.dtype):
        return column.to_numpy()
    if pd.api.types.is_numeric_dtype(column.dtype) and not isinstance(column.dtype, pd.CategoricalDtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    text = column.astype(object)
    return np.array(
        ["" if missing else str(value) for value, missing in zip(text, text.isna(), strict=True)], dtype=object
    )
