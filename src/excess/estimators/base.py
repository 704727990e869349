"""What marks a classifier as one of On and Off events: its exposure ratio, its threshold, what it was tuned on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from excess._core.checks import FloatArray
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
        from excess.estimators.model_file import save  # here, because it imports all estimators

        save(self, path, metadata=metadata)

    def _select(self, score: FloatArray) -> NDArray[Any]:
        """Return On where a score exceeds the threshold, Off elsewhere."""
        return self.classes_[(score > self.threshold_).astype(np.intp)]

    def __sklearn_tags__(self) -> Any:
        """Declare a binary classifier."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.classifier_tags.multi_class = False
        return tags


def with_alpha(estimator: Any, alpha: float) -> Any:
    """Return a clone in which every On/Off classifier, however deep, has this exposure ratio."""
    copy = clone(estimator)
    parameters = copy.get_params(deep=True)
    frozen = tuple(f"{name}__" for name, value in parameters.items() if isinstance(value, FrozenEstimator))
    nested = {"": copy, **{f"{name}__": value for name, value in parameters.items() if not name.startswith(frozen)}}
    if isinstance(copy, FrozenEstimator):
        return copy
    return copy.set_params(**{f"{name}alpha": alpha for name, value in nested.items() if isinstance(value, OnOffMixin)})
