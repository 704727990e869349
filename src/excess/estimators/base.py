"""Base classes of the classifiers of On and Off events, and what their parameters alpha and n_jobs mean."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from excess._core.checks import BoolArray, FloatArray, as_binary_target, binary_classes
from excess.estimators.calibration import SignalCalibration
from excess.estimators.event_weights import ExposureRatios
from excess.estimators.holdout import score_events
from excess.estimators.model_file import save as save_model
from excess.stats.counts import OnOffCounts
from excess.stats.curve import ThresholdCurve


class OnOffMixin:
    """Mixin of classifiers whose parameter ``alpha`` is the exposure ratio On/Off, and no other classifier's."""

    threshold_: float
    curve_: ThresholdCurve
    calibration_: SignalCalibration
    classes_: NDArray[Any]
    has_own_threshold = True  # which is tuned; `cross_val_detect` tunes that of classifiers without
    _in_state: tuple[str, ...] = ()  # parameters that a model file keeps in the estimator's state
    _has_out_of_bag_scores = False
    _weight_parameter: str | None = None  # of fit, for the number of events that each event stands for

    @property
    def tuned_counts_(self) -> OnOffCounts:
        """Counts of the selected events among those that the threshold was tuned on; not a result to quote."""
        return self.curve_.at(self.threshold_)

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Write the fitted model to a file that holds no code; `load` reads it.

        Parameters
        ----------
        path : str or path-like
            The file. One that exists is replaced, at once and only when the new one is complete.
        metadata : mapping or None, default=None
            What else to keep with the model, such as units, training groups or the configuration of the analysis: text
            as keys; text, finite numbers, bools, None, lists and further mappings as values.

        Raises
        ------
        ModelFileError
            If the file cannot be written; one that was there before is left as it was.
        TypeError
            If the classifier wraps another one, a parameter is an object (a function as ``threshold``, a
            ``RandomState``), or metadata is not JSON.

        Notes
        -----
        The loaded model scores, selects and explains events to the same bits. It lacks ``oob_decision_function_``,
        which is as large as the training set; ``curve_`` is kept. The file does not say when it was written, so that
        the same fit with the same versions of the packages gives the same bytes; put a date into ``metadata`` if you
        want one. The parameters, ``n_jobs`` and ``verbose`` among them, are in the file as they are now.
        """
        save_model(self, path, metadata=metadata)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return On for the events whose score exceeds the threshold, Off for the others.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_events, n_features)
            Events; NaN and sparse matrices only where the classifier takes them.

        Returns
        -------
        ndarray of shape (n_events,)
            A class for each event.
        """
        check_is_fitted(self)
        return self.classes_[(score_events(self, X) > self.threshold_).astype(np.intp)]

    def signal_ratio(self, X: Any) -> FloatArray:
        """Return how signal-like events are: the density of signal over that of the background, both normalised to 1.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_events, n_features)
            Events.

        Returns
        -------
        ndarray of shape (n_events,)
            Finite, 0 or more; its mean over background events is about 1. With 1 for all events, nothing was learned.
            It is what `on_off_likelihood` takes, for events that the model has not seen.
        """
        check_is_fitted(self)
        return self.calibration_of(X).ratio(score_events(self, X))

    def predict_signal_proba(self, X: Any) -> FloatArray:
        """Return the probability that an event is signal, whatever its label.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_events, n_features)
            Events.

        Returns
        -------
        ndarray of shape (n_events,)
            Probabilities from 0 to 1 (below 1), where signal is as frequent as among the On and Off events of the
            training. They come from a monotone calibration of scores by models that had not seen the event
            (out of bag, or out of fold).
        """
        check_is_fitted(self)
        return self.calibration_of(X).signal_probability(score_events(self, X))

    def calibration_of(self, X: Any) -> SignalCalibration:
        """Return what the scores of these events say about signal; one calibration for all events, unless it says else.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_events, n_features)
            Events.

        Returns
        -------
        SignalCalibration
            With ``ratio(score)`` and ``signal_probability(score)`` for the scores of these events.
        """
        return self.calibration_

    def __sklearn_tags__(self) -> Any:
        """Declare a binary classifier."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.classifier_tags.multi_class = False
        return tags


class BaseOnOffClassifier(OnOffMixin, ClassifierMixin, BaseEstimator):
    """Base of the classifiers that learn from On and Off events themselves and score an event from 0 to 1."""

    _takes_missing = False

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from On and Off events, and choose the threshold.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events; NaN is a missing value for trees and forests, and an error for clusters.
        y : array-like of shape (n_events,)
            Noisy labels of two classes; the larger one in sorted order is On.

        Returns
        -------
        self
        """
        plan = self._plan()
        events, labels = self._validate(X, as_binary_target(y), ensure_min_samples=2)
        off, on = binary_classes(labels)
        self._fit(plan, events, np.asarray(labels == on))
        self.classes_ = np.array([off, on])
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the *noisy* classes, Off and On.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events; NaN is a missing value for trees and forests, and an error for clusters.

        Returns
        -------
        ndarray of shape (n_events, 2)
            The second column is the score: an estimate of P(On given x) with ``output="fraction"``, the mean vote of
            the members with ``output="assignment"``. Neither is the probability of signal.
        """
        score = self._score(X)
        return np.column_stack([1 - score, score])

    def __sklearn_tags__(self) -> Any:
        """Declare whether missing values are taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_missing
        return tags

    def _validate(self, *events: Any, **options: Any) -> Any:
        """Return X as floats, and y if it is given; set or check what scikit-learn expects about features."""
        finite = "allow-nan" if self._takes_missing else True
        return validate_data(self, *events, dtype=[np.float64, np.float32], ensure_all_finite=finite, **options)

    def _check_new_events(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return self._validate(X, reset=False)

    @abstractmethod
    def _plan(self) -> Any:
        """Check all parameters; return what they mean."""

    @abstractmethod
    def _fit(self, plan: Any, X: NDArray[Any], on: BoolArray) -> None:
        """Learn from events that have been checked."""

    @abstractmethod
    def _score(self, X: ArrayLike) -> FloatArray:
        """Return the scores of events."""


def with_alpha(estimator: Any, alpha: float, *, only_missing: bool = False) -> Any:
    """Return a clone in which every On/Off classifier, or every one without, however deep, has this exposure ratio."""
    copy = clone(estimator)
    parameters = copy.get_params(deep=True)
    frozen = tuple(f"{name}__" for name, value in parameters.items() if isinstance(value, FrozenEstimator))
    nested = {"": copy, **{f"{name}__": value for name, value in parameters.items() if not name.startswith(frozen)}}
    if isinstance(copy, FrozenEstimator):
        return copy
    set_in = [name for name, value in nested.items() if isinstance(value, OnOffMixin)]
    return copy.set_params(
        **{f"{name}alpha": alpha for name in set_in if not only_missing or parameters[f"{name}alpha"] is None}
    )


def weight_parameter(estimator: Any) -> str | None:
    """Return the parameter of ``fit`` for the number of events that each event stands for; None if there is none."""
    if isinstance(estimator, OnOffMixin):
        return estimator._weight_parameter
    if hasattr(estimator, "steps") and not get_config()["enable_metadata_routing"]:
        name, last = estimator.steps[-1]
        inner = weight_parameter(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


class ExposedEstimator(NamedTuple):
    """An estimator for events of known exposure ratios."""

    estimator: Any  # with its one exposure ratio
    alpha: float
    fit_params: dict[str, FloatArray]  # what its ``fit`` takes besides, so that one ratio is right for all events


def with_exposure(estimator: Any, on: BoolArray, alpha: FloatArray | float) -> ExposedEstimator:
    """Return a clone that learns from events with one exposure ratio for all, or one for each.

    Where ratios differ, the events of an estimator that counts weights are weighted, see `even_out_exposure`. Another
    one gets the mean ratio over the Off events.
    """
    if not isinstance(alpha, np.ndarray):
        return ExposedEstimator(with_alpha(estimator, alpha), alpha, {})
    ratios, name = ExposureRatios.of(on, alpha), weight_parameter(estimator)
    ratio = ratios.off_mean if name is None else ratios.common
    weights = {} if name is None or ratios.are_equal else {name: ratios.weights(on, alpha)}
    return ExposedEstimator(with_alpha(estimator, ratio), ratio, weights)
