"""A classifier whose threshold maximises significance; re-exports the curve, the rules and the assignment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedGroupKFold, check_cv, cross_val_predict
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d

from excess._checks import FloatArray, as_scalar_alpha, binary_classes, check_same_length
from excess.assignment import assign_cells
from excess.curve import ThresholdCurve, significance_curve
from excess.tuning import THRESHOLD_METHODS, significance_threshold, threshold_rule, tune_threshold

__all__ = [
    "THRESHOLD_METHODS",
    "SignificanceThresholdClassifier",
    "ThresholdCurve",
    "assign_cells",
    "significance_curve",
    "significance_threshold",
    "tune_threshold",
]


class SignificanceThresholdClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Any classifier, with the decision threshold at which a detection is most significant.

    The scores on which the threshold is tuned never come from a model that was trained on the same
    events: they are out-of-bag or out-of-fold scores, *pooled* over all events, so that one significance
    is maximised and not a mean over folds.

    Parameters
    ----------
    estimator : classifier
        With ``predict_proba`` or ``decision_function``. It is cloned; the given object stays as it is.
    alpha : float, default=1.0
        Exposure ratio On/Off, ``p_minus / (1 - p_minus)``.
    method : str or callable, default="significance"
        Threshold rule: ``"significance"``, ``"menon"``, ``"mithal"``, ``"yao"``, ``"default"``, or a
        function of ``(y, score, alpha)``.
    cv : int, splitter, iterable, "oob" or "prefit", default=5
        Where the tuning scores come from. A number of folds (stratified, and by group where ``groups``
        are given) or any splitter of scikit-learn that tests each event once; ``"oob"`` takes the
        out-of-bag scores of a bagging ensemble, at no further cost; ``"prefit"`` tunes a fitted
        ``estimator`` on the events given to ``fit``, which must be new to it.
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
        Significance of the tuning events at ``threshold_``: the value that was maximised, so not a result
        to quote. Cross-validate the whole for that.
    curve_ : ThresholdCurve
        The tuning events at every cut.
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
        alpha: float = 1.0,
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

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None, **fit_params: Any) -> Self:
        """Fit the classifier and tune its threshold.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_events, n_features)
            Events.
        y : array-like of shape (n_events,)
            Noisy labels of two classes; the larger one in sorted order is On.
        groups : array-like of shape (n_events,), default=None
            What must not be split between the folds, such as nights.
        **fit_params : dict
            Passed to the ``fit`` of the estimator, by metadata routing where that is enabled. A
            ``sample_weight`` reaches the estimator alone: the significance counts events.

        Returns
        -------
        self
        """
        alpha = as_scalar_alpha(self.alpha)
        threshold_rule(self.method)
        response = _response_method(self.estimator)
        X, y = indexable(X, y)
        labels = _check_binary_target(y)
        if fit_params.get("sample_weight") is not None:
            weighted = labels[np.asarray(fit_params["sample_weight"]) != 0]
            binary_classes(weighted, name="y where sample_weight is not 0")
        if groups is not None:
            check_same_length(y=labels, groups=np.asarray(groups))
        estimator_params, split_params = self._route(groups, fit_params)

        if isinstance(self.cv, str):
            if self.cv not in _TUNING_SCORES:
                raise ValueError(f"cv must be 'oob', 'prefit', a number or a splitter, got {self.cv!r}")
            if groups is not None:
                raise ValueError(
                    f"groups cannot be kept apart with cv={self.cv!r}; give cv a number of folds or a "
                    "splitter such as LeaveOneGroupOut(), or leave groups out"
                )
            self.estimator_, scores = _TUNING_SCORES[self.cv](
                self.estimator, X, labels, response, estimator_params
            )
        else:
            scores = _on_column(
                cross_val_predict(
                    self.estimator,
                    X,
                    labels,
                    cv=self._folds(X, labels, split_params),
                    method=response,
                    n_jobs=self.n_jobs,
                    params=estimator_params,
                )
            )
            self.estimator_ = clone(self.estimator).fit(X, labels, **estimator_params)

        self.classes_ = np.asarray(self.estimator_.classes_)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        scored = ~np.isnan(scores)
        if self.cv != "oob" and not np.isfinite(scores).all():
            raise ValueError(
                f"estimator gave scores that are not finite for {(~np.isfinite(scores)).sum()} of "
                f"{len(scores)} events"
            )
        tuning = labels[scored], scores[scored], alpha
        self.threshold_ = tune_threshold(
            self.method, *tuning, n_bootstrap=self.n_bootstrap, random_state=self.random_state
        )
        self.curve_ = significance_curve(*tuning)
        self.best_significance_ = float(self.curve_.significance[self.curve_.index_of(self.threshold_)])
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return On for the events whose score exceeds the threshold, Off for the others.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_events, n_features)
            Events.

        Returns
        -------
        ndarray of shape (n_events,)
            A class for each event.
        """
        check_is_fitted(self)
        score = _on_column(getattr(self.estimator_, _response_method(self.estimator_))(X))
        return self.classes_[(score > self.threshold_).astype(np.intp)]

    @available_if(lambda self: _delegate_has(self, "predict_proba"))
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the estimator's probabilities of Off and On, the noisy classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_events, n_features)
            Events.

        Returns
        -------
        ndarray of shape (n_events, 2)
            Probabilities of ``classes_``.
        """
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @available_if(lambda self: _delegate_has(self, "decision_function"))
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the estimator's decision function.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_events, n_features)
            Events.

        Returns
        -------
        ndarray of shape (n_events,)
            Larger means more signal-like.
        """
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return how metadata reach the estimator and the splitter.

        Returns
        -------
        MetadataRouter
            Routes from ``fit``.
        """
        router = MetadataRouter(owner=self).add(
            estimator=self.estimator,
            method_mapping=MethodMapping().add(caller="fit", callee="fit"),
        )
        # a number of folds takes groups, too
        splitter = StratifiedGroupKFold() if _is_fold_number(self.cv) else self.cv
        if hasattr(splitter, "split") and not isinstance(splitter, str):
            router.add(
                splitter=splitter,
                method_mapping=MethodMapping().add(caller="fit", callee="split"),
            )
        return router

    def __sklearn_tags__(self) -> Any:
        """Declare a binary classifier that takes the inputs which its estimator takes."""
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags

    def _folds(self, X: Any, labels: NDArray[Any], split_params: dict[str, Any]) -> list[Any]:
        """Return pairs of training and hold-out indices."""
        if _is_fold_number(self.cv) and "groups" in split_params:
            splitter = StratifiedGroupKFold(n_splits=5 if self.cv is None else self.cv)
        else:
            splitter = check_cv(self.cv, labels, classifier=True)
        try:
            folds = list(splitter.split(X, labels, **split_params))
        except ValueError as error:
            if "groups" in split_params or "groups" not in str(error):
                raise
            raise ValueError(f"groups must be given to fit: cv={self.cv!r} needs them") from error
        times_held_out = np.bincount(
            np.concatenate([held_out for _, held_out in folds]), minlength=len(labels)
        )
        if (times_held_out != 1).any():
            raise ValueError(f"cv must test every event exactly once, which {self.cv!r} does not")
        return folds

    def _route(
        self, groups: ArrayLike | None, fit_params: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters of the estimator's ``fit`` and of the splitter's ``split``."""
        given = {} if groups is None else {"groups": groups}
        if not get_config()["enable_metadata_routing"]:
            return fit_params, given
        routed = process_routing(self, "fit", **given, **fit_params)
        split_params = routed.splitter.split if "splitter" in routed else {}
        return dict(routed.estimator.fit), dict(split_params)


