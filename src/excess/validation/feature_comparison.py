"""Comparison of one feature of observed and simulated events: its shift, a p-value, and both distributions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess.stats.p_values import difference_p_value
from excess.validation.feature_edges import choose_edges

__all__ = ["FeatureComparison", "WeightedSamples", "compare_feature"]

_MOST_CUTS = 19
_LEAST_CUTS = 3
_EVENTS_PER_CUT = 5
"""Effective signal events that are wanted between neighbouring cuts."""
_MOST_BINS = 20
_LEAST_BINS = 5
_EVENTS_PER_BIN = 8
"""Effective signal events that are wanted in a bin of the drawn distributions."""
_TAIL = 0.005
"""Share of events on either side that is beyond the drawn range."""


@dataclass(frozen=True, eq=False)
class FeatureComparison:
    """One feature of observed and simulated events.

    Attributes
    ----------
    sample : {"signal", "background"}
        ``"signal"``: On minus scaled Off against simulated gammas, both weighted by the probability of signal.
        ``"background"``: Off against simulated protons.
    feature : str
        Name of the feature.
    shift, shift_error : float
        Mean of the observed events minus that of the simulated ones in standard deviations of the latter, and its
        standard error. Values beyond the drawn range count as its ends. NaN where the simulated feature is constant.
    p_value : float
        Probability of such a difference, or a larger one, where both have the same distribution.
    adjusted_p_value : float
        Corrected by Holm's method for the number of features of the sample.
    flagged : bool
        Whether the adjusted p-value is below 1 minus the confidence.
    missing_observed, missing_simulated : float
        Share of events without a value (NaN). These shares are compared as well.
    edges : ndarray of shape (n_bins + 1,)
        Bins of the drawn distributions. The first and the last one also hold what is beyond.
    logarithmic : bool
        Whether the bins have equal widths on a logarithmic axis.
    observed, observed_error, simulated, simulated_error : ndarray of shape (n_bins,)
        Share of events in each bin and its standard error; shares add up to 1 with those of missing values. Observed
        shares of the signal may be negative, because Off is subtracted.
    """

    sample: str
    feature: str
    shift: float
    shift_error: float
    p_value: float
    adjusted_p_value: float
    flagged: bool
    missing_observed: float
    missing_simulated: float
    edges: FloatArray
    logarithmic: bool
    observed: FloatArray
    observed_error: FloatArray
    simulated: FloatArray
    simulated_error: FloatArray

    def to_dict(self) -> dict[str, Any]:
        """Return all values as plain JSON types; NaN becomes None."""
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in asdict(self).items()
        }
        return {name: None if value != value else value for name, value in plain.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> FeatureComparison:
        """Return the comparison whose ``to_dict`` this is."""
        known = {field.name: values[field.name] for field in fields(cls)}
        arrays = {name: np.array(value, dtype=np.float64) for name, value in known.items() if isinstance(value, list)}
        missing = {name: float("nan") for name, value in known.items() if value is None}
        return cls(**(known | arrays | missing))


@dataclass(frozen=True, eq=False)
class WeightedSamples:
    """Weights of observed and simulated events, the same for all features.

    The events of a fold are weighted by a function of their features that does not depend on them. Simulated events are
    weighted by the functions of all folds.

    Attributes
    ----------
    sample : {"signal", "background"}
        What is compared.
    fold : ndarray of shape (n_observed,)
        Number of the fold of each observed event.
    count : ndarray of shape (n_observed,)
        What an observed event adds to the counts: 1 if On, ``-alpha`` if Off.
    weight : ndarray of shape (n_observed,)
        Weight of each observed event.
    background_variance : ndarray of shape (n_observed,)
        Variance of the subtracted background for which an event stands: ``alpha + alpha^2`` if Off, which is that of
        the background among On and of Off itself; 0 if On.
    simulated_weight : ndarray of shape (n_folds, n_simulated)
        Weight of each simulated event in each fold.
    share : ndarray of shape (n_simulated,)
        Share of each simulated event in all; they add up to 1.
    """

    sample: str
    fold: NDArray[np.intp]
    count: FloatArray
    weight: FloatArray
    background_variance: FloatArray
    simulated_weight: FloatArray
    share: FloatArray

    @cached_property
    def excess(self) -> tuple[float, float]:
        """Weighted excess of the observed events, and its standard error."""
        terms = self.count * self.weight
        return float(terms.sum()), float(np.sqrt(np.sum(terms**2)))

    @cached_property
    def strengths(self) -> FloatArray:
        """Number of signal events in each fold, by its weighted excess; 0 where no simulated event has a weight."""
        # a sum, not a product, whose last digits depend on the number of threads
        expected = np.sum(self.simulated_weight * self.share, axis=1)
        found = np.bincount(self.fold, self.count * self.weight, len(expected))
        return np.divide(found, expected, out=np.zeros(len(expected)), where=expected > 0)

    @property
    def n_effective(self) -> float:
        """Number of signal events without any background that would be known as well as the excess."""
        excess, error = self.excess
        return 0.0 if error == 0 else max(excess, 0.0) ** 2 / error**2


def compare_feature(
    name: str, observed: FloatArray, simulated: FloatArray, samples: WeightedSamples
) -> FeatureComparison:
    """Compare one feature; the p-value is not adjusted yet.

    Parameters
    ----------
    name : str
        Of the feature.
    observed : ndarray of shape (n_observed,)
        Values of the observed events.
    simulated : ndarray of shape (n_simulated,)
        Values of the simulated events.
    samples : WeightedSamples
        Weights of all these events.
    """
    strength = np.maximum(samples.strengths, 0.0)
    joint_weight = samples.share * (strength @ samples.simulated_weight)
    cuts = _choose_cuts(simulated, joint_weight, samples.n_effective)
    p_value = _p_value(_Binned.of(observed, simulated, cuts, samples))
    edges, logarithmic = _choose_edges(observed, simulated, joint_weight, samples)
    shift, error = _shift(observed, simulated, (edges[0], edges[-1]), samples)
    drawn = _Binned.of(observed, simulated, edges[1:-1], samples)
    seen, seen_error, expected, expected_error = drawn.shares()
    missing = int(drawn.missing)
    return FeatureComparison(
        sample=samples.sample,
        feature=name,
        shift=shift,
        shift_error=error,
        p_value=p_value,
        adjusted_p_value=p_value,
        flagged=False,
        missing_observed=float(seen[-1]) if missing else 0.0,
        missing_simulated=float(expected[-1]) if missing else 0.0,
        edges=edges,
        logarithmic=logarithmic,
        observed=seen[: len(seen) - missing],
        observed_error=seen_error[: len(seen) - missing],
        simulated=expected[: len(seen) - missing],
        simulated_error=expected_error[: len(seen) - missing],
    )


class _Binned(NamedTuple):
    """Sums of weights in the bins between cuts; missing values have the last bin."""

    observed: FloatArray  # (folds, bins), counts times weights
    observed_variance: FloatArray  # (folds, bins), of what was observed
    null_variance: FloatArray  # (folds, bins), of what is expected
    simulated: FloatArray  # (folds, bins), mean weight
    simulated_products: FloatArray  # (folds, folds, bins), of the influence of simulated events
    strengths: FloatArray  # (folds,)
    missing: bool

    @classmethod
    def of(cls, observed: FloatArray, simulated: FloatArray, cuts: FloatArray, samples: WeightedSamples) -> _Binned:
        """Fill the bins ``x <= cuts[0]``, ``cuts[0] < x <= cuts[1]``, ..., ``cuts[-1] < x``."""
        missing = bool(np.isnan(observed).any() or np.isnan(simulated).any())
        # NaN is sorted behind all numbers, so a cut at infinity divides it from the largest
        cuts = np.append(cuts, np.inf) if missing else cuts
        n_bins, n_folds = len(cuts) + 1, len(samples.simulated_weight)
        place = samples.fold * n_bins + np.searchsorted(cuts, observed, side="left")

        def fill(weights: FloatArray) -> FloatArray:
            sums = np.bincount(place, weights, n_folds * n_bins)
            return np.asarray(sums, dtype=np.float64).reshape(n_folds, n_bins)

        own = np.searchsorted(cuts, simulated, side="left")
        share, weight, strength = samples.share, samples.simulated_weight, samples.strengths
        mean = np.array([np.bincount(own, share * one, n_bins) for one in weight])
        square = np.array([np.bincount(own, share * one**2, n_bins) for one in weight])
        products = np.empty((n_folds, n_folds, n_bins))
        for i in range(n_folds):
            for j in range(i + 1):
                terms = np.bincount(own, share**2 * weight[i] * weight[j], n_bins)
                products[i, j] = products[j, i] = strength[i] * strength[j] * terms
        counted = fill(samples.count * samples.weight)
        positive = fill(np.maximum(samples.count, 0) * samples.weight**2)
        negative = fill(np.minimum(samples.count, 0) ** 2 * samples.weight**2)
        expected = np.maximum(strength, 0.0)[:, None] * square
        # where nothing is simulated, no variance would be expected: there, what was observed is taken
        signal_variance = np.where(square > 0, expected, positive)
        background = fill(samples.background_variance * samples.weight**2)
        return cls(counted, positive + negative, background + signal_variance, mean, products, strength, missing)

    def shares(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return observed and simulated shares of the bins, each with its standard error."""
        total = self.observed.sum()
        seen = self.observed.sum(axis=0) / total
        # the error of a share: an event moves the share of its bin up, and those of all others down
        inside = self.observed_variance.sum(axis=0)
        variance = (1 - 2 * seen) * inside + seen**2 * inside.sum()
        expected = np.maximum(self.strengths, 0.0) @ self.simulated
        expected_total = expected.sum()
        expected = expected / expected_total
        inside = self.simulated_products.sum(axis=(0, 1))
        expected_variance = ((1 - 2 * expected) * inside + expected**2 * inside.sum()) / expected_total**2
        return (
            seen,
            np.sqrt(np.maximum(variance, 0.0)) / abs(total),
            expected,
            np.sqrt(np.maximum(expected_variance, 0.0)),
        )


