"""Table I of the paper, its full version and the agreement of its appendix: the Crab Nebula, night by night."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from excess._core.checks import FloatArray
from excess.estimators.holdout import score_events
from excess.estimators.supervised import supervised_reference
from excess.reproduction.crab_data import (
    N_REGIONS,
    are_labelled,
    crab_data,
    fact_files,
    identify_crab,
    labelled_events,
)
from excess.reproduction.methods import METHODS, group_by_model, make_method_model, threshold_rules
from excess.reproduction.settings import Settings
from excess.reproduction.trials import Row, Study, Trial
from excess.validation import Detection, agreement, cross_val_thresholds, null_test

__all__ = ["CRAB", "CRAB_NULL", "label_of", "make_crab_model", "name_of", "train_supervised"]

MEASURES = ("pearson", "spearman")
CLUSTERS = (8, 16, 32, 48, 64, 128, 256)
DEPTHS = (4, 5, 6, 7, 8)

SIZES: dict[str, tuple[int, ...]] = {
    "li-ma-tree": DEPTHS,
    "noisy-tree": DEPTHS,
    "li-ma-forest": DEPTHS,
    "noisy-forest": DEPTHS,
    "supervised-tree": (0, 1),
    "supervised-forest": (0, 1),
    "default-forest": (0,),
    "k-means": CLUSTERS,
    "k-means-ensemble": CLUSTERS,
    "default-k-means-ensemble": (0,),
}
"""Depths or numbers of clusters of each model, roughly the fastest first; 1 is the small one of the supervised.

