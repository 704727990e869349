"""Forward likelihood without a source, for normalised and absolute likelihood ratios.

    python -m studies.likelihood_calibration             two minutes

The data sets are those of ``python -m studies.paper calibration``, with other seeds. Each group is evaluated by a
forest trained on the groups before it. Its ratios are those of the package, the density of signal over that of the
background, both normalised; or in absolute units, signal events per Off event, by which a forest that has seen an
upward fluctuation gives its group more weight.

Result of 2026-11-16 (commit 4085e67), 1,000 data sets:

    normalised  mean -0.021 +- 0.030, standard deviation 0.962 +- 0.022, 0.051 above 1.645, 0.008 above 2.326
    absolute    mean -0.180 +- 0.029, standard deviation 0.919 +- 0.021, 0.032 above 1.645, 0.007 above 2.326

So ratios are normalised.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from excess import OnOffForestClassifier, OnOffLikelihood, on_off_likelihood
from studies.paper.calibration import ALPHA, N_BACKGROUND, draw_data_set

UNITS = ("normalised", "absolute")


def evaluate_forward(seed: int, n_trees: int) -> dict[str, OnOffLikelihood]:
    """Return the forward likelihood of one data set without a source, with ratios in both units."""
    rng = np.random.default_rng([seed, 20_251_116])  # two numbers: the study has three
    X, on, groups = draw_data_set(rng, N_BACKGROUND, 0)
    forest = OnOffForestClassifier(n_trees, ALPHA, max_depth=4, min_samples_leaf=10, random_state=seed)
    forest.set_params(threshold_tolerance=0.0, n_threshold_bootstrap=0)
    ratios: dict[str, list[np.ndarray]] = {unit: [] for unit in UNITS}
    for group in range(1, groups.max() + 1):
        before, held_out = groups < group, groups == group
        ratio = forest.fit(X[before], on[before]).likelihood_ratio(X[held_out])
        ratios["normalised"].append(ratio)
        ratios["absolute"].append(ratio * forest.calibration_.strength)
    labels = np.concatenate([on[groups == group] for group in range(1, groups.max() + 1)])
    return {unit: on_off_likelihood(labels, np.concatenate(parts), ALPHA) for unit, parts in ratios.items()}


def main() -> None:
    """Print mean, standard deviation and tails for both units."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=1000)
    parser.add_argument("--trees", type=int, default=20)
    arguments = parser.parse_args()
    seeds = track(range(arguments.data_sets), console=Console(stderr=True), description="Without a source")
    found = [evaluate_forward(seed, arguments.trees) for seed in seeds]
    table = Table(title=f"Forward likelihood without a source, {arguments.data_sets} data sets")
    for column in ("ratios", "mean", "standard deviation", "P(> 1.645)", "P(> 2.326)", "P(> 3)"):
        table.add_column(column, justify="right")
    for unit in UNITS:
        s = np.array([likelihoods[unit].significance for likelihoods in found])
        n = len(s)
        spread = f"{s.mean():+.3f} +- {s.std() / n**0.5:.3f}", f"{s.std():.3f} +- {s.std() / (2 * n) ** 0.5:.3f}"
        table.add_row(unit, *spread, *(f"{np.mean(s > limit):.4f}" for limit in (1.645, 2.326, 3.0)))
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