def _p_value(binned: _Binned) -> float:
    """Return the p-value of the cumulated differences at all cuts together.

    For each fold and cut, the weighted events below the cut are compared with the simulated share of all weighted
    events of the fold: the number of signal events is free in each fold. The differences of all folds are added.
    """
    n_bins = binned.observed.shape[1]
    used = np.flatnonzero(binned.simulated.sum(axis=1) > 0)
    if n_bins < 2 or len(used) == 0:
        return 1.0
    below = np.triu(np.ones((n_bins, n_bins - 1)))  # 1 where the events of a bin are below a cut
    difference = np.zeros(n_bins - 1)
    covariance = np.zeros((n_bins - 1, n_bins - 1))
    centred = {f: below - binned.simulated[f] @ below / binned.simulated[f].sum() for f in used}
    for f in used:
        difference += binned.observed[f] @ centred[f]
        covariance += centred[f].T @ (binned.null_variance[f][:, None] * centred[f])
        for g in used:
            covariance += centred[f].T @ (binned.simulated_products[f, g][:, None] * centred[g])
    return difference_p_value(difference, covariance)


def _shift(
    observed: FloatArray, simulated: FloatArray, limits: tuple[float, float], samples: WeightedSamples
) -> tuple[float, float]:
    """Return the difference of the means of known values in simulated standard deviations, and its error."""
    known, simulated_known = ~np.isnan(observed), ~np.isnan(simulated)
    x, y = np.clip(observed[known], *limits), np.clip(simulated[simulated_known], *limits)
    weight = samples.simulated_weight[:, simulated_known] * samples.share[simulated_known]
    total = weight.sum(axis=1)
    used = total > 0
    mean = np.divide(weight @ y, total, out=np.zeros(len(total)), where=used)
    fold = samples.fold[known]
    terms = (samples.count * samples.weight)[known] * used[fold]
    excess = terms.sum()
    strength = samples.strengths
    joint = np.maximum(strength, 0.0)[:, None] * weight
    spread = np.sqrt(np.sum(joint * (y - mean[:, None]) ** 2) / joint.sum()) if joint.any() else 0.0
    if excess == 0 or spread <= 1e-12 * max(map(abs, limits)):
        return float("nan"), float("nan")
    shift = np.sum(terms * (x - mean[fold])) / excess
    of_observed = np.sum((terms * (x - mean[fold] - shift)) ** 2)
    of_simulated = np.sum((strength @ (weight * (y - mean[:, None]))) ** 2)
    return float(shift / spread), float(np.sqrt(of_observed + of_simulated) / abs(excess) / spread)


