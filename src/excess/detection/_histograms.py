"""Histograms of features, and sky maps around the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import convolve

from excess._utils.checks import BoolArray, FloatArray, as_floats
from excess.stats._significance import li_ma_significance

MAX_FEATURES = 200  # maximum number of feature histograms; beyond, those of the most important features are kept
_N_BINS = 30
_TAIL = 0.002  # fraction of events on either side that may be outside the plotted range
_SKEWED = 4.0  # ratio of the two halves of a range above which positive values are plotted on a logarithmic axis
_N_PIXELS = 61  # in each direction; odd, so the source is at the centre of a pixel
_MIN_EVENTS = 100  # minimum number of events of a map, to estimate a background
_EXCLUDED = 2.0  # radius around the source without background events, relative to the radius of a region
_BINS_PER_RADIUS = 2  # bins in the distance from the pointing within the radius of a region
_MIN_COVERED = 0.2  # minimum fraction of a ring around the pointing in the field to estimate its background
_SAME_POINTING = 0.1  # distance in deg below which pointings are merged
_MAX_POINTINGS = 50
_N_ANGLES = 720  # points on a ring used to compute the fraction available for background


def choose_edges(low: float, middle: float, high: float, *, whole: bool, n_bins: int) -> tuple[FloatArray, bool]:
    """Return bin edges from three quantiles, and whether they are logarithmic; integers are bin centres."""
    if low == high:
        return np.array([low - 0.5, low + 0.5]), False
    if whole:
        step = max(1, -int(-(high - low + 1) // n_bins))
        n_steps = -int(-(high - low + 1) // step)
        return low - 0.5 + step * np.arange(n_steps + 1, dtype=np.float64), False
    if low > 0 and high - middle > _SKEWED * (middle - low):
        return low * (high / low) ** (np.arange(n_bins + 1, dtype=np.float64) / n_bins), True
    return low + (high - low) * np.arange(n_bins + 1, dtype=np.float64) / n_bins, False


class OnOffBins(NamedTuple):
    """On events per bin, and Off events times alpha with the standard error of this sum."""

    n_on: NDArray[np.int64]
    background: FloatArray
    background_error: FloatArray


@dataclass(frozen=True, eq=False)
class FeatureHistogram:
    """Histogram of one feature of hold-out events, On and scaled Off."""

    feature: str
    edges: FloatArray
    logarithmic: bool
    before: OnOffBins
    after: OnOffBins

    def to_dict(self) -> dict[str, Any]:
        """Return the histogram as JSON, rounded to visible digits; inverse of `from_dict`."""
        edges = [float(f"{edge:.7g}") for edge in self.edges.tolist()]
        found: dict[str, Any] = {"feature": self.feature, "edges": edges, "logarithmic": self.logarithmic}
        for stage, bins in (("before", self.before), ("after", self.after)):
            found[stage] = {name: values.round(3).tolist() for name, values in bins._asdict().items()}
        return found

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> FeatureHistogram:
        """Create a histogram from the result of `to_dict`."""
        edges = np.array(given["edges"], dtype=np.float64)
        stages = []
        for stage in ("before", "after"):
            n_on, *others = (np.array(given[stage][name], dtype=np.float64) for name in OnOffBins._fields)
            if any(len(column) != len(edges) - 1 for column in (n_on, *others)):
                raise ValueError(f"the histogram of {given['feature']!r} has bins that do not match its edges")
            stages.append(OnOffBins(n_on.astype(np.int64), *others))
        return cls(str(given["feature"]), edges, bool(given["logarithmic"]), *stages)


class FeatureBinning:
    """Bin of every event in every feature, computed once for the histograms of several models."""

    def __init__(self, X: Any, names: Sequence[str]) -> None:
        values = np.asarray(X.to_numpy(dtype=np.float64) if hasattr(X, "to_numpy") else X, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(names):
            raise ValueError(f"features must have one column for each of {len(names)} names, got shape {values.shape}")
        self.names = tuple(map(str, names))
        self.n_events = len(values)
        self._bins: list[tuple[FloatArray, bool]] = []
        # one byte per event and feature; the last bin is for missing values
        self._place = np.empty((len(names), len(values)), dtype=np.uint8)
        for number, column in enumerate(values.T):
            edges, logarithmic = _edges_of(column)
            self._bins.append((edges, logarithmic))
            n_bins = len(edges) - 1
            place = np.searchsorted(edges[1:-1], column, side="right")
            self._place[number] = np.where(np.isnan(column), n_bins, place)

    @classmethod
    def of(cls, features: Any, names: Sequence[str] | None) -> FeatureBinning:
        """Bin an array of features, named x0, x1, ... by default; an existing binning is returned unchanged."""
        if isinstance(features, FeatureBinning):
            return features
        n_features = features.shape[1] if hasattr(features, "shape") else len(features[0])
        return cls(features, names or [f"x{number}" for number in range(n_features)])

    def histograms(
        self, on: BoolArray, held_out: BoolArray, selected: BoolArray, alpha: Any, importances: FloatArray | None = None
    ) -> tuple[FeatureHistogram, ...]:
        """Count On and Off events per bin; keep the most important, or the first, of too many features."""
        chosen = np.arange(len(self.names))
        if len(chosen) > MAX_FEATURES:
            known = importances is not None and len(importances) == len(chosen)
            order = np.argsort(-importances, kind="stable") if known and importances is not None else chosen
            chosen = np.sort(order[:MAX_FEATURES])
        scale = np.broadcast_to(np.asarray(alpha, dtype=np.float64), on.shape)
        stages = []
        for mask in (held_out, selected & held_out):
            own, other = np.flatnonzero(mask & on), np.flatnonzero(mask & ~on)
            stages.append([self._count(number, own, other, scale[other]) for number in chosen.tolist()])
        return tuple(
            FeatureHistogram(self.names[number], self._bins[number][0], self._bins[number][1], before, after)
            for number, before, after in zip(chosen.tolist(), *stages, strict=True)
        )

    def _count(self, number: int, own: NDArray[np.intp], other: NDArray[np.intp], alpha: FloatArray) -> OnOffBins:
        n_bins, place = len(self._bins[number][0]) - 1, self._place[number]
        n_on = np.bincount(place[own], minlength=n_bins + 1)[:n_bins]
        background, variance = (np.bincount(place[other], alpha**k, n_bins + 1)[:n_bins] for k in (1, 2))
        return OnOffBins(n_on.astype(np.int64), background.astype(np.float64), np.sqrt(variance))


def _edges_of(column: FloatArray) -> tuple[FloatArray, bool]:
    """Return bins that enclose almost all values of a feature."""
    known = column[np.isfinite(column)]
    if len(known) == 0:
        return np.array([0.0, 1.0]), False
    as_floats("features", known)
    low, middle, high = np.quantile(known, [_TAIL, 0.5, 1 - _TAIL], method="inverted_cdf").tolist()
    return choose_edges(low, middle, high, whole=bool((known == np.rint(known)).all()), n_bins=_N_BINS)


class SkyLayer(NamedTuple):
    """Maps of some events; rows from south to north, columns from west to east, NaN outside the field."""

    counts: FloatArray
    excess: FloatArray
    significance: FloatArray
    mean: float
    spread: float


_MAPS = ("counts", "excess", "significance")  # of a layer; in JSON, rounded to 0, 1 and 2 digits


@dataclass(frozen=True, eq=False)
class SkyMap:
    """Map of the sky around the source."""

    axis: FloatArray
    region_radius: float
    pointings: FloatArray
    off_centers: FloatArray
    share: float
    layers: dict[str, SkyLayer]
    center: tuple[float, float] | None = None  # right ascension and declination of the source in deg

    def to_dict(self) -> dict[str, Any]:
        """Return the map as JSON, rounded to visible digits; inverse of `from_dict`."""
        found: dict[str, Any] = {"half_width": float(self.axis[-1]), "n_pixels": len(self.axis)}
        found |= {name: getattr(self, name) for name in ("region_radius", "share", "center")}
        found |= {name: getattr(self, name).round(4).tolist() for name in ("pointings", "off_centers")}
        layers: dict[str, dict[str, Any]] = {}
        for name, layer in self.layers.items():
            layers[name] = {what: _as_list(getattr(layer, what), digits) for digits, what in enumerate(_MAPS)}
            layers[name] |= {"mean": round(layer.mean, 4), "spread": round(layer.spread, 4)}
        return found | {"layers": layers}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> SkyMap:
        """Create a map from the result of `to_dict`."""
        n = int(given["n_pixels"])
        layers = {}
        for name, own in given["layers"].items():
            maps = [np.array(own[what], dtype=np.float64) for what in _MAPS]
            if any(one.shape != (n * n,) for one in maps):
                raise ValueError(f"the sky map of {name} events does not have {n} x {n} pixels")
            counts, excess, significance = (one.reshape(n, n) for one in maps)
            layers[str(name)] = SkyLayer(counts, excess, significance, float(own["mean"]), float(own["spread"]))
        places = (np.array(given[name], dtype=np.float64) for name in ("pointings", "off_centers"))
        pointings, centers = (one.reshape(-1, 2) for one in places)
        half = float(given["half_width"])
        radius, share, at = float(given["region_radius"]), float(given["share"]), given.get("center")
        center = None if at is None else (float(at[0]), float(at[1]))
        return cls(np.linspace(-half, half, n), radius, pointings, centers, share, layers, center)


def _as_list(values: FloatArray, digits: int) -> list[float | int | None]:
    """Return the pixels of a map row by row, None outside the field."""
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
    """Map all events and selected events around the source; None if there are too few."""
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
    # without events away from the source, there is no background estimate
    layers = {name: layer for name, layer in layers.items() if np.isfinite(layer.spread)}
    drawn = np.empty((0, 2)) if off_centers is None else off_centers
    return SkyMap(acceptance.axis, region_radius, centers, drawn, share, layers)


def cluster_pointings(pointing: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
    """Return distinct pointings (at least 0.1 deg apart), the fraction of events of each, and each event's pointing."""
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
    known: BoolArray  # (pixels, pixels), pixels for which all rings are known
    circle: FloatArray  # kernel of the pixels within the radius of a region
    excluded: FloatArray  # (exclusions, 3), the source first

    @classmethod
    def of(
        cls, centers: FloatArray, weight: FloatArray, field_radius: float, region_radius: float, excluded: FloatArray
    ) -> _Acceptance:
        """Compute the distribution over the field of the events of rings around the pointings."""
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
        """Map events with given distances from their pointings."""
        half = (self.axis[1] - self.axis[0]) / 2
        edges = np.append(self.axis - half, self.axis[-1] + half)
        counts = np.histogram2d(position[:, 1], position[:, 0], bins=(edges, edges))[0]
        rings: NDArray[Any] = np.histogram(distance[_outside(position, self.excluded)], self.edges)[0]
        background, variance = self.per_event @ rings, self.per_event**2 @ rings
        n_on = convolve(np.where(self.known, counts, 0.0), self.circle, mode="constant").round()
        usable = self.known & (background > 0)
        significance = np.full(counts.shape, np.nan)
        # number of Off events with the relative error of this background
        significance[usable] = li_ma_significance(
            n_on[usable], (background**2)[usable] / variance[usable], variance[usable] / background[usable], signed=True
        )
        excess = np.where(usable, n_on - background, np.nan)
        radius = self.circle.shape[0] * half
        pixels = np.stack(np.meshgrid(self.axis, self.axis), axis=-1)
        elsewhere = usable & _outside(pixels, self.excluded + np.array([0.0, 0.0, radius]))
        values = significance[elsewhere]
        mean, spread = (float(values.mean()), float(values.std())) if len(values) > 1 else (float("nan"),) * 2
        return SkyLayer(np.where(self.in_field, counts, np.nan), excess, significance, mean, spread)


def _outside(position: FloatArray, circles: FloatArray) -> BoolArray:
    """Return positions outside all circles."""
    outside = np.ones(position.shape[:-1], dtype=np.bool_)
    for east, north, radius in circles.tolist():
        outside &= np.hypot(position[..., 0] - east, position[..., 1] - north) > radius
    return outside


def _share_allowed(ring: FloatArray, centers: FloatArray, field_radius: float, excluded: FloatArray) -> FloatArray:
    """Return the fraction of each ring around each pointing that is in the field and in no excluded circle."""
    angle = 2 * np.pi * (np.arange(_N_ANGLES) + 0.5) / _N_ANGLES
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    shares = []
    for center in centers:  # one pointing at a time to limit memory
        points = center + ring[:, None, None] * direction
        allowed = (np.hypot(points[..., 0], points[..., 1]) < field_radius) & _outside(points, excluded)
        shares.append(allowed.mean(axis=1))
    return np.array(shares)
