"""Scatter of F1 with the draw of label noise, and with folds and forests alone.

    python -m studies.spread_of_noise --data DIR         DIR as for studies.paper; a minute or two

The paper's forests on small sets, p_plus = 0.1: standard deviation of F1 over repetitions with the same noise, and with
a new draw of noise each time.

Result of 2026-11-16 (commit e8541be): 0.008 to 0.018 with the same noise, 0.031 to 0.061 with new noise, 0.004 to 0.012
published.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from excess import inject_label_noise
from studies.paper.data import imbalanced_set
from studies.paper.methods import cross_validate, make_method_model, threshold_rules
from studies.paper.published import IMBALANCED
from studies.paper.trials import Settings

METHODS = ("noisy-forest", "menon-forest")


def f1_of(X: np.ndarray, clean: np.ndarray, noise_seed: int, seed: int) -> dict[str, float]:
    """Return F1 of the Noisy and the Menon Forest for one draw of noise, folds and forests."""
    on = inject_label_noise(clean, 0.1, 0.5, random_state=noise_seed).astype(bool)
    folds = list(StratifiedKFold(10, shuffle=True, random_state=seed).split(X, clean))
    forest = make_method_model("noisy-forest", Settings(), random_state=seed, max_depth=8)
    found = cross_validate(forest, X, on, threshold_rules(METHODS, seed), 1.0, folds)
    return {method: f1_score(clean, selected) for method, selected in found.selected.items()}


def main() -> None:
    """Print both spreads with the published one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--repetitions", type=int, default=10)
    arguments = parser.parse_args()
    print("set, method: standard deviation of F1 with the same noise, with new noise, published")
    for name in ("abalone", "sick_euthyroid", "thyroid_sick", "mammography"):
        X, clean = imbalanced_set(name, Settings(data=arguments.data))
        seeds = range(arguments.repetitions)
        same = [f1_of(X, clean, 0, seed) for seed in seeds]
        new = [f1_of(X, clean, seed, seed) for seed in seeds]
        for method in METHODS:
            spreads = [np.std([found[method] for found in runs], ddof=1) for runs in (same, new)]
            theirs = IMBALANCED.loc[(name, method), "published_std"]
            print(f"{name}, {method}: {spreads[0]:.3f} {spreads[1]:.3f} {theirs:.3f}")


if __name__ == "__main__":
    main()
