"""One model from two observations whose exposure ratios differ: weights of events, with and without a source.

    python -m studies.several_observations                                   100 data sets with a source, 300 without
    python -m studies.several_observations --alphas 0.1 2 --n-off 4000 500   other exposure ratios

Both observations have six features, three of which separate signal from background. The last one differs between the
observations, as a zenith distance would, by two standard deviations. In the first table, models of 60 trees learn from
one data set and are evaluated on another: significances of cut and likelihood (means), the change against the mean
exposure ratio with its error, and the importance of the last feature. In the second table there is no source, and three
nights of each observation are evaluated forward: mean, standard deviation and share above 1.645, nominal 0.05. The
cut is also given as Li & Ma's formula has it with one mean ratio.

Result of 2026-11-17 (commits eebb89f and c177f82), cut and likelihood in sigma:

    mean alpha 2.54 3.30, Off weighted 6.94 8.18, On and Off weighted 6.85 8.18, a model of each 5.85 7.26
    with alphas of 0.1 and 2: 1.60 1.76, 5.01 6.00, 5.30 6.31, 3.97 5.36
    without a source, weighted: likelihood 0.007, 0.990 and 4.0 %; cut -0.016, 0.943 and 3.0 %

So On and Off events are weighted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess import OnOffCounts, OnOffForestClassifier, cross_val_detect, exposure_weights, on_off_likelihood
from excess.detection._result import count_events

N_NIGHTS = 3


class DataSet(NamedTuple):
    """Events of all observations."""

    X: NDArray[Any]
    y: NDArray[Any]
    alpha: NDArray[Any]
    observation: NDArray[Any]


class WithMeanAlpha(OnOffForestClassifier):
    """The forest that gets the mean exposure ratio, and no weights."""

    _weight_parameter = None


def draw(rng: Any, n_off: Sequence[int], alphas: Sequence[float], share: float) -> DataSet:
    """Draw observations; ``share`` is the number of signal events for each background event in On."""
    parts = []
    for number, (mean, alpha) in enumerate(zip(n_off, alphas, strict=True)):
        n_background, n_signal = rng.poisson(alpha * mean), rng.poisson(share * alpha * mean)
        y = np.repeat([0, 1], [rng.poisson(mean), n_background + n_signal])
        X = rng.normal(size=(len(y), 6))
        X[len(y) - n_signal :, :3] += 1.2
        X[:, -1] += 2 * number
        parts.append((X, y, np.full(len(y), alpha), np.full(len(y), number)))
    return DataSet(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def weigh_off(on: NDArray[Any], alpha: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Return weights of Off events alone."""
    mean = alpha[~on].mean()
    return np.where(on, 1.0, alpha / mean), mean


def fit_with(weigh: Callable[..., Any], seed: int, seen: DataSet) -> Any:
    """Train one forest on all events."""
    weights, alpha = weigh(seen.y == 1, seen.alpha)
    return OnOffForestClassifier(60, alpha, random_state=seed).fit(seen.X, seen.y, sample_weight=weights)


def fit_each(seed: int, seen: DataSet) -> list[Any]:
    """Train a forest on each observation."""
    found = []
    for number in np.unique(seen.observation):
        own = seen.observation == number
        model = OnOffForestClassifier(60, seen.alpha[own][0], random_state=seed)
        found.append(model.fit(seen.X[own], seen.y[own]))
    return found


def evaluate(models: list[Any], new: DataSet) -> list[float]:
    """Return cut, likelihood and the importance of the last feature; one model, or one for each observation."""
    ratio, selected = np.empty(len(new.y)), np.empty(len(new.y), dtype=bool)
    for number in np.unique(new.observation):
        own = new.observation == number
        model = models[number % len(models)]
        ratio[own], selected[own] = model.likelihood_ratio(new.X[own]) * new.alpha[own], model.predict(new.X[own]) == 1
    cut = count_events(new.y == 1, selected, new.alpha).significance
    likelihood = on_off_likelihood(new.y, ratio, new.alpha).significance
    return [cut, likelihood, np.mean([model.feature_importances_[-1] for model in models])]


