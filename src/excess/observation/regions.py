"""On and Off regions: the region of each event, and the exposure ratio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import (
    BoolArray,
    FloatArray,
    as_choice,
    as_column,
    as_counts,
    as_floats,
    as_int,
    as_labels,
    as_scalar,
    as_scalar_alpha,
    check_same_length,
)
from excess.stats.significance import OnOffCounts

if TYPE_CHECKING:
    import pandas as pd

    from excess.events import RegionConfig

__all__ = ["Regions", "angles_to_regions", "assign_regions", "find_regions", "theta_columns", "theta_from_sky"]

SKY_COLUMNS = ("ra", "dec", "pointing_ra", "pointing_dec")
"""Columns from which angles to the regions are computed if a table has no angles."""
OVERLAP_POLICIES = ("on_first", "drop", "error")


@dataclass(frozen=True, eq=False)
class Regions:
    """The region of each event.

    Attributes
    ----------
    region : ndarray of int64 of shape (n_events,)
        0 is On, 1 to ``n_regions - 1`` are Off, -1 is neither.
    n_regions : int
        Number of regions, On included.
    alpha : float
        Exposure ratio On/Off.
    n_overlapping : int
        Events in more than one region. The overlap policy decides whether they count once or not at all.

    See Also
    --------
    assign_regions : From angles to the centres of all regions.
    find_regions : From a table of events.

    Examples
    --------
    >>> from excess.observation.regions import assign_regions
    >>> regions = assign_regions([[0.1, 0.9, 1.1], [0.8, 0.1, 0.9], [2.0, 2.0, 2.1]])
    >>> print(regions.region, regions.counts)
    [ 0  1 -1] On 1, Off 1, alpha 0.5: excess 0.5 +- 1.1, 0.5 sigma
    """

    region: NDArray[np.int64]
    n_regions: int
    alpha: float
    n_overlapping: int = 0

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

    def counts_by(self, run: ArrayLike) -> dict[Any, OnOffCounts]:
        """Return the counts of each run, or of each value of other labels, such as nights."""
        labels = as_labels(run, name="run")
        check_same_length(run=labels, region=self.region)
        return {name: self._count(labels == name) for name in np.unique(labels).tolist()}

    def take(self, rows: ArrayLike) -> Regions:
        """Return the regions of some events."""
        return Regions(self.region[np.asarray(rows)], self.n_regions, self.alpha, self.n_overlapping)

    def _count(self, mask: BoolArray) -> OnOffCounts:
        n_on, n_off = (int(np.count_nonzero(mask & chosen)) for chosen in (self.region == 0, self.region > 0))
        return OnOffCounts(n_on, n_off, self.alpha)


def theta_columns(n_regions: int) -> list[str]:
    """Return the names of the columns that hold an event's angle to each region, On first."""
    return ["theta_deg", *(f"theta_deg_off_{k}" for k in range(1, n_regions))]


