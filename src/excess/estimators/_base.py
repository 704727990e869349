"""Common parts of all classifiers: base classes, weights and folds of events, hold-out scores and calibration."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import pdtrc
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import isotonic_regression
from sklearn.model_selection import LeaveOneGroupOut, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, check_is_fitted, has_fit_parameter, validate_data

from excess._utils import checks
from excess._utils.checks import BoolArray, FloatArray
from excess._utils.errors import MismatchError
from excess._utils.rng import LARGEST_FACTOR, NO_SKETCH, row_hashes, sketch_rows
from excess.estimators._forest.ensemble import Bag
from excess.estimators._model_file import save as save_model
from excess.stats._kernels import fit_signal
from excess.stats._significance import OnOffCounts
from excess.stats._thresholds import ThresholdCurve, events_curve

_MAX_TOTAL = 2**31 - 1


class _Sum:
    """Base of dataclasses that sum over events in any location and order."""

    _merge: ClassVar[tuple[Callable[[Any, Any], Any], ...]]  # of each field

    def __add__(self, other: Self) -> Self:
        """Return the sum over the events of both."""
        pairs = zip(self._merge, vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(merge(own, others) for merge, own, others in pairs))


@dataclass(frozen=True)
class WeightSum(_Sum):
    """Summary of the weights of some events."""

    total: Fraction = Fraction(0)
    largest: float = 0.0
    any_zero: bool = False
    all_one: bool = True
    all_whole: bool = True
    _merge = (operator.add, max, operator.or_, operator.and_, operator.and_)

    @classmethod
    def of(cls, weights: FloatArray) -> Self:
        """Summarise weights, which are finite and non-negative."""
        whole = bool((weights == np.rint(weights)).all())
        largest = float(weights.max(initial=0.0))
        return cls(checks.exact_sum(weights), largest, not weights.all(), bool((weights == 1).all()), whole)


def check_weights(on: WeightSum, off: WeightSum, largest: float) -> WeightSum:
    """Return the sum over all events; raise ValueError for unusable weights. ``largest`` is for fractional weights."""
    for name, own in (("On", on), ("Off", off)):
        if own.total == 0:
            raise ValueError(f"sample_weight is zero for all {name} events, but both classes are required")
    both = on + off
    if not 2 <= both.total <= _MAX_TOTAL:
        raise ValueError(f"sample_weight must sum to at least 2 and at most {_MAX_TOTAL}, got {float(both.total):g}")
    if not both.all_whole and both.largest > largest:
        most = f"at most {largest:g} unless all weights are integers"
        raise ValueError(f"sample_weight must be {most}, got {both.largest:g}; rescale or round all weights")
    return both


@dataclass(frozen=True)
class EventWeights:
    """Weights of events, as repeated rows for integer weights, else as weights of rows."""

    rows: NDArray[np.intp] | None = None  # training events; None for all of them once
    weights: FloatArray | None = None  # of each of them; None for 1

    @classmethod
    def of(cls, sample_weight: ArrayLike | None, on: BoolArray, largest: float) -> EventWeights:
        """Validate the weights of events; ``largest`` is for fractional weights."""
        weights = counted_weights(sample_weight, on, largest)
        if weights is None:
            return cls()
        if (weights == np.rint(weights)).all():
            return cls(np.repeat(np.arange(len(weights)), weights.astype(np.int64)))
        rows = np.flatnonzero(weights)
        return cls(rows, weights[rows])

    def take(self, events: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of an array, one per training event."""
        return events if self.rows is None else events[self.rows]

    def mean_of_copies(self, values: FloatArray, n_events: int) -> FloatArray:
        """Return the mean of each event's values over its copies, ignoring NaN; NaN if there are none."""
        if self.rows is None:
            return values
        known = ~np.isnan(values)
        rows = self.rows[known]
        total = np.bincount(rows, values[known], minlength=n_events)
        with np.errstate(invalid="ignore"):
            return total / np.bincount(rows, minlength=n_events)


def as_groups(groups: ArrayLike | None, **column: Sized) -> NDArray[Any] | None:
    """Return validated groups of as many events as a named column has; None without groups."""
    if groups is None:
        return None
    known = checks.as_labels(groups, name="groups")
    checks.check_same_length(**column, groups=known)
    return known


def counted_weights(sample_weight: ArrayLike | None, on: BoolArray, largest: float = np.inf) -> FloatArray | None:
    """Return validated event weights; None if all are 1."""
    if sample_weight is None:
        return None
    weights = checks.as_counts("sample_weight", checks.as_column("sample_weight", sample_weight))
    checks.check_same_length(y=on, sample_weight=weights)
    both = check_weights(WeightSum.of(weights[on]), WeightSum.of(weights[~on]), largest)
    return None if both.all_one else weights


