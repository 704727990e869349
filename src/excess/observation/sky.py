"""Directions on the sky: unit vectors, angles between them, and places in a field of view."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from excess._core.checks import FloatArray, as_column, as_floats, as_int

__all__ = [
    "angles_between",
    "offset_of_source",
    "place_in_field",
    "rotation_between",
    "theta_from_offset",
    "theta_from_sky",
    "turn_about",
    "unit_vectors",
]


def unit_vectors(ra: ArrayLike, dec: ArrayLike, names: tuple[str, str] = ("ra", "dec")) -> FloatArray:
    """Return directions in deg as unit vectors in the last axis; NaN where there is none.

    Raises
    ------
    ValueError
        If an angle is infinite or a declination is beyond the poles; ``names`` are what the message calls them.

    Examples
    --------
    >>> from excess.observation.sky import unit_vectors
    >>> unit_vectors([0.0, 90.0], [0.0, 0.0]).round(12) + 0.0
    array([[1., 0., 0.],
           [0., 1., 0.]])
    """
    longitude, latitude = (np.radians(_as_angles(name, value)) for name, value in zip(names, (ra, dec), strict=True))
    if (np.abs(latitude) > np.pi / 2 + 1e-12).any():
        raise ValueError(f"{names[1]} must lie between -90 and 90 deg")
    for name, array in zip(names, (longitude, latitude), strict=True):
        if array.ndim > 1:
            as_column(name, array)
    cosine = np.cos(latitude)
    return np.stack([cosine * np.cos(longitude), cosine * np.sin(longitude), np.sin(latitude)], axis=-1)


def angles_between(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the angles in rad between vectors in the last axis; exact for small angles as well.

    Examples
    --------
    >>> from excess.observation.sky import angles_between, unit_vectors
    >>> angles_between(unit_vectors(10.0, 0.0), unit_vectors([10.0, 11.0], [1.0, 0.0])).round(6)
    array([0.017453, 0.017453])
    """
    sine = np.linalg.norm(np.cross(one, other), axis=-1)
    return np.asarray(np.arctan2(sine, np.sum(one * other, axis=-1)))


def turn_about(axis: FloatArray, direction: FloatArray, angle: ArrayLike) -> FloatArray:
    """Return directions that are turned about an axis by an angle in rad, right-handed.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.observation.sky import turn_about, unit_vectors
    >>> turn_about(unit_vectors(0.0, 90.0), unit_vectors(0.0, 0.0), np.pi / 2).round(12) + 0.0
    array([0., 1., 0.])
    """
    along = np.sum(axis * direction, axis=-1, keepdims=True) * axis
    turn = np.asarray(angle, dtype=np.float64)[..., np.newaxis]
    return along + np.cos(turn) * (direction - along) + np.sin(turn) * np.cross(axis, direction)


def rotation_between(axis: FloatArray, start: FloatArray, direction: FloatArray) -> FloatArray:
    """Return the angle in rad, from 0 to 2 pi, by which `turn_about` takes one direction to the meridian of another.

    Examples
    --------
    >>> from excess.observation.sky import rotation_between, unit_vectors
    >>> rotation_between(unit_vectors(0.0, 90.0), unit_vectors(10.0, 20.0), unit_vectors(70.0, 30.0)).round(6)
    np.float64(1.047198)
    """
    across = start - np.sum(axis * start, axis=-1, keepdims=True) * axis
    up, right = (np.sum(direction * one, axis=-1) for one in (across, np.cross(axis, start)))
    return np.arctan2(right, up) % (2 * np.pi)


