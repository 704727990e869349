"""Result of a search for a source: `Detection`, its components, tables and text, and the significance to quote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from excess._utils.checks import BoolArray, FloatArray, as_count, check_same_length, number_groups
from excess._utils.errors import with_error
from excess._utils.threads import Row, html_table
from excess.detection._diagnostics import AlphaFit, Verdict, WarningSign, assess, fit_alpha
from excess.detection._histograms import FeatureBinning, FeatureHistogram, SkyMap
from excess.estimators._binned import TunedBin
from excess.stats._direction import PointSpread
from excess.stats._likelihood import (
    AlphaError,
    Constancy,
    Nuisance,
    OnOffLikelihood,
    Signal,
    as_nuisance,
    compare_with_constant,
    compute_likelihood,
)
from excess.stats._sideband import correct_for_trials
from excess.stats._significance import OnOffCounts, permutation_p_value
from excess.stats._thresholds import ThresholdCurve, compute_cell_curve

if TYPE_CHECKING:
    import pandas as pd

    from excess.detection._null_test import NullTest


STATISTICS = ("likelihood", "cut")  # the On/Off likelihood of all events, or the counts of selected events
LONGEST_PAUSE = 900.0  # maximum time in seconds between consecutive events that counts as observation time
_MAX_PARTS = 1000  # maximum number of distinct exposure ratios when events are counted
_NAN = float("nan")
_LONGEST_FORECAST = 1e4  # maximum time to a detection, in hours, that is printed
_ENDS = ("", "_low", "_high")  # suffixes of a value and its interval
_UNIX_EPOCH, _UNIX_RANGE = 40_587.0, (3e8, 1e10)  # as a modified Julian date; range of absolute times in seconds


@dataclass(frozen=True)
class Outcome:
    """Both statistics of some events; ``statistic`` is the declared one, ``likelihood`` may be None."""

    counts: OnOffCounts
    likelihood: OnOffLikelihood | None
    statistic: str
    limits: Mapping[str, float] | None = None

    @property
    def significances(self) -> dict[str, float]:
        """Signed significance by each statistic; NaN if the likelihood is not available."""
        likelihood = _NAN if self.likelihood is None else self.likelihood.significance
        return {"likelihood": likelihood, "cut": self.counts.significance}

    @property
    def significance(self) -> float:
        """Signed significance by the declared statistic."""
        return self.significances[self.statistic]

    @property
    def empty(self) -> bool:
        """Whether the declared statistic is a cut without selected events, so its significance is no evidence."""
        return self.statistic == "cut" and self.counts.n_on + self.counts.n_off == 0

    def summary(self) -> dict[str, Any]:
        """Return the numbers by name."""
        found = dict.fromkeys(OnOffLikelihood.names(), _NAN) if self.likelihood is None else self.likelihood.summary()
        by_statistic = {f"{name}_significance": value for name, value in self.significances.items()}
        return {**self.counts.summary(), **by_statistic, **found, "significance": self.significance}

    def to_dict(self) -> dict[str, Any]:
        """Return the summary with the exposure ratios as JSON; inverse of `from_dict`."""
        optional = {"parts": self.counts.parts, "alpha_error": self.counts.alpha_error, "limits": self.limits}
        known = {name: value for name, value in optional.items() if value}
        return {**self.summary(), "alpha": self.counts.alpha, **known}

    @classmethod
    def from_dict(cls, numbers: Mapping[str, Any], statistic: str) -> Outcome:
        """Create an outcome from the result of `to_dict`."""
        more = numbers.get("parts", ()), numbers.get("alpha_error", 0.0)
        counts = OnOffCounts(numbers["n_on"], numbers["n_off"], numbers["alpha"], *more)
        significance, limits = numbers["likelihood_significance"], numbers.get("limits")
        if significance is None or significance != significance:
            return cls(counts, None, statistic, limits)
        return cls(counts, OnOffLikelihood.from_summary({**numbers, "significance": significance}), statistic, limits)


def count_events(
    on: BoolArray, mask: BoolArray, alpha: FloatArray | float, nuisance: Nuisance | None = None
) -> OnOffCounts:
    """Count the events of a mask; different exposure ratios are stacked, with a joint significance."""
    if nuisance is not None and nuisance.number is not None and mask.any():
        own = nuisance.number[mask]
        return _count_with_errors(on[mask], np.broadcast_to(alpha, mask.shape)[mask], own, nuisance.errors)
    error = 0.0 if nuisance is None else float(nuisance.errors[0])
    if not isinstance(alpha, np.ndarray):
        n_selected = int(np.count_nonzero(on & mask)), int(np.count_nonzero(mask & ~on))
        return OnOffCounts(*n_selected, alpha, alpha_error=error)
    on, alpha, largest = on[mask], alpha[mask], float(alpha.max())
    if len(on) == 0:
        return OnOffCounts(0, 0, largest)
    values, number = np.unique(alpha, return_inverse=True)
    if len(values) > _MAX_PARTS:  # merge neighbouring ratios into their mean
        number = number * _MAX_PARTS // len(values)
        values = np.bincount(number, alpha) / np.bincount(number)
    n_on, n_off = (np.bincount(number[own], minlength=len(values)) for own in (on, ~on))
    return OnOffCounts.stack(zip(n_on.tolist(), n_off.tolist(), values.tolist(), strict=True), error)


def _count_with_errors(on: BoolArray, alpha: FloatArray, group: NDArray[np.intp], errors: FloatArray) -> OnOffCounts:
    """Count events whose groups have independent uncertainties of the exposure ratio."""
    values, of_alpha = np.unique(alpha, return_inverse=True)
    codes, number = np.unique(group * len(values) + of_alpha, return_inverse=True)
    n_on, n_off = (np.bincount(number[own], minlength=len(codes)).tolist() for own in (on, ~on))
    parts = zip(n_on, n_off, values[codes % len(values)].tolist(), strict=True)
    return OnOffCounts.stack(parts, errors[codes // len(values)].tolist())


def count_cuts(on: BoolArray, n_passed: NDArray[np.intp], alpha: FloatArray | float, n_cuts: int) -> list[OnOffCounts]:
    """Count the events of several nested cuts, of which each event passes the first ``n_passed``."""
    values, number = np.unique(np.broadcast_to(alpha, on.shape), return_inverse=True)
    n_values = len(values)
    if n_values > _MAX_PARTS:  # the merging of ratios depends on the cut; sorted input is counted faster
        order = np.argsort(number, kind="stable")
        on, n_passed, ratios = on[order], n_passed[order], values[number[order]]
        return [count_events(on, n_passed > cut, ratios) for cut in range(n_cuts)]
    passed = []
    for own in (on, ~on):
        last = np.bincount(n_passed[own] * n_values + number[own], minlength=(n_cuts + 1) * n_values)
        passed.append(last.reshape(n_cuts + 1, n_values)[::-1].cumsum(axis=0)[::-1][1:].tolist())
    parts = [list(zip(n_on, n_off, values.tolist(), strict=True)) for n_on, n_off in zip(*passed, strict=True)]
    nothing = [(0, 0, float(np.max(alpha, initial=0.0)) or 1.0)]
    return [OnOffCounts.stack(part or nothing) for part in parts]


class Fold(NamedTuple):
    """One model of a cross-validation: its tuning, and its hold-out events."""

    n_train: int
    n_held_out: int
    threshold: float  # on the score; NaN for a classifier without a tuned threshold
    tuned: OnOffCounts | None  # selected events among those used to tune the threshold; not a result to quote
    held_out: OnOffCounts  # selected hold-out events
    likelihood_significance: float = _NAN  # of the hold-out events; NaN if the model has no likelihood ratio
    reference_weights: Mapping[str, float] | None = None  # of the members of a hybrid, by name
    bins: tuple[TunedBin, ...] = ()  # thresholds of a model with bins
    configuration: str | None = None  # selected by a forest


class WeightRange(NamedTuple):
    """Weight of a reference in the folds: mean, minimum and maximum."""

    mean: float
    low: float
    high: float


class Nearby(NamedTuple):
    """Events that are neither On nor Off, predicted by models trained on other groups."""

    score: FloatArray  # NaN for events without a score
    selected: BoolArray
    theta: FloatArray | None = None  # angle to the centre of each region in deg, On first


@dataclass(frozen=True, eq=False)
class Exposure:
    """Observation time of each group and each night."""

    source: str
    group: tuple[str, ...]
    night: tuple[str, ...]
    hours: FloatArray

    @property
    def by_group(self) -> dict[str, float]:
        """Hours of each group; empty where there are no groups."""
        return self._sum(self.group)

    @property
    def by_night(self) -> dict[str, float]:
        """Hours of each night; empty where nights are not known."""
        return self._sum(self.night)

    @property
    def total(self) -> float:
        """Hours of all parts."""
        return float(self.hours.sum())

    def _sum(self, labels: tuple[str, ...]) -> dict[str, float]:
        found: dict[str, float] = {}
        for label, hours in zip(labels, self.hours.tolist(), strict=True):
            if label:
                found[label] = found.get(label, 0.0) + hours
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON; inverse of `from_dict`."""
        lists = {"group": list(self.group), "night": list(self.night), "hours": self.hours.tolist()}
        return {"source": self.source, **lists}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Exposure:
        """Create an exposure from the result of `to_dict`."""
        group, night = (tuple(map(str, given[name])) for name in ("group", "night"))
        hours = np.array(given["hours"], dtype=np.float64)
        if not len(group) == len(night) == len(hours):
            raise ValueError("group, night and hours of the exposure must have the same length")
        return cls(str(given["source"]), group, night, hours)


