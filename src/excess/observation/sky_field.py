"""Positions of events on the sky relative to the source, for a map of the field around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import FloatArray
from excess._core.rng import row_hashes
from excess.observation.region_methods import SKY_COLUMNS
from excess.observation.sky import offset_of_source
from excess.validation.sky_map import cluster_pointings

if TYPE_CHECKING:
    import pandas as pd

    from excess.events import RegionConfig

__all__ = [
    "MAX_FIELD_EVENTS",
    "exclusion_offsets",
    "field_radius",
    "has_sky",
    "offset_position",
    "region_centers",
    "row_draws",
    "sky_offsets",
]

MAX_FIELD_EVENTS = 400_000
"""Largest number of events outside of all regions that are kept for a map; of more, a part is drawn."""
_MAX_FITTED = 2_000
"""Events of a pointing that the centres of its regions are found from."""
_RADII = 12.0
_SMALLEST_FIELD = 1.5
"""Radius of the field in units of that of a region, and its smallest value in deg."""


def has_sky(columns: Any, config: RegionConfig) -> bool:
    """Return whether a map can be made: the source is known, and there are sky positions of events and pointing."""
    return config.source_ra is not None and all(name in columns for name in SKY_COLUMNS)


def field_radius(theta_squared_cut: float) -> float:
    """Return the radius of the mapped field around the source in deg."""
    return max(_RADII * float(np.sqrt(theta_squared_cut)), _SMALLEST_FIELD)


def sky_offsets(table: pd.DataFrame, config: RegionConfig) -> FloatArray:
    """Return where events and pointings are relative to the source: to the east and to the north, in deg.

    Distances and directions from the source are those on the sphere. Columns: east and north of the event, east and
    north of the pointing.
    """
    ra, dec, pointing_ra, pointing_dec = (table[name].to_numpy(dtype=np.float64) for name in SKY_COLUMNS)
    event, pointing = (_offsets_from_source(*position, config) for position in ((ra, dec), (pointing_ra, pointing_dec)))
    return np.stack([*event, *pointing], axis=1)


def _offsets_from_source(ra: FloatArray, dec: FloatArray, config: RegionConfig) -> tuple[FloatArray, FloatArray]:
    """Return how far directions are to the east and to the north of the source, in deg; NaN where there is none."""
    center = float(config.source_ra or 0.0), float(config.source_dec or 0.0)
    distance, direction = offset_of_source(*center, source_ra=ra, source_dec=dec)
    angle = np.radians(direction)
    return distance * np.sin(angle), distance * np.cos(angle)


def exclusion_offsets(config: RegionConfig) -> FloatArray:
    """Return where exclusions are relative to the source: to the east and to the north, and their radii, in deg."""
    if not config.exclusion:
        return np.empty((0, 3))
    ra, dec, radius = np.array([(one.ra, one.dec, one.radius) for one in config.exclusion]).T
    return np.stack([*_offsets_from_source(ra, dec, config), radius], axis=1)


def region_centers(sky: FloatArray, theta: FloatArray | None) -> FloatArray:
    """Return where the Off regions of all pointings are relative to the source, in deg.

    They follow from the angles between regions and events, whatever has placed the regions: a region is where the
    circles around three events meet.
    """
    found: list[FloatArray] = []
    if theta is None:
        return np.empty((0, 2))
    known = np.isfinite(sky[:, :4]).all(axis=1)
    position, angles = sky[known, :2], theta[known]
    centers, _, number = cluster_pointings(sky[known, 2:4])
    for pointing in range(len(centers)):
        own = np.flatnonzero(number == pointing)[:_MAX_FITTED]
        for column in angles[own, 1:].T:
            there = np.isfinite(column)
            if np.count_nonzero(there) < 3:
                continue
            # |p - c|^2 = theta^2 for every event, so that 2 p c - |c|^2 = |p|^2 - theta^2: linear in c and |c|^2
            p = position[own][there]
            equations = np.column_stack([2 * p, -np.ones(len(p))])
            solved = np.linalg.lstsq(equations, (p**2).sum(axis=1) - column[there] ** 2, rcond=None)[0]
            found.append(solved[:2])
    return np.array(found).reshape(-1, 2)


def offset_position(ra: ArrayLike, dec: ArrayLike, *, east: FloatArray, north: FloatArray) -> tuple[Any, Any]:
    """Return right ascension and declination of what is to the east and to the north of a place, all in deg.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.observation.sky_field import offset_position
    >>> ra, dec = offset_position(83.63, 22.01, east=np.array([0.0]), north=np.array([0.5]))
    >>> float(ra[0].round(6)), float(dec[0].round(6))
    (83.63, 22.51)
    """
    longitude, latitude = np.radians(ra), np.radians(dec)
    distance, direction = np.radians(np.hypot(east, north)), np.arctan2(east, north)
    sine = np.sin(latitude) * np.cos(distance) + np.cos(latitude) * np.sin(distance) * np.cos(direction)
    turn = np.arctan2(
        np.sin(direction) * np.sin(distance) * np.cos(latitude), np.cos(distance) - np.sin(latitude) * sine
    )
    return np.degrees(longitude + turn) % 360, np.degrees(np.arcsin(np.clip(sine, -1.0, 1.0)))


def row_draws(first_row: int, n_rows: int) -> FloatArray:
    """Return a number between 0 and 1 for each of consecutive rows, the same in any chunk."""
    hashes: NDArray[np.uint64] = np.empty(n_rows, dtype=np.uint64)
    row_hashes(first_row, hashes)
    return hashes.astype(np.float64) / 2.0**64
