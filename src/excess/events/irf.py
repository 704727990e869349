"""Instrument response files: efficiencies as a FITS table, and effective areas multiplied by one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from excess._core.checks import FloatArray
from excess._core.errors import EventFileError, require, wrap_errors
from excess._core.files import replacing
from excess._core.version import __version__
from excess.events._fits_file import check_fits

__all__ = ["multiply_effective_area", "pointing_zenith", "write_efficiency"]

_MARK = "EXCESSEF"
"""Keyword of an effective area that was multiplied, so that it is not done twice."""


def write_efficiency(
    path: Path, energy: FloatArray, zenith: FloatArray, columns: Mapping[str, FloatArray], remarks: Sequence[str]
) -> None:
    """Write a FITS table in the layout of gamma-astro-data-formats: one row, axes as columns of bin edges.

    ``energy`` (TeV) and ``zenith`` (deg) are edges, ``columns`` arrays of shape (zenith bins, energy bins).
    """
    fits = require("astropy.io.fits", "writing FITS")
    shape = (len(zenith) - 1, len(energy) - 1)
    axes = (
        ("ENERG_LO", energy[:-1], "TeV"),
        ("ENERG_HI", energy[1:], "TeV"),
        ("ZEN_LO", zenith[:-1], "deg"),
        ("ZEN_HI", zenith[1:], "deg"),
    )
    table = [
        fits.Column(name, f"{len(edges)}D", unit=unit, array=edges[np.newaxis].astype(np.float64))
        for name, edges, unit in axes
    ]
    table += [
        fits.Column(name, f"{values.size}D", dim=f"({shape[1]},{shape[0]})", array=values[np.newaxis])
        for name, values in columns.items()
    ]
    hdu = fits.BinTableHDU.from_columns(table, name="EFFICIENCY")
    for key, value in (("HDUCLAS1", "RESPONSE"), ("HDUCLAS2", "EFFICIENCY"), ("HDUCLAS4", "EFF_2D")):
        hdu.header[key] = value
    hdu.header["CREATOR"] = f"excess {__version__}"
    for line in _lines(remarks):
        hdu.header.add_comment(line)
    with wrap_errors(path, "writing FITS"), replacing(path) as temporary:
        fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(temporary, overwrite=True)


def multiply_effective_area(
    source: Path, target: Path, factor: Callable[[FloatArray], FloatArray], of: str, history: Sequence[str]
) -> int:
    """Copy a FITS file with its effective areas multiplied by a factor; return how many tables there were.

    ``factor`` takes energies in TeV, the geometric centres of the bins. ``of`` says what kind of efficiency it is.
    """
    fits, units = require("astropy.io.fits", "reading FITS"), require("astropy.units", "reading FITS")
    check_fits(source)
    with wrap_errors(source, "reading FITS"), fits.open(source, memmap=False) as hdus:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd header cards do no harm
            found = [hdu for hdu in hdus if _is_effective_area(hdu)]
            names = ", ".join(hdu.name for hdu in hdus)
        if not found:
            raise EventFileError(
                f"{source}: has no effective area (EFF_AREA), only {names}; give a file of gamma-astro-data-formats "
                "that has one"
            )
        for hdu in found:
            if _MARK in hdu.header:
                raise EventFileError(
                    f"{source}: its effective area was multiplied by an efficiency already; give the original file"
                )
            unit = units.Unit(hdu.columns["ENERG_LO"].unit or "TeV")
            low, high = ((hdu.data[name] * unit).to_value("TeV") for name in ("ENERG_LO", "ENERG_HI"))
            area = hdu.data["EFFAREA"]
            values = factor(np.sqrt(np.maximum(low, high / 100) * high))
            # energies are the last axis, as the layout has it, behind offsets from the pointing
            area[:] = area * values.reshape(len(area), *(1,) * (area.ndim - 2), -1)
            hdu.header[_MARK] = (of, "EFFAREA times an efficiency of excess")
            for line in _lines(history):
                hdu.header.add_history(line)
        signed = any("CHECKSUM" in hdu.header for hdu in hdus)
        with wrap_errors(target, "writing FITS"), replacing(target) as temporary, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hdus.writeto(temporary, overwrite=True, checksum=signed)
    return len(found)


def pointing_zenith(path: Path) -> float | None:
    """Return the zenith distance of the pointing of a FITS run in deg; None if its headers do not say."""
    fits = require("astropy.io.fits", "reading FITS")
    check_fits(path)
    with wrap_errors(path, "reading FITS"), fits.open(path) as hdus:
        for hdu in hdus:
            for key, zenith in (("ZEN_PNT", lambda value: value), ("ALT_PNT", lambda value: 90 - value)):
                value: Any = hdu.header.get(key)
                if isinstance(value, (int, float)):
                    return float(zenith(value))
    return None


def _lines(remarks: Sequence[str]) -> Iterator[str]:
    """Yield remarks in lines that fit into a header, which has ASCII alone."""
    for remark in remarks:
        yield from wrap(remark.encode("ascii", "replace").decode(), 70)


def _is_effective_area(hdu: Any) -> bool:
    names = {column.name for column in getattr(hdu, "columns", ())}
    return {"ENERG_LO", "ENERG_HI", "EFFAREA"} <= names