def exposure_weights(y: ArrayLike, alpha: ArrayLike) -> tuple[FloatArray, float]:
    """Compute weights that give events a common exposure ratio, as `cross_val_detect` and `train` do by default.

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Noisy labels of two classes; the larger one in sorted order is On.
    alpha : array-like of shape (n_events,)
        Exposure ratio On/Off of each event, such as that of its run.

    Returns
    -------
    weights : ndarray of shape (n_events,)
        ``sample_weight`` of each event, at most 16; 1 if all ratios are equal.
    alpha : float
        Common exposure ratio of the weighted events.

    Notes
    -----
    With ``q = alpha / (1 + alpha)``, On events get the weight ``(1 - q) / (1 - q_mean)`` and Off events ``q / q_mean``:
    the overlap weights of Li, Morgan & Zaslavsky (2018). Background is then On with probability ``q_mean`` at any x.

    Examples
    --------
    >>> from excess import exposure_weights
    >>> weights, alpha = exposure_weights([1, 0, 0, 1, 0], alpha=[0.2, 0.2, 0.2, 1.0, 1.0])
    >>> weights.round(3).tolist(), round(alpha, 3)
    ([1.19, 0.556, 0.556, 0.714, 1.667], 0.429)
    """
    labels = checks.as_binary_target(y)
    ratios = checks.as_column("alpha", checks.as_alpha(alpha))
    checks.check_same_length(y=labels, alpha=ratios)
    on = np.asarray(labels == checks.binary_classes(labels)[1])
    known = ExposureRatios.of(on, ratios)
    return np.ones(len(labels)) if known.are_equal else known.weights(on, ratios), known.common


@dataclass(frozen=True)
class ExposureRatios(_Sum):
    """Summary of the exposure ratios of all events, which makes weights independent of chunks to the bit."""

    n_on: int = 0
    n_off: int = 0
    lowest: float = np.inf  # exposure ratio
    highest: float = 0.0
    q_sum: Fraction = Fraction(0)  # of the probabilities that background is On, over all events
    off_sum: Fraction = Fraction(0)  # of the exposure ratios of Off events
    _merge = (operator.add, operator.add, min, max, operator.add, operator.add)

    @classmethod
    def of(cls, on: BoolArray, alpha: FloatArray) -> Self:
        """Summarise the exposure ratios of some events."""
        if len(on) == 0:
            return cls()
        n_on = int(np.count_nonzero(on))
        ends = float(alpha.min()), float(alpha.max())
        return cls(n_on, len(on) - n_on, *ends, checks.exact_sum(_on_probability(alpha)), checks.exact_sum(alpha[~on]))

    @property
    def are_equal(self) -> bool:
        """Whether all exposure ratios are equal."""
        return self.lowest >= self.highest

    @property
    def off_mean(self) -> float:
        """Mean over the Off events, for uses without weights; the largest without Off events."""
        return float(self.off_sum / self.n_off) if self.n_off else self.highest

    @property
    def common(self) -> float:
        """Common exposure ratio of the weighted events."""
        if self.are_equal:
            return self.highest
        mean = self._common_probability()
        return mean / (1 - mean)

    def weights(self, on: BoolArray, alpha: FloatArray) -> FloatArray:
        """Return the weights of some of the events."""
        q, mean = _on_probability(alpha), self._common_probability()
        return np.minimum(np.where(on, (1 - q) / (1 - mean), q / mean), LARGEST_FACTOR)

    def _common_probability(self) -> float:
        lowest, highest = (_on_probability(alpha) for alpha in (self.lowest, self.highest))
        mean = float(self.q_sum / (self.n_on + self.n_off))
        # the common ratio is arbitrary; one close to the range limits the weights to those a forest accepts
        return float(np.clip(mean, highest / LARGEST_FACTOR, 1 - (1 - lowest) / LARGEST_FACTOR))


def _on_probability(alpha: Any) -> Any:
    """Return the probability that background is On."""
    return alpha / (1 + alpha)


def make_bag(groups: ArrayLike | None, weights: EventWeights, n_events: int) -> Bag:
    """Return the bag of the training events; groups are numbered in the order of their names."""
    known = as_groups(groups, y=range(n_events))
    if known is None:
        return Bag(weights=weights.weights)
    try:
        names, numbers = np.unique(weights.take(known), return_inverse=True)
    except TypeError as error:
        raise ValueError("groups mixes values that cannot be ordered") from error
    if len(names) == 1:  # a single group cannot be left out: its events are left out one by one
        return Bag(weights=weights.weights)
    return Bag(numbers.astype(np.int32), len(names), weights.weights)


MOST_FOLDS = 20  # maximum number of folds that leave out one group each; more groups are merged
_N_FOLDS = 5
_MIN_CHANCE = 1e-6  # probability of a group without On or without Off events below which both were observed separately


def make_folds(cv: Any, X: Any, labels: NDArray[Any], split_params: dict[str, Any]) -> list[Any]:
    """Return pairs of training and hold-out indices that test every event once, on other events."""
    groups = split_params.get("groups")
    if is_fold_number(cv) and groups is not None:
        groups = block_groups(groups, labels == checks.binary_classes(labels)[1], 5 if cv is None else cv)
        split_params = {**split_params, "groups": groups}
    try:
        if is_fold_number(cv) and groups is not None:
            splitter = StratifiedGroupKFold(n_splits=min(5 if cv is None else cv, len(np.unique(groups))))
        else:
            splitter = check_cv(cv, labels, classifier=True)
        folds = [tuple(map(_as_indices, fold)) for fold in splitter.split(X, labels, **split_params)]
    except (TypeError, ValueError) as error:
        if groups is None and "groups" in str(error):
            raise ValueError(f"groups are required by cv={cv!r}") from error
        raise ValueError(f"cv={cv!r} cannot split these events: {error}") from error
    check_folds(folds, labels, groups, what=f"cv={cv!r}")
    times_held_out = np.zeros(len(labels), dtype=np.int64)
    for _, held_out in folds:
        times_held_out[held_out] += 1
    if (times_held_out != 1).any():
        raise ValueError(f"cv must test every event exactly once, unlike {cv!r}")
    return folds


