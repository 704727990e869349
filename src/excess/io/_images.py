"""Aggregation of telescope images to showers, and columns that encode the origin of an event.

Images of one shower are not independent events, so a significance must not count them individually.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.checks import FloatArray
from excess._utils.errors import missing_column
from excess.io._files import read_catalogue

_OF_CLASSIFIER = "it is the output of a classifier, which may depend on the position"
_RULES = [
    (row["spelling"] == "plain", re.compile(row["pattern"], re.IGNORECASE), row["reason"])
    for row in read_catalogue("origin_columns.csv")
]
NAMED_ONLY = (_OF_CLASSIFIER, "it is a property of the run")  # reasons that a user may override by naming a feature
_STATISTIC = re.compile(r"_(mean|min|max|std|sum)$")  # suffixes of the statistics of a shower's images
_UNIT = re.compile(r"_(deg|degree|degrees|rad|radian|radians|mm|cm|m|km|arcmin|arcsec|h|hours?|s|ns|sec|camera_frame)$")


def origin_of(name: str, *, is_reference: bool = False) -> str | None:
    """Return why a column encodes the origin of an event, None if it does not."""
    spellings = dict.fromkeys((name, _STATISTIC.sub("", name)))
    plain = [one for spelling in spellings for one in _plain(spelling)]
    names = {False: list(spellings), True: plain}
    matches = [reason for is_plain, pattern, reason in _RULES if any(map(pattern.fullmatch, names[is_plain]))]
    if not matches or (is_reference and matches[0] == _OF_CLASSIFIER):
        return None
    return matches[0]


def _plain(name: str) -> tuple[str, str]:
    """Return a name in lower case with underscores between its words, and the same without a trailing unit."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace(".", "_").replace("-", "_")).lower()
    # the prefix of members in MARS, and of branches in other frameworks
    words = re.sub(r"^(f|rec|mhillas|mhillassrc|mpointingpos|mtime)_+", "", words)
    return words, _UNIT.sub("", words)


N_TELESCOPES = "n_telescopes"  # column with the number of images of a shower that have parameters
INTENSITIES = ("hillas_intensity", "intensity")  # total charge of an image, the weight of means: the first available
KEYS = ("obs_id", "event_id", "tel_id")
Images = Mapping[str, NDArray[Any]]
Numbers = NDArray[np.intp]  # the shower of each image


class ShowerColumn(NamedTuple):
    """A column of showers: the image parameter and the statistic."""

    parameter: str
    statistic: str

    @property
    def name(self) -> str:
        """Name of the column."""
        return f"{self.parameter}_{self.statistic}"


class Shower(NamedTuple):
    """Images with a value, in order of their showers: the start of each shower, and its index."""

    value: FloatArray
    weights: FloatArray
    starts: NDArray[np.intp]
    showers: NDArray[np.intp]

    @property
    def mean(self) -> FloatArray:
        """Mean of each shower, weighted by intensity; unweighted if no image has an intensity."""
        total = np.add.reduceat(self.weights, self.starts)
        weighted = np.add.reduceat(self.weights * self.value, self.starts)
        if (total > 0).all():
            return np.asarray(weighted / total)
        plain = np.add.reduceat(self.value, self.starts) / self.multiplicity
        return np.where(total > 0, weighted / np.where(total > 0, total, 1), plain)

    @property
    def multiplicity(self) -> NDArray[np.intp]:
        """Images of each shower."""
        return np.diff(self.starts, append=len(self.value))


def _std(images: Shower) -> FloatArray:
    difference = images.value - np.repeat(images.mean, images.multiplicity)
    return np.sqrt(images._replace(value=difference**2).mean)


STATISTICS: dict[str, Callable[[Shower], NDArray[Any]]] = {  # of the images of a shower, by the ends of columns
    "mean": lambda images: images.mean,
    "min": lambda images: np.minimum.reduceat(images.value, images.starts),
    "max": lambda images: np.maximum.reduceat(images.value, images.starts),
    "std": _std,
    "sum": lambda images: np.add.reduceat(images.value, images.starts),
}


def shower_columns(dtypes: Mapping[str, np.dtype[Any]]) -> dict[str, ShowerColumn]:
    """Return the columns of showers that can be computed from image parameters, by name."""
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
    """Return the image parameters required by columns of showers."""
    pairs = [(column.parameter, _partner(column.parameter, known)) for column in columns]
    intensity = next((name for name in INTENSITIES if name in known), None)
    return list(dict.fromkeys(name for name in (*chain.from_iterable(pairs), intensity) if name is not None))


