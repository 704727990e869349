"""FITS event lists of gamma-astro-data-formats: the extension EVENTS and the header keywords of the run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excess._core.checks import FloatArray
from excess._core.errors import EventFileError, require
from excess.events._arrays import as_native, slices
from excess.events._derived import UNIX_TIME, Derivation, Direction, Origin
from excess.events._fits_file import open_fits
from excess.events.telescopes import Location, find_telescope
from excess.events.times import TIME_SCALES, unix_from_seconds

__all__ = ["chunks", "columns", "count", "origin"]

HEADER_COLUMNS = {
    "pointing_ra": "RA_PNT",
    "pointing_dec": "DEC_PNT",
    "pointing_alt": "ALT_PNT",
    "pointing_az": "AZ_PNT",
    "obs_id": "OBS_ID",
    "object": "OBJECT",
    "object_ra": "RA_OBJ",
    "object_dec": "DEC_OBJ",
    "livetime": "LIVETIME",
    "ontime": "ONTIME",
    "deadc": "DEADC",
    "date_obs": "DATE-OBS",
}
"""Header keywords of a run that become constant columns; a column of the table with the same name wins."""
MOVING = ("DRIFT", "RASTER", "SLEW", "SCAN")
"""Modes of observation in which the pointing moves over the sky, so that one position of a run says nothing."""


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns in lower case, and those taken from the header."""
    with _events(path) as (hdu, _):
        in_table = _scalar_columns(hdu)
        return (*in_table, *(name for name in _constants(hdu.header) if name not in in_table))


def count(path: Path) -> int:
    """Return the number of events."""
    with _events(path) as (hdu, _):
        return int(hdu.header["NAXIS2"])


