"""The supervised reference: the field's forest on simulated events, with a threshold tuned on On and Off events."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator

from excess._core.checks import as_binary_target, as_scalar_alpha
from excess.estimators.base import with_alpha
from excess.estimators.holdout import check_classifier
from excess.estimators.threshold import SignificanceThresholdClassifier

__all__ = ["supervised_reference"]


def supervised_reference(
    X: ArrayLike,
    y: ArrayLike,
    *,
    estimator: Any = None,
    alpha: float | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> SignificanceThresholdClassifier:
    """Train a classifier on simulated events; what is returned only tunes its threshold on On and Off events.

    That is the usual method of the field (Eq. 3 of the paper), with which learning from On and Off labels is compared.

    Parameters
    ----------
    X : array-like of shape (n_events, n_features)
        Simulated events, with the features of the On and Off events.
    y : array-like of shape (n_events,)
        True labels; the larger of the two classes in sorted order is the signal. They must be the two classes by which
        On and Off events are labelled later, such as 0 and 1.
    estimator : classifier or None, default=None
        Any classifier. By default the forest of the open Crab analysis: 200 trees of depth 15 by entropy. An On/Off
        classifier without ``alpha`` gets 1: true labels have no exposure, and its own threshold is not used.
    alpha : float or None, default=None
        Exposure ratio On/Off, for the threshold; simulated events have none. `cross_val_detect` sets it, and ``fit`` of
        what is returned needs it.
    n_jobs : int or None, default=None
        Cores for the default forest.
    random_state : int, RandomState instance or None, default=None
        Seed of the default forest.

    Returns
    -------
    SignificanceThresholdClassifier
        To be fitted on On and Off events, alone or in `cross_val_detect`; the classifier inside stays as it is.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from excess import count_selected, inject_label_noise, supervised_reference
    >>> X, truth = make_classification(6000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(truth, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> tree = DecisionTreeClassifier(max_depth=4, random_state=0)
    >>> reference = supervised_reference(X[:2000], truth[:2000], estimator=tree, alpha=1 / 5)
    >>> reference = reference.fit(X[2000:4000], on[2000:4000])
    >>> print(count_selected(on[4000:], reference.predict(X[4000:]), alpha=1 / 5))
    On 178, Off 35, alpha 0.2: excess 171.0 +- 13.4, 21.5 sigma
    """
    if alpha is not None:
        as_scalar_alpha(alpha)
    if estimator is None:
        estimator = RandomForestClassifier(
            200, criterion="entropy", max_depth=15, max_features="sqrt", n_jobs=n_jobs, random_state=random_state
        )
    check_classifier(estimator)
    model = with_alpha(estimator, 1.0, only_missing=True).fit(X, as_binary_target(y))
    if isinstance(model, RandomForestClassifier):
        # threads add up the trees' scores in any order, so that the last bits would differ from run to run
        model.set_params(n_jobs=None)
    return SignificanceThresholdClassifier(FrozenEstimator(model), alpha, cv="prefit")
