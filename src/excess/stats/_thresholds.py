"""Thresholds: counts and significance at all cuts, rules that select a cut, and cells of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._utils import checks
from excess._utils.checks import BoolArray, FloatArray
from excess._utils.rng import derive_key
from excess.stats._kernels import count_on_grid, count_resamples
from excess.stats._noise import clean_counts, p_minus_from_alpha
from excess.stats._significance import OnOffCounts, significance_of_cuts

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class ThresholdCurve:
    """Counts and significance at every cut of a score, from selecting all events to selecting none.

    Attributes
    ----------
    scores : ndarray of shape (n_distinct,)
        Distinct scores, ascending; for a forest trained on more than 131,072 events, at most this many.
    thresholds : ndarray of shape (n_distinct + 1,)
        An event is selected when ``score > threshold``: -inf (all), midway between neighbouring scores, +inf (none).
    n_on, n_off : ndarray of int64 of shape (n_distinct + 1,)
        Selected events; float64 if events have fractional weights.
    significance : ndarray of shape (n_distinct + 1,)
        One-sided Li & Ma significance in sigma.
    alpha : float
        Exposure ratio On/Off.

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
        """Index of the largest significance; among ties, the cut that selects the fewest events."""
        return strictest_argmax(self.significance)

    @property
    def best_threshold(self) -> float:
        """Threshold of the largest significance."""
        return float(self.thresholds[self.best_index])

    @property
    def best(self) -> OnOffCounts:
        """Counts at the largest significance."""
        return self.at(self.best_threshold)

    def index_of(self, threshold: float) -> int:
        """Return the index of the cut that selects the same events as a given threshold."""
        return int(np.searchsorted(self.scores, checks.as_threshold("threshold", threshold), side="right"))

    def at(self, threshold: float) -> OnOffCounts:
        """Return the counts of events with ``score > threshold``."""
        index = self.index_of(threshold)
        return OnOffCounts(self.n_on[index], self.n_off[index], self.alpha)

    def to_frame(self) -> pd.DataFrame:
        """Return the curve as a table, one row per cut."""
        import pandas as pd

        counted = {"n_on": self.n_on, "n_off": self.n_off, "significance": self.significance}
        return pd.DataFrame({"threshold": self.thresholds, **counted})


