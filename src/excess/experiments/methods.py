"""The methods of the paper's tables: one registry, from an id to a model, a threshold rule and a name to show.

Methods that differ in their threshold alone share one fitted model and its scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._checks import BoolArray, FloatArray
from excess._holdout import score_events
from excess.forest import OnOffForestClassifier
from excess.tuning import THRESHOLD_METHODS, significance_threshold

__all__ = ["METHODS", "MODELS", "Judged", "Method", "judge_folds"]

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
    "li-ma-forest": lambda depth: OnOffForestClassifier(
        criterion="li_ma", output="assignment", max_depth=depth, **PAPER_FOREST
    ),
    "noisy-forest": lambda depth: OnOffForestClassifier(criterion="information", max_depth=depth, **PAPER_FOREST),
    "default-forest": lambda depth: OnOffForestClassifier(),
}
"""Makers of models by name, each called with what the table varies."""

METHODS: dict[str, Method] = {
    "li-ma-forest": Method("LiMa Forest", "li-ma-forest", "significance"),
    "noisy-forest": Method("Noisy Forest", "noisy-forest", "significance"),
    "menon-forest": Method("Menon Forest", "noisy-forest", "menon"),
    "mithal-forest": Method("Mithal Forest", "noisy-forest", "mithal"),
    "noisy-forest-near-best": Method("Noisy Forest, our threshold", "noisy-forest", "near-best"),
    "default-forest": Method("Our default forest", "default-forest", "own"),
}
"""Methods by id."""

Rule = Callable[[Any, BoolArray, FloatArray, float, int], float]


def _by_scores(rule: Callable[..., float]) -> Rule:
    return lambda fitted, on, score, alpha, seed: rule(on, score, alpha)


RULES: dict[str, Rule] = {
    **{name: _by_scores(rule) for name, rule in THRESHOLD_METHODS.items()},
    "near-best": lambda fitted, on, score, alpha, seed: significance_threshold(
        on, score, alpha, tolerance=4.0, n_bootstrap=25, random_state=seed
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
    from sklearn.base import clone

    judged = {rule: Judged(np.empty(len(on)), np.zeros(len(on), dtype=np.bool_), np.empty(0)) for rule in rules}
    thresholds: dict[str, list[float]] = {rule: [] for rule in rules}
    for train, held_out in folds:
        fitted = clone(model).set_params(alpha=alpha, random_state=seed).fit(X[train], on[train])
        tuning, score = _tuning_scores(fitted, X[train]), score_events(fitted, X[held_out])
        known = ~np.isnan(tuning)
        for rule in rules:
            threshold = RULES[rule](fitted, on[train][known], tuning[known], alpha, seed)
            thresholds[rule].append(threshold)
            judged[rule].score[held_out] = score
            judged[rule].selected[held_out] = score > threshold
    return {rule: Judged(found.score, found.selected, np.array(thresholds[rule])) for rule, found in judged.items()}


def _tuning_scores(fitted: Any, X: FloatArray) -> FloatArray:
    out_of_bag = getattr(fitted, "oob_decision_function_", None)
    return score_events(fitted, X) if out_of_bag is None else out_of_bag[:, 1]


def by_model(methods: Mapping[str, Method]) -> dict[str, dict[str, Method]]:
    """Return methods that share a model together."""
    models: dict[str, dict[str, Method]] = {}
    for key, method in methods.items():
        models.setdefault(method.model, {})[key] = method
    return models
