"""Threshold rules by name: the one of largest significance, and its competitors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from excess._checks import (
    BoolArray,
    FloatArray,
    as_int,
    as_on_mask,
    as_scalar_alpha,
    as_scores,
    check_same_length,
)
from excess._sweep import midway_thresholds, selected_sums, sort_scores, strictest_argmax
from excess.baselines import BASELINES
from excess.curve import significance_curve
from excess.significance import significance_of_cuts

__all__ = ["THRESHOLD_METHODS", "significance_threshold", "threshold_rule", "tune_threshold"]


def significance_threshold(
    y: ArrayLike,
    score: ArrayLike,
    alpha: float,
    *,
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
    n_bootstrap : int, default=0
        With a positive number, return the median of the best thresholds of so many bootstrap resamples
        of the events, which varies less than the best threshold of the events themselves.
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
    if as_int("n_bootstrap", n_bootstrap, minimum=0) == 0:
        return significance_curve(y, score, alpha).best_threshold
    on, scores = as_on_mask(y), as_scores(score)
    check_same_length(y=on, score=scores)
    return _median_best_threshold(on, scores, as_scalar_alpha(alpha), n_bootstrap, random_state)


THRESHOLD_METHODS: dict[str, Callable[..., float]] = {
    "significance": significance_threshold,
    **BASELINES,
}
"""Every threshold rule by the name that estimators accept as ``method``."""


def tune_threshold(
    method: str | Callable[..., float],
    y: ArrayLike,
    score: ArrayLike,
    alpha: float,
    *,
    n_bootstrap: int = 0,
    random_state: Any = None,
) -> float:
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
    float
        The threshold.

    Examples
    --------
    >>> from excess.threshold import tune_threshold
    >>> tune_threshold("mithal", [0, 1, 0, 1, 1, 1], [0.1, 0.1, 0.2, 0.3, 0.8, 0.9], alpha=1.0)
    0.25
    """
    rule = threshold_rule(method)
    if rule is significance_threshold:
        return rule(y, score, alpha, n_bootstrap=n_bootstrap, random_state=random_state)
    if as_int("n_bootstrap", n_bootstrap, minimum=0) > 0:
        raise ValueError(f"n_bootstrap goes with method 'significance' only, got {method!r}")
    return float(rule(y, score, alpha))


def threshold_rule(method: Any) -> Callable[..., float]:
    """Return the rule of a name, or the function that was given instead."""
    if callable(method):
        return method
    if isinstance(method, str) and method in THRESHOLD_METHODS:
        return THRESHOLD_METHODS[method]
    known = ", ".join(map(repr, THRESHOLD_METHODS))
    raise ValueError(f"method must be one of {known}, or a function, got {method!r}")


def _median_best_threshold(
    on: BoolArray, scores: FloatArray, alpha: float, n_bootstrap: int, random_state: Any
) -> float:
    """Return the curve's threshold at the median, over bootstrap resamples, of their best thresholds."""
    rng = check_random_state(random_state)
    order, values, starts = sort_scores(scores)
    on = on[order]
    n = len(scores)
    best = np.empty(n_bootstrap)
    for i in range(n_bootstrap):
        weights = np.bincount(rng.randint(0, n, n), minlength=n)
        n_on = selected_sums(weights * on, starts)
        n_all = selected_sums(weights, starts)
        cut = strictest_argmax(significance_of_cuts(n_on, n_all - n_on, alpha))
        # midway between the scores that the resample has on either side of the cut
        same = int(np.searchsorted(-n_all, -n_all[cut]))
        low = values[same - 1] if same > 0 else -np.inf
        high = values[cut] if cut < len(values) else np.inf
        best[i] = high if np.isinf(high) else 0.5 * low + 0.5 * high
    median = np.sort(best)[(n_bootstrap - 1) // 2]
    cut = int(np.searchsorted(values, median, side="right"))
    return float(midway_thresholds(values)[cut])
