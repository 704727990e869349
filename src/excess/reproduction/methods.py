"""The methods of the paper's tables: one registry, from an id to a name to show, a model and a threshold rule.

Methods that differ in their threshold alone share one fitted model and its scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from excess.analysis.models import make_model
from excess.estimators.forest import OnOffForestClassifier
from excess.reproduction.settings import Settings
from excess.stats.thresholds import f1_threshold, significance_threshold

__all__ = ["METHODS", "Method", "group_by_model", "make_method_model", "threshold_rules"]


class Method(NamedTuple):
    """One column or line of a table.

    The rule for the threshold is one of ``THRESHOLD_METHODS``; ``"near-best"``, the default rule of the package's
    forest on the scores of any model; or None for the threshold of the model itself. ``"near-best"`` and ``"f1"`` take
    the median of as many resamples as the forest does.
    """

    name: str  # as it is shown
    model: str  # one of `excess.analysis.models.MODELS`
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
"""Methods by id. The supervised ones are trained on labelled events, and tune their threshold on On and Off events."""


def make_method_model(method: str, settings: Settings, **options: Any) -> Any:
    """Return the model of a method, not fitted, with fewer members where all is small."""
    model = make_model(METHODS[method].model, **options)
    if settings.small and "n_estimators" in model.get_params():
        model.set_params(n_estimators=10)
    return model


def threshold_rules(methods: Iterable[str], seed: int) -> dict[str, str | Callable[..., float] | None]:
    """Return the rules of methods by id, as `cross_val_thresholds` takes them."""
    forest = OnOffForestClassifier()
    resamples = {"n_bootstrap": forest.n_threshold_bootstrap, "random_state": seed}
    ours = {
        "near-best": partial(significance_threshold, tolerance=forest.threshold_tolerance, **resamples),
        "f1": partial(f1_threshold, **resamples),
    }
    rules = {key: METHODS[key].rule for key in methods}
    return {key: ours.get(rule, rule) if rule is not None else None for key, rule in rules.items()}


def group_by_model(methods: Iterable[str]) -> list[list[str]]:
    """Return the ids of methods that share a model together."""
    models: dict[str, list[str]] = {}
    for key in methods:
        models.setdefault(METHODS[key].model, []).append(key)
    return list(models.values())
