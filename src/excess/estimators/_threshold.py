"""Meta-classifiers: their base, a threshold that maximises significance, and the supervised reference."""

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from excess._utils import checks
from excess._utils.checks import BoolArray, FloatArray
from excess._utils.rng import sketch_rows
from excess.estimators import _base
from excess.estimators._base import OnOffMixin, store_parameters
from excess.estimators._boosting import BoostedClassifier
from excess.estimators._model_file import to_bytes
from excess.estimators._random_forest import OnOffForestClassifier
from excess.stats._thresholds import EventsInMemory, OutOfBagRule, out_of_bag_rule, threshold_rule, tune_threshold


class TrainingEvents(NamedTuple):
    """Validated arguments of ``fit``."""

    X: Any
    labels: NDArray[Any]
    classes: NDArray[Any]  # Off and On
    on: BoolArray
    groups: NDArray[Any] | None
    weights: FloatArray | None  # event weights; None if all are 1

    def fit_params(self, learner: Any) -> dict[str, FloatArray]:
        """Return additional arguments for the ``fit`` of a classifier: event weights, if supported."""
        name = _base.weight_parameter(learner)
        return {} if self.weights is None or name is None else {name: self.weights}

    def known(self, *scores: FloatArray) -> BoolArray:
        """Return True for events with all of these scores and a positive weight."""
        found = np.all([~np.isnan(own) for own in scores], axis=0)
        return found if self.weights is None else found & (self.weights > 0)

    def weights_of(self, chosen: BoolArray) -> FloatArray | None:
        """Return the weights of some events; None if all are 1."""
        return None if self.weights is None else self.weights[chosen]


