"""Time of the k-means ensemble compared with as many plain k-means fits of scikit-learn.

Run with ``python benchmarks/bench_cluster.py``. Data as in the paper: 21,561 events, 22 features; 256 clusters.
Both use two cores: the ensemble runs clusterings side by side, scikit-learn threads inside each.
"""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.cluster import KMeans

from excess import OnOffKMeansEnsembleClassifier

N_EVENTS, N_FEATURES, N_ESTIMATORS, N_CLUSTERS = 21_561, 22, 100, 256


def make_events() -> tuple[np.ndarray, np.ndarray]:
    """Return correlated features and On/Off labels with a source."""
    rng = np.random.default_rng(0)
    on = rng.random(N_EVENTS) < 1 / 6
    signal = on & (rng.random(N_EVENTS) < 0.2)
    X = rng.normal(size=(N_EVENTS, N_FEATURES)) @ rng.normal(size=(N_FEATURES, N_FEATURES)) / N_FEATURES**0.5
    X[signal, :5] += 1
    return X, on


def main() -> None:
    """Time both and print the ratio."""
    X, on = make_events()
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    OnOffKMeansEnsembleClassifier(2, 8, 1 / 5, random_state=0).fit(X[:500], on[:500])  # compile and load

    start = time.perf_counter()
    for seed in track(range(N_ESTIMATORS), console=Console(stderr=True), description="scikit-learn"):
        KMeans(N_CLUSTERS, n_init=1, random_state=seed).fit(scaled)
    peer = time.perf_counter() - start

    table = Table(title=f"{N_ESTIMATORS} clusterings of {N_EVENTS:,} x {N_FEATURES} events into {N_CLUSTERS}")
    for column in ("", "seconds", "ratio to scikit-learn"):
        table.add_column(column, justify="left" if column == "" else "right")
    table.add_row("scikit-learn KMeans, fits alone", f"{peer:.1f}", "1.00")
    for max_features, what in ((1 / 3, "a third of the features, the default"), (None, "all features")):
        model = OnOffKMeansEnsembleClassifier(
            N_ESTIMATORS, N_CLUSTERS, 1 / 5, max_features=max_features, n_jobs=2, random_state=0, verbose=1
        )
        start = time.perf_counter()
        model.fit(X, on)
        seconds = time.perf_counter() - start
        table.add_row(f"ensemble, {what}; with out-of-bag threshold", f"{seconds:.1f}", f"{seconds / peer:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