def _choose_cuts(simulated: FloatArray, weight: FloatArray, n_effective: float) -> FloatArray:
    """Return values between which the weighted simulated events are divided equally, more of them for more events."""
    n_cuts = int(np.clip(n_effective / _EVENTS_PER_CUT, _LEAST_CUTS, _MOST_CUTS))
    cuts = np.unique(_quantiles(simulated, weight, np.arange(1, n_cuts + 1) / (n_cuts + 1)))
    if 0 < len(cuts) < n_cuts:
        # some values are frequent: observed events below all of them are to be seen, too
        cuts = np.append(np.nextafter(cuts[0], -np.inf), cuts)
    return cuts


def _choose_edges(
    observed: FloatArray, simulated: FloatArray, weight: FloatArray, samples: WeightedSamples
) -> tuple[FloatArray, bool]:
    """Return edges of bins that enclose almost all weighted events, and whether they are logarithmic."""
    levels = np.array([_TAIL, 0.5, 1 - _TAIL])
    seen = _quantiles(observed, np.maximum(samples.count, 0) * samples.weight, levels)
    expected = _quantiles(simulated, weight, levels)
    both = np.concatenate([seen, expected])
    if len(both) == 0:
        return np.array([0.0, 1.0]), False
    low, high = float(both.min()), float(both.max())
    middle = float(np.median(expected if len(expected) else seen))
    n_bins = int(np.clip(samples.n_effective / _EVENTS_PER_BIN, _LEAST_BINS, _MOST_BINS))
    values = np.concatenate([observed[~np.isnan(observed)], simulated[~np.isnan(simulated)]])
    return choose_edges(low, middle, high, whole=bool((values == np.rint(values)).all()), n_bins=n_bins)


def _quantiles(values: FloatArray, weight: FloatArray, levels: FloatArray) -> FloatArray:
    """Return weighted quantiles of the values that are known, each of them one of the values."""
    known = ~np.isnan(values) & (weight > 0)
    if not known.any():
        return np.empty(0)
    order = np.argsort(values[known], kind="stable")
    ordered, summed = values[known][order], np.cumsum(weight[known][order])
    return ordered[np.minimum(np.searchsorted(summed, levels * summed[-1]), len(ordered) - 1)]
