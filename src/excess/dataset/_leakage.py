"""Checks for features that encode the position of events, and for repeated events."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import chdtrc, pdtr

from excess._utils.checks import FloatArray
from excess._utils.errors import EventFileError
from excess._utils.rng import hash_rows

_MAX_EVENTS = 100_000  # maximum number of events tested; smaller differences do not encode positions
_N_BINS, _MIN_PER_BIN, _N_SCALINGS = 20, 20, 30
_MAX_P_VALUE = 1e-9  # p-value below which a feature is rejected; divided by the number of features
_MAX_ASSOCIATION = 0.1  # bias-corrected Cramer's V of a feature and the Off region above which it is rejected
# Fraction of the expected background that may be missing among On events at certain values of a feature. Off data of
# another night differ by a few per cent in features that follow the gain or the zenith angle: these cause a warning.
_MAX_MISSING = 0.2
_WARNING = 0.03  # association, or fraction of the background, above which a warning is logged
logger = logging.getLogger("excess.dataset")


@dataclass(frozen=True)
class FeatureOrigin:
    """Association of a single feature with the region of an event."""

    association: float
    association_p_value: float
    missing: float
    missing_p_value: float


def find_origin(
    feature: FloatArray,
    region: NDArray[np.int64],
    alpha: FloatArray | float,
    n_regions: int,
    exposure: FloatArray | None = None,
) -> FeatureOrigin:
    """Test one feature of On and Off events."""
    off = region > 0
    n_bins = int(np.clip(np.count_nonzero(off) // (_MIN_PER_BIN * max(n_regions - 1, 1)), 2, _N_BINS))
    # quantiles of existing values, so a value shared by many events is an edge only once
    edges = np.unique(np.quantile(feature, np.arange(1, n_bins) / n_bins, method="higher"))
    number = np.searchsorted(edges, feature, side="right")
    n_bins = len(edges) + 1
    table = np.bincount(number * n_regions + region, minlength=n_bins * n_regions).reshape(n_bins, n_regions)
    ratio = np.broadcast_to(alpha, len(feature))[off]
    expected, variance = (np.bincount(number[off], weights, n_bins).astype(np.float64) for weights in (ratio, ratio**2))
    share = None  # of each region in the Off events of a bin, by exposure
    if exposure is not None:
        shares = exposure[off] / exposure[off].sum(axis=1, keepdims=True)
        share = np.stack([np.bincount(number[off], own, n_bins) for own in shares.T], axis=1).astype(np.float64)
    return FeatureOrigin(*_associate(table[:, 1:], share), *_find_missing(table[:, 0], expected, variance))


def _associate(table: NDArray[np.int64], share: FloatArray | None) -> tuple[float, float]:
    """Return the bias-corrected Cramer's V of a table of counts, and the p-value of its chi-squared."""
    columns, rows = table.any(axis=0), table.any(axis=1)
    table = table[rows][:, columns]
    if min(table.shape) < 2:
        return 0.0, 1.0
    n = table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    if share is not None:  # scale rows and columns in turn until they have the sums of the table
        expected = share[rows][:, columns]
        for axis in (0, 1) * _N_SCALINGS:
            expected = expected * (table.sum(axis=axis, keepdims=True) / expected.sum(axis=axis, keepdims=True))
    known = expected > 0
    chi_squared = float(np.sum((table - expected)[known] ** 2 / expected[known]))
    freedom = max(int(np.count_nonzero(known)) - sum(table.shape) + 1, 1)
    above = max(chi_squared - freedom, 0.0)
    return float(np.sqrt(above / n / (min(table.shape) - 1))), float(chdtrc(freedom, chi_squared))


def _find_missing(n_on: NDArray[np.int64], expected: FloatArray, variance: FloatArray) -> tuple[float, float]:
    """Return the fraction of the expected background missing in On, in bins with a deficit, and its p-value."""
    if n_on.sum() == 0 or expected.sum() == 0:
        return 0.0, 1.0
    scale = min(1.0, float(n_on.sum() / expected.sum()))
    deficit = np.maximum(scale * expected - n_on, 0.0)
    # variance under the null hypothesis, since a bin may have no On events
    spread = np.maximum(scale * expected + scale**2 * variance, 1.0)
    chi_squared = float(np.sum(deficit**2 / spread))
    missing = max(float(deficit.sum()) - float(np.sum(np.sqrt(spread)) / np.sqrt(2 * np.pi)), 0.0)
    # upper bound by the sum over all bins; accurate enough for 1e-9
    return missing / (scale * float(expected.sum())), float(chdtrc(len(n_on), chi_squared))


