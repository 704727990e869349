"""Bags of events or of nights in a forest, for nights whose features drift.

    python -m studies.drifting_nights                    seeds 20 to 24, drifts from 0 to 0.5 standard deviations
    python -m studies.drifting_nights --seeds 20 21      two observations
    python -m studies.drifting_nights --drifts 0 0.5     two drifts

Every feature of a night is shifted by a normal draw of so many standard deviations. Nights are held out one at a time.
The table gives, for the bag of events and that of nights, and for the paired change with its error: the hold-out
significance of the cut and of the likelihood; the log-likelihood of the hold-out labels per 1000 events, above that of
a constant; and the significance of hold-out events at the threshold over that of the out-of-bag events on which it was
tuned, both per root of their number.

Result of 2026-11-16 (commit 045af28, 200 trees of one leaf size), change by a bag of nights and hold-out / tuned:

    drift 0     cut -0.49 +- 0.32, likelihood -0.25 +- 0.13, 0.97 -> 0.98
    drift 0.1   cut +0.03 +- 0.38, likelihood -0.07 +- 0.06, 0.94 -> 0.99
    drift 0.25  cut +0.00 +- 0.28, likelihood +0.02 +- 0.06, 0.91 -> 0.98
    drift 0.5   cut +1.01 +- 0.61, likelihood +0.11 +- 0.08, 0.83 -> 0.98

So a bag of events is the default, and groups in the bag are for an unbiased out-of-bag significance.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from excess import Detection, OnOffForestClassifier, cross_val_detect
from excess.dataset import OnOffDataset, simulate_observation

QUARTILES_OF_NORMAL = 1.349


def shift_nights(X: NDArray[Any], nights: NDArray[Any], drift: float, seed: int) -> NDArray[Any]:
    """Shift all features by one normal draw per night and feature, in units of their width."""
    rng = np.random.default_rng(seed)
    low, high = np.nanquantile(X, [0.25, 0.75], axis=0)
    names, number = np.unique(nights, return_inverse=True)
    return X + (drift * rng.normal(size=(len(names), X.shape[1])) * (high - low) / QUARTILES_OF_NORMAL)[number]


def figures(found: Detection) -> list[float]:
    """Return cut, likelihood, gain in log-likelihood per 1000 events, and hold-out over tuned significance."""
    p, on = np.clip(found.score, 1e-6, 1 - 1e-6), found.on
    gain = np.where(on, np.log(p / on.mean()), np.log((1 - p) / (1 - on.mean()))).mean()
    tuned = np.mean([fold.tuned.significance / np.sqrt(fold.n_train) for fold in found.folds])
    held_out = np.mean([fold.held_out.significance / np.sqrt(fold.n_held_out) for fold in found.folds])
    return [found.counts.significance, found.likelihood.significance, 1000 * gain, held_out / tuned]


def main() -> None:
    """Print the means over seeds for each drift."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[20, 21, 22, 23, 24])
    parser.add_argument("--drifts", type=float, nargs="+", default=[0.0, 0.1, 0.25, 0.5])
    parser.add_argument("--trees", type=int, default=300)
    parser.add_argument("--nights", type=int, default=5)
    given = parser.parse_args()
    models = {name: OnOffForestClassifier(given.trees, n_jobs=-1, random_state=0) for name in ("events", "nights")}
    with sklearn.config_context(enable_metadata_routing=True):
        models["nights"].set_fit_request(groups=True)
    rows: dict[tuple[float, str], list[list[float]]] = {}
    for seed in given.seeds:
        seen = OnOffDataset.from_files(simulate_observation(n_nights=given.nights, random_state=seed), nearby=False)
        for drift in given.drifts:
            X = shift_nights(seen.X, seen.groups, drift, seed)
            found = cross_val_detect(models, X, seen.on, alpha=seen.alpha, groups=seen.groups, random_state=0)
            for name, one in found.items():
                rows.setdefault((drift, name), []).append(figures(one))
    print("drift  bag         cut  likelihood  gain per 1000  held out / tuned")
    for drift in given.drifts:
        events, nights = (np.array(rows[drift, name]) for name in models)
        change = nights - events
        lines = {"events": events.mean(axis=0), "nights": nights.mean(axis=0), "change": change.mean(axis=0)}
        if len(change) > 1:
            lines["+-"] = change.std(axis=0, ddof=1) / np.sqrt(len(change))
        for name, (cut, likelihood, gain, share) in lines.items():
            print(f"{drift:5.2f}  {name:6} {cut:8.2f} {likelihood:11.2f} {gain:14.2f} {share:17.2f}")


if __name__ == "__main__":
    main()
