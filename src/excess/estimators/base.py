"""Base classes of the classifiers of On and Off events, and what their parameters alpha and n_jobs mean."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from excess._core.checks import FloatArray
from excess.estimators.holdout import score_events
from excess.estimators.model_file import save as save_model
from excess.stats.curve import ThresholdCurve
from excess.stats.significance import OnOffCounts


class OnOffMixin:
    """Mixin of classifiers whose parameter ``alpha`` is the exposure ratio On/Off, and no other classifier's."""

    threshold_: float
    curve_: ThresholdCurve
    classes_: NDArray[Any]

    @property
    def tuned_counts_(self) -> OnOffCounts:
        """Counts of the selected events among those that the threshold was tuned on; not a result to quote."""
        return self.curve_.at(self.threshold_)

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Write the fitted model to a file that holds no code.

        Parameters
        ----------
        path : str or path-like
            The file; one that exists is replaced.
        metadata : mapping or None, default=None
            What else to keep with the model, such as units or training groups; see `excess.estimators.model_file.save`.
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

    def __sklearn_tags__(self) -> Any:
        """Declare a binary classifier."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.classifier_tags.multi_class = False
        return tags


class BaseOnOffClassifier(OnOffMixin, ClassifierMixin, BaseEstimator):
    """Base of the classifiers that learn from On and Off events themselves and score an event from 0 to 1."""

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

    @abstractmethod
    def _score(self, X: ArrayLike) -> FloatArray:
        """Return the scores of events."""


def with_alpha(estimator: Any, alpha: float) -> Any:
    """Return a clone in which every On/Off classifier, however deep, has this exposure ratio."""
    copy = clone(estimator)
    parameters = copy.get_params(deep=True)
    frozen = tuple(f"{name}__" for name, value in parameters.items() if isinstance(value, FrozenEstimator))
    nested = {"": copy, **{f"{name}__": value for name, value in parameters.items() if not name.startswith(frozen)}}
    if isinstance(copy, FrozenEstimator):
        return copy
    return copy.set_params(**{f"{name}alpha": alpha for name, value in nested.items() if isinstance(value, OnOffMixin)})
