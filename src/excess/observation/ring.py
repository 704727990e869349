"""Ring segments: Off events at the offset of the On region from the pointing, all around it.

The acceptance of a Cherenkov telescope falls with the offset from the pointing, and is the same all around it. So a
ring around the pointing needs no model of the acceptance, but a ring around the source does. On is a circle and Off a
ring, whose shares of the events differ with the offset. So the offset is divided into bins, each with its own exposure
ratio: the ratio of the solid angles of On and Off in the bin.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess.observation.placement import (
    Placement,
    find_excluded,
    is_crowded,
    read_directions,
    read_pointings,
    source_direction,
)
from excess.observation.sky import angles_between, rotation_between, turn_about

if TYPE_CHECKING:
    import pandas as pd

    from excess.events import RegionConfig

__all__ = ["place_ring", "ring_exposure"]

N_OFFSET_BINS = 5
"""Bins of the offset inside the ring, each with its own exposure ratio."""
_N_SEGMENTS = 5
"""Parts of the ring, which null tests take for On in turn, with ``n_regions: auto``."""
_N_LINES = 16
_N_STEPS = 1440
"""Points on which solid angles are computed: lines of equal offset in each bin, and steps around the pointing."""
_DIGITS = 5
"""Digits of unit vectors that tell pointings apart, 0.0006 deg."""
_FREE_RADII = 0.5
"""Space between the On region and the ring, in radii."""


def place_ring(table: pd.DataFrame, config: RegionConfig) -> Placement:
    """Return the regions of events: the circle around the source, and segments of the ring around the pointing."""
    source = source_direction(config)
    event = read_directions(table, ("ra", "dec"))
    pointings, number = read_pointings(table)
    radius = np.radians(config.radius)
    n_segments = _count_segments(config)
    axis = pointings[number]
    offset = angles_between(source, axis)
    bin_ = np.floor((angles_between(event, axis) - offset + radius) * (N_OFFSET_BINS / (2 * radius)))
    inside = (bin_ >= 0) & (bin_ < N_OFFSET_BINS) & ~is_crowded(offset, radius)
    bin_ = np.where(inside, bin_, 0).astype(np.intp)
    theta = angles_between(source, event)
    segment = _find_segments(event, axis, source, n_segments)
    region = np.full(len(event), -1, dtype=np.int64)
    ring = inside & (theta > _gap(config)) & ~find_excluded(event, config)
    region[ring] = 1 + segment[ring]
    # not by the bins: On is what the cut on theta says, and rounding at the edge of the ring must not change it
    on = theta**2 < radius**2
    region[on & inside] = 0
    known = np.zeros((len(pointings), N_OFFSET_BINS, n_segments))
    for one in np.unique(number[region >= 0]).tolist():
        known[one] = _exposure_near(*np.round(pointings[one], _DIGITS).tolist(), config)
    exposure = known[number, bin_]
    excluded = find_excluded(event, config) if config.exclusion else None
    return Placement(None, exposure, region, excluded)


def ring_exposure(pointing: FloatArray, source: FloatArray, config: RegionConfig) -> FloatArray:
    """Return the solid angles of the segments of the ring in units of that of On, by bins of the offset.

    Parameters
    ----------
    pointing, source : ndarray of shape (3,)
        Unit vectors.
    config : RegionConfig
        Radius of On, number of regions, distance to the source, and exclusions.

    Returns
    -------
    ndarray of shape (5, n_regions - 1)
        One row for each bin of the offset, one column for each segment. All zero where the pointing is inside of On.

    Examples
    --------
    >>> from excess.events import RegionConfig
    >>> from excess.observation.ring import ring_exposure
    >>> from excess.observation.sky import unit_vectors
    >>> ring_exposure(unit_vectors(83.63, 22.61), unit_vectors(83.63, 22.01), RegionConfig(n_regions=3)).round(1)
    array([[ 8.3,  8.3],
           [ 5.4,  5.4],
           [ 5.2,  5.2],
           [ 6.1,  6.1],
           [10.6, 10.6]])
    """
    radius = np.radians(config.radius)
    offset = float(angles_between(source, pointing))
    n_segments = _count_segments(config)
    exposure = np.zeros((N_OFFSET_BINS, n_segments))
    if is_crowded(offset, radius):
        return exposure
    lines = N_OFFSET_BINS * _N_LINES
    at = offset + radius * ((2 * np.arange(lines) + 1) / lines - 1)
    # half of the rotation under which On is seen at each offset
    cosine = (np.cos(radius) - np.cos(at) * np.cos(offset)) / (np.sin(at) * np.sin(offset))
    on = np.sin(at) * 2 * np.arccos(np.clip(cosine, -1.0, 1.0))
    turn = 2 * np.pi * (np.arange(_N_STEPS) + 0.5) / _N_STEPS
    # the same line through the source at each offset, turned about the pointing
    across = source - np.sum(source * pointing) * pointing
    across /= np.linalg.norm(across)
    start = np.cos(at)[:, np.newaxis] * pointing + np.sin(at)[:, np.newaxis] * across
    point = turn_about(pointing, start[:, np.newaxis], turn)
    used = (angles_between(source, point) > _gap(config)) & ~find_excluded(point, config)
    segment = _find_segments(point, pointing, source, n_segments)
    weight = np.sin(at) * (2 * np.pi / _N_STEPS)
    on_area = on.reshape(N_OFFSET_BINS, -1).sum(axis=1)
    for k in range(n_segments):
        area = weight * np.count_nonzero(used & (segment == k), axis=1)
        exposure[:, k] = area.reshape(N_OFFSET_BINS, -1).sum(axis=1) / on_area
    return exposure


@lru_cache(maxsize=4096)  # files of one pointing come in many chunks
def _exposure_near(x: float, y: float, z: float, config: RegionConfig) -> FloatArray:
    """Return `ring_exposure` of a direction that is rounded, because pointings move a little while they are held."""
    pointing = np.array([x, y, z])
    return ring_exposure(pointing / np.linalg.norm(pointing), source_direction(config), config)


def _count_segments(config: RegionConfig) -> int:
    return _N_SEGMENTS if config.n_wanted is None else config.n_wanted - 1


def _gap(config: RegionConfig) -> float:
    """Return the distance from the source in rad at which the ring begins."""
    wanted = (1 + _FREE_RADII) * config.radius if config.min_distance is None else config.min_distance - config.radius
    return float(np.radians(max(wanted, config.radius)))


def _find_segments(event: FloatArray, axis: FloatArray, source: FloatArray, n_segments: int) -> NDArray[np.int64]:
    """Return the number of the segment that directions are in, by their rotation against the source."""
    angle = rotation_between(axis, source, event)
    angle = np.where(np.isnan(angle), 0.0, angle)
    return np.minimum(np.floor(angle * (n_segments / (2 * np.pi))), n_segments - 1).astype(np.int64)