def assign_regions(
    theta: ArrayLike, *, theta_squared_cut: float = 0.025, overlap: str = "on_first", alpha: float | None = None
) -> Regions:
    """Assign events to the regions whose centres they are near.

    Parameters
    ----------
    theta : array-like of shape (n_events, n_regions)
        Angle between an event and the centre of each region in deg, the source first. NaN is an event without a
        reconstructed direction, which lies in no region.
    theta_squared_cut : float, default=0.025
        An event lies in a region when ``theta**2`` is below it, in deg^2.
    overlap : {"on_first", "drop", "error"}, default="on_first"
        How an event inside several regions counts: for On if that is one of them, else for the nearest Off region;
        for none; or it is an error. No event counts twice.
    alpha : float or None, default=None
        Exposure ratio On/Off; by default all regions are taken to be equally exposed.

    Returns
    -------
    Regions
        The region of each event.

    Examples
    --------
    >>> from excess.observation import assign_regions
    >>> assign_regions([[0.1, 0.9, 1.1], [0.8, 0.1, 0.9], [2.0, 2.0, 2.1]]).region
    array([ 0,  1, -1])
    """
    angles = np.asarray(theta, dtype=np.float64)
    if angles.ndim != 2 or angles.shape[1] < 2:
        raise ValueError(f"theta must have one column for On and at least one for Off, got shape {angles.shape}")
    if np.isinf(angles).any() or (angles < 0).any():
        raise ValueError("theta must hold angles in deg, not negative and not infinite")
    cut = as_scalar("theta_squared_cut", as_counts("theta_squared_cut", theta_squared_cut))
    if cut == 0:
        raise ValueError("theta_squared_cut must be positive, got 0")
    as_choice("overlap", overlap, OVERLAP_POLICIES)
    n_regions = angles.shape[1]
    inside = angles**2 < cut
    n_inside = inside.sum(axis=1)
    overlapping = n_inside > 1
    if overlap == "error" and overlapping.any():
        first = int(np.flatnonzero(overlapping)[0])
        numbers = np.flatnonzero(inside[first]).tolist()
        raise ValueError(
            f"{overlapping.sum()} events lie in several regions, the first in row {first} in regions {numbers}; make "
            "theta_squared_cut smaller, or choose overlap='on_first' or 'drop'"
        )
    region = np.where(np.isnan(angles), np.inf, angles).argmin(axis=1)
    region[inside[:, 0]] = 0
    region[n_inside == 0] = -1
    if overlap == "drop":
        region[overlapping] = -1
    ratio = 1 / (n_regions - 1) if alpha is None else as_scalar_alpha(alpha)
    return Regions(region.astype(np.int64), n_regions, ratio, int(overlapping.sum()))


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

    Examples
    --------
    >>> from excess.observation.regions import theta_from_sky
    >>> theta_from_sky([83.63], [22.01], 83.63, 22.61, source_ra=83.63, source_dec=22.01, n_regions=4).round(3)
    array([[0.   , 0.849, 1.2  , 0.849]])
    """
    n_regions = as_int("n_regions", n_regions, minimum=2)
    event = _unit_vectors("ra", ra, "dec", dec)
    axis = np.broadcast_to(_unit_vectors("pointing_ra", pointing_ra, "pointing_dec", pointing_dec), event.shape)
    source = np.broadcast_to(_unit_vectors("source_ra", source_ra, "source_dec", source_dec), event.shape)
    along = np.sum(axis * source, axis=-1, keepdims=True) * axis
    across, turned = source - along, np.cross(axis, source)
    theta = np.empty((len(event), n_regions))
    for k in range(n_regions):
        angle = 2 * np.pi * k / n_regions
        center = along + np.cos(angle) * across + np.sin(angle) * turned
        sine = np.linalg.norm(np.cross(center, event), axis=-1)
        theta[:, k] = np.degrees(np.arctan2(sine, np.sum(center * event, axis=-1)))
    return theta


def offset_of_source(
    pointing_ra: ArrayLike, pointing_dec: ArrayLike, *, source_ra: float, source_dec: float
) -> tuple[FloatArray, FloatArray]:
    """Return how far the source is from each pointing, and in which direction, in deg; north is 0, east is 90.

    Examples
    --------
    >>> from excess.observation.regions import offset_of_source
    >>> offset_of_source([83.63], [22.51], source_ra=83.63, source_dec=22.01)
    (array([0.5]), array([180.]))
    """
    axis = _unit_vectors("pointing_ra", pointing_ra, "pointing_dec", pointing_dec)
    source = _unit_vectors("source_ra", source_ra, "source_dec", source_dec)
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
    >>> from excess.observation.regions import theta_from_offset
    >>> theta_from_offset([83.63], [22.01], 83.63, 22.51, offset=0.5, direction=180.0).round(6)
    array([0.])
    """
    event = _unit_vectors("ra", ra, "dec", dec)
    axis = _unit_vectors("pointing_ra", pointing_ra, "pointing_dec", pointing_dec)
    north, east = _north_and_east(pointing_ra, pointing_dec)
    distance, angle = np.radians(offset), np.radians(direction)
    center = np.cos(distance) * axis + np.sin(distance) * (np.cos(angle) * north + np.sin(angle) * east)
    center = np.broadcast_to(center, event.shape)
    sine = np.linalg.norm(np.cross(center, event), axis=-1)
    return np.asarray(np.degrees(np.arctan2(sine, np.sum(center * event, axis=-1))))


