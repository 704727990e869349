"""Rates of a detection: the excess per hour of each group and of each night."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from excess._core.checks import FloatArray, as_choice
from excess.validation.detection import Detection

__all__ = ["ExcessRates", "excess_rates", "has_rates"]

TIMES = {
    "livetime": "livetime of the files",
    "ontime": "observation time of the files, dead time included",
    "events": "first to last event of each run, so a little too short, dead time included",
}
"""Where observation times come from, in words."""


class ExcessRates(NamedTuple):
    """Excess of selected events per hour of observation.

    Attributes
    ----------
    labels : list of str
        Groups or nights, in order.
    hours : ndarray of shape (n_labels,)
        Observation times.
    rate, error : ndarray of shape (n_labels,)
        Excess per hour, and its standard error.
    mean : float
        Excess of all of these per hour of all of them.
    n_unknown : int
        Groups or nights without a known time, which are left out.
    """

    labels: list[str]
    hours: FloatArray
    rate: FloatArray
    error: FloatArray
    mean: float
    n_unknown: int


def has_rates(detection: Detection, by: str) -> bool:
    """Return whether times of groups or nights are known; nights count where there are several groups in them."""
    if detection.exposure is None:
        return False
    if by == "group":
        return bool(detection.exposure.by_group) and bool(detection.counts_by_group)
    groups, nights = detection.counts_by_group, detection.counts_by_night
    return bool(detection.exposure.by_night) and len(nights) > 0 and set(map(str, groups)) != set(map(str, nights))


def excess_rates(detection: Detection, by: str = "group") -> ExcessRates:
    """Return the excess per hour of each group, or of each night."""
    as_choice("by", by, ("group", "night"))
    counts = detection.counts_by_group if by == "group" else detection.counts_by_night
    if detection.exposure is None or not counts:
        raise ValueError(
            f"the detection has no observation times of a {by}; give exposure, and groups or nights, with "
            "detection.annotated(...)"
        )
    hours = detection.exposure.by_group if by == "group" else detection.exposure.by_night
    known = {str(label): one for label, one in counts.items() if hours.get(str(label), 0.0) > 0}
    time = np.array([hours[label] for label in known], dtype=np.float64)
    excess, error = (
        np.array([getattr(one, name) for one in known.values()], dtype=np.float64)
        for name in ("excess", "excess_error")
    )
    mean = float(excess.sum() / time.sum()) if len(time) else float("nan")
    return ExcessRates(list(known), time, excess / time, error / time, mean, len(counts) - len(known))