def origin(path: Path) -> Origin:
    """Return what the header of a run says: telescope, location, origin of times, and the pointing where it moves."""
    with _events(path) as (hdu, hdus):
        header = hdu.header
        telescope = _telescope(header)
        derived = []
        time = _time_reference(header)
        if time is not None and "time" in _scalar_columns(hdu):
            derived.append(Derivation((UNIX_TIME,), ("time",), lambda table: (_unix(table["time"], time),)))
            pointing = _pointing_table(hdus, header) if _is_moving(header) else None
            if pointing is not None:
                derived.append(pointing)
        return Origin(
            telescope=None if telescope is None else telescope.name,
            location=_location(header) or (None if telescope is None else telescope.location),
            data_level="DL3",
            is_simulated=any(name in header for name in ("MC_NAME", "SIMTEL")),
            directions={"": Direction("alt", "az"), "pointing_": Direction("pointing_alt", "pointing_az")},
            derivations=tuple(derived),
        )


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    with _events(path) as (hdu, _):
        in_table, constants = _scalar_columns(hdu), _constants(hdu.header)
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
def _events(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open the extension EVENTS, and all of the file; one that ends before its data does is an error."""
    table = require("astropy.io.fits", "reading FITS").BinTableHDU
    with open_fits(path) as hdus:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd header cards do no harm
            found = [hdu for hdu in hdus if hdu.name == "EVENTS" or hdu.header.get("HDUCLAS1") == "EVENTS"]
            found = found or [hdu for hdu in hdus if _has_positions(hdu)]
        if not found:
            names = ", ".join(hdu.name for hdu in hdus[:8]) + (", ..." if len(hdus) > 8 else "")
            raise EventFileError(
                f"{path}: this FITS file has no extension EVENTS, nor another table with RA and DEC, only {names}; "
                "leave it out if it holds instrument responses or an index, else it is not complete"
            )
        hdu = found[0]
        if not isinstance(hdu, table):
            raise EventFileError(f"{path}: the extension EVENTS is no binary table")
        if hdu.header["NAXIS2"] > 0 and hdu.header["NAXIS1"] < 1:
            raise EventFileError(f"{path}: its table of events has rows of no bytes; is it complete?")
        yield hdu, hdus


def _has_positions(hdu: Any) -> bool:
    """Say whether a table holds sky positions, as event lists of air-shower arrays without further conventions do."""
    names = {str(name).upper() for name in getattr(getattr(hdu, "columns", None), "names", None) or ()}
    return {"RA", "DEC"} <= names


def _scalar_columns(hdu: Any) -> dict[str, str]:
    """Return the names in the file by their lower-case ones, for columns of one value per event."""
    return {
        column.name.lower(): column.name
        for column in hdu.columns
        if column.dtype.shape == () and column.dtype.base.kind in "biufS" and column.format[0] not in "PQ"
    }


def _constants(header: Any) -> dict[str, Any]:
    # the position of a drift scan in the header is that of its start, or of its middle
    without = {"pointing_ra", "pointing_dec"} if _is_moving(header) else set()
    return {
        name: header[key]
        for name, key in HEADER_COLUMNS.items()
        if isinstance(header.get(key), (int, float, str)) and name not in without
    }


def _is_moving(header: Any) -> bool:
    return str(header.get("OBS_MODE", "")).strip().upper() in MOVING


def _telescope(header: Any) -> Any:
    for key in ("TELESCOP", "INSTRUME", "ORIGIN"):
        found = find_telescope(str(header.get(key, "")))
        if found is not None:
            return found
    return None


def _location(header: Any) -> Location | None:
    longitude, latitude = (header.get(key) for key in ("GEOLON", "GEOLAT"))
    if not all(isinstance(value, (int, float)) for value in (longitude, latitude)):
        return None
    height = header.get("ALTITUDE", header.get("GEOALT", 0.0))
    return Location(float(longitude), float(latitude), float(height) if isinstance(height, (int, float)) else 0.0)


def _time_reference(header: Any) -> tuple[float, float, str] | None:
    """Return the origin of times as a modified Julian date, their unit in seconds, and their scale; None if unknown."""
    if isinstance(header.get("MJDREF"), (int, float)):
        reference = float(header["MJDREF"])
    elif isinstance(header.get("MJDREFI"), (int, float)):
        fraction = header.get("MJDREFF", 0.0)
        reference = float(header["MJDREFI"]) + (float(fraction) if isinstance(fraction, (int, float)) else 0.0)
    else:
        return None
    scale = str(header.get("TIMESYS", "TT")).strip().lower()
    unit = {"s": 1.0, "d": 86_400.0, "day": 86_400.0}.get(str(header.get("TIMEUNIT", "s")).strip().lower())
    return (reference, unit, scale) if scale in TIME_SCALES and unit is not None else None


def _unix(time: pd.Series, reference: tuple[float, float, str]) -> FloatArray:
    mjd, unit, scale = reference
    return unix_from_seconds(unit * time.to_numpy(dtype=np.float64), reference_mjd=mjd, scale=scale)


def _pointing_table(hdus: Any, header: Any) -> Derivation | None:
    """Return the pointing by interpolation in the extension POINTING; None if there is none."""
    for hdu in hdus:
        if "POINTING" not in (hdu.name, hdu.header.get("HDUCLAS1")) or not hasattr(hdu, "columns"):
            continue
        names = {name.upper(): name for name in hdu.columns.names}
        reference = _time_reference(hdu.header) or _time_reference(header)
        if {"TIME", "RA_PNT", "DEC_PNT"} <= set(names) and reference is not None and len(hdu.data):
            own = {key: np.array(hdu.data[names[key]], dtype=np.float64) for key in ("TIME", "RA_PNT", "DEC_PNT")}
            order = np.argsort(own["TIME"])
            time = _unix(pd.Series(own["TIME"][order]), reference)
            compute = partial(_interpolate, time=time, ra=own["RA_PNT"][order], dec=own["DEC_PNT"][order])
            return Derivation(("pointing_ra", "pointing_dec"), (UNIX_TIME,), compute)
    return None


def _interpolate(
    table: pd.DataFrame, time: FloatArray, ra: FloatArray, dec: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return a moving position at the times of events; before the first time and after the last it stays."""
    at = table[UNIX_TIME].to_numpy(dtype=np.float64)
    return np.interp(at, time, np.unwrap(ra, period=360)) % 360, np.interp(at, time, dec)