class BaseMetaClassifier(OnOffMixin, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Base of classifiers that tune their parameter ``estimator``, a forest by default."""

    _weight_name = "sample_weight"
    _tags_inside: tuple[str, ...] = ("allow_nan",)  # supported inputs that depend on the estimator

    @property
    def _weight_parameter(self) -> str | None:  # type: ignore[override]
        return self._weight_name if self._rule().counts_weights else None

    def _rule(self) -> OutOfBagRule:
        """Return the rule for the threshold."""
        return out_of_bag_rule(self)

    def __sklearn_tags__(self) -> Any:
        """Declare a binary classifier that supports the inputs of its estimator."""
        tags = super().__sklearn_tags__()
        given = self.estimator
        inner = get_tags(OnOffForestClassifier() if given is None or isinstance(given, str) else given).input_tags
        for name in self._tags_inside:
            setattr(tags.input_tags, name, getattr(inner, name))
        return tags

    def _check_settings(self) -> tuple[float, OutOfBagRule, np.random.RandomState]:
        """Validate the common parameters; return exposure ratio, rule for the threshold, and random state."""
        return checks.as_scalar_alpha(self.alpha), self._rule(), checks.as_random_state(self.random_state)

    def _training_events(
        self, X: Any, y: ArrayLike, groups: ArrayLike | None, sample_weight: ArrayLike | None = None
    ) -> TrainingEvents:
        """Validate the arguments of ``fit``."""
        labels = checks.as_binary_target(y)
        checks.check_same_length(X=X, y=labels)
        X = self._validated(X, reset=True)
        known = _base.as_groups(groups, y=labels)
        classes = np.array(checks.binary_classes(labels))
        on = np.asarray(labels == classes[1])
        self.training_sketch_ = sketch_rows(X)
        return TrainingEvents(X, labels, classes, on, known, _base.counted_weights(sample_weight, on))

    def _validated(self, X: Any, *, reset: bool) -> Any:
        """Return events after setting or checking the feature attributes of scikit-learn; tables stay tables."""
        if hasattr(X, "columns"):
            validate_data(self, X, skip_check_array=True, reset=reset)
            return X
        return validate_data(self, X, dtype=np.float64, ensure_all_finite=self._finite, reset=reset)

    @property
    def _finite(self) -> bool | str:
        """Option of scikit-learn's checks for non-finite values."""
        return "allow-nan" if get_tags(self).input_tags.allow_nan else True

    def _learner(self, alpha: float, random: np.random.RandomState) -> Any:
        """Return the classifier to train, with exposure ratio and seed."""
        learner = OnOffForestClassifier(n_jobs=self.n_jobs) if self.estimator is None else self.estimator
        _base.check_classifier(learner)
        learner = _base.with_alpha(learner, alpha)
        if "random_state" in learner.get_params() and learner.random_state is None:
            learner.set_params(random_state=int(random.randint(2**31 - 1)))
        return learner

    def _learn(self, learner: Any, X: Any, events: TrainingEvents) -> tuple[Any, FloatArray]:
        """Return a fitted clone, and scores by models trained on other events."""
        split_params = {} if events.groups is None else {"groups": events.groups}
        return _base.learn_and_score(
            learner, X, events.labels, self.cv, events.fit_params(learner), split_params, self.n_jobs
        )


def column_number(what: str, column: Any, names: Any, n_columns: int) -> int:
    """Return the index of a column of X, given by its index or name."""
    if isinstance(column, str):
        if names is None:
            raise ValueError(f"{what} is {column!r}, but X has no names; pass a DataFrame, or an index")
        if column not in names:
            raise ValueError(f"{what} is {column!r}, which X does not have")
        return list(names).index(column)
    if checks.as_int(what, column, minimum=0) >= n_columns:
        raise ValueError(f"{what} is {column}, but X has {n_columns} columns, which are numbered from 0")
    return int(column)


def model_bytes(what: str, model: Any, instead: str = "") -> NDArray[np.uint8]:
    """Return a fitted model as bytes; raise TypeError with a description and a remedy if not possible."""
    try:
        stored = BoostedClassifier(model) if isinstance(model, HistGradientBoostingClassifier) else model
        return to_bytes(with_threads(stored, None, always=True))
    except TypeError as error:
        raise TypeError(f"{what} cannot be stored in a model file: {error}{instead}") from error


def with_threads(model: Any, n_jobs: int | None, *, always: bool = False) -> Any:
    """Return a model of this package with this number of threads, which do not change its scores; None keeps them."""
    if not isinstance(model, OnOffMixin) or (n_jobs is None and not always):
        return model
    known = model.get_params(deep=False)  # type: ignore[attr-defined]
    if known.get("n_jobs", n_jobs) == n_jobs:
        return model
    return copy(model).set_params(n_jobs=n_jobs)  # type: ignore[attr-defined]


def _delegates(name: str) -> Any:
    """Return a decorator of methods that exist if the estimator has one of that name."""
    return available_if(lambda self: getattr(getattr(self, "estimator_", self.estimator), name) is not None)


class SignificanceThresholdClassifier(BaseMetaClassifier):
    """Classifier with the decision threshold of maximum significance.

    The significance of out-of-bag or out-of-fold scores, *pooled* over all events, is maximised. ``predict_proba`` and
    ``decision_function`` are those of ``estimator_``.

    Parameters
    ----------
    estimator : classifier
        With ``predict_proba`` or ``decision_function``. It is cloned; the given object is not changed.
    alpha : float or None, default=None
        Exposure ratio On/Off, also of nested On/Off classifiers without one. `cross_val_detect` and `null_test` set it.
    method : str or callable, default="significance"
        Rule: ``"significance"``, ``"menon"``, ``"mithal"``, ``"yao"``, ``"default"``, or ``f(y, score, alpha)``.
    cv : int, splitter, iterable, "oob" or "prefit", default=5
        Source of the tuning scores: a number of folds (stratified and by group, at most one per group) or a splitter
        that tests each event once; ``"oob"``, the out-of-bag scores of a bagging ensemble; ``"prefit"``, a fitted
        ``estimator``, to which the events are new (wrapped in a ``FrozenEstimator`` for cross-validation).
    n_bootstrap : int, default=0
        Use the median threshold of this many resamples; see `significance_threshold`.
    n_jobs : int or None, default=None
        Number of folds fitted in parallel.
    random_state : int, RandomState instance or None, default=None
        Seed of the resamples.

    Attributes
    ----------
    estimator_ : classifier
        Fitted on all events; with ``cv="prefit"`` the given estimator.
    threshold_ : float
        An event is selected if its score exceeds the threshold.
    best_significance_ : float
        Significance of the tuning events at ``threshold_``; not a result to quote, because it was optimised on them.
    curve_ : ThresholdCurve
        Tuning events at every cut.
    calibration_ : SignalCalibration
        Signal probability as a function of the score, from these events.
    classes_, n_features_in_, feature_names_in_
        Off and On; number and names of the features, if available in ``estimator_``.

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

    _weight_name = "event_weight"
    _tags_inside = ("sparse", "allow_nan", "pairwise")

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
        store_parameters(self, locals())

    def _rule(self) -> OutOfBagRule:
        return OutOfBagRule(self.method, threshold_rule(self.method, self.n_bootstrap), 0.0, self.n_bootstrap)

    def _validated(self, X: Any, *, reset: bool) -> Any:
        return indexable(X)[0]  # validated by the estimator

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

        The larger of two labels in sorted order is On. ``groups``, such as nights, are not split between the folds.
        ``event_weight`` is the number of events represented by each event; the estimator uses it if it supports a
        ``sample_weight``, and ``method`` must be ``"significance"`` or ``"f1"``. Further parameters, including a
        ``sample_weight``, are passed to the ``fit`` of the estimator only, by metadata routing if enabled.
        """
        alpha, rule, _ = self._check_settings()
        _base.check_classifier(self.estimator)
        events = self._training_events(X, y, groups)
        named, prefit = isinstance(self.cv, str), isinstance(self.cv, str) and self.cv == "prefit"
        if named and self.cv not in ("oob", "prefit"):
            raise ValueError(f"cv must be 'oob', 'prefit', a number or a splitter, got {self.cv!r}")
        if named and events.groups is not None:
            remedy = "set cv to a number of folds or a splitter such as LeaveOneGroupOut(), or omit groups"
            raise ValueError(f"groups are not supported with cv={self.cv!r}; {remedy}")
        params, split_params = self._route(events.groups, fit_params)
        _check_weights(params.get("sample_weight"), events.labels)
        weights = None
        if event_weight is not None:
            if not rule.counts_weights:
                raise ValueError(f"event_weight requires method='significance' or 'f1', got {self.method!r}")
            weights = checks.as_counts("event_weight", checks.as_column("event_weight", event_weight))
            _check_weights(weights, events.labels, "event_weight")
            name = None if prefit else _base.weight_parameter(self.estimator)
            if name is not None:
                given = params.get(name)
                params = {**params, name: weights if given is None else weights * np.asarray(given, dtype=np.float64)}

        if prefit:
            estimator, scores = _base.prefit_scores(self.estimator, events.X, events.labels, params)
        else:
            learner = _base.with_alpha(self.estimator, alpha, only_missing=True)
            estimator, scores = _base.learn_and_score(
                learner, events.X, events.labels, self.cv, params, split_params, self.n_jobs
            )
        out_of_bag = named and not prefit
        scored = ~np.isnan(scores) if out_of_bag else np.isfinite(scores)
        if not out_of_bag and not scored.all():
            n_bad = np.count_nonzero(~scored)
            raise ValueError(f"estimator returned non-finite scores for {n_bad} of {len(scores)} events")
        if weights is None:
            options = {"n_bootstrap": self.n_bootstrap, "random_state": self.random_state}
            threshold, curve = tune_threshold(self.method, events.labels[scored], scores[scored], alpha, **options)
        else:
            scored &= weights > 0
            in_memory = EventsInMemory(events.on[scored], scores[scored], weights[scored], exact=True)
            threshold, curve = rule.tune(in_memory, alpha, self.random_state)

        # attributes are set only after everything has succeeded
        self.estimator_, self.threshold_, self.curve_ = estimator, threshold, curve
        self.calibration_ = _base.calibrate(curve)
        self.best_significance_ = max(self.tuned_counts_.significance, 0.0)
        self.classes_ = np.asarray(estimator.classes_)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))
            elif hasattr(self, name):
                delattr(self, name)
        return self

    @_delegates("predict_proba")
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the estimator's probabilities of Off and On, the noisy classes; shape (n_events, 2)."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @_delegates("decision_function")
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the estimator's decision function; shape (n_events,)."""
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the routing of metadata from ``fit`` to the estimator and the splitter."""
        router = MetadataRouter(owner=self).add(
            estimator=self.estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit")
        )
        # a number of folds supports groups as well
        splitter = StratifiedGroupKFold() if _base.is_fold_number(self.cv) else self.cv
        if hasattr(splitter, "split") and not isinstance(splitter, str):
            router.add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        return router

    def _route(self, groups: ArrayLike | None, fit_params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters of the estimator's ``fit`` and of the splitter's ``split``."""
        given = {} if groups is None else {"groups": groups}
        if not get_config()["enable_metadata_routing"]:
            return fit_params, given
        routed = process_routing(self, "fit", **given, **fit_params)
        return dict(routed.estimator.fit), dict(routed.splitter.split if "splitter" in routed else {})