def theta_from_sky(
    ra: ArrayLike,
    dec: ArrayLike,
    pointing_ra: ArrayLike,
    pointing_dec: ArrayLike,
    *,
    source_ra: float,
    source_dec: float,
    n_regions: int = 6,
) -> FloatArray:
    """Angles between events and reflected regions: the source, turned about the pointing in equal steps.

    Parameters
    ----------
    ra, dec : array-like of shape (n_events,)
        Directions of the events in deg; NaN where there is none.
    pointing_ra, pointing_dec : array-like of shape (n_events,) or float
        Pointing of the telescope at the time of the event in deg.
    source_ra, source_dec : float
        The source in deg.
    n_regions : int, default=6
        Number of regions, On included; five Off regions are the source turned by 60, 120, ... deg.

    Returns
    -------
    ndarray of shape (n_events, n_regions)
        Angles in deg, as `assign_regions` takes them.

    See Also
    --------
    find_regions : Places regions by any method, with exclusions, as many as fit.

    Examples
    --------
    >>> from excess.observation.sky import theta_from_sky
    >>> theta_from_sky([83.63], [22.01], 83.63, 22.61, source_ra=83.63, source_dec=22.01, n_regions=4).round(3)
    array([[0.   , 0.849, 1.2  , 0.849]])
    """
    n_regions = as_int("n_regions", n_regions, minimum=2)
    event = unit_vectors(ra, dec)
    axis = np.broadcast_to(unit_vectors(pointing_ra, pointing_dec, ("pointing_ra", "pointing_dec")), event.shape)
    source = np.broadcast_to(unit_vectors(source_ra, source_dec, ("source_ra", "source_dec")), event.shape)
    theta = np.empty((len(event), n_regions))
    for k in range(n_regions):
        theta[:, k] = np.degrees(angles_between(turn_about(axis, source, 2 * np.pi * k / n_regions), event))
    return theta


def offset_of_source(
    pointing_ra: ArrayLike, pointing_dec: ArrayLike, *, source_ra: ArrayLike, source_dec: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return how far the source is from each pointing, and in which direction, in deg; north is 0, east is 90.

    Or how far each of several directions is from one pointing.

    Examples
    --------
    >>> from excess.observation.sky import offset_of_source
    >>> offset_of_source([83.63], [22.51], source_ra=83.63, source_dec=22.01)
    (array([0.5]), array([180.]))
    """
    axis = unit_vectors(pointing_ra, pointing_dec, ("pointing_ra", "pointing_dec"))
    source = unit_vectors(source_ra, source_dec, ("source_ra", "source_dec"))
    north, east = _north_and_east(pointing_ra, pointing_dec)
    along, up, right = (np.sum(source * direction, axis=-1) for direction in (axis, north, east))
    return np.degrees(np.arctan2(np.hypot(up, right), along)), np.degrees(np.arctan2(right, up)) % 360


def theta_from_offset(
    ra: ArrayLike, dec: ArrayLike, pointing_ra: ArrayLike, pointing_dec: ArrayLike, *, offset: float, direction: float
) -> FloatArray:
    """Return angles in deg between events and a place in the field of view: where a source would be in another run.

    Parameters
    ----------
    ra, dec, pointing_ra, pointing_dec
        As for `theta_from_sky`.
    offset, direction : float
        Distance of the place from the pointing, and its direction, in deg; see `offset_of_source`.

    Returns
    -------
    ndarray of shape (n_events,)
        Angles in deg.

    Examples
    --------
    >>> from excess.observation.sky import theta_from_offset
    >>> theta_from_offset([83.63], [22.01], 83.63, 22.51, offset=0.5, direction=180.0).round(6)
    array([0.])
    """
    event = unit_vectors(ra, dec)
    center = place_in_field(pointing_ra, pointing_dec, offset=offset, direction=direction)
    return np.degrees(angles_between(np.broadcast_to(center, event.shape), event))


def place_in_field(pointing_ra: ArrayLike, pointing_dec: ArrayLike, *, offset: float, direction: float) -> FloatArray:
    """Return a place in fields of view as unit vectors; see `theta_from_offset`.

    Examples
    --------
    >>> from excess.observation.sky import angles_between, place_in_field, unit_vectors
    >>> place = place_in_field(83.63, 22.51, offset=0.5, direction=180.0)
    >>> angles_between(place, unit_vectors(83.63, 22.01)).round(9)
    np.float64(0.0)
    """
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


def _as_angles(name: str, value: ArrayLike) -> FloatArray:
    """Return angles as float64; NaN is an event without a direction."""
    angles = np.asarray(value, dtype=np.float64)
    as_floats(name, angles[~np.isnan(angles)])
    return angles
