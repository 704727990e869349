"""A classifier whose threshold maximises the significance of a detection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from excess._core.checks import (
    FloatArray,
    as_binary_target,
    as_column,
    as_counts,
    as_random_state,
    as_scalar_alpha,
    binary_classes,
    check_event_numbers,
    check_same_length,
)
from excess.estimators.base import OnOffMixin, weight_parameter, with_alpha
from excess.estimators.calibration import calibrate
from excess.estimators.event_weights import as_groups
from excess.estimators.folds import is_fold_number, make_folds
from excess.estimators.holdout import SCORE_SOURCES, check_classifier, out_of_fold_scores
from excess.stats.score_cells import EventsInMemory
from excess.stats.thresholds import OutOfBagRule, threshold_rule, tune_threshold

__all__ = ["SignificanceThresholdClassifier"]


class SignificanceThresholdClassifier(OnOffMixin, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Any classifier, with the decision threshold at which a detection is most significant.

    The scores on which the threshold is tuned never come from a model that was trained on the same
    events: they are out-of-bag or out-of-fold scores, *pooled* over all events, so that one significance
    is maximised and not a mean over folds.

    Parameters
    ----------
    estimator : classifier
        With ``predict_proba`` or ``decision_function``. It is cloned; the given object stays as it is.
    alpha : float or None, default=None
        Exposure ratio On/Off, ``p_minus / (1 - p_minus)``. ``fit`` needs it; `cross_val_detect` and `null_test` set it.
        On/Off classifiers inside of ``estimator`` that have none get it, too.
    method : str or callable, default="significance"
        Threshold rule: ``"significance"``, ``"menon"``, ``"mithal"``, ``"yao"``, ``"default"``, or a
        function of ``(y, score, alpha)``.
    cv : int, splitter, iterable, "oob" or "prefit", default=5
        Where the tuning scores come from. A number of folds (stratified, and by group where ``groups`` are given, then
        no more than there are groups) or any splitter of scikit-learn that tests each event once; ``"oob"`` takes the
        out-of-bag scores of a bagging ensemble, at no further cost; ``"prefit"`` tunes a fitted ``estimator`` on the
        events given to ``fit``, which must be new to it (to cross-validate that, wrap the estimator in
        ``sklearn.frozen.FrozenEstimator``, because clones are not fitted).
    n_bootstrap : int, default=0
        Take the median threshold over so many resamples; see `significance_threshold`.
    n_jobs : int or None, default=None
        Folds that are fitted at the same time.
    random_state : int, RandomState instance or None, default=None
        Seed of the resamples.

    Attributes
    ----------
    estimator_ : classifier
        Fitted on all events; with ``cv="prefit"`` the given estimator.
    threshold_ : float
        An event is selected when its score exceeds it.
    best_significance_ : float
        Significance of the tuning events at ``threshold_``. The threshold was chosen on these very events, so
        this is not a result to quote; cross-validate the whole for that.
    curve_ : ThresholdCurve
        The tuning events at every cut.
    calibration_ : SignalCalibration
        What a score says about signal, from these events; ``signal_ratio`` and ``predict_signal_proba`` use it.
    classes_ : ndarray of shape (2,)
        Off and On.
    n_features_in_ : int
        Number of features; only if ``estimator_`` knows it.
    feature_names_in_ : ndarray of str
        Names of the features; only if ``estimator_`` knows them.

    See Also
    --------
    significance_threshold : The rule itself, for scores at hand.

    Notes
    -----
    ``predict_proba`` and ``decision_function`` are those of ``estimator_``: they score the noisy class and
    do not move with the threshold.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from excess import SignificanceThresholdClassifier, inject_label_noise
    >>> X, y = make_classification(2000, weights=[0.9], class_sep=2.0, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.1, p_minus=0.5, random_state=0)
    >>> model = SignificanceThresholdClassifier(LogisticRegression(), alpha=1.0).fit(X, on)
    >>> print(model.curve_.at(model.threshold_))
    On 182, Off 16, alpha 1: excess 166.0 +- 14.1, 12.8 sigma
    >>> selected = model.predict(X) == 1
    >>> print(selected[y == 1].mean().round(2), selected[y == 0].mean().round(2))
    0.9... 0.0...
    """

    def __init__(
        self,
        estimator: Any,
        alpha: float | None = None,
        *,
        method: str | Callable[..., float] = "significance",
        cv: Any = 5,
        n_bootstrap: int = 0,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.method = method
        self.cv = cv
        self.n_bootstrap = n_bootstrap
        self.n_jobs = n_jobs
        self.random_state = random_state

    @property
    def _weight_parameter(self) -> str | None:  # type: ignore[override]
        return "event_weight" if self._rule().counts_weights else None

    def _rule(self) -> OutOfBagRule:
        """Return the rule for the threshold, as one that may count weights."""
        return OutOfBagRule(self.method, threshold_rule(self.method, self.n_bootstrap), 0.0, self.n_bootstrap)

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        event_weight: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the classifier and tune its threshold.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_events, n_features)
            Events.
        y : array-like of shape (n_events,)
            Noisy labels of two classes; the larger one in sorted order is On.
        groups : array-like of shape (n_events,), default=None
            What must not be split between the folds, such as nights.
        event_weight : array-like of shape (n_events,), default=None
            The number of events that each event stands for. Threshold, curve and calibration count them, and so does
            the estimator if its ``fit`` takes a ``sample_weight``. ``method`` must be ``"significance"`` or ``"f1"``.
        **fit_params : dict
            Passed to the ``fit`` of the estimator, by metadata routing where that is enabled. A
            ``sample_weight`` reaches the estimator alone: the significance counts events, or their ``event_weight``.

        Returns
        -------
        self
        """
        alpha = as_scalar_alpha(self.alpha)
        rule = self._rule()
        as_random_state(self.random_state)
        check_classifier(self.estimator)
        labels = as_binary_target(y)
        check_event_numbers(X, y=labels)
        X = indexable(X)[0]
        groups = as_groups(groups, labels)
        named = isinstance(self.cv, str)
        if named and self.cv not in SCORE_SOURCES:
            raise ValueError(f"cv must be 'oob', 'prefit', a number or a splitter, got {self.cv!r}")
        if named and groups is not None:
            raise ValueError(
                f"groups cannot be kept apart with cv={self.cv!r}; give cv a number of folds or a splitter such as "
                "LeaveOneGroupOut(), or leave groups out"
            )
        estimator_params, split_params = self._route(groups, fit_params)
        _check_weights(estimator_params.get("sample_weight"), labels)
        weights = None
        if event_weight is not None:
            if not rule.counts_weights:
                raise ValueError(
                    f"event_weight goes with method='significance' or 'f1' only, got {self.method!r}, which counts "
                    "events"
                )
            weights = as_counts("event_weight", as_column("event_weight", event_weight))
            _check_weights(weights, labels, "event_weight")
            estimator_params = self._with_weights(estimator_params, weights)

        learner = self.estimator if self.cv == "prefit" else with_alpha(self.estimator, alpha, only_missing=True)
        if named:
            estimator, scores = SCORE_SOURCES[self.cv](learner, X, labels, estimator_params)
        else:
            folds = make_folds(self.cv, X, labels, split_params)
            scores = out_of_fold_scores(learner, X, labels, folds, estimator_params, self.n_jobs)
            estimator = clone(learner).fit(X, labels, **estimator_params)

        scored = ~np.isnan(scores) if self.cv == "oob" else np.isfinite(scores)
        if self.cv != "oob" and not scored.all():
            n_bad = np.count_nonzero(~scored)
            raise ValueError(f"estimator gave scores that are not finite for {n_bad} of {len(scores)} events")
        if weights is None:
            options = {"n_bootstrap": self.n_bootstrap, "random_state": self.random_state}
            threshold, curve = tune_threshold(self.method, labels[scored], scores[scored], alpha, **options)
        else:
            on = np.asarray(labels == binary_classes(labels)[1])
            scored &= weights > 0
            events = EventsInMemory(on[scored], scores[scored], weights[scored], exact=True)
            threshold, curve = rule.tune(events, alpha, self.random_state)

        # nothing is set before all has succeeded
        self.estimator_, self.threshold_, self.curve_ = estimator, threshold, curve
        self.calibration_ = calibrate(curve)
        self.best_significance_ = max(self.tuned_counts_.significance, 0.0)
        self.classes_ = np.asarray(estimator.classes_)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))
            elif hasattr(self, name):
                delattr(self, name)
        return self

    @available_if(lambda self: _delegate_has(self, "predict_proba"))
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the estimator's probabilities of Off and On, the noisy classes; shape (n_events, 2)."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @available_if(lambda self: _delegate_has(self, "decision_function"))
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the estimator's decision function; shape (n_events,)."""
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return how metadata reach the estimator and the splitter from ``fit``."""
        router = MetadataRouter(owner=self).add(
            estimator=self.estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit")
        )
        # a number of folds takes groups, too
        splitter = StratifiedGroupKFold() if is_fold_number(self.cv) else self.cv
        if hasattr(splitter, "split") and not isinstance(splitter, str):
            router.add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        return router

    def __sklearn_tags__(self) -> Any:
        """Declare a binary classifier that takes the inputs which its estimator takes."""
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).input_tags
        for name in ("sparse", "allow_nan", "pairwise"):
            setattr(tags.input_tags, name, getattr(inner, name))
        return tags

    def _with_weights(self, params: dict[str, Any], weights: FloatArray) -> dict[str, Any]:
        """Return the parameters of the estimator's ``fit`` with weights of events, if it takes any."""
        name = None if self.cv == "prefit" else weight_parameter(self.estimator)
        if name is None:
            return params
        given = params.get(name)
        return {**params, name: weights if given is None else weights * np.asarray(given, dtype=np.float64)}

    def _route(self, groups: ArrayLike | None, fit_params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters of the estimator's ``fit`` and of the splitter's ``split``."""
        given = {} if groups is None else {"groups": groups}
        if not get_config()["enable_metadata_routing"]:
            return fit_params, given
        routed = process_routing(self, "fit", **given, **fit_params)
        return dict(routed.estimator.fit), dict(routed.splitter.split if "splitter" in routed else {})


def _delegate_has(meta: SignificanceThresholdClassifier, name: str) -> bool:
    getattr(getattr(meta, "estimator_", meta.estimator), name)
    return True


def _check_weights(given: Any, labels: NDArray[Any], name: str = "sample_weight") -> None:
    if given is None:
        return
    weights = as_column(name, given)
    check_same_length(**{"y": labels, name: weights})
    if (weights != 0).any():
        binary_classes(labels[weights != 0], name=f"y where {name} is not 0")