def check_folds(folds: list[Any], labels: NDArray[Any], groups: NDArray[Any] | None, *, what: str) -> None:
    """Raise ValueError if a fold tests training events, splits a group, or has a training part of one class."""
    for train, held_out in folds:
        is_trained_on = np.zeros(len(labels), dtype=np.bool_)
        is_trained_on[train] = True
        if is_trained_on[held_out].any():
            raise ValueError(f"training and hold-out events must be disjoint, unlike in {what}")
        checks.binary_classes(labels[train], name=f"y in a training part of {what}")
    if groups is None:
        return
    names, numbers = np.unique(groups, return_inverse=True)
    for train, held_out in folds:
        shared = np.intersect1d(numbers[train], numbers[held_out])
        if len(shared) > 0:
            where = f"group {names[shared].tolist()[0]!r} on both sides of a fold"
            raise ValueError(f"{what} puts events of {where}; use a splitter that does not split groups, or no groups")


def block_groups(groups: NDArray[Any], on: BoolArray, n_blocks: int | None = None) -> NDArray[Any]:
    """Return groups with both On and Off events: those given, or at most five numbered blocks of them."""
    names, number, n_on, n_off = _count_groups(groups, on)
    if not _are_apart(n_on, n_off):
        return groups
    most = min(int(np.count_nonzero(n_on)), int(np.count_nonzero(n_off)))
    for n in range(min(most, n_blocks or _N_FOLDS), 1, -1):
        block = _share_groups(n_on / n_on.sum(), n_off / n_off.sum(), n)
        if all(counts[block == one].any() for counts in (n_on, n_off) for one in range(n)):
            return block[number]
    which = "On" if np.count_nonzero(n_on) < np.count_nonzero(n_off) else "Off"
    only = names[n_on > 0] if which == "On" else names[n_off > 0]
    problem = f"On and Off events are in different groups, and all {which} events in one ({only.tolist()[0]!r})"
    raise ValueError(f"{problem}; pass more groups, or none ('none' on the command line) to split them")


def merge_groups(groups: NDArray[Any], most: int = MOST_FOLDS) -> NDArray[Any]:
    """Return groups, or numbered blocks of groups with similar numbers of events if there are too many for folds."""
    _, number, size = np.unique(groups, return_inverse=True, return_counts=True)
    if len(size) <= most:
        return groups
    share = size / size.sum()  # of all events: folds must not depend on labels
    return _share_groups(share, share, most)[number]


def groups_are_apart(groups: NDArray[Any], on: BoolArray) -> bool:
    """Return whether On and Off events are in different groups, such as runs of On and of Off observations."""
    return _are_apart(*_count_groups(groups, on)[2:])


def _count_groups(groups: NDArray[Any], on: BoolArray) -> tuple[NDArray[Any], ...]:
    """Return the names of groups, the group index of each event, and the On and Off counts of each."""
    names, number = np.unique(groups, return_inverse=True)
    return names, number, *(np.bincount(number[side], minlength=len(names)) for side in (on, ~on))


def _are_apart(n_on: NDArray[np.intp], n_off: NDArray[np.intp]) -> bool:
    """Return whether a group significantly lacks On or Off events, or too many small groups do so jointly."""
    n = n_on + n_off
    share = n_on.sum() / n.sum()
    # half the mean fraction: a source may be weaker in some groups
    chance = (1 - share / 2) ** n + ((1 + share) / 2) ** n
    single = (n > 0) & ((n_on == 0) | (n_off == 0))
    n_single, expected = np.count_nonzero(single), float(chance[n > 0].sum())
    too_many = n_single > 0 and pdtrc(n_single - 1, expected) < _MIN_CHANCE
    return bool(too_many or (chance[single] < _MIN_CHANCE).any())


def _share_groups(on: FloatArray, off: FloatArray, n_blocks: int) -> NDArray[np.intp]:
    """Assign each group to a block: the largest first, each to the block with fewest events of its class."""
    block = np.zeros(len(on), dtype=np.intp)
    filled = np.zeros((n_blocks, 2))
    for group in np.argsort(-(on + off), kind="stable"):
        own = np.array([on[group], off[group]])
        block[group] = np.argmin(np.sum((filled + own - 1 / n_blocks).clip(min=0) ** 2, axis=1) + filled @ own)
        filled[block[group]] += own
    order = np.unique(block, return_index=True)  # numbered by their first groups
    return np.argsort(np.argsort(order[1]))[np.searchsorted(order[0], block)]


def is_fold_number(cv: Any) -> bool:
    """Return whether ``cv`` is a number of folds, or None for the default."""
    return cv is None or (isinstance(cv, (int, np.integer)) and not isinstance(cv, bool))


def _as_indices(part: Any) -> NDArray[np.intp]:
    """Return one side of a fold as indices; masks are converted."""
    part = np.asarray(part)
    return np.flatnonzero(part) if part.dtype == np.bool_ else part.astype(np.intp)