def significance_curve(y: ArrayLike, score: ArrayLike, alpha: float) -> ThresholdCurve:
    """Compute counts and significance at every cut of a score, exactly, with a single sort.

    Parameters
    ----------
    y, score, alpha
        As for `significance_threshold`.

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
    on, scores = checks.as_scored_events(y, score)
    return compute_cell_curve(scores, on, ~on, checks.as_scalar_alpha(alpha))


def compute_cell_curve(score: FloatArray, n_on: NDArray[Any], n_off: NDArray[Any], alpha: float) -> ThresholdCurve:
    """Compute counts and significance at every cut, for cells of events with equal scores (no validation)."""
    return _build_curve(sweep_cells(score, n_on, n_off), alpha)


def events_curve(on: BoolArray, score: FloatArray, alpha: float, weights: FloatArray | None = None) -> ThresholdCurve:
    """Compute counts and significance at every cut of weighted events (no validation)."""
    if weights is None:
        return compute_cell_curve(score, on, ~on, alpha)
    return compute_cell_curve(score, np.where(on, weights, 0.0), np.where(on, 0.0, weights), alpha)


def _build_curve(cuts: Cuts, alpha: float) -> ThresholdCurve:
    return ThresholdCurve(*cuts, significance_of_cuts(cuts.n_on, cuts.n_off, alpha), alpha)


class Cuts(NamedTuple):
    """All cuts that select different sets of cells, from selecting all to selecting none."""

    values: FloatArray  # the distinct scores, ascending
    thresholds: FloatArray  # one more: -inf (all selected), midpoints of neighbouring scores, +inf (none selected)
    n_on: NDArray[Any]  # counts with score > threshold
    n_off: NDArray[Any]


def sort_scores(score: FloatArray) -> tuple[NDArray[np.intp], FloatArray, NDArray[np.intp]]:
    """Return the order of scores, the distinct scores, and the first position of each in this order."""
    order = np.argsort(score)
    ordered = score[order]
    starts = np.flatnonzero(np.append([True] * (len(score) > 0), ordered[1:] != ordered[:-1]))
    return order, ordered[starts], starts


def selected_sums(ordered_weights: NDArray[Any], starts: NDArray[np.intp]) -> NDArray[Any]:
    """Return cumulative sums of weights (in the order of the scores) from the first position of each tie; last is 0."""
    dtype = np.int64 if ordered_weights.dtype.kind in "biu" else np.float64
    before: NDArray[Any] = np.zeros(len(ordered_weights) + 1, dtype=dtype)
    np.cumsum(ordered_weights, out=before[1:])
    return before[-1] - before[np.append(starts, len(ordered_weights))]


def sweep_cells(score: FloatArray, n_on: NDArray[Any], n_off: NDArray[Any]) -> Cuts:
    """Sweep all cuts over cells with given counts."""
    order, values, starts = sort_scores(score)
    counts = (selected_sums(column[order], starts) for column in (n_on, n_off))
    return Cuts(values, midway_thresholds(values), *counts)


def midway_thresholds(values: FloatArray, ends: FloatArray | None = None) -> FloatArray:
    """Return thresholds below, between and above ascending distinct values, or ranges from ``values`` to ``ends``."""
    low, high = (values if ends is None else ends)[:-1], values[1:]
    middle = 0.5 * low + 0.5 * high
    # the midpoint of neighbouring floats rounds to one of them; `score > low` selects `high` only
    middle = np.where((middle >= low) & (middle < high), middle, low)
    return np.concatenate([[-np.inf], middle, [np.inf]])


def strictest_argmax(objective: FloatArray) -> int:
    """Return the index of the maximum; among ties the highest threshold, with the fewest events."""
    return len(objective) - 1 - int(np.argmax(objective[::-1]))


def f1_of_cuts(n_on: NDArray[Any], n_off: NDArray[Any], alpha: float) -> FloatArray:
    """Estimate F1 at every cut: twice the signal events over the selected events plus all signal events."""
    excess = np.maximum(n_on - alpha * n_off, 0.0)
    return np.divide(2 * excess, n_on + n_off + excess.max(), out=np.zeros(len(excess)), where=excess > 0)


def _near_best(n_on: NDArray[Any], n_off: NDArray[Any], alpha: float, tolerance: float) -> int:
    """Return the cut of maximum F1 among those with a squared significance within ``tolerance`` of the maximum."""
    significance = significance_of_cuts(n_on, n_off, alpha)
    if tolerance == 0:
        return strictest_argmax(significance)
    floor = np.sqrt(max(float(significance.max()) ** 2 - tolerance, 0.0))
    near = (significance >= floor) & (significance > 0)
    return strictest_argmax(np.where(near, f1_of_cuts(n_on, n_off, alpha), 0.0))


def assign_cells(n_on: ArrayLike, n_off: ArrayLike, alpha: float) -> BoolArray:
    """Select the cells of a partition with the largest joint significance (Eq. 5 of the paper).

    The optimum of all ``2^k`` assignments is a prefix of the cells sorted by decreasing On fraction.

    Parameters
    ----------
    n_on, n_off : array-like of shape (n_cells,)
        Counts of On and Off events in each cell, such as clusters or leaves of a tree.
    alpha : float
        Exposure ratio On/Off.

    Returns
    -------
    ndarray of bool of shape (n_cells,)
        True for cells selected as signal; empty cells are never selected, nor any cell without a selection with an
        excess.

    Examples
    --------
    >>> from excess import assign_cells
    >>> assign_cells([5, 12, 0, 1], [50, 10, 0, 0], alpha=0.2)
    array([False,  True, False,  True])
    """
    on = checks.as_counts("n_on", checks.as_column("n_on", n_on))
    off = checks.as_counts("n_off", checks.as_column("n_off", n_off))
    checks.check_same_length(n_on=on, n_off=off)
    n = on + off
    fraction = np.divide(on, n, out=np.zeros_like(n), where=n > 0)
    curve = compute_cell_curve(fraction, on, off, checks.as_scalar_alpha(alpha))
    return (fraction > curve.best_threshold) & (n > 0)


MAX_EXACT = 1 << 17  # maximum number of events for which every distinct score is a separate cell
N_GRID = 1 << 17  # cells of the range from 0 to 1 for more events
_UNIT_BITS = 52  # of the sum of all weights in units: exact in float64, and a sum of resamples fits into 64 bits


@dataclass(frozen=True)
class CountUnit:
    """Unit in which weights of events are counted."""

    per_event: float  # units of an event of weight 1, a power of two

    @classmethod
    def of(cls, total: Fraction) -> CountUnit:
        """Return the unit for weights of this sum."""
        return cls(math.ldexp(1.0, _UNIT_BITS - math.frexp(float(total))[1]))

    def count(self, weights: FloatArray) -> NDArray[np.int64]:
        """Return weights in units, at least 1."""
        return np.maximum(np.rint(weights * self.per_event), 1.0).astype(np.int64)


class ScoreCells(NamedTuple):
    """Cells in ascending order of their scores."""

    low: FloatArray  # smallest score in each cell
    high: FloatArray  # largest score in each cell
    n_on: NDArray[Any]  # int64, or float64 where events have weights
    n_off: NDArray[Any]

    def without_empty(self) -> ScoreCells:
        """Return the non-empty cells."""
        kept = np.flatnonzero(self.n_on + self.n_off)
        return ScoreCells(self.low[kept], self.high[kept], self.n_on[kept], self.n_off[kept])

    def curve(self, alpha: float) -> ThresholdCurve:
        """Return the curve over the cuts between cells."""
        starts = np.arange(len(self.low))
        counts = (selected_sums(column, starts) for column in (self.n_on, self.n_off))
        return _build_curve(Cuts(self.low, midway_thresholds(self.low, self.high), *counts), alpha)

    def in_events(self, unit: CountUnit) -> ScoreCells:
        """Return the cells of events with weights counted in a unit."""
        return self._replace(n_on=self.n_on / unit.per_event, n_off=self.n_off / unit.per_event)


class EventsInMemory:
    """Scored events in arrays with their multiplicities; other event sources have the same methods."""

    def __init__(
        self, on: BoolArray, score: FloatArray, weights: FloatArray | None = None, *, exact: bool = False
    ) -> None:
        self._on, self._score = on, score
        self._unit = None if weights is None else CountUnit.of(checks.exact_sum(weights))
        self._units = None if weights is None or self._unit is None else self._unit.count(weights)
        self._on_grid = not exact and len(score) > MAX_EXACT

    def cells(self) -> ScoreCells:
        """Return their cells."""
        cells = count_cells(self._on, self._score, self._units, on_grid=self._on_grid)
        return cells if self._unit is None else cells.in_events(self._unit)

    def resampled(self, cuts: FloatArray, keys: NDArray[np.uint64]) -> NDArray[Any]:
        """Return the weights of Off and On events at each cut (the last not above their score) in each resample."""
        counts = np.zeros((len(keys), len(cuts), 2), dtype=np.int64)
        count_resamples(self._on, self._score, self._units, 0, cuts, keys, counts)
        return counts if self._unit is None else counts / self._unit.per_event

    def arrays(self) -> tuple[BoolArray, FloatArray]:
        """Return On mask and all scores; raise ValueError if events have weights."""
        if self._units is not None:
            reject_weights()
        return self._on, self._score


def reject_weights() -> NoReturn:
    """Raise ValueError for rules that do not support event weights."""
    raise ValueError("fractional sample_weight requires threshold='significance', 'f1' or a number")


def count_cells(
    on: BoolArray, score: FloatArray, units: NDArray[np.int64] | None = None, *, on_grid: bool
) -> ScoreCells:
    """Return the cells of some events; events without a score (NaN) are omitted."""
    if on_grid:
        grid = empty_grid()
        count_on_grid(on, score, units, N_GRID, *grid)
        return grid.without_empty()
    scored = ~np.isnan(score)
    if not scored.all():
        on, score = on[scored], score[scored]
        units = None if units is None else units[scored]
    amount = np.int64(1) if units is None else units
    return _join_cells(score, score, score, on * amount, ~on * amount)


def merge_cells(parts: Sequence[ScoreCells]) -> ScoreCells:
    """Merge the cells of parts of the events, if a cell is a distinct score."""
    low, high, n_on, n_off = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _join_cells(low, low, high, n_on, n_off)


def empty_grid() -> ScoreCells:
    """Return all cells of the grid, without events."""
    counts = np.zeros((2, N_GRID), dtype=np.int64)
    return ScoreCells(np.full(N_GRID, np.inf), np.full(N_GRID, -np.inf), counts[0], counts[1])


def _join_cells(key: Any, low: FloatArray, high: FloatArray, n_on: Any, n_off: Any) -> ScoreCells:
    """Merge entries with equal keys."""
    order, values, starts = sort_scores(key)
    if len(values) == 0:
        return ScoreCells(low, high, n_on, n_off)
    lowest, highest = np.minimum.reduceat(low[order], starts), np.maximum.reduceat(high[order], starts)
    return ScoreCells(lowest, highest, *(np.add.reduceat(counts[order], starts) for counts in (n_on, n_off)))


Metric = Literal["accuracy", "f1"]
CutRule = Callable[[Any, Any, float], int]  # from counts at every cut, and alpha, to the index of one of them


def menon_threshold(
    y: ArrayLike,
    score: ArrayLike,
    alpha: float | None = None,
    *,
    p_plus: float | None = None,
    estimate_p_minus: bool = False,
    metric: Metric = "f1",
    quantiles: tuple[float, float] = (0.0, 1.0),
) -> float:
    """Compute the optimal threshold for the clean labels, given the noise rates (Menon et al. 2015).

    Unknown noise rates are estimated from the range of the scores, ``p_minus`` to ``1 - p_plus``.

    Parameters
    ----------
    y, score : array-like of shape (n_events,)
        As for `significance_threshold`; scores are estimates of P(On given x), in [0, 1].
    alpha : float or None, default=None
        Exposure ratio On/Off, which determines the noise rate of the background; None estimates it.
    p_plus : float or None, default=None
        Noise rate of the signal; None estimates it.
    estimate_p_minus : bool, default=False
        Estimate the noise rate of the background even if ``alpha`` is given, for both rates unknown.
    metric : {"f1", "accuracy"}, default="f1"
        Metric on the clean labels to maximise: F1 by an exact sweep, accuracy in closed form.
    quantiles : tuple of two floats, default=(0.0, 1.0)
        Quantiles used as the ends of the range of scores; (0.01, 0.99) is more stable for noisy scores.

    Returns
    -------
    float
        The threshold; +inf (select none) if the noise rates leave no room for signal.

    Examples
    --------
    >>> from excess import inject_label_noise, menon_threshold
    >>> y = inject_label_noise([0] * 50 + [1] * 50, p_plus=0.1, p_minus=0.4, random_state=0)
    >>> score = [0.4] * 50 + [0.9] * 50
    >>> menon_threshold(y, score, p_plus=0.1, alpha=2 / 3, metric="accuracy")
    0.65
    """
    on, scores = _check_events(y, score, alpha)
    checks.as_choice("metric", metric, get_args(Metric))
    ends = [checks.as_probability("quantiles", q) for q in checks.as_column("quantiles", quantiles)]
    if len(ends) != 2 or ends[0] >= ends[1]:
        raise ValueError(f"quantiles must be two numbers in ascending order, got {quantiles!r}")
    rate_plus = None if p_plus is None else checks.as_probability("p_plus", p_plus)
    rate_minus = None if alpha is None or estimate_p_minus else p_minus_from_alpha(alpha)
    if rate_minus is None or rate_plus is None or metric == "accuracy":
        _check_probabilities(scores, "menon")
    rate_minus = float(np.quantile(scores, ends[0])) if rate_minus is None else rate_minus
    rate_plus = 1 - float(np.quantile(scores, ends[1])) if rate_plus is None else rate_plus
    if metric == "accuracy":
        return _accuracy_threshold(rate_plus, rate_minus)
    return _f1_threshold(on, scores, rate_plus, rate_minus)


def mithal_threshold(y: ArrayLike, score: ArrayLike, alpha: float | None = None, *, quantile: float = 0.05) -> float:
    """Compute the threshold that maximises an estimate of the clean G measure (RAPT, Mithal et al. 2017).

    The rule maximises ``max(P(On given score > t) - beta, 0)^2 P(score > t)``, precision times recall up to a constant,
    with ``beta`` the On fraction among the lowest scores, assumed to be pure background.

    Parameters
    ----------
    y, score, alpha
        As for `menon_threshold`, but the scores may have any scale; alpha is not used.
    quantile : float, default=0.05
        Fraction of events used as the lowest scores; ties are kept together.

    Returns
    -------
    float
        The threshold.

    Examples
    --------
    >>> from excess import mithal_threshold
    >>> mithal_threshold([0, 1, 0, 1, 1, 1], [0.1, 0.1, 0.2, 0.3, 0.8, 0.9])
    0.25
    """
    on, scores = _check_events(y, score, alpha)
    quantile = checks.as_probability("quantile", quantile)
    _, thresholds, n_on, n_off = sweep_cells(scores, on, ~on)
    n = n_on + n_off
    below = n[0] - n
    lowest = max(1, int(np.searchsorted(below, quantile * n[0])))
    beta = (n_on[0] - n_on[lowest]) / below[lowest]
    precision = np.divide(n_on, n, out=np.zeros(len(n)), where=n > 0)
    return float(thresholds[strictest_argmax(np.maximum(precision - beta, 0.0) ** 2 * n)])


def yao_threshold(y: ArrayLike, score: ArrayLike, alpha: float | None = None, *, quantile: float = 0.97) -> float:
    """Compute the threshold of maximum clean accuracy, with noise rates from the Dual T method (Yao et al. 2020).

    Two transitions are multiplied: from the clean class to that of scores above 0.5, by anchors, and to the label.

    Parameters
    ----------
    y, score, alpha
        As for `menon_threshold`; alpha is not used.
    quantile : float, default=0.97
        Quantile of the class probabilities used as the anchor of each class.

    Returns
    -------
    float
        The threshold; +inf (select none) if the noise rates leave no room for signal.

    Examples
    --------
    >>> from excess import yao_threshold
    >>> yao_threshold([0, 0, 0, 1] * 25, [0.1, 0.1, 0.1, 0.9] * 25)
    0.5
    """
    on, scores = _check_events(y, score, alpha)
    _check_probabilities(scores, "yao")
    return _accuracy_threshold(*_dual_t_rates(on, scores, checks.as_probability("quantile", quantile)))


def default_threshold(
    y: ArrayLike, score: ArrayLike, alpha: float | None = None, *, metric: Metric = "accuracy"
) -> float:
    """Compute a threshold that ignores the noise: 0.5, or the best F1 on the noisy labels.

    Parameters
    ----------
    y, score, alpha
        As for `menon_threshold`; with ``metric="f1"`` the scores may have any scale. Alpha is not used.
    metric : {"accuracy", "f1"}, default="accuracy"
        ``"accuracy"`` gives 0.5, ``"f1"`` the best noisy F1 by an exact sweep.

    Returns
    -------
    float
        The threshold.

    Examples
    --------
    >>> from excess import default_threshold
    >>> default_threshold([0, 0, 1, 1], [0.1, 0.2, 0.3, 0.4])
    0.5
    >>> default_threshold([0, 0, 1, 1], [0.1, 0.2, 0.3, 0.4], metric="f1")
    0.25
    """
    on, scores = _check_events(y, score, alpha)
    checks.as_choice("metric", metric, get_args(Metric))
    if metric == "accuracy":
        _check_probabilities(scores, "default")
        return 0.5
    return _f1_threshold(on, scores, p_plus=0.0, p_minus=0.0)


def _accuracy_threshold(p_plus: float, p_minus: float) -> float:
    """Return the value of P(On given x) at which P(signal given x) is 1/2."""
    return (1 - p_plus + p_minus) / 2 if p_plus + p_minus < 1 else math.inf


def _f1_threshold(on: BoolArray, scores: FloatArray, p_plus: float, p_minus: float) -> float:
    """Return the cut with the largest F1 on the clean labels, by an exact sweep."""
    _, thresholds, n_on, n_off = sweep_cells(scores, on, ~on)
    if p_plus + p_minus >= 1 or (n_signal := clean_counts(n_on, n_off, p_plus, p_minus)[0])[0] <= 0:
        return math.inf
    f1 = 2 * n_signal / (n_signal[0] + n_on + n_off)
    return float(thresholds[strictest_argmax(np.maximum(f1, 0.0))])


def _dual_t_rates(on: BoolArray, scores: FloatArray, quantile: float) -> tuple[float, float]:
    """Return ``p_plus`` and ``p_minus`` estimated by the Dual T method."""
    # P(intermediate On given clean class), at the anchors of background and signal
    anchors = np.quantile(scores, [1 - quantile, quantile])
    # P(label On given intermediate class), counted; an empty class falls back to its own definition
    above = scores > 0.5
    counted = [on[above == side].mean() if (above == side).any() else side for side in (False, True)]
    p_on = (1 - anchors) * counted[0] + anchors * counted[1]
    return 1 - float(p_on[1]), float(p_on[0])


def _check_events(y: ArrayLike, score: ArrayLike, alpha: Any) -> tuple[BoolArray, FloatArray]:
    if alpha is not None:
        checks.as_scalar_alpha(alpha)
    return checks.as_scored_events(y, score)


def _check_probabilities(scores: FloatArray, method: str) -> None:
    if scores.min() < 0 or scores.max() > 1:
        ends = f"{scores.min():g} to {scores.max():g}"
        raise ValueError(f"score must be in [0, 1] for method {method!r}, got {ends}; use predict_proba")


_MAX_RESAMPLED_CUTS = 10_000  # maximum number of cuts at which a resample is evaluated


def significance_threshold(
    y: ArrayLike,
    score: ArrayLike,
    alpha: float,
    *,
    tolerance: float = 0.0,
    n_bootstrap: int = 0,
    random_state: Any = None,
) -> float:
    """Compute the threshold of maximum significance, exactly (Eq. 3 of the paper).

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Noisy labels of two classes; the larger one in sorted order is On.
    score : array-like of shape (n_events,)
        Scores, larger for more signal-like events; must not be scores of training events.
    alpha : float
        Exposure ratio On/Off.
    tolerance : float, default=0.0
        Select the cut with the largest F1 (see `f1_threshold`) among those with a squared significance at most this
        much below the maximum: 1 covers the cuts within one sigma of the best, and 4 those within two.
    n_bootstrap : int, default=0
        If positive, return the median threshold of this many bootstrap resamples (Poisson(1) weights, at most 10,000
        cuts, evenly spread over the ranks); +inf if the events themselves have no excess there.
    random_state : int, RandomState instance or None, default=None
        Seed of the resamples.

    Returns
    -------
    float
        Midpoint of neighbouring scores; -inf if selecting all events is best, +inf if no cut has an excess.

    Examples
    --------
    >>> from excess import significance_threshold
    >>> significance_threshold([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], alpha=1.0)
    0.45
    """
    tolerance = checks.as_count("tolerance", tolerance)
    return _choose(y, score, alpha, partial(_near_best, tolerance=tolerance), n_bootstrap, random_state)


def f1_threshold(
    y: ArrayLike, score: ArrayLike, alpha: float, *, n_bootstrap: int = 0, random_state: Any = None
) -> float:
    """Compute the threshold of maximum F1 with respect to the signal, estimated from On and Off events.

    Signal is the excess of selected events, ``n_on - alpha n_off``, and the total signal the largest excess of any cut.

    Parameters
    ----------
    y, score, alpha, n_bootstrap, random_state
        As for `significance_threshold`.

    Returns
    -------
    float
        Midpoint of two neighbouring scores, or +inf (select none) if no cut has an excess.

    Examples
    --------
    >>> from excess import f1_threshold
    >>> f1_threshold([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], alpha=1.0)
    0.45
    """
    return _choose(y, score, alpha, _largest_f1, n_bootstrap, random_state)


def _choose(y: ArrayLike, score: ArrayLike, alpha: float, rule: CutRule, n_bootstrap: int, random_state: Any) -> float:
    """Return the threshold of the cut selected by a rule, after validation."""
    on, scores = checks.as_scored_events(y, score)
    checks.as_int("n_bootstrap", n_bootstrap, minimum=0)
    events = EventsInMemory(on, scores, exact=True)
    return _tune_cut(events, checks.as_scalar_alpha(alpha), rule, n_bootstrap, random_state)[0]


def _largest_f1(n_on: NDArray[Any], n_off: NDArray[Any], alpha: float) -> int:
    """Return the cut of largest F1."""
    return strictest_argmax(f1_of_cuts(n_on, n_off, alpha))


THRESHOLD_METHODS: dict[str, Callable[..., float]] = {  # rules by the names that estimators accept as `method`
    "significance": significance_threshold,
    "f1": f1_threshold,
    "menon": menon_threshold,
    "mithal": mithal_threshold,
    "yao": yao_threshold,
    "default": default_threshold,
}


def threshold_rule(method: Any, n_bootstrap: int = 0, *, name: str = "method") -> Callable[..., float]:
    """Return the rule of a name, or the given function; raise an error for options that it does not have."""
    checks.as_int("n_bootstrap", n_bootstrap, minimum=0)
    if n_bootstrap > 0 and method not in ("significance", significance_threshold, "f1", f1_threshold):
        raise ValueError(f"bootstrap resamples require {name} 'significance' or 'f1', got {method!r}")
    if callable(method):
        return method
    if isinstance(method, str) and method in THRESHOLD_METHODS:
        return THRESHOLD_METHODS[method]
    raise ValueError(f"{name} must be one of {str([*THRESHOLD_METHODS])[1:-1]}, or a function, got {method!r}")


def tune_threshold(
    method: str | Callable[..., float],
    y: ArrayLike,
    score: ArrayLike,
    alpha: float,
    *,
    n_bootstrap: int = 0,
    random_state: Any = None,
) -> tuple[float, ThresholdCurve]:
    """Apply a threshold rule, given by its name or as a function of ``(y, score, alpha)``.

    Parameters
    ----------
    method : str or callable
        A name in ``THRESHOLD_METHODS``, or a function called as ``method(y, score, alpha)``.
    y, score, alpha, n_bootstrap, random_state
        As for `significance_threshold`; ``n_bootstrap`` is for the rules ``"significance"`` and ``"f1"``.

    Returns
    -------
    threshold, curve : float and ThresholdCurve
        The threshold of the rule, and the counts at every cut.

    Examples
    --------
    >>> from excess import tune_threshold
    >>> y, score = [0, 1, 0, 1, 1, 1], [0.1, 0.1, 0.2, 0.3, 0.8, 0.9]
    >>> threshold, curve = tune_threshold("mithal", y, score, alpha=1.0)
    >>> threshold
    0.25
    >>> print(curve.at(threshold))
    On 3, Off 0, alpha 1: excess 3.0 +- 1.7, 2.0 sigma
    """
    rule = threshold_rule(method, n_bootstrap)
    curve = significance_curve(y, score, alpha)
    if n_bootstrap > 0:
        threshold = rule(y, score, alpha, n_bootstrap=n_bootstrap, random_state=random_state)
    elif rule is significance_threshold:
        threshold = curve.best_threshold
    else:
        threshold = rule(y, score, alpha)
    return checks.as_threshold(f"the threshold from method {method!r}", threshold), curve


def _tune_cut(
    events: Any, alpha: float, rule: CutRule, n_bootstrap: int, random_state: Any
) -> tuple[float, ThresholdCurve]:
    """Return the threshold of a rule, with resamples the median of their thresholds, and the curve."""
    cells = events.cells()
    curve = cells.curve(alpha)
    if n_bootstrap == 0:
        return float(curve.thresholds[rule(curve.n_on, curve.n_off, alpha)]), curve
    seed = np.uint64(checks.as_random_state(random_state).randint(2**31 - 1))
    keys = np.array([derive_key(seed, i) for i in range(n_bootstrap)], dtype=np.uint64)
    cuts = cells.low
    if len(cuts) > _MAX_RESAMPLED_CUTS:
        cuts = cuts[np.linspace(0, len(cuts) - 1, _MAX_RESAMPLED_CUTS).astype(np.intp)]
    best = np.empty(n_bootstrap)
    for i, counts in enumerate(events.resampled(cuts, keys)):
        n_off, n_on = (selected_sums(column, np.arange(len(cuts))) for column in counts.T)
        n_all = n_on + n_off
        cut = rule(n_on, n_off, alpha)
        # midpoint of the neighbouring scores of the resample
        same = int(np.searchsorted(-n_all, -n_all[cut]))
        low = cuts[same - 1] if same > 0 else -np.inf
        high = cuts[cut] if cut < len(cuts) else np.inf
        best[i] = high if np.isinf(high) else 0.5 * low + 0.5 * high
    cut = int(np.searchsorted(cells.low, np.sort(best)[(n_bootstrap - 1) // 2], side="right"))
    # resamples may have an excess that the events themselves do not have
    has_excess = cells.n_on[cut:].sum() > alpha * cells.n_off[cut:].sum()
    return float(curve.thresholds[cut]) if has_excess else math.inf, curve


@dataclass(frozen=True)
class OutOfBagRule:
    """Threshold settings from the parameters of an ensemble."""

    given: Any  # the parameter `threshold`
    rule: Callable[..., float] | None  # the named rule; None if it is a fixed threshold
    tolerance: float  # of the rule of maximum significance, as `n_bootstrap` is
    n_bootstrap: int

    def __call__(
        self, on: BoolArray, score: FloatArray, alpha: float, seed: int, weights: FloatArray | None = None
    ) -> tuple[float, ThresholdCurve]:
        """Return threshold and curve from On mask, scores (NaN for none), alpha, a seed, and weights if any."""
        scored = ~np.isnan(score)
        check_scored(int(on.sum()), int((~on).sum()), int((on & scored).sum()), int((~on & scored).sum()))
        if not scored.all():
            on, score = on[scored], score[scored]
            weights = None if weights is None else weights[scored]
        return self.tune(EventsInMemory(on, score, weights), alpha, seed)

    def tune(self, events: Any, alpha: float, seed: int) -> tuple[float, ThresholdCurve]:
        """Return threshold and curve of `EventsInMemory`, or of other event sources."""
        if (choose := self._cut_rule()) is not None:
            threshold, curve = _tune_cut(events, alpha, choose, self.n_bootstrap, seed)
        else:  # a number, or a rule that requires all scores at once
            curve = events.cells().curve(alpha)
            threshold = self.given if self.rule is None else self.rule(*events.arrays(), alpha)
        return checks.as_threshold(f"the threshold from {self.given!r}", threshold), curve

    @property
    def counts_weights(self) -> bool:
        """Whether fractional event weights are supported: all except rules that count events one by one."""
        return self.rule is None or self._cut_rule() is not None

    def _cut_rule(self) -> CutRule | None:
        """Return the rule as a function of the counts at every cut, or None."""
        if self.rule is significance_threshold:
            return partial(_near_best, tolerance=self.tolerance)
        return _largest_f1 if self.rule is f1_threshold else None


def out_of_bag_rule(estimator: Any) -> OutOfBagRule:
    """Validate ``threshold``, ``threshold_tolerance`` and ``n_threshold_bootstrap``; return their rule."""
    n_bootstrap = checks.as_int("n_threshold_bootstrap", estimator.n_threshold_bootstrap, minimum=0)
    tolerance = checks.as_count("threshold_tolerance", estimator.threshold_tolerance)
    given = estimator.threshold
    if isinstance(given, str) or callable(given):
        return OutOfBagRule(given, threshold_rule(given, name="threshold"), tolerance, n_bootstrap)
    return OutOfBagRule(checks.as_threshold("threshold", given), None, tolerance, n_bootstrap)


def check_scored(n_on: int, n_off: int, n_on_scored: int, n_off_scored: int) -> None:
    """Raise ValueError unless On and Off events have out-of-bag scores."""
    if n_on_scored == 0 or n_off_scored == 0:
        numbers = f"of {n_on} On and {n_off} Off events, {n_on_scored} and {n_off_scored} were left out of a bag"
        raise ValueError(f"too few events for out-of-bag scores: {numbers}; use more events or estimators")
