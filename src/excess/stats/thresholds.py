"""Threshold rules by name: the one of largest significance, and its competitors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import (
    BoolArray,
    FloatArray,
    as_counts,
    as_int,
    as_random_state,
    as_scalar,
    as_scalar_alpha,
    as_scored_events,
    as_threshold,
)
from excess._core.rng import derive_key
from excess.stats.baselines import BASELINES
from excess.stats.curve import (
    ThresholdCurve,
    f1_of_cuts,
    midway_thresholds,
    near_best_cut,
    selected_sums,
    significance_curve,
    strictest_argmax,
)
from excess.stats.score_cells import EventsInMemory, ScoreCells, ScoredEvents
from excess.stats.significance import significance_of_cuts

__all__ = ["THRESHOLD_METHODS", "f1_threshold", "significance_threshold", "threshold_rule", "tune_threshold"]

_MAX_RESAMPLED_CUTS = 10_000
"""Cuts at which a resample is evaluated where there are more."""


def significance_threshold(
    y: ArrayLike,
    score: ArrayLike,
    alpha: float,
    *,
    tolerance: float = 0.0,
    n_bootstrap: int = 0,
    random_state: Any = None,
) -> float:
    """Threshold of largest significance, exactly (Eq. 3 of the paper).

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Noisy labels of two classes; the larger one in sorted order is On.
    score : array-like of shape (n_events,)
        Larger means more signal-like; not the scores of events that a model was trained on.
    alpha : float
        Exposure ratio On/Off.
    tolerance : float, default=0.0
        Take the cut of largest F1, as `f1_threshold` estimates it, among those whose squared significance is at most
        this much below the largest. The square is twice a log-likelihood ratio, so that 1 covers the cuts within one
        sigma of the best, and 4 those within two. Where the signal is strong that changes next to nothing; where it is
        weak, it prefers the better classifier of two cuts that the events cannot tell apart.
    n_bootstrap : int, default=0
        With a positive number, return the median of the thresholds of so many bootstrap resamples of the events,
        which varies less than the threshold of the events themselves. A resample weights each event with a
        Poisson(1) draw; where there are more than 10,000 distinct scores, it looks at 10,000 cuts, evenly spread over
        the ranks. Where the events themselves have no excess at the median, nothing is selected.
    random_state : int, RandomState instance or None, default=None
        Seed of the resamples.

    Returns
    -------
    float
        A threshold midway between two neighbouring scores; -inf where selecting all events is best, +inf
        (select nothing) where no cut shows an excess.

    See Also
    --------
    significance_curve : The significance at every cut.
    SignificanceThresholdClassifier : Tunes the threshold of any classifier.

    Examples
    --------
    >>> from excess import significance_threshold
    >>> significance_threshold([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], alpha=1.0)
    0.45
    """
    tolerance = as_scalar("tolerance", as_counts("tolerance", tolerance))
    if as_int("n_bootstrap", n_bootstrap, minimum=0) == 0:
        curve = significance_curve(y, score, alpha)
        return float(
            curve.thresholds[near_best_cut(curve.n_on, curve.n_off, curve.significance, curve.alpha, tolerance)]
        )
    on, scores = as_scored_events(y, score)
    events = EventsInMemory(on, scores, exact=True)
    rule = partial(_near_best, tolerance=tolerance)
    return median_threshold(events, events.cells(), as_scalar_alpha(alpha), rule, n_bootstrap, random_state)


def f1_threshold(
    y: ArrayLike, score: ArrayLike, alpha: float, *, n_bootstrap: int = 0, random_state: Any = None
) -> float:
    """Threshold of largest F1 against the signal, as far as On and Off events tell it.

    Selected signal events are the excess of selected events, ``n_on - alpha n_off``, and all signal events the largest
    excess of any cut. Signal events that are labelled Off, which have no place in On and Off regions, count as
    background.

    Parameters
    ----------
    y, score, alpha
        As for `significance_threshold`.
    n_bootstrap, random_state
        As for `significance_threshold`.

    Returns
    -------
    float
        A threshold midway between two neighbouring scores, or +inf (select nothing) where no cut shows an excess.

    See Also
    --------
    menon_threshold : The same for known or estimated noise rates of both classes.

    Examples
    --------
    >>> from excess import f1_threshold
    >>> f1_threshold([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], alpha=1.0)
    0.45
    """
    on, scores = as_scored_events(y, score)
    ratio = as_scalar_alpha(alpha)
    events = EventsInMemory(on, scores, exact=True)
    cells = events.cells()
    if as_int("n_bootstrap", n_bootstrap, minimum=0) > 0:
        return median_threshold(events, cells, ratio, _largest_f1, n_bootstrap, random_state)
    curve = cells.curve(ratio)
    return float(curve.thresholds[_largest_f1(curve.n_on, curve.n_off, ratio)])


def _near_best(n_on: NDArray[Any], n_off: NDArray[Any], alpha: float, tolerance: float) -> int:
    """Return the cut of largest significance, or of largest F1 near it."""
    return near_best_cut(n_on, n_off, significance_of_cuts(n_on, n_off, alpha), alpha, tolerance)


def _largest_f1(n_on: NDArray[Any], n_off: NDArray[Any], alpha: float) -> int:
    """Return the cut of largest F1."""
    return strictest_argmax(f1_of_cuts(n_on, n_off, alpha))


THRESHOLD_METHODS: dict[str, Callable[..., float]] = {
    "significance": significance_threshold,
    "f1": f1_threshold,
    **BASELINES,
}
"""Every threshold rule by the name that estimators accept as ``method``."""


def threshold_rule(method: Any, n_bootstrap: int = 0, *, name: str = "method") -> Callable[..., float]:
    """Return the rule of a name, or the function that was given instead; refuse options it does not have."""
    as_int("n_bootstrap", n_bootstrap, minimum=0)
    if n_bootstrap > 0 and method not in ("significance", significance_threshold, "f1", f1_threshold):
        raise ValueError(f"bootstrap resamples go with {name} 'significance' and 'f1' only, got {method!r}")
    if callable(method):
        return method
    if isinstance(method, str) and method in THRESHOLD_METHODS:
        return THRESHOLD_METHODS[method]
    known = ", ".join(map(repr, THRESHOLD_METHODS))
    raise ValueError(f"{name} must be one of {known}, or a function, got {method!r}")


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
        A name in ``THRESHOLD_METHODS``, or a function that is called as ``method(y, score, alpha)``.
    y, score, alpha
        As for `significance_threshold`.
    n_bootstrap, random_state
        As for `significance_threshold`; other rules have no such option.

    Returns
    -------
    threshold : float
        What the rule says.
    curve : ThresholdCurve
        The events at every cut.

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
    return as_threshold(f"the threshold from method {method!r}", threshold), curve


def median_threshold(
    events: ScoredEvents,
    cells: ScoreCells,
    alpha: float,
    rule: Callable[[Any, Any, float], int],
    n_bootstrap: int,
    random_state: Any,
) -> float:
    """Return the curve's threshold at the median, over bootstrap resamples, of their thresholds.

    ``rule`` returns the number of the cut, from the selected On and Off events at every cut, and alpha.

    Weights are keyed by the number of an event, so that they depend neither on the order of equal scores nor on
    where events are.
    """
    seed = np.uint64(as_random_state(random_state).randint(2**31 - 1))
    keys = np.array([derive_key(seed, i) for i in range(n_bootstrap)], dtype=np.uint64)
    kept = np.arange(len(cells.low))
    if len(kept) > _MAX_RESAMPLED_CUTS:
        kept = np.linspace(0, len(kept) - 1, _MAX_RESAMPLED_CUTS).astype(np.intp)
    cuts = cells.low[kept]
    best = np.empty(n_bootstrap)
    for i, counts in enumerate(events.resampled(cuts, keys)):
        n_off, n_on = (selected_sums(column, np.arange(len(cuts))) for column in counts.T)
        n_all = n_on + n_off
        cut = rule(n_on, n_off, alpha)
        # midway between the scores that the resample has on either side of the cut
        same = int(np.searchsorted(-n_all, -n_all[cut]))
        low = cuts[same - 1] if same > 0 else -np.inf
        high = cuts[cut] if cut < len(cuts) else np.inf
        best[i] = high if np.isinf(high) else 0.5 * low + 0.5 * high
    cut = int(np.searchsorted(cells.low, np.sort(best)[(n_bootstrap - 1) // 2], side="right"))
    # resamples may show an excess that the events themselves do not have
    if cells.n_on[cut:].sum() <= alpha * cells.n_off[cut:].sum():
        return float("inf")
    return float(midway_thresholds(cells.low, cells.high)[cut])


@dataclass(frozen=True)
class OutOfBagRule:
    """What an ensemble's parameters say about its threshold."""

    given: Any  # the parameter `threshold`
    rule: Callable[..., float] | None  # the rule it names; None where it is the threshold itself
    tolerance: float  # of the rule of largest significance, as `n_bootstrap` is
    n_bootstrap: int

    def __call__(
        self, on: BoolArray, score: FloatArray, alpha: float, seed: int, weights: FloatArray | None = None
    ) -> tuple[float, ThresholdCurve]:
        """Return threshold and curve from who is On, scores (NaN for none), alpha, a seed, and weights if any."""
        scored = ~np.isnan(score)
        check_scored(int(on.sum()), int((~on).sum()), int((on & scored).sum()), int((~on & scored).sum()))
        if not scored.all():
            on, score = on[scored], score[scored]
            weights = None if weights is None else weights[scored]
        return self.tune(EventsInMemory(on, score, weights), alpha, seed)

    def tune(self, events: ScoredEvents, alpha: float, seed: int) -> tuple[float, ThresholdCurve]:
        """Return threshold and curve of events with scores, wherever they are."""
        cells = events.cells()
        curve = cells.curve(alpha)
        if self.rule is None:
            return as_threshold("threshold", self.given), curve
        choose = self._cut_rule()
        if choose is None:  # a rule that sees all scores in one place
            threshold = self.rule(*events.arrays(), alpha)
        elif self.n_bootstrap > 0:
            threshold = median_threshold(events, cells, alpha, choose, self.n_bootstrap, seed)
        else:
            threshold = float(curve.thresholds[choose(curve.n_on, curve.n_off, alpha)])
        return as_threshold(f"the threshold from {self.given!r}", threshold), curve

    @property
    def counts_weights(self) -> bool:
        """Whether events may have weights that are not whole numbers: all but rules that count events one by one."""
        return self.rule is None or self._cut_rule() is not None

    def _cut_rule(self) -> Callable[[Any, Any, float], int] | None:
        """Return the rule as one that needs no more than the counts at every cut, or None."""
        if self.rule is significance_threshold:
            return partial(_near_best, tolerance=self.tolerance)
        return _largest_f1 if self.rule is f1_threshold else None


def out_of_bag_rule(estimator: Any) -> OutOfBagRule:
    """Check the parameters ``threshold``, ``threshold_tolerance`` and ``n_threshold_bootstrap``; return their rule."""
    n_bootstrap = as_int("n_threshold_bootstrap", estimator.n_threshold_bootstrap, minimum=0)
    tolerance = as_scalar("threshold_tolerance", as_counts("threshold_tolerance", estimator.threshold_tolerance))
    given = estimator.threshold
    if isinstance(given, str) or callable(given):
        return OutOfBagRule(given, threshold_rule(given, name="threshold"), tolerance, n_bootstrap)
    return OutOfBagRule(as_threshold("threshold", given), None, tolerance, n_bootstrap)


def check_scored(n_on: int, n_off: int, n_on_scored: int, n_off_scored: int) -> None:
    """Raise ValueError unless On and Off events have out-of-bag scores."""
    if n_on_scored == 0 or n_off_scored == 0:
        raise ValueError(
            f"too few events for out-of-bag scores: of {n_on} On and {n_off} Off events, "
            f"{n_on_scored} and {n_off_scored} were left out of a bag; give more events or estimators"
        )
