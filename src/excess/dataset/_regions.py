"""On and Off regions: placement, exposure ratios, and positions for sky maps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError
from scipy.special import chdtrc

from excess._utils import checks
from excess._utils.checks import BoolArray, FloatArray
from excess._utils.errors import ArgumentError, EventFileError, MismatchError, missing_column
from excess._utils.rng import row_hashes
from excess.config import _columns
from excess.config._model import Exclusion, IntervalConfig, RegionConfig, describe_error
from excess.detection._histograms import cluster_pointings
from excess.io._fits import GOOD_TIME, RadMax, read_rad_max
from excess.io._reading import recognise
from excess.stats._significance import OnOffCounts

_P_OF_CHANCE = 0.05  # p-value above which differences between Off regions are compatible with fluctuations


def unit_vectors(ra: ArrayLike, dec: ArrayLike, names: tuple[str, str] = ("ra", "dec")) -> FloatArray:
    """Return directions in deg as unit vectors in the last axis; NaN for missing directions."""
    angles = []
    for name, value in zip(names, (ra, dec), strict=True):
        angles.append(np.asarray(value, dtype=np.float64))
        checks.as_floats(name, angles[-1][~np.isnan(angles[-1])])
        if angles[-1].ndim > 1:
            checks.as_column(name, angles[-1])
    longitude, latitude = np.radians(angles[0]), np.radians(angles[1])
    if (np.abs(latitude) > np.pi / 2 + 1e-12).any():
        raise ValueError(f"{names[1]} must be between -90 and 90 deg")
    cosine = np.cos(latitude)
    return np.stack([cosine * np.cos(longitude), cosine * np.sin(longitude), np.sin(latitude)], axis=-1)


def angles_between(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the angles in rad between vectors in the last axis; accurate for small angles."""
    sine = np.linalg.norm(np.cross(one, other), axis=-1)
    return np.asarray(np.arctan2(sine, np.sum(one * other, axis=-1)))


def turn_about(axis: FloatArray, direction: FloatArray, angle: ArrayLike) -> FloatArray:
    """Rotate directions about an axis by an angle in rad, right-handed."""
    along = np.sum(axis * direction, axis=-1, keepdims=True) * axis
    turn = np.asarray(angle, dtype=np.float64)[..., np.newaxis]
    return along + np.cos(turn) * (direction - along) + np.sin(turn) * np.cross(axis, direction)


def rotation_between(axis: FloatArray, start: FloatArray, direction: FloatArray) -> FloatArray:
    """Return the angle in rad, from 0 to 2 pi, by which `turn_about` moves one direction to the meridian of another."""
    across = start - np.sum(axis * start, axis=-1, keepdims=True) * axis
    up, right = (np.sum(direction * one, axis=-1) for one in (across, np.cross(axis, start)))
    return np.arctan2(right, up) % (2 * np.pi)


