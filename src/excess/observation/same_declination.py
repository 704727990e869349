"""Regions of the same declination: the On region, shifted in right ascension, where the sky drifts over."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from excess._core.checks import FloatArray
from excess.observation.placement import Placement, find_excluded, read_directions, source_direction
from excess.observation.sky import angles_between, turn_about, unit_vectors

if TYPE_CHECKING:
    import pandas as pd

    from excess.events import RegionConfig

__all__ = ["place_same_declination", "shift"]

_MOST = 20
"""Off regions with ``n_regions: auto``, ten on either side; more would lie far from the source."""
_FREE_RADII = 0.5
"""Space between On and the nearest Off region, in radii."""


def place_same_declination(table: pd.DataFrame, config: RegionConfig) -> Placement:
    """Return angles to the source, and to its shifts in right ascension; see `shift`."""
    center = shift(source_direction(config), config)
    event = read_directions(table, ("ra", "dec"))
    theta = np.stack([np.degrees(angles_between(one, event)) for one in center], axis=1)
    return Placement(theta, excluded=find_excluded(event, config) if config.exclusion else None)


def shift(source: FloatArray, config: RegionConfig) -> FloatArray:
    """Shift the source in right ascension, to the east and to the west in turn, as near as regions fit.

    Parameters
    ----------
    source : ndarray of shape (3,)
        Unit vector.
    config : RegionConfig
        Radius and number of regions, smallest distance to the source, and exclusions.

    Returns
    -------
    ndarray of shape (n_regions, 3)
        Centres of the regions, the source first. Those that overlap an exclusion are left out, and others farther away
        take their place.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.events import RegionConfig
    >>> from excess.observation.same_declination import shift
    >>> from excess.observation.sky import unit_vectors
    >>> center = shift(unit_vectors(83.63, 60.0), RegionConfig(theta_squared_cut=0.25, n_regions=5))
    >>> np.degrees(np.arctan2(center[:, 1], center[:, 0])).round(2)
    array([83.63, 86.13, 81.13, 88.13, 79.13])
    """
    radius = np.radians(config.radius)
    nearest = (2 + _FREE_RADII) * radius if config.min_distance is None else np.radians(config.min_distance)
    cosine = float(np.hypot(source[0], source[1]))
    pole = unit_vectors(0.0, 90.0)
    n_off = _MOST if config.n_wanted is None else config.n_wanted - 1
    found = [source]
    if max(np.sin(radius), np.sin(nearest / 2)) < cosine:
        width, first = (2 * float(np.arcsin(np.sin(half) / cosine)) for half in (radius, nearest / 2))
        first = max(first, width)
        for step in count():
            angle = first + step * width
            if angle > np.pi or len(found) > n_off:
                break
            # the two sides meet opposite to the source
            sides = (1, -1) if angle <= np.pi - width / 2 else (1,)
            centers = [turn_about(pole, source, side * angle) for side in sides]
            found += [one for one in centers if not find_excluded(one, config, config.radius)]
    if len(found) == 1:
        raise ValueError(
            f"there is no room for an Off region at the declination of the source ({config.source_dec:g} deg), outside "
            "of exclusions; make theta_squared_cut, min_distance or exclusions smaller"
        )
    return np.stack(found[: n_off + 1])
