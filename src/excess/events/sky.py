"""Sky positions from directions relative to the horizon, with times and the location of the telescope."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from excess._core.checks import FloatArray, check_same_length
from excess._core.errors import require
from excess.events.telescopes import Location

__all__ = ["sky_positions"]

_GRID = 300.0
"""Seconds between the times for which the rotation and motion of the Earth are computed; in between, interpolation is
better than a microarcsecond."""


def sky_positions(
    altitude: ArrayLike, azimuth: ArrayLike, unix_time: ArrayLike, location: Location
) -> tuple[FloatArray, FloatArray]:
    """Return right ascension and declination (ICRS) of directions relative to the horizon.

    Needs astropy. Nothing is downloaded: the rotation of the Earth is taken from the tables that come with astropy.
    There is no refraction: analyses of air showers give directions without it.

    Parameters
    ----------
    altitude, azimuth : array-like of shape (n_events,)
        In deg; azimuth from north to east. NaN where an event has no direction.
    unix_time : array-like of shape (n_events,)
        Seconds of Unix time.
    location : Location
        Of the telescope.

    Returns
    -------
    ra, dec : ndarray of shape (n_events,)
        In deg; NaN where the direction or the time is missing.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.events import Location, sky_positions
    >>> place = Location(-17.89139, 28.76139, 2184.0)
    >>> ra, dec = sky_positions([80.0], [180.0], [1383530354.0], place)
    >>> np.round(ra, 2), np.round(dec, 2)
    (array([55.19]), array([18.72]))
    """
    coordinates = require("astropy.coordinates", "sky positions")
    units = require("astropy.units", "sky positions")
    Time = require("astropy.time", "sky positions").Time
    alt, az, time = (np.asarray(value, dtype=np.float64) for value in (altitude, azimuth, unix_time))
    check_same_length(altitude=alt, azimuth=az, unix_time=time)
    ra, dec = np.full(len(alt), np.nan), np.full(len(alt), np.nan)
    known = np.isfinite(alt) & np.isfinite(az) & np.isfinite(time) & (np.abs(alt) <= 90)
    if not known.any():
        return ra, dec
    with _offline():
        place = coordinates.EarthLocation.from_geodetic(location.longitude, location.latitude, location.height)
        frame = coordinates.AltAz(obstime=Time(time[known], format="unix", scale="utc"), location=place)
        horizon = coordinates.SkyCoord(az[known], alt[known], unit="deg", frame=frame)
        astrometry = require("astropy.coordinates.erfa_astrom", "sky positions")
        with astrometry.erfa_astrom.set(astrometry.ErfaAstromInterpolator(_GRID * units.s)):
            sky = horizon.icrs
    ra[known], dec[known] = sky.ra.deg, sky.dec.deg
    return ra, dec


@contextmanager
def _offline() -> Iterator[None]:
    """Let astropy use the tables that it comes with; for dates beyond them it has mean values."""
    iers = require("astropy.utils.iers", "sky positions")
    with (
        warnings.catch_warnings(),
        iers.conf.set_temp("auto_download", False),
        iers.conf.set_temp("iers_degraded_accuracy", "ignore"),
        iers.earth_orientation_table.set(_earth_orientation()),
    ):
        warnings.simplefilter("ignore")
        yield


@cache
def _earth_orientation() -> Any:
    iers = require("astropy.utils.iers", "sky positions")
    return iers.IERS_A.open(iers.IERS_A_FILE)
