"""Formats of event files, recognised by the content of a file and never by its name."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from excess._core.errors import EventFileError, require, wrap_errors
from excess._core.inputs import check_regular_file
from excess.events import _csv, _ctapipe, _fact, _fits, _lstchain, _parquet
from excess.events._derived import Origin
from excess.events._hdf5 import open_hdf5, stored_names, stored_node

__all__ = ["FORMATS", "Format", "recognise"]

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
PARQUET_MAGIC = b"PAR1"
FITS_MAGIC = b"SIMPLE  ="
GZIP_MAGIC = b"\x1f\x8b"
START_BYTES = 65536


class Format(NamedTuple):
    """Functions that read a file of one format."""

    columns: Callable[[Path], tuple[str, ...]]
    count: Callable[[Path], int]
    chunks: Callable[[Path, Sequence[str], int | None], Iterator[pd.DataFrame]]
    origin: Callable[[Path], Origin] = lambda path: Origin()


_LSTCHAIN = Format(_lstchain.columns, _lstchain.count, _lstchain.chunks, _lstchain.origin)
_CTAPIPE = Format(_ctapipe.columns, _ctapipe.count, _ctapipe.chunks, _ctapipe.origin)

FORMATS = {
    "FACT HDF5": Format(_fact.columns, _fact.count, _fact.chunks, _fact.origin),
    "lstchain HDF5 DL2": _LSTCHAIN,
    "lstchain HDF5 DL1": _LSTCHAIN,
    "ctapipe HDF5 DL2": _CTAPIPE,
    "ctapipe HDF5 DL1": _CTAPIPE,
    "FITS event list": Format(_fits.columns, _fits.count, _fits.chunks, _fits.origin),
    "Parquet": Format(_parquet.columns, _parquet.count, _parquet.chunks),
    "CSV": Format(_csv.columns, _csv.count, _csv.chunks),
}


def recognise(path: Path) -> str:
    """Return the format of a file, a key of FORMATS, from its first bytes and its layout."""
    check_regular_file(path)
    with wrap_errors(path, "opening"), path.open("rb") as file:
        start = file.read(START_BYTES)
    if not start:
        raise EventFileError(f"{path}: is empty")
    if start.startswith(HDF5_MAGIC):
        return _hdf5_layout(path)
    if start.startswith(PARQUET_MAGIC):
        return "Parquet"
    if start.startswith(FITS_MAGIC) or (start.startswith(GZIP_MAGIC) and _is_compressed_fits(path)):
        return "FITS event list"
    try:
        # A character may be cut at the end of the bytes that were read.
        text = start.decode("utf-8-sig") if len(start) < START_BYTES else start.decode("utf-8-sig", "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise EventFileError(f"{path}: is neither HDF5, FITS, Parquet nor CSV")
    if not _csv.looks_like_csv(text):
        raise EventFileError(f"{path}: is text, but no CSV table with a line of column names and commas between values")
    return "CSV"


def _hdf5_layout(path: Path) -> str:
    h5py = require("h5py", "reading HDF5")
    with wrap_errors(path, "reading HDF5"), open_hdf5(path) as file:
        if isinstance(stored_node(file, _fact.GROUP), h5py.Group):
            return "FACT HDF5"
        for name, level in (("lstchain", _lstchain.data_level(file)), ("ctapipe", _ctapipe.data_level(file))):
            if level is not None:
                return f"{name} HDF5 {level}"
        found = ", ".join(stored_names(file)[:8]) or "nothing"
    raise EventFileError(
        f"{path}: this HDF5 file has neither a group '{_fact.GROUP}' nor ctapipe's or lstchain's tables of events; "
        f"it holds {found}"
    )


def _is_compressed_fits(path: Path) -> bool:
    with wrap_errors(path, "reading gzip"), gzip.open(path) as file:
        return file.read(len(FITS_MAGIC)) == FITS_MAGIC
