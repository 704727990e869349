"""Reflected regions: the On region, turned about the pointing of each run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from excess._core.checks import BoolArray, FloatArray
from excess.observation.placement import (
    Placement,
    excluded_circles,
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

__all__ = ["place_reflected", "reflect"]

_FREE_RADII = 0.5
"""Space between On and the nearest Off region in radii, where as many as fit are placed."""
_ROUNDING = 1e-9


def place_reflected(table: pd.DataFrame, config: RegionConfig) -> Placement:
    """Return angles to the source, and to its reflections about the pointing of each event; see `reflect`."""
    source = source_direction(config)
    event = read_directions(table, ("ra", "dec"))
    pointings, number = read_pointings(table)
    center = reflect(pointings, source, config)
    theta = np.empty((len(event), center.shape[1]))
    for k in range(center.shape[1]):
        theta[:, k] = np.degrees(angles_between(center[number, k], event))
    there = np.isfinite(center[:, 1:, 0])
    exposure = None if there.all() else there.astype(np.float64)[number]
    return Placement(theta, exposure, excluded=find_excluded(event, config) if config.exclusion else None)


def reflect(pointing: FloatArray, source: FloatArray, config: RegionConfig) -> FloatArray:
    """Turn the source about pointings, as far as regions fit between each other and exclusions.

    Parameters
    ----------
    pointing : ndarray of shape (n_pointings, 3)
        Unit vectors; NaN for none.
    source : ndarray of shape (3,)
        Unit vector.
    config : RegionConfig
        Radius and number of regions, smallest distance to the source, and exclusions.

    Returns
    -------
    ndarray of shape (n_pointings, n_regions, 3)
        Centres of the regions, the source first; NaN where a pointing has no such region.

    Notes
    -----
    A number of regions is placed in equal steps of the rotation, six regions every 60 deg. Where the offset of the
    source is so small that they would overlap, there are fewer, in larger steps. With ``n_regions: auto`` they are
    placed one beside the other, beginning at the smallest distance from the source, and a region that overlaps an
    exclusion is moved on until it does not.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.events import RegionConfig
    >>> from excess.observation.reflected import reflect
    >>> from excess.observation.sky import unit_vectors
    >>> pointings = unit_vectors([83.63, 83.63, 83.63], [22.61, 22.21, 22.01])
    >>> for n_regions in (6, "auto"):
    ...     center = reflect(pointings, unit_vectors(83.63, 22.01), RegionConfig(n_regions=n_regions))
    ...     print(np.isfinite(center[:, 1:, 0]).sum(axis=1))
    [5 2 0]
    [10  1  0]
    """
    wanted = config.n_wanted
    return _fill(pointing, source, config) if wanted is None else _spread(pointing, source, config, wanted)


def _spread(pointing: FloatArray, source: FloatArray, config: RegionConfig, wanted: int) -> FloatArray:
    """Place a number of regions in equal steps, or as many as fit."""
    radius = np.radians(config.radius)
    smallest = max(2 * radius, 0.0 if config.min_distance is None else np.radians(config.min_distance))
    sine = np.sin(angles_between(source, pointing))
    n_fitting = np.ones(len(pointing), dtype=np.int64)
    for n in range(2, wanted + 1):
        n_fitting[~is_crowded(2 * np.arcsin(np.minimum(sine * np.sin(np.pi / n), 1.0)), smallest)] = n
    center = np.full((len(pointing), wanted, 3), np.nan)
    center[:, 0] = source
    for k in range(1, wanted):
        own = n_fitting > k
        center[own, k] = turn_about(pointing[own], source, 2 * np.pi * k / n_fitting[own])
    center[:, 1:][find_excluded(center[:, 1:], config, config.radius)] = np.nan
    return center


def _fill(pointing: FloatArray, source: FloatArray, config: RegionConfig) -> FloatArray:
    """Place as many regions as fit, one beside the other."""
    radius = np.radians(config.radius)
    nearest = (2 + _FREE_RADII) * radius if config.min_distance is None else np.radians(config.min_distance)
    sine = np.sin(angles_between(source, pointing))
    with np.errstate(divide="ignore"):
        width, first = (_rotation_for(distance / sine) for distance in (np.sin(radius), np.sin(nearest / 2)))
    first = np.maximum(first, width)
    last = (2 * np.pi - first) * (1 + _ROUNDING)
    blocked = _block(pointing, source, config)
    angle = first
    placed: list[FloatArray] = []
    n_placed = np.zeros(len(pointing), dtype=np.int64)
    while (open_ := angle <= last).any():  # not so for NaN, where none fits
        skip = _skip(angle, blocked)
        fits = open_ & (skip == 0)
        center = turn_about(pointing, source, -np.where(fits, angle, 0.0))  # from north to east
        for k in np.unique(n_placed[fits]).tolist():
            if k == len(placed):
                placed.append(np.full((len(pointing), 3), np.nan))
            own = fits & (n_placed == k)
            placed[k][own] = center[own]
        n_placed += fits
        angle = angle + np.where(fits, width, skip)
    if not placed:
        placed.append(np.full((len(pointing), 3), np.nan))
    return np.stack([np.broadcast_to(source, pointing.shape), *placed], axis=1)


def _block(pointing: FloatArray, source: FloatArray, config: RegionConfig) -> list[tuple[FloatArray, FloatArray]]:
    """Return the rotations at which a region overlaps each exclusion: their middle, and half of their range."""
    offset = angles_between(source, pointing)
    found = []
    for center, own in excluded_circles(config.exclusion):
        distance = angles_between(center, pointing)
        largest = np.cos(np.radians(own + config.radius)) - np.cos(offset) * np.cos(distance)
        with np.errstate(divide="ignore", invalid="ignore"):
            half = np.arccos(np.clip(largest / (np.sin(offset) * np.sin(distance)), -1.0, 1.0))
        found.append((-rotation_between(pointing, source, center) % (2 * np.pi), half))
    return found


def _skip(angle: FloatArray, blocked: list[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Return how far regions have to be turned on to leave the exclusions that they overlap; 0 for none."""
    skip = np.zeros(len(angle))
    for middle, half in blocked:
        beyond = (angle - middle + np.pi) % (2 * np.pi) - np.pi
        skip = np.maximum(skip, np.where(np.abs(beyond) < half * (1 - _ROUNDING), half - beyond, 0.0))
    return skip


def _rotation_for(half: FloatArray) -> FloatArray:
    """Return the rotation whose half has this sine; NaN where no rotation takes the source so far away."""
    possible: BoolArray = half <= 1
    return np.where(possible, 2 * np.arcsin(np.where(possible, half, 0.0)), np.nan)
