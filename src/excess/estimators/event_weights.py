"""Groups and weights of training events: their checks, what they mean for bags, and weights that even out exposure."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import (
    BoolArray,
    FloatArray,
    as_alpha,
    as_binary_target,
    as_column,
    as_counts,
    as_labels,
    binary_classes,
    check_same_length,
)
from excess._core.exact_sums import exact_sum
from excess._core.rng import LARGEST_FACTOR
from excess.estimators._forest.bags import Bag

_MAX_TOTAL = 2**31 - 1


@dataclass(frozen=True)
class WeightSum:
    """What is to be known of the weights of some events; it does not depend on their order."""

    total: Fraction = Fraction(0)
    largest: float = 0.0
    any_zero: bool = False
    all_one: bool = True
    all_whole: bool = True

    @classmethod
    def of(cls, weights: FloatArray) -> Self:
        """Sum up weights, which are finite numbers of at least 0."""
        return cls(
            exact_sum(weights),
            float(weights.max(initial=0.0)),
            not weights.all(),
            bool((weights == 1).all()),
            bool((weights == np.rint(weights)).all()),
        )

    def __add__(self, other: Self) -> Self:
        """Return the sum over the events of both."""
        return type(self)(
            self.total + other.total,
            max(self.largest, other.largest),
            self.any_zero or other.any_zero,
            self.all_one and other.all_one,
            self.all_whole and other.all_whole,
        )


def check_weights(on: WeightSum, off: WeightSum, largest: float) -> WeightSum:
    """Return the sum over all events; ``largest`` is for weights that are not whole numbers.

    Raise ValueError unless a fit can use the weights.
    """
    for name, own in (("On", on), ("Off", off)):
        if own.total == 0:
            raise ValueError(f"sample_weight is zero for all {name} events, but events of both classes are needed")
    both = on + off
    if not 2 <= both.total <= _MAX_TOTAL:
        raise ValueError(
            f"sample_weight must add up to at least 2 and at most {_MAX_TOTAL}, got {float(both.total):g}; a weight is "
            "the number of events that an event stands for"
        )
    if not both.all_whole and both.largest > largest:
        raise ValueError(
            f"sample_weight must be at most {largest:g} where not all weights are whole numbers, got "
            f"{both.largest:g}; divide all of them by a number, or round them"
        )
    return both


@dataclass(frozen=True)
class EventWeights:
    """Weights of events, as rows that are repeated or, where they are not whole numbers, as weights of rows."""

    rows: NDArray[np.intp] | None = None  # the events to train on; None for all of them once
    weights: FloatArray | None = None  # of each of them; None for 1

    @classmethod
    def of(cls, sample_weight: ArrayLike | None, on: BoolArray, largest: float) -> EventWeights:
        """Check the weights of events, of which ``on`` says who is On; ``largest`` is for weights of any size."""
        if sample_weight is None:
            return cls()
        weights = as_counts("sample_weight", as_column("sample_weight", sample_weight))
        check_same_length(y=on, sample_weight=weights)
        both = check_weights(WeightSum.of(weights[on]), WeightSum.of(weights[~on]), largest)
        if both.all_one:
            return cls()
        if both.all_whole:
            return cls(np.repeat(np.arange(len(weights)), weights.astype(np.int64)))
        rows = np.flatnonzero(weights)
        return cls(rows, weights[rows])

    def take(self, events: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of an array, one for each event to train on."""
        return events if self.rows is None else events[self.rows]

    def mean_of_copies(self, values: FloatArray, n_events: int) -> FloatArray:
        """Return the mean of each event's values over its copies, without NaN; NaN for an event that has none."""
        if self.rows is None:
            return values
        known = ~np.isnan(values)
        rows = self.rows[known]
        total = np.bincount(rows, values[known], minlength=n_events)
        with np.errstate(invalid="ignore"):
            return total / np.bincount(rows, minlength=n_events)


def as_groups(groups: ArrayLike | None, labels: Sized) -> NDArray[Any] | None:
    """Return the group of each labelled event, after checks; None where there are no groups."""
    if groups is None:
        return None
    known = as_labels(groups, name="groups")
    check_same_length(y=labels, groups=known)
    return known


def counted_weights(sample_weight: ArrayLike | None, on: BoolArray) -> FloatArray | None:
    """Return the number of events that each event stands for, after checks; None where all stand for one."""
    # weights of 1 are none
    if sample_weight is None or EventWeights.of(sample_weight, on, np.inf).rows is None:
        return None
    return as_counts("sample_weight", as_column("sample_weight", sample_weight))


