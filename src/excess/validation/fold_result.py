"""One fold: a model is fitted on its training events and judges its hold-out events."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, has_fit_parameter

from excess._core.checks import BoolArray, FloatArray
from excess.estimators.base import OnOffMixin
from excess.estimators.holdout import fit_part, score_events
from excess.stats.significance import OnOffCounts


class Unlabelled(NamedTuple):
    """Events that are judged like hold-out events, but neither trained on nor counted."""

    X: Any
    groups: NDArray[Any] | None

    @property
    def n_events(self) -> int:
        """Number of events."""
        return _num_samples(self.X)


class Events(NamedTuple):
    """Events as all models share them."""

    X: Any
    labels: NDArray[Any]
    on_class: Any
    groups: NDArray[Any] | None
    nearby: Unlabelled | None = None

    def rows_nearby(self, held_out: NDArray[np.intp], number: int, n_shares: int) -> NDArray[np.intp]:
        """Return the nearby events that a fold judges: those of its groups, or its share where there are no groups."""
        if self.nearby is None:
            return np.empty(0, dtype=np.intp)
        if self.groups is None or self.nearby.groups is None:
            return np.arange(number, self.nearby.n_events, n_shares)
        return np.flatnonzero(np.isin(self.nearby.groups, np.unique(self.groups[held_out])))


class Judged(NamedTuple):
    """What a model says about some events."""

    rows: NDArray[np.intp]
    score: FloatArray
    selected: BoolArray


class Judgement(NamedTuple):
    """How one model does on its hold-out events; of a permutation, counts alone."""

    n_train: int
    n_held_out: int
    threshold: float
    tuned: OnOffCounts | None
    n_on: int
    n_selected: int
    n_on_in_all: int
    held_out: Judged | None = None
    nearby: Judged | None = None
    importances: FloatArray | None = None


def judge(
    estimator: Any,
    events: Events,
    labels: NDArray[Any],
    train: NDArray[np.intp],
    held_out: NDArray[np.intp],
    nearby: NDArray[np.intp],
    *,
    counts_only: bool,
) -> Judgement:
    """Fit on the training part of a fold and judge its hold-out part, and some of the nearby events."""
    fit_params = {"groups": events.groups} if _takes_groups(estimator, events.groups, train) else {}
    model, X_held_out = fit_part(estimator, events.X, labels, train, held_out, fit_params)
    found = _judgement(model, X_held_out, labels, events.on_class, held_out, len(train), counts_only)
    if counts_only or events.nearby is None or len(nearby) == 0:
        return found
    return found._replace(nearby=_judged(model, _safe_indexing(events.nearby.X, nearby), nearby, events.on_class))


def judge_with(model: Any, events: Events) -> Judgement:
    """Judge all events, nearby ones too, by a model that was fitted on others."""
    found = _judgement(model, events.X, events.labels, events.on_class, np.arange(len(events.labels)), 0, False)
    if events.nearby is None:
        return found
    rows = np.arange(events.nearby.n_events)
    return found._replace(nearby=_judged(model, events.nearby.X, rows, events.on_class))


def _judgement(
    model: Any,
    X_held_out: Any,
    labels: NDArray[Any],
    on_class: Any,
    held_out: NDArray[np.intp],
    n_train: int,
    counts_only: bool,
) -> Judgement:
    """Judge hold-out events by a fitted model."""
    judged = None
    if counts_only:
        selected = np.asarray(model.predict(X_held_out)) == on_class
    else:
        judged = _judged(model, X_held_out, held_out, on_class)
        selected = judged.selected
    on = labels[held_out] == on_class
    innermost = _innermost(model)
    return Judgement(
        n_train=n_train,
        n_held_out=len(held_out),
        threshold=float(getattr(innermost, "threshold_", np.nan)),
        tuned=innermost.tuned_counts_ if isinstance(innermost, OnOffMixin) else None,
        n_on=int(np.count_nonzero(selected & on)),
        n_selected=int(np.count_nonzero(selected)),
        n_on_in_all=int(np.count_nonzero(on)),
        held_out=judged,
        importances=None if counts_only else _importances(model, X_held_out),
    )


def _judged(model: Any, X: Any, rows: NDArray[np.intp], on_class: Any) -> Judged:
    """Score and select events."""
    score = score_events(model, X)
    if not np.isfinite(score).all():
        n_bad = np.count_nonzero(~np.isfinite(score))
        raise ValueError(f"estimator gave scores that are not finite for {n_bad} of {len(score)} events")
    if isinstance(model, OnOffMixin):
        selected = score > model.threshold_  # what predict says, without scoring again
    else:
        selected = np.asarray(model.predict(X)) == on_class
    return Judged(rows, score, selected)


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
