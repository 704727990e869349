"""Gain of the On/Off likelihood over a cut, in the same folds: simulated observations and real collision events.

    python -m studies.likelihood_gain              ten simulated observations, seeds 0 to 9 (about ten minutes)
    python -m studies.likelihood_gain --seeds 3    three of them; --first 40 begins with another seed
    python -m studies.likelihood_gain --data DIR   also the dimuons of DIR/cms/upsilon.npz

Result of 2026-11-18 (commit b470969), ``--first 40``, means in sigma of the forest without direction:

    no cut 13.21; cut 18.31, likelihood 21.19; forward: cut 15.44, likelihood 19.69
    commit a6619e0 on the same events: cut 18.04, likelihood 21.11; forward: cut 15.19, likelihood 18.07

Seeds 0 to 9 (commit f570607), means in sigma:

    no cut 13.19; forest: cut 17.88, likelihood 21.10; forward: cut 14.99, likelihood 17.69
    supervised forest: cut 21.32, likelihood 24.89
    dimuons: no cut 22.4, cut 30.0 to 30.3, likelihood 31.0 to 31.2

So the likelihood is the default statistic. Calibrations of scores, seeds 100 to 105 (commit 8e1d82e): pooled, forward,
supervised, and the largest error of P(signal) in a tenth of the events, mean of 15 training sets:

    raw score 19.97 17.37 24.41; isotonic, 20 events 20.75 17.84 24.50; isotonic, 2 sqrt(n) 20.74 17.84 24.35 0.058
    beta 20.83 17.93 24.51 0.040; midway between the last two 20.83 17.94 24.51 0.040
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from excess import OnOffForestClassifier, cross_val_detect, supervised_reference
from excess.dataset import OnOffDataset, simulate_labelled, simulate_observation

N_LABELLED = 120_000
FEATURES = ("dimu_pt", "dimu_eta", "n_muons", "n_jets", "mu0_ip3d", "mu1_ip3d", "mu0_jetiso", "mu1_jetiso", "mu0_iso04",
            "mu1_iso04")  # fmt: skip
"""Features that do not determine the mass, which defines On and Off."""


def simulated(first: int, n_seeds: int) -> None:
    """Print both statistics of every simulated observation, one night held out at a time, and forward."""
    labelled = simulate_labelled(N_LABELLED, N_LABELLED, random_state=10_000)
    models = {"forest": OnOffForestClassifier(n_jobs=-1, random_state=0)}
    rows = []
    print("seed   no cut   forest: cut  likelihood   forward: cut  likelihood   supervised: cut  likelihood")
    for seed in range(first, first + n_seeds):
        seen = OnOffDataset.from_files(simulate_observation(random_state=seed), nearby=False)
        if "supervised" not in models:
            X = labelled[list(seen.names)].to_numpy()
            truth = labelled["is_signal"].to_numpy().astype(int)
            models["supervised"] = supervised_reference(X, truth, n_jobs=-1, random_state=0)
        shared = {"alpha": seen.alpha, "groups": seen.groups, "random_state": 0}
        found = cross_val_detect(models, seen.X, seen.on, **shared)
        forward = cross_val_detect(models["forest"], seen.X, seen.on, strategy="forward", **shared)
        row = [found["forest"].uncut.significance]
        for one in (found["forest"], forward, found["supervised"]):
            row += [one.counts.significance, one.likelihood.significance]
        rows.append(row)
        print(f"{seed:4d}" + "".join(f"{value:12.2f}" for value in row), flush=True)
    print("mean" + "".join(f"{value:12.2f}" for value in np.mean(rows, axis=0)))


def dimuons(path: Path) -> None:
    """Print both statistics of real collision events around the mass of the Upsilon, ten folds."""
    columns = np.load(path, allow_pickle=False)
    mass = columns["dimu_mass"]
    on = (mass > 9.3) & (mass < 9.6)
    used = on | ((mass > 9.0) & (mass < 9.25)) | ((mass > 9.65) & (mass < 9.85))
    X = np.column_stack([columns[name] for name in FEATURES])[used]
    for seed in range(3):
        forest = OnOffForestClassifier(n_jobs=-1, random_state=seed)
        found = cross_val_detect(forest, X, on[used].astype(int), alpha=2 / 3, cv=10, random_state=seed)
        print(
            f"dimuons, seed {seed}: no cut {found.uncut.significance:.1f}, cut {found.counts.significance:.1f}, "
            f"likelihood {found.likelihood.significance:.1f} sigma"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="number of simulated observations")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    parser.add_argument("--data", type=Path, help="folder that has cms/upsilon.npz")
    given = parser.parse_args()
    simulated(given.first, given.seeds)
    if given.data is not None:
        dimuons(given.data / "cms" / "upsilon.npz")
