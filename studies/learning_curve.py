"""Significance as a function of the exposure: counts, learned and supervised classifiers, and the limit.

    python -m studies.learning_curve --seeds 60 62 --save curve.jsonl      keep each observation, skip known ones
    python -m studies.learning_curve --save curve.jsonl --figure docs/figures/learning_curve.png

One unit of exposure is a quarter of FACT's open Crab sample: 189,498 events, 310 of them gammas. All values are pooled
but `forward`. `supervised` is the weighted mean of a forest and of boosted trees, which were trained on 10,000
simulated gammas and as many protons; it includes the direction. `limit` is boosting on ``--labelled`` simulated events
with the true point spread function.

Result of 2026-11-18 (commit 90ba1c9), ``--seeds 60 62``, means of two observations each:

    exposure  no cut   cut  likelihood  with direction  forward  supervised  limit
    1            5.5   6.4         7.8             9.0      8.0        13.3   15.2
    2            9.1  10.2        12.9            15.3     13.9        20.1   21.9
    4           13.0  17.8        21.1            23.6     21.9        29.3   32.2
    8           19.5  27.7        32.3            35.1     33.9        42.4   46.6
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from excess.analysis import OnOffDataset, detect
from excess.config import AnalysisConfig
from excess.config._model import to_features
from excess.dataset import simulate_labelled, simulate_observation
from excess.stats._likelihood import compute_likelihood

UNIT = 189_498, 310
FACTORS = (1, 2, 4, 8)
WIDTH = 0.1  # of the simulated point spread function in deg
LABELS = {
    "no cut": "no cut",
    "cut": "learned cut",
    "likelihood": "likelihood",
    "direction": "likelihood with direction",
    "forward": "the same, forward",
    "supervised": "supervised, with direction",
    "limit": "limit",
}


def train_limit(n_labelled: int) -> HistGradientBoostingClassifier:
    """Return the best classifier that is at hand: boosted trees on many simulated events."""
    events = simulate_labelled(n_labelled // 2, n_labelled // 2, random_state=12_345)
    features = to_features(events, AnalysisConfig())
    model = HistGradientBoostingClassifier(max_iter=400, learning_rate=0.08, max_leaf_nodes=31, random_state=0)
    return model.fit(features.X[features.valid], events["is_signal"].to_numpy()[features.valid])


def measure(seed: int, factor: int, best: Any, n_jobs: int) -> dict[str, float]:
    """Return all significances of one observation."""
    n_events, n_signal = (factor * n for n in UNIT)
    observation = OnOffDataset.from_files(
        simulate_observation(n_events, n_signal, n_runs=54 * factor, random_state=1000 * factor + seed)
    )
    truth = simulate_labelled(random_state=seed + 1)
    simulated = truth[truth["is_signal"]], truth[~truth["is_signal"]]
    run = detect(observation, simulated=simulated, null_tests=False, seed=seed, n_jobs=n_jobs)
    found = run.detections["forest"]
    inside = detect(replace(observation, own_theta=None, halo=None), null_tests=False, seed=seed, n_jobs=n_jobs)
    wide = observation.widen()
    probability = np.clip(best.predict_proba(wide.X)[:, 1], 1e-6, 1 - 1e-6)
    ratio = probability / (1 - probability) * np.exp(-0.5 * (wide.direction.theta / WIDTH) ** 2)
    return {
        "no cut": found.uncut.significance,
        "cut": inside.detections["forest"].counts.significance,
        "likelihood": inside.detections["forest"].significance,
        "direction": found.significance,
        "forward": run.forward["forest"].significance,
        "supervised": run.detections["supervised"].significance,
        "limit": compute_likelihood(np.asarray(wide.on), ratio, wide.exposure_ratio).significance,
    }


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw the means."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    means = table.groupby("factor").mean(numeric_only=True)
    for name, label in LABELS.items():
        dashed = name in ("no cut", "limit")
        axes.plot(means.index, means[name], "o--" if dashed else "o-", label=label, markersize=4)
    axes.set(xscale="log", yscale="log", xlabel="exposure in units of a quarter of the Crab sample")
    axes.set_ylabel("significance in sigma")
    axes.set_xticks(FACTORS, [str(factor) for factor in FACTORS])
    axes.set_yticks([5, 10, 20, 40], ["5", "10", "20", "40"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure what is missing, print means, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 0), help="first seed, and the one after the last")
    parser.add_argument("--factors", type=int, nargs="+", default=FACTORS)
    parser.add_argument("--labelled", type=int, default=800_000, help="simulated events for the limit")
    parser.add_argument("--save", type=Path, required=True, help="file of one line for each observation")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    rows = []
    if given.save.exists():
        rows = [json.loads(line) for line in given.save.read_text(encoding="utf-8").splitlines()]
    known = {(row["seed"], row["factor"]) for row in rows}
    missing = [(s, f) for f in given.factors for s in range(*given.seeds) if (s, f) not in known]
    best = train_limit(given.labelled) if missing else None
    for seed, factor in missing:
        rows.append({"seed": seed, "factor": factor, **measure(seed, factor, best, given.jobs)})
        with given.save.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    table = pd.DataFrame(rows)
    print(table.groupby("factor").mean(numeric_only=True).drop(columns="seed").round(1))
    print(table.groupby("factor").size().to_dict())
    if given.figure:
        draw(table, given.figure)


if __name__ == "__main__":
    main()
