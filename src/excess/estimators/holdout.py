"""Scores of events by models that were not trained on them: out of fold, out of bag, or by a fitted model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, check_is_fitted, has_fit_parameter

from excess._core.checks import FloatArray, binary_classes
from excess.estimators.folds import make_folds


def check_classifier(estimator: Any, name: str = "estimator") -> None:
    """Raise TypeError for anything but an object that classifies; ``name`` says what it is."""
    if isinstance(estimator, type):
        raise TypeError(f"{name} must be an object, got the class {estimator.__name__}; add ()")
    if not hasattr(estimator, "__sklearn_tags__") or not is_classifier(estimator):
        raise TypeError(f"{name} must be a classifier, got {type(estimator).__name__}")


def takes_groups(estimator: Any, groups: NDArray[Any] | None) -> bool:
    """Say whether an estimator is to be fitted with these groups of its training events, which may be None.

    A threshold that is tuned on folds takes them. Other classifiers do if they ask for them, as scikit-learn's metadata
    routing has it: ``set_fit_request(groups=True)``.
    """
    if groups is None or not has_fit_parameter(estimator, "groups") or not (groups != groups[0]).any():
        return False  # a single group cannot be left out
    if hasattr(estimator, "cv"):
        # out of bag, or on a fitted estimator, there are no folds
        return not isinstance(_settle_cv(estimator.cv, getattr(estimator, "estimator", None)), str)
    return requests_groups(estimator)


def requests_groups(estimator: Any) -> bool:
    """Say whether an estimator asks for the groups of its training events."""
    return get_routing_for_object(estimator).fit.requests.get("groups") is True


def score_events(estimator: Any, X: Any) -> FloatArray:
    """Return the On scores of a fitted classifier."""
    response = np.asarray(getattr(estimator, score_method(estimator))(X), dtype=np.float64)
    return response[:, 1] if response.ndim == 2 else response


def score_method(estimator: Any) -> str:
    """Return the name of the method that scores events; TypeError if there is none."""
    for name in ("predict_proba", "decision_function"):
        if hasattr(estimator, name):
            return name
    raise TypeError(
        f"estimator must score events with predict_proba or decision_function; {type(estimator).__name__} has neither"
    )


def out_of_fold_scores(
    estimator: Any, X: Any, y: NDArray[Any], folds: list[Any], fit_params: dict[str, Any], n_jobs: int | None
) -> FloatArray:
    """Return the score of each event by a clone that was fitted on the other folds."""
    scores = np.empty(len(y))
    scored = Parallel(n_jobs=n_jobs)(delayed(_fit_and_score)(estimator, X, y, *fold, fit_params) for fold in folds)
    for (_, held_out), fold_scores in zip(folds, scored, strict=True):
        scores[held_out] = fold_scores
    return scores


def _fit_and_score(
    estimator: Any, X: Any, y: NDArray[Any], train: Any, held_out: Any, fit_params: dict[str, Any]
) -> FloatArray:
    """Fit a clone on the training part of a fold and score its hold-out part."""
    model, X_held_out = fit_part(estimator, X, y, train, held_out, fit_params)
    return score_events(model, X_held_out)


def fit_part(
    estimator: Any, X: Any, y: NDArray[Any], train: Any, held_out: Any, fit_params: dict[str, Any]
) -> tuple[Any, Any]:
    """Return a clone that was fitted on the training part of a fold, and the events of its hold-out part."""
    model = clone(estimator)
    X_train, y_train = _safe_split(model, X, y, train)
    X_held_out, _ = _safe_split(model, X, y, held_out, train)
    model.fit(X_train, y_train, **_check_method_params(X, fit_params, indices=train))
    return model, X_held_out


def out_of_bag_scores(estimator: Any, X: Any, y: NDArray[Any], fit_params: dict[str, Any]) -> tuple[Any, FloatArray]:
    """Fit a bagging ensemble; NaN is the score of events that were in every bag."""
    model = clone(estimator)
    if not model.get_params().get("oob_score", True):
        model.set_params(oob_score=True)
    try:
        model.fit(X, y, **fit_params)
    except ValueError as error:
        if "bootstrap" not in str(error):
            raise
        raise ValueError(f"cv='oob' needs an estimator that draws bootstrap samples: {error}") from error
    if not hasattr(model, "oob_decision_function_"):
        raise ValueError(
            f"cv='oob' needs an ensemble with out-of-bag scores, such as a random forest; "
            f"{type(model).__name__} has none, so give cv a number of folds"
        )
    shares = np.asarray(model.oob_decision_function_, dtype=np.float64)
    # ensembles say "no score" by NaN or by a row of zeros
    return model, np.where(shares.sum(axis=1) > 0, shares[:, 1], np.nan)


def has_out_of_bag_scores(estimator: Any) -> bool:
    """Say whether a classifier that is not fitted will have out-of-bag scores."""
    return getattr(estimator, "_has_out_of_bag_scores", False) or "oob_score" in estimator.get_params(deep=False)


def _settle_cv(cv: Any, learner: Any) -> Any:
    """Return where scores for tuning come from if ``cv`` is ``"auto"``; None as learner is a forest."""
    if not isinstance(cv, str) or cv != "auto":
        return cv
    return "oob" if learner is None or has_out_of_bag_scores(learner) else 5


def learn_and_score(
    estimator: Any,
    X: Any,
    labels: NDArray[Any],
    groups: NDArray[Any] | None,
    cv: Any,
    fit_params: dict[str, Any],
    n_jobs: int | None,
) -> tuple[Any, FloatArray]:
    """Return a clone fitted on all events, and scores by models that had not seen them, NaN for none.

    ``cv`` is ``"oob"``, a number of folds or a splitter; ``"auto"`` is out of bag where the estimator has such scores,
    else five folds.
    """
    cv = _settle_cv(cv, estimator)
    if isinstance(cv, str):
        if cv != "oob":
            raise ValueError(f"cv must be 'oob', a number or a splitter, got {cv!r}")
        if groups is not None:
            if not has_fit_parameter(estimator, "groups"):
                raise ValueError(
                    f"groups cannot be kept apart out of the bag of {type(estimator).__name__}; give cv a number of "
                    "folds or a splitter, or leave groups out"
                )
            fit_params = {**fit_params, "groups": groups}
        return out_of_bag_scores(estimator, X, labels, fit_params)
    folds = make_folds(cv, X, labels, {} if groups is None else {"groups": groups})
    scores = out_of_fold_scores(estimator, X, labels, folds, fit_params, n_jobs)
    return clone(estimator).fit(X, labels, **fit_params), scores


def _prefit_scores(estimator: Any, X: Any, y: NDArray[Any], fit_params: dict[str, Any]) -> tuple[Any, FloatArray]:
    """Score new events with the given estimator, which is not fitted again."""
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise NotFittedError(
            "estimator must be fitted before it is used with cv='prefit'. Where it was, it has been cloned since, as "
            "cross-validation does; wrap it in sklearn.frozen.FrozenEstimator to keep it fitted"
        ) from error
    if fit_params:
        raise ValueError(f"cv='prefit' fits nothing, so {', '.join(fit_params)} cannot be passed on")
    if not np.array_equal(estimator.classes_, binary_classes(y)):
        raise ValueError(
            f"y must hold the classes that estimator was fitted on, {estimator.classes_.tolist()}, "
            f"got {np.array(binary_classes(y)).tolist()}"
        )
    return estimator, score_events(estimator, X)


SCORE_SOURCES: dict[str, Callable[..., tuple[Any, FloatArray]]] = {"oob": out_of_bag_scores, "prefit": _prefit_scores}
