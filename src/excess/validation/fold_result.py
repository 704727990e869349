"""Results of folds: a model is fitted on training events and predicts hold-out events; all folds give a detection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from excess._core.checks import BoolArray, FloatArray
from excess.estimators.base import OnOffMixin
from excess.estimators.holdout import fit_part, score_events
from excess.stats.significance import OnOffCounts
from excess.validation.detection import Detection, Fold, Nearby, contrast
from excess.validation.onoff_events import OnOffEvents

ThresholdRule = Callable[[NDArray[Any], FloatArray, float], float]
"""From labels and scores of the events to tune on, and alpha, to a threshold."""


class HoldoutPrediction(NamedTuple):
    """Scores and selection of some events by a model that has not seen them."""

    rows: NDArray[np.intp]
    score: FloatArray
    selected: BoolArray


class FoldResult(NamedTuple):
    """What one model selects among its hold-out events; of a permutation, counts alone."""

    n_train: int
    n_held_out: int
    threshold: float
    tuned: OnOffCounts | None
    n_on: int
    n_selected: int
    n_on_in_all: int
    held_out: HoldoutPrediction | None = None
    nearby: HoldoutPrediction | None = None
    importances: FloatArray | None = None


def fit_and_predict(
    estimator: Any,
    events: OnOffEvents,
    labels: NDArray[Any],
    train: NDArray[np.intp],
    held_out: NDArray[np.intp],
    nearby: NDArray[np.intp],
    rules: Sequence[ThresholdRule | None],
    alpha: float,
    *,
    counts_only: bool,
) -> list[FoldResult]:
    """Fit on the training part of a fold, predict its hold-out part and some of the nearby events; one result per rule.

    A rule for the threshold sees the training part alone: out-of-bag scores where the model has them, else the scores
    of the events that it was trained on. None keeps the selection of the model itself.
    """
    fit_params = {"groups": events.groups} if _takes_groups(estimator, events.groups, train) else {}
    model, X_held_out = fit_part(estimator, events.X, labels, train, held_out, fit_params)
    own = _predict_fold(model, X_held_out, labels, events.on_class, held_out, len(train), counts_only)
    if not counts_only and events.nearby is not None and len(nearby):
        X_nearby = _safe_indexing(events.nearby.X, nearby)
        own = own._replace(nearby=_predict(model, X_nearby, nearby, events.on_class))
    if all(rule is None for rule in rules):
        return [own for _ in rules]
    scores = _tuning_scores(model, _safe_indexing(events.X, train))
    known = ~np.isnan(scores)
    on, y, scores = labels[held_out] == events.on_class, labels[train][known], scores[known]
    return [own if rule is None else _apply_threshold(own, rule(y, scores, alpha), on) for rule in rules]


def predict_new(model: Any, events: OnOffEvents) -> FoldResult:
    """Predict all events, nearby ones too, by a model that was fitted on others."""
    found = _predict_fold(model, events.X, events.labels, events.on_class, np.arange(len(events.labels)), 0, False)
    if events.nearby is None:
        return found
    rows = np.arange(events.nearby.n_events)
    return found._replace(nearby=_predict(model, events.nearby.X, rows, events.on_class))


def _predict_fold(
    model: Any,
    X_held_out: Any,
    labels: NDArray[Any],
    on_class: Any,
    held_out: NDArray[np.intp],
    n_train: int,
    counts_only: bool,
) -> FoldResult:
    """Predict hold-out events by a fitted model."""
    prediction = None
    if counts_only:
        selected = np.asarray(model.predict(X_held_out)) == on_class
    else:
        prediction = _predict(model, X_held_out, held_out, on_class)
        selected = prediction.selected
    on = labels[held_out] == on_class
    innermost = _innermost(model)
    return FoldResult(
        n_train=n_train,
        n_held_out=len(held_out),
        threshold=float(getattr(innermost, "threshold_", np.nan)),
        tuned=innermost.tuned_counts_ if isinstance(innermost, OnOffMixin) else None,
        n_on=int(np.count_nonzero(selected & on)),
        n_selected=int(np.count_nonzero(selected)),
        n_on_in_all=int(np.count_nonzero(on)),
        held_out=prediction,
        importances=None if counts_only else _importances(model, X_held_out),
    )


def _predict(model: Any, X: Any, rows: NDArray[np.intp], on_class: Any) -> HoldoutPrediction:
    """Score and select events."""
    score = score_events(model, X)
    if not np.isfinite(score).all():
        n_bad = np.count_nonzero(~np.isfinite(score))
        raise ValueError(f"estimator gave scores that are not finite for {n_bad} of {len(score)} events")
    if isinstance(model, OnOffMixin):
        selected = score > model.threshold_  # what predict says, without scoring again
    else:
        selected = np.asarray(model.predict(X)) == on_class
    return HoldoutPrediction(rows, score, selected)


def _tuning_scores(model: Any, X: Any) -> FloatArray:
    """Return scores of the training events: out of bag where the model has them, NaN for events in every bag."""
    # a frozen model was trained on other events, and so are its out-of-bag scores
    shares = None if isinstance(model, FrozenEstimator) else getattr(model, "oob_decision_function_", None)
    if shares is None:
        return score_events(model, X)
    # ensembles say "no score" by NaN or by a row of zeros
    return np.where(shares.sum(axis=1) > 0, shares[:, 1], np.nan)


def _apply_threshold(own: FoldResult, threshold: float, on: BoolArray) -> FoldResult:
    """Replace the selection of a model by that of another threshold."""
    if own.held_out is None:
        raise ValueError("another threshold needs the scores of the hold-out events")
    selected = own.held_out.score > threshold
    return own._replace(
        threshold=threshold,
        tuned=None,
        n_on=int(np.count_nonzero(selected & on)),
        n_selected=int(np.count_nonzero(selected)),
        held_out=own.held_out._replace(selected=selected),
    )


def _importances(model: Any, X: Any) -> FloatArray | None:
    """Return what a model, or the classifier inside it, says about the importance of each feature of X."""
    while model is not None:
        model = _innermost(model)
        found = getattr(model, "feature_importances_", None)
        if found is not None:
            # after a step that makes other features, these are not those of X
            return np.asarray(found, dtype=np.float64) if np.shape(found) == np.shape(X)[1:] else None
        model = getattr(model, "estimator_", getattr(model, "estimator", None))
    return None


def _takes_groups(estimator: Any, groups: Any, train: NDArray[np.intp]) -> bool:
    """Say whether the threshold of an estimator can be tuned by group on these training events."""
    if groups is None or not has_fit_parameter(estimator, "groups"):
        return False
    # out-of-bag scores and fitted estimators know of no groups, and say so; a single group cannot be left out
    return not isinstance(getattr(estimator, "cv", None), str) and bool((groups[train] != groups[train[0]]).any())


def _innermost(model: Any) -> Any:
    """Return the classifier at the end of pipelines and searches."""
    while True:
        if hasattr(model, "steps"):
            model = model.steps[-1][1]
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        else:
            return model


class FoldResults(NamedTuple):
    """One cross-validation of one estimator."""

    folds: list[FoldResult]
    significance: float
    contrast: float

    @classmethod
    def of(cls, folds: list[FoldResult], alpha: float) -> FoldResults:
        """Count the selected events of all folds together."""
        n_on, n_selected, n_on_in_all, n_all = (
            sum(getattr(fold, name) for fold in folds) for name in ("n_on", "n_selected", "n_on_in_all", "n_held_out")
        )
        selected = OnOffCounts(n_on, n_selected - n_on, alpha)
        everything = OnOffCounts(n_on_in_all, n_all - n_on_in_all, alpha)
        return cls(folds, selected.significance, contrast(selected, everything))


def make_detection(
    events: OnOffEvents,
    runs: list[FoldResults],
    n_repeats: int,
    alpha: float,
    strategy: str,
    required_significance: float,
) -> Detection:
    """Put the runs of one estimator together: repetitions first, then those of each permutation."""
    significances = np.array([run.significance for run in runs]).reshape(-1, n_repeats)
    median = np.argsort(significances, axis=1, kind="stable")[:, (n_repeats - 1) // 2]
    contrasts = np.array([run.contrast for run in runs]).reshape(-1, n_repeats)
    results = runs[median[0]].folds
    n = len(events.labels)
    score, selected, fold = np.full(n, np.nan), np.zeros(n, dtype=np.bool_), np.full(n, -1)
    folds = []
    for number, result in enumerate(results):
        if result.held_out is not None:
            rows = result.held_out.rows
            score[rows], selected[rows], fold[rows] = result.held_out.score, result.held_out.selected, number
        held_out = OnOffCounts(result.n_on, result.n_selected - result.n_on, alpha)
        folds.append(Fold(result.n_train, result.n_held_out, result.threshold, result.tuned, held_out))
    importances = [result.importances for result in results if result.importances is not None]
    return Detection(
        on=np.asarray(events.labels == events.on_class),
        score=score,
        selected=selected,
        fold=fold,
        groups=events.groups,
        folds=tuple(folds),
        alpha=alpha,
        strategy=strategy,
        significances=significances[0],
        permuted_contrasts=np.take_along_axis(contrasts, median[:, None], axis=1)[1:, 0],
        required_significance=required_significance,
        nearby=_nearby(events, results),
        importances=np.mean(importances, axis=0) if importances else None,
        feature_names=tuple(map(str, events.X.columns)) if hasattr(events.X, "columns") else None,
    )


def _nearby(events: OnOffEvents, results: list[FoldResult]) -> Nearby | None:
    """Put the nearby events of all folds together; those of no fold have no score."""
    if events.nearby is None:
        return None
    n = events.nearby.n_events
    score, selected = np.full(n, np.nan), np.zeros(n, dtype=np.bool_)
    for result in results:
        if result.nearby is not None:
            rows = result.nearby.rows
            score[rows], selected[rows] = result.nearby.score, result.nearby.selected
    return Nearby(score, selected)