def bin_labels(borders: Sequence[float]) -> tuple[str, ...]:
    """Return labels of the bins between edges; the first and the last edge may be infinite."""
    return tuple(
        f"below {high:.4g}" if low == -np.inf else f"above {low:.4g}" if high == np.inf else f"{low:.4g} to {high:.4g}"
        for low, high in pairwise(borders)
    )


@dataclass(frozen=True, eq=False)
class DetectionBins:
    """Both statistics in each bin of a column, such as energy."""

    column: str
    edges: tuple[float, ...]
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the bins."""
        return bin_labels(self.edges)

    def to_dict(self) -> dict[str, Any]:
        """Return the bins as JSON; inverse of `from_dict`."""
        bins = [{**one.to_dict(), "note": note} for one, note in zip(self.outcomes, self.notes, strict=True)]
        return {"column": self.column, "edges": list(self.edges), "bins": bins}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], statistic: str) -> DetectionBins:
        """Create bins from the result of `to_dict`."""
        outcomes = tuple(Outcome.from_dict(one, statistic) for one in given["bins"])
        notes = tuple(str(one["note"]) for one in given["bins"])
        return cls(str(given["column"]), tuple(map(float, given["edges"])), outcomes, notes)


@dataclass(frozen=True, eq=False)
class Detection:
    """Predictions of hold-out events, and the significance of a source.

    ``significance``, ``p_value`` and ``verdict`` refer to the statistic declared beforehand. For a repeated
    cross-validation, all attributes except ``repeats`` are those of the repetition with the lower median significance.

    Attributes
    ----------
    on, selected : ndarray of bool of shape (n_events,)
        On events, and selected events; the latter is False for events used only for training.
    score : ndarray of shape (n_events,)
        Scores by models trained on other events; NaN for events used only for training.
    ratio : ndarray of shape (n_events,) or None
        Likelihood ratios, multiplied by the exposure ratio relative to its mean if it varies; NaN for events used only
        for training, None if the model has no likelihood ratio.
    fold : ndarray of int64 of shape (n_events,)
        Fold in which the event was held out; -1 for events used only for training.
    groups, nights, observations : ndarray of shape (n_events,) or None
        Group, night, and observation (such as a source or a telescope) of each event, if known.
    folds : tuple of Fold
        Tuning and hold-out counts of each model.
    alpha : float
        Exposure ratio On/Off; the mean over the Off events if it varies.
    strategy : {"pooled", "forward", "applied"}
        Choice of training and hold-out events; ``"applied"`` denotes a model fitted on other events.
    statistic : {"likelihood", "cut"}
        Statistic declared beforehand: the likelihood of all events, or the counts of selected events.
    repeats, permutations : dict of str to ndarray
        Signed significance of each repetition, and the ``contrasts`` of permuted On and Off labels, by statistic.
    event_alpha : ndarray of shape (n_events,) or None
        Exposure ratio of each event, if it varies.
    required_significance : float
        Significance required for a detection.
    theta, own_theta : ndarray of shape (n_events, n_regions) and (n_events,), or None
        Angle to the centre of each region in deg, On first, and of the own region; NaN for Off without a centre.
    theta_squared_cut : float or None
        Events with ``theta**2`` below this value, in deg^2, are in a region.
    nearby : Nearby or None
        Events outside all regions, predicted like the others, but never used for training or counted.
    time : ndarray of shape (n_events,) or None
        Times of the events, in seconds.
    importances, feature_names : ndarray of shape (n_features,) and tuple of str, or None
        Importance of each feature, averaged over the folds, and the feature names.
    features : tuple of FeatureHistogram or None
        Histograms of each feature for On and scaled Off, before and after the selection.
    exposure, sky, bins : Exposure, SkyMap and DetectionBins, or None
        Observation time of each group and night, sky map, and both statistics in bins of a column.
    alpha_error : float, mapping of group to float, or None
        Relative uncertainty of the exposure ratio: common to all events, or independent for each group.
    remarks : tuple of str
        Changes to the classifier before training, and the random choice of blocks.
    core : ndarray of bool of shape (n_events,) or None
        True for events inside the cut on theta^2, None without directions; other events only enter the likelihood.
    point_spread : PointSpread or None
        Point spread function averaged over the folds.
    findings : tuple of WarningSign
        Differences between On and Off in their features that no source explains, and repeated events.
    forward : Outcome or None
        Both statistics by models trained on earlier events only, in addition to the pooled ones.
    estimators : tuple of classifier
        Fitted model of each fold, if `cross_val_detect` was called with ``return_estimator=True``; else empty.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect, inject_label_noise
    >>> X, y = make_classification(3000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5, random_state=0)
    >>> found.feasible, found.counts.n_on < found.uncut.n_on
    (True, True)
    """

    on: BoolArray
    score: FloatArray
    selected: BoolArray
    ratio: FloatArray | None
    fold: NDArray[np.int64]
    groups: NDArray[Any] | None
    folds: tuple[Fold, ...]
    alpha: float
    strategy: str
    statistic: str
    repeats: dict[str, FloatArray]
    permutations: dict[str, FloatArray]
    event_alpha: FloatArray | None = None
    required_significance: float = 5.0
    theta: FloatArray | None = None
    theta_squared_cut: float | None = None
    nearby: Nearby | None = None
    time: FloatArray | None = None
    importances: FloatArray | None = None
    feature_names: tuple[str, ...] | None = None
    observations: NDArray[Any] | None = None
    features: tuple[FeatureHistogram, ...] | None = None
    exposure: Exposure | None = None
    nights: NDArray[Any] | None = None
    sky: SkyMap | None = None
    bins: DetectionBins | None = None
    remarks: tuple[str, ...] = ()
    alpha_error: AlphaError | None = None
    own_theta: FloatArray | None = None
    core: BoolArray | None = None
    point_spread: PointSpread | None = None
    findings: tuple[WarningSign, ...] = ()
    forward: Outcome | None = None
    estimators: tuple[Any, ...] = field(default=(), repr=False)

    def annotated(
        self,
        *,
        theta: ArrayLike | None = None,
        theta_squared_cut: float | None = None,
        nearby_theta: ArrayLike | None = None,
        own_theta: ArrayLike | None = None,
        time: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        features: FeatureBinning | ArrayLike | None = None,
        exposure: Exposure | None = None,
        nights: ArrayLike | None = None,
        sky: SkyMap | None = None,
    ) -> Detection:
        """Return a copy, with shared arrays, with further data for plots; None keeps an attribute unchanged.

        Arguments are named like the attributes, except ``nearby_theta``, the angles of nearby events, and ``features``:
        values of shape (n_events, n_features), from which histograms are computed.
        """
        n_events = len(self.on)
        found: dict[str, Any] = {"exposure": exposure, "sky": sky}
        if theta is not None:
            found["theta"] = _as_theta("theta", theta, n_events)
        if theta_squared_cut is not None:
            found["theta_squared_cut"] = as_count("theta_squared_cut", theta_squared_cut)
            if found["theta_squared_cut"] == 0:
                raise ValueError("theta_squared_cut must be positive, got 0")
        if nearby_theta is not None:
            if self.nearby is None:
                raise ValueError("nearby_theta must not be given without nearby events; pass them to cross_val_detect")
            angles = _as_theta("nearby_theta", nearby_theta, len(self.nearby.score))
            regions = found.get("theta", self.theta)
            if regions is not None and (n := regions.shape[1]) != angles.shape[1]:
                raise ValueError(f"nearby_theta must have one column per region, {n} as theta, got {angles.shape[1]}")
            found["nearby"] = self.nearby._replace(theta=angles)
        columns = ("own_theta", own_theta, np.float64), ("time", time, np.float64), ("nights", nights, None)
        for name, values, dtype in columns:
            if values is not None:
                found[name] = np.asarray(values, dtype=dtype)
                check_same_length(**{"on": self.on, name: found[name]})
        if feature_names is not None:
            names = found["feature_names"] = tuple(map(str, feature_names))
            if self.importances is not None and len(names) != len(self.importances):
                raise ValueError(f"feature_names must name {len(self.importances)} features, got {len(names)}")
        if features is not None:
            binning = FeatureBinning.of(features, found.get("feature_names", self.feature_names))
            if binning.n_events != n_events:
                raise ValueError(f"features must have {n_events} rows, got {binning.n_events}")
            masks = self.on, self.held_out, self.selected
            found["features"] = binning.histograms(*masks, self.exposure_ratio, self.importances)
        return replace(self, **{name: value for name, value in found.items() if value is not None})

    def with_bins(self, column: str, edges: Sequence[float], number: NDArray[np.int64]) -> Detection:
        """Return a copy with ``bins`` of a column, given the edges and the bin number of each event."""
        outcomes, notes = [], []
        for own in range(len(edges) + 1):
            outcomes.append(self.outcome_of(number == own))
            borrowed = sum(fold.bins[own].first < fold.bins[own].last for fold in self.folds if fold.bins)
            note = f"too few events: tuned with its neighbours in {borrowed} of {len(self.folds)} folds"
            notes.append(note if borrowed else "")
        borders = (-np.inf, *map(float, edges), np.inf)
        return replace(self, bins=DetectionBins(column, borders, tuple(outcomes), tuple(notes)))

    @property
    def exposure_ratio(self) -> FloatArray | float:
        """Exposure ratio of each event if it varies, else the common one."""
        return self.alpha if self.event_alpha is None else self.event_alpha

    @property
    def in_likelihood(self) -> BoolArray:
        """True for hold-out events, including those beyond the cut on theta^2."""
        return self.fold >= 0

    @property
    def held_out(self) -> BoolArray:
        """True for hold-out events inside the cut on theta^2, which are counted."""
        return self.in_likelihood if self.core is None else self.in_likelihood & self.core

    @property
    def containment_radius(self) -> tuple[float, float] | None:
        """Radius in deg that contains 68 % of the signal, with its standard error; None if not fitted."""
        fitted = self.point_spread
        return fitted.radius if fitted is not None and fitted.n_events else None

    def count(self, mask: BoolArray, alpha: FloatArray | float | None = None) -> OnOffCounts:
        """Count the On and Off events of a mask, by default with their exposure ratios and uncertainties."""
        if alpha is not None:
            return count_events(self.on, mask, alpha)
        return count_events(self.on, mask, self.exposure_ratio, self._nuisance)

    def likelihood_of(self, mask: BoolArray, alpha: FloatArray | float | None = None) -> OnOffLikelihood | None:
        """Return the likelihood of the events of a mask; None without likelihood ratios."""
        if self.ratio is None:
            return None
        ratios = self.exposure_ratio if alpha is None else alpha
        own = ratios[mask] if isinstance(ratios, np.ndarray) else ratios
        error = None if self._nuisance is None or alpha is not None else self._nuisance.select(mask)
        return compute_likelihood(self.on[mask], self.ratio[mask], own, error)

    @cached_property
    def _nuisance(self) -> Nuisance | None:
        """Uncertainties of the exposure ratio of all events."""
        return as_nuisance(self.alpha_error, self.groups, len(self.on))

    def outcome_of(self, mask: BoolArray) -> Outcome:
        """Return both statistics of the hold-out events of a mask."""
        return Outcome(self.count(self.selected & mask), self.likelihood_of(self.in_likelihood & mask), self.statistic)

    def _held_out_parts(self, labels: NDArray[Any] | None) -> Iterator[tuple[Any, BoolArray]]:
        """Yield each held-out group, or other label, with the mask of its events."""
        if labels is None:
            return
        of_time = labels is self.groups or labels is self.nights
        time = self.time[self.held_out] if self.time is not None and of_time else None
        found = number_groups(labels[self.held_out], time)[0]
        is_date = found.dtype.kind in "mM"  # otherwise converted to a number
        names = [label if is_date or not hasattr(label, "item") else label.item() for label in found]
        yield from ((name, labels == name) for name in names)  # one mask at a time, since there may be many groups

    @cached_property
    def counts(self) -> OnOffCounts:
        """Selected events among all hold-out events."""
        return self.count(self.selected)

    @cached_property
    def likelihood(self) -> OnOffLikelihood | None:
        """Likelihood of all hold-out events; None without likelihood ratios."""
        return self.likelihood_of(self.in_likelihood)

    @cached_property
    def outcome(self) -> Outcome:
        """Both statistics of the hold-out events."""
        return Outcome(self.counts, self.likelihood, self.statistic)

    @cached_property
    def uncut(self) -> OnOffCounts:
        """All hold-out events, selected or not."""
        return self.count(self.held_out)

    @cached_property
    def counts_by_group(self) -> dict[Any, OnOffCounts]:
        """Selected events of each held-out group; empty without groups."""
        return {name: self.count(self.selected & own) for name, own in self._held_out_parts(self.groups)}

    @cached_property
    def counts_by_night(self) -> dict[Any, OnOffCounts]:
        """Selected hold-out events of each night; empty if nights are unknown."""
        return {name: self.count(self.selected & own) for name, own in self._held_out_parts(self.nights)}

    @cached_property
    def outcomes_by_observation(self) -> dict[Any, Outcome]:
        """Both statistics of each observation; empty without observations."""
        return {name: self.outcome_of(own) for name, own in self._held_out_parts(self.observations)}

    @property
    def thresholds(self) -> FloatArray:
        """Threshold of each fold; NaN for classifiers without a tuned threshold."""
        return np.array([fold.threshold for fold in self.folds])

    @property
    def reference_weights(self) -> dict[str, WeightRange]:
        """Weight of each member of an `OnOffHybridClassifier` in the folds, by name; empty for other models."""
        known = [fold.reference_weights for fold in self.folds if fold.reference_weights is not None]
        values = {name: [weights[name] for weights in known] for name in (known[0] if known else ())}
        return {name: WeightRange(float(np.mean(own)), min(own), max(own)) for name, own in values.items()}

    @property
    def significance(self) -> float:
        """Signed significance of the hold-out events by the declared statistic; the median of repetitions."""
        return self.outcome.significance

    @property
    def significances(self) -> FloatArray:
        """Signed significance of each repetition by the declared statistic."""
        return self.repeats[self.statistic]

    @property
    def n_permutations(self) -> int:
        """Number of permutations of On and Off."""
        return len(self.permutations[self.statistic])

    @property
    def spread(self) -> float:
        """Standard deviation of the significance over repetitions; NaN for a single one."""
        return self._spread(self.statistic)

    def _spread(self, statistic: str) -> float:
        values = self.repeats[statistic]
        return float(values.std(ddof=1)) if len(values) > 1 else _NAN

    @property
    def p_value(self) -> float:
        """Upper tail of the normal distribution at ``significance``; accurate for ``strategy="forward"``."""
        return float(ndtr(-self.significance))

    @cached_property
    def contrasts(self) -> dict[str, float]:
        """Significance, by statistic, with which the features separate On from Off, for a balanced ``alpha``."""
        if self.uncut.n_on == 0 or self.uncut.n_off == 0:
            return {"likelihood": _NAN if self.ratio is None else 0.0, "cut": 0.0}
        balanced = self.balanced_alpha
        cut, likelihood = self.count(self.selected, balanced), self.likelihood_of(self.in_likelihood, balanced)
        return Outcome(cut, likelihood, "cut").significances

    @property
    def balanced_alpha(self) -> FloatArray | float:
        """Exposure ratio for which all hold-out events together have no excess."""
        return self.exposure_ratio * (self.uncut.n_on / self.uncut.background)

    @property
    def permutation_p_values(self) -> dict[str, float]:
        """Fraction of permutations, including the identity, with at least this contrast, by statistic; NaN if none."""
        return {name: permutation_p_value(self.contrasts[name], one) for name, one in self.permutations.items()}

    @property
    def permutation_p_value(self) -> float:
        """Permutation p-value by the declared statistic."""
        return self.permutation_p_values[self.statistic]

    @cached_property
    def curve(self) -> ThresholdCurve:
        """Hold-out counts at every cut on the score, for the mean exposure ratio; for exploration, not as a result."""
        known = self.held_out & np.isfinite(self.score)
        on = self.on[known]  # new events may belong to a single class
        return compute_cell_curve(self.score[known], on, ~on, self.alpha)

    @cached_property
    def alpha_fit(self) -> AlphaFit | None:
        """Exposure ratio fitted to the events together with a signal; None without likelihood ratios."""
        return fit_alpha(self)

    @cached_property
    def assessment(self) -> Verdict:
        """Verdict on this detection alone; `assess` also takes forward values and null tests."""
        return assess(self)

    @property
    def feasible(self) -> bool:
        """Whether the required significance is reached without warnings."""
        return self.assessment.feasible

    @property
    def verdict(self) -> str:
        """Warnings, if any, and the interpretation of the significance in one sentence."""
        return str(self.assessment)

    def summary(self) -> dict[str, Any]:
        """Return the results by name, for a table or a file."""
        return {
            "strategy": self.strategy,
            "statistic": self.statistic,
            "n_folds": len(self.folds),
            "alpha": self.alpha,
            "alpha_error": self.alpha_error,
            **self.outcome.summary(),
            "spread": self.spread,
            "n_repeats": len(self.significances),
            "p_value": self.p_value,
            "permutation_p_value": self.permutation_p_value,
            **{f"{name}_permutation_p_value": value for name, value in self.permutation_p_values.items()},
            "n_permutations": self.n_permutations,
            "uncut_significance": self.uncut.significance,
            "n_held_out": int(np.count_nonzero(self.held_out)),
            "n_events": len(self.on) if self.core is None else int(np.count_nonzero(self.core)),
            "n_beyond_cut": int(np.count_nonzero(self.in_likelihood & ~self.held_out)),
            "feasible": self.feasible,
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row per event: on, score, selected, fold; and ratio, core, group, observation if known."""
        import pandas as pd

        known = {"on": self.on, "score": self.score, "selected": self.selected, "fold": self.fold}
        optional = {"ratio": self.ratio, "core": self.core, "group": self.groups, "observation": self.observations}
        return pd.DataFrame({**known, **{name: values for name, values in optional.items() if values is not None}})

    def folds_frame(self) -> pd.DataFrame:
        """Return one row per fold; ``expected`` is the tuning significance scaled to the number of hold-out events."""
        import pandas as pd

        names = ("n_on", "n_off", "significance")
        rows = []
        for fold in self.folds:
            tuned = {} if fold.tuned is None else fold.tuned.summary()
            # the number of training events of an applied model is unknown
            scale = float(np.sqrt(fold.n_held_out / fold.n_train)) if fold.n_train else _NAN
            row = {"n_train": fold.n_train, "n_held_out": fold.n_held_out, "threshold": fold.threshold}
            row |= {f"tuned_{name}": tuned.get(name, _NAN) for name in names}
            row["expected"] = row["tuned_significance"] * scale
            row |= {name: getattr(fold.held_out, name) for name in names}
            rows.append(row | {"likelihood_significance": fold.likelihood_significance})
        return pd.DataFrame(rows).rename_axis("fold")

    def groups_frame(self, by: str = "group") -> pd.DataFrame:
        """Return one row per group, or per night: both statistics, and the light curve.

        ``relative_strength`` is the signal strength relative to its mean, with an interval; NaN if the mean is not
        positive. ``rate`` is the number of signal events per hour, with an interval if observation times are known, and
        ``mjd`` the mean time of the events if times are absolute.
        """
        if ("frame", by) not in self._by_label:
            self._by_label["frame", by] = self._make_groups_frame(by)
        return self._by_label["frame", by].copy()

    @cached_property
    def _by_label(self) -> dict[tuple[str, str], Any]:
        """Values computed for many groups and shown in several places."""
        return {}

    def _make_groups_frame(self, by: str) -> pd.DataFrame:
        labels = self.groups if by == "group" else self.nights
        hours = {} if self.exposure is None else getattr(self.exposure, f"by_{by}")
        rows = {}
        for name, own in self._held_out_parts(labels):
            row = rows[name] = self._with_relative_strength(self.outcome_of(own).summary())
            if (time := hours.get(str(name), 0.0)) > 0:
                row |= {"hours": time, **{f"rate{end}": row[f"n_signal{end}"] / time for end in _ENDS}}
            if self.time is not None and np.isfinite(when := float(np.nanmean(self.time[own]))):
                row |= {"mjd": _UNIX_EPOCH + when / 86_400} if _UNIX_RANGE[0] < when < _UNIX_RANGE[1] else {}
        return _frame(rows, by)

    @property
    def constancy(self) -> Constancy | None:
        """Test of a constant signal rate, or signal strength if times are unknown, over groups; None for one group."""
        return self.compare_rates()

    def compare_rates(self, by: str = "group") -> Constancy | None:
        """Test whether the signal rate, or the signal strength, is constant over groups or nights; None for one."""
        if ("rates", by) not in self._by_label:
            self._by_label["rates", by] = self._compare_rates(by)
        found: Constancy | None = self._by_label["rates", by]
        return found

    def _compare_rates(self, by: str) -> Constancy | None:
        if self.ratio is None or len(self.outcomes_by_observation) > 1:
            return None
        hours = {} if self.exposure is None else getattr(self.exposure, f"by_{by}")
        parts = self._held_out_parts(self.groups if by == "group" else self.nights)
        signals = [(hours.get(str(name), 0.0), self._signal(own)) for name, own in parts]
        known = [(time, signal) for time, signal in signals if signal is not None]
        if len(known) < 2:
            return None
        times = np.array([time for time, _ in known])
        return compare_with_constant([signal for _, signal in known], times if (times > 0).all() else None)

    def _signal(self, mask: BoolArray) -> Signal | None:
        """Return the signal among events of a mask by the declared statistic; None if no event has a positive ratio."""
        own, weight = (self.fold >= 0) & mask, self.ratio
        if self.statistic == "cut" or weight is None:
            own, weight = self.selected & mask, np.broadcast_to(self.exposure_ratio / self.alpha, self.on.shape)
        if not (weight[own] > 0).any():
            return None
        alpha = np.broadcast_to(self.exposure_ratio, self.on.shape)[own]
        return Signal(self.on[own], weight[own], alpha, self._nuisance and self._nuisance.select(own))

    def limits(self, hours: float | None = None, confidence_level: float = 0.95) -> dict[str, float]:
        """Return limits on the signal by name, for the declared statistic; empty without information about a signal.

        Upper limits use CLs and are returned with those expected without a source. With ``hours``, by default those of
        ``exposure``, rates per hour, hours to a detection and the minimum rate detectable in 50 hours are included.
        """
        signal = self._signal(np.ones(len(self.on), dtype=np.bool_))
        if signal is None:
            return {}
        strength, counts = signal.limits(confidence_level, "cls")
        found = {"confidence_level": confidence_level, "strength_limit": strength.upper}
        found |= {"strength_expected": strength.expected, "n_signal_limit": counts.upper}
        found["n_signal_limit_profile"] = signal.limits(confidence_level, "profile").n_signal.upper
        found |= {f"n_signal_{name}": getattr(counts, name) for name in ("expected_low", "expected", "expected_high")}
        if hours is None and self.exposure is not None:
            hours = self.exposure.total
        if hours is not None and hours > 0:
            hours *= float((self.fold >= 0).mean())  # events used only for training do not enter the limits
            required = self.required_significance
            found |= {"hours": hours, "rate_limit": counts.upper / hours, "rate_expected": counts.expected / hours}
            found["hours_to_detection"] = signal.hours_to(hours, required)
            found["detectable_rate_in_50_hours"] = signal.sensitivity(hours, 50.0, required).rate
        return found

    def observations_frame(self) -> pd.DataFrame:
        """Return one row per observation: exposure ratio, both statistics, and signal strength relative to all."""
        found = self.outcomes_by_observation.items()
        rows = {name: {"alpha": one.counts.alpha, **self._with_relative_strength(one.summary())} for name, one in found}
        return _frame(rows, "observation")

    def bins_frame(self) -> pd.DataFrame:
        """Return one row per bin: exposure ratio, both statistics, and a note; empty without bins."""
        found = () if self.bins is None else zip(self.bins.labels, self.bins.outcomes, self.bins.notes, strict=True)
        rows = {name: {"alpha": one.counts.alpha, **one.summary(), "note": note} for name, one, note in found}
        return _frame(rows, "bin")

    def _with_relative_strength(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """Add the signal strength relative to that of all events; NaN if the latter is not positive."""
        mean = 0.0 if self.likelihood is None else self.likelihood.strength
        unit = mean if 0 < mean < np.inf else _NAN
        return numbers | {f"relative_{name}": numbers[name] / unit for name in numbers if name.startswith("strength")}

    def __str__(self) -> str:
        """Return both statistics, warnings and the verdict as text."""
        lines = [self._strategy_text]
        if self.likelihood is not None:
            lines.append(f"likelihood: {self.likelihood}")
        lines.append(f"cut: {self.counts}")
        for name, outcome in self._several_observations.items():
            found = outcome.likelihood
            by_likelihood = "" if found is None else f"likelihood {found.significance:.1f} sigma, "
            lines.append(f"{name}: {by_likelihood}cut: {outcome.counts}")
        lines += [self.best_observation] if self._several_observations else []
        if len(self.significances) > 1:
            lines.append(f"{len(self.significances)} repetitions scatter by {self.spread:.2f} sigma")
        lines.append(f"without a cut: {self.uncut.significance:.1f} sigma")
        lines += [*self._trained_on_text, *self._permutation_text]
        return "\n".join([*lines, *self.remarks, str(self.assessment)])

    def _repr_html_(self) -> str:
        """Return a table of both statistics with the verdict for notebooks; the declared statistic is in bold."""
        rows = [*_html_rows(self.outcome, self.uncut), Row("without a cut", self.uncut.texts())]
        for name, outcome in self._several_observations.items():
            rows += [row._replace(name=f"{name}: {row.name}") for row in _html_rows(outcome, None)]
        verdict = self.assessment
        notes = [*self.remarks, *(f"Warning: {one.sentence}" for one in verdict.warnings)]
        notes += [*self._permutation_text, *self._trained_on_text]
        if verdict.feasible and self.strategy != "applied":
            quoted = quoted_significance(self)
            note = 'Use the pooled significance to compare models; quote that of strategy="forward".'
            if quoted.strategy != self.strategy:
                note = f"Quote the forward significance, {quoted.value:.1f} sigma."
            elif quoted.quotable:
                note = "Quote the significance in bold."
            notes.append(note)
        caption = f"{self._strategy_text}, alpha {self.alpha:.4g}"
        columns = ("", "On", "Off", "excess", "significance")
        return html_table(columns, rows, caption=caption, notes=[*notes, f"{verdict.status}: {verdict.sentence}"])

    @property
    def _several_observations(self) -> dict[Any, Outcome]:
        """Both statistics of each observation; empty for a single one."""
        return self.outcomes_by_observation if len(self.outcomes_by_observation) > 1 else {}

    @property
    def best_observation(self) -> str:
        """The observation with the largest significance, corrected for trials; empty for a single one."""
        if not self._several_observations:
            return ""
        found = {name: outcome.significance for name, outcome in self._several_observations.items()}
        name = max(found, key=lambda one: found[one])
        after = correct_for_trials(found[name], len(found))
        best = f"{name}, {found[name]:.1f} sigma"
        return f"Best of {len(found)} observations: {best}, {after:.1f} after {len(found)} trials."

    @property
    def _strategy_text(self) -> str:
        return self.strategy if self.strategy == "applied" else f"{self.strategy}, {len(self.folds)} folds"

    @property
    def _trained_on_text(self) -> list[str]:
        """Number of events that were never held out, in one line; empty if all were."""
        n = int(np.count_nonzero(~self.in_likelihood))
        return [f"{n} of {len(self.on)} events were used only for training"] if n else []

    @property
    def _permutation_text(self) -> list[str]:
        """Permutation p-value in one line; empty without permutations."""
        if not self.n_permutations:
            return []
        return [f"permutation p-value {self.permutation_p_value:.3g} ({self.n_permutations} permutations)"]


def quoted_limits(detection: Detection, forward: Outcome | None = None) -> Mapping[str, float]:
    """Return the limits to quote: those of the forward result of a pooled detection, if available."""
    known = None if detection.strategy != "pooled" or forward is None else forward.limits
    return detection.limits() if known is None else {name: float(value) for name, value in known.items()}


def describe_limits(limits: Mapping[str, float], required: float) -> list[str]:
    """Return limits as sentences."""
    if not limits:
        return []
    per_hour = f", {limits['rate_limit']:.3g} per hour" if "rate_limit" in limits else ""
    band = f"{limits['n_signal_expected_low']:.1f} to {limits['n_signal_expected_high']:.1f}"
    limit = f"{limits['n_signal_limit']:.1f} signal events{per_hour}, signal strength {limits['strength_limit']:.3g}"
    expected = f"expected without a source: {limits['n_signal_expected']:.1f} ({band}) signal events"
    lines = [f"Upper limit at {100 * limits['confidence_level']:g} % (CLs): {limit}; {expected}."]
    if "hours" in limits:
        total, done = limits["hours_to_detection"], limits["hours"]
        if done < total < _LONGEST_FORECAST:
            lines.append(f"This excess would reach {required:g} sigma in {total:.3g} h; {done:.3g} h were observed.")
        rate = limits["detectable_rate_in_50_hours"]
        lines.append(f"The weakest source with {required:g} sigma in 50 h has {rate:.3g} signal events per hour.")
    return lines


class QuotedSignificance(NamedTuple):
    """The significance to quote for a search, and its strategy."""

    value: float
    strategy: str

    @property
    def quotable(self) -> bool:
        """Whether it may be quoted as a detection; a pooled significance only compares models."""
        return self.strategy != "pooled"


def quoted_significance(
    detection: Detection, forward: Outcome | None = None, statistic: str | None = None
) -> QuotedSignificance:
    """Return the significance to quote: the forward one of a pooled detection, else that of the detection."""
    by, forward = statistic or detection.statistic, detection.forward if forward is None else forward
    if detection.strategy == "pooled" and forward is not None and not np.isnan(forward.significances[by]):
        return QuotedSignificance(forward.significances[by], "forward")
    return QuotedSignificance(detection.outcome.significances[by], detection.strategy)


def models_table(
    detections: Mapping[str, Detection],
    forward: Mapping[str, Outcome] | None = None,
    null_tests: Mapping[str, NullTest] | None = None,
) -> pd.DataFrame:
    """Return one row per model, preceded by all events without a cut if these are common to all models."""
    import pandas as pd

    rows = []
    uncut = {(one.uncut.n_on, one.uncut.n_off): one.uncut for one in detections.values()}
    if len(uncut) == 1:
        [counts] = uncut.values()
        rows.append({"model": "no cut", **counts.summary(), "cut": counts.significance, "null_significances": ()})
    for name, found in detections.items():
        ahead, test, signal = (forward or {}).get(name), (null_tests or {}).get(name), found.likelihood
        row: dict[str, Any] = {"model": name, **found.counts.summary()}
        for statistic, value in found.outcome.significances.items():
            row[statistic], row[f"{statistic}_spread"] = value, found._spread(statistic)
            row[f"{statistic}_forward"] = _NAN if ahead is None else ahead.significances[statistic]
        if signal is not None:
            row |= {"n_signal": signal.n_signal, "n_signal_error": signal.n_signal_error}
        row["permutation_p_value"] = found.permutation_p_value
        tested = [] if test is None else test.outcomes.values()
        row["null_significances"] = tuple(_NAN if one.empty else one.significance for one in tested)
        rows.append(row)
    columns = ["n_on", "n_off", "excess", "excess_error"]
    columns += [f"{statistic}{part}" for statistic in ("cut", "likelihood") for part in ("", "_spread", "_forward")]
    columns += ["n_signal", "n_signal_error", "permutation_p_value", "null_significances"]
    return pd.DataFrame(rows).set_index("model").reindex(columns=columns)


def _as_theta(name: str, theta: ArrayLike, n_events: int) -> FloatArray:
    angles = np.asarray(theta, dtype=np.float64)
    if angles.ndim != 2 or len(angles) != n_events or angles.shape[1] < 2:
        raise ValueError(f"{name} must have {n_events} rows and one column per region, got shape {angles.shape}")
    return angles


def _frame(rows: dict[Any, dict[str, Any]], index: str) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(index)


def _html_rows(outcome: Outcome, everything: OnOffCounts | None) -> list[Row]:
    """Return a row for each statistic; the counts of the likelihood may be unknown."""
    rows = []
    if outcome.likelihood is not None:
        found, counts = outcome.likelihood, ["", ""] if everything is None else everything.texts()[:2]
        cells = [*counts, with_error(found.n_signal, found.n_signal_error, sign="±"), f"{found.significance:.1f} sigma"]
        rows.append(Row("likelihood", cells, outcome.statistic == "likelihood"))
    rows.append(Row("cut", outcome.counts.texts(), outcome.statistic == "cut"))
    return rows
