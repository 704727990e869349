"""The exact sweep over all cuts of a score: one sort, cumulative counts, evaluation at the ends of ties.

An event is a cell that holds one count, so events and the cells of a partition share the sweep.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray


class Cuts(NamedTuple):
    """Every cut that selects a different set of cells, from selecting all to selecting none."""

    values: FloatArray  # the distinct scores, ascending
    thresholds: FloatArray  # one more: -inf (all selected), midway between neighbouring scores, +inf (none selected)
    n_on: NDArray[Any]  # counts with score > threshold
    n_off: NDArray[Any]


class SortedScores(NamedTuple):
    """Scores in ascending order, with ties found."""

    order: NDArray[np.intp]  # indices that sort the scores
    values: FloatArray  # the distinct scores, ascending
    starts: NDArray[np.intp]  # position of the first of each distinct score in the sorted order


def sort_scores(score: FloatArray) -> SortedScores:
    """Sort scores and find the ends of ties."""
    order = np.argsort(score)
    ordered = score[order]
    is_start = np.empty(len(score), dtype=np.bool_)
    is_start[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_start[1:])
    starts = np.flatnonzero(is_start)
    return SortedScores(order, ordered[starts], starts)


def selected_sums(ordered_weights: NDArray[Any], starts: NDArray[np.intp]) -> NDArray[Any]:
    """Sum weights (in the order of the scores) from each tie's first position on; last comes the 0."""
    dtype = np.int64 if ordered_weights.dtype.kind in "biu" else np.float64
    before: NDArray[Any] = np.zeros(len(ordered_weights) + 1, dtype=dtype)
    np.cumsum(ordered_weights, out=before[1:])
    return before[-1] - before[np.append(starts, len(ordered_weights))]


def sweep_events(on: BoolArray, score: FloatArray) -> Cuts:
    """Sweep all cuts over events with a label each."""
    return sweep_cells(score, on, ~on)


def sweep_cells(score: FloatArray, n_on: NDArray[Any], n_off: NDArray[Any]) -> Cuts:
    """Sweep all cuts over cells with counts each."""
    ranked = sort_scores(score)
    return Cuts(
        ranked.values,
        midway_thresholds(ranked.values),
        selected_sums(n_on[ranked.order], ranked.starts),
        selected_sums(n_off[ranked.order], ranked.starts),
    )


def midway_thresholds(values: FloatArray, ends: FloatArray | None = None) -> FloatArray:
    """Return thresholds below, between and above ascending distinct values, or ranges from ``values`` to ``ends``."""
    low, high = (values if ends is None else ends)[:-1], values[1:]
    middle = 0.5 * low + 0.5 * high
    # the middle of neighbouring floats rounds to one of them; `score > low` selects `high` alone
    middle = np.where((middle >= low) & (middle < high), middle, low)
    return np.concatenate([[-np.inf], middle, [np.inf]])


def strictest_argmax(objective: FloatArray) -> int:
    """Return the index of the maximum; among equals the highest threshold, that is, the fewest events."""
    return len(objective) - 1 - int(np.argmax(objective[::-1]))


def strictest_near_best(significance: FloatArray, tolerance: float) -> int:
    """Return the strictest cut whose squared significance is within ``tolerance`` of the largest one.

    The square is twice a log-likelihood ratio, so that 1 spans the one-sigma interval of the best cut and 4 that of two
    sigma. A tolerance of 0 is the argmax.
    """
    if tolerance == 0:
        return strictest_argmax(significance)
    floor = np.sqrt(max(float(significance.max()) ** 2 - tolerance, 0.0))
    near = np.flatnonzero((significance >= floor) & (significance > 0))
    return int(near[-1]) if len(near) else len(significance) - 1
