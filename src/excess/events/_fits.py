"""FITS event lists of gamma-astro-data-formats: the extension EVENTS and the header keywords of the run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excess._core.errors import EventFileError, require
from excess.events._arrays import as_native, slices

__all__ = ["chunks", "columns", "count"]

HEADER_COLUMNS = {
    "pointing_ra": "RA_PNT",
    "pointing_dec": "DEC_PNT",
    "obs_id": "OBS_ID",
    "object": "OBJECT",
    "livetime": "LIVETIME",
    "ontime": "ONTIME",
    "date_obs": "DATE-OBS",
}
"""Header keywords of a run that become constant columns; a column of the table with the same name wins."""


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns in lower case, and those taken from the header."""
    with _events(path) as hdu:
        in_table = _scalar_columns(hdu)
        return (*in_table, *(name for name in _constants(hdu) if name not in in_table))


def count(path: Path) -> int:
    """Return the number of events."""
    with _events(path) as hdu:
        return int(hdu.header["NAXIS2"])


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    with _events(path) as hdu:
        in_table, constants = _scalar_columns(hdu), _constants(hdu)
        for part in slices(int(hdu.header["NAXIS2"]), chunk_rows):
            # Slicing first: astropy converts a scaled column as a whole otherwise.
            rows = hdu.data[part]
            table = {
                name: as_native(np.array(rows.field(in_table[name])))
                if name in in_table
                else np.full(
                    part.stop - part.start, constants[name], object if isinstance(constants[name], str) else None
                )
                for name in names
            }
            yield pd.DataFrame(table, copy=False)


@contextmanager
def _events(path: Path) -> Iterator[Any]:
    """Open the extension EVENTS; a file that ends before its data does is an error."""
    fits = require("astropy.io.fits", "reading FITS")
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    with fits.open(path, mode="readonly", memmap=not compressed) as hdus:
        with warnings.catch_warnings():
            # Whether the file is cut short is checked below, exactly; odd header cards do no harm.
            warnings.simplefilter("ignore")
            found = [hdu for hdu in hdus if hdu.name == "EVENTS" or hdu.header.get("HDUCLAS1") == "EVENTS"]
            names = ", ".join(hdu.name for hdu in hdus)
        if not found:
            raise EventFileError(f"{path}: this FITS file has no extension EVENTS, only {names}; is it complete?")
        hdu = found[0]
        if not isinstance(hdu, fits.BinTableHDU):
            raise EventFileError(f"{path}: the extension EVENTS is no binary table")
        place = hdu.fileinfo()
        if not compressed and place["datLoc"] + hdu.size > path.stat().st_size:
            raise EventFileError(f"{path}: the file ends before its table of events does; copy it again")
        yield hdu


def _scalar_columns(hdu: Any) -> dict[str, str]:
    """Return the names in the file by their lower-case ones, for columns of one value per event."""
    return {
        column.name.lower(): column.name
        for column in hdu.columns
        if column.dtype.shape == () and column.dtype.base.kind in "biufS" and column.format[0] not in "PQ"
    }


def _constants(hdu: Any) -> dict[str, Any]:
    header = hdu.header
    return {name: header[key] for name, key in HEADER_COLUMNS.items() if isinstance(header.get(key), (int, float, str))}
