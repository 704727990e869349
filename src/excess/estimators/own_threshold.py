"""Thresholds of classifiers: whether one has its own, and one that is tuned where it has none."""

from __future__ import annotations

from typing import Any

from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.model_selection._search import BaseSearchCV

from excess.estimators.threshold import SignificanceThresholdClassifier

_DECIDED_INSIDE = (BaseSearchCV, RFE, FrozenEstimator)
"""Estimators whose ``predict`` is that of the classifier inside."""


def has_own_threshold(estimator: Any) -> bool:
    """Say whether a classifier selects events by a threshold that was meant, not by a probability of 0.5.

    That of On/Off classifiers is tuned, that of scikit-learn's ``FixedThresholdClassifier`` and
    ``TunedThresholdClassifierCV`` was asked for. Another class says so by an attribute ``has_own_threshold``.
    """
    while True:
        if hasattr(estimator, "steps"):
            estimator = estimator.steps[-1][1]
        elif isinstance(estimator, _DECIDED_INSIDE):
            estimator = estimator.estimator
        else:
            break
    known = (FixedThresholdClassifier, TunedThresholdClassifierCV)
    return isinstance(estimator, known) or bool(getattr(estimator, "has_own_threshold", False))


def with_tuned_threshold(estimator: Any) -> Any:
    """Return a classifier whose threshold is tuned by significance; the same one if it has a threshold of its own."""
    if has_own_threshold(estimator):
        return estimator
    # nothing is fitted in folds where nothing is fitted at all
    cv = "prefit" if isinstance(estimator, FrozenEstimator) else 5
    return SignificanceThresholdClassifier(estimator, cv=cv)
