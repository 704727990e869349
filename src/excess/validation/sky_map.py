"""Map of the sky around the source: events, their excess over the background, and its significance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import convolve

from excess._core.checks import BoolArray, FloatArray
from excess.stats.significance import li_ma_significance

__all__ = ["SkyLayer", "SkyMap", "cluster_pointings", "map_sky"]

_N_PIXELS = 61
"""Pixels in each direction; odd, so that the source is in the middle of one."""
_MIN_EVENTS = 100
"""Events that a map needs, so that there is a background to compare with."""
_EXCLUDED = 2.0
"""Radius around the source, in units of that of a region, whose events are no background."""
_BINS_PER_RADIUS = 2
"""Bins of the distance from the pointing within the radius of a region."""
_MIN_COVERED = 0.2
"""Share of a ring around the pointing that must lie in the field, so that its background is known."""
_SAME_POINTING = 0.1
"""Distance in deg below which pointings count as one."""
_MAX_POINTINGS = 50
_N_ANGLES = 720
"""Points on a ring by which the share of it is found that is background."""


class SkyLayer(NamedTuple):
    """Map of some events; rows are from south to north, columns from west to east, NaN is outside of the field.

    Attributes
    ----------
    counts : ndarray of shape (n_pixels, n_pixels)
        Events in each pixel.
    excess, significance : ndarray of shape (n_pixels, n_pixels)
        Events within the radius of a region around the pixel minus the background there; and its significance.
    mean, spread : float
        Mean and standard deviation of the significance away from the source; 0 and 1 are expected without other
        sources.
    """

    counts: FloatArray
    excess: FloatArray
    significance: FloatArray
    mean: float
    spread: float


@dataclass(frozen=True, eq=False)
class SkyMap:
    """Map of the sky around the source.

    The background of a place are events at the same distance from the pointing, elsewhere, but not near the source:
    the acceptance is taken to depend on that distance alone, as for reflected regions.

    Attributes
    ----------
    axis : ndarray of shape (n_pixels,)
        Centres of the pixels to the east, and to the north, of the source in deg.
    region_radius : float
        Radius of a region in deg.
    pointings : ndarray of shape (n_pointings, 2)
        Pointings to the east and to the north of the source in deg, those with most events first.
    off_centers : ndarray of shape (n_off, 2)
        Centres of the Off regions of these pointings.
    share : float
        Share of the events that are in the map.
    layers : dict of str to SkyLayer
        ``"all"`` events, and ``"selected"`` ones; without those of too few events, or of none away from the source.

    See Also
    --------
    map_sky : Makes one.
    """

    axis: FloatArray
    region_radius: float
    pointings: FloatArray
    off_centers: FloatArray
    share: float
    layers: dict[str, SkyLayer]

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes, as JSON has it; numbers are rounded to what can be seen."""
        return {
            "half_width": float(self.axis[-1]),
            "n_pixels": len(self.axis),
            "region_radius": self.region_radius,
            "pointings": self.pointings.round(4).tolist(),
            "off_centers": self.off_centers.round(4).tolist(),
            "share": self.share,
            "layers": {
                name: {
                    "counts": _as_list(layer.counts, 0),
                    "excess": _as_list(layer.excess, 1),
                    "significance": _as_list(layer.significance, 2),
                    "mean": round(layer.mean, 4),
                    "spread": round(layer.spread, 4),
                }
                for name, layer in self.layers.items()
            },
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> SkyMap:
        """Return the map of which ``to_dict`` was written."""
        n = int(given["n_pixels"])
        layers = {}
        for name, own in given["layers"].items():
            maps = [np.array(own[what], dtype=np.float64) for what in ("counts", "excess", "significance")]
            if any(one.shape != (n * n,) for one in maps):
                raise ValueError(f"the sky map of {name} events does not have {n} x {n} pixels")
            counts, excess, significance = (one.reshape(n, n) for one in maps)
            layers[str(name)] = SkyLayer(counts, excess, significance, float(own["mean"]), float(own["spread"]))
        pointings, centers = (
            np.array(given[name], dtype=np.float64).reshape(-1, 2) for name in ("pointings", "off_centers")
        )
        half = float(given["half_width"])
        radius, share = float(given["region_radius"]), float(given["share"])
        return cls(np.linspace(-half, half, n), radius, pointings, centers, share, layers)


def _as_list(values: FloatArray, digits: int) -> list[float | int | None]:
    """Return the pixels of a map row by row, None outside of the field."""
    rounded = values.round(digits).ravel().tolist()
    return [None if one != one else int(one) if digits == 0 else one for one in rounded]


def map_sky(
    position: FloatArray,
    pointing: FloatArray,
    selected: BoolArray,
    *,
    field_radius: float,
    region_radius: float,
    off_centers: FloatArray | None = None,
    exclusions: FloatArray | None = None,
    share: float = 1.0,
) -> SkyMap | None:
    """Map events around the source, all of them and selected ones; None where there are too few.

    Parameters
    ----------
    position, pointing : ndarray of shape (n_events, 2)
        Where events and their pointings are, to the east and to the north of the source, in deg.
    selected : ndarray of bool of shape (n_events,)
        Selected events.
    field_radius, region_radius : float
        Radius of the field and of a region in deg.
    off_centers : ndarray of shape (n_off, 2) or None, default=None
        Centres of the Off regions, to be drawn.
    exclusions : ndarray of shape (n_exclusions, 3) or None, default=None
        Centres and radii in deg of places whose events are no background.
    share : float, default=1.0
        Share of all events that these are.

    Returns
    -------
    SkyMap or None
        The map.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.validation.sky_map import map_sky
    >>> rng = np.random.default_rng(0)
    >>> background = rng.uniform(-2, 2, size=(8000, 2))
    >>> gammas = rng.normal(scale=0.05, size=(100, 2))
    >>> position, pointing = np.concatenate([background, gammas]), np.tile([0.5, 0.0], (8100, 1))
    >>> found = map_sky(position, pointing, np.ones(8100, dtype=bool), field_radius=1.5, region_radius=0.15)
    >>> round(float(found.layers["all"].significance[30, 30]))
    11
    """
    inside = np.isfinite(position).all(axis=1) & np.isfinite(pointing).all(axis=1)
    inside &= np.hypot(*np.where(np.isfinite(position), position, 0.0).T) < field_radius
    position, pointing, selected = position[inside], pointing[inside], selected[inside]
    if len(position) < _MIN_EVENTS:
        return None
    centers, weight, _ = cluster_pointings(pointing)
    excluded = min(_EXCLUDED * region_radius, field_radius / 2)
    circles = np.concatenate([[[0.0, 0.0, excluded]], np.empty((0, 3)) if exclusions is None else exclusions])
    acceptance = _Acceptance.of(centers, weight, field_radius, region_radius, circles)
    distance = np.hypot(*(position - pointing).T)
    layers = {
        name: acceptance.layer(position[mask], distance[mask])
        for name, mask in (("all", np.ones(len(position), dtype=np.bool_)), ("selected", selected))
        if np.count_nonzero(mask) >= _MIN_EVENTS
    }
    # where no event is away from the source, there is no background to compare with
    layers = {name: layer for name, layer in layers.items() if np.isfinite(layer.spread)}
    drawn = np.empty((0, 2)) if off_centers is None else off_centers
    return SkyMap(acceptance.axis, region_radius, centers, drawn, share, layers)


def cluster_pointings(pointing: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
    """Return distinct pointings, the share of the events of each, and the number of each event's pointing.

    Pointings that differ by less than 0.1 deg count as one.
    """
    values, number, counts = np.unique(pointing.round(2), axis=0, return_inverse=True, return_counts=True)
    kept: list[FloatArray] = []
    cluster = np.zeros(len(values), dtype=np.intp)
    for place in np.argsort(-counts, kind="stable").tolist():
        near = np.hypot(*(np.array(kept).reshape(-1, 2) - values[place]).T)
        if len(near) and (near.min() < _SAME_POINTING or len(kept) == _MAX_POINTINGS):
            cluster[place] = near.argmin()
        else:
            cluster[place] = len(kept)
            kept.append(values[place])
    of_event = cluster[number.ravel()]
    return np.array(kept).reshape(-1, 2), np.bincount(of_event, minlength=len(kept)) / max(len(pointing), 1), of_event


class _Acceptance(NamedTuple):
    """Background of each pixel as a sum over rings around the pointings."""

    axis: FloatArray
    in_field: BoolArray  # (pixels, pixels)
    edges: FloatArray  # (rings + 1,), distances from the pointing
    per_event: FloatArray  # (pixels, pixels, rings), background events of a pixel's circle for each event of a ring
    known: BoolArray  # (pixels, pixels), pixels all of whose rings are known
    circle: FloatArray  # kernel of the pixels within the radius of a region
    excluded: FloatArray  # (exclusions, 3), the source first

    @classmethod
    def of(
        cls,
        centers: FloatArray,
        weight: FloatArray,
        field_radius: float,
        region_radius: float,
        excluded: FloatArray,
    ) -> _Acceptance:
        """Find how the events of rings around the pointings are spread over the field."""
        axis = np.linspace(-field_radius, field_radius, _N_PIXELS)
        pixel = axis[1] - axis[0]
        east, north = np.meshgrid(axis, axis)
        in_field = np.hypot(east, north) <= field_radius
        step = float(region_radius / _BINS_PER_RADIUS)
        offset = np.hypot(*centers.T)
        edges = step * np.arange(int(np.ceil((field_radius + offset.max()) / step)) + 1, dtype=np.float64)
        middle = (edges[1:] + edges[:-1]) / 2
        share = weight @ _share_allowed(middle, centers, field_radius, excluded)
        area = 2 * np.pi * middle * step * share
        reach = int(np.ceil(region_radius / pixel))
        grid = np.arange(-reach, reach + 1) * pixel
        circle = (np.hypot(*np.meshgrid(grid, grid)) <= region_radius).astype(np.float64)
        per_event = np.zeros((*east.shape, len(middle)))
        for (x, y), one in zip(centers, weight.tolist(), strict=True):
            place = np.clip(np.hypot(east - x, north - y) / step - 0.5, 0, len(middle) - 1.001)
            lower = place.astype(np.intp)
            rows = np.indices(east.shape)
            np.add.at(per_event, (*rows, lower), one * (1 - place + lower))
            np.add.at(per_event, (*rows, lower + 1), one * (place - lower))
        unknown = (per_event[..., share < _MIN_COVERED] > 0).any(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            per_event *= np.where(share < _MIN_COVERED, 0.0, pixel**2 / area)
        per_event[~in_field | unknown] = 0.0
        for ring in range(len(middle)):
            per_event[..., ring] = convolve(per_event[..., ring], circle, mode="constant")
        return cls(axis, in_field, edges, per_event, in_field & ~unknown, circle, excluded)

    def layer(self, position: FloatArray, distance: FloatArray) -> SkyLayer:
        """Map some events, whose distances from their pointings are given."""
        half = (self.axis[1] - self.axis[0]) / 2
        edges = np.append(self.axis - half, self.axis[-1] + half)
        counts = np.histogram2d(position[:, 1], position[:, 0], bins=(edges, edges))[0]
        away = _outside(position, self.excluded)
        rings: NDArray[Any] = np.histogram(distance[away], self.edges)[0]
        background, variance = self.per_event @ rings, self.per_event**2 @ rings
        n_on = convolve(np.where(self.known, counts, 0.0), self.circle, mode="constant").round()
        usable = self.known & (background > 0)
        significance = np.full(counts.shape, np.nan)
        # as many Off events as have the relative error of this background
        significance[usable] = li_ma_significance(
            n_on[usable],
            (background**2)[usable] / variance[usable],
            variance[usable] / background[usable],
            signed=True,
        )
        excess = np.where(usable, n_on - background, np.nan)
        radius = self.circle.shape[0] * half
        pixels = np.stack(np.meshgrid(self.axis, self.axis), axis=-1)
        elsewhere = usable & _outside(pixels, self.excluded + np.array([0.0, 0.0, radius]))
        values = significance[elsewhere]
        mean, spread = (float(values.mean()), float(values.std())) if len(values) > 1 else (float("nan"),) * 2
        return SkyLayer(np.where(self.in_field, counts, np.nan), excess, significance, mean, spread)


def _outside(position: FloatArray, circles: FloatArray) -> BoolArray:
    """Return which positions are in none of some circles."""
    outside = np.ones(position.shape[:-1], dtype=np.bool_)
    for east, north, radius in circles.tolist():
        outside &= np.hypot(position[..., 0] - east, position[..., 1] - north) > radius
    return outside


def _share_allowed(ring: FloatArray, centers: FloatArray, field_radius: float, excluded: FloatArray) -> FloatArray:
    """Return which share of rings around each pointing is in the field and in none of the excluded circles.

    The result has a row for each pointing and a column for each ring.
    """
    angle = 2 * np.pi * (np.arange(_N_ANGLES) + 0.5) / _N_ANGLES
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    shares = []
    for center in centers:  # one pointing at a time, so that little memory is needed
        points = center + ring[:, None, None] * direction
        allowed = (np.hypot(points[..., 0], points[..., 1]) < field_radius) & _outside(points, excluded)
        shares.append(allowed.mean(axis=1))
    return np.array(shares)
