"""On and Off regions: the region of each event, and the exposure ratio."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import (
    BoolArray,
    FloatArray,
    as_choice,
    as_counts,
    as_labels,
    as_scalar,
    as_scalar_alpha,
    check_same_length,
)
from excess.observation.region_methods import METHODS, choose_method
from excess.stats.counts import OnOffCounts

if TYPE_CHECKING:
    import pandas as pd

    from excess.events import RegionConfig
    from excess.observation.placement import Placement

__all__ = ["Regions", "assign_regions", "find_regions", "place_events"]

OVERLAP_POLICIES = ("on_first", "drop", "error")


@dataclass(frozen=True, eq=False)
class Regions:
    """The region of each event.

    Attributes
    ----------
    region : ndarray of int64 of shape (n_events,)
        0 is On, 1 to ``n_regions - 1`` are Off, -1 is neither.
    n_regions : int
        Number of regions, On included; the largest one where it differs between pointings.
    alpha : float
        Exposure ratio On/Off; the mean over the Off events where it differs.
    n_overlapping : int
        Events in more than one region. The overlap policy decides whether they count once or not at all.
    exposure : ndarray of shape (n_events, n_regions - 1) or None
        Exposure of each Off region in units of that of On, for the pointing of each event, where not all are 1; 0 where
        the pointing has no such region.
    n_without_off : int
        Events whose pointing leaves no room for an Off region, so that they are in no region.

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
    exposure: FloatArray | None = None
    n_without_off: int = 0

    @property
    def event_alpha(self) -> FloatArray | None:
        """Exposure ratio On/Off for each event, where it differs; the mean for an event without any Off region."""
        if self.exposure is None:
            return None
        total = off_exposure(self.exposure)
        known = total[self.inside]
        if len(known) == 0 or (known == known[0]).all():
            return None
        return np.divide(1.0, total, out=np.full(len(total), self.alpha), where=total > 0)

    @property
    def n_off_regions(self) -> tuple[int, int]:
        """Smallest and largest number of Off regions of a pointing with events in any."""
        if self.exposure is None or not self.inside.any():
            return self.n_regions - 1, self.n_regions - 1
        number = np.count_nonzero(self.exposure[self.inside], axis=1)
        return int(number.min()), int(number.max())

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
        chosen = np.asarray(rows)
        exposure = None if self.exposure is None else self.exposure[chosen]
        return replace(self, region=self.region[chosen], exposure=exposure)

    def _count(self, mask: BoolArray) -> OnOffCounts:
        from excess.validation.outcome import count_events

        alpha = self.event_alpha
        chosen = mask & self.inside
        return count_events(self.on, chosen, self.alpha if alpha is None else alpha)


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


def find_regions(table: pd.DataFrame, config: RegionConfig) -> Regions:
    """Assign the events of a table to regions, by angles or by sky positions.

    Parameters
    ----------
    table : DataFrame
        With ``theta_deg`` and ``theta_deg_off_1`` to ``theta_deg_off_<n>``; or with ``ra``, ``dec``, ``pointing_ra``
        and ``pointing_dec``, all in deg, if the configuration has the position of the source.
    config : RegionConfig
        The method, the cut, the number of regions, exclusions, and the overlap policy.

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
    return place_events(table, config)[1]


def place_events(table: pd.DataFrame, config: RegionConfig) -> tuple[Placement, Regions]:
    """Return where the events of a table are relative to all regions, and the region of each; see `find_regions`."""
    name, _ = choose_method(table.columns, config)
    placed = METHODS[name].place(table, config)
    if placed.theta is not None:
        found = assign_regions(placed.theta, theta_squared_cut=config.theta_squared_cut, overlap=config.overlap)
    else:
        region = np.full(len(table), -1, dtype=np.int64) if placed.region is None else placed.region
        n_off = 1 if placed.exposure is None else placed.exposure.shape[1]
        found = Regions(region, n_off + 1, 1 / n_off)
    return placed, found if placed.exposure is None else _expose(found, placed.exposure)


def _expose(found: Regions, exposure: FloatArray) -> Regions:
    """Return regions with their exposure; events without any Off region are in none."""
    without = off_exposure(exposure) == 0
    found = replace(
        found, region=np.where(without, -1, found.region), exposure=exposure, n_without_off=int(without.sum())
    )
    return replace(found, alpha=mean_alpha(found))


def off_exposure(exposure: FloatArray) -> FloatArray:
    """Return the exposure of all Off regions together, for the pointing of each event.

    Regions are added one after the other, so that neither other events nor regions without exposure change a bit of it.
    """
    total = np.zeros(len(exposure))
    for own in exposure.T:
        total += own
    return total


def mean_alpha(found: Regions) -> float:
    """Return the exposure ratio of regions; where it differs, the mean over the Off events."""
    if found.exposure is None:
        return found.alpha
    total = off_exposure(found.exposure)
    for chosen in (found.region > 0, found.inside, total > 0):
        if (ratio := 1 / total[chosen]).size:
            return float(ratio[0] if (ratio == ratio[0]).all() else ratio.mean())
    return found.alpha
