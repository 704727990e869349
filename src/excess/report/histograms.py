"""Histograms of a detection: On and Off events by squared angle and by score."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.validation.detection import Detection

_BINS_PER_CUT = 10


class OnOffHistogram(NamedTuple):
    """Numbers of On and Off events in each bin, and the background that Off events say there is in On.

    Attributes
    ----------
    edges : ndarray of shape (n_bins + 1,)
        Borders of the bins.
    on, off : ndarray of int64 of shape (n_bins,)
        On and Off events.
    background, background_error : ndarray of shape (n_bins,)
        Off events times alpha, each with its own where it differs, and the standard error of this sum.
    alpha : float or None
        The exposure ratio of all events; None where it differs.
    """

    edges: FloatArray
    on: NDArray[np.int64]
    off: NDArray[np.int64]
    background: FloatArray
    background_error: FloatArray
    alpha: float | None


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
    bins, alphas = [], []
    for part in squared_angles(detection):
        chosen = part.selected if threshold is None else part.score > threshold
        bins.append(find_bins(part.squared[chosen], edges))
        alphas.append(np.broadcast_to(part.alpha[chosen, np.newaxis], bins[-1][:, 1:].shape))
    place = np.concatenate(bins)
    return _count_bins(detection, edges, place[:, 0], place[:, 1:].ravel(), np.concatenate(alphas).ravel())


def _count_bins(
    detection: Detection, edges: FloatArray, on: NDArray[np.intp], off: NDArray[np.intp], off_alpha: FloatArray
) -> OnOffHistogram:
    """Count On and Off events by the numbers of their bins; the last number is that of events in none."""
    n_on, n_off = (np.bincount(number, minlength=len(edges))[:-1].astype(np.int64) for number in (on, off))
    if detection.event_alpha is None:
        alpha, numbers = detection.alpha, n_off.astype(np.float64)
        return OnOffHistogram(edges, n_on, n_off, alpha * numbers, alpha * np.sqrt(numbers), alpha)
    sums = [np.bincount(off, off_alpha**power, len(edges))[:-1].astype(np.float64) for power in (1, 2)]
    return OnOffHistogram(edges, n_on, n_off, sums[0], np.sqrt(sums[1]), None)


class SquaredAngles(NamedTuple):
    """Squared angles of events to all regions, On first, with the score, selection and exposure ratio of each event."""

    squared: FloatArray
    score: FloatArray
    selected: BoolArray
    alpha: FloatArray


def squared_angles(detection: Detection) -> list[SquaredAngles]:
    """Return squared angles to all regions: of the events, and of nearby events if known.

    An event may be near several regions, and is then counted for each. But inside the cut it counts once, for its own
    region, so that these bins add up to the counts of the detection. Angles that do not count are NaN. The exposure
    ratio of nearby events is not known, and is the mean; they are all beyond the cut.
    """
    theta, cut = require_angles(detection)
    score = np.where(detection.held_out, detection.score, np.nan)
    alpha = np.broadcast_to(alpha_of(detection, np.arange(len(score))), score.shape)
    parts = [SquaredAngles(_count_once(theta, cut, detection.on), score, detection.selected, alpha)]
    nearby = detection.nearby
    if nearby is not None and nearby.theta is not None:
        mean = np.full(len(nearby.score), detection.alpha)
        parts.append(SquaredAngles(_count_once(nearby.theta, cut, None), nearby.score, nearby.selected, mean))
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
    number = np.searchsorted(edges[1:-1], score, side="right")
    off_alpha = np.broadcast_to(alpha_of(detection, np.flatnonzero(known)), score.shape)[~on]
    return _count_bins(detection, edges, number[on], number[~on], off_alpha)


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


def alpha_of(detection: Detection, events: NDArray[np.intp]) -> FloatArray | float:
    """Return the exposure ratio of some events: one for all, or one for each where it differs."""
    return detection.alpha if detection.event_alpha is None else detection.event_alpha[events]


def common_alpha(detection: Detection) -> float | None:
    """Return the exposure ratio of all events; None where it differs."""
    return detection.alpha if detection.event_alpha is None else None
