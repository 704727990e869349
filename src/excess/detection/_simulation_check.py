"""Comparison of simulated and observed events: which features differ, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from excess._utils import checks
from excess._utils.checks import FloatArray
from excess._utils.errors import with_error
from excess._utils.threads import map_threaded, n_threads
from excess.detection._cross_validation import Events, check_events, check_models, check_references, reseeded
from excess.detection._histograms import choose_edges
from excess.estimators._base import fit_part, fold_maker, score_events, takes_groups, with_alpha
from excess.estimators._random_forest import OnOffForestClassifier
from excess.stats._noise import p_minus_from_alpha
from excess.stats._significance import difference_p_value, holm

if TYPE_CHECKING:
    import pandas as pd


_LEAST_EXCESS = 3.0  # minimum weighted excess, in standard errors, to compare the signal
_N_FOLDS = 5
_SAMPLES = (("signal", "simulated gammas", "excess"), ("background", "simulated protons", "Off"))

_ROWS = 5  # number of features printed per sample
_LEAST_CUTS, _MOST_CUTS = 3, 19
_EVENTS_PER_CUT = 5  # effective signal events between neighbouring cuts
_LEAST_BINS, _MOST_BINS = 5, 20
_EVENTS_PER_BIN = 8  # effective signal events per bin of the plotted distributions
_TAIL = 0.005  # fraction of events on either side outside the plotted range


@dataclass(frozen=True, eq=False)
class FeatureComparison:
    """Comparison of one feature of observed and simulated events: shift, p-value, and both distributions."""

    sample: str  # "signal": On minus scaled Off and gammas, weighted by P(signal); "background": Off and protons
    feature: str
    shift: float  # of the mean, in simulated standard deviations; NaN if the simulated feature is constant
    shift_error: float
    p_value: float
    adjusted_p_value: float  # Holm's correction for the number of features of the sample
    flagged: bool  # whether the adjusted p-value is below 1 minus the confidence
    missing_observed: float  # fraction of events without a value (NaN), which is compared as well
    missing_simulated: float
    edges: FloatArray  # of the plotted distributions; the first and the last bin include all values beyond
    logarithmic: bool
    observed: FloatArray  # fractions; may be negative for the signal, because Off is subtracted
    observed_error: FloatArray
    simulated: FloatArray
    simulated_error: FloatArray

    def to_dict(self) -> dict[str, Any]:
        """Return all values as JSON; NaN becomes None."""
        plain = {name: own.tolist() if isinstance(own, np.ndarray) else own for name, own in vars(self).items()}
        return {name: None if own != own else own for name, own in plain.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> FeatureComparison:
        """Create a comparison from the result of `to_dict`."""
        known = {field.name: values[field.name] for field in fields(cls)}
        arrays = {name: np.array(value, dtype=np.float64) for name, value in known.items() if isinstance(value, list)}
        missing = {name: float("nan") for name, value in known.items() if value is None}
        return cls(**(known | arrays | missing))


@dataclass(frozen=True, eq=False)
class SimulationAgreement:
    """Agreement of simulated events with observed ones, feature by feature.

    Attributes
    ----------
    comparisons : tuple of FeatureComparison
        Features of the signal, worst first, then those of the background, worst first.
    confidence : float
        Probability that no feature of a sample is flagged if all of them agree.
    n_on, n_off, n_simulated_signal, n_simulated_background : int
        Number of observed and simulated events; 0 protons if none were given.
    excess, excess_error : float
        Sum of the signal probabilities of On events minus alpha times that of Off events, and its standard error.
    remark : str or None
        Reason for a missing comparison of the signal; None if it was compared.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import OnOffTreeClassifier, simulation_agreement
    >>> rng = np.random.default_rng(0)
    >>> X, on = rng.normal(size=(2000, 2)), np.arange(2000) % 2
    >>> X[on == 1] += rng.choice([0, 2], size=(1000, 1))
    >>> gammas, protons = rng.normal(loc=2, size=(1000, 2)), rng.normal(loc=[0, 0.5], size=(1000, 2))
    >>> tree = OnOffTreeClassifier(max_depth=3)
    >>> simulation_agreement(X, on, gammas, protons, alpha=0.5, estimator=tree, random_state=0).flagged
    ('x1',)
    """

    comparisons: tuple[FeatureComparison, ...]
    confidence: float
    n_on: int
    n_off: int
    n_simulated_signal: int
    n_simulated_background: int
    excess: float
    excess_error: float
    remark: str | None = None

    def of_sample(self, sample: str) -> tuple[FeatureComparison, ...]:
        """Return the comparisons of ``"signal"`` or of ``"background"``, worst first."""
        return tuple(one for one in self.comparisons if one.sample == sample)

    @property
    def table(self) -> pd.DataFrame:
        """One row per sample and feature: shift, p-values, whether it is flagged, shares of missing values."""
        import pandas as pd

        columns = [one.name for one in fields(FeatureComparison)]
        columns = columns[: columns.index("edges")]  # all but the distributions
        return pd.DataFrame([[getattr(one, name) for name in columns] for one in self.comparisons], columns=columns)

    @property
    def flagged(self) -> tuple[str, ...]:
        """Names of the features that differ in either sample, without duplicates, worst of the signal first."""
        return tuple(dict.fromkeys(one.feature for one in self.comparisons if one.flagged))

    @property
    def verdict(self) -> str:
        """Result in one sentence per sample."""
        return " ".join(self._sentences())

    def to_dict(self) -> dict[str, Any]:
        """Return all values as JSON; inverse of `from_dict`."""
        return vars(self) | {"comparisons": [one.to_dict() for one in self.comparisons]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SimulationAgreement:
        """Create an agreement from the result of `to_dict`."""
        comparisons = tuple(FeatureComparison.from_dict(one) for one in values["comparisons"])
        return cls(**(values | {"comparisons": comparisons}))

    def __str__(self) -> str:
        """Return the samples, their worst features, and the verdict as text."""
        lines = [f"weighted excess {with_error(self.excess, self.excess_error)} (On {self.n_on}, Off {self.n_off})"]
        numbers = self.n_simulated_signal, self.n_simulated_background
        for (sample, what, observed), n_simulated in zip(_SAMPLES, numbers, strict=True):
            own = self.of_sample(sample)
            if not own:
                continue
            lines.append(f"{observed} against {what} ({n_simulated}):")
            width = max(len(one.feature) for one in own[:_ROWS])
            for one in own[:_ROWS]:
                shift = f"shift {with_error(one.shift, one.shift_error, '+.2f')}"
                p = f"p = {one.p_value:.2g}, adjusted {one.adjusted_p_value:.2g}"
                lines.append(f"  {one.feature:{width}}  {shift}  {p}{'  differs' if one.flagged else ''}")
            if len(own) > _ROWS:
                lines.append(f"  and {len(own) - _ROWS} more")
        return "\n".join([*lines, *self._sentences()])

    def _sentences(self) -> list[str]:
        sentences = [] if self.remark is None else [self.remark]
        for sample, what, _ in _SAMPLES:
            own = self.of_sample(sample)
            names = [one.feature for one in own if one.flagged]
            if names:
                more = len(names) - _ROWS
                some = ", ".join(names[:_ROWS]) + (f" and {more} more" if more > 0 else "")
                sentences.append(f"{len(names)} of {len(own)} features of {what} differ from observed ones: {some}.")
            elif own:
                sentences.append(f"No feature of {what} differs from observed ones.")
        return sentences


def simulation_agreement(
    X: Any,
    y: ArrayLike,
    simulated_signal: Any,
    simulated_background: Any = None,
    *,
    alpha: ArrayLike,
    estimator: Any = None,
    groups: ArrayLike | None = None,
    cv: Any = None,
    signal_weight: ArrayLike | None = None,
    background_weight: ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
    confidence: float = 0.99,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> SimulationAgreement:
    """Compare simulated gammas with the excess, and simulated protons with Off events, feature by feature.

    On minus Off times alpha and the simulated gammas are weighted by the signal probability of classifiers trained on
    other events; Off and simulated protons are not weighted.

    Parameters
    ----------
    X, y : array-like of shape (n_events, n_features) and of shape (n_events,)
        Observed events, and noisy labels of two classes; the larger one in sorted order is On.
    simulated_signal : array-like of shape (n_gammas, n_features)
        Simulated gammas not used to train ``estimator``, after the cuts of the observed events.
    simulated_background : array-like of shape (n_protons, n_features) or None, default=None
        Simulated protons; by default the background is not compared.
    alpha : float or array-like of shape (n_events,)
        Exposure ratio On/Off, common to all events or one per event.
    estimator : classifier or None, default=None
        Provides the signal probability; by default an `OnOffForestClassifier`. It is cloned.
    groups, cv
        As for `cross_val_detect`; by default five folds, of whole groups if there are groups.
    signal_weight, background_weight : array-like or None, default=None
        Number of events represented by each simulated event, for example for the source spectrum; by default 1.
    feature_names : sequence of str or None, default=None
        Names of the features; by default the columns of a DataFrame, or x0, x1, ...
    confidence : float, default=0.99
        Probability that no feature of a sample is flagged if all of them agree, with Holm's correction.
    n_jobs, random_state
        As for `cross_val_detect`.

    Returns
    -------
    SimulationAgreement
        Table of features, worst first; without the signal if its weighted excess is below three standard errors.

    Notes
    -----
    The p-value refers to the cumulative differences at up to 19 cuts, with their covariance.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from excess import OnOffTreeClassifier, simulation_agreement
    >>> rng = np.random.default_rng(0)
    >>> def draw(n, width):
    ...     return pd.DataFrame({"width": rng.normal(width, 1, n), "length": rng.normal(0, 1, n)})
    >>> off, background, gammas = draw(3000, 0), draw(600, 0), draw(400, -2)
    >>> events, on = pd.concat([off, background, gammas]), np.repeat([0, 1], [3000, 1000])
    >>> simulated = draw(5000, -2) + [0, 0.5]
    >>> tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=50)
    >>> print(simulation_agreement(events, on, simulated, draw(5000, 0), alpha=1 / 5, estimator=tree, random_state=0))
    weighted excess 156.8 +- 9.9 (On 1000, Off 3000)
    excess against simulated gammas (5000):
      length  shift -0.45 +- 0.07  p = 3.7e-12, adjusted 7.3e-12  differs
      width   shift -0.12 +- 0.06  p = 0.16, adjusted 0.16
    Off against simulated protons (5000):
      width   shift -0.03 +- 0.02  p = 0.44, adjusted 0.88
      length  shift +0.02 +- 0.02  p = 0.78, adjusted 0.88
    1 of 2 features of simulated gammas differ from observed ones: length.
    No feature of simulated protons differs from observed ones.
    """
    models = check_models(OnOffForestClassifier() if estimator is None else estimator)
    if len(models) != 1 or "" not in models:
        raise TypeError("estimator must be a single classifier, got a dict")
    confidence = checks.as_probability("confidence", confidence)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence:g}")
    events = check_events(X, y, alpha, groups)
    observed = _as_features("X", X)
    names = _feature_names(X, observed.shape[1], feature_names)
    signal = _Simulated.of("simulated_signal", simulated_signal, names, X, "signal_weight", signal_weight)
    background, given = None, ("background_weight", background_weight)
    if simulated_background is not None:
        background = _Simulated.of("simulated_background", simulated_background, names, X, *given)
    elif background_weight is not None:
        raise ValueError("background_weight is given without simulated_background")

    threads, n_off = n_threads(n_jobs), int(np.count_nonzero(~events.on))
    samples = _weigh_signal(models[""], events, signal, cv, threads, random_state)
    excess, error = samples.excess
    remark = None
    if error == 0 or excess < _LEAST_EXCESS * error:
        found_excess = f"{with_error(excess, error)} weighted events, below {_LEAST_EXCESS:g} standard errors"
        remark = f"No excess to compare with simulated gammas: {found_excess}."
    elif not (samples.strengths > 0).any():
        remark = "No simulated gamma is classified as signal, so distributions cannot be compared."
    found: list[FeatureComparison] = []
    if remark is None:
        found += _compare(names, observed, signal.features, samples, confidence, threads)
    if background is not None:
        share, ones, zeros = background.share, np.ones(n_off), np.zeros(n_off)
        fold, of_simulated = np.zeros(n_off, dtype=np.intp), np.ones((1, len(share)))
        own = WeightedSamples("background", fold, ones, ones, zeros, of_simulated, share)
        found += _compare(names, observed[~events.on], background.features, own, confidence, threads)
    n_simulated = len(signal.share), 0 if background is None else len(background.share)
    n_on = len(events.on) - n_off
    return SimulationAgreement(tuple(found), confidence, n_on, n_off, *n_simulated, excess, error, remark)


class _Simulated(NamedTuple):
    """Simulated events, as a table or an array like X and as floats, and their relative weights."""

    given: Any
    features: FloatArray
    share: FloatArray

    @classmethod
    def of(
        cls, name: str, given: Any, names: tuple[str, ...], X: Any, weight_name: str, weight: ArrayLike | None
    ) -> _Simulated:
        """Check simulated events: features as in X, and at least two events."""
        if hasattr(given, "columns") and hasattr(X, "columns"):
            if missing := [str(column) for column in X.columns if column not in given.columns]:
                raise ValueError(f"{name} has no column {missing[0]!r} as X has")
            given = given[list(X.columns)]
        features = _as_features(name, given)
        if features.shape[1] != len(names):
            raise ValueError(f"{name} must have the {len(names)} features of X, got {features.shape[1]}")
        if len(features) < 2:
            raise ValueError(f"{name} must contain at least two events, got {len(features)}")
        # classifiers fitted on a table match features by name, others by position
        if not hasattr(X, "columns"):
            given = features
        elif not hasattr(given, "columns"):
            given = type(X)(features, columns=X.columns)
        if weight is None:
            return cls(given, features, np.full(len(features), 1 / len(features)))
        counts = checks.as_counts(weight_name, checks.as_column(weight_name, weight))
        checks.check_same_length(**{weight_name: counts, name: features})
        if np.count_nonzero(counts) < 2:
            raise ValueError(f"{weight_name} must be positive for at least two events")
        return cls(given, features, counts / counts.sum())


def _as_features(name: str, value: Any) -> FloatArray:
    """Return features as two-dimensional float64; NaN is a missing value."""
    if getattr(value, "shape", (1,))[0] == 0:
        raise ValueError(f"{name} is empty")
    if not hasattr(value, "columns"):
        value = checks.as_array(name, value)
    return check_array(value, dtype=np.float64, ensure_all_finite="allow-nan", input_name=name)


def _feature_names(X: Any, n_features: int, given: Sequence[str] | None) -> tuple[str, ...]:
    """Return one name per feature."""
    if given is None:
        return tuple(map(str, X.columns)) if hasattr(X, "columns") else tuple(f"x{j}" for j in range(n_features))
    names = tuple(map(str, given))
    if len(names) != n_features:
        raise ValueError(f"feature_names must have one name for each of {n_features} features, got {len(names)}")
    if len(set(names)) < len(names):
        raise ValueError("feature_names must not contain duplicates")
    return names


def _weigh_signal(
    estimator: Any, events: Events, simulated: _Simulated, cv: Any, n_jobs: int, random_state: Any
) -> WeightedSamples:
    """Weight observed events by models trained on other events, and simulated events by all of these models."""
    random = checks.as_random_state(random_state)
    check_references({"": estimator}, events.groups)
    if cv is None and events.groups is not None:
        cv = min(_N_FOLDS, len(np.unique(events.groups)))
    make_folds = fold_maker(cv, "pooled", events.X, events.labels, events.on_class, events.groups)
    folds = make_folds(events.labels, int(random.randint(2**31 - 1)))
    seeded = reseeded(estimator, int(random.randint(2**31 - 1)), keep=True)

    def weigh(fold: tuple[NDArray[np.intp], NDArray[np.intp]]) -> tuple[FloatArray, FloatArray]:
        train, held_out = fold
        alpha = events.mean_alpha(rows=train)
        groups = None if events.groups is None else events.groups[train]
        fit_params = {"groups": events.groups} if takes_groups(seeded, groups) else {}
        model, X_held_out = fit_part(with_alpha(seeded, alpha), events.X, events.labels, train, held_out, fit_params)
        return _signal_probability(model, X_held_out, alpha), _signal_probability(model, simulated.given, alpha)

    n_events = len(events.labels)
    number, weight = np.empty(n_events, dtype=np.intp), np.empty(n_events)
    simulated_weight = []
    for f, own in enumerate(map_threaded(weigh, folds, n_jobs, limit_blas=True)):
        held_out = folds[f][1]
        number[held_out], weight[held_out] = f, own[0]
        simulated_weight.append(own[1])
    ratio = np.broadcast_to(events.alpha, n_events)
    count, variance = np.where(events.on, 1.0, -ratio), np.where(events.on, 0.0, ratio + ratio**2)
    return WeightedSamples("signal", number, count, weight, variance, np.array(simulated_weight), simulated.share)


def _signal_probability(model: Any, X: Any, alpha: float) -> FloatArray:
    """Return the signal probability; for an On/Off classifier it follows from alpha."""
    if hasattr(model, "predict_signal_proba"):
        return np.asarray(model.predict_signal_proba(X), dtype=np.float64)
    if not hasattr(model, "predict_proba"):
        remedy = "wrap it in SignificanceThresholdClassifier"
        raise TypeError(f"estimator must give probabilities; {type(model).__name__} does not, so {remedy}")
    p_minus = p_minus_from_alpha(alpha)
    return np.maximum((score_events(model, X) - p_minus) / (1 - p_minus), 0.0)


def _compare(
    names: Sequence[str], observed: FloatArray, simulated: FloatArray, samples: Any, confidence: float, n_jobs: int
) -> list[FeatureComparison]:
    """Compare all features of a sample, correct the p-values for their number, and sort by the worst."""

    def compare(j: int) -> FeatureComparison:
        return compare_feature(names[j], observed[:, j], simulated[:, j], samples)

    found = list(map_threaded(compare, range(len(names)), n_jobs, limit_blas=True))
    adjusted = zip(found, holm([one.p_value for one in found]).tolist(), strict=True)
    marked = [replace(one, adjusted_p_value=p, flagged=p < 1 - confidence) for one, p in adjusted]
    # p-values may underflow, so ties are ordered by the shift; the sort is stable
    return sorted(marked, key=lambda one: (one.p_value, -abs(np.nan_to_num(one.shift))))


@dataclass(frozen=True, eq=False)
class WeightedSamples:
    """Weights of observed and simulated events, the same for all features."""

    sample: str  # "signal" or "background"
    fold: NDArray[np.intp]  # of each observed event
    count: FloatArray  # of each observed event: 1 if On, -alpha if Off
    weight: FloatArray  # of each observed event
    background_variance: FloatArray  # alpha + alpha^2 if Off (background among On, and Off itself), 0 if On
    simulated_weight: FloatArray  # (folds, simulated events)
    share: FloatArray  # relative weight of each simulated event; the sum is 1

    @cached_property
    def excess(self) -> tuple[float, float]:
        """Weighted excess of the observed events, and its standard error."""
        terms = self.count * self.weight
        return float(terms.sum()), float(np.sqrt(np.sum(terms**2)))

    @cached_property
    def strengths(self) -> FloatArray:
        """Number of signal events in each fold, from its weighted excess; 0 if no simulated event has a weight."""
        # a sum, since the rounding of a product depends on the number of threads
        expected = np.sum(self.simulated_weight * self.share, axis=1)
        found = np.bincount(self.fold, self.count * self.weight, len(expected))
        return np.divide(found, expected, out=np.zeros(len(expected)), where=expected > 0)

    @property
    def n_effective(self) -> float:
        """Number of background-free signal events with the same relative error as the excess."""
        excess, error = self.excess
        return 0.0 if error == 0 else max(excess, 0.0) ** 2 / error**2


def compare_feature(
    name: str, observed: FloatArray, simulated: FloatArray, samples: WeightedSamples
) -> FeatureComparison:
    """Compare one feature; the p-value is not adjusted yet."""
    strength = np.maximum(samples.strengths, 0.0)
    joint_weight = samples.share * (strength @ samples.simulated_weight)
    cuts = _choose_cuts(simulated, joint_weight, samples.n_effective)
    p_value = _p_value(_Binned.of(observed, simulated, cuts, samples))
    edges, logarithmic = _choose_edges(observed, simulated, joint_weight, samples)
    shift, error = _shift(observed, simulated, (edges[0], edges[-1]), samples)
    drawn = _Binned.of(observed, simulated, edges[1:-1], samples)
    shares = drawn.shares()
    missing = (float(shares[k][-1]) if drawn.missing else 0.0 for k in (0, 2))
    distributions = (own[: len(edges) - 1] for own in shares)
    compared = samples.sample, name, shift, error, p_value, p_value, False
    values: tuple[Any, ...] = (*compared, *missing, edges, logarithmic, *distributions)
    return FeatureComparison(*values)


class _Binned(NamedTuple):
    """Sums of weights in the bins between cuts; missing values are in the last bin."""

    observed: FloatArray  # (folds, bins), counts times weights
    observed_variance: FloatArray  # (folds, bins), of the observed sum
    null_variance: FloatArray  # (folds, bins), of the expected sum
    simulated: FloatArray  # (folds, bins), mean weight
    simulated_products: FloatArray  # (folds, folds, bins), of the influence of simulated events
    strengths: FloatArray  # (folds,)
    missing: bool

    @classmethod
    def of(cls, observed: FloatArray, simulated: FloatArray, cuts: FloatArray, samples: WeightedSamples) -> _Binned:
        """Fill the bins ``x <= cuts[0]``, ``cuts[0] < x <= cuts[1]``, ..., ``cuts[-1] < x``."""
        missing = bool(np.isnan(observed).any() or np.isnan(simulated).any())
        # NaN is sorted after all numbers, so a cut at infinity separates it from the largest
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
        # without simulated events the expected variance is 0: use the observed one
        signal_variance = np.where(square > 0, expected, positive)
        background = fill(samples.background_variance * samples.weight**2)
        return cls(counted, positive + negative, background + signal_variance, mean, products, strength, missing)

    def shares(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return observed and simulated fractions per bin with standard errors."""
        total = self.observed.sum()
        seen = self.observed.sum(axis=0) / total
        # error of a fraction: an event increases the fraction of its bin and decreases all others
        inside = self.observed_variance.sum(axis=0)
        variance = (1 - 2 * seen) * inside + seen**2 * inside.sum()
        expected = np.maximum(self.strengths, 0.0) @ self.simulated
        expected_total = expected.sum()
        expected = expected / expected_total
        inside = self.simulated_products.sum(axis=(0, 1))
        expected_variance = ((1 - 2 * expected) * inside + expected**2 * inside.sum()) / expected_total**2
        error, expected_error = (np.sqrt(np.maximum(one, 0.0)) for one in (variance, expected_variance))
        return seen, error / abs(total), expected, expected_error


