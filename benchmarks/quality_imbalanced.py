"""F1 of the default forest on the paper's ten imbalanced sets with injected label noise, beside the paper's forests.

Run with ``python benchmarks/quality_imbalanced.py --data DIR``, where DIR is what ``imblearn.datasets.fetch_datasets``
calls ``data_home``; without it, the sets are downloaded. Noise as in the paper: p_minus = 0.5, p_plus = 0.1 and 0.25;
stratified 10-fold cross-validation, F1 of the pooled hold-out predictions against the clean labels, mean over trials.
Training and threshold see noisy labels only. A quick look; ``excess reproduce imbalanced`` is the whole.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from imblearn.datasets import fetch_datasets
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from excess import OnOffForestClassifier, inject_label_noise
from excess.experiments.published import FORESTS, IMBALANCED, MORE_NOISE

PUBLISHED = {
    p_plus: {name: tuple(cells[name, method].mean for method in FORESTS) for name in dict.fromkeys(n for n, _ in cells)}
    for p_plus, cells in ((0.1, IMBALANCED), (0.25, MORE_NOISE))
}


def trial_f1(X: Any, clean: Any, p_plus: float, seed: int) -> float:
    """Return the F1 of one trial: one draw of noise, ten folds."""
    noisy = inject_label_noise(clean, p_plus, 0.5, random_state=seed)
    selected = np.zeros(len(clean), dtype=int)
    for train, test in StratifiedKFold(10, shuffle=True, random_state=seed).split(X, clean):
        forest = OnOffForestClassifier(alpha=1.0, n_jobs=-1, random_state=seed)
        selected[test] = forest.fit(X[train], noisy[train]).predict(X[test])
    return f1_score(clean, selected)


def main() -> None:
    """Print one table per noise level, and the means that count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="data_home of imbalanced-learn's fetch_datasets; default: its own")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sets", nargs="*", default=list(PUBLISHED[0.1]))
    arguments = parser.parse_args()
    data = fetch_datasets(
        data_home=arguments.data, download_if_missing=arguments.data is None, filter_data=tuple(arguments.sets)
    )
    console = Console(width=120)
    for p_plus, published in PUBLISHED.items():
        table = Table(title=f"F1, p_minus = 0.5, p_plus = {p_plus}, {arguments.trials} trials")
        for column in ("set", "ours", "standard error", "paper: LiMa", "Noisy", "Menon", "Mithal", "best"):
            table.add_column(column, justify="left" if column == "set" else "right")
        rows = []
        for name in track(arguments.sets, console=Console(stderr=True), description=f"p_plus = {p_plus}"):
            X, clean = data[name].data, (data[name].target == 1).astype(int)
            scores = [trial_f1(X, clean, p_plus, arguments.seed + trial) for trial in range(arguments.trials)]
            error = np.std(scores, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else np.nan
            rows.append([float(np.mean(scores)), error, *published[name], max(published[name])])
            table.add_row(name, *(f"{value:.3f}" for value in rows[-1]))
        mean = np.mean(rows, axis=0)
        mean[1] = np.sqrt(np.sum(np.square([row[1] for row in rows]))) / len(rows)
        table.add_section()
        table.add_row("mean", *(f"{value:.3f}" for value in mean))
        console.print(table)
        console.print(
            f"ours {mean[0]:.3f}, the paper's Noisy Forest {mean[3]:.3f}, its best column per set {mean[6]:.3f}"
        )


if __name__ == "__main__":
    main()
