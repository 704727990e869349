"""Significance with simulations that are right, and with simulations that are wrong.

    python -m studies.simulation_shift --figure shift.png     seeds 0 to 4 (about a quarter of an hour)
    python -m studies.simulation_shift --noise                also a reference of noise, and one that is the truth

Every feature of simulated gammas and of protons is shifted by so many of its standard deviations, times a normal draw,
other draws for gammas and for protons. Whole numbers are rounded, and zeros stay zeros (an image without leakage):
otherwise any shift, however small, would separate all simulated gammas from all simulated protons. A forest is trained
on these events. Its likelihood significance, leaving a night out, is compared with that of On/Off learning alone, and
of both together.

Result of 2026-11-18 (commit eea7458), supervised, On/Off and hybrid in sigma, means of seeds 0 to 4:

    shift 0     26.86 21.69 26.68        shift 0.1   16.04 21.69 21.70
    shift 0.01  22.24 21.69 24.04        shift 0.15  15.35 21.69 21.40
    shift 0.02  19.64 21.69 23.15        shift 0.3   14.16 21.69 21.51
    shift 0.05  17.30 21.69 22.29        shift 1     13.79 21.69 21.50
    On/Off 21.69, with a reference of noise 21.33; truth alone 56.23, truth as a reference 56.15
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator

from excess import OnOffForestClassifier, OnOffHybridClassifier, SignificanceThresholdClassifier, cross_val_detect
from excess.analysis import make_model
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset, simulate_labelled, simulate_observation

SHIFTS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.3, 1.0)
N_SIMULATED = 60_000
CURVES = ("supervised", "On/Off", "hybrid")


def train_on_simulation(names: tuple[str, ...], shift: float, seed: int) -> Any:
    """Return a forest that was trained on simulated events with shifted features."""
    events = simulate_labelled(N_SIMULATED, N_SIMULATED, random_state=10_000 + seed)
    X, is_gamma = events[list(names)].to_numpy(np.float64), events["is_signal"].to_numpy(np.int64)
    is_whole, is_zero, spread = (np.rint(X) == X).all(axis=0), X == 0, X.std(axis=0)
    rng = np.random.default_rng(20_000 + seed)
    for label in (0, 1):
        X[is_gamma == label] += shift * spread * rng.normal(size=X.shape[1])
    X[:, is_whole] = np.rint(X[:, is_whole])
    X[is_zero] = 0.0
    return make_model("simulation-forest", random_state=seed, n_jobs=-1).fit(X, is_gamma)


def significance(model: Any, observation: OnOffDataset, X: NDArray[Any] | None = None) -> float:
    """Return the likelihood significance of hold-out events, leaving a night out."""
    found = cross_val_detect(
        model,
        observation.X if X is None else X,
        observation.on,
        alpha=observation.alpha,
        groups=observation.groups,
        random_state=0,
    )
    return found.significance


def measure_shifts(seeds: range) -> NDArray[np.float64]:
    """Return the significance of each curve, shift and seed."""
    values = np.empty((len(CURVES), len(SHIFTS), len(seeds)))
    for column, seed in enumerate(seeds):
        observation = OnOffDataset.from_files(simulate_observation(random_state=seed), nearby=False)
        alone = significance(OnOffForestClassifier(n_jobs=-1, random_state=0), observation)
        for row, shift in enumerate(SHIFTS):
            forest = train_on_simulation(observation.names, shift, seed)
            supervised = SignificanceThresholdClassifier(FrozenEstimator(forest), cv="prefit")
            hybrid = OnOffHybridClassifier({"simulation": forest}, n_jobs=-1, random_state=0)
            values[:, row, column] = (significance(supervised, observation), alone, significance(hybrid, observation))
            own = ", ".join(f"{name} {value:.2f}" for name, value in zip(CURVES, values[:, row, column], strict=True))
            print(f"seed {seed}, shift {shift:g}: {own}", flush=True)
    return values


def draw(values: NDArray[np.float64], path: Path) -> None:
    """Draw the mean of each curve over the seeds, with its error."""
    import matplotlib.pyplot as plt

    from studies.paper.tables import BLUE, GREY, ORANGE

    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    place = np.arange(len(SHIFTS))
    for name, own, color in zip(CURVES, values, (BLUE, GREY, ORANGE), strict=True):
        error = own.std(axis=1, ddof=1) / np.sqrt(own.shape[1])
        axes.errorbar(place, own.mean(axis=1), error, marker="o", capsize=3, color=color, label=name)
    axes.set_xticks(place, [f"{shift:g}" for shift in SHIFTS])
    axes.set(xlabel="shift of simulated features / standard deviation", ylabel="significance of hold-out events")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def measure_extremes(seeds: range) -> None:
    """Print what a reference of noise costs, and what one that knows the truth gives."""
    for seed in seeds:
        table = simulate_observation(random_state=seed).rename(columns={"is_signal": "gammaness"})
        observation = OnOffDataset.from_files(table, nearby=False)
        truth = OnOffDataset.from_files(table, AnalysisConfig().with_references(["gammaness"]), nearby=False).X[:, -1]
        noise = np.random.default_rng(30_000 + seed).normal(size=len(truth))
        alone = significance(OnOffForestClassifier(n_jobs=-1, random_state=0), observation)
        own = {}
        for name, column in (("noise", noise), ("truth", truth)):
            X = np.column_stack([observation.X, column])
            hybrid = OnOffHybridClassifier({name: X.shape[1] - 1}, n_jobs=-1, random_state=0)
            own[name] = significance(hybrid, observation, X)
        known = significance(
            SignificanceThresholdClassifier(FrozenEstimator(_LastColumn()), cv="prefit"),
            observation,
            np.column_stack([observation.X, truth]),
        )
        print(
            f"seed {seed}: On/Off {alone:.2f}, with a reference of noise {own['noise']:.2f}; truth alone {known:.2f}, "
            f"truth as a reference {own['truth']:.2f}",
            flush=True,
        )


class _LastColumn(OnOffForestClassifier):
    """A classifier whose score is the last column."""

    classes_ = np.array([0, 1])

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the last column as the probability of the second class."""
        score = np.asarray(X, dtype=np.float64)[:, -1]
        return np.column_stack([1 - score, score])


def main() -> None:
    """Run the measurements selected by the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", type=Path, help="draw the three curves into this file")
    parser.add_argument("--noise", action="store_true", help="also uninformative and perfect references")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5, help="number of simulated observations")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    if arguments.noise:
        measure_extremes(seeds)
    values = measure_shifts(seeds)
    for row, shift in enumerate(SHIFTS):
        means = ", ".join(
            f"{name} {value:.2f}" for name, value in zip(CURVES, values[:, row].mean(axis=1), strict=True)
        )
        print(f"shift {shift:g}, mean of {len(seeds)} seeds: {means}")
    if arguments.figure is not None:
        draw(values, arguments.figure)


if __name__ == "__main__":
    main()
