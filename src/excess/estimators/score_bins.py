"""Bins of a column, in each of which scores have a threshold and a calibration of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.estimators.calibration import SignalCalibration

__all__ = ["BinnedCalibration", "TunedBin"]

CUT = 0.5
"""The threshold of all bins, once their scores are moved to it."""
_MIN_LABELS = 20
"""Fewest On events, and Off events, that a bin is tuned on."""


class TunedBin(NamedTuple):
    """What a bin was tuned on, and its threshold.

    Attributes
    ----------
    threshold : float
        On the scores of the estimator inside, before they are moved so that all bins have the same.
    first, last : int
        The bins whose events it was tuned on, both included; more than its own where it had too few.
    n_events : int
        Events of the bin itself that had a score.
    """

    threshold: float
    first: int
    last: int
    n_events: int


class BinnedCalibration(NamedTuple):
    """What scores say about signal, for events of known bins.

    Attributes
    ----------
    bins : tuple of SignalCalibration
        One for each bin, of the scores of the estimator inside.
    strength : float
        Signal events for each Off event in all bins together, 0 where none has an excess.
    number : ndarray of int64 of shape (n_events,)
        The bin of each event.
    tuned : tuple of TunedBin
        Thresholds, by which scores were moved.
    """

    bins: tuple[SignalCalibration, ...]
    strength: float
    number: NDArray[np.int64]
    tuned: tuple[TunedBin, ...]

    def ratio(self, score: FloatArray) -> FloatArray:
        """Return the signal ratio of scores: density of signal over that of the background, both normalised to 1.

        The densities are those of all bins together, so that a bin with more signal counts more.
        """
        if self.strength == 0:
            return np.ones(len(score))  # nothing tells one event from another
        return self._by_bin(score, lambda own, given: own.ratio(given) * (own.strength / self.strength))

    def signal_probability(self, score: FloatArray) -> FloatArray:
        """Return the probability that an event of the On and Off regions with such a score is signal."""
        return self._by_bin(score, lambda own, given: own.signal_probability(given))

    def _by_bin(self, score: FloatArray, of_bin: Callable[[SignalCalibration, FloatArray], FloatArray]) -> FloatArray:
        found = np.zeros(len(score))
        for number, (own, tuned) in enumerate(zip(self.bins, self.tuned, strict=True)):
            rows = self.number == number
            if own.strength > 0:
                found[rows] = of_bin(own, _moved_back(score[rows], tuned.threshold))
        return found


def number_bins(values: FloatArray, edges: FloatArray) -> NDArray[np.int64]:
    """Return the bin of each value, from 0; a value at an edge belongs to the bin above it.

    A missing value has no bin, and is refused.
    """
    missing = np.count_nonzero(np.isnan(values))
    if missing:
        raise ValueError(f"the column of the bins has no value for {missing} of {len(values)} events; leave these out")
    return np.searchsorted(edges, values, side="right").astype(np.int64)


def as_edges(edges: Any) -> FloatArray:
    """Return the edges between bins; ValueError unless they are finite and ascend."""
    found = np.asarray(edges, dtype=np.float64)
    if found.ndim != 1 or not np.isfinite(found).all() or (np.diff(found) <= 0).any():
        raise ValueError(f"edges must be finite numbers in ascending order, got {edges!r}")
    return found


def tuning_windows(
    number: NDArray[np.int64], on: BoolArray, off: BoolArray, n_bins: int, enough: int
) -> list[tuple[int, int, int]]:
    """Return for each bin the first and last bin whose events it is tuned on, and its own number of events.

    A window grows on both sides at once, until it has enough events, or all.
    """
    n_on, n_off = (np.bincount(number[chosen], minlength=n_bins) for chosen in (on, off))
    found = []
    for own in range(n_bins):
        first = last = own
        while (first, last) != (0, n_bins - 1):
            in_window = slice(first, last + 1)
            of_on, of_off = int(n_on[in_window].sum()), int(n_off[in_window].sum())
            if of_on + of_off >= enough and min(of_on, of_off) >= _MIN_LABELS:
                break
            first, last = max(first - 1, 0), min(last + 1, n_bins - 1)
        found.append((first, last, int(n_on[own] + n_off[own])))
    return found


def move_by_bin(score: FloatArray, number: NDArray[np.int64], tuned: Sequence[TunedBin]) -> FloatArray:
    """Return scores from 0 to 1 with the threshold of each bin at 0.5, in the same order inside of a bin."""
    moved = np.full(len(score), np.nan)
    for own, one in enumerate(tuned):
        rows = number == own
        moved[rows] = _moved(score[rows], one.threshold)
    return moved


def _moved(score: FloatArray, threshold: float) -> FloatArray:
    """Return scores with a threshold at 0.5: linear from 0 to the threshold, and from there to 1."""
    low, high = score_ends(threshold)
    above = score > threshold
    with np.errstate(invalid="ignore"):  # a score may be NaN, for none
        lower = CUT * score / low if low > 0 else np.zeros(len(score))
        upper = CUT + (1 - CUT) * (score - high) / (1 - high) if high < 1 else np.ones(len(score))
    # rounding must not move an event across
    found = np.where(above, np.maximum(upper, np.nextafter(CUT, 1.0)), np.minimum(lower, CUT))
    return np.where(np.isnan(score), np.nan, found)


def _moved_back(moved: FloatArray, threshold: float) -> FloatArray:
    """Return the scores that were moved, to within rounding."""
    low, high = score_ends(threshold)
    return np.where(moved > CUT, high + (moved - CUT) / (1 - CUT) * (1 - high), moved / CUT * low)


def score_ends(threshold: float) -> tuple[float, float]:
    """Return where scores below the threshold end, and where those above it begin."""
    if threshold < 0:  # all events are selected
        return 0.0, 0.0
    if threshold >= 1:  # none is
        return 1.0, 1.0
    return threshold, threshold
