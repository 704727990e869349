"""Cost of uninformative features: LHC Olympics with columns of noise, and simulated observations.

    python -m studies.noise_features --data DIR        LHC Olympics of DIR/lhco, seeds 100 to 104
    python -m studies.noise_features --data DIR --columns 10 --boosters 0    ten columns of noise, forests alone
    python -m studies.noise_features --observations    simulated, seeds 0 to 9, with 0 and 30 columns of noise

The significance improvement of a cut is its true positive rate over the square root of its false positive rate; the
largest one over all cuts that keep at least 20 background events of the test set is given, compared with the recipe of
arXiv:2309.13111, the mean of 50 gradient boosters.

Result of 2026-11-18 (commit d795598; recipe eea7458), seeds 110 to 114 (``--first 110``), which took part in the
choice of the number of trees:

                          forest                               recipe
    without noise         11.7 (12.4, 12.4, 12.3, 8.7, 12.6)   10.8 (10.7, 10.5, 11.2, 10.7, 11.0)
    with ten columns      10.4 (12.0, 8.9, 10.5, 7.9, 12.7)    4.0 (3.2, 2.4, 5.6, 3.4, 5.3)
    with 30 columns       10.8 (10.2, 10.0, 12.6, 8.6, 12.7)   2.0 (2.0, 2.2, 1.5, 1.5, 2.9)

    with ten columns, seeds 120 to 124, not used before: 10.0 (5.8, 11.8, 11.0, 11.2, 10.3)
    the same with commit 5f5bdf7:                        10.1 (6.1, 12.3, 11.0, 11.4, 9.7)

With bags of 1.4 times as many events and more trees (commit eea7458), which takes up to 15 times the time of LightGBM
where no signal is visible, the forest on the same seeds, which had no part in the choice then:

    with ten columns      11.0 (11.7, 10.8, 11.7, 9.1, 12.0)
    with 30 columns       11.0 (10.2, 11.0, 11.8, 10.3, 11.8)

The recipe with ten columns (seeds 100 to 104): 4.6 (5.1, 3.2, 6.5, 3.3, 4.7). With 60 trees to assess features in
place of 120 (commit 86cc1dd, seeds 100 to 104), which was given up for its failures with 30 columns:

    with ten columns      10.7 (9.4, 11.4, 11.8, 11.6, 9.4)
    with 30 columns       7.3 (11.7, 2.8, 4.8, 9.0, 8.1)

With 120 trees to assess all features, on always 120,000 events (commit d199b0b), which takes twice the time:

    with ten columns      11.6 (9.6, 12.2, 12.2, 12.1, 12.2)
    with 30 columns       11.7 and 9.1 (seeds 100 and 101)

Without a scan of pairs of features (commit a4a4cd6), the forest had 10.3 with ten columns (9.3, 10.1, 11.1, 11.5, 9.4),
and 1.2 and 1.1 with 30 columns (seeds 300 and 301 of development, where the scan gives 12.0 and 10.7).
Of 2026-11-17 (commit 1f9f102), with another elimination of features:

    simulated             likelihood 21.12
    with 30 columns       likelihood 20.40 (20.25 with one leaf size and no selection of features)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from excess import OnOffForestClassifier, cross_val_detect
from excess.dataset import OnOffDataset, simulate_observation

FEATURES = ("mj1", "delta_mj", "tau21_1", "tau21_2")
N_BOOSTERS = 50
RECIPE = {"max_iter": 200, "validation_fraction": 0.5, "early_stopping": True}
LEAST_BACKGROUND = 20


def read_olympics(folder: Path, n_noise: int, seed: int) -> tuple[NDArray[np.float64], ...]:
    """Return features and On labels of the training, features and truth of the test, with columns of noise."""
    train, off, test = (np.load(folder / f"{name}.npz") for name in ("train", "val", "test"))
    columns = [train["columns"].tolist().index(name) for name in FEATURES]
    background = off["X"][off["is_signal"] == 0]
    X = np.concatenate([train["X"], background])[:, columns]
    on = np.arange(len(X)) < len(train["X"])
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    with_noise = [np.column_stack([part, rng.normal(size=(len(part), n_noise))]) for part in (X, test["X"][:, columns])]
    return with_noise[0][order], on[order], with_noise[1], test["is_signal"] == 1


def largest_improvement(score: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    """Return the largest significance improvement of a cut."""
    order = np.argsort(-score, kind="stable")
    signal, background = np.cumsum(truth[order]), np.cumsum(~truth[order])
    last = np.append(np.diff(score[order]) != 0, True)  # cuts lie between different scores
    kept = last & (background >= LEAST_BACKGROUND)
    return float((signal[kept] / signal[-1] / np.sqrt(background[kept] / background[-1])).max())


def compare_on_olympics(folder: Path, seeds: range, columns: list[int], n_boosters: int) -> None:
    """Print the significance improvement of the forest and of the mean of some boosters, if there are any."""
    for n_noise in columns:
        rows = []
        for seed in seeds:
            X, on, X_test, truth = read_olympics(folder, n_noise, seed)
            forest = OnOffForestClassifier(alpha=1.0, n_jobs=-1, random_state=seed).fit(X, on)
            boosters = [
                HistGradientBoostingClassifier(**RECIPE, random_state=N_BOOSTERS * seed + k) for k in range(n_boosters)
            ]
            found = [booster.fit(X, on).predict_proba(X_test)[:, 1] for booster in boosters]
            scores = [forest.predict_proba(X_test)[:, 1], *([np.mean(found, axis=0)] if found else [])]
            rows.append([largest_improvement(score, truth) for score in scores])
            used = ", ".join(map(str, np.flatnonzero(forest.used_features_)))
            values = ", ".join(f"{value:.1f}" for value in rows[-1])
            print(f"{n_noise} columns of noise, seed {seed}: {values} (features {used})", flush=True)
        means = ", ".join(f"{value:.1f}" for value in np.mean(rows, axis=0))
        print(f"{n_noise} columns of noise, mean of the forest and of the boosters: {means}")


def observations(n_seeds: int) -> None:
    """Print the significance of simulated observations, one night held out at a time."""
    for n_noise in (0, 30):
        rows = []
        for seed, X, seen in _observed(n_seeds, n_noise):
            forest = OnOffForestClassifier(n_jobs=-1, random_state=0)
            found = cross_val_detect(forest, X, seen.on, alpha=seen.alpha, groups=seen.groups, random_state=0)
            rows.append([found.likelihood.significance, found.counts.significance])
            print(
                f"{n_noise} columns of noise, seed {seed}: likelihood {rows[-1][0]:.2f}, cut {rows[-1][1]:.2f}",
                flush=True,
            )
        likelihood, cut = np.mean(rows, axis=0)
        print(f"{n_noise} columns of noise, mean: likelihood {likelihood:.2f}, cut {cut:.2f}")


def _observed(n_seeds: int, n_noise: int) -> Iterator[tuple[int, NDArray[np.float64], object]]:
    for seed in range(n_seeds):
        seen = OnOffDataset.from_files(simulate_observation(random_state=seed), nearby=False)
        noise = np.random.default_rng(1000 + seed).normal(size=(len(seen.X), n_noise))
        yield seed, np.column_stack([seen.X, noise]), seen


def main() -> None:
    """Run the requested studies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder that contains lhco")
    parser.add_argument("--columns", default="0,10,30", help="numbers of columns of noise, separated by commas")
    parser.add_argument("--boosters", type=int, default=N_BOOSTERS, help="boosters of the recipe, 0 for none")
    parser.add_argument("--first", type=int, default=100, help="first of the five seeds of LHC Olympics")
    parser.add_argument("--observations", action="store_true", help="simulate observations")
    parser.add_argument("--seeds", type=int, default=10, help="number of simulated observations")
    arguments = parser.parse_args()
    if arguments.data is not None:
        columns = [int(number) for number in arguments.columns.split(",")]
        seeds = range(arguments.first, arguments.first + 5)
        compare_on_olympics(arguments.data / "lhco", seeds, columns, arguments.boosters)
    if arguments.observations:
        observations(arguments.seeds)
    if arguments.data is None and not arguments.observations:
        parser.error("give --data, --observations or both")


if __name__ == "__main__":
    main()