def fold_maker(
    cv: Any,
    strategy: str,
    X: Any,
    labels: NDArray[Any],
    on_class: Any,
    groups: NDArray[Any] | None,
    time: FloatArray | None = None,
    runs: NDArray[Any] | None = None,
) -> Callable[[NDArray[Any], int], list[Any]]:
    """Return a function that creates folds from labels and a seed; forward folds do not depend on labels."""
    numbered, n_folds, on = is_fold_number(cv), 5 if cv is None else cv, labels == on_class
    if strategy == "forward" and not numbered:
        raise ValueError(f"cv must be a number of blocks or None with strategy='forward', got {cv!r}")
    if numbered:
        checks.as_int("cv", n_folds, minimum=2)
        n_units, unit = len(labels), "events"
        if groups is not None and strategy != "forward":
            n_units, unit = len(np.unique(groups)), "groups"
        if cv is not None and cv > n_units:
            raise MismatchError("cv", f"must be at most the number of {unit}, {n_units}, got {cv}")
    if strategy == "forward":
        block, every = forward_blocks(on, groups, time, runs, cv)[0], np.arange(len(labels))
        folds: list[Any] = [(every[block < one], every[block == one]) for one in range(int(block.max()) + 1)]
        return lambda given, seed: folds
    n_on = int(np.count_nonzero(on))
    if numbered and groups is None and min(n_on, len(labels) - n_on) < n_folds:
        raise ValueError(f"too few events for {n_folds} folds: {n_on} On and {len(labels) - n_on} Off; use fewer folds")
    if not numbered:
        splitter = cv if hasattr(cv, "split") else list(cv)  # an iterator would be exhausted by the first run
    elif groups is not None:
        groups = block_groups(groups, on, cv)
        if cv is None:
            groups = merge_groups(groups)
        n_blocks = len(np.unique(groups))
        if cv is not None and cv > n_blocks:
            raise MismatchError("cv", f"must be at most {n_blocks}, got {cv}: On and Off are in different groups")

    def folds_of(given: NDArray[Any], seed: int) -> list[Any]:
        if not numbered:
            drawn = splitter
        elif groups is not None and cv is None:
            drawn = LeaveOneGroupOut()
        else:
            kind = StratifiedKFold if groups is None else StratifiedGroupKFold
            drawn = kind(n_folds, shuffle=True, random_state=seed)
        return make_folds(drawn, X, given, {} if groups is None else {"groups": groups})

    return folds_of


N_BLOCKS = 20  # default number of consecutive blocks of a forward validation


