"""The methods of the paper's tables: one registry, from an id to a model, a threshold rule and a name to show.

Methods that differ in their threshold alone share one fitted model and its scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from excess._core.checks import BoolArray, FloatArray
from excess.estimators.cluster import OnOffKMeansClassifier, OnOffKMeansEnsembleClassifier
from excess.estimators.forest import OnOffForestClassifier
from excess.estimators.holdout import score_events
from excess.estimators.tree import OnOffTreeClassifier
from excess.stats.thresholds import THRESHOLD_METHODS, significance_threshold

__all__ = ["METHODS", "MODELS", "Judged", "Method", "by_model", "judge_folds", "judge_scores"]

PAPER_FOREST: dict[str, Any] = {
    "n_estimators": 100,
    "min_samples_leaf": 1,
    "threshold_tolerance": 0.0,
    "n_threshold_bootstrap": 0,
}
"""What all of the paper's forests share: T = 100, no limit on leaves, the threshold of largest significance."""


@dataclass(frozen=True)
class Method:
    """One column or line of a table.

    Attributes
    ----------
    name : str
        As it is shown.
    model : str
        Which model scores the events; one of ``MODELS``.
    rule : str
        Which rule sets its threshold; one of ``RULES``.
    """

    name: str
    model: str
    rule: str


MODELS: dict[str, Callable[..., Any]] = {
    "k-means": lambda k: OnOffKMeansClassifier(k),
    "k-means-ensemble": lambda k: OnOffKMeansEnsembleClassifier(
        100, k, output="assignment", threshold_tolerance=0.0, n_threshold_bootstrap=0
    ),
    "li-ma-tree": lambda depth: OnOffTreeClassifier(criterion="li_ma", max_depth=depth, max_bins=None),
    "noisy-tree": lambda depth: OnOffTreeClassifier(criterion="information", max_depth=depth, max_bins=None),
    "li-ma-forest": lambda depth: OnOffForestClassifier(
        criterion="li_ma", output="assignment", max_depth=depth, **PAPER_FOREST
    ),
    "noisy-forest": lambda depth: OnOffForestClassifier(criterion="information", max_depth=depth, **PAPER_FOREST),
    "default-forest": lambda _: OnOffForestClassifier(),
    "default-k-means-ensemble": lambda _: OnOffKMeansEnsembleClassifier(),
    "supervised-tree": lambda _: OnOffTreeClassifier(criterion="information", max_depth=15),
    "supervised-forest": lambda _: OnOffForestClassifier(
        200, criterion="information", max_depth=15, min_samples_leaf=1, threshold=0.5
    ),
}
"""Makers of models by name, each called with the number of clusters or the depth that a table varies.

Single trees search every distinct value, as the paper says; forests search 255 bins. The supervised ones are trees and
forests by entropy with the depth and size of the open Crab analysis, on this package's core: on 240,000 events it takes
seconds where scikit-learn takes minutes, ten times over.
"""

METHODS: dict[str, Method] = {
    "li-ma-forest": Method("LiMa Forest", "li-ma-forest", "significance"),
    "noisy-forest": Method("Noisy Forest", "noisy-forest", "significance"),
    "menon-forest": Method("Menon Forest", "noisy-forest", "menon"),
    "mithal-forest": Method("Mithal Forest", "noisy-forest", "mithal"),
    "noisy-forest-near-best": Method("Noisy Forest, our threshold", "noisy-forest", "near-best"),
    "default-forest": Method("Our default forest", "default-forest", "own"),
    "default-k-means-ensemble": Method("Our default k-means ensemble", "default-k-means-ensemble", "own"),
    "k-means": Method("k-means", "k-means", "significance"),
    "li-ma-tree": Method("LiMa Tree", "li-ma-tree", "significance"),
    "noisy-tree": Method("Noisy Tree", "noisy-tree", "significance"),
    "menon-tree": Method("Menon Tree", "noisy-tree", "menon"),
    "mithal-tree": Method("Mithal Tree", "noisy-tree", "mithal"),
    "k-means-ensemble": Method("k-means ensemble", "k-means-ensemble", "significance"),
    "supervised-tree": Method("Supervised tree", "supervised-tree", "significance"),
    "supervised-forest": Method("Supervised forest", "supervised-forest", "significance"),
}
"""Methods by id."""

OUR_FOREST = OnOffForestClassifier().get_params()
"""Defaults of the package's own forest."""

Rule = Callable[[Any, BoolArray, FloatArray, float, int], float]


def _by_scores(rule: Callable[..., float]) -> Rule:
    return lambda fitted, on, score, alpha, seed: rule(on, score, alpha)


