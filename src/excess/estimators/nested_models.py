"""Models inside of models: what they are before they are fitted, their bytes in a model file, and their threads."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess.estimators.base import OnOffMixin, with_alpha
from excess.estimators.forest import OnOffForestClassifier
from excess.estimators.holdout import check_classifier
from excess.estimators.model_file import to_bytes


def prepare_learner(estimator: Any, alpha: float, n_jobs: int | None, random: np.random.RandomState) -> Any:
    """Return the classifier that learns inside of another one, a forest by default, with exposure ratio and seed."""
    learner = OnOffForestClassifier(n_jobs=n_jobs) if estimator is None else estimator
    check_classifier(learner)
    learner = with_alpha(learner, alpha)
    if "random_state" in learner.get_params() and learner.random_state is None:
        learner.set_params(random_state=int(random.randint(2**31 - 1)))
    return learner


def nested_bytes(what: str, model: Any, instead: str = "") -> NDArray[np.uint8]:
    """Return a fitted model as bytes; TypeError, which says what it is and what to do instead, where that fails."""
    try:
        return to_bytes(with_threads(model, None, always=True))
    except TypeError as error:
        raise TypeError(f"{what} cannot be kept in a model file: {error}{instead}") from error


def with_threads(model: Any, n_jobs: int | None, *, always: bool = False) -> Any:
    """Return a model of ours with so many threads, which do not change its scores; None leaves them unless always."""
    if not isinstance(model, OnOffMixin) or (n_jobs is None and not always):
        return model
    known = model.get_params(deep=False)  # type: ignore[attr-defined]
    if known.get("n_jobs", n_jobs) == n_jobs:
        return model
    return copy(model).set_params(n_jobs=n_jobs)  # type: ignore[attr-defined]
