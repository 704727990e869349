"""The curve of counts and significance over all cuts of a score, and the exact sweep that it comes from.

The sweep is one sort, cumulative counts, and evaluation at the ends of ties. An event is a cell that holds one count,
so that events and the cells of a partition share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import BoolArray, FloatArray, as_scalar_alpha, as_scored_events, as_threshold
from excess.stats.counts import OnOffCounts
from excess.stats.significance import significance_of_cuts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ThresholdCurve", "significance_curve"]


@dataclass(frozen=True, eq=False)
class ThresholdCurve:
    """Counts and significance at every cut of a score, from selecting all events to selecting none.

    Attributes
    ----------
    scores : ndarray of shape (n_distinct,)
        The distinct scores, ascending. The curve of a forest trained on more than a million events has at most that
        many cuts; it then holds the smallest score above each of them.
    thresholds : ndarray of shape (n_distinct + 1,)
        One cut per distinct score, which selects the events from that score on, and a last one. An
        event is selected when ``score > threshold``. The first threshold is -inf (all events), the last
        +inf (no event); the others lie midway between neighbouring distinct scores.
    n_on, n_off : ndarray of int64 of shape (n_distinct + 1,)
        Selected events; float64 where events have weights that are not whole numbers.
    significance : ndarray of shape (n_distinct + 1,)
        One-sided Li & Ma significance in sigma.
    alpha : float
        Exposure ratio On/Off.

    See Also
    --------
    significance_curve : Computes the curve.

    Examples
    --------
    >>> from excess import significance_curve
    >>> curve = significance_curve([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], alpha=1.0)
    >>> curve.best_threshold
    0.45
    >>> print(curve.best)
    On 2, Off 0, alpha 1: excess 2.0 +- 1.4, 1.7 sigma
    >>> print(curve.at(0.25))
    On 3, Off 1, alpha 1: excess 2.0 +- 2.0, 1.0 sigma
    """

    scores: FloatArray
    thresholds: FloatArray
    n_on: NDArray[Any]
    n_off: NDArray[Any]
    significance: FloatArray
    alpha: float

    def __len__(self) -> int:
        """Return the number of cuts."""
        return len(self.thresholds)

    @property
    def best_index(self) -> int:
        """Index of the largest significance; among equals, the cut that selects the fewest events.

        Where no cut shows an excess this is the last one, which selects nothing.
        """
        return strictest_argmax(self.significance)

    @property
    def best_threshold(self) -> float:
        """Threshold of the largest significance."""
        return float(self.thresholds[self.best_index])

    @property
    def best(self) -> OnOffCounts:
        """Counts at the largest significance."""
        return self._counts(self.best_index)

    def index_of(self, threshold: float) -> int:
        """Return the index of the cut that selects the same events as a given threshold."""
        return int(np.searchsorted(self.scores, as_threshold("threshold", threshold), side="right"))

    def at(self, threshold: float) -> OnOffCounts:
        """Return the counts of events with ``score > threshold``."""
        return self._counts(self.index_of(threshold))

    def to_frame(self) -> pd.DataFrame:
        """Return the curve as a table, one row per cut."""
        import pandas as pd

        counted = {"n_on": self.n_on, "n_off": self.n_off, "significance": self.significance}
        return pd.DataFrame({"threshold": self.thresholds, **counted})

    def _counts(self, index: int) -> OnOffCounts:
        return OnOffCounts(self.n_on[index], self.n_off[index], self.alpha)


def significance_curve(y: ArrayLike, score: ArrayLike, alpha: float) -> ThresholdCurve:
    """Counts and significance at every cut of a score, exactly, from one sort.

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Noisy labels of two classes; the larger one in sorted order is On.
    score : array-like of shape (n_events,)
        Larger means more signal-like; any scale, finite.
    alpha : float
        Exposure ratio On/Off.

    Returns
    -------
    ThresholdCurve
        The curve over all distinct scores.

    Examples
    --------
    >>> from excess import significance_curve
    >>> significance_curve([0, 1, 0, 1], [0.1, 0.3, 0.3, 0.8], alpha=0.5).to_frame().round(2)
       threshold  n_on  n_off  significance
    0       -inf     2      2          0.69
    1       0.20     2      1          1.18
    2       0.55     1      0          1.48
    3        inf     0      0          0.00
    """
    on, scores = as_scored_events(y, score)
    ratio = as_scalar_alpha(alpha)
    return _build_curve(sweep_events(on, scores), ratio)


def compute_cell_curve(score: FloatArray, n_on: NDArray[Any], n_off: NDArray[Any], alpha: float) -> ThresholdCurve:
    """Counts and significance at every cut of a score that the events of a cell share (no validation)."""
    return _build_curve(sweep_cells(score, n_on, n_off), alpha)


def events_curve(on: BoolArray, score: FloatArray, alpha: float, weights: FloatArray | None = None) -> ThresholdCurve:
    """Counts and significance at every cut of events, each as often as its weight says (no validation)."""
    if weights is None:
        return compute_cell_curve(score, on.astype(np.int64), (~on).astype(np.int64), alpha)
    return compute_cell_curve(score, np.where(on, weights, 0.0), np.where(on, 0.0, weights), alpha)


def compute_range_curve(
    low: FloatArray, high: FloatArray, n_on: NDArray[Any], n_off: NDArray[Any], alpha: float
) -> ThresholdCurve:
    """Counts and significance at every cut between ascending ranges of scores (no validation)."""
    starts = np.arange(len(low))
    cuts = Cuts(low, midway_thresholds(low, high), selected_sums(n_on, starts), selected_sums(n_off, starts))
    return _build_curve(cuts, alpha)


def _build_curve(cuts: Cuts, alpha: float) -> ThresholdCurve:
    return ThresholdCurve(*cuts, significance_of_cuts(cuts.n_on, cuts.n_off, alpha), alpha)


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


def f1_of_cuts(n_on: NDArray[Any], n_off: NDArray[Any], alpha: float) -> FloatArray:
    """Estimate F1 at every cut: twice the signal events over the selected events plus all signal events.

    The signal among selected events is their excess, all signal the largest excess of a cut; both are On events.
    """
    excess = np.maximum(n_on - alpha * n_off, 0.0)
    selected = n_on + n_off
    return np.divide(2 * excess, selected + excess.max(), out=np.zeros(len(excess)), where=excess > 0)


def near_best_cut(
    n_on: NDArray[Any], n_off: NDArray[Any], significance: FloatArray, alpha: float, tolerance: float
) -> int:
    """Return the cut of largest F1 among those whose squared significance is within ``tolerance`` of the largest one.

    The square is twice a log-likelihood ratio, so that 1 spans the one-sigma interval of the best cut and 4 that of two
    sigma. A tolerance of 0 is the cut of largest significance.
    """
    if tolerance == 0:
        return strictest_argmax(significance)
    floor = np.sqrt(max(float(significance.max()) ** 2 - tolerance, 0.0))
    near = (significance >= floor) & (significance > 0)
    return strictest_argmax(np.where(near, f1_of_cuts(n_on, n_off, alpha), 0.0))
