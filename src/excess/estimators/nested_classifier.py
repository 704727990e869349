"""Base of the classifiers that tune what another one learns, and the events that they are trained on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import validate_data

from excess._core.checks import BoolArray, FloatArray, as_binary_target, binary_classes, check_event_numbers
from excess.estimators.base import OnOffMixin, weight_parameter
from excess.estimators.event_weights import as_groups, counted_weights
from excess.estimators.forest import OnOffForestClassifier
from excess.stats.thresholds import out_of_bag_rule


class TrainingEvents(NamedTuple):
    """What ``fit`` is given, after checks."""

    X: Any
    labels: NDArray[Any]
    classes: NDArray[Any]  # Off and On
    on: BoolArray
    groups: NDArray[Any] | None
    weights: FloatArray | None  # the number of events that each stands for; None where all stand for one

    def fit_params(self, learner: Any) -> dict[str, FloatArray]:
        """Return what the ``fit`` of a learner takes besides events and labels: their weights, if it counts them."""
        name = weight_parameter(learner)
        return {} if self.weights is None or name is None else {name: self.weights}

    def known(self, *scores: FloatArray) -> BoolArray:
        """Return True for events that have all of these scores, and a weight."""
        found = np.all([~np.isnan(own) for own in scores], axis=0)
        return found if self.weights is None else found & (self.weights > 0)

    def weights_of(self, chosen: BoolArray) -> FloatArray | None:
        """Return the weights of some events; None where all stand for one."""
        return None if self.weights is None else self.weights[chosen]


class BaseNestedClassifier(OnOffMixin, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Base of classifiers that have a parameter ``estimator``, by default a forest, and the threshold of a forest."""

    estimator: Any

    @property
    def _weight_parameter(self) -> str | None:  # type: ignore[override]
        return "sample_weight" if out_of_bag_rule(self).counts_weights else None

    def __sklearn_tags__(self) -> Any:
        """Declare a binary classifier that takes the inputs which its estimator takes."""
        tags = super().__sklearn_tags__()
        learner = OnOffForestClassifier() if self.estimator is None else self.estimator
        tags.input_tags.allow_nan = get_tags(learner).input_tags.allow_nan
        return tags

    def _training_events(
        self, X: Any, y: ArrayLike, groups: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> TrainingEvents:
        """Check what ``fit`` is given."""
        labels = as_binary_target(y)
        check_event_numbers(X, y=labels)
        X = self._validated(X, reset=True)
        known = as_groups(groups, labels)
        classes = np.array(binary_classes(labels))
        on = np.asarray(labels == classes[1])
        return TrainingEvents(X, labels, classes, on, known, counted_weights(sample_weight, on))

    def _validated(self, X: Any, *, reset: bool) -> Any:
        """Return events once what scikit-learn expects about features is set or checked; tables stay tables."""
        if hasattr(X, "columns"):
            validate_data(self, X, skip_check_array=True, reset=reset)
            return X
        return validate_data(self, X, dtype=np.float64, ensure_all_finite=self._finite, reset=reset)

    @property
    def _finite(self) -> bool | str:
        """What scikit-learn's checks say about values that are not finite."""
        return "allow-nan" if get_tags(self).input_tags.allow_nan else True
