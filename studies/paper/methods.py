"""The methods of the paper's tables: from an identifier to a name, a model and a threshold rule; and their folds.

Methods that differ in their threshold only share one fitted model and its scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from excess import THRESHOLD_METHODS, OnOffForestClassifier, f1_threshold, significance_threshold
from excess.analysis import make_model
from studies.paper.trials import Settings


class Method(NamedTuple):
    """One column or line of a table.

    The rule for the threshold is one of ``THRESHOLD_METHODS``; ``"near-best"``, the default rule of the package's
    forest; or None for the threshold of the model itself. ``"near-best"`` and ``"f1"`` take the median of as many
    resamples as the forest does.
    """

    name: str  # in tables and figures
    model: str  # one of `excess.analysis.MODELS`
    rule: str | None


METHODS: dict[str, Method] = {
    "li-ma-forest": Method("LiMa Forest", "paper-li-ma-forest", "significance"),
    "noisy-forest": Method("Noisy Forest", "paper-noisy-forest", "significance"),
    "menon-forest": Method("Menon Forest", "paper-noisy-forest", "menon"),
    "mithal-forest": Method("Mithal Forest", "paper-noisy-forest", "mithal"),
    "noisy-forest-near-best": Method("Noisy Forest, our threshold", "paper-noisy-forest", "near-best"),
    "default-forest": Method("Our default forest", "forest", None),
    "default-forest-f1": Method("Our default forest, cut for F1", "forest", "f1"),
    "default-k-means-ensemble": Method("Our default k-means ensemble", "k-means-ensemble", None),
    "k-means": Method("k-means", "k-means", "significance"),
    "li-ma-tree": Method("LiMa Tree", "paper-li-ma-tree", "significance"),
    "noisy-tree": Method("Noisy Tree", "paper-noisy-tree", "significance"),
    "menon-tree": Method("Menon Tree", "paper-noisy-tree", "menon"),
    "mithal-tree": Method("Mithal Tree", "paper-noisy-tree", "mithal"),
    "k-means-ensemble": Method("k-means ensemble", "paper-k-means-ensemble", "significance"),
    "supervised-tree": Method("Supervised tree", "open-crab-tree", None),
    "supervised-forest": Method("Supervised forest", "open-crab-forest", None),
}
"""Supervised methods are trained on labelled events, and tune their threshold on On and Off events."""


def group_by_model(methods: Iterable[str]) -> list[list[str]]:
    """Return the methods that share a model together."""
    models: dict[str, list[str]] = {}
    for key in methods:
        models.setdefault(METHODS[key].model, []).append(key)
    return list(models.values())


def make_method_model(method: str, settings: Settings, **options: Any) -> Any:
    """Return the model of a method, not fitted, with fewer members where all is small."""
    model = make_model(METHODS[method].model, **options)
    if settings.small and "n_estimators" in model.get_params():
        model.set_params(n_estimators=10)
    return model


Rule = Callable[[NDArray[Any], NDArray[Any], float], float]
"""From labels and scores of the events to tune on, and alpha, to a threshold."""


def threshold_rules(methods: Iterable[str], seed: int) -> dict[str, Rule | None]:
    """Return the rules of methods by identifier."""
    forest = OnOffForestClassifier()
    resamples = {"n_bootstrap": forest.n_threshold_bootstrap, "random_state": seed}
    near_best = partial(significance_threshold, tolerance=forest.threshold_tolerance, **resamples)
    known = {**THRESHOLD_METHODS, "near-best": near_best, "f1": partial(f1_threshold, **resamples), None: None}
    return {key: known[METHODS[key].rule] for key in methods}


class HoldOut(NamedTuple):
    """Scores and likelihood ratios of hold-out events, and the selection of each rule."""

    score: NDArray[np.float64]
    ratio: NDArray[np.float64]
    selected: dict[str, NDArray[np.bool_]]


def cross_validate(
    model: Any,
    X: NDArray[Any],
    on: NDArray[np.bool_],
    rules: Mapping[str, Rule | None],
    alpha: float,
    folds: Iterable[Any],
) -> HoldOut:
    """Fit a model once per fold and select hold-out events by several rules for the threshold.

    A rule sees the training part of a fold only: out-of-bag scores if the model has them, else the scores of the events
    that it was trained on, as in the paper for single trees and clusterings. None is the threshold of the model itself.
    """
    score, ratio = np.full(len(on), np.nan), np.full(len(on), np.nan)
    selected = {name: np.zeros(len(on), dtype=np.bool_) for name in rules}
    for train, held_out in folds:
        fitted = clone(model).set_params(alpha=alpha).fit(X[train], on[train])
        score[held_out] = fitted.predict_proba(X[held_out])[:, 1]
        ratio[held_out] = fitted.calibration_.ratio(score[held_out])
        shares = getattr(fitted, "oob_decision_function_", None)
        if shares is None:
            shares = fitted.predict_proba(X[train])
        known = shares.sum(axis=1) > 0  # an event in every bag has no out-of-bag score: NaN, or a row of zeros
        for name, rule in rules.items():
            own = fitted.threshold_ if rule is None else rule(on[train][known], shares[known, 1], alpha)
            selected[name][held_out] = score[held_out] > own
    return HoldOut(score, ratio, selected)
