"""The slider of the page: counts at up to 250 thresholds, the stops of the slider, computed in advance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess._core.ordering import number_groups
from excess.report.histograms import find_bins, has_score, squared_angles, theta_squared_edges
from excess.report.series import threshold_steps
from excess.stats.counts import OnOffCounts
from excess.stats.significance import significance_of_cuts
from excess.validation.detection import Detection

__all__ = ["counts_text", "explore", "stops_of"]

_MAX_STOPS = 250
_MIN_STOPS = 25
_MIN_POINTS, _MAX_POINTS = 100, 600
"""Points of the curve above the slider; fewer for many models."""
MAX_BYTES = 1_000_000
"""Size of the slider's data of all models together; the rest of the page is the plotting library, and text."""
_BYTES_OF_TEXTS, _BYTES_OF_BIN, _BYTES_OF_GROUP = 70, 4, 50
"""Size of one stop: its own counts, each bin of a histogram, each group."""
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

    ``groups`` is None if there are none, or too many to follow the slider. Return None if no event has a score.
    """
    known = has_score(detection)
    if not known.any():
        return None
    score, on = detection.score[known], detection.on[known]
    names, group = _groups(detection, known)
    n_bins = 2 * (len(theta_squared_edges(detection)) - 1) if detection.theta is not None else 0
    size = _BYTES_OF_TEXTS + _BYTES_OF_BIN * n_bins
    n_wanted = max_bytes // (size + _BYTES_OF_GROUP * len(names))
    follows = len(names) > 0 and n_wanted >= _MIN_STOPS
    if not follows:
        n_wanted = max(max_bytes // size, _MIN_STOPS)
    texts, thresholds = stops_of(score, min(n_wanted, _MAX_STOPS))
    # an event is selected at all stops before the first that its score does not exceed
    first_missed = np.searchsorted(thresholds, score, side="left")
    n_stops = len(thresholds)
    n_on, n_off = (_count_at_stops(first_missed[mask], n_stops) for mask in (on, ~on))
    steps = threshold_steps(detection.curve, max(_MIN_POINTS, min(_MAX_POINTS, max_bytes // _BYTES_PER_POINT)))
    content = {
        "threshold": texts,
        **_texts(n_on, n_off, detection.alpha),
        "height": significance_of_cuts(n_on, n_off, detection.alpha).round(4).tolist(),
        "curve": {"start": steps.start.round(6).tolist(), "significance": steps.significance.round(3).tolist()},
        "groups": None,
        "theta": _theta(detection, thresholds),
    }
    if follows:
        by_group = [_count_at_stops(first_missed[mask], n_stops, group[mask], len(names)) for mask in (on, ~on)]
        content["groups"] = [_texts(on, off, detection.alpha) for on, off in zip(*by_group, strict=True)]
    return content


def _groups(detection: Detection, known: NDArray[np.bool_]) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the groups of hold-out events, and for each known event the index of its group."""
    if detection.groups is None:
        return [], np.zeros(0, dtype=np.intp)
    time = None if detection.time is None else detection.time[detection.held_out]
    names, number = number_groups(detection.groups[detection.held_out], time)
    return names.tolist(), number[known[detection.held_out]]


def _count_at_stops(
    first_missed: NDArray[np.intp], n_stops: int, column: NDArray[np.intp] | None = None, n_columns: int = 1
) -> NDArray[np.int64]:
    """Count the events that are selected at each stop; with columns, such as groups or bins, in each of them."""
    cell = first_missed if column is None else first_missed * n_columns + column
    counts = np.bincount(cell, minlength=(n_stops + 1) * n_columns).reshape(n_stops + 1, n_columns)
    selected = counts[::-1].cumsum(axis=0)[::-1][1:]
    return selected[:, 0] if column is None else selected


def _texts(n_on: NDArray[np.int64], n_off: NDArray[np.int64], alpha: float) -> dict[str, list[str]]:
    """Return lists of texts of the counts at each stop."""
    rows = [counts_text(OnOffCounts(int(a), int(b), alpha)) for a, b in zip(n_on, n_off, strict=True)]
    return {key: [row[key] for row in rows] for key in ("n_on", "n_off", "excess", "excess_error", "significance")}


def _theta(detection: Detection, thresholds: FloatArray) -> dict[str, Any] | None:
    """Return histograms of squared angles of the events that are selected at each stop."""
    if detection.theta is None or detection.theta_squared_cut is None:
        return None
    edges = theta_squared_edges(detection)
    n_bins, n_stops = len(edges) - 1, len(thresholds)
    histograms = np.zeros((2, n_stops, n_bins), dtype=np.int64)
    for squared, score, _ in squared_angles(detection):
        scored = np.isfinite(score)
        first_missed = np.searchsorted(thresholds, score[scored], side="left")
        for region, angles in enumerate(squared[scored].T):
            counts = _count_at_stops(first_missed, n_stops, find_bins(angles, edges), n_bins + 1)
            histograms[min(region, 1)] += counts[:, :n_bins]
    return {"on": histograms[0].tolist(), "off": histograms[1].tolist()}
