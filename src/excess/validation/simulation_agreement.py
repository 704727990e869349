"""Agreement of simulated events with observed ones: in which features, and how far, the simulation differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from excess._core.checks import FloatArray, as_array, as_column, as_counts, as_probability, as_random_state
from excess._core.threads import map_threaded, n_threads
from excess.estimators.base import with_alpha
from excess.estimators.folds import fold_maker
from excess.estimators.forest import OnOffForestClassifier
from excess.estimators.holdout import fit_part, score_events, takes_groups
from excess.stats.noise import p_minus_from_alpha
from excess.stats.p_values import holm
from excess.validation.feature_comparison import FeatureComparison, WeightedSamples, compare_feature
from excess.validation.onoff_events import OnOffEvents, check_events
from excess.validation.validated_models import check_models, check_references, reseeded

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SimulationAgreement", "simulation_agreement"]

_LEAST_EXCESS = 3.0
"""Weighted excess, in standard errors, from which there is something to compare."""
_N_FOLDS = 5
_TABLE = (
    "sample",
    "feature",
    "shift",
    "shift_error",
    "p_value",
    "adjusted_p_value",
    "flagged",
    "missing_observed",
    "missing_simulated",
)
_ROWS = 5
"""Features of a sample that are printed."""


@dataclass(frozen=True, eq=False)
class SimulationAgreement:
    """Agreement of simulated events with observed ones, feature by feature.

    Attributes
    ----------
    comparisons : tuple of FeatureComparison
        Features of the signal, worst first, and then those of the background, worst first; all that plots need.
    confidence : float
        Probability that no feature of a sample is flagged where all of them agree.
    n_on, n_off : int
        Observed events.
    n_simulated_signal, n_simulated_background : int
        Simulated events; 0 protons where none were given.
    excess, excess_error : float
        Sum of the probabilities of signal over On minus that over Off times alpha, and its standard error.
    remark : str or None
        Why the signal could not be compared; None if it was.

    See Also
    --------
    simulation_agreement : Makes such an object.
    excess.report.plot_simulation_agreement : Draws the distributions.
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

        return pd.DataFrame([[getattr(one, name) for name in _TABLE] for one in self.comparisons], columns=list(_TABLE))

    @property
    def flagged(self) -> tuple[str, ...]:
        """Names of the features that differ in either sample, each once, worst of the signal first."""
        return tuple(dict.fromkeys(one.feature for one in self.comparisons if one.flagged))

    @property
    def verdict(self) -> str:
        """What was found, in one sentence for each sample."""
        return " ".join(self._sentences())

    def to_dict(self) -> dict[str, Any]:
        """Return all values as plain JSON types; `from_dict` reads them."""
        return vars(self) | {"comparisons": [one.to_dict() for one in self.comparisons]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SimulationAgreement:
        """Return the agreement whose ``to_dict`` this is."""
        comparisons = tuple(FeatureComparison.from_dict(one) for one in values["comparisons"])
        return cls(**(values | {"comparisons": comparisons}))

    def __str__(self) -> str:
        """Say what was compared, the worst features of each sample, and the verdict."""
        lines = [f"weighted excess {self.excess:.1f} +- {self.excess_error:.1f} (On {self.n_on}, Off {self.n_off})"]
        for sample, what, n_simulated in (
            ("signal", "excess against simulated gammas", self.n_simulated_signal),
            ("background", "Off against simulated protons", self.n_simulated_background),
        ):
            own = self.of_sample(sample)
            if not own:
                continue
            lines.append(f"{what} ({n_simulated}):")
            width = max(len(one.feature) for one in own[:_ROWS])
            for one in own[:_ROWS]:
                mark = "  differs" if one.flagged else ""
                lines.append(
                    f"  {one.feature:{width}}  shift {one.shift:+.2f} +- {one.shift_error:.2f}  "
                    f"p = {one.p_value:.2g}, adjusted {one.adjusted_p_value:.2g}{mark}"
                )
            if len(own) > _ROWS:
                lines.append(f"  and {len(own) - _ROWS} more")
        return "\n".join([*lines, *self._sentences()])

    def _sentences(self) -> list[str]:
        sentences = [] if self.remark is None else [self.remark]
        for sample, what in (("signal", "simulated gammas"), ("background", "simulated protons")):
            own = self.of_sample(sample)
            names = [one.feature for one in own if one.flagged]
            if names:
                more = len(names) - _ROWS
                some = ", ".join(names[:_ROWS]) + (f" and {more} more" if more > 0 else "")
                sentences.append(f"{len(names)} of {len(own)} features of {what} differ from what is observed: {some}.")
            elif own:
                sentences.append(f"No feature of {what} differs from what is observed.")
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
    """Find the features in which simulated gammas differ from the excess, and simulated protons from Off events.

    Signal: each feature is compared between On minus Off times alpha and simulated gammas. Both are weighted by the
    probability of signal, by classifiers that learned from On and Off labels of other events. Background: each feature
    is compared between Off and simulated protons, without weights.

    Parameters
    ----------
    X : array-like of shape (n_events, n_features)
        Observed events; NaN where ``estimator`` takes it.
    y : array-like of shape (n_events,)
        Noisy labels of two classes; the larger one in sorted order is On.
    simulated_signal : array-like of shape (n_gammas, n_features)
        Simulated gammas that ``estimator`` was not trained on, with the cuts of the observed events.
    simulated_background : array-like of shape (n_protons, n_features) or None, default=None
        Simulated protons; by default the background is not compared.
    alpha : float or array-like of shape (n_events,)
        Exposure ratio On/Off, of all events or of each.
    estimator : classifier or None, default=None
        Gives the probability of signal; by default an `OnOffForestClassifier`. It is cloned.
    groups : array-like of shape (n_events,) or None, default=None
        What must not be split between training and weighting, such as nights.
    cv : int, splitter, iterable or None, default=None
        Number of folds, or any splitter of scikit-learn that tests each event once. By default five, of whole groups
        where there are groups.
    signal_weight, background_weight : array-like or None, default=None
        Number of events that each simulated event stands for, for example to give simulated gammas the spectrum of
        the source. By default all are equal.
    feature_names : sequence of str or None, default=None
        Names of the features; by default the columns of a DataFrame, or x0, x1, ...
    confidence : float, default=0.99
        A feature is flagged if its adjusted p-value is below ``1 - confidence``. P-values are adjusted by Holm's
        method over all features of a sample, so this is the probability that no feature of a sample is flagged where
        all of them agree.
    n_jobs : int or None, default=None
        Folds that are fitted, and features that are compared, at the same time, on threads. The result does not
        depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the folds, and of a classifier that has no seed of its own.

    Returns
    -------
    SimulationAgreement
        A table of features, worst first, and the distributions. Without a weighted excess of three standard errors
        there is nothing to compare with simulated gammas: ``SimulationAgreement.remark`` says so, and there are no rows
        of the signal.

    See Also
    --------
    excess.report.plot_simulation_agreement : Draws the distributions.
    OnOffHybridClassifier : Trusts a simulation as far as On and Off labels say.

    Notes
    -----
    The p-value is that of the cumulated differences at up to 19 cuts, with their covariance: a test between those of
    Anderson and Darling and of chi-squared, for weighted events with a subtracted background. ``docs/simulation.md``
    has the formula, the measured rate of false alarms and the power.

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
    1 of 2 features of simulated gammas differ from what is observed: length.
    No feature of simulated protons differs from what is observed.
    """
    models = check_models(OnOffForestClassifier() if estimator is None else estimator)
    if len(models) != 1 or "" not in models:
        raise TypeError("estimator must be one classifier, got several by name")
    confidence = as_probability("confidence", confidence)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence:g}")
    events = check_events(X, y, alpha, groups)
    observed = _as_features("X", X)
    names = _feature_names(X, observed.shape[1], feature_names)
    signal = _Simulated.of("simulated_signal", simulated_signal, names, X, "signal_weight", signal_weight)
    background = None
    if simulated_background is not None:
        background = _Simulated.of(
            "simulated_background", simulated_background, names, X, "background_weight", background_weight
        )
    elif background_weight is not None:
        raise ValueError("background_weight is given without simulated_background")

    threads = n_threads(n_jobs)
    samples = _weigh_signal(models[""], events, signal, cv, threads, random_state)
    excess, error = samples.excess
    remark = _why_not(samples)
    found: list[FeatureComparison] = []
    if remark is None:
        found += _compare(names, observed, signal.features, samples, confidence, threads)
    if background is not None:
        off = ~events.on
        unweighted = _weigh_background(off, background)
        found += _compare(names, observed[off], background.features, unweighted, confidence, threads)
    return SimulationAgreement(
        comparisons=tuple(found),
        confidence=confidence,
        n_on=int(np.count_nonzero(events.on)),
        n_off=int(np.count_nonzero(~events.on)),
        n_simulated_signal=len(signal.share),
        n_simulated_background=0 if background is None else len(background.share),
        excess=excess,
        excess_error=error,
        remark=remark,
    )


