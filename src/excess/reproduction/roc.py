"""The ROC figure of the paper: forests that learned from On and Off, on simulated truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

from excess.estimators.holdout import score_events
from excess.reproduction.crab import make_crab_model, train_supervised
from excess.reproduction.crab_data import crab_data, fact_files, identify_crab, labelled_events
from excess.reproduction.datasets import MissingDataError
from excess.reproduction.settings import Settings
from excess.reproduction.trials import Row, Study, Trial

__all__ = ["FORESTS", "ROC"]

FORESTS = {
    "supervised-forest": ("Supervised forest", 0),
    "li-ma-forest": ("LiMa Forest, depth 6", 6),
    "noisy-forest": ("Noisy Forest, depth 8", 8),
    "default-forest": ("Our default forest", 0),
}
"""Forests with their names and depths; the paper's figure has the first two."""
N_POINTS = 101


def plan(settings: Settings, n_trials: int) -> list[Trial]:
    """Return the trials, repetition by repetition."""
    return [
        Trial(f"{model}-{number:03d}", {"model": model, "trial": number})
        for number in range(n_trials)
        for model in FORESTS
    ]


def run(settings: Settings, parameters: Mapping[str, Any]) -> list[Row]:
    """Train one forest and draw its curve at evenly spread false positive rates."""
    test = labelled_events("test", settings)
    if test is None:
        raise MissingDataError("roc needs files gamma*.hdf5 and proton*.hdf5 of simulated events beside FACT's data")
    model, seed = parameters["model"], settings.trial_seed(parameters["trial"])
    if model == "supervised-forest":
        fitted = train_supervised(model, 0, settings, seed).estimator
    else:
        data = crab_data(settings)
        fitted = make_crab_model(model, FORESTS[model][1], settings, seed).set_params(alpha=data.alpha)
        fitted.fit(data.X, data.on)
    score = score_events(fitted, test.X)
    fpr, tpr, _ = roc_curve(test.clean, score)
    auc = float(roc_auc_score(test.clean, score))
    grid = np.linspace(0, 1, N_POINTS)
    return [
        {"fpr": round(float(x), 2), "tpr": float(y), "auc": auc}
        for x, y in zip(grid, np.interp(grid, fpr, tpr), strict=True)
    ]


ROC = Study("roc", 10, plan, run, identify_crab, fact_files)