def _response_method(estimator: Any) -> str:
    for name in ("predict_proba", "decision_function"):
        if hasattr(estimator, name):
            return name
    raise TypeError(
        f"estimator must score events with predict_proba or decision_function; "
        f"{type(estimator).__name__} has neither"
    )


def _delegate_has(meta: SignificanceThresholdClassifier, name: str) -> bool:
    getattr(getattr(meta, "estimator_", meta.estimator), name)
    return True


def _on_column(response: NDArray[Any]) -> FloatArray:
    """Return the On scores of what ``predict_proba`` or ``decision_function`` gave."""
    response = np.asarray(response, dtype=np.float64)
    return response[:, 1] if response.ndim == 2 else response


def _is_fold_number(cv: Any) -> bool:
    return cv is None or (isinstance(cv, (int, np.integer)) and not isinstance(cv, bool))


def _check_binary_target(y: Any) -> NDArray[Any]:
    labels = column_or_1d(y, warn=True)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("y holds NaN or infinity; every event needs a label")
    check_classification_targets(labels)
    kind = type_of_target(labels, input_name="y")
    if kind != "binary":
        raise ValueError(f"Only binary classification is supported. The type of the target y is {kind}.")
    binary_classes(labels)
    return labels


def _out_of_bag_scores(
    estimator: Any, X: Any, y: NDArray[Any], response: str, fit_params: dict[str, Any]
) -> tuple[Any, FloatArray]:
    """Fit a bagging ensemble; NaN is the score of events that were in every bag."""
    model = clone(estimator)
    if not model.get_params().get("oob_score", True):
        model.set_params(oob_score=True)
    model.fit(X, y, **fit_params)
    if not hasattr(model, "oob_decision_function_"):
        raise ValueError(
            f"cv='oob' needs an ensemble with out-of-bag scores, such as a random forest; "
            f"{type(model).__name__} has none, so give cv a number of folds"
        )
    shares = np.asarray(model.oob_decision_function_, dtype=np.float64)
    # ensembles say "no score" by NaN or by a row of zeros
    return model, np.where(shares.sum(axis=1) > 0, shares[:, 1], np.nan)


def _prefit_scores(
    estimator: Any, X: Any, y: NDArray[Any], response: str, fit_params: dict[str, Any]
) -> tuple[Any, FloatArray]:
    """Score new events with the given estimator, which is not fitted again."""
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise NotFittedError("estimator must be fitted before it is used with cv='prefit'") from error
    if fit_params:
        raise ValueError(f"cv='prefit' fits nothing, so {', '.join(fit_params)} cannot be passed on")
    if not np.array_equal(estimator.classes_, binary_classes(y)):
        raise ValueError(
            f"y must hold the classes that estimator was fitted on, {list(estimator.classes_)}, "
            f"got {list(binary_classes(y))}"
        )
    return estimator, _on_column(getattr(estimator, response)(X))


_TUNING_SCORES: dict[str, Callable[..., tuple[Any, FloatArray]]] = {
    "oob": _out_of_bag_scores,
    "prefit": _prefit_scores,
}