def _check_weights(given: Any, labels: NDArray[Any], name: str = "sample_weight") -> None:
    if given is None:
        return
    weights = checks.as_column(name, given)
    checks.check_same_length(**{"y": labels, name: weights})
    if (weights != 0).any():
        checks.binary_classes(labels[weights != 0], name=f"y where {name} is not 0")


def supervised_reference(
    X: ArrayLike,
    y: ArrayLike,
    *,
    estimator: Any = None,
    alpha: float | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> SignificanceThresholdClassifier:
    """Train a classifier on simulations, with a threshold to be tuned on On and Off events (Eq. 3 of the paper).

    Parameters
    ----------
    X : array-like of shape (n_events, n_features)
        Simulated events, with the features of the On and Off events.
    y : array-like of shape (n_events,)
        True labels, with the same two classes as On and Off later; the larger one in sorted order is the signal.
    estimator : classifier or None, default=None
        By default the forest of the open Crab analysis: 200 trees of depth 15 by entropy. An On/Off classifier without
        ``alpha`` gets 1, because true labels have no exposure.
    alpha : float or None, default=None
        Exposure ratio On/Off, required by a later ``fit``; `cross_val_detect` sets it.
    n_jobs, random_state
        Number of cores and seed of the default forest.

    Returns
    -------
    SignificanceThresholdClassifier
        To be fitted on On and Off events, directly or in `cross_val_detect`; the inner classifier is not changed.

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
        checks.as_scalar_alpha(alpha)
    if estimator is None:
        estimator = RandomForestClassifier(
            200, criterion="entropy", max_depth=15, max_features="sqrt", n_jobs=n_jobs, random_state=random_state
        )
    _base.check_classifier(estimator)
    model = _base.with_alpha(estimator, 1.0, only_missing=True).fit(X, checks.as_binary_target(y))
    if isinstance(model, RandomForestClassifier):
        # threads sum the scores of trees in any order, so the last bits would differ between runs
        model.set_params(n_jobs=None)
    return SignificanceThresholdClassifier(FrozenEstimator(model), alpha, cv="prefit")


class ColumnScore(ClassifierMixin, BaseEstimator):
    """Classifier with a table column as score, such as the gammaness of another analysis; nothing is fitted."""

    needs_columns = True  # of references, which other models do not use

    def __init__(self, column: str) -> None:
        self.column = column
        self.classes_ = np.array([0, 1])

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Store the score unchanged."""
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Return the column."""
        return np.asarray(X[self.column], dtype=np.float64)


def column_baseline(column: str, *, random_state: Any = None) -> SignificanceThresholdClassifier:
    """Return a cut on a column of scores: only its threshold and its calibration depend on On and Off events."""
    return SignificanceThresholdClassifier(FrozenEstimator(ColumnScore(column)), cv="prefit", random_state=random_state)


def likelihood_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Score a fitted On/Off classifier by the likelihood of labels, for ``scoring`` in searches of scikit-learn.

    Parameters
    ----------
    estimator : On/Off classifier, or a pipeline or search that ends in one
        Fitted classifier.
    X, y : array-like of shape (n_events, n_features) and of shape (n_events,)
        New events, and their noisy labels.
    sample_weight : array-like of shape (n_events,), default=None
        Weights of events.

    Returns
    -------
    float
        Mean log-likelihood ratio per event, relative to no signal; see ``OnOffForestClassifier.score``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> from excess import OnOffForestClassifier, likelihood_scorer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = (X[:, 0] > 1) | (rng.random(1000) < 1 / 6)
    >>> forest = OnOffForestClassifier(20, alpha=1 / 5, random_state=0)
    >>> search = GridSearchCV(forest, {"min_samples_leaf": [5, 400]}, scoring=likelihood_scorer, cv=3).fit(X, y)
    >>> search.best_params_
    {'min_samples_leaf': 5}
    """
    last = estimator
    while not isinstance(last, OnOffMixin):
        last = last.steps[-1][1] if hasattr(last, "steps") else getattr(last, "best_estimator_", None)
        if last is None:
            raise TypeError(f"estimator must be an On/Off classifier or end in one, got {type(estimator).__name__}")
    options = {} if sample_weight is None else {"sample_weight": sample_weight}
    return float(estimator.score(X, y, **options))
