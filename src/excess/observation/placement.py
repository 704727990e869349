"""Placements: where the events of a table are, relative to On and Off regions, and how these are exposed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.observation.sky import angles_between, unit_vectors

if TYPE_CHECKING:
    import pandas as pd

    from excess.events import Exclusion, RegionConfig

__all__ = [
    "Placement",
    "excluded_circles",
    "find_excluded",
    "is_crowded",
    "read_directions",
    "read_pointings",
    "source_direction",
]

POINTING_COLUMNS = ("pointing_ra", "pointing_dec")

_TOLERANCE = 1e-9
"""Share of a radius by which regions may overlap: those that touch must not depend on rounding."""


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the events of a table are.

    Attributes
    ----------
    theta : ndarray of shape (n_events, n_regions) or None
        Angle between each event and the centre of each region in deg, On first; NaN where the pointing of the event has
        no such region, or the event no direction. None where Off regions have no centres.
    exposure : ndarray of shape (n_events, n_regions - 1) or None
        Exposure of each Off region in units of that of On, for the pointing of each event, 0 where there is no such
        region; None if all are 1.
    region : ndarray of int64 of shape (n_events,) or None
        Region of each event, -1 for none, if it does not follow from ``theta``.
    excluded : ndarray of bool of shape (n_events,) or None
        True for events inside an exclusion.
    """

    theta: FloatArray | None
    exposure: FloatArray | None = None
    region: NDArray[np.int64] | None = None
    excluded: BoolArray | None = None


def read_directions(table: pd.DataFrame, names: tuple[str, str]) -> FloatArray:
    """Return two columns of a table, right ascension and declination in deg, as unit vectors."""
    ra, dec = (table[name].to_numpy(dtype=np.float64) for name in names)
    return unit_vectors(ra, dec, names)


def read_pointings(table: pd.DataFrame) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the distinct pointings of a table as unit vectors, and the number of the pointing of each event."""
    ra, dec = (table[name].to_numpy(dtype=np.float64) for name in POINTING_COLUMNS)
    distinct, number = np.unique(ra + 1j * dec, return_inverse=True)
    return unit_vectors(distinct.real, distinct.imag, POINTING_COLUMNS), number


def source_direction(config: RegionConfig) -> FloatArray:
    """Return the direction of the source; ValueError where it is not known, or lies in an exclusion.

    Examples
    --------
    >>> from excess.events import RegionConfig
    >>> from excess.observation.placement import source_direction
    >>> star = {"name": "star", "ra": 83.7, "dec": 22.0, "radius": 0.2}
    >>> source_direction(RegionConfig(source_ra=83.63, source_dec=22.01, exclusion=[star]))
    Traceback (most recent call last):
        ...
    ValueError: the exclusion star (ra 83.7, dec 22, radius 0.2 deg) overlaps the On region, 0.07 deg away; ...
    """
    if config.source_ra is None or config.source_dec is None:
        raise ValueError(
            "the position of the source is needed to find regions from sky positions: give source_ra and source_dec in "
            "deg"
        )
    source = unit_vectors(config.source_ra, config.source_dec, ("source_ra", "source_dec"))
    for exclusion in config.exclusion:
        distance = float(np.degrees(angles_between(unit_vectors(exclusion.ra, exclusion.dec), source)))
        if distance < (exclusion.radius + config.radius) * (1 - _TOLERANCE):
            raise ValueError(
                f"the exclusion {exclusion} overlaps the On region, {distance:.2f} deg away; leave it out, as "
                "the source itself needs none, or make it or theta_squared_cut smaller"
            )
    return source


def find_excluded(event: FloatArray, config: RegionConfig, radius: float = 0.0) -> BoolArray:
    """Return which directions are in an exclusion, or, as centres of circles with a radius in deg, overlap one."""
    found = np.zeros(event.shape[:-1], dtype=np.bool_)
    for center, own in excluded_circles(config.exclusion):
        found |= angles_between(center, event) < np.radians(own + radius) * (1 - _TOLERANCE)
    return found


@lru_cache(maxsize=64)
def excluded_circles(exclusion: tuple[Exclusion, ...]) -> tuple[tuple[FloatArray, float], ...]:
    """Return the centres of exclusions as unit vectors, and their radii in deg."""
    return tuple((unit_vectors(one.ra, one.dec), one.radius) for one in exclusion)


def is_crowded(distance: FloatArray | float, smallest: float) -> BoolArray:
    """Return which distances are too small; regions that touch are not crowded."""
    return np.asarray(distance < smallest * (1 - _TOLERANCE))
