"""False alarms if the exposure ratio differs from night to night: one alpha for all, and one per run.

    python -m studies.varying_alpha                     200 observations without a source, about ten minutes on one core
    python -m studies.varying_alpha --observations 20   a quick look

Each observation has six nights. The source is at another offset from the pointing in each, so 4, 5 or 6 reflected Off
regions fit: alpha is 0.25, 0.2 or 0.167. The gain of the camera changes from night to night, and one feature follows
it. There is no source. A forest searches for one with the exposure ratio of each run, as found by
`OnOffDataset.from_files`, and with one mean ratio for all. Printed are mean and standard deviation of the
significances, the shares beyond 1.645 (nominal 0.05) and 2.33 (nominal 0.01) with their binomial errors, and how often
the warning about the ratio of On to Off by group was given.

Result of 2026-11-18 (commit b470969), mean, standard deviation, above 1.645 and above 2.33; On 761, Off 3,794:

    per run  forward likelihood -0.08 1.00 0.040 0.010        one  forward likelihood  0.20 1.01 0.060 0.010
    per run  forward cut        -0.12 0.88 0.025 0.000        one  forward cut         0.01 1.21 0.095 0.015
    per run  pooled likelihood   0.07 1.12 0.100 0.020        one  pooled likelihood   0.03 1.16 0.090 0.035
    per run  pooled cut          0.03 0.99 0.065 0.015        one  pooled cut         -0.19 1.22 0.070 0.030
    warnings: per run 0 of 200, one 12 of 200
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from excess import OnOffForestClassifier
from excess.analysis import detect
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset
from excess.dataset._regions import turn_about, unit_vectors

SOURCE = (83.63, 22.01)
OFFSETS = (0.3, 0.36, 0.41)
"""Offsets of the source from the pointing in deg, for 4, 5 and 6 Off regions."""
CONFIG = AnalysisConfig(
    features=["width", "length", "size", "gain"],
    derived_features={},
    quality_cuts=[],
    groups="night",
    regions={"source_ra": SOURCE[0], "source_dec": SOURCE[1], "n_regions": "auto"},
)


def draw_night(rng: Any, night: int, offset: float, n_events: int) -> pd.DataFrame:
    """Return the events of a night: background whose density falls with the offset from the pointing."""
    source = unit_vectors(*SOURCE)
    east = np.cross([0.0, 0.0, 1.0], source)
    axis = turn_about(source, turn_about(east / np.linalg.norm(east), source, np.radians(offset)), rng.uniform(0, 6.28))
    sideways = np.cross(axis, source)
    distance = np.radians(0.6 * np.sqrt(-2 * np.log(1 - rng.uniform(0, 0.9, n_events))))
    start = turn_about(sideways / np.linalg.norm(sideways), axis, distance)
    event = turn_about(axis, start, rng.uniform(0, 2 * np.pi, n_events))
    x, y, z = np.concatenate([event, axis[np.newaxis]]).T
    ra, dec = np.degrees(np.arctan2(y, x)) % 360, np.degrees(np.arcsin(z))
    gain = rng.normal(0, 2)
    features = rng.normal(size=(n_events, 4)) + np.array([0, 0, 0, gain])
    table = pd.DataFrame(features, columns=list(CONFIG.features))
    return table.assign(ra=ra[:-1], dec=dec[:-1], pointing_ra=ra[-1], pointing_dec=dec[-1], night=20131101 + night)


def draw(seed: int, n_events: int) -> OnOffDataset:
    """Return an observation of six nights."""
    rng = np.random.default_rng(seed)
    offsets = rng.permutation([*OFFSETS, *OFFSETS])
    nights = [draw_night(rng, night, offset, n_events) for night, offset in enumerate(offsets)]
    return OnOffDataset.from_files(pd.concat(nights, ignore_index=True), CONFIG, nearby=False)


def with_one_alpha(observation: OnOffDataset) -> OnOffDataset:
    """Return the observation as if all runs had the mean exposure ratio."""
    return replace(observation, event_alpha=None, regions=replace(observation.regions, exposure=None))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--observations", type=int, default=200)
    parser.add_argument("--events", type=int, default=4000, help="events of a night, regions or not")
    parser.add_argument("--trees", type=int, default=40)
    given = parser.parse_args()
    found: dict[tuple[str, str], list[float]] = {}
    warned = {"per run": 0, "one": 0}
    numbers = []
    for seed in range(given.observations):
        observation = draw(seed, given.events)
        numbers.append((observation.counts.n_on, observation.counts.n_off))
        for kind, own in (("per run", observation), ("one", with_one_alpha(observation))):
            model = OnOffForestClassifier(given.trees, min_samples_leaf=40, random_state=seed)
            run = detect(own, {"forest": model}, null_tests=False, seed=seed, n_jobs=1)
            pooled, forward = run.detections["forest"], run.forward["forest"]
            values = {"no cut": pooled.uncut.significance}
            for name, outcome in (("pooled", pooled.outcome), ("forward", forward)):
                values |= {f"{name} {statistic}": value for statistic, value in outcome.significances.items()}
            for name, value in values.items():
                found.setdefault((kind, name), []).append(value)
            warned[kind] += "alpha-by-group" in {one.code for one in run.verdict.warnings}
    on, off = np.mean(numbers, axis=0)
    print(f"{given.observations} observations without a source, mean On {on:.0f}, Off {off:.0f}")
    print(f"{'alpha':8} {'significance':20} {'mean':>6} {'s.d.':>5} {'> 1.645':>15} {'> 2.33':>15}")
    for (kind, name), values in found.items():
        cells = [_share(np.mean(np.array(values) > limit), len(values)) for limit in (1.645, 2.33)]
        print(f"{kind:8} {name:20} {np.mean(values):6.2f} {np.std(values, ddof=1):5.2f} {cells[0]:>15} {cells[1]:>15}")
    for kind, number in warned.items():
        print(f"{kind:8} ratio by group: {number} of {given.observations} observations have the warning")


def _share(share: float, n: int) -> str:
    return f"{share:.3f} +- {np.sqrt(max(share, 1 / n) * (1 - share) / n):.3f}"


if __name__ == "__main__":
    main()