class _Simulated(NamedTuple):
    """Simulated events, as a table or an array like X and as floats, and the share of each in all."""

    given: Any
    features: FloatArray
    share: FloatArray

    @classmethod
    def of(
        cls, name: str, given: Any, names: tuple[str, ...], X: Any, weight_name: str, weight: ArrayLike | None
    ) -> _Simulated:
        """Check simulated events: the features of X, and at least two events."""
        if hasattr(given, "columns") and hasattr(X, "columns"):
            missing = [str(column) for column in X.columns if column not in given.columns]
            if missing:
                raise ValueError(f"{name} has no column {missing[0]!r}, which X has")
            given = given[list(X.columns)]
        features = _as_features(name, given)
        if features.shape[1] != len(names):
            raise ValueError(f"{name} must have the {len(names)} features of X, got {features.shape[1]}")
        if len(features) < 2:
            raise ValueError(f"{name} must hold at least two events, got {len(features)}")
        # classifiers know features by name if they were fitted on a table, and by place if they were not
        if not hasattr(X, "columns"):
            given = features
        elif not hasattr(given, "columns"):
            given = type(X)(features, columns=X.columns)
        if weight is None:
            return cls(given, features, np.full(len(features), 1 / len(features)))
        counts = as_counts(weight_name, as_column(weight_name, weight))
        if len(counts) != len(features):
            raise ValueError(
                f"{weight_name} and {name} must have the same length, got {len(counts)} and {len(features)}"
            )
        if np.count_nonzero(counts) < 2:
            raise ValueError(f"{weight_name} must be positive for at least two events")
        return cls(given, features, counts / counts.sum())