def aggregate(
    images: Images, shower: Numbers, n_showers: int, columns: Iterable[ShowerColumn], factors: Mapping[str, float]
) -> dict[str, NDArray[Any]]:
    """Return columns of showers."""
    intensity = next((images[name] for name in INTENSITIES if name in images), None)
    weights = np.ones(len(shower)) if intensity is None else np.asarray(intensity, dtype=np.float64)
    known = np.isfinite(weights)
    if not known.all():  # images removed by cleaning have no intensity, and codes in place of numbers
        images = {name: values[known] for name, values in images.items()}
        shower, weights = shower[known], weights[known]
    weights = np.maximum(weights, 0.0)
    selected: dict[str, Shower] = {}
    found = {}
    for column in columns:
        values, partner = images[column.parameter], _partner(column.parameter, images)
        found[column.name] = np.full(n_showers, np.nan)
        if partner is not None:
            showers, angles = _mean_direction(column.parameter, partner, images, shower, weights, factors)
            found[column.name][showers] = angles
            continue
        if column.parameter not in selected:
            equal = np.ones(len(shower)) if values.dtype.kind == "b" else weights
            selected[column.parameter] = _select(np.asarray(values, dtype=np.float64), equal, shower)
        own = selected[column.parameter]
        found[column.name][own.showers] = STATISTICS[column.statistic](own)
    return found


def multiplicity(images: Images, shower: Numbers, n_showers: int) -> NDArray[np.int64]:
    """Return the number of images of each shower whose intensity is known."""
    intensity = next((images[name] for name in INTENSITIES if name in images), None)
    known = shower if intensity is None else shower[np.isfinite(intensity)]
    return np.bincount(known, minlength=n_showers).astype(np.int64)


def _select(values: FloatArray, weights: FloatArray, shower: NDArray[np.intp]) -> Shower:
    """Return the images that have a value, by shower."""
    known = np.isfinite(values)
    if not known.all():
        values, weights, shower = values[known], weights[known], shower[known]
    starts = np.flatnonzero(np.diff(shower, prepend=-1))
    return Shower(values, weights, starts, shower[starts])


def _partner(name: str, known: Mapping[str, Any]) -> str | None:
    """Return the other angle of a direction, None for other parameters."""
    for own, other in (("alt", "az"), ("az", "alt")):
        if name == own or name.endswith(f"_{own}"):
            partner = name.removesuffix(own) + other
            return partner if partner in known and not name.startswith("true_") else None
    return None


def _mean_direction(
    name: str, partner: str, images: Images, shower: Numbers, weights: FloatArray, factors: Mapping[str, float]
) -> tuple[Numbers, FloatArray]:
    """Return showers, and altitude or azimuth of their mean directions in the unit of the images."""
    is_altitude = name.endswith("alt")
    names = (name, partner) if is_altitude else (partner, name)
    alt, az = (np.asarray(images[one], dtype=np.float64) * np.radians(factors.get(one, 1.0)) for one in names)
    unit_vector = (np.cos(alt) * np.cos(az), np.cos(alt) * np.sin(az), np.sin(alt) + 0 * az)
    parts = [_select(values, weights, shower) for values in unit_vector]
    x, y, z = (part.mean for part in parts)
    angle = np.arctan2(z, np.hypot(x, y)) if is_altitude else np.arctan2(y, x) % (2 * np.pi)
    return parts[0].showers, angle / np.radians(factors.get(name, 1.0))


def to_showers(
    images: pd.DataFrame, columns: Sequence[str], keys: Sequence[str] = ("obs_id", "event_id")
) -> pd.DataFrame:
    """Combine the images of each shower."""
    number = images.groupby(list(keys), sort=False).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    shower, n_showers = number[order].astype(np.intp), int(number.max(initial=-1)) + 1
    dtypes = {str(name): dtype for name, dtype in images.dtypes.items()}
    known = shower_columns(dtypes)
    possible = {*dtypes, *known, N_TELESCOPES}
    for name in columns:
        if name not in possible:
            raise ValueError(f"the table of images {missing_column(name, possible)}")
    statistics = [known[name] for name in columns if name in known and name not in images]
    parameters = {name: images[name].to_numpy()[order] for name in parameters_needed(statistics, dtypes)}
    first = np.flatnonzero(np.diff(shower, prepend=-1))
    found = {name: images[name].to_numpy()[order][first] for name in (*keys, *columns) if name in images}
    found |= aggregate(parameters, shower, n_showers, statistics, {})
    if N_TELESCOPES in columns and N_TELESCOPES not in images:
        found[N_TELESCOPES] = multiplicity(parameters, shower, n_showers)
    return pd.DataFrame({name: found[name] for name in dict.fromkeys((*keys, *columns))})


def may_need(columns: Iterable[str]) -> set[str]:
    """Return the names of all columns of images from which columns of showers may be computed."""
    found = {*columns}
    found |= {name.rpartition("_")[0] for name in found if "_" in name}
    # the mean of a direction requires both of its angles
    found |= {name.removesuffix("alt") + "az" for name in found if name.endswith("alt")}
    found |= {name.removesuffix("az") + "alt" for name in found if name.endswith("az")}
    return found | {*INTENSITIES}
