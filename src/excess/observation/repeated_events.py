"""Repeated events: files given twice, several images of one shower, and equal rows of features.

A significance counts independent events. An event that is there twice counts twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from excess._core.checks import FloatArray
from excess._core.errors import EventFileError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_files_once", "check_identifiers", "check_rows"]

_KEYS = (("run_id", "event_num", "night"), ("obs_id", "event_id", "tel_id"))
"""Columns that identify an event; the third may be missing."""
_EVENT_KEYS = ("event_id", "event_num")
_RUN_KEYS = ("night", "run_id", "obs_id")
_MAX_EQUAL = 3
_MAX_EQUAL_SHARE = 0.001
"""Equal rows that are tolerated, as a number and as a share of all: a file may hold a few events twice."""
_FINE = 0.99
"""Distinct values of a feature, as a share of the rows, from which it tells events apart."""
_SAME_ORDER = 0.999
"""Correlation of ranks from which a feature follows from another, as log(size) from size."""
_MAX_COPIES = 5
_MIN_CHANCE = 1e-6


def check_files_once(files: Mapping[str, Sequence[Path]]) -> None:
    """Raise EventFileError where a file is given twice, for one side or for both; ``files`` are by kind."""
    seen: dict[Path, str] = {}
    for kind, paths in files.items():
        for path in paths:
            known = seen.setdefault(path.resolve(), kind)
            if known != kind:
                raise EventFileError(
                    f"{path}: is given for {known} and for {kind}, so that its events would be compared with "
                    "themselves; give every file once"
                )
        for path in paths:
            if [other.resolve() for other in paths].count(path.resolve()) > 1:
                raise EventFileError(
                    f"{path}: is given twice for {kind}, so that its events would count twice; give every file once"
                )


def check_identifiers(table: pd.DataFrame, source: str) -> None:
    """Raise EventFileError where identifiers say that events are there twice, or are images of one shower.

    ``source`` names the files, and may be empty.
    """
    where = f"{source}: " if source else ""
    for keys in _KEYS:
        known = [key for key in keys if key in table]
        if known[:2] == list(keys[:2]) and (twice := table.duplicated(known)).any():
            raise EventFileError(
                f"{where}{twice.sum():,} events are there twice, by {', '.join(known)}; give every file once"
            )
    event = next((key for key in _EVENT_KEYS if key in table), None)
    if event is None or "tel_id" not in table or table["tel_id"].nunique() < 2:
        return
    keys_of_shower = [*(key for key in _RUN_KEYS if key in table), event]
    images = table.drop_duplicates([*keys_of_shower, "tel_id"])
    n_showers = len(images.drop_duplicates(keys_of_shower))
    if n_showers < len(images):
        raise EventFileError(
            f"{where}{len(images):,} rows are telescope images of {n_showers:,} showers, by "
            f"{', '.join(keys_of_shower)} and tel_id, and images of one shower are not independent events; aggregate "
            "them to one row per shower, such as DL2 events of the array, or keep one telescope by a quality cut such "
            f"as 'tel_id == {table['tel_id'].mode().iloc[0]}'"
        )


def check_rows(X: FloatArray, origin: NDArray[Any], names: Sequence[str], where: str = "") -> None:
    """Raise EventFileError where more rows of features are equal than chance allows.

    Parameters
    ----------
    X : ndarray of shape (n_events, n_features)
        Features.
    origin : ndarray of int of shape (n_events,)
        For each event the number of the file, or of another unit, that it comes from.
    names : sequence of str
        What the numbers of ``origin`` mean, for the message.
    where : str, default=""
        What the message begins with.

    Notes
    -----
    Rounded or discrete features may be equal by chance, so equal rows are an error only in two cases. Either two
    features that do not follow from each other hardly ever have a value twice, so that no two rows have both in common.
    Or too many rows are there exactly twice, see `_more_than_chance`.
    """
    key = _hash_rows(X)
    _, first, number, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
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
    raise EventFileError(
        f"{where}{n_equal:,} of {len(X):,} events have the same value in every feature as another event ({place}), "
        "which independent events do not have; give every event once, whatever its date or number"
    )


def _hash_rows(X: FloatArray) -> NDArray[np.uint64]:
    """Return a number for each row that is the same for equal rows, and for others by a chance of 2^-64."""
    key = np.zeros(len(X), dtype=np.uint64)
    for column in range(X.shape[1]):
        values = X[:, column] + 0.0  # turns -0 into 0
        key ^= np.ascontiguousarray(values).view(np.uint64)
        # the finaliser of splitmix64
        key += np.uint64(0x9E3779B97F4A7C15)
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        key ^= key >> np.uint64(31)
    return key


def _has_two_fine_features(rows: FloatArray) -> bool:
    """Say whether two features tell almost all of some distinct rows apart, and do not follow from each other."""
    first = None
    for column in rows.T:
        if len(np.unique(column)) < _FINE * len(rows):
            continue
        rank = np.empty(len(rows))
        rank[np.argsort(column, kind="stable")] = np.arange(len(rows))
        if first is None:
            first = rank
        elif len(rows) > 2 and abs(np.corrcoef(first, rank)[0, 1]) < _SAME_ORDER:
            return True
    return False


def _more_than_chance(count: NDArray[np.intp]) -> bool:
    """Say whether more rows are there twice (or three times, ...) than independent draws from any distribution give.

    Let m_k be the number of distinct rows that are there k times. For independent draws it is a sum of Poisson
    probabilities, for which k! m_k is log-convex in k: m_{k+1} is at least k / (k + 1) m_k^2 / m_{k-1}. Copies of a
    file are there twice, and none three times.
    """
    times = np.bincount(count, minlength=_MAX_COPIES + 2)
    for k in range(2, _MAX_COPIES + 1):
        # three standard deviations on the safe side
        fewer = times[k - 1] + 3 * np.sqrt(times[k - 1]) + 3
        own = max(times[k] - 3 * np.sqrt(times[k]), 0)
        if pdtr(times[k + 1], k / (k + 1) * own**2 / fewer) < _MIN_CHANCE:
            return True
    return False