def _as_features(name: str, value: Any) -> FloatArray:
    """Return features as float64 in two dimensions; NaN is a missing value."""
    if getattr(value, "shape", (1,))[0] == 0:
        raise ValueError(f"{name} is empty")
    if not hasattr(value, "columns"):
        value = as_array(name, value)
    return check_array(value, dtype=np.float64, ensure_all_finite="allow-nan", input_name=name)


def _feature_names(X: Any, n_features: int, given: Sequence[str] | None) -> tuple[str, ...]:
    """Return one name for each feature."""
    if given is None:
        return tuple(map(str, X.columns)) if hasattr(X, "columns") else tuple(f"x{j}" for j in range(n_features))
    names = tuple(map(str, given))
    if len(names) != n_features:
        raise ValueError(f"feature_names must have one name for each of {n_features} features, got {len(names)}")
    if len(set(names)) < len(names):
        raise ValueError("feature_names must not hold a name twice")
    return names


def _weigh_signal(
    estimator: Any, events: OnOffEvents, simulated: _Simulated, cv: Any, n_jobs: int, random_state: Any
) -> WeightedSamples:
    """Weigh observed events by models that have not seen them, and simulated events by all of these models."""
    random = as_random_state(random_state)
    check_references({"": estimator}, events.groups)
    if cv is None and events.groups is not None:
        cv = min(_N_FOLDS, len(np.unique(events.groups)))
    folds = fold_maker(cv, "pooled", events.X, events.labels, events.on_class, events.groups)(
        events.labels, int(random.randint(2**31 - 1))
    )
    seeded = reseeded(estimator, int(random.randint(2**31 - 1)), keep=True)

    def weigh(fold: tuple[NDArray[np.intp], NDArray[np.intp]]) -> tuple[FloatArray, FloatArray]:
        train, held_out = fold
        alpha = events.mean_alpha(events.labels, train)
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
    return WeightedSamples(
        sample="signal",
        fold=number,
        count=np.where(events.on, 1.0, -ratio),
        weight=weight,
        background_variance=np.where(events.on, 0.0, ratio + ratio**2),
        simulated_weight=np.array(simulated_weight),
        share=simulated.share,
    )


