"""Results of folds: a model is fitted on training events and predicts hold-out events; all folds give a detection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing

from excess._core.checks import BoolArray, FloatArray
from excess.estimators.base import ExposedEstimator, OnOffMixin
from excess.estimators.binned import OnOffBinnedClassifier, learner_of
from excess.estimators.calibration import SignalCalibration
from excess.estimators.holdout import fit_part, score_events, takes_groups
from excess.estimators.hybrid import OnOffHybridClassifier
from excess.estimators.score_bins import TunedBin
from excess.stats.counts import OnOffCounts
from excess.validation.detection import Detection
from excess.validation.detection_parts import Fold, Nearby
from excess.validation.onoff_events import OnOffEvents
from excess.validation.outcome import STATISTICS, Outcome, count_events, find_contrasts, find_likelihood

_LARGEST_PROBABILITY = 0.98
"""Bounds the probability of On that a classifier without a calibration may claim, and so the weight of one event."""

ThresholdRule = Callable[[NDArray[Any], FloatArray, float], float]
"""From labels and scores of the events to tune on, and alpha, to a threshold."""


class HoldoutPrediction(NamedTuple):
    """Scores, selection and signal ratios of some events by a model that has not seen them."""

    rows: NDArray[np.intp]
    score: FloatArray
    selected: BoolArray
    ratio: FloatArray | None


class FoldResult(NamedTuple):
    """What one model says about its hold-out events, and about events nearby."""

    n_train: int
    threshold: float
    tuned: OnOffCounts | None
    held_out: HoldoutPrediction
    nearby: HoldoutPrediction | None = None
    importances: FloatArray | None = None
    trust: Mapping[str, float] | None = None
    bins: tuple[TunedBin, ...] = ()


def fit_and_predict(
    exposed: ExposedEstimator,
    events: OnOffEvents,
    labels: NDArray[Any],
    train: NDArray[np.intp],
    held_out: NDArray[np.intp],
    nearby: NDArray[np.intp],
    rules: Sequence[ThresholdRule | None],
) -> list[FoldResult]:
    """Fit on the training part of a fold, predict its hold-out part and some of the nearby events; one result per rule.

    A rule for the threshold sees the training part alone: out-of-bag scores where the model has them, else the scores
    of the events that it was trained on. None keeps the selection of the model itself.
    """
    estimator, alpha, of_training = exposed
    groups = None if events.groups is None else events.groups[train]
    fit_params: dict[str, Any] = {"groups": events.blocks} if takes_groups(estimator, groups) else {}
    for name, values in of_training.items():
        fit_params[name] = np.zeros(len(labels))
        fit_params[name][train] = values
    model, X_held_out = fit_part(estimator, events.X, labels, train, held_out, fit_params)
    own = _predict_fold(model, X_held_out, held_out, len(train), events.on_class, alpha)
    if events.nearby is not None and len(nearby):
        X_nearby = _safe_indexing(events.nearby.X, nearby)
        own = own._replace(nearby=_predict(model, X_nearby, nearby, events.on_class, alpha))
    if all(rule is None for rule in rules):
        return [own for _ in rules]
    scores = _tuning_scores(model, _safe_indexing(events.X, train))
    known = ~np.isnan(scores)
    y, scores = labels[train][known], scores[known]
    return [own if rule is None else _apply_threshold(own, rule(y, scores, alpha)) for rule in rules]


def predict_new(model: Any, events: OnOffEvents) -> FoldResult:
    """Predict all events, nearby ones too, by a model that was fitted on others."""
    found = _predict_fold(model, events.X, np.arange(len(events.labels)), 0, events.on_class, None)
    if events.nearby is None:
        return found
    rows = np.arange(events.nearby.n_events)
    return found._replace(nearby=_predict(model, events.nearby.X, rows, events.on_class, None))


def _predict_fold(
    model: Any, X_held_out: Any, held_out: NDArray[np.intp], n_train: int, on_class: Any, alpha: float | None
) -> FoldResult:
    """Predict hold-out events by a model that was fitted with this exposure ratio; None if it is not known."""
    innermost = _innermost(model)
    learner = learner_of(innermost)
    return FoldResult(
        n_train=n_train,
        # the second is the name of scikit-learn's own tuners
        threshold=float(getattr(innermost, "threshold_", getattr(innermost, "best_threshold_", np.nan))),
        tuned=innermost.tuned_counts_ if isinstance(innermost, OnOffMixin) else None,
        held_out=_predict(model, X_held_out, held_out, on_class, alpha),
        importances=_importances(model, X_held_out),
        trust=learner.trust_ if isinstance(learner, OnOffHybridClassifier) else None,
        bins=innermost.bins_ if isinstance(innermost, OnOffBinnedClassifier) else (),
    )


def _predict(model: Any, X: Any, rows: NDArray[np.intp], on_class: Any, alpha: float | None) -> HoldoutPrediction:
    """Score and select events, and say how signal-like they are."""
    score = score_events(model, X)
    if not np.isfinite(score).all():
        n_bad = np.count_nonzero(~np.isfinite(score))
        raise ValueError(f"estimator gave scores that are not finite for {n_bad} of {len(score)} events")
    if isinstance(model, OnOffMixin):
        selected = score > model.threshold_  # what predict says, without scoring again
    else:
        selected = np.asarray(model.predict(X)) == on_class
    return HoldoutPrediction(rows, score, selected, _ratio(model, X, score, alpha))


def _ratio(model: Any, X: Any, score: FloatArray, alpha: float | None) -> FloatArray | None:
    """Return the signal ratios that follow from scores; None if these are no probabilities of a known background."""
    innermost = _innermost(model)
    if isinstance(innermost, OnOffBinnedClassifier):
        return innermost.calibration_of(_input_of_innermost(model, X)).ratio(score)
    calibration = getattr(innermost, "calibration_", None)
    if isinstance(calibration, SignalCalibration):
        return calibration.ratio(score)
    if alpha is None or not hasattr(model, "predict_proba"):
        return None
    probability = np.minimum(score, _LARGEST_PROBABILITY)
    excess = np.maximum(probability / (1 - probability) - alpha, 0.0)
    # the mean over all events, whose labels it does not use: folds must not differ by how much they found before
    mean = excess.mean() if len(excess) else 0.0
    return excess / mean if mean > 0 else np.ones(len(score))


def _tuning_scores(model: Any, X: Any) -> FloatArray:
    """Return scores of the training events: out of bag where the model has them, NaN for events in every bag."""
    # a frozen model was trained on other events, and so are its out-of-bag scores
    shares = None if isinstance(model, FrozenEstimator) else getattr(model, "oob_decision_function_", None)
    if shares is None:
        return score_events(model, X)
    # ensembles say "no score" by NaN or by a row of zeros
    return np.where(shares.sum(axis=1) > 0, shares[:, 1], np.nan)


def _apply_threshold(own: FoldResult, threshold: float) -> FoldResult:
    """Replace the selection of a model by that of another threshold."""
    selected = own.held_out.score > threshold
    return own._replace(threshold=threshold, tuned=None, held_out=own.held_out._replace(selected=selected))


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


def _innermost(model: Any) -> Any:
    """Return the classifier at the end of pipelines and searches."""
    while True:
        if hasattr(model, "steps"):
            model = model.steps[-1][1]
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        else:
            return model


def _input_of_innermost(model: Any, X: Any) -> Any:
    """Return events as the classifier at the end of pipelines and searches sees them."""
    while True:
        if hasattr(model, "steps"):
            X, model = (model[:-1].transform(X) if len(model.steps) > 1 else X), model.steps[-1][1]
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        else:
            return X


class FoldResults(NamedTuple):
    """One cross-validation of one estimator: all folds, and what follows by each statistic."""

    folds: list[FoldResult]
    significances: dict[str, float]
    contrasts: dict[str, float]

    @classmethod
    def of(cls, folds: list[FoldResult], on: BoolArray, alpha: FloatArray | float) -> FoldResults:
        """Judge the events of all folds together."""
        joined = _join(folds, len(on), alpha)
        judged = joined.fold >= 0
        counts = count_events(on, joined.selected, alpha)
        outcome = Outcome(counts, find_likelihood(on, joined.ratio, judged, alpha), "cut")
        contrasts = find_contrasts(on, joined.selected, joined.ratio, judged, alpha)
        return cls(folds, outcome.significances, contrasts)

    def without_events(self) -> FoldResults:
        """Return the statistics alone, which is all that is wanted of a permutation."""
        return self._replace(folds=[])


class _JoinedFolds(NamedTuple):
    """What all folds say about all events."""

    score: FloatArray
    selected: BoolArray
    ratio: FloatArray | None
    fold: NDArray[np.int64]


def _join(folds: list[FoldResult], n_events: int, alpha: FloatArray | float) -> _JoinedFolds:
    """Put the events of all folds together.

    A run with a larger exposure ratio has more signal for each Off event, and so have its ratios.
    """
    score, selected, fold = np.full(n_events, np.nan), np.zeros(n_events, dtype=np.bool_), np.full(n_events, -1)
    ratio = np.full(n_events, np.nan)
    for number, result in enumerate(folds):
        rows = result.held_out.rows
        score[rows], selected[rows], fold[rows] = result.held_out.score, result.held_out.selected, number
        if result.held_out.ratio is not None:
            ratio[rows] = result.held_out.ratio
    known = all(result.held_out.ratio is not None for result in folds)
    if isinstance(alpha, np.ndarray):
        ratio *= alpha / alpha.mean()
    return _JoinedFolds(score, selected, ratio if known else None, fold)


def make_detection(
    events: OnOffEvents,
    runs: list[FoldResults],
    n_repeats: int,
    strategy: str,
    statistic: str,
    required_significance: float,
) -> Detection:
    """Put the runs of one estimator together: repetitions first, then those of each permutation."""
    significances, contrasts = (
        {name: np.array([getattr(run, what)[name] for run in runs]).reshape(-1, n_repeats) for name in STATISTICS}
        for what in ("significances", "contrasts")
    )
    if np.isnan(significances[statistic]).any():
        raise ValueError(
            "statistic='likelihood' needs a classifier that says how signal-like an event is; wrap this one in "
            "SignificanceThresholdClassifier, or declare statistic='cut'"
        )
    median = np.argsort(significances[statistic], axis=1, kind="stable")[:, (n_repeats - 1) // 2]
    results = runs[median[0]].folds
    on = events.on
    joined = _join(results, len(on), events.alpha)
    folds = []
    for number, result in enumerate(results):
        own = joined.fold == number
        held_out = count_events(on, joined.selected & own, events.alpha)
        likelihood = find_likelihood(on, joined.ratio, own, events.alpha)
        significance = float("nan") if likelihood is None else likelihood.significance
        n_held_out = len(result.held_out.rows)
        own_fold = Fold(
            result.n_train,
            n_held_out,
            result.threshold,
            result.tuned,
            held_out,
            significance,
            result.trust,
            result.bins,
        )
        folds.append(own_fold)
    importances = [result.importances for result in results if result.importances is not None]
    return Detection(
        on=on,
        **joined._asdict(),
        groups=events.groups,
        observations=events.observations,
        folds=tuple(folds),
        alpha=events.mean_alpha(events.labels),
        strategy=strategy,
        statistic=statistic,
        repeats={name: values[0] for name, values in significances.items()},
        permutations={
            name: np.take_along_axis(values, median[:, None], axis=1)[1:, 0] for name, values in contrasts.items()
        },
        event_alpha=events.alpha if isinstance(events.alpha, np.ndarray) else None,
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
