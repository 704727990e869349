"""The threshold of an ensemble, tuned on its out-of-bag scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from excess._checks import BoolArray, FloatArray, as_counts, as_int, as_scalar, as_threshold
from excess.curve import ThresholdCurve, significance_curve
from excess.tuning import significance_threshold, threshold_rule

OutOfBagRule = Callable[[BoolArray, FloatArray, float, int], tuple[float, ThresholdCurve]]
"""From who is On, scores (NaN for none), alpha and a seed to a threshold and the curve it lies on."""


def out_of_bag_rule(estimator: Any) -> OutOfBagRule:
    """Check the parameters ``threshold``, ``threshold_tolerance`` and ``n_threshold_bootstrap``; return their rule."""
    n_bootstrap = as_int("n_threshold_bootstrap", estimator.n_threshold_bootstrap, minimum=0)
    tolerance = as_scalar("threshold_tolerance", as_counts("threshold_tolerance", estimator.threshold_tolerance))
    given = estimator.threshold
    fixed = None if isinstance(given, str) or callable(given) else as_threshold("threshold", given)
    rule = threshold_rule(given, name="threshold") if fixed is None else None

    def tuned(on: BoolArray, score: FloatArray, alpha: float, seed: int) -> tuple[float, ThresholdCurve]:
        _check_scored(on, score)
        scored = ~np.isnan(score)
        y, scores = on[scored], score[scored]
        curve = significance_curve(y, scores, alpha)
        if rule is None:
            assert fixed is not None
            return fixed, curve
        options: dict[str, Any] = {}
        if rule is significance_threshold:
            options = {"tolerance": tolerance, "n_bootstrap": n_bootstrap, "random_state": seed}
        return as_threshold(f"the threshold from {given!r}", rule(y, scores, alpha, **options)), curve

    return tuned


def _check_scored(on: BoolArray, score: FloatArray) -> None:
    """Raise ValueError unless On and Off events have out-of-bag scores."""
    scored = ~np.isnan(score)
    if on[scored].all() or not on[scored].any():
        raise ValueError(
            f"too few events for out-of-bag scores: of {on.sum()} On and {(~on).sum()} Off events, "
            f"{(on & scored).sum()} and {(~on & scored).sum()} were left out of a bag; "
            "give more events or estimators"
        )
