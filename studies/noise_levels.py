"""F1 at the six noise levels of pkccn (Bunse & Pfahler), on the imbalanced sets that are at hand.

    python -m studies.noise_levels --data DIR                      two splits of nine sets
    python -m studies.noise_levels --data DIR --trials 10 --all    ten splits, as published, with protein_homo

Half of a set trains, half tests, stratified by the clean labels; only the training labels get noise. The default forest
is compared with scikit-learn's random forest, whose threshold is tuned on scores of five folds by the significance and
by Menon's rule with a known p_minus (``THRESHOLD_METHODS``). F1 is that of the clean test labels. DIR has
imbalanced-learn's files, see ``studies/paper/data.py``; 17 of the 27 sets of pkccn are not among them.

Result of 2026-11-18 (commit 1845fd2), ``--first 30``, two splits of nine sets; the last three columns are the published
means of ten splits with other random forests:

    p_minus, p_plus  excess  RF significance  RF Menon    Li & Ma  Menon  both rates known
    0.5, 0.1          0.627            0.595     0.608      0.631  0.638             0.639
    0.5, 0.25         0.522            0.434     0.420      0.534  0.547             0.548
    0.2, 0.2          0.667            0.642     0.653      0.671  0.680             0.684
    0.4, 0.4          0.453            0.309     0.307      0.437  0.467             0.469
    0.1, 0.3          0.682            0.660     0.666      0.673  0.684             0.688
    0.3, 0.1          0.668            0.640     0.654      0.669  0.674             0.679
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_predict

from excess import THRESHOLD_METHODS, OnOffForestClassifier, inject_label_noise
from studies.paper.data import IMBALANCED_SETS, imbalanced_set
from studies.paper.imbalanced import LARGEST
from studies.paper.trials import Settings

PUBLISHED = {
    (0.5, 0.1): (0.631, 0.638, 0.639),
    (0.5, 0.25): (0.534, 0.547, 0.548),
    (0.2, 0.2): (0.671, 0.680, 0.684),
    (0.4, 0.4): (0.437, 0.467, 0.469),
    (0.1, 0.3): (0.673, 0.684, 0.688),
    (0.3, 0.1): (0.669, 0.674, 0.679),
}
"""Published means over nine sets at p_minus and p_plus: thresholds of Li & Ma, of Menon, and with both rates known."""
METHODS = ("excess", "random forest, significance", "random forest, Menon")


def evaluate(X: NDArray[np.float64], clean: NDArray[np.int64], p_minus: float, p_plus: float, seed: int) -> list[float]:
    """Return the F1 of each method for one split and draw of noise."""
    alpha = p_minus / (1 - p_minus)
    ((train, test),) = StratifiedShuffleSplit(1, test_size=0.5, random_state=seed).split(X, clean)
    on = inject_label_noise(clean[train], p_plus, p_minus, random_state=seed).astype(np.bool_)
    selected = [OnOffForestClassifier(alpha=alpha, random_state=seed).fit(X[train], on).predict(X[test]) == 1]
    forest = RandomForestClassifier(max_depth=8, random_state=seed)
    tuned_on = cross_val_predict(forest, X[train], on, method="predict_proba")[:, 1]
    score = forest.fit(X[train], on).predict_proba(X[test])[:, 1]
    selected += [score > THRESHOLD_METHODS[rule](on, tuned_on, alpha) for rule in ("significance", "menon")]
    return [f1_score(clean[test], own, zero_division=0.0) for own in selected]


def main() -> None:
    """Print the mean F1 over the sets at each level of noise, next to the published means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of imbalanced-learn's files")
    parser.add_argument("--trials", type=int, default=2, help="splits of each set")
    parser.add_argument("--first", type=int, default=0, help="seed of the first split")
    parser.add_argument("--all", action="store_true", help=f"also {LARGEST}, which takes far longer")
    given = parser.parse_args()
    settings = Settings(data=given.data)
    names = [name for name in IMBALANCED_SETS if given.all or name != LARGEST]
    print(f"p_minus p_plus   {', '.join(METHODS)}   (published: Li & Ma, Menon, Menon with both rates known)")
    for (p_minus, p_plus), published in PUBLISHED.items():
        rows = [
            evaluate(*imbalanced_set(name, settings), p_minus, p_plus, seed)
            for name in names
            for seed in range(given.first, given.first + given.trials)
        ]
        means = "  ".join(f"{value:.3f}" for value in np.mean(rows, axis=0))
        print(f"{p_minus:7g} {p_plus:6g}   {means}   ({', '.join(f'{value:.3f}' for value in published)})", flush=True)


if __name__ == "__main__":
    main()