def with_source(n_sets: int, n_off: Sequence[int], alphas: Sequence[float], share: float) -> None:
    """Print the first table."""
    rows: dict[str, list[list[float]]] = {}
    for seed in range(n_sets):
        rng = np.random.default_rng([1, seed])
        seen, new = draw(rng, n_off, alphas, share), draw(rng, n_off, alphas, share)
        mean = lambda on, alpha: (None, alpha[~on].mean())  # noqa: E731
        schemes = {"mean alpha": mean, "Off weighted": weigh_off, "On and Off weighted": exposure_weights}
        for name, weigh in schemes.items():
            rows.setdefault(name, []).append(evaluate([fit_with(weigh, seed, seen)], new))
        rows.setdefault("a model of each", []).append(evaluate(fit_each(seed, seen), new))
    print(f"\n{n_sets} data sets, Off {tuple(n_off)}, alpha {tuple(alphas)}, {share} signal per background event in On")
    print("training                 cut      change  likelihood      change  importance")
    base = np.array(rows["mean alpha"])
    for name, values in rows.items():
        found = np.array(values)
        (cut, likelihood, importance), change = found.mean(axis=0), found - base
        errors = change.std(axis=0, ddof=1) / np.sqrt(n_sets)
        texts = [f"{change[:, i].mean():+.2f}+-{errors[i]:.2f}" for i in (0, 1)]
        print(f"{name:20}{cut:8.2f} {texts[0]:>11}{likelihood:12.2f} {texts[1]:>11}{importance:12.2f}")


def without_source(n_sets: int, n_off: Sequence[int], alphas: Sequence[float]) -> None:
    """Print the second table."""
    rows: dict[tuple[str, str], list[float]] = {}
    for seed in range(n_sets):
        data = draw(np.random.default_rng([2, seed]), n_off, alphas, 0.0)
        night = np.random.default_rng([3, seed]).integers(0, N_NIGHTS, len(data.y))
        models = {
            "mean alpha": WithMeanAlpha(20, threshold_tolerance=0.0, n_threshold_bootstrap=0, random_state=seed),
            "weighted": OnOffForestClassifier(20, threshold_tolerance=0.0, n_threshold_bootstrap=0, random_state=seed),
        }
        found = cross_val_detect(models, data.X, data.y, alpha=data.alpha, groups=night, strategy="forward")
        for name, one in found.items():
            counts = one.counts
            mean_ratio = OnOffCounts(counts.n_on, counts.n_off, counts.alpha).significance
            values = {
                "likelihood": one.likelihood.significance,
                "cut": counts.significance,
                "cut, one ratio": mean_ratio,
            }
            for statistic, value in values.items():
                rows.setdefault((name, statistic), []).append(value)
    print(f"\n{n_sets} data sets without a source, Off {tuple(n_off)}, alpha {tuple(alphas)}, forward")
    print("training    statistic          mean  deviation  P(> 1.645)")
    for (name, statistic), values in rows.items():
        high = np.mean(np.array(values) > 1.645)
        print(f"{name:12}{statistic:15}{np.mean(values):8.3f}{np.std(values, ddof=1):11.3f}{high:12.3f}")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with-source", type=int, default=100, help="data sets with a source")
    parser.add_argument("--without-source", type=int, default=300, help="data sets without one")
    parser.add_argument("--n-off", type=int, nargs="+", default=[3000, 1000])
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.2, 1.0])
    parser.add_argument("--share", type=float, default=0.1)
    given = parser.parse_args()
    if given.with_source:
        with_source(given.with_source, given.n_off, given.alphas, given.share)
    if given.without_source:
        without_source(given.without_source, given.n_off, given.alphas)


if __name__ == "__main__":
    main()