def _north_and_east(ra: ArrayLike, dec: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return unit vectors to the north and to the east of directions in deg."""
    longitude, latitude = (np.radians(np.asarray(value, dtype=np.float64)) for value in (ra, dec))
    zero = np.zeros_like(longitude)
    north = [-np.sin(latitude) * np.cos(longitude), -np.sin(latitude) * np.sin(longitude), np.cos(latitude)]
    return np.stack(north, axis=-1), np.stack([-np.sin(longitude), np.cos(longitude), zero], axis=-1)


def angles_to_regions(table: pd.DataFrame, config: RegionConfig) -> FloatArray:
    """Return the angles in deg between events and the centres of all regions, On first; see `find_regions`."""
    wanted = theta_columns(config.n_regions)
    if all(name in table for name in wanted):
        return table[wanted].to_numpy(dtype=np.float64)
    if all(name in table for name in SKY_COLUMNS):
        if config.source_ra is None or config.source_dec is None:
            raise ValueError(
                "the position of the source is needed to find regions from sky positions: give source_ra and "
                "source_dec in deg"
            )
        return theta_from_sky(
            *(table[name].to_numpy(dtype=np.float64) for name in SKY_COLUMNS),
            source_ra=config.source_ra,
            source_dec=config.source_dec,
            n_regions=config.n_regions,
        )
    missing = [name for name in wanted if name not in table]
    raise ValueError(
        f"no way to tell On from Off: for {config.n_regions} regions the events need the columns theta_deg and "
        f"theta_deg_off_1 to theta_deg_off_{config.n_regions - 1} ({', '.join(missing)} missing), or "
        f"{', '.join(SKY_COLUMNS)}; or give Off events in files of their own"
    )


def find_regions(table: pd.DataFrame, config: RegionConfig) -> Regions:
    """Assign the events of a table to regions, by angles or by sky positions.

    Parameters
    ----------
    table : DataFrame
        With ``theta_deg`` and ``theta_deg_off_1`` to ``theta_deg_off_<n>``; or with ``ra``, ``dec``, ``pointing_ra``
        and ``pointing_dec``, all in deg, if the configuration has the position of the source.
    config : RegionConfig
        The cut, the number of regions, and the overlap policy.

    Returns
    -------
    Regions
        The region of each event.

    Examples
    --------
    >>> from excess.events import RegionConfig
    >>> from excess.observation.regions import find_regions
    >>> from excess.observation.simulation import simulate_observation
    >>> print(find_regions(simulate_observation(100_000, 200, random_state=0), RegionConfig()).counts)
    On 630, Off 2258, alpha 0.2: excess 178.4 +- 26.8, 7.2 sigma
    """
    return assign_regions(
        angles_to_regions(table, config), theta_squared_cut=config.theta_squared_cut, overlap=config.overlap
    )


def _as_angles(name: str, value: ArrayLike) -> FloatArray:
    """Return angles as float64; NaN is an event without a direction."""
    angles = np.asarray(value, dtype=np.float64)
    as_floats(name, angles[~np.isnan(angles)])
    return angles


def _unit_vectors(ra_name: str, ra: ArrayLike, dec_name: str, dec: ArrayLike) -> FloatArray:
    longitude, latitude = (np.radians(_as_angles(name, value)) for name, value in ((ra_name, ra), (dec_name, dec)))
    if (np.abs(latitude) > np.pi / 2 + 1e-12).any():
        raise ValueError(f"{dec_name} must lie between -90 and 90 deg")
    for name, array in ((ra_name, longitude), (dec_name, latitude)):
        if array.ndim > 1:
            as_column(name, array)
    cosine = np.cos(latitude)
    return np.stack([cosine * np.cos(longitude), cosine * np.sin(longitude), np.sin(latitude)], axis=-1)
