"""What plots show: histograms and curves of a detection, for the page and for papers alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._checks import BoolArray, FloatArray
from excess.detection import Detection
from excess.significance import li_ma_significance

__all__ = [
    "OverTime",
    "ScoreHistogram",
    "ThetaSquaredHistogram",
    "score_histogram",
    "significance_over_time",
    "theta_squared_histogram",
]

_BINS_PER_CUT = 10
_LONGEST_PAUSE = 900.0
"""Seconds between neighbouring events from which the telescope was not observing."""


class ThetaSquaredHistogram(NamedTuple):
    """Squared angles of selected events to the source and to the centres of the Off regions.

    Attributes
    ----------
    edges : ndarray of shape (n_bins + 1,)
        Edges of the bins in deg^2; the cut is one of them.
    on : ndarray of int64 of shape (n_bins,)
        Events by their angle to the source.
    off : ndarray of int64 of shape (n_bins,)
        Events by their angle to the centre of an Off region, summed over these regions.
    alpha : float
        What ``off`` is to be multiplied with.
    cut : float
        Events lie in a region below it, in deg^2.
    """

    edges: FloatArray
    on: NDArray[np.int64]
    off: NDArray[np.int64]
    alpha: float
    cut: float


class ScoreHistogram(NamedTuple):
    """Scores of hold-out events.

    Attributes
    ----------
    edges : ndarray of shape (n_bins + 1,)
        Edges of the bins.
    on, off : ndarray of int64 of shape (n_bins,)
        On and Off events.
    alpha : float
        What ``off`` is to be multiplied with.
    """

    edges: FloatArray
    on: NDArray[np.int64]
    off: NDArray[np.int64]
    alpha: float


class OverTime(NamedTuple):
    """Significance of the hold-out events up to a moment, for a hundred moments or fewer.

    Attributes
    ----------
    exposure : ndarray of shape (n_moments,)
        How much was observed up to the moment: hours, pauses of more than 15 minutes left out, or events of all regions
        where times are not known.
    significance : ndarray of shape (n_moments,)
        Significance of the selected events up to then; negative for a deficit.
    unit : {"h", "events"}
        Unit of ``exposure``.
    """

    exposure: FloatArray
    significance: FloatArray
    unit: str


def has_score(detection: Detection) -> BoolArray:
    """Say which events can be shown by their score: those that were judged, less those whose score is missing."""
    return detection.judged & np.isfinite(detection.score)


def theta_squared_edges(detection: Detection) -> FloatArray:
    """Return ten bins up to the cut, and as many again for each cut's width beyond it that events are known for."""
    _, cut = _angles(detection)
    widths = 1 if detection.nearby is None or detection.nearby.theta is None else 4
    return np.linspace(0, widths * cut, widths * _BINS_PER_CUT + 1)


def theta_squared_histogram(detection: Detection, threshold: float | None = None) -> ThetaSquaredHistogram:
    """Count selected events by their squared angle to the source and to the centres of the Off regions.

    Events around the regions take part where the detection knows them (``Detection.nearby``); without them the
    histogram ends at the cut. An event may be near several regions, and is then counted for each.

    Parameters
    ----------
    detection : Detection
        With angles; see ``Detection.annotated``.
    threshold : float or None, default=None
        Select by this threshold instead of by those of the models, for exploration.

    Returns
    -------
    ThetaSquaredHistogram
        Counts in each bin.
    """
    theta, cut = _angles(detection)
    edges = theta_squared_edges(detection)
    parts = [(theta, detection.selected if threshold is None else detection.score > threshold)]
    nearby = detection.nearby
    if nearby is not None and nearby.theta is not None:
        parts.append((nearby.theta, nearby.selected if threshold is None else nearby.score > threshold))
    counts = np.zeros((theta.shape[1], len(edges) - 1), dtype=np.int64)
    for angles, selected in parts:
        for region in range(theta.shape[1]):
            counts[region] += np.bincount(bin_numbers(angles[selected, region] ** 2, edges), minlength=len(edges))[
                : len(edges) - 1
            ]
    return ThetaSquaredHistogram(edges, counts[0], counts[1:].sum(axis=0), 1 / (theta.shape[1] - 1), cut)


def bin_numbers(values: FloatArray, edges: FloatArray) -> NDArray[np.intp]:
    """Return the bin that each value lies in, its lower edge included; the number of bins for values in none."""
    number = np.searchsorted(edges, values, side="right") - 1
    return np.where((number < 0) | (number >= len(edges) - 1), len(edges) - 1, number)


def score_histogram(detection: Detection, n_bins: int = 50) -> ScoreHistogram:
    """Count hold-out events by their score.

    Parameters
    ----------
    detection : Detection
        The events.
    n_bins : int, default=50
        Number of bins.

    Returns
    -------
    ScoreHistogram
        Counts in each bin.
    """
    known = has_score(detection)
    score, on = detection.score[known], detection.on[known]
    if len(score) == 0:
        raise ValueError("there are no scores to show")
    edges = np.histogram_bin_edges(score, n_bins)
    counts = [np.histogram(score[mask], edges)[0].astype(np.int64) for mask in (on, ~on)]
    return ScoreHistogram(edges, counts[0], counts[1], detection.alpha)


def significance_over_time(detection: Detection, n_moments: int = 100) -> OverTime:
    """Follow the significance through the observation.

    Parameters
    ----------
    detection : Detection
        With times, if they are known; else events are taken in order of their groups, or as they stand.
    n_moments : int, default=100
        Number of moments; fewer where there are fewer events.

    Returns
    -------
    OverTime
        The last moment is the end: its significance is that of the detection.
    """
    judged = np.flatnonzero(detection.judged)
    if len(judged) == 0:
        raise ValueError("no events were judged")
    unit = "events"
    exposure = np.arange(1.0, len(judged) + 1)
    if detection.time is not None and np.isfinite(detection.time[judged]).all():
        judged = judged[np.argsort(detection.time[judged], kind="stable")]
        steps = np.diff(detection.time[judged], prepend=detection.time[judged[0]])
        hours = np.cumsum(np.where(steps > _LONGEST_PAUSE, 0.0, steps)) / 3600
        if hours[-1] > 0:
            exposure, unit = hours, "h"
    elif detection.groups is not None:
        judged = judged[np.argsort(np.unique(detection.groups[judged], return_inverse=True)[1], kind="stable")]
    selected = detection.selected[judged]
    n_on = np.cumsum(selected & detection.on[judged])
    n_off = np.cumsum(selected & ~detection.on[judged])
    targets = np.linspace(0, exposure[-1], min(n_moments, len(judged)) + 1)[1:]
    last = np.searchsorted(exposure, targets * (1 + 1e-12), side="right") - 1
    last[-1] = len(judged) - 1
    significance = np.asarray(li_ma_significance(n_on[last], n_off[last], detection.alpha, signed=True))
    return OverTime(targets, significance, unit)


def _angles(detection: Detection) -> tuple[FloatArray, float]:
    if detection.theta is None or detection.theta_squared_cut is None:
        raise ValueError(
            "the detection has no angles between events and regions; give theta and theta_squared_cut with "
            "detection.annotated(...)"
        )
    return detection.theta, detection.theta_squared_cut