def _p_value(binned: _Binned) -> float:
    """Return the p-value of the cumulative differences at all cuts."""
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
    """Return the difference of the means in simulated standard deviations, ignoring NaN, and its error."""
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
    """Return cuts with equal fractions of the weighted simulated events between them, more cuts for more events."""
    n_cuts = int(np.clip(n_effective / _EVENTS_PER_CUT, _LEAST_CUTS, _MOST_CUTS))
    cuts = np.unique(_quantiles(simulated, weight, np.arange(1, n_cuts + 1) / (n_cuts + 1)))
    if 0 < len(cuts) < n_cuts:
        # frequent values: keep a bin for observed events below all of them
        cuts = np.append(np.nextafter(cuts[0], -np.inf), cuts)
    return cuts


def _choose_edges(
    observed: FloatArray, simulated: FloatArray, weight: FloatArray, samples: WeightedSamples
) -> tuple[FloatArray, bool]:
    """Return bin edges that enclose almost all weighted events, and whether they are logarithmic."""
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
    """Return weighted quantiles, ignoring NaN; each is one of the values."""
    known = ~np.isnan(values) & (weight > 0)
    if not known.any():
        return np.empty(0)
    order = np.argsort(values[known], kind="stable")
    ordered, summed = values[known][order], np.cumsum(weight[known][order])
    return ordered[np.minimum(np.searchsorted(summed, levels * summed[-1]), len(ordered) - 1)]
