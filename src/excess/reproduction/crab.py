"""Table I of the paper, its full version and the agreement of its appendix: the Crab Nebula, night by night."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from excess._core.checks import FloatArray
from excess.estimators.holdout import score_events
from excess.events import load_config
from excess.reproduction.crab_data import (
    CrabData,
    are_labelled,
    crab_data,
    fact_files,
    has_fact_files,
    identify_crab,
    labelled_events,
)
from excess.reproduction.methods import METHODS, MODELS, Judged, judge_folds, judge_scores
from excess.reproduction.settings import Settings
from excess.reproduction.trials import Row, Study, Trial
from excess.stats.significance import OnOffCounts
from excess.validation.agreement import agreement

__all__ = ["CRAB", "CRAB_NULL", "label_of", "make_model", "name_of", "train_supervised"]

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
"""Depths or numbers of clusters of each model, roughly the fastest first; 1 is the small one of the supervised."""
SMALL_SIZES = {"k-means": (8,), "k-means-ensemble": (8,)}

METHODS_OF = {
    model: tuple(key for key, method in METHODS.items() if method.model == model and method.rule != "near-best")
    for model in SIZES
}
"""Methods that share a model."""

LINES = {
    "k-means": "k-means",
    "k-means-ensemble": "k-means",
    "li-ma-tree": "li-ma",
    "li-ma-forest": "li-ma",
    "noisy-tree": "noisy",
    "noisy-forest": "noisy",
    "menon-tree": "menon",
    "menon-forest": "menon",
    "mithal-tree": "mithal",
    "mithal-forest": "mithal",
}
"""Which line of the table a method belongs to, together with its size."""

KINDS = {
    "k-means": ("k-means", "k-means ensemble", "k-means / ensemble"),
    "li-ma": ("LiMa Tree", "LiMa Forest", "LiMa Tree / Forest"),
    "noisy": ("Noisy Tree", "Noisy Forest", "Noisy Tree / Forest"),
    "menon": ("Menon Tree", "Menon Forest", "Menon Tree / Forest"),
    "mithal": ("Mithal Tree", "Mithal Forest", "Mithal Tree / Forest"),
    "supervised": ("Supervised tree", "Supervised forest", "Supervised tree / forest"),
}
"""Names of lines as they are shown: of single models, of ensembles, and of both."""

NULL_MODELS = {"li-ma-tree": (4, 6), "li-ma-forest": (4, 6), "k-means": (32, 128), "k-means-ensemble": (32, 128)}


def label_of(method: str, size: int) -> str:
    """Return the line of the published tables that a method of some size belongs to.

    Examples
    --------
    >>> from excess.reproduction.crab import label_of
    >>> label_of("menon-forest", 7), label_of("supervised-tree", 1), label_of("default-forest", 0)
    ('menon-7', 'supervised-small', 'default-forest')
    """
    if method.startswith("supervised"):
        return "supervised-small" if size else "supervised"
    return f"{LINES[method]}-{size}" if method in LINES else method


def name_of(line: str, n_models: int | None = None) -> str:
    """Return a line of the tables as it is shown: of single models (1), of ensembles (100), or of both (None).

    Examples
    --------
    >>> from excess.reproduction.crab import name_of
    >>> name_of("li-ma-4", 100), name_of("k-means-32", 1), name_of("supervised-small")
    ('LiMa Forest, depth 4', 'k-means, 32 clusters', 'Supervised tree / forest, few events')
    """
    if line in METHODS and line.startswith("default"):
        return METHODS[line].name
    kind, _, size = line.rpartition("-") if line != "supervised" else (line, "", "")
    name = KINDS[kind][{1: 0, 100: 1, None: 2}[n_models]]
    if kind == "supervised":
        return f"{name}, few events" if size else name
    return f"{name}, {size} clusters" if kind == "k-means" else f"{name}, depth {size}"


def make_model(model: str, size: int, settings: Settings) -> Any:
    """Return a model that is not fitted, with fewer members where all is small."""
    made = MODELS[model](size)
    if settings.small and "n_estimators" in made.get_params():
        made.set_params(n_estimators=10)
    return made


def plan(settings: Settings, n_trials: int) -> list[Trial]:
    """Return the trials, repetition by repetition."""
    sizes = {**SIZES, **SMALL_SIZES} if settings.small else SIZES
    if not are_labelled({"crab": fact_files(settings) or "simulated"}):
        sizes = {model: own for model, own in sizes.items() if not model.startswith("supervised")}
    return [
        Trial(f"{model}-{size}-{number:03d}", {"model": model, "size": size, "trial": number})
        for number in range(n_trials)
        for model, own in sizes.items()
        for size in own
    ]


def run(settings: Settings, parameters: Mapping[str, Any]) -> list[Row]:
    """Cross-validate one model with all its threshold rules."""
    data = crab_data(settings)
    model, size = parameters["model"], parameters["size"]
    seed = settings.trial_seed(parameters["trial"])
    rules = [METHODS[key].rule for key in METHODS_OF[model]]
    shared: dict[str, Any] = {"alpha": data.alpha, "seed": seed}
    if model.startswith("supervised"):
        score = score_events(train_supervised(model, size, seed, settings), data.X)
        judged = judge_scores(score, rules, data.on, data.folds(), **shared)
    else:
        judged = judge_folds(make_model(model, size, settings), rules, data.X, data.on, data.folds(), **shared)
    reference = reference_score(settings)
    rows = []
    for key in METHODS_OF[model]:
        found = judged[METHODS[key].rule]
        row = {"method": key, "line": label_of(key, size), "n_models": _n_models(model), **_counted(found, data)}
        if reference is not None:
            # a single model has no soft score, says the paper: its crisp classification is compared
            own = found.score if _n_models(model) > 1 else found.selected
            near = agreement(own, reference)
            row |= {"pearson": _number(near.pearson), "spearman": _number(near.spearman)}
        rows.append(row)
    return rows


def train_supervised(model: str, size: int, seed: int, settings: Settings) -> Any:
    """Return a supervised model, trained on labelled events."""
    events = labelled_events("train-small" if size else "train", settings)
    if events is None:
        raise ValueError("a supervised model needs files of simulated gammas and protons beside FACT's data")
    return make_model(model, size, settings).set_params(random_state=seed).fit(events.X, events.is_signal.astype(int))


@lru_cache(maxsize=1)
def reference_score(settings: Settings) -> FloatArray | None:
    """Return what the supervised forest says about all events, if there are labelled events to train it on."""
    if labelled_events("train", settings) is None:
        return None
    forest = train_supervised("supervised-forest", 0, settings.trial_seed(2_000), settings)
    return score_events(forest, crab_data(settings).X)


def null_plan(settings: Settings, n_trials: int) -> list[Trial]:
    """Return the trials with a fake On region; repetitions go through the Off regions in turn."""
    models = {**NULL_MODELS, **SMALL_SIZES} if settings.small else NULL_MODELS
    n_off = load_config().regions.n_regions - 1  # as `crab_data` has them, without any data
    return [
        Trial(
            f"{model}-{size}-{number:03d}",
            {"model": model, "size": size, "trial": number, "region": 1 + number % n_off},
        )
        for number in range(n_trials)
        for model, own in models.items()
        for size in own
    ]


def null_run(settings: Settings, parameters: Mapping[str, Any]) -> list[Row]:
    """Cross-validate one model where there is no source."""
    data = crab_data(settings).with_fake_on(parameters["region"])
    model, size = parameters["model"], parameters["size"]
    judged = judge_folds(
        make_model(model, size, settings),
        ["significance"],
        data.X,
        data.on,
        data.folds(),
        alpha=data.alpha,
        seed=settings.trial_seed(parameters["trial"]),
    )["significance"]
    return [{"method": model, "line": label_of(model, size), "n_models": _n_models(model), **_counted(judged, data)}]


def _counted(found: Judged, data: CrabData) -> Row:
    n_on = int(np.count_nonzero(found.selected & data.on))
    n_off = int(np.count_nonzero(found.selected)) - n_on
    counts = OnOffCounts(n_on, n_off, data.alpha)
    return {"n_on": n_on, "n_off": n_off, "significance": float(counts.significance)}


def _n_models(model: str) -> int:
    """Return 1 for single models, 100 for the ensembles: the columns of the tables."""
    return 1 if model in ("k-means", "li-ma-tree", "noisy-tree", "supervised-tree") else 100


def _number(value: float) -> float | None:
    """Return a number as JSON takes it: nothing for NaN, where a model selects nothing or everything."""
    return None if np.isnan(value) else float(value)


CRAB = Study("crab", 10, plan, run, identify_crab, has_fact_files)
CRAB_NULL = Study("crab-null", 10, null_plan, null_run, identify_crab, has_fact_files)
