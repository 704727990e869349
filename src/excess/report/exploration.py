"""The slider of the page: counts at up to 250 thresholds, the stops of the slider, computed in advance."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess._core.ordering import number_groups
from excess.report.histograms import alpha_of, find_bins, has_score, squared_angles, theta_squared_edges
from excess.report.series import ThresholdSteps, threshold_steps
from excess.stats.counts import OnOffCounts
from excess.validation.detection import Detection
from excess.validation.outcome import count_cuts

__all__ = ["counts_text", "explore", "stops_of"]

_MAX_STOPS = 250
_MIN_STOPS = 25
_MIN_POINTS, _MAX_POINTS = 100, 600
"""Points of the curve above the slider; fewer for many models."""
MAX_BYTES = 1_000_000
"""Size of the slider's data of all models together; the rest of the page is the plotting library, and text."""
_BYTES_OF_TEXTS, _BYTES_OF_BIN, _BYTES_OF_SCALED_BIN, _BYTES_OF_GROUP = 70, 4, 7, 50
"""Size of one stop: its own counts, each bin of a histogram of events or of scaled Off, each group."""
_BYTES_PER_POINT = 150
"""Bytes of the slider's data for each point of the curve, of which it takes a tenth."""


def counts_text(counts: OnOffCounts) -> dict[str, str]:
    """Return counts as texts, which the page shows without computing anything."""
    return {
        "n_on": f"{counts.n_on:,.0f}",
        "n_off": f"{counts.n_off:,.0f}",
        "excess": f"{counts.excess:,.1f}",
        "excess_error": f"{counts.excess_error:,.1f}",
        "significance": f"{counts.significance:.2f}",
    }


def stops_of(score: FloatArray, max_stops: int = _MAX_STOPS) -> tuple[list[str], FloatArray]:
    """Return thresholds in round steps that cover the scores, as texts and as numbers equal to these texts.

    The lowest 0.1 % and the highest 0.01 % of the scores may lie outside of them.
    """
    low, high = np.quantile(score, [0.001, 0.9999], method="inverted_cdf").tolist()
    if high <= low:
        high = low = float(low)
        step = 10.0 ** math.floor(math.log10(max(abs(low), 1e-6))) / 10
    else:
        rough = (high - low) / max_stops
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.floor(low / step - 1e-9) - 1, math.ceil(high / step + 1e-9)
    texts = [f"{number * step:.{digits}f}" for number in range(first, last + 1)]
    texts = list(dict.fromkeys(text if float(text) else text.lstrip("-") for text in texts))
    return texts, np.array([float(text) for text in texts])


def explore(detection: Detection, max_bytes: int = MAX_BYTES) -> dict[str, Any] | None:
    """Return the counts of hold-out events at each stop, with the same threshold for all folds.

    Where exposure ratios differ, each event has its own, as in ``Detection.counts``, and the curve above the slider
    has the significance at the stops.
    ``groups`` is None if there are none, or too many to follow the slider. Return None if no event has a score.
    """
    known = has_score(detection)
    if not known.any():
        return None
    score, on = detection.score[known], detection.on[known]
    alpha = alpha_of(detection, np.flatnonzero(known))
    names, group = _groups(detection, known)
    n_bins = len(theta_squared_edges(detection)) - 1 if detection.theta is not None else 0
    off_size = _BYTES_OF_BIN if detection.event_alpha is None else _BYTES_OF_SCALED_BIN
    size = _BYTES_OF_TEXTS + (_BYTES_OF_BIN + off_size) * n_bins
    n_wanted = max_bytes // (size + _BYTES_OF_GROUP * len(names))
    follows = len(names) > 0 and n_wanted >= _MIN_STOPS
    if not follows:
        n_wanted = max(max_bytes // size, _MIN_STOPS)
    texts, thresholds = stops_of(score, min(n_wanted, _MAX_STOPS))
    # an event is selected at all stops before the first that its score does not exceed
    first_missed = np.searchsorted(thresholds, score, side="left")
    n_stops = len(thresholds)
    counts = count_cuts(on, first_missed, alpha, n_stops)
    height = np.array([max(one.significance, 0.0) for one in counts])
    if detection.event_alpha is None:
        steps = threshold_steps(detection.curve, max(_MIN_POINTS, min(_MAX_POINTS, max_bytes // _BYTES_PER_POINT)))
    else:
        steps = ThresholdSteps(thresholds, height)
    content = {
        "threshold": texts,
        **_texts(counts),
        "height": height.round(4).tolist(),
        "curve": {"start": steps.start.round(6).tolist(), "significance": steps.significance.round(3).tolist()},
        "groups": None,
        "theta": _theta(detection, thresholds),
    }
    if follows:
        by_group = []
        for number in range(len(names)):
            own = np.flatnonzero(group == number)
            ratio = alpha[own] if isinstance(alpha, np.ndarray) else alpha
            by_group.append(count_cuts(on[own], first_missed[own], ratio, n_stops))
        content["groups"] = [_texts(at_stop) for at_stop in zip(*by_group, strict=True)]
    return content


def _groups(detection: Detection, known: NDArray[np.bool_]) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the groups of hold-out events, and for each known event the index of its group."""
    if detection.groups is None:
        return [], np.zeros(0, dtype=np.intp)
    time = None if detection.time is None else detection.time[detection.held_out]
    names, number = number_groups(detection.groups[detection.held_out], time)
    return names.tolist(), number[known[detection.held_out]]


def _count_at_stops(
    first_missed: NDArray[np.intp], n_stops: int, bins: NDArray[np.intp], n_bins: int, weights: FloatArray | None
) -> NDArray[Any]:
    """Count the events in each bin that are selected at each stop, or add up their weights."""
    counts = np.bincount(first_missed * n_bins + bins, weights, (n_stops + 1) * n_bins).reshape(n_stops + 1, n_bins)
    return counts[::-1].cumsum(axis=0)[::-1][1:]


def _texts(counts: Iterable[OnOffCounts]) -> dict[str, list[str]]:
    """Return lists of texts of the counts at each stop, or in each group."""
    rows = [counts_text(one) for one in counts]
    return {key: [row[key] for row in rows] for key in ("n_on", "n_off", "excess", "excess_error", "significance")}


def _theta(detection: Detection, thresholds: FloatArray) -> dict[str, Any] | None:
    """Return histograms of squared angles of the events that are selected at each stop.

    Off events are numbers, or the sums of their exposure ratios where these differ.
    """
    if detection.theta is None or detection.theta_squared_cut is None:
        return None
    edges = theta_squared_edges(detection)
    n_bins, n_stops = len(edges) - 1, len(thresholds)
    on = np.zeros((n_stops, n_bins), dtype=np.int64)
    off = np.zeros((n_stops, n_bins), dtype=np.int64 if detection.event_alpha is None else np.float64)
    for part in squared_angles(detection):
        scored = np.isfinite(part.score)
        first_missed = np.searchsorted(thresholds, part.score[scored], side="left")
        alpha = None if detection.event_alpha is None else part.alpha[scored]
        for region, angles in enumerate(part.squared[scored].T):
            bins, weights = find_bins(angles, edges), None if region == 0 else alpha
            counts = _count_at_stops(first_missed, n_stops, bins, n_bins + 1, weights)[:, :n_bins]
            if region == 0:
                on += counts
            else:
                off += counts
    return {"on": on.tolist(), "off": off.round(2).tolist()}
