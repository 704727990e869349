"""Telescope images of one shower as one event: statistics of their parameters.

Images of one shower are not independent events, so that a significance must not count them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess.events.origin import origin_of

__all__ = ["INTENSITIES", "N_TELESCOPES", "STATISTICS", "ShowerColumn", "aggregate", "shower_columns"]

N_TELESCOPES = "n_telescopes"
"""Column with the number of images of a shower that have parameters."""
INTENSITIES = ("hillas_intensity", "intensity")
"""Columns that hold the total charge of an image, by which means are weighted; the first that there is."""
KEYS = ("obs_id", "event_id", "tel_id")


class ShowerColumn(NamedTuple):
    """A column of showers: the parameter of images that it comes from, and the statistic."""

    parameter: str
    statistic: str

    @property
    def name(self) -> str:
        """Name of the column."""
        return f"{self.parameter}_{self.statistic}"


class Shower(NamedTuple):
    """Images with a value, in order of their showers: where those of a shower start, and which shower it is."""

    values: FloatArray
    weights: FloatArray
    starts: NDArray[np.intp]
    showers: NDArray[np.intp]

    @property
    def mean(self) -> FloatArray:
        """Mean of each shower, weighted by intensity; the plain one where no image has an intensity."""
        total = np.add.reduceat(self.weights, self.starts)
        weighted = np.add.reduceat(self.weights * self.values, self.starts)
        if (total > 0).all():
            return np.asarray(weighted / total)
        plain = np.add.reduceat(self.values, self.starts) / self.multiplicity
        return np.where(total > 0, weighted / np.where(total > 0, total, 1), plain)

    @property
    def multiplicity(self) -> NDArray[np.intp]:
        """Images of each shower."""
        return np.diff(self.starts, append=len(self.values))


def _std(images: Shower) -> FloatArray:
    difference = images.values - np.repeat(images.mean, images.multiplicity)
    return np.sqrt(images._replace(values=difference**2).mean)


STATISTICS: dict[str, Callable[[Shower], NDArray[Any]]] = {
    "mean": lambda images: images.mean,
    "min": lambda images: np.minimum.reduceat(images.values, images.starts),
    "max": lambda images: np.maximum.reduceat(images.values, images.starts),
    "std": _std,
    "sum": lambda images: np.add.reduceat(images.values, images.starts),
}
"""Statistics of the images of a shower, by the end of the names of columns."""


def shower_columns(dtypes: Mapping[str, np.dtype[Any]]) -> dict[str, ShowerColumn]:
    """Return the columns of showers that follow from parameters of images, by name.

    Mean, smallest and largest value and standard deviation of each parameter; the sum of the intensity; and the mean of
    flags. Parameters that say where or when an image was, how it lies in the camera, or the truth of a simulation, have
    none, but for directions, whose mean is that of unit vectors.
    """
    found = []
    for name, dtype in dtypes.items():
        if name in KEYS or dtype.kind not in "biuf":
            continue
        if _partner(name, dtypes) is not None or dtype.kind == "b":
            found.append(ShowerColumn(name, "mean"))
        elif origin_of(name, is_reference=True) is None and not name.endswith("psi"):
            found += [ShowerColumn(name, statistic) for statistic in ("mean", "min", "max", "std")]
            if name in INTENSITIES:
                found.append(ShowerColumn(name, "sum"))
    return {column.name: column for column in found}


def parameters_needed(columns: Iterable[ShowerColumn], known: Mapping[str, Any]) -> list[str]:
    """Return the parameters of images that columns of showers are computed from."""
    needed: dict[str, None] = {}
    for column in columns:
        needed[column.parameter] = None
        partner = _partner(column.parameter, known)
        if partner is not None:
            needed[partner] = None
    intensity = next((name for name in INTENSITIES if name in known), None)
    return list(needed) + ([intensity] if intensity is not None and intensity not in needed else [])


def aggregate(
    images: Mapping[str, NDArray[Any]],
    shower: NDArray[np.intp],
    n_showers: int,
    columns: Iterable[ShowerColumn],
    factors: Mapping[str, float],
) -> dict[str, NDArray[Any]]:
    """Return columns of showers.

    Parameters
    ----------
    images : mapping of str to ndarray
        Parameters of images; those of one shower follow each other.
    shower : ndarray of shape (n_images,)
        Number of the shower of each image, not decreasing.
    n_showers : int
        Number of showers; those without an image have NaN.
    columns : iterable of ShowerColumn
        What to compute.
    factors : mapping of str to float
        What to multiply angles by to get degrees; 1 where it is not given.
    """
    intensity = next((images[name] for name in INTENSITIES if name in images), None)
    weights = np.ones(len(shower)) if intensity is None else np.asarray(intensity, dtype=np.float64)
    known = np.isfinite(weights)
    if not known.all():  # images that were cleaned away have no intensity, and codes in the place of numbers
        images = {name: values[known] for name, values in images.items()}
        shower, weights = shower[known], weights[known]
    weights = np.maximum(weights, 0.0)
    selected: dict[str, Shower | None] = {}
    found = {}
    for column in columns:
        partner = _partner(column.parameter, images)
        values = images[column.parameter]
        if partner is not None:
            found[column.name] = _mean_direction(column.parameter, images, shower, weights, n_showers, factors)
            continue
        if column.parameter not in selected:
            equal = np.ones(len(shower)) if values.dtype.kind == "b" else weights
            selected[column.parameter] = _select(np.asarray(values, dtype=np.float64), equal, shower)
        own = selected[column.parameter]
        result = np.full(n_showers, np.nan)
        if own is not None:
            result[own.showers] = STATISTICS[column.statistic](own)
        found[column.name] = result
    return found


def multiplicity(images: Mapping[str, NDArray[Any]], shower: NDArray[np.intp], n_showers: int) -> NDArray[np.int64]:
    """Return the number of images of each shower whose intensity is known."""
    intensity = next((images[name] for name in INTENSITIES if name in images), None)
    known = shower if intensity is None else shower[np.isfinite(intensity)]
    return np.bincount(known, minlength=n_showers).astype(np.int64)


def _select(values: FloatArray, weights: FloatArray, shower: NDArray[np.intp]) -> Shower | None:
    """Return the images that have a value, by shower; None if there are none."""
    known = np.isfinite(values)
    if not known.all():
        values, weights, shower = values[known], weights[known], shower[known]
    if len(values) == 0:
        return None
    starts = np.flatnonzero(np.diff(shower, prepend=shower[0] - 1))
    return Shower(values, weights, starts, shower[starts])


def _partner(name: str, known: Mapping[str, Any]) -> str | None:
    """Return the other angle of a direction, None for a parameter that is none."""
    for own, other in (("alt", "az"), ("az", "alt")):
        if name == own or name.endswith(f"_{own}"):
            partner = name.removesuffix(own) + other
            return partner if partner in known and not name.startswith("true_") else None
    return None


def _mean_direction(
    name: str,
    images: Mapping[str, NDArray[Any]],
    shower: NDArray[np.intp],
    weights: FloatArray,
    n_showers: int,
    factors: Mapping[str, float],
) -> FloatArray:
    """Return altitude or azimuth of the mean direction of each shower, in the unit of the images."""
    partner = _partner(name, images)
    assert partner is not None
    is_altitude = name.endswith("alt")
    altitude, azimuth = (name, partner) if is_altitude else (partner, name)
    unit = np.radians(factors.get(name, 1.0))
    alt, az = (
        np.asarray(images[one], dtype=np.float64) * np.radians(factors.get(one, 1.0)) for one in (altitude, azimuth)
    )
    result = np.full(n_showers, np.nan)
    parts = [
        _select(values, weights, shower)
        for values in (np.cos(alt) * np.cos(az), np.cos(alt) * np.sin(az), np.sin(alt) + 0 * az)
    ]
    if any(part is None for part in parts):
        return result
    x, y, z = (part.mean for part in parts if part is not None)
    first = parts[0]
    assert first is not None
    angle = np.arctan2(z, np.hypot(x, y)) if is_altitude else np.arctan2(y, x) % (2 * np.pi)
    result[first.showers] = angle / unit
    return result