def check_origin(
    X: FloatArray,
    region: NDArray[np.int64],
    alpha: FloatArray | float,
    n_regions: int,
    names: Sequence[str],
    where: str = "",
    exposure: FloatArray | None = None,
) -> None:
    """Raise EventFileError if a single feature encodes the region of an event; see `find_origin`."""
    step = max(1, -(-len(X) // _MAX_EVENTS))
    own_alpha = alpha[::step] if isinstance(alpha, np.ndarray) else alpha
    own_exposure = None if exposure is None else exposure[::step]
    limit = _MAX_P_VALUE / len(names)
    advice = "so a model would learn the regions instead of the source; remove it, or set allow_origin_features: true"
    for name, feature in zip(names, X[::step].T, strict=True):
        found = find_origin(np.ascontiguousarray(feature), region[::step], own_alpha, n_regions, own_exposure)
        size = f"(Cramer's V {found.association:.2f}, p {found.association_p_value:.0e})"
        apart = f"feature {name!r} separates Off regions, which contain no source {size}"
        lost = f"{100 * found.missing:.0f} % of the background is missing in On at certain values"
        how = f"more than a source can: {lost} (p {found.missing_p_value:.0e})"
        lacking = f"feature {name!r} separates On from Off {how}"
        for text, effect, p_value, largest in (
            (apart, found.association, found.association_p_value, _MAX_ASSOCIATION),
            (lacking, found.missing, found.missing_p_value, _MAX_MISSING),
        ):
            if p_value < limit and effect > largest:
                raise EventFileError(f"{where}{text}, {advice}")
            if p_value < limit and effect > _WARNING:
                logger.warning(f"{where}{text}; this may contribute to the significance")


_KEYS = (("run_id", "event_num", "night"), ("obs_id", "event_id", "tel_id"))  # the third may be missing
_MAX_EQUAL, _MAX_EQUAL_SHARE = 3, 0.001  # tolerated equal rows: a file may contain a few duplicates
_FINE = 0.99  # minimum fraction of distinct values of a feature that identifies events
_SAME_ORDER = 0.999  # rank correlation above which a feature is a function of another, as log(size) of size
_MAX_COPIES, _MIN_CHANCE = 5, 1e-6


def check_identifiers(table: pd.DataFrame, source: str) -> None:
    """Raise EventFileError if identifiers show repeated events or several images of one shower."""
    where = f"{source}: " if source else ""
    for keys in _KEYS:
        known = [key for key in keys if key in table]
        if known[:2] == list(keys[:2]) and (twice := table.duplicated(known)).any():
            problem = f"{twice.sum():,} events are repeated, by {', '.join(known)}"
            raise EventFileError(f"{where}{problem}; pass every file once")
    event = next((key for key in ("event_id", "event_num") if key in table), None)
    if event is None or "tel_id" not in table or table["tel_id"].nunique() < 2:
        return
    keys_of_shower = [*(key for key in ("night", "run_id", "obs_id") if key in table), event]
    images = table.drop_duplicates([*keys_of_shower, "tel_id"])
    n_showers = len(images.drop_duplicates(keys_of_shower))
    if n_showers < len(images):
        problem = f"{len(images):,} rows are telescope images of {n_showers:,} showers, by {', '.join(keys_of_shower)}"
        cut = f"keep one telescope by a quality cut such as 'tel_id == {table['tel_id'].mode().iloc[0]}'"
        remedy = f"aggregate them to one row per shower, such as DL2 events of the array, or {cut}"
        raise EventFileError(f"{where}{problem} and tel_id, which are not independent events; {remedy}")


def check_rows(X: FloatArray, origin: NDArray[Any], names: Sequence[str], where: str = "") -> None:
    """Raise EventFileError if more rows of features are equal than expected by chance."""
    _, first, number, count = np.unique(hash_rows(X), return_index=True, return_inverse=True, return_counts=True)
    n_equal = len(X) - len(first)
    if n_equal <= max(_MAX_EQUAL, _MAX_EQUAL_SHARE * len(X)):
        return
    if not (_has_two_fine_features(X[first]) or _more_than_chance(count)):
        return
    again = np.ones(len(X), dtype=np.bool_)
    again[first] = False
    pairs = np.stack([origin[first[number[again]]], origin[again]])
    common, times = np.unique(pairs, axis=1, return_counts=True)
    one, other = (names[place] for place in common[:, times.argmax()])
    place = f"most of them in {one}" if one == other else f"most of them in {one} and {other}"
    number_of = f"{n_equal:,} of {len(X):,} events"
    problem = f"{number_of} have the same value in every feature as another event ({place})"
    raise EventFileError(f"{where}{problem}; pass every event once, regardless of its date or number")


def _has_two_fine_features(rows: FloatArray) -> bool:
    """Return whether two features distinguish almost all of some distinct rows and are not functions of each other."""
    first = None
    for column in rows.T:
        if len(np.unique(column)) < _FINE * len(rows):
            continue
        rank = np.argsort(np.argsort(column, kind="stable"))
        if first is None:
            first = rank
        elif len(rows) > 2 and abs(np.corrcoef(first, rank)[0, 1]) < _SAME_ORDER:
            return True
    return False


def _more_than_chance(count: NDArray[np.intp]) -> bool:
    """Return whether more rows are repeated than in independent draws from any distribution."""
    times = np.bincount(count, minlength=_MAX_COPIES + 2)
    for k in range(2, _MAX_COPIES + 1):
        # three standard deviations of margin
        fewer = times[k - 1] + 3 * np.sqrt(times[k - 1]) + 3
        own = max(times[k] - 3 * np.sqrt(times[k]), 0)
        if pdtr(times[k + 1], k / (k + 1) * own**2 / fewer) < _MIN_CHANCE:
            return True
    return False


def check_independent(X: FloatArray, chunks: Sequence[Any], source: str) -> None:
    """Reject equal rows of features; the message names files if there are several, else groups."""
    file = [str(chunk.files.get("events", ("",))[0]) for chunk in chunks]
    names = list(dict.fromkeys(file))
    origin = np.repeat([names.index(name) for name in file], [len(chunk.X) for chunk in chunks])
    if len(names) == 1 and all(chunk.groups is not None for chunk in chunks):
        labels, origin = np.unique(np.concatenate([chunk.groups for chunk in chunks]), return_inverse=True)
        names = [f"group {label}" for label in labels.tolist()]
    check_rows(X, origin, names if any(names) else ["these events"], f"{source}: " if source else "")
