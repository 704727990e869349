"""Models that are to be validated: their checks, their thresholds and their seeds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from sklearn.base import clone

from excess.estimators.base import OnOffMixin
from excess.estimators.holdout import check_classifier, score_method
from excess.estimators.hybrid import OnOffHybridClassifier
from excess.estimators.own_threshold import with_tuned_threshold

__all__ = ["check_models", "check_ratios", "check_references", "describe_tuning", "reseeded", "tune_thresholds"]

logger = logging.getLogger("excess.validation")


def check_models(estimator: Any) -> dict[str, Any]:
    """Return estimators by name; a single one has the empty name."""
    models = dict(estimator) if isinstance(estimator, Mapping) else {"": estimator}
    if not models:
        raise ValueError("estimator must hold at least one classifier, got an empty dict")
    for model in models.values():
        check_classifier(model)
        score_method(model)
    return models


def tune_thresholds(models: Mapping[str, Any]) -> dict[str, Any]:
    """Return models that all have a threshold of their own; those without are wrapped, which is logged."""
    tuned = {name: with_tuned_threshold(model) for name, model in models.items()}
    for name, model in models.items():
        if tuned[name] is not model:
            logger.info(describe_tuning(model))
    return tuned


def describe_tuning(model: Any) -> str:
    """Say that a model was wrapped, for `Detection.remarks` and the log."""
    return (
        f"{type(model).__name__} has no threshold of its own: SignificanceThresholdClassifier tunes one inside of the "
        "training folds"
    )


def check_references(models: Mapping[str, Any], groups: NDArray[Any] | None) -> None:
    """Refuse models with references that were trained on events of these groups."""
    if groups is None:
        return
    for model in models.values():
        for part in (model, *model.get_params(deep=True).values()):
            if isinstance(part, OnOffHybridClassifier):
                part.check_groups(groups)


def check_ratios(models: Mapping[str, Any]) -> None:
    """Refuse classifiers whose scores say nothing about how much more likely signal is."""
    for model in models.values():
        parts = (model, *model.get_params(deep=True).values())
        if score_method(model) != "predict_proba" and not any(isinstance(part, OnOffMixin) for part in parts):
            raise ValueError(
                f"statistic='likelihood' needs a classifier that says how signal-like an event is, which "
                f"{type(model).__name__} does not; wrap it in SignificanceThresholdClassifier, or declare "
                "statistic='cut'"
            )


def reseeded(estimator: Any, seed: int, *, keep: bool) -> Any:
    """Set the seeds of an estimator and all inside it; with ``keep``, only those that are None."""
    seeds = {
        name: seed
        for name, value in sorted(estimator.get_params(deep=True).items())
        if (name == "random_state" or name.endswith("__random_state")) and not (keep and value is not None)
    }
    return clone(estimator).set_params(**seeds) if seeds else estimator
