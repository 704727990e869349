"""False alarms and power of the simulation check.

    python -m studies.simulation_check                        200 + 50 observations (about 20 minutes on one core)
    python -m studies.simulation_check --figure check.png     draw one observation with shifted features
    python -m studies.simulation_check --statistics           power of three statistics (some seconds)

Observed and simulated events come from the same distributions: observations without drift, about 800 On and 2,800 Off
events, 280 of them gammas. For the power, three features of simulated gammas are shifted by so many of their standard
deviations.

Result of 2026-11-18 (commit eea7458; statistics 0e826ac):

    signal      2 of 200 with a flagged feature; p < 0.1: 0.117, p < 0.05: 0.058, p < 0.01: 0.013, p < 0.001: 0.0023
    background  0 of 200; 0.110, 0.054, 0.010, 0.0000
    shifts      length +0.8: -1.01 +- 0.12, flagged in 50 of 50; width +0.5: -0.54 +- 0.09, 49 of 50;
                skewness_long +0.3: -0.29 +- 0.09, 22 of 50
    rates of p < 0.001 (Anderson-Darling, used here, chi-squared): same 0.0010 0.0010 0.0005; shifted by 0.4 standard
    deviations 0.71 0.69 0.19; 1.4 times the width 0.19 0.55 0.43
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from excess import SimulationAgreement, simulation_agreement
from excess.dataset import OnOffDataset, simulate_labelled, simulate_observation
from excess.stats._significance import difference_p_value

SHIFTS = {"length": 0.8, "width": 0.5, "skewness_long": 0.3}
"""What is added to features of simulated gammas, in their standard deviations."""


def check(
    seed: int, shifts: dict[str, float], *, n_signal: int = 400, n_simulated: int = 20_000, drift: float = 0.0
) -> SimulationAgreement:
    """Return the simulation check of one observation with the default forest."""
    table = simulate_observation(120_000, n_signal, drift=drift, random_state=seed)
    observation = OnOffDataset.from_files(table, nearby=False)
    simulated = simulate_labelled(n_simulated, n_simulated, random_state=10_000 + seed)
    is_signal = simulated["is_signal"].to_numpy()
    features = simulated[list(observation.names)].astype(np.float64)
    gammas, protons = features[is_signal].copy(), features[~is_signal]
    for name, shift in shifts.items():
        gammas[name] += shift * gammas[name].std()
    return simulation_agreement(
        observation.X,
        observation.on,
        gammas.to_numpy(),
        protons.to_numpy(),
        alpha=observation.alpha,
        groups=observation.groups,
        feature_names=observation.names,
        random_state=seed,
    )


def measure_false_alarms(seeds: range, **options: Any) -> None:
    """Print how often features are flagged, and how often p-values are small, where both agree."""
    p_values: dict[str, list[list[float]]] = {"signal": [], "background": []}
    flagged = dict.fromkeys(p_values, 0)
    pulls: list[float] = []
    for seed in seeds:
        found = check(seed, {}, **options)
        for sample, values in p_values.items():
            own = found.of_sample(sample)
            if own:
                values.append([one.p_value for one in own])
                flagged[sample] += any(one.flagged for one in own)
        pulls += [one.shift / one.shift_error for one in found.of_sample("signal")]
        if (seed + 1) % 20 == 0:
            print(f"seed {seed}: flagged so far {flagged}", flush=True)
    for sample, values in p_values.items():
        p = np.array(values)
        rates = ", ".join(f"below {level:g}: {np.mean(p < level):.4f}" for level in (0.1, 0.05, 0.01, 0.001))
        print(
            f"{sample}: {len(p)} of {len(seeds)} observations compared, {flagged[sample]} with a flagged feature; "
            f"p-values {rates}"
        )
    print(f"shift / error of the signal: mean {np.mean(pulls):.3f}, standard deviation {np.std(pulls):.3f}")


def measure_power(seeds: range) -> None:
    """Print how often shifted features are flagged, in the right order, and how often others are."""
    times = dict.fromkeys(SHIFTS, 0)
    values: dict[str, list[float]] = {name: [] for name in SHIFTS}
    in_order, others = 0, 0
    for seed in seeds:
        found = check(seed, SHIFTS).of_sample("signal")
        names = [one.feature for one in found]
        places = [names.index(name) for name in SHIFTS]
        in_order += places == sorted(places)
        for one in found:
            if one.feature in SHIFTS:
                times[one.feature] += one.flagged
                values[one.feature].append(one.shift)
        others += any(one.flagged for one in found if one.feature not in SHIFTS)
    for name, shift in SHIFTS.items():
        print(
            f"{name}: simulated {shift:+g}, observed {np.mean(values[name]):+.2f} +- {np.std(values[name]):.2f}, "
            f"flagged in {times[name]} of {len(seeds)}"
        )
    print(f"in the right order: {in_order} of {len(seeds)}; another feature flagged: {others} of {len(seeds)}")


def compare_statistics(n_repetitions: int = 4_000, n_events: int = 100, n_cuts: int = 19) -> None:
    """Print how often three statistics find a shift, or another width, of a normal distribution at p < 0.001."""
    share = np.arange(1, n_cuts + 1) / (n_cuts + 1)
    cuts = norm.ppf(share)
    covariance = n_events * (np.minimum.outer(share, share) - np.outer(share, share))
    statistics = {"Anderson-Darling": 1.0, "used here": 0.5, "chi-squared": 0.0}
    for what, mean, width in (("same", 0.0, 1.0), ("shift 0.4", 0.4, 1.0), ("width 1.4", 0.0, 1.4)):
        rng = np.random.default_rng(0)
        found = dict.fromkeys(statistics, 0)
        for _ in range(n_repetitions):
            below = np.searchsorted(np.sort(rng.normal(mean, width, n_events)), cuts) - n_events * share
            for name, exponent in statistics.items():
                found[name] += difference_p_value(below, covariance, exponent) < 0.001
        print(f"{what}: " + ", ".join(f"{name} {times / n_repetitions:.4f}" for name, times in found.items()))


def draw(path: Path) -> None:
    """Draw the worst features of one observation."""
    from excess.report import plot_simulation_agreement

    found = check(0, SHIFTS)
    print(found)
    plot_simulation_agreement(found, path=path)


def main() -> None:
    """Run the measurements selected by the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", type=Path, help="draw one observation with shifted features into this file")
    parser.add_argument("--repetitions", type=int, default=200, help="observations for false alarms")
    parser.add_argument("--power", type=int, default=50, help="observations with shifted features")
    parser.add_argument("--signal", type=int, default=400, help="gammas of an observation, 71 %% of them On")
    parser.add_argument("--simulated", type=int, default=20_000, help="simulated gammas, and protons")
    parser.add_argument("--statistics", action="store_true", help="power of three statistics")
    arguments = parser.parse_args()
    if arguments.statistics:
        compare_statistics()
        return
    if arguments.figure is not None:
        draw(arguments.figure)
        return
    options = {"n_signal": arguments.signal, "n_simulated": arguments.simulated}
    if arguments.repetitions:
        measure_false_alarms(range(arguments.repetitions), **options)
    if arguments.power:
        measure_power(range(1_000, 1_000 + arguments.power))


if __name__ == "__main__":
    main()
