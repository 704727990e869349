"""Tables II and VI of the paper: F1 on ten imbalanced sets whose labels are noisy on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import f1_score, precision_score, recall_score
from sklearn.model_selection import StratifiedKFold

from excess.reproduction import published
from excess.reproduction.datasets import IMBALANCED_SETS, has_imbalanced_files, imbalanced_checksums, imbalanced_set
from excess.reproduction.methods import group_by_model, make_method_model, threshold_rules
from excess.reproduction.settings import Settings
from excess.reproduction.trials import Row, Study, Trial
from excess.stats.noise import inject_label_noise
from excess.validation import cross_val_thresholds

__all__ = ["DEPTH", "IMBALANCED", "MORE_NOISE", "PAPER_METHODS"]

P_MINUS = 0.5
DEPTH = 8
"""Largest depth of the paper's forests here; the paper says nothing about it. See docs/reproduction.md."""
N_FOLDS = 10
N_TRIALS = 20

PAPER_METHODS = published.FORESTS
PARTS: dict[str, tuple[str, ...]] = {
    "paper": (*PAPER_METHODS, "noisy-forest-near-best"),
    "ours": ("default-forest", "default-forest-f1"),
}
"""Methods that are run together. Ours takes far longer on the largest set, so that it waits till the end there."""
LARGEST = "protein_homo"


def plan(settings: Settings, n_trials: int, p_plus: float) -> list[Trial]:
    """Return the trials, in an order that leaves whole repetitions where a run is cut off."""
    order = [(number, name, part) for number in range(n_trials) for name in IMBALANCED_SETS for part in PARTS]
    order.sort(key=lambda item: item[1:] == (LARGEST, "ours"))
    return [
        Trial(f"{name}-{part}-{number:03d}", {"set": name, "p_plus": p_plus, "trial": number, "part": part})
        for number, name, part in order
    ]


def run(settings: Settings, parameters: Mapping[str, Any]) -> list[Row]:
    """Run one trial: one draw of noise and folds on one set, and some of the methods."""
    X, clean = imbalanced_set(parameters["set"], settings)
    number = list(IMBALANCED_SETS).index(parameters["set"])
    for_noise, for_folds, for_models = (settings.trial_seed(parameters["trial"], number, thing) for thing in range(3))
    on = inject_label_noise(clean, parameters["p_plus"], P_MINUS, random_state=for_noise).astype(np.bool_)
    folds = list(StratifiedKFold(N_FOLDS, shuffle=True, random_state=for_folds).split(X, clean))
    methods = PARTS[parameters["part"]]
    rows = {}
    for sharing in group_by_model(methods):
        options = {} if sharing[0] == "default-forest" else {"max_depth": DEPTH}
        forest = make_method_model(sharing[0], settings, random_state=for_models, **options)
        rules = threshold_rules(sharing, for_models)
        for method, found in cross_val_thresholds(forest, X, on, rules, alpha=1.0, cv=folds).items():
            each = [f1_score(clean[test], found.selected[test], zero_division=0.0) for _, test in folds]
            rows[method] = {
                "method": method,
                "f1": float(f1_score(clean, found.selected, zero_division=0.0)),
                "f1_of_folds": float(np.mean(each)),
                "precision": float(precision_score(clean, found.selected, zero_division=0.0)),
                "recall": float(recall_score(clean, found.selected, zero_division=0.0)),
                "n_selected": int(np.count_nonzero(found.selected)),
            }
    return [rows[method] for method in methods]


_WITH_F1 = 2  # the revision whose trials have our forest with two cuts
IMBALANCED = Study(
    "imbalanced", N_TRIALS, partial(plan, p_plus=0.1), run, imbalanced_checksums, has_imbalanced_files, _WITH_F1
)
MORE_NOISE = Study(
    "imbalanced-more-noise",
    N_TRIALS,
    partial(plan, p_plus=0.25),
    run,
    imbalanced_checksums,
    has_imbalanced_files,
    _WITH_F1,
)