def offset_of_source(
    pointing_ra: ArrayLike, pointing_dec: ArrayLike, *, source_ra: ArrayLike, source_dec: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return distance and position angle of the source from each pointing in deg; north is 0, east is 90."""
    axis = unit_vectors(pointing_ra, pointing_dec, ("pointing_ra", "pointing_dec"))
    source = unit_vectors(source_ra, source_dec, ("source_ra", "source_dec"))
    north, east = _north_and_east(pointing_ra, pointing_dec)
    along, up, right = (np.sum(source * direction, axis=-1) for direction in (axis, north, east))
    return np.degrees(np.arctan2(np.hypot(up, right), along)), np.degrees(np.arctan2(right, up)) % 360


def place_in_field(pointing_ra: ArrayLike, pointing_dec: ArrayLike, *, offset: float, direction: float) -> FloatArray:
    """Return a position in fields of view as unit vectors, such as the source position in another run."""
    axis = unit_vectors(pointing_ra, pointing_dec, ("pointing_ra", "pointing_dec"))
    north, east = _north_and_east(pointing_ra, pointing_dec)
    distance, angle = np.radians(offset), np.radians(direction)
    return np.asarray(np.cos(distance) * axis + np.sin(distance) * (np.cos(angle) * north + np.sin(angle) * east))


def _north_and_east(ra: ArrayLike, dec: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return unit vectors to the north and to the east of directions in deg."""
    longitude, latitude = (np.radians(np.asarray(value, dtype=np.float64)) for value in (ra, dec))
    zero = np.zeros_like(longitude)
    north = [-np.sin(latitude) * np.cos(longitude), -np.sin(latitude) * np.sin(longitude), np.cos(latitude)]
    return np.stack(north, axis=-1), np.stack([-np.sin(longitude), np.cos(longitude), zero], axis=-1)


POINTING_COLUMNS = ("pointing_ra", "pointing_dec")
LARGEST_OFFSET = 10.0  # distance in deg of a source from the pointing beyond which it was not observed
FREE_RADII = 0.5  # space between the On region and the nearest Off region, in radii
_TOLERANCE = 1e-9  # tolerated overlap relative to the radius, to absorb rounding where regions touch


@dataclass(frozen=True, eq=False)
class Placement:
    """Positions of the events of a table relative to the regions."""

    theta: FloatArray | None
    exposure: FloatArray | None = None
    region: NDArray[np.int64] | None = None
    excluded: BoolArray | None = None
    on_theta: FloatArray | None = None  # if only On has a centre
    scale: FloatArray | None = None  # of angles, which makes the cut independent of energy


def nearest_distance(config: RegionConfig) -> float:
    """Return the minimum distance in rad between the centres of On and Off regions."""
    distance = (2 + FREE_RADII) * config.radius if config.min_distance is None else config.min_distance
    return float(np.radians(distance))


def _directions(table: pd.DataFrame, columns: tuple[str, ...]) -> FloatArray:
    """Return the directions in two columns of a table, in deg, as unit vectors."""
    ra, dec = (table[name].to_numpy(dtype=np.float64) for name in columns)
    return unit_vectors(ra, dec, (columns[0], columns[1]))


def read_pointings(table: pd.DataFrame) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the distinct pointings of a table as unit vectors, and the index of the pointing of each event."""
    ra, dec = (table[name].to_numpy(dtype=np.float64) for name in POINTING_COLUMNS)
    distinct, number = np.unique(ra + 1j * dec, return_inverse=True)
    return unit_vectors(distinct.real, distinct.imag, POINTING_COLUMNS), number


def source_direction(config: RegionConfig) -> FloatArray:
    """Return the direction of the source; raise ValueError if it is unknown or in an exclusion."""
    if config.source_ra is None or config.source_dec is None:
        raise ValueError("regions from sky positions require a source; specify source_ra and source_dec in deg")
    source = unit_vectors(config.source_ra, config.source_dec, ("source_ra", "source_dec"))
    for exclusion in config.exclusion:
        distance = float(np.degrees(angles_between(unit_vectors(exclusion.ra, exclusion.dec), source)))
        if distance < (exclusion.radius + config.radius) * (1 - _TOLERANCE):
            problem = f"the exclusion {exclusion} overlaps the On region, {distance:.2f} deg away"
            raise ValueError(f"{problem}; remove it (the source itself needs none), or reduce it or theta_squared_cut")
    return source


def find_excluded(event: FloatArray, config: RegionConfig, radius: float = 0.0) -> BoolArray:
    """Return whether directions are in an exclusion or, with a radius in deg, circles around them overlap one."""
    found = np.zeros(event.shape[:-1], dtype=np.bool_)
    for center, own in excluded_circles(config.exclusion):
        found |= angles_between(center, event) < np.radians(own + radius) * (1 - _TOLERANCE)
    return found


@lru_cache(maxsize=64)
def excluded_circles(exclusion: tuple[Exclusion, ...]) -> tuple[tuple[FloatArray, float], ...]:
    """Return the centres of exclusions as unit vectors, and their radii in deg."""
    return tuple((unit_vectors(one.ra, one.dec), one.radius) for one in exclusion)


def is_crowded(distance: FloatArray | float, smallest: float) -> BoolArray:
    """Return whether distances are too small; regions may touch."""
    return np.asarray(distance < smallest * (1 - _TOLERANCE))


def place_reflected(table: pd.DataFrame, event: FloatArray, source: FloatArray, config: RegionConfig) -> Placement:
    """Return angles to the source and to its reflections about the pointing of each event; see `reflect`."""
    pointings, number = read_pointings(table)
    center = reflect(pointings, source, config)
    theta = np.stack([np.degrees(angles_between(own[number], event)) for own in center.swapaxes(0, 1)], axis=1)
    there = np.isfinite(center[:, 1:, 0])
    return Placement(theta, None if there.all() else there.astype(np.float64)[number])


def reflect(pointing: FloatArray, source: FloatArray, config: RegionConfig) -> FloatArray:
    """Rotate the source about pointings, as far as regions fit between each other and exclusions."""
    if (wanted := config.n_wanted) is None:
        return _fill(pointing, source, config)
    # a fixed number of regions in equal steps, or as many as fit
    smallest = np.radians(max(2 * config.radius, config.min_distance or 0.0))
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
    """Place as many adjacent regions as fit."""
    radius, nearest = np.radians(config.radius), nearest_distance(config)
    sine = np.sin(angles_between(source, pointing))
    with np.errstate(divide="ignore"):
        width, first = (_rotation_for(distance / sine) for distance in (np.sin(radius), np.sin(nearest / 2)))
    first = np.maximum(first, width)
    last = (2 * np.pi - first) * (1 + _TOLERANCE)
    blocked = _block(pointing, source, config)
    angle, placed = first, [np.full((len(pointing), 3), np.nan)]
    n_placed = np.zeros(len(pointing), dtype=np.int64)
    while (open_ := angle <= last).any():  # False for NaN, if no region fits
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
    return np.stack([np.broadcast_to(source, pointing.shape), *placed], axis=1)


def _block(pointing: FloatArray, source: FloatArray, config: RegionConfig) -> list[tuple[FloatArray, FloatArray]]:
    """Return the rotations at which a region overlaps each exclusion: centre and half width."""
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
    """Return the further rotation by which regions leave the exclusions that they overlap; 0 for none."""
    skip = np.zeros(len(angle))
    for middle, half in blocked:
        beyond = (angle - middle + np.pi) % (2 * np.pi) - np.pi
        skip = np.maximum(skip, np.where(np.abs(beyond) < half * (1 - _TOLERANCE), half - beyond, 0.0))
    return skip


def _rotation_for(half: FloatArray) -> FloatArray:
    """Return twice the arcsine; NaN if no rotation moves the source that far."""
    possible: BoolArray = half <= 1
    return np.where(possible, 2 * np.arcsin(np.where(possible, half, 0.0)), np.nan)


N_OFFSET_BINS = 5  # bins of the offset inside the ring, each with its own exposure ratio
_N_SEGMENTS = 5  # parts of the ring used as On by null tests, with ``n_regions: auto``
_N_LINES, _N_STEPS = 16, 1440  # points for solid angles: lines of equal offset in each bin, steps around the pointing
_DIGITS = 5  # digits of unit vectors that distinguish pointings, 0.0006 deg


def place_ring(table: pd.DataFrame, event: FloatArray, source: FloatArray, config: RegionConfig) -> Placement:
    """Return the regions of events: the circle around the source, and segments of the ring around the pointing."""
    pointings, number = read_pointings(table)
    radius, n_segments = np.radians(config.radius), _count_segments(config)
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
    # not by bins: On is defined by the cut on theta, and rounding at the edge of the ring must not change it
    on = theta**2 < radius**2
    region[on & inside] = 0
    known = np.zeros((len(pointings), N_OFFSET_BINS, n_segments))
    for one in np.unique(number[region >= 0]).tolist():
        known[one] = _exposure_near(*np.round(pointings[one], _DIGITS).tolist(), config)
    return Placement(None, known[number, bin_], region, on_theta=np.degrees(theta))


def ring_exposure(pointing: FloatArray, source: FloatArray, config: RegionConfig) -> FloatArray:
    """Return the solid angles of the segments of the ring relative to On, by bins of the offset."""
    radius, n_segments = np.radians(config.radius), _count_segments(config)
    offset = float(angles_between(source, pointing))
    exposure = np.zeros((N_OFFSET_BINS, n_segments))
    if is_crowded(offset, radius):
        return exposure
    lines = N_OFFSET_BINS * _N_LINES
    at = offset + radius * ((2 * np.arange(lines) + 1) / lines - 1)
    # half of the rotation angle covered by On at each offset
    cosine = (np.cos(radius) - np.cos(at) * np.cos(offset)) / (np.sin(at) * np.sin(offset))
    on = np.sin(at) * 2 * np.arccos(np.clip(cosine, -1.0, 1.0))
    turn = 2 * np.pi * (np.arange(_N_STEPS) + 0.5) / _N_STEPS
    # the same line through the source at each offset, rotated about the pointing
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


@lru_cache(maxsize=4096)  # files of one pointing are read in many chunks
def _exposure_near(x: float, y: float, z: float, config: RegionConfig) -> FloatArray:
    """Return `ring_exposure` of a rounded direction, because pointings move slightly during a run."""
    pointing = np.array([x, y, z])
    return ring_exposure(pointing / np.linalg.norm(pointing), source_direction(config), config)


def _count_segments(config: RegionConfig) -> int:
    return _N_SEGMENTS if config.n_wanted is None else config.n_wanted - 1


def _gap(config: RegionConfig) -> float:
    """Return the distance from the source in rad at which the ring begins."""
    wanted = (1 + FREE_RADII) * config.radius if config.min_distance is None else config.min_distance - config.radius
    return float(np.radians(max(wanted, config.radius)))


def _find_segments(event: FloatArray, axis: FloatArray, source: FloatArray, n_segments: int) -> NDArray[np.int64]:
    """Return the index of the segment of directions, by their rotation relative to the source."""
    angle = np.nan_to_num(rotation_between(axis, source, event))
    return np.minimum(np.floor(angle * (n_segments / (2 * np.pi))), n_segments - 1).astype(np.int64)


_MOST = 20  # Off regions with ``n_regions: auto``, ten on either side; more would be far from the source


def place_same_declination(_: Any, event: FloatArray, source: FloatArray, config: RegionConfig) -> Placement:
    """Return angles to the source and to positions shifted in right ascension; see `shift`."""
    return Placement(np.stack([np.degrees(angles_between(one, event)) for one in shift(source, config)], axis=1))


def shift(source: FloatArray, config: RegionConfig) -> FloatArray:
    """Shift the source in right ascension, alternately to the east and to the west, as close as regions fit."""
    radius, nearest = np.radians(config.radius), nearest_distance(config)
    cosine, pole = float(np.hypot(source[0], source[1])), unit_vectors(0.0, 90.0)
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
        problem = f"no room for an Off region at the declination of the source ({config.source_dec:g} deg)"
        raise ValueError(f"{problem}; reduce theta_squared_cut, min_distance or the exclusions")
    return np.stack(found[: n_off + 1])


SKY_COLUMNS = ("ra", "dec", *POINTING_COLUMNS)  # required for angles to reflected regions, if a table has no angles


class RegionMethod(NamedTuple):
    """A method to define On and Off."""

    place: Callable[[pd.DataFrame, FloatArray, FloatArray, RegionConfig], Placement] | None
    columns: tuple[str, ...] = ()


def theta_columns(n_regions: int) -> list[str]:
    """Return the names of the columns with the angle of an event to each region, On first."""
    return ["theta_deg", *(f"theta_deg_off_{k}" for k in range(1, n_regions))]


def count_angles(columns: Iterable[str]) -> int:
    """Return the number of regions to which a table has angles; 0 without angles to the source."""
    present, number = set(columns), 0
    while theta_columns(number + 1)[-1] in present:
        number += 1
    return number


def place_by_method(table: pd.DataFrame, config: RegionConfig) -> Placement:
    """Return the positions of events relative to all regions, from angles in the table or by a method."""
    name, columns = choose_method(table.columns, config)
    place = METHODS[name].place
    if place is None:
        return Placement(table[columns].to_numpy(dtype=np.float64))
    source = source_direction(config)
    event = _directions(table, SKY_COLUMNS[:2])
    placed = replace(place(table, event, source, config), scale=theta_scale(table, source, config))
    return replace(placed, excluded=find_excluded(event, config)) if config.exclusion else placed


def theta_scale(table: pd.DataFrame, center: FloatArray, config: RegionConfig) -> FloatArray | None:
    """Return the largest radius over that of each event, by RAD_MAX at the offset of regions; None for one radius."""
    if not config.rad_max:
        return None
    radii, pointing = rad_max_of(Path(table.attrs.get("file", ""))), _directions(table, POINTING_COLUMNS)
    offset = np.degrees(angles_between(np.broadcast_to(center, pointing.shape), pointing))
    own = radii.at(table["energy"].to_numpy(dtype=np.float64), offset)
    return np.divide(config.radius, own, out=np.full(len(own), 1e6), where=own > 0)


def rad_max_of(path: Path) -> RadMax:
    """Return RAD_MAX of a run; raise EventFileError if there is none."""
    found = read_rad_max(path) if path.is_file() and recognise(path).startswith("FITS") else None
    if found is None:
        remedy = "specify a cut on theta^2 (--theta2, or theta_squared_cut and rad_max: false in the configuration)"
        raise EventFileError(
            f"{path if path.name else 'the table'}: has no RAD_MAX for the radius of regions; {remedy}"
        )
    return found


def largest_rad_max(paths: Iterable[Path]) -> float:
    """Return the largest cut on theta^2 by RAD_MAX of runs, in deg^2."""
    return float(f"{max(float(rad_max_of(path).radius.max()) for path in paths) ** 2:.10g}")


def describe_rad_max(path: Path, config: RegionConfig) -> str | None:
    """Describe the difference between the radius of regions and RAD_MAX of a run; None if there is none."""
    try:
        found = None if config.rad_max else rad_max_of(path)
    except (EventFileError, OSError):
        return None
    if found is None or np.allclose(found.radius, config.radius, rtol=1e-3, atol=0):
        return None
    low, high = found.radius[found.radius > 0].min(), found.radius.max()
    theirs = f"{high:.4g} deg" if low == high else f"{low:.3g} to {high:.3g} deg by energy"
    response = f"the instrument response is for {theirs} (RAD_MAX of {found.path.name})"
    return f"regions have a radius of {config.radius:.4g} deg, but {response}; use --theta2 irf for a spectrum"


def reaches_source(table: pd.DataFrame, config: RegionConfig) -> bool:
    """Return whether events reach the distance of the source from the pointing; True if unknown."""
    if config.source_ra is None or config.method == "same_declination" or not set(SKY_COLUMNS) <= set(table.columns):
        return True
    axis, event = _directions(table, POINTING_COLUMNS), _directions(table, SKY_COLUMNS[:2])
    source = np.degrees(angles_between(np.broadcast_to(source_direction(config), axis.shape), axis))
    reach = np.degrees(angles_between(event, axis)) + config.radius
    return bool(((source < reach) & (source < LARGEST_OFFSET)).any())


METHODS = {
    "angles": RegionMethod(None),
    "reflected": RegionMethod(place_reflected, SKY_COLUMNS),
    "ring": RegionMethod(place_ring, SKY_COLUMNS),
    "same_declination": RegionMethod(place_same_declination, SKY_COLUMNS[:2]),
}


def choose_method(columns: Iterable[str], config: RegionConfig) -> tuple[str, list[str]]:
    """Return the name of the method for a table, and the required columns."""
    present = list(columns)
    if config.intervals is not None:
        return "intervals", [find_column(config.intervals, present)]
    name = config.method
    angles = theta_columns(count_angles(present) if config.n_wanted is None else config.n_wanted)
    has_angles = len(angles) > 1 and set(angles) <= set(present)
    if name == "auto":
        by_columns = not config.exclusion and config.min_distance is None and not config.rad_max
        name = "angles" if by_columns and has_angles else "reflected"
        if name == "reflected" and not set(SKY_COLUMNS) <= set(present):
            raise ValueError(_nothing_known(present, config))
    if name == "angles":
        if not has_angles:
            raise ValueError(_nothing_known(present, config))
        return name, angles
    needed = [*METHODS[name].columns, *(["energy"] if config.rad_max else [])]
    missing = [column for column in needed if column not in present]
    if missing:
        problem = f"method {name} needs sky positions in the columns {', '.join(needed)} ({', '.join(missing)} missing)"
        raise ValueError(f"{problem}; choose another method, or join files with these columns")
    return name, needed


def _nothing_known(present: list[str], config: RegionConfig) -> str:
    """Return the message for columns that do not define regions."""
    if config.exclusion or config.min_distance is not None:
        key = "exclusion" if config.exclusion else "min_distance"
        return f"{key} requires sky positions in the columns {', '.join(SKY_COLUMNS)}, which are missing"
    n_regions = config.n_wanted or 6
    missing = ", ".join(name for name in theta_columns(n_regions) if name not in present)
    angles = f"theta_deg and theta_deg_off_1 to theta_deg_off_{n_regions - 1} ({missing} missing)"
    needed = f"for {n_regions} regions the required columns are {angles}, or {', '.join(SKY_COLUMNS)}"
    return f"On and Off are not defined: {needed}; or pass Off events as separate files"


def alpha_error_of(counts: NDArray[Any], exposure: FloatArray) -> float:
    """Return the relative error of alpha that explains the differences of counts; columns are regions, rows groups."""
    n, weight = counts.sum(axis=1, keepdims=True), exposure.sum(axis=1, keepdims=True)
    expected = np.divide(n * exposure, weight, out=np.zeros(counts.shape), where=weight > 0)
    used = expected > 0
    chi_squared = float(((counts - expected)[used] ** 2 / expected[used]).sum())
    n_free = int(used.sum() - used.any(axis=1).sum())
    if n_free == 0 or chi_squared <= n_free or chdtrc(n_free, chi_squared) > _P_OF_CHANCE:
        return 0.0
    # a relative scatter of the regions adds its square times this sum to chi-squared
    lever = float(expected.sum() - ((expected**2).sum(axis=1)[n[:, 0] > 0] / n[n > 0]).sum())
    n_regions = used.sum() / used.any(axis=1).sum()
    # one On region is compared with the mean of all others
    return float(np.sqrt((chi_squared - n_free) / lever * (1 + 1 / n_regions)))


@dataclass(frozen=True, eq=False)
class Regions:
    """The region of each event."""

    region: NDArray[np.int64]
    n_regions: int
    alpha: float
    n_overlapping: int = 0
    exposure: FloatArray | None = None
    n_without_off: int = 0

    @property
    def event_alpha(self) -> FloatArray | None:
        """Exposure ratio On/Off of each event, if it varies; the mean for an event without Off regions."""
        if self.exposure is None:
            return None
        total = off_exposure(self.exposure)
        known = total[self.inside]
        if len(known) == 0 or (known == known[0]).all():
            return None
        return np.divide(1.0, total, out=np.full(len(total), self.alpha), where=total > 0)

    @property
    def n_off_regions(self) -> tuple[int, int]:
        """Minimum and maximum number of Off regions of a pointing with events."""
        if self.exposure is None or not self.inside.any():
            return self.n_regions - 1, self.n_regions - 1
        number = np.count_nonzero(self.exposure[self.inside], axis=1)
        return int(number.min()), int(number.max())

    def suggest_alpha_error(self, groups: NDArray[Any] | None = None) -> float | None:
        """Return the relative error of alpha from differences of Off regions, 0 for chance, None for one region."""
        n_off, off = self.n_regions - 1, self.region > 0
        if n_off < 2 or not off.any():
            return None
        number = np.zeros(len(off), dtype=int) if groups is None else np.unique(groups, return_inverse=True)[1]
        n_groups = int(number.max()) + 1
        cells = number[off] * n_off + self.region[off] - 1
        counts = np.bincount(cells, minlength=n_groups * n_off).reshape(n_groups, n_off)
        exposure = np.ones_like(counts, dtype=np.float64)
        if self.exposure is not None:
            shares = self.exposure[off] / off_exposure(self.exposure[off])[:, np.newaxis]
            exposure = np.column_stack([np.bincount(number[off], one, n_groups) for one in shares.T])
        return alpha_error_of(counts, exposure)

    @property
    def inside(self) -> BoolArray:
        """True for events of any region."""
        return self.region >= 0

    @property
    def on(self) -> BoolArray:
        """True for events of the On region."""
        return self.region == 0

    @property
    def counts(self) -> OnOffCounts:
        """All On and Off events, without any cut."""
        return self._count(np.ones(len(self.region), dtype=np.bool_))

    def take(self, rows: ArrayLike) -> Regions:
        """Return the regions of some events."""
        chosen = np.asarray(rows)
        exposure = None if self.exposure is None else self.exposure[chosen]
        return replace(self, region=self.region[chosen], exposure=exposure)

    def _count(self, mask: BoolArray) -> OnOffCounts:
        from excess.detection._result import count_events

        alpha = self.event_alpha
        return count_events(self.on, mask & self.inside, self.alpha if alpha is None else alpha)


def assign_regions(
    theta: ArrayLike, *, theta_squared_cut: float = 0.025, overlap: str = "on_first", alpha: float | None = None
) -> Regions:
    """Assign events to regions by the distance to their centres."""
    angles = np.asarray(theta, dtype=np.float64)
    if angles.ndim != 2 or angles.shape[1] < 2:
        raise ValueError(f"theta must have one column for On and at least one for Off, got shape {angles.shape}")
    if np.isinf(angles).any() or (angles < 0).any():
        raise ValueError("theta must contain finite, non-negative angles in deg")
    cut = checks.as_scalar("theta_squared_cut", checks.as_counts("theta_squared_cut", theta_squared_cut))
    if cut == 0:
        raise ValueError("theta_squared_cut must be positive, got 0")
    checks.as_choice("overlap", overlap, ("on_first", "drop", "error"))
    n_regions, inside = angles.shape[1], angles**2 < cut
    n_inside = inside.sum(axis=1)
    overlapping = n_inside > 1
    if overlap == "error" and overlapping.any():
        first = int(overlapping.argmax())
        where = f"the first in row {first} in regions {np.flatnonzero(inside[first]).tolist()}"
        remedy = "reduce theta_squared_cut, or choose overlap='on_first' or 'drop'"
        raise ValueError(f"{overlapping.sum()} events are in several regions, {where}; {remedy}")
    region = np.where(np.isnan(angles), np.inf, angles).argmin(axis=1)
    region[inside[:, 0]] = 0
    region[n_inside == 0] = -1
    if overlap == "drop":
        region[overlapping] = -1
    ratio = 1 / (n_regions - 1) if alpha is None else checks.as_scalar_alpha(alpha)
    return Regions(region.astype(np.int64), n_regions, ratio, int(overlapping.sum()))


def find_regions(table: pd.DataFrame, config: RegionConfig) -> Regions:
    """Assign the events of a table to regions by angles or sky positions; none outside good time intervals."""
    found = place_events(table, config)[1]
    if GOOD_TIME not in table:
        return found
    return replace(found, region=np.where(table[GOOD_TIME].to_numpy(dtype=bool), found.region, -1))


def place_events(table: pd.DataFrame, config: RegionConfig) -> tuple[Placement, Regions]:
    """Return the positions of events relative to all regions, and the region of each; see `find_regions`."""
    if config.intervals is not None:
        return place_in_intervals(table, config)
    placed = place_by_method(table, config)
    if placed.theta is not None:
        scaled = placed.theta if placed.scale is None else placed.theta * placed.scale[:, np.newaxis]
        found = assign_regions(scaled, theta_squared_cut=config.theta_squared_cut, overlap=config.overlap)
    else:
        region = np.full(len(table), -1, dtype=np.int64) if placed.region is None else placed.region
        n_off = 1 if placed.exposure is None else placed.exposure.shape[1]
        found = Regions(region, n_off + 1, 1 / n_off)
    return placed, found if placed.exposure is None else _expose(found, placed.exposure)


def _expose(found: Regions, exposure: FloatArray) -> Regions:
    """Return regions with their exposure; events without Off regions are in none."""
    without = off_exposure(exposure) == 0
    region = np.where(without, -1, found.region)
    found = replace(found, region=region, exposure=exposure, n_without_off=int(without.sum()))
    return replace(found, alpha=mean_alpha(found))


def find_column(intervals: IntervalConfig, present: Iterable[str]) -> str:
    """Return the column of intervals, ignoring case."""
    known = list(present)
    found = [name for name in known if name.lower() == intervals.column.lower()]
    if intervals.column in known or len(found) == 1:
        return intervals.column if intervals.column in known else found[0]
    raise MismatchError("on", f"needs another column: the table {missing_column(intervals.column, known)}")


def place_in_intervals(table: pd.DataFrame, config: RegionConfig) -> tuple[Placement, Regions]:
    """Return the interval of each event of a table, Off intervals numbered from 1, with widths as exposure."""
    intervals = config.intervals
    assert intervals is not None
    name = find_column(intervals, table.columns)
    try:
        values = np.asarray(_columns.as_numbers(name, table[name]), dtype=np.float64)
    except ValueError as error:
        raise MismatchError("on", f"requires a numeric column: {error}") from error
    if not (known := np.isfinite(values)).all():
        missing = f"{np.count_nonzero(~known):,} of {len(known):,}"
        raise MismatchError("on", f"requires a value for every event: {name!r} is missing in {missing}")
    period = intervals.wraps_at
    if period is not None:
        if intervals.period is None and len(values) and np.ptp(values) > period:
            problem = f"requires the period of {name!r}, whose values span {np.ptp(values):g}"
            raise MismatchError("on", f"{problem}: set regions.intervals.period in the configuration")
        values = values % period
    region = np.full(len(values), -1, dtype=np.int64)
    number = {("on", *ends): 0 for ends in intervals.on}
    number |= {("off", *ends): k for k, ends in enumerate(intervals.off, start=1)}
    for low, high, *which in intervals.pieces():
        region[(values >= low) & (values < high)] = number[tuple(which)]  # type: ignore[index]
    widths = [sum(high - low for low, high in own) for own in (intervals.on, *((one,) for one in intervals.off))]
    return Placement(None), expose_intervals(Regions(region, len(widths), 1.0), np.array(widths[1:]) / widths[0])


def expose_intervals(regions: Regions, shares: FloatArray) -> Regions:
    """Return regions with exposures of Off intervals relative to On."""
    exposure = None if (shares == 1).all() else np.tile(shares, (len(regions.region), 1))
    return replace(regions, exposure=exposure, alpha=float(1 / shares.sum()))


def off_exposure(exposure: FloatArray) -> FloatArray:
    """Return the exposure of all Off regions together, for the pointing of each event."""
    return np.asarray(sum(exposure.T, np.zeros(len(exposure))))


def mean_alpha(found: Regions) -> float:
    """Return the exposure ratio of regions; the mean over the Off events if it varies."""
    if found.exposure is None:
        return found.alpha
    total = off_exposure(found.exposure)
    for chosen in (found.region > 0, found.inside, total > 0):
        if (ratio := 1 / total[chosen]).size:
            return float(ratio[0] if (ratio == ratio[0]).all() else ratio.mean())
    return found.alpha


def join_regions(parts: Sequence[Regions]) -> tuple[Regions, BoolArray]:
    """Return the regions of all events, and the columns of angles to keep: those of regions with exposure."""
    n_off = max(part.n_regions for part in parts) - 1
    padded = []
    for part in parts:
        own = np.ones((len(part.region), part.n_regions - 1)) if part.exposure is None else part.exposure
        padded.append(np.pad(own, ((0, 0), (0, n_off - own.shape[1]))))
    exposure, region = np.concatenate(padded), np.concatenate([part.region for part in parts])
    columns = np.ones(n_off + 1, dtype=np.bool_)
    if len(exposure) and not exposure.all():
        columns[1:] = exposure.any(axis=0)
        region, exposure = (np.cumsum(columns) - 1)[region], exposure[:, columns[1:]]
    n_off = exposure.shape[1]
    n_overlapping, n_without = (
        sum(getattr(part, name) for part in parts) for name in ("n_overlapping", "n_without_off")
    )
    exposed = None if (exposure == 1).all() else exposure
    found = Regions(region, 1 + n_off, 1 / n_off, n_overlapping, exposed, n_without)
    return replace(found, alpha=mean_alpha(found)), columns


def check_regions(given: Mapping[str, Any], *, separate: bool) -> None:
    """Raise an error for settings without effect."""
    for key in ("source", "source_ra", "source_dec"):
        if key in given:
            raise ArgumentError("regions", f"has {key}; use the argument `source`")
    if separate and given.get("method", "auto") != "auto":
        raise ArgumentError("method", "cannot be combined with `off`, whose files contain the Off events")
    for key in () if separate else ("match", "match_within", "pairs"):
        if given.get(key) not in (None, (), [], "none"):
            raise ArgumentError(key, "requires `off`: it selects the Off runs to compare with On runs")


def unusable_exclusion() -> MismatchError:
    """Return the error for an exclusion with Off files without known positions of Off on the sky."""
    needed = f"sky positions of whole fields of view in all files, in the columns {', '.join(SKY_COLUMNS)}"
    problem = f"cannot be applied to separate Off files without {needed}"
    return MismatchError("exclusion", f"{problem} and `source`; or remove the exclusion")


def change_regions(regions: RegionConfig, given: Mapping[str, Any]) -> RegionConfig:
    """Override settings of regions."""
    if not given:
        return regions
    try:
        more: dict[str, Any] = {"match_within": None, "pairs": ()} if given.get("match") == "none" else {}
        return regions.with_settings({**more, **given})
    except ValidationError as error:
        problem = error.errors()[0]
        if not problem["loc"]:  # settings that cannot be combined
            message = describe_error(problem)
            key = next((word for word in re.findall(r"\w+", message) if word in given), "regions")
            own = message.removeprefix(f"{key} ")
            raise ArgumentError(key, own if own != message else f"is wrong: {message}") from error
        message = describe_error({**problem, "loc": ("regions", *problem["loc"])})
        raise ArgumentError("regions", f"cannot be changed: {message}") from error


MAX_FIELD_EVENTS = 400_000  # outside all regions, kept for a map; larger numbers are subsampled
_MAX_FITTED = 2_000  # maximum number of events per pointing used to find the centres of its regions
_RADII, _SMALLEST_FIELD = 12.0, 1.5  # radius of the field relative to that of a region, and its minimum in deg


def field_radius(theta_squared_cut: float) -> float:
    """Return the radius of the mapped field around the source in deg."""
    return max(_RADII * float(np.sqrt(theta_squared_cut)), _SMALLEST_FIELD)


def sky_offsets(table: pd.DataFrame, config: RegionConfig) -> FloatArray:
    """Return positions of events and pointings relative to the source: east and north, in deg."""
    ra, dec, axis_ra, axis_dec = (table[name].to_numpy(dtype=np.float64) for name in SKY_COLUMNS)
    places = ((ra, dec), (axis_ra, axis_dec))
    return np.stack([one for place in places for one in _offsets_from_source(*place, config)], axis=1)


def _offsets_from_source(ra: FloatArray, dec: FloatArray, config: RegionConfig) -> tuple[FloatArray, FloatArray]:
    """Return directions relative to the source: east and north, in deg; NaN for missing directions."""
    center = float(config.source_ra or 0.0), float(config.source_dec or 0.0)
    distance, direction = offset_of_source(*center, source_ra=ra, source_dec=dec)
    angle = np.radians(direction)
    return distance * np.sin(angle), distance * np.cos(angle)


def exclusion_offsets(config: RegionConfig) -> FloatArray:
    """Return exclusions relative to the source: east, north, and radius, in deg."""
    if not config.exclusion:
        return np.empty((0, 3))
    ra, dec, radius = np.array([(one.ra, one.dec, one.radius) for one in config.exclusion]).T
    return np.stack([*_offsets_from_source(ra, dec, config), radius], axis=1)


def region_centers(sky: FloatArray, theta: FloatArray | None) -> FloatArray:
    """Return the Off regions of all pointings relative to the source, in deg."""
    if theta is None:
        return np.empty((0, 2))
    found: list[FloatArray] = []
    known = np.isfinite(sky[:, :4]).all(axis=1)
    position, angles = sky[known, :2], theta[known]
    centers, _, number = cluster_pointings(sky[known, 2:4])
    for pointing in range(len(centers)):
        own = np.flatnonzero(number == pointing)[:_MAX_FITTED]
        for column in angles[own, 1:].T:
            there = np.isfinite(column)
            if np.count_nonzero(there) < 3:
                continue
            # |p - c|^2 = theta^2 for every event, hence 2 p c - |c|^2 = |p|^2 - theta^2: linear in c and |c|^2
            p = position[own][there]
            equations = np.column_stack([2 * p, -np.ones(len(p))])
            solved = np.linalg.lstsq(equations, (p**2).sum(axis=1) - column[there] ** 2, rcond=None)[0]
            found.append(solved[:2])
    return np.array(found).reshape(-1, 2)


def offset_position(ra: ArrayLike, dec: ArrayLike, *, east: FloatArray, north: FloatArray) -> tuple[Any, Any]:
    """Return right ascension and declination of positions east and north of a direction, all in deg."""
    longitude, latitude = np.radians(ra), np.radians(dec)
    distance, direction = np.radians(np.hypot(east, north)), np.arctan2(east, north)
    sine = np.sin(latitude) * np.cos(distance) + np.cos(latitude) * np.sin(distance) * np.cos(direction)
    across = np.sin(direction) * np.sin(distance) * np.cos(latitude)
    turn = np.arctan2(across, np.cos(distance) - np.sin(latitude) * sine)
    return np.degrees(longitude + turn) % 360, np.degrees(np.arcsin(np.clip(sine, -1.0, 1.0)))


def row_draws(first_row: int, n_rows: int) -> FloatArray:
    """Return a random number between 0 and 1 for each of consecutive rows, independent of chunks."""
    hashes: NDArray[np.uint64] = np.empty(n_rows, dtype=np.uint64)
    row_hashes(first_row, hashes)
    return hashes.astype(np.float64) / 2.0**64