A model is named by the first of the methods that share it."""
SMALL_SIZES = {"k-means": (8,), "k-means-ensemble": (8,)}
NULL_SIZES = {"li-ma-tree": (4, 6), "li-ma-forest": (4, 6), "k-means": (32, 128), "k-means-ensemble": (32, 128)}

METHODS_OF = {
    first: (first, *others) for first, *others in group_by_model(key for key in METHODS if "near-best" not in key)
}
"""Methods that share a model."""


def label_of(method: str, size: int) -> str:
    """Return the line of the published tables that a method of some size belongs to.

    Examples
    --------
    >>> from excess.reproduction.crab import label_of
    >>> label_of("menon-forest", 7), label_of("supervised-tree", 1), label_of("default-forest", 0)
    ('menon-7', 'supervised-small', 'default-forest')
    """
    if method.startswith("default"):
        return method
    kind = method.removesuffix("-tree").removesuffix("-forest").removesuffix("-ensemble")
    if kind == "supervised":
        return "supervised-small" if size else "supervised"
    return f"{kind}-{size}"


def name_of(line: str, n_models: int | None = None) -> str:
    """Return a line of the tables as it is shown: of single models (1), of ensembles (100), or of both (None).

    Examples
    --------
    >>> from excess.reproduction.crab import name_of
    >>> name_of("li-ma-4", 100), name_of("k-means-32", 1), name_of("supervised-small")
    ('LiMa Forest, depth 4', 'k-means, 32 clusters', 'Supervised tree / forest, few events')
    """
    if line.startswith("default"):
        return METHODS[line].name
    kind, _, size = line.rpartition("-") if line != "supervised" else (line, "", "")
    keys = ("k-means", "k-means-ensemble") if kind == "k-means" else (f"{kind}-tree", f"{kind}-forest")
    single, ensemble = (METHODS[key].name for key in keys)
    name = {1: single, 100: ensemble, None: f"{single} / {ensemble.split()[-1]}"}[n_models]
    if kind == "supervised":
        return f"{name}, few events" if size else name
    return f"{name}, {size} clusters" if kind == "k-means" else f"{name}, depth {size}"


def make_crab_model(model: str, size: int, settings: Settings, seed: int) -> Any:
    """Return a model of some depth or number of clusters, not fitted; below 2, it is the size that the model has."""
    option = "n_clusters" if "k-means" in model else "max_depth"
    return make_method_model(model, settings, random_state=seed, **({option: size} if size > 1 else {}))


def plan(settings: Settings, n_trials: int) -> list[Trial]:
    """Return the trials, repetition by repetition."""
    sizes = {**SIZES, **SMALL_SIZES} if settings.small else SIZES
    if not are_labelled({"crab": fact_files(settings) or "simulated"}):
        sizes = {model: own for model, own in sizes.items() if not model.startswith("supervised")}
    return _trials(sizes, n_trials)


def run(settings: Settings, parameters: Mapping[str, Any]) -> list[Row]:
    """Cross-validate one model with all its threshold rules, which share one likelihood."""
    data = crab_data(settings)
    model, size = parameters["model"], parameters["size"]
    seed = settings.trial_seed(parameters["trial"])
    make = train_supervised if model.startswith("supervised") else make_crab_model
    found = cross_val_thresholds(
        make(model, size, settings, seed),
        data.X,
        data.on,
        threshold_rules(METHODS_OF[model], seed),
        alpha=data.alpha,
        groups=data.groups,
    )
    reference = reference_score(settings)
    rows = []
    for method, detection in found.items():
        row = _row(method, size, detection)
        if reference is not None:
            # a single model has no soft score, says the paper: its crisp classification is compared
            own = detection.score if row["n_models"] > 1 else detection.selected
            near = agreement(own, reference)._asdict()
            # NaN, where a model selects nothing or everything, is not a number of JSON
            row |= {name: None if np.isnan(near[name]) else near[name] for name in MEASURES}
        rows.append(row)
    return rows


def train_supervised(model: str, size: int, settings: Settings, seed: int) -> Any:
    """Return a supervised model, trained on labelled events; it tunes its threshold on On and Off events."""
    events = labelled_events("train-small" if size else "train", settings)
    if events is None:
        raise ValueError("a supervised model needs files of simulated gammas and protons beside FACT's data")
    untrained = make_method_model(model, settings, random_state=seed)
    return supervised_reference(events.X, events.clean, estimator=untrained)


@lru_cache(maxsize=1)
def reference_score(settings: Settings) -> FloatArray | None:
    """Return what the supervised forest says about all events, if there are labelled events to train it on."""
    if labelled_events("train", settings) is None:
        return None
    reference = train_supervised("supervised-forest", 0, settings, settings.trial_seed(2_000))
    return score_events(reference.estimator, crab_data(settings).X)


def null_plan(settings: Settings, n_trials: int) -> list[Trial]:
    """Return the trials with a fake On region; repetitions go through the Off regions in turn."""
    sizes = {**NULL_SIZES, **SMALL_SIZES} if settings.small else NULL_SIZES
    n_off = N_REGIONS - 1  # as `crab_data` has them, without any data
    return _trials(sizes, n_trials, n_off)


def _trials(sizes: Mapping[str, tuple[int, ...]], n_trials: int, n_off: int = 0) -> list[Trial]:
    """Return the trials of models and sizes, repetition by repetition; with Off regions, each is on one of them."""
    return [
        Trial(
            f"{model}-{size}-{number:03d}",
            {"model": model, "size": size, "trial": number} | ({"region": 1 + number % n_off} if n_off else {}),
        )
        for number in range(n_trials)
        for model, own in sizes.items()
        for size in own
    ]


def null_run(settings: Settings, parameters: Mapping[str, Any]) -> list[Row]:
    """Cross-validate one model where there is no source."""
    data = crab_data(settings)
    model, size, region = (parameters[name] for name in ("model", "size", "region"))
    untrained = make_crab_model(model, size, settings, settings.trial_seed(parameters["trial"]))
    regions = data.regions
    found = null_test(
        untrained,
        data.X,
        regions.region,
        n_regions=regions.n_regions,
        off_regions=[region],
        groups=data.groups,
        statistic="cut",
    )
    return [_row(model, size, found.detections[region])]


def _row(method: str, size: int, detection: Detection) -> Row:
    """Return what is known of a method; 1 or 100 models are the columns of the tables.

    The significance is that of the cut, as in the paper; the likelihood is None where a model has no signal ratio.
    """
    counts, likelihood = detection.counts, detection.likelihood
    return {
        "method": method,
        "line": label_of(method, size),
        "n_models": 1 if method == "k-means" or method.endswith("-tree") else 100,
        "n_on": int(counts.n_on),
        "n_off": int(counts.n_off),
        "significance": float(counts.significance),
        "likelihood": None if likelihood is None else float(likelihood.significance),
    }


CRAB = Study("crab", 10, plan, run, identify_crab, fact_files, revision=2)
CRAB_NULL = Study("crab-null", 10, null_plan, null_run, identify_crab, fact_files, revision=2)
