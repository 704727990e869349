"""What plots show: histograms and curves of a detection, for the page and for papers alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.stats.curve import ThresholdCurve
from excess.stats.significance import li_ma_significance
from excess.validation.detection import Detection

__all__ = [
    "OverTime",
    "ScoreHistogram",
    "ThetaSquaredHistogram",
    "ThresholdSteps",
    "score_histogram",
    "significance_over_time",
    "theta_squared_histogram",
    "threshold_steps",
]

_BINS_PER_CUT = 10
_MAX_POINTS = 2_000
"""Points of a curve that are shown; more could not be told apart."""
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


class ThresholdSteps(NamedTuple):
    """Significance of hold-out events over all thresholds, the same for all folds, as steps.

    Attributes
    ----------
    start : ndarray of shape (n_steps,)
        Threshold from which on the significance holds, up to that of the next step.
    significance : ndarray of shape (n_steps,)
        One-sided significance of the events above it.
    """

    start: FloatArray
    significance: FloatArray


def has_score(detection: Detection) -> BoolArray:
    """Say which events can be shown by their score: those that were judged, less those whose score is missing."""
    return detection.held_out & np.isfinite(detection.score)


def theta_squared_edges(detection: Detection) -> FloatArray:
    """Return ten bins up to the cut, and as many again for each cut's width beyond it that events are known for."""
    _, cut = _angles(detection)
    widths = 1 if detection.nearby is None or detection.nearby.theta is None else 4
    # whole numbers of tenths times the cut, so that the cut itself is an edge to the last bit
    return cut * (np.arange(widths * _BINS_PER_CUT + 1) / _BINS_PER_CUT)


def theta_squared_histogram(detection: Detection, threshold: float | None = None) -> ThetaSquaredHistogram:
    """Count selected events by their squared angle to the source and to the centres of the Off regions.

    Events around the regions take part where the detection knows them (``Detection.nearby``); without them the
    histogram ends at the cut. An event may be near several regions, and is then counted for each; but inside the cut it
    counts once, for the region that it was assigned to, so that these bins add up to the counts of the detection.

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
    selected = detection.selected if threshold is None else detection.score > threshold
    parts = [shown_theta_squared(theta[selected], cut, detection.on[selected])]
    nearby = detection.nearby
    if nearby is not None and nearby.theta is not None:
        selected = nearby.selected if threshold is None else nearby.score > threshold
        parts.append(shown_theta_squared(nearby.theta[selected], cut, None))
    numbers = bin_numbers(np.concatenate(parts), edges)
    counts = [np.bincount(part.ravel(), minlength=len(edges))[:-1] for part in (numbers[:, :1], numbers[:, 1:])]
    return ThetaSquaredHistogram(edges, counts[0], counts[1], detection.alpha, cut)


def shown_theta_squared(theta: FloatArray, cut: float, on: BoolArray | None) -> FloatArray:
    """Square angles, and leave out (NaN) those inside the cut to any region but the one that the event counts for.

    ``on`` says which events are On; the others count for the nearest Off region, or for none where ``on`` is None.
    """
    squared = theta**2
    counted = np.zeros(squared.shape, dtype=np.bool_)
    if on is not None:
        nearest = 1 + np.where(np.isnan(theta), np.inf, theta)[:, 1:].argmin(axis=1)
        counted[np.arange(len(theta)), np.where(on, 0, nearest)] = True
    squared[(squared < cut) & ~counted] = np.nan
    return squared


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
        raise ValueError("there are no scores to show: no event was judged by a model that had not seen it")
    low, high = score.min(), score.max()
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # too near to each other to be told apart by bins
        margin = 0.5 * max(1.0, abs(low))
        low, high = low - margin, high + margin
    edges = np.linspace(low, high, n_bins + 1)
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
    judged = np.flatnonzero(detection.held_out)
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


def threshold_steps(curve: ThresholdCurve, n_points: int = _MAX_POINTS) -> ThresholdSteps:
    """Return a curve as steps, and of many only those that can be seen: the ends and extremes of each stretch.

    Parameters
    ----------
    curve : ThresholdCurve
        Such as ``Detection.curve``.
    n_points : int, default=2_000
        Number of steps, at most.

    Returns
    -------
    ThresholdSteps
        With the largest significance among them. The first step, which selects all events, starts a little before the
        smallest score.
    """
    scores = curve.scores
    margin = 0.02 * (scores[-1] - scores[0]) or 0.5
    start = np.append(scores[0] - margin, scores)
    if len(start) <= n_points:
        return ThresholdSteps(start, curve.significance)
    borders = np.linspace(start[0], start[-1], (n_points - 1) // 4 + 1)[1:-1]
    first = np.unique(np.append(0, np.searchsorted(start, borders)))
    first = first[first < len(start)]
    last = np.append(first[1:], len(start)) - 1
    lowest, highest = (_extreme_places(sign * curve.significance, first) for sign in (-1, 1))
    kept = np.unique(np.concatenate([first, last, lowest, highest, [curve.best_index]]))
    return ThresholdSteps(start[kept], curve.significance[kept])


def _extreme_places(values: FloatArray, first: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the place of the largest value in each stretch, which starts at ``first`` and ends before the next."""
    stretch = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(values))))
    at_top = np.flatnonzero(values == np.maximum.reduceat(values, first)[stretch])
    return at_top[np.unique(stretch[at_top], return_index=True)[1]]


def _angles(detection: Detection) -> tuple[FloatArray, float]:
    if detection.theta is None or detection.theta_squared_cut is None:
        raise ValueError(
            "the detection has no angles between events and regions; give theta and theta_squared_cut with "
            "detection.annotated(...)"
        )
    if detection.theta_squared_cut <= 0:
        raise ValueError(f"theta_squared_cut must be positive, got {detection.theta_squared_cut:g}")
    nearby = detection.nearby
    if nearby is not None and nearby.theta is not None and nearby.theta.shape[1] != detection.theta.shape[1]:
        raise ValueError(
            f"theta has {detection.theta.shape[1]} regions, but nearby_theta has {nearby.theta.shape[1]}; give the "
            "same regions with detection.annotated(...)"
        )
    return detection.theta, detection.theta_squared_cut
