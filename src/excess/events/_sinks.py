"""Formats that event files are written in: new files by their suffix, copies with further columns by their content."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import pandas as pd

from excess.events._csv_sink import CsvFile
from excess.events._ctapipe_sink import CtapipeCopy
from excess.events._fact_sink import FactFile
from excess.events._fits_sink import FitsCopy
from excess.events._parquet_sink import ParquetFile
from excess.events._wide_table_sink import WideTableCopy

__all__ = ["COPIES", "NEW_FILES", "CopyFormat", "Sink", "copy_format", "new_format"]


class Sink(Protocol):
    """An open file that takes chunks; made from its path and the first chunk."""

    def append(self, chunk: pd.DataFrame) -> None: ...

    def close(self) -> None: ...


class CopyFormat(NamedTuple):
    """How columns are added to a copy of a file.

    Attributes
    ----------
    open : callable
        Makes the copy, from its path, the first chunk and ``copy``, a `FileCopy`.
    suffixes : tuple of str
        Suffixes of a copy, beside that of the file itself.
    keys : tuple of str
        Columns of the file that chunks have to have beside the new ones.
    selects : bool
        Whether events can be left out.
    """

    open: Callable[..., Sink]
    suffixes: tuple[str, ...]
    keys: tuple[str, ...] = ()
    selects: bool = False


NEW_FILES: dict[str, Callable[[Path, pd.DataFrame], Sink]] = {
    "FACT HDF5": FactFile,
    "Parquet": ParquetFile,
    "CSV": CsvFile,
}

SUFFIXES = {".hdf5": "FACT HDF5", ".h5": "FACT HDF5", ".parquet": "Parquet", ".csv": "CSV"}
"""Format of a new file by its suffix."""

_EVENT = ("obs_id", "event_id")
_CTAPIPE = CopyFormat(CtapipeCopy, (".h5", ".hdf5"), keys=_EVENT)
_LSTCHAIN = CopyFormat(
    partial(
        WideTableCopy,
        groups=("/dl2/event/telescope/parameters", "/dl1/event/telescope/parameters"),
        keys=_EVENT,
    ),
    (".h5", ".hdf5"),
    keys=_EVENT,
)

COPIES = {
    "FACT HDF5": CopyFormat(FactFile, (".hdf5", ".h5")),
    "ctapipe HDF5 DL2": _CTAPIPE,
    "ctapipe HDF5 DL1": _CTAPIPE,
    "lstchain HDF5 DL2": _LSTCHAIN,
    "lstchain HDF5 DL1": _LSTCHAIN,
    "FITS event list": CopyFormat(FitsCopy, (".fits", ".fit", ".fts", ".gz"), selects=True),
}


def new_format(path: Path) -> str:
    """Return the format of a new file, a key of NEW_FILES."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: the suffix must be .hdf5 (or .h5), .parquet or .csv, got {suffix!r}")
    return SUFFIXES[suffix]


def copy_format(source_format: str, source: Path, target: Path) -> CopyFormat | None:
    """Return how columns are added to a copy of a file, None where a file of that name is written anew.

    Parameters
    ----------
    source_format : str
        Format of the file that is copied, as `describe` says it.
    source : Path
        That file; a copy with the same suffix is of the same format, whatever the suffix is.
    target : Path
        The copy.

    Examples
    --------
    >>> from pathlib import Path
    >>> from excess.events import copy_format
    >>> copy_format("FITS event list", Path("run_1.fits"), Path("scored.fits.gz")).selects
    True
    >>> copy_format("FITS event list", Path("run_1.fits"), Path("scored.csv")) is None
    True
    """
    found = COPIES.get(source_format)
    if found is None or target.suffix.lower() not in (*found.suffixes, source.suffix.lower()):
        return None
    return found