def forward_blocks(
    on: BoolArray,
    groups: NDArray[Any] | None,
    time: FloatArray | None,
    runs: NDArray[Any] | None,
    n_blocks: int | None = None,
) -> tuple[NDArray[np.intp], bool]:
    """Return consecutive blocks of similar numbers of events, and whether they were drawn at random instead.

    Events are sorted by time, else by group; runs are not split if there are at least as many as blocks. If On and
    Off were observed at different times, only random blocks have the exposure ratio of all events.
    """
    n = len(on)
    n_blocks = min(N_BLOCKS if n_blocks is None else n_blocks, n)
    key = np.zeros(n) if groups is None else checks.number_groups(groups)[1]
    key = time if time is not None and np.isfinite(time).all() else key
    rank = np.argsort(np.argsort(key, kind="stable"), kind="stable")
    block = rank * n_blocks // n
    if runs is not None:
        number = checks.number_groups(runs, time)[1]
        size = np.bincount(number)
        if len(size) >= n_blocks:
            block = ((2 * (np.cumsum(size) - size) + size) * n_blocks // (2 * n))[number]
    # shortest consecutive parts with both On and Off events
    rarer = max(min(on.mean(), 1 - on.mean()), 0.001)
    parts = rank // int(np.ceil(1.5 * np.log(_MIN_CHANCE) / np.log(1 - rarer / 2)))
    n_parts = int(parts.max()) + 1
    apart = _are_apart(*(np.bincount(parts[own], minlength=n_parts) for own in (on, ~on)))
    if apart:
        hashes = np.empty(n, dtype=np.uint64)
        row_hashes(0, hashes)
        block = np.argsort(np.argsort(hashes, kind="stable"), kind="stable") * n_blocks // n
    return np.unique(block, return_inverse=True)[1], apart


def check_classifier(estimator: Any, name: str = "estimator") -> None:
    """Raise TypeError unless an object is a classifier; ``name`` is the argument name."""
    if isinstance(estimator, type):
        raise TypeError(f"{name} must be an instance, got the class {estimator.__name__}; add ()")
    if not hasattr(estimator, "__sklearn_tags__") or not is_classifier(estimator):
        raise TypeError(f"{name} must be a classifier, got {type(estimator).__name__}")


def takes_groups(estimator: Any, groups: NDArray[Any] | None) -> bool:
    """Return whether an estimator is fitted with the groups of its training events, which may be None."""
    if groups is None or not has_fit_parameter(estimator, "groups") or not (groups != groups[0]).any():
        return False  # a single group cannot be left out
    if hasattr(estimator, "cv"):
        # out of bag, or for a fitted estimator, there are no folds
        return not isinstance(_settle_cv(estimator.cv, getattr(estimator, "estimator", None)), str)
    return requests_groups(estimator)


def requests_groups(estimator: Any) -> bool:
    """Return whether an estimator requests the groups of its training events."""
    return get_routing_for_object(estimator).fit.requests.get("groups") is True


def score_events(estimator: Any, X: Any) -> FloatArray:
    """Return the On scores of a fitted classifier."""
    response = np.asarray(getattr(estimator, score_method(estimator))(X), dtype=np.float64)
    return response[:, 1] if response.ndim == 2 else response


def score_method(estimator: Any) -> str:
    """Return the name of the method that scores events; raise TypeError if there is none."""
    for owner in (estimator, type(estimator)):  # some methods, as of stacked classifiers, exist only after fit
        for name in ("predict_proba", "decision_function"):
            if hasattr(owner, name):
                return name
    raise TypeError(f"estimator must have predict_proba or decision_function; {type(estimator).__name__} has neither")


def _fit_and_score(*fold: Any) -> FloatArray:
    """Fit a clone on the training part of a fold and score its hold-out part; for arguments see `fit_part`."""
    return score_events(*fit_part(*fold))


def fit_part(
    estimator: Any, X: Any, y: NDArray[Any], train: Any, held_out: Any, fit_params: dict[str, Any]
) -> tuple[Any, Any]:
    """Return a clone fitted on the training part of a fold, and the events of its hold-out part."""
    model = clone(estimator)
    X_train, y_train = _safe_split(model, X, y, train)
    X_held_out, _ = _safe_split(model, X, y, held_out, train)
    model.fit(X_train, y_train, **_check_method_params(X, fit_params, indices=train))
    return model, X_held_out


def out_of_bag_scores(estimator: Any, X: Any, y: NDArray[Any], fit_params: dict[str, Any]) -> tuple[Any, FloatArray]:
    """Fit a bagging ensemble; events in every bag have the score NaN."""
    model = clone(estimator)
    if not model.get_params().get("oob_score", True):
        model.set_params(oob_score=True)
    try:
        model.fit(X, y, **fit_params)
    except ValueError as error:
        if "bootstrap" not in str(error):
            raise
        raise ValueError(f"cv='oob' requires an estimator that draws bootstrap samples: {error}") from error
    if not hasattr(model, "oob_decision_function_"):
        raise ValueError(f"cv='oob' requires out-of-bag scores, which {type(model).__name__} lacks; use folds")
    shares = np.asarray(model.oob_decision_function_, dtype=np.float64)
    # ensembles mark a missing score with NaN or a row of zeros
    return model, np.where(shares.sum(axis=1) > 0, shares[:, 1], np.nan)


def _settle_cv(cv: Any, learner: Any) -> Any:
    """Return the source of tuning scores for ``cv="auto"``; the learner None is a forest."""
    if not isinstance(cv, str) or cv != "auto":
        return cv
    has_bags = learner is None or getattr(learner, "_has_out_of_bag_scores", False)
    return "oob" if has_bags or "oob_score" in learner.get_params(deep=False) else 5


def learn_and_score(
    estimator: Any,
    X: Any,
    labels: NDArray[Any],
    cv: Any,
    fit_params: dict[str, Any],
    split_params: dict[str, Any],
    n_jobs: int | None,
) -> tuple[Any, FloatArray]:
    """Return a clone fitted on all events, and scores by models trained on other events, NaN for none."""
    cv = _settle_cv(cv, estimator)
    if isinstance(cv, str):
        if cv != "oob":
            raise ValueError(f"cv must be 'oob', a number or a splitter, got {cv!r}")
        if "groups" in split_params and not has_fit_parameter(estimator, "groups"):
            apart = f"out-of-bag scores of {type(estimator).__name__} do not respect groups"
            raise ValueError(f"{apart}; set cv to a number of folds or a splitter, or omit groups")
        return out_of_bag_scores(estimator, X, labels, {**fit_params, **split_params})
    folds = make_folds(cv, X, labels, split_params)
    scores = np.empty(len(labels))
    scored = Parallel(n_jobs=n_jobs)(delayed(_fit_and_score)(estimator, X, labels, *fold, fit_params) for fold in folds)
    for (_, held_out), fold_scores in zip(folds, scored, strict=True):
        scores[held_out] = fold_scores
    return clone(estimator).fit(X, labels, **fit_params), scores


def prefit_scores(estimator: Any, X: Any, y: NDArray[Any], fit_params: dict[str, Any]) -> tuple[Any, FloatArray]:
    """Score new events with the given estimator, which is not fitted again."""
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        remedy = "wrap it in sklearn.frozen.FrozenEstimator if it is cloned, as in cross-validation"
        raise NotFittedError(f"estimator must be fitted before it is used with cv='prefit'; {remedy}") from error
    if fit_params:
        raise ValueError(f"cv='prefit' fits nothing, so {', '.join(fit_params)} cannot be passed on")
    if not np.array_equal(estimator.classes_, checks.binary_classes(y)):
        known, given = estimator.classes_.tolist(), np.array(checks.binary_classes(y)).tolist()
        raise ValueError(f"y must contain the classes that estimator was fitted on, {known}, got {given}")
    return estimator, score_events(estimator, X)


MIN_EVENTS = 20  # minimum number of events in a step of the calibration, which limits the effect of single events
_MAX_STEPS = 1000
_STEPS_TO_COMPARE = 200  # sufficient steps to compare likelihoods, of which a fit computes many
_HALF_EVENT = 0.5  # Off events added to each step, with the matching number of On background events, to bound the odds
_LEAST = 1e-6
_CLOSEST_TO_CERTAIN = 1e-4
_LARGEST_EXPONENT = 40.0
_PRIOR = 0.01
_RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class SignalCalibration:
    """Monotone function from scores to the signal probability."""

    score: Annotated[FloatArray, "steps"]  # mean of each step, ascending
    on_probability: Annotated[FloatArray, "steps"]  # probability of On at that score
    alpha: float  # exposure ratio On/Off of the events of the calibration
    strength: Annotated[float, 1]  # signal events per Off event there, 0 if no step has an excess

    def ratio(self, score: FloatArray) -> FloatArray:
        """Return the likelihood ratio of scores: density of signal over that of background, both normalised to 1."""
        if self.strength == 0:
            return np.ones(len(score))  # all events are equivalent
        return self._excess(score) / self.strength

    def signal_probability(self, score: FloatArray) -> FloatArray:
        """Return the probability that an event of the On and Off regions with this score is signal."""
        excess = self._excess(score)
        return excess / (excess + (1 + self.alpha))

    def on_probability_at(self, score: FloatArray) -> FloatArray:
        """Return the probability of On at scores."""
        return np.interp(score, self.score, self.on_probability)

    def _excess(self, score: FloatArray) -> FloatArray:
        """Return the signal density in On relative to that of Off events."""
        on_probability = self.on_probability_at(score)
        return np.maximum(on_probability / (1 - on_probability) - self.alpha, 0.0)

    def check(self) -> None:
        """Raise ValueError unless probabilities are valid and monotone."""
        score, probability = self.score, self.on_probability
        ascending = (np.diff(score) > 0).all() and (np.diff(probability) >= 0).all()
        possible = np.isfinite(score).all() and (probability > 0).all() and (probability < 1).all()
        if len(score) == 0 or not (ascending and possible and 0 <= self.strength < np.inf):
            raise ValueError("its calibration is not monotone")


def calibrate(curve: ThresholdCurve, *, smooth: bool = True) -> SignalCalibration:
    """Calibrate scores on the events of a curve, which must be new to the model that scored them."""
    steps = _Steps.of(curve, at_least=int(curve.n_on[0] + curve.n_off[0]) // _MAX_STEPS)
    level_score, level = _isotonic(curve)
    on_probability = np.interp(steps.score, level_score, level)
    if smooth:
        fitted = _smooth(steps, curve.alpha)
        # between and beyond the few levels, the smooth curve defines the shape
        half = 0.5 * (level - np.interp(level_score, steps.score, fitted))
        on_probability = np.clip(fitted + np.interp(steps.score, level_score, half), _LEAST, 1 - _LEAST)
        on_probability = np.maximum.accumulate(on_probability)
    odds = on_probability / (1 - on_probability)
    # with this mean over the background, whose size in a step follows from the odds, the ratio is one of densities
    background = (steps.n_on + steps.n_off) / (1 + odds)
    strength = (np.maximum(odds - curve.alpha, 0.0) * background).sum() / background.sum()
    return SignalCalibration(steps.score, on_probability, curve.alpha, float(strength))


def calibrate_out_of_fold(
    on: BoolArray,
    alpha: float,
    score: Callable[[BoolArray, BoolArray], FloatArray],
    *,
    weights: FloatArray | None = None,
    smooth: bool = True,
) -> SignalCalibration:
    """Calibrate the scores of a model without out-of-bag scores."""
    scores = np.zeros(len(on))
    if len(on) >= 2 * MIN_EVENTS and min(np.count_nonzero(on), np.count_nonzero(~on)) >= _N_FOLDS:
        fold = np.empty(len(on), dtype=np.int64)
        rng = np.random.default_rng(0)  # the assignment to folds does not depend on the seed of a model
        for own in (on, ~on):
            fold[own] = rng.permutation(np.count_nonzero(own)) % _N_FOLDS
        for number in range(_N_FOLDS):
            scores[fold == number] = score(fold != number, fold == number)
    return calibrate(events_curve(on, scores, alpha, weights), smooth=smooth)


def calibrated_log_likelihood(counts: NDArray[Any], alpha: float) -> float:
    """Return the log-likelihood of labels given their calibrated scores; minus infinity without events."""
    n_off, n_on = counts
    filled = np.flatnonzero(n_off + n_on)
    if len(filled) == 0:
        return -np.inf
    score = (filled + 0.5) / len(n_on)
    n_all = int(n_off.sum() + n_on.sum())
    steps = _Steps.of_cells(score, n_on[filled], n_off[filled], at_least=n_all // _STEPS_TO_COMPARE)
    return steps.log_likelihood(_smooth(steps, alpha, tolerance=1e-3))


class _Steps(NamedTuple):
    """Events in ascending order of their scores, in steps of similar sizes; equal scores are in the same step."""

    score: FloatArray  # mean over the events of a step
    n_on: NDArray[np.int64]
    n_off: NDArray[np.int64]

    @classmethod
    def of(cls, curve: ThresholdCurve, at_least: int) -> _Steps:
        """Divide the events of a curve into as many steps as possible."""
        return cls.of_cells(curve.scores, -np.diff(curve.n_on), -np.diff(curve.n_off), at_least)

    @classmethod
    def of_cells(cls, score: FloatArray, n_on: NDArray[np.int64], n_off: NDArray[np.int64], at_least: int) -> _Steps:
        """Divide the events of cells, each with a score, into as many steps as possible."""
        n = n_on + n_off
        n_all = int(n.sum())
        size = max(MIN_EVENTS, at_least)
        number = (np.cumsum(n) - n) * max(n_all // size, 1) // n_all
        first = np.flatnonzero(np.append(True, np.diff(number) != 0))
        # many events with equal scores may leave too few before or after them
        while len(first) > 1 and (small := np.add.reduceat(n, first) < size).any():
            small[0] = False
            first = first[~small] if small.any() else np.delete(first, 1)
        total, n_on, n_off = (np.add.reduceat(column, first) for column in (score * n, n_on, n_off))
        return cls(total / (n_on + n_off), n_on, n_off)

    def log_likelihood(self, on_probability: FloatArray) -> float:
        """Return the log-likelihood of the labels given the probability of On in each step."""
        return float((self.n_on * np.log(on_probability) + self.n_off * np.log1p(-on_probability)).sum())


def _isotonic(curve: ThresholdCurve) -> tuple[FloatArray, FloatArray]:
    """Return mean scores, and the probability of On there, by isotonic regression on steps of many events."""
    steps = _Steps.of(curve, at_least=2 * math.isqrt(int(curve.n_on[0] + curve.n_off[0])))
    n = steps.n_on + steps.n_off
    level = isotonic_regression(steps.n_on / n, sample_weight=n.astype(np.float64))
    block = np.flatnonzero(np.append(True, np.diff(level) != 0))
    n_on, n_off, total = (np.add.reduceat(column, block) for column in (steps.n_on, steps.n_off, steps.score * n))
    odds = (n_on + curve.alpha * _HALF_EVENT) / (n_off + _HALF_EVENT)
    odds = np.maximum.accumulate(odds)  # the added events may differ between steps by more than the steps do
    return total / (n_on + n_off), odds / (1 + odds)


def _smooth(steps: _Steps, alpha: float, tolerance: float = 1e-9) -> FloatArray:
    """Return the probability of On in each step by beta calibration (Kull et al. 2017) of the signal above alpha."""
    s, n = steps.score, steps.n_on + steps.n_off
    if s[0] >= 0 and s[-1] <= 1:
        inner = np.clip(s, _CLOSEST_TO_CERTAIN, 1 - _CLOSEST_TO_CERTAIN)
        terms = np.column_stack([np.log(inner), -np.log1p(-inner)])
    else:
        terms = s[:, None]
    mean = np.average(terms, axis=0, weights=n)
    spread = np.sqrt(np.average((terms - mean) ** 2, axis=0, weights=n))
    columns = np.column_stack([np.ones(len(s)), (terms - mean) / np.where(spread > 0, spread, 1.0)])

    fitted = _fit_signal(columns, steps.n_on, n, alpha, tolerance)
    signal = np.exp(np.clip(columns @ fitted, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
    odds = np.minimum(signal + alpha, MIN_EVENTS / _HALF_EVENT)
    return odds / (1 + odds)


def _fit_signal(columns: FloatArray, n_on: NDArray[Any], n: NDArray[Any], alpha: float, tolerance: float) -> FloatArray:
    """Return the most likely coefficients of the signal, with a weak prior against certainty, by Fisher scoring."""
    prior = np.append(0.0, np.full(columns.shape[1] - 1, 2 * _PRIOR))
    # a steep start diverges if a few scores are many spreads away from the others
    starts = np.array([np.append(-3.0, np.full(columns.shape[1] - 1, slope)) for slope in (0.5, 0.1, 0.0)])
    counts = (np.asarray(own, dtype=np.float64) for own in (n_on, n))
    return fit_signal(columns, *counts, alpha, starts, prior, _RIDGE, _LARGEST_EXPONENT, tolerance)


def store_parameters(estimator: Any, arguments: dict[str, Any]) -> None:
    """Set the arguments of an ``__init__``, given by its ``locals()``, as attributes."""
    vars(estimator).update({name: value for name, value in arguments.items() if name not in ("self", "__class__")})


class TunedState(NamedTuple):
    """Fitted state common to all On/Off classifiers, in addition to the threshold."""

    curve: ThresholdCurve
    calibration: SignalCalibration
    sketch: NDArray[np.uint64]  # hashes of some training events


class OnOffMixin:
    """Mixin of classifiers whose parameter ``alpha`` is the exposure ratio On/Off."""

    threshold_: float
    curve_: ThresholdCurve
    calibration_: SignalCalibration
    classes_: NDArray[Any]
    training_sketch_: NDArray[np.uint64] = NO_SKETCH
    has_own_threshold = True  # tuned by fit; `cross_val_detect` tunes that of other classifiers
    _in_state: tuple[str, ...] = ()  # parameters that a model file stores in the state of the estimator
    _has_out_of_bag_scores = False
    _weight_parameter: str | None = None  # of fit, for event weights

    def _get_tuned(self) -> TunedState:
        return TunedState(self.curve_, self.calibration_, self.training_sketch_)

    @property
    def tuned_counts_(self) -> OnOffCounts:
        """Counts of selected events among those used to tune the threshold; not a result to quote."""
        return self.curve_.at(self.threshold_)

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Write the fitted model to a file that contains no code; `load` reads it.

        ``metadata``, such as units or training groups, has string keys, and strings, finite numbers, bools, None, lists
        and mappings as values. An existing file is replaced only when the new one is complete; otherwise ModelFileError
        is raised. TypeError is raised for unsupported content: a third-party classifier, or a parameter that is an
        object. The loaded model reproduces scores, selection and contributions to the bit, but has no
        ``oob_decision_function_``. The same fit with the same versions of the packages results in the same bytes.
        """
        save_model(self, path, metadata=metadata)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return On for events with a score above the threshold, Off for the others; shape (n_events,)."""
        check_is_fitted(self)
        return self.classes_[(score_events(self, X) > self.threshold_).astype(np.intp)]

    def likelihood_ratio(self, X: Any) -> FloatArray:
        """Return the likelihood ratio of events: the density of signal over that of background; shape (n_events,).

        Both densities are normalised to 1. It is finite, non-negative, and 1 for all events if no signal was learned.
        Pass it to `on_off_likelihood` for events that are new to the model.
        """
        check_is_fitted(self)
        return self.calibration_of(X).ratio(score_events(self, X))

    def predict_signal_proba(self, X: Any) -> FloatArray:
        """Return the probability that an event is signal, given its features only; shape (n_events,).

        It refers to the signal fraction in training, by a monotone calibration of out-of-bag or out-of-fold scores.
        """
        check_is_fitted(self)
        return self.calibration_of(X).signal_probability(score_events(self, X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the mean log-likelihood ratio of the labels per event, relative to no signal.

        0 means that no signal was learned; a negative value means that it does not apply to these events. Accuracy, as
        returned by other classifiers, would refer to labels that are noisy by construction.
        """
        check_is_fitted(self)
        on, alpha = np.asarray(y) == self.classes_[1], float(self.get_params(deep=False)["alpha"])  # type: ignore[attr-defined]
        signal = self.predict_signal_proba(X)
        # with p_minus = alpha / (1 + alpha), P(On) is signal + (1 - signal) p_minus, and P(Off) the rest
        ratio = np.where(on, np.log1p(signal / alpha), np.log1p(-signal))
        return float(np.average(ratio, weights=sample_weight))

    def calibration_of(self, X: Any) -> SignalCalibration:
        """Return the calibration of these events' scores, with ``ratio(score)`` and ``signal_probability(score)``."""
        return self.calibration_

    def __sklearn_tags__(self) -> Any:
        """Declare a binary classifier."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.classifier_tags.multi_class = False
        return tags


class BaseOnOffClassifier(OnOffMixin, ClassifierMixin, BaseEstimator):
    """Base of classifiers with ``_plan()``, which validates parameters, ``_fit(plan, X, on)`` and ``_score(X)``."""

    _takes_missing = False

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to events, X of shape (n_events, n_features), and their noisy labels of two classes."""
        plan = self._plan()
        events, on, classes = self._checked_events(X, y)
        self._fit(plan, events, on)
        self.classes_ = classes
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the *noisy* classes, Off and On; shape (n_events, 2).

        The second column is the score: an estimate of P(On given x) with ``output="fraction"``, the mean vote of the
        members with ``output="assignment"``. Neither is the signal probability.
        """
        score = self._score(X)
        return np.column_stack([1 - score, score])

    def __sklearn_tags__(self) -> Any:
        """Declare whether missing values are supported."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_missing
        return tags

    def _checked_events(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], BoolArray, NDArray[Any]]:
        """Return events, the On mask, and the two classes."""
        events, labels = self._validate(X, checks.as_binary_target(y), ensure_min_samples=2)
        classes = np.array(checks.binary_classes(labels))
        self.training_sketch_ = sketch_rows(events)
        return events, np.asarray(labels == classes[1]), classes

    def _validate(self, *events: Any, **options: Any) -> Any:
        """Return X as floats, and y if given; set or check the feature attributes of scikit-learn."""
        finite = "allow-nan" if self._takes_missing else True
        return validate_data(self, *events, dtype=[np.float64, np.float32], ensure_all_finite=finite, **options)

    def _check_new_events(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return self._validate(X, reset=False)


def with_alpha(estimator: Any, alpha: float, *, only_missing: bool = False) -> Any:
    """Return a clone in which every nested On/Off classifier, or every one without alpha, has this exposure ratio."""
    copy = clone(estimator)
    parameters = copy.get_params(deep=True)
    frozen = tuple(f"{name}__" for name, value in parameters.items() if isinstance(value, FrozenEstimator))
    nested = {"": copy, **{f"{name}__": value for name, value in parameters.items() if not name.startswith(frozen)}}
    if isinstance(copy, FrozenEstimator):
        return copy
    names = [f"{name}alpha" for name, value in nested.items() if isinstance(value, OnOffMixin)]
    return copy.set_params(**{name: alpha for name in names if not only_missing or parameters[name] is None})


def weight_parameter(estimator: Any) -> str | None:
    """Return the parameter of ``fit`` for event weights; None if there is none."""
    if isinstance(estimator, OnOffMixin):
        return estimator._weight_parameter
    if hasattr(estimator, "steps") and not get_config()["enable_metadata_routing"]:
        name, last = estimator.steps[-1]
        inner = weight_parameter(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


class ExposedEstimator(NamedTuple):
    """An estimator for events of given exposure ratios."""

    estimator: Any  # with a common exposure ratio
    alpha: float
    fit_params: dict[str, FloatArray]  # weights for ``fit``, for which the common ratio is correct


def with_exposure(estimator: Any, on: BoolArray, alpha: FloatArray | float) -> ExposedEstimator:
    """Return a clone for one exposure ratio, or one per event: by weights, or else the mean over Off events."""
    if not isinstance(alpha, np.ndarray):
        return ExposedEstimator(with_alpha(estimator, alpha), alpha, {})
    ratios, name = ExposureRatios.of(on, alpha), weight_parameter(estimator)
    ratio = ratios.off_mean if name is None else ratios.common
    weights = {} if name is None or ratios.are_equal else {name: ratios.weights(on, alpha)}
    return ExposedEstimator(with_alpha(estimator, ratio), ratio, weights)