def exposure_weights(y: ArrayLike, alpha: ArrayLike) -> tuple[FloatArray, float]:
    """Weights with which events of different exposure ratios have one, for any classifier that takes weights.

    `cross_val_detect` and `train` do so by themselves.

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Noisy labels of two classes; the larger one in sorted order is On.
    alpha : array-like of shape (n_events,)
        Exposure ratio On/Off of each event, such as that of its run.

    Returns
    -------
    weights : ndarray of shape (n_events,)
        ``sample_weight`` of each event, at most 16; 1 where all ratios are the same.
    alpha : float
        The one exposure ratio of the weighted events.

    Notes
    -----
    With ``q = alpha / (1 + alpha)``, On events get the weight ``(1 - q) / (1 - q_mean)`` and Off events ``q / q_mean``,
    so that background is On with the probability ``q_mean`` at every x, whatever mix of observations it has. These are
    the overlap weights of Li, Morgan & Zaslavsky (2018, J. Am. Stat. Assoc. 113, 390). See ``docs/likelihood.md``.

    Examples
    --------
    >>> from excess import exposure_weights
    >>> weights, alpha = exposure_weights([1, 0, 0, 1, 0], alpha=[0.2, 0.2, 0.2, 1.0, 1.0])
    >>> weights.round(3).tolist(), round(alpha, 3)
    ([1.19, 0.556, 0.556, 0.714, 1.667], 0.429)
    """
    labels = as_binary_target(y)
    ratios = as_column("alpha", as_alpha(alpha))
    check_same_length(y=labels, alpha=ratios)
    weights, ratio = even_out_exposure(np.asarray(labels == binary_classes(labels)[1]), ratios)
    return np.ones(len(labels)) if weights is None else weights, ratio


def even_out_exposure(on: BoolArray, alpha: FloatArray) -> tuple[FloatArray | None, float]:
    """Compute `exposure_weights` of events that have been checked; None for the weights where all ratios are the same.

    Among all weights that make background On with one probability, these leave the excess of a steady source the
    smallest error, and it is the error that as many events without weights would have: counts of weights may be read as
    counts of events.
    """
    ratios = ExposureRatios.of(on, alpha)
    return (None if ratios.are_equal else ratios.weights(on, alpha)), ratios.common


@dataclass(frozen=True)
class ExposureRatios:
    """What weights need to know of the exposure ratios of all events; it does not depend on their order.

    So the events may be anywhere, and the weights of each have the same bits.
    """

    n_on: int = 0
    n_off: int = 0
    lowest: float = np.inf  # exposure ratio
    highest: float = 0.0
    q_sum: Fraction = Fraction(0)  # of the probabilities that background is On, over all events
    off_sum: Fraction = Fraction(0)  # of the exposure ratios of Off events

    @classmethod
    def of(cls, on: BoolArray, alpha: FloatArray) -> Self:
        """Sum up the exposure ratios of some events."""
        if len(on) == 0:
            return cls()
        n_on = int(np.count_nonzero(on))
        ends = float(alpha.min()), float(alpha.max())
        return cls(n_on, len(on) - n_on, *ends, exact_sum(_on_probability(alpha)), exact_sum(alpha[~on]))

    def __add__(self, other: Self) -> Self:
        """Return the ratios of the events of both."""
        return type(self)(
            self.n_on + other.n_on,
            self.n_off + other.n_off,
            min(self.lowest, other.lowest),
            max(self.highest, other.highest),
            self.q_sum + other.q_sum,
            self.off_sum + other.off_sum,
        )

    @property
    def are_equal(self) -> bool:
        """Whether there is one exposure ratio."""
        return self.lowest >= self.highest

    @property
    def off_mean(self) -> float:
        """The mean over the Off events, for what counts no weights; the largest where there are no Off events."""
        return float(self.off_sum / self.n_off) if self.n_off else self.highest

    @property
    def common(self) -> float:
        """The one exposure ratio of the weighted events."""
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
        # any common ratio will do; with one that is not too far from the ends, no weight is larger than a forest takes
        return float(np.clip(mean, highest / LARGEST_FACTOR, 1 - (1 - lowest) / LARGEST_FACTOR))


def _on_probability(alpha: Any) -> Any:
    """Return the probability that background is On."""
    return alpha / (1 + alpha)


def make_bag(groups: ArrayLike | None, weights: EventWeights, n_events: int) -> Bag:
    """Return the bag of the events to train on; groups are numbered by the order of their names."""
    known = as_groups(groups, range(n_events))
    if known is None:
        return Bag(weights=weights.weights)
    try:
        names, numbers = np.unique(weights.take(known), return_inverse=True)
    except TypeError as error:
        raise ValueError("groups mixes values that cannot be ordered") from error
    if len(names) == 1:  # a single group cannot be left out: its events are left out one by one
        return Bag(weights=weights.weights)
    return Bag(numbers.astype(np.int32), len(names), weights.weights)