def _signal_probability(model: Any, X: Any, alpha: float) -> FloatArray:
    """Return the probability of signal; that of a classifier of On and Off follows from alpha."""
    if hasattr(model, "predict_signal_proba"):
        return np.asarray(model.predict_signal_proba(X), dtype=np.float64)
    if not hasattr(model, "predict_proba"):
        raise TypeError(
            f"estimator must give probabilities; {type(model).__name__} does not, so wrap it in "
            "SignificanceThresholdClassifier"
        )
    p_minus = p_minus_from_alpha(alpha)
    return np.maximum((score_events(model, X) - p_minus) / (1 - p_minus), 0.0)


def _weigh_background(off: NDArray[np.bool_], simulated: _Simulated) -> WeightedSamples:
    """Give all Off events and all simulated protons the weight 1."""
    n_off = int(np.count_nonzero(off))
    return WeightedSamples(
        sample="background",
        fold=np.zeros(n_off, dtype=np.intp),
        count=np.ones(n_off),
        weight=np.ones(n_off),
        background_variance=np.zeros(n_off),
        simulated_weight=np.ones((1, len(simulated.share))),
        share=simulated.share,
    )


def _why_not(samples: WeightedSamples) -> str | None:
    """Say why there is nothing to compare with simulated gammas; None if there is."""
    excess, error = samples.excess
    if error == 0 or excess < _LEAST_EXCESS * error:
        return (
            f"No excess to compare with simulated gammas: {excess:.1f} +- {error:.1f} weighted events, and "
            f"{_LEAST_EXCESS:g} standard errors are needed."
        )
    if not (samples.strengths > 0).any():
        return "No simulated gamma looks like signal to the classifier, so no distribution can be compared."
    return None


def _compare(
    names: tuple[str, ...],
    observed: FloatArray,
    simulated: FloatArray,
    samples: WeightedSamples,
    confidence: float,
    n_jobs: int,
) -> list[FeatureComparison]:
    """Compare all features of a sample, correct their p-values for their number, and return the worst first."""

    def compare(j: int) -> FeatureComparison:
        return compare_feature(names[j], observed[:, j], simulated[:, j], samples)

    found = list(map_threaded(compare, range(len(names)), n_jobs, limit_blas=True))
    adjusted = holm([one.p_value for one in found]).tolist()
    marked = [
        replace(one, adjusted_p_value=p, flagged=p < 1 - confidence) for one, p in zip(found, adjusted, strict=True)
    ]
    # p-values may be too small for a float, so the shift decides among equal ones; the sort is stable
    return sorted(marked, key=lambda one: (one.p_value, -abs(np.nan_to_num(one.shift))))
