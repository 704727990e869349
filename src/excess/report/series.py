"""Series that plots show: histograms and curves of a detection, for the page and for papers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.stats.curve import ThresholdCurve
from excess.stats.significance import li_ma_significance
from excess.validation.detection import Detection

_BINS_PER_CUT = 10
_MAX_POINTS = 2_000
"""Points of a curve that are shown; more could not be distinguished."""
_LONGEST_PAUSE = 900.0
"""Longest time in seconds between consecutive events that counts as observation time."""


class OnOffHistogram(NamedTuple):
    """Numbers of On and Off events in each bin; ``alpha`` is the factor by which ``off`` is scaled to ``on``."""

    edges: FloatArray
    on: NDArray[np.int64]
    off: NDArray[np.int64]
    alpha: float


class OverTime(NamedTuple):
    """Significance of the hold-out events up to a moment, negative for a deficit, for a hundred moments or fewer.

    ``exposure`` is the observation up to the moment. Its ``unit`` is "h", without pauses of more than 15 minutes, or
    "events", of all regions, if times are not known.
    """

    exposure: FloatArray
    significance: FloatArray
    unit: str


class ThresholdSteps(NamedTuple):
    """One-sided significance of hold-out events above a threshold, the same for all folds.

    Each significance holds from the threshold ``start`` up to that of the next step.
    """

    start: FloatArray
    significance: FloatArray


class Importances(NamedTuple):
    """The largest importances of features, in descending order, and the number of all features."""

    names: list[str]
    values: FloatArray
    n_features: int


def has_score(detection: Detection) -> BoolArray:
    """Return True for hold-out events with a finite score."""
    return detection.held_out & np.isfinite(detection.score)


def require_scores(detection: Detection) -> BoolArray:
    """Return True for hold-out events with a finite score; raise ValueError if there are none."""
    known = has_score(detection)
    if not known.any():
        raise ValueError("there are no scores to show: no event was judged by a model that had not seen it")
    return known


def theta_squared_edges(detection: Detection) -> FloatArray:
    """Return edges of ten bins up to the cut in theta^2, and of 30 more beyond it if nearby events are known."""
    _, cut = require_angles(detection)
    widths = 1 if detection.nearby is None or detection.nearby.theta is None else 4
    # integers divided by ten, times the cut: so the cut itself is an edge, to the last bit
    return cut * (np.arange(widths * _BINS_PER_CUT + 1) / _BINS_PER_CUT)


def theta_squared_histogram(detection: Detection, threshold: float | None = None) -> OnOffHistogram:
    """Count selected events by their squared angle to the source and to the centres of the Off regions, in deg^2.

    With a threshold, events are selected by it instead of by the thresholds of the models, for exploration.
    """
    edges = theta_squared_edges(detection)
    parts = [
        squared[selected if threshold is None else score > threshold]
        for squared, score, selected in squared_angles(detection)
    ]
    bins = find_bins(np.concatenate(parts), edges)
    on, off = (np.bincount(part.ravel(), minlength=len(edges))[:-1] for part in (bins[:, :1], bins[:, 1:]))
    return OnOffHistogram(edges, on, off, detection.alpha)


def squared_angles(detection: Detection) -> list[tuple[FloatArray, FloatArray, BoolArray]]:
    """Return squared angles to all regions, scores and selection: of the events, and of nearby events if known.

    An event may be near several regions, and is then counted for each. But inside the cut it counts once, for its own
    region, so that these bins add up to the counts of the detection. Angles that do not count are NaN.
    """
    theta, cut = require_angles(detection)
    score = np.where(detection.held_out, detection.score, np.nan)
    parts = [(_count_once(theta, cut, detection.on), score, detection.selected)]
    nearby = detection.nearby
    if nearby is not None and nearby.theta is not None:
        parts.append((_count_once(nearby.theta, cut, None), nearby.score, nearby.selected))
    return parts


def _count_once(theta: FloatArray, cut: float, on: BoolArray | None) -> FloatArray:
    """Square angles, and replace those inside the cut to any region but the event's own by NaN.

    ``on`` is True for On events; the others belong to the nearest Off region, or to none if ``on`` is None.
    """
    squared = theta**2
    counted = np.zeros(squared.shape, dtype=np.bool_)
    if on is not None:
        nearest = 1 + np.where(np.isnan(theta), np.inf, theta)[:, 1:].argmin(axis=1)
        counted[np.arange(len(theta)), np.where(on, 0, nearest)] = True
    squared[(squared < cut) & ~counted] = np.nan
    return squared


def find_bins(values: FloatArray, edges: FloatArray) -> NDArray[np.intp]:
    """Return the bin of each value, its lower edge included; the number of bins for values in none."""
    number = np.searchsorted(edges, values, side="right") - 1
    return np.where((number < 0) | (number >= len(edges) - 1), len(edges) - 1, number)


def score_histogram(detection: Detection, n_bins: int = 50) -> OnOffHistogram:
    """Count hold-out events by their score."""
    known = require_scores(detection)
    score, on = detection.score[known], detection.on[known]
    low, high = score.min(), score.max()
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # too close to each other for bins between them
        margin = 0.5 * max(1.0, abs(low))
        low, high = low - margin, high + margin
    edges = np.linspace(low, high, n_bins + 1)
    counts = [np.histogram(score[mask], edges)[0].astype(np.int64) for mask in (on, ~on)]
    return OnOffHistogram(edges, counts[0], counts[1], detection.alpha)


def significance_over_time(detection: Detection, n_moments: int = 100) -> OverTime:
    """Compute the significance up to each moment; that of the last moment is the significance of the detection.

    Without times, events are ordered by their groups, or keep their order.
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
    """Return a curve as at most ``n_points`` steps: the ends and extremes of each interval, and the maximum.

    The first step, which selects all events, starts a little before the smallest score.
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
    lowest, highest = (_find_maxima(sign * curve.significance, first) for sign in (-1, 1))
    kept = np.unique(np.concatenate([first, last, lowest, highest, [curve.best_index]]))
    return ThresholdSteps(start[kept], curve.significance[kept])


def largest_importances(detection: Detection, n_features: int) -> Importances:
    """Return the largest importances; features without names are called x0, x1 and so on."""
    if detection.importances is None:
        raise ValueError(
            "the detection has no importances of features; use a model that knows them, such as a tree or a forest "
            "(a model behind a step that makes other features does not know those of the events)"
        )
    names = detection.feature_names or tuple(f"x{number}" for number in range(len(detection.importances)))
    largest = np.argsort(-detection.importances, kind="stable")[:n_features]
    return Importances([names[number] for number in largest], detection.importances[largest], len(names))


def _find_maxima(values: FloatArray, first: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the index of the largest value in each interval, which starts at ``first`` and ends before the next."""
    interval = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(values))))
    at_top = np.flatnonzero(values == np.maximum.reduceat(values, first)[interval])
    return at_top[np.unique(interval[at_top], return_index=True)[1]]


def require_angles(detection: Detection) -> tuple[FloatArray, float]:
    """Return the angles and the cut of a detection; raise ValueError if they are missing or wrong."""
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