RULES: dict[str, Rule] = {
    **{name: _by_scores(rule) for name, rule in THRESHOLD_METHODS.items()},
    "near-best": lambda fitted, on, score, alpha, seed: significance_threshold(
        on,
        score,
        alpha,
        tolerance=OUR_FOREST["threshold_tolerance"],
        n_bootstrap=OUR_FOREST["n_threshold_bootstrap"],
        random_state=seed,
    ),
    "own": lambda fitted, on, score, alpha, seed: float(fitted.threshold_),
}
"""Rules by name, from a fitted model, labels and scores to tune on, alpha and a seed to a threshold: those of the
package, the forest's default on any scores (``near-best``), and what the model has chosen already (``own``)."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What a method says about hold-out events.

    Attributes
    ----------
    score : ndarray of shape (n_events,)
        By the model that has not seen the event.
    selected : ndarray of bool of shape (n_events,)
        True where the score exceeds the threshold of its fold.
    thresholds : ndarray of shape (n_folds,)
        Of each fold.
    """

    score: FloatArray
    selected: BoolArray
    thresholds: FloatArray


def judge_folds(
    model: Any,
    rules: Sequence[str],
    X: FloatArray,
    on: BoolArray,
    folds: Iterable[tuple[NDArray[np.intp], NDArray[np.intp]]],
    *,
    alpha: float,
    seed: int,
) -> dict[str, Judged]:
    """Judge every event by a model that has not seen it, by one or more threshold rules.

    The threshold is tuned on the training part of a fold alone: on out-of-bag scores where the model has them, else on
    the scores of the events that it was trained on, as the paper does for single trees and clusterings.

    Parameters
    ----------
    model : On/Off classifier
        Not fitted; it is cloned, with this ``alpha`` and this ``seed``.
    rules : sequence of str
        Names of ``RULES``.
    X : ndarray of shape (n_events, n_features)
        Events.
    on : ndarray of bool of shape (n_events,)
        Noisy labels.
    folds : iterable of pairs of ndarray
        Training and hold-out indices, which cover all events.
    alpha : float
        Exposure ratio On/Off.
    seed : int
        Seed of the model, and of rules that have one.

    Returns
    -------
    dict of str to Judged
        By rule.
    """
    parts = []
    for train, held_out in folds:
        fitted = clone(model).set_params(alpha=alpha, random_state=seed).fit(X[train], on[train])
        parts.append((fitted, train, _tuning_scores(fitted, X[train]), held_out, score_events(fitted, X[held_out])))
    return _judged(parts, rules, on, alpha, seed)


def judge_scores(
    score: FloatArray,
    rules: Sequence[str],
    on: BoolArray,
    folds: Iterable[tuple[NDArray[np.intp], NDArray[np.intp]]],
    *,
    alpha: float,
    seed: int,
) -> dict[str, Judged]:
    """Judge events by the scores of a model that was trained elsewhere: only thresholds are tuned, as in `judge_folds`.

    Parameters
    ----------
    score : ndarray of shape (n_events,)
        Larger means more signal-like.
    rules, on, folds, alpha, seed
        As for `judge_folds`.

    Returns
    -------
    dict of str to Judged
        By rule.
    """
    parts = [(None, train, score[train], held_out, score[held_out]) for train, held_out in folds]
    return _judged(parts, rules, on, alpha, seed)


def _judged(
    parts: list[tuple[Any, NDArray[np.intp], FloatArray, NDArray[np.intp], FloatArray]],
    rules: Sequence[str],
    on: BoolArray,
    alpha: float,
    seed: int,
) -> dict[str, Judged]:
    """Put folds together: each a model, its training events with scores to tune on, its hold-out events with scores."""
    found = {}
    for rule in rules:
        score, selected, thresholds = np.empty(len(on)), np.zeros(len(on), dtype=np.bool_), []
        for fitted, train, tuning, held_out, own_score in parts:
            known = ~np.isnan(tuning)
            threshold = RULES[rule](fitted, on[train][known], tuning[known], alpha, seed)
            thresholds.append(threshold)
            score[held_out] = own_score
            selected[held_out] = own_score > threshold
        found[rule] = Judged(score, selected, np.array(thresholds))
    return found


def _tuning_scores(fitted: Any, X: FloatArray) -> FloatArray:
    out_of_bag = getattr(fitted, "oob_decision_function_", None)
    return score_events(fitted, X) if out_of_bag is None else out_of_bag[:, 1]


def by_model(methods: Mapping[str, Method]) -> dict[str, dict[str, Method]]:
    """Return methods that share a model together."""
    models: dict[str, dict[str, Method]] = {}
    for key, method in methods.items():
        models.setdefault(method.model, {})[key] = method
    return models
