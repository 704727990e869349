"""Histograms of a detection: On and Off events by squared angle and by score."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.validation.detection import Detection

_BINS_PER_CUT = 10


class OnOffHistogram(NamedTuple):
    """Numbers of On and Off events in each bin; ``alpha`` is the factor by which ``off`` is scaled to ``on``."""

    edges: FloatArray
    on: NDArray[np.int64]
    off: NDArray[np.int64]
    alpha: float


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
