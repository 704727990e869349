"""The threshold of an ensemble, tuned on its out-of-bag scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from excess._core.checks import BoolArray, FloatArray, as_counts, as_int, as_scalar, as_threshold
from excess.stats.curve import ThresholdCurve
from excess.stats.score_cells import EventsInMemory, ScoredEvents
from excess.stats.sweep import strictest_near_best
from excess.stats.thresholds import median_threshold, significance_threshold, threshold_rule


@dataclass(frozen=True)
class OutOfBagRule:
    """What an ensemble's parameters say about its threshold."""

    given: Any  # the parameter `threshold`
    rule: Callable[..., float] | None  # the rule it names; None where it is the threshold itself
    tolerance: float  # of the rule of largest significance, as `n_bootstrap` is
    n_bootstrap: int

    def __call__(self, on: BoolArray, score: FloatArray, alpha: float, seed: int) -> tuple[float, ThresholdCurve]:
        """Return threshold and curve from who is On, scores (NaN for none), alpha and a seed."""
        scored = ~np.isnan(score)
        check_scored(int(on.sum()), int((~on).sum()), int((on & scored).sum()), int((~on & scored).sum()))
        if not scored.all():
            on, score = on[scored], score[scored]
        return self.tune(EventsInMemory(on, score), alpha, seed)

    def tune(self, events: ScoredEvents, alpha: float, seed: int) -> tuple[float, ThresholdCurve]:
        """Return threshold and curve of events with scores, wherever they are."""
        cells = events.cells()
        curve = cells.curve(alpha)
        if self.rule is None:
            return as_threshold("threshold", self.given), curve
        if self.rule is not significance_threshold:  # any other rule sees all scores in one place
            threshold = self.rule(*events.arrays(), alpha)
        elif self.n_bootstrap > 0:
            threshold = median_threshold(events, cells, alpha, self.tolerance, self.n_bootstrap, seed)
        else:
            threshold = float(curve.thresholds[strictest_near_best(curve.significance, self.tolerance)])
        return as_threshold(f"the threshold from {self.given!r}", threshold), curve


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
