"""Signal ratios and probabilities from scores: a monotone calibration on events that the model had not seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from excess._core.checks import BoolArray, FloatArray
from excess.estimators.model_state import StoredArrays, require
from excess.stats.curve import ThresholdCurve, compute_cell_curve

__all__ = ["SignalCalibration", "calibrate", "calibrate_out_of_fold"]

MIN_EVENTS = 20
"""Fewest events in a step of the calibration, so that one of them does not make a score mean certainty; a step has twice
the root of all events where that is more."""
_N_FOLDS = 5
_HALF_EVENT = 0.5
"""Off events that are added to each step, with as many On events as the background has for them: it bounds the odds."""


@dataclass(frozen=True, eq=False)
class SignalCalibration:
    """What a score says about signal, as a function that never falls.

    The calibration is made of steps of at least 20 events, or twice the root of all events if that is more, each with
    its mean score and the share of On among its events, which isotonic regression has made monotone; between two steps
    it is interpolated.

    Attributes
    ----------
    score : ndarray of shape (n_steps,)
        Mean score of each step, ascending.
    on_probability : ndarray of shape (n_steps,)
        Probability of On at that score.
    alpha : float
        Exposure ratio On/Off of the events of the calibration.
    strength : float
        Signal events for each Off event there, 0 where no step has an excess.
    """

    score: FloatArray
    on_probability: FloatArray
    alpha: float
    strength: float

    def ratio(self, score: FloatArray) -> FloatArray:
        """Return the signal ratio of scores: density of signal over that of the background, both normalised to 1."""
        if self.strength == 0:
            return np.ones(len(score))  # nothing tells one event from another
        return self._excess(score) / self.strength

    def signal_probability(self, score: FloatArray) -> FloatArray:
        """Return the probability that an event of the On and Off regions with such a score is signal."""
        excess = self._excess(score)
        return excess / (excess + (1 + self.alpha))

    def _excess(self, score: FloatArray) -> FloatArray:
        """Return the density of signal in On, over that of Off events."""
        on_probability = np.interp(score, self.score, self.on_probability)
        return np.maximum(on_probability / (1 - on_probability) - self.alpha, 0.0)

    def to_arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return the arrays that a model file holds."""
        return {
            "calibration_score": self.score,
            "calibration_on_probability": self.on_probability,
            "calibration_strength": np.array([self.strength]),
        }

    @classmethod
    def from_arrays(cls, arrays: StoredArrays, alpha: float) -> SignalCalibration:
        """Return the calibration from the arrays of a model file."""
        score = arrays.take("calibration_score", np.float64, None)
        probability = arrays.take("calibration_on_probability", np.float64, len(score))
        strength = float(arrays.take("calibration_strength", np.float64, 1)[0])
        ascending = bool((np.diff(score) > 0).all() and (np.diff(probability) >= 0).all())
        possible = bool(np.isfinite(score).all() and (probability > 0).all() and (probability < 1).all())
        require(len(score) > 0 and ascending and possible and 0 <= strength < np.inf, "its calibration is not monotone")
        return cls(score, probability, alpha, strength)


def calibrate(curve: ThresholdCurve) -> SignalCalibration:
    """Calibrate scores on the events of a curve, which the model that scored them must not have seen."""
    n_on, n_off = -np.diff(curve.n_on), -np.diff(curve.n_off)  # at each distinct score
    first = _steps(n_on + n_off)
    n_on, n_off, total = (np.add.reduceat(counts, first) for counts in (n_on, n_off, curve.scores * (n_on + n_off)))
    n = n_on + n_off
    level = isotonic_regression(n_on / n, sample_weight=n.astype(np.float64))
    block = np.flatnonzero(np.append(True, np.diff(level) != 0))
    n_on, n_off, total = (np.add.reduceat(column, block) for column in (n_on, n_off, total))
    odds = (n_on + curve.alpha * _HALF_EVENT) / (n_off + _HALF_EVENT)
    odds = np.maximum.accumulate(odds)  # what was added may differ between steps by more than they do
    # the excess of all steps that have one: then the ratio is a density over one, and its mean over the background is 1
    strength = np.maximum(n_on - curve.alpha * n_off, 0.0).sum() / max(n_off.sum(), 1)
    return SignalCalibration(total / (n_on + n_off), odds / (1 + odds), curve.alpha, float(strength))


def calibrate_out_of_fold(
    on: BoolArray, alpha: float, score: Callable[[BoolArray, BoolArray], FloatArray]
) -> SignalCalibration:
    """Calibrate the scores of a model that has no out-of-bag scores.

    ``score(train, held_out)`` returns the scores of some events by a model that was trained on others. Where there are
    too few events to leave some out, all scores mean the same.
    """
    scores = np.zeros(len(on))
    if len(on) >= 2 * MIN_EVENTS and min(np.count_nonzero(on), np.count_nonzero(~on)) >= _N_FOLDS:
        fold = np.empty(len(on), dtype=np.int64)
        rng = np.random.default_rng(0)  # which events share a fold does not depend on the seed of a model
        for own in (on, ~on):
            fold[own] = rng.permutation(np.count_nonzero(own)) % _N_FOLDS
        for number in range(_N_FOLDS):
            scores[fold == number] = score(fold != number, fold == number)
    return calibrate(compute_cell_curve(scores, on, ~on, alpha))


def _steps(n: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the first distinct score of each step; steps are about equally large, and a score is in one step only."""
    before = np.cumsum(n) - n
    size = max(MIN_EVENTS, 2 * math.isqrt(int(n.sum())))
    n_steps = max(int(n.sum()) // size, 1)
    number = before * n_steps // int(n.sum())
    first = np.flatnonzero(np.append(True, np.diff(number) != 0))
    # many events of one score may leave too few before or after them
    while len(first) > 1 and (small := np.add.reduceat(n, first) < size).any():
        small[0] = False
        first = first[~small] if small.any() else np.delete(first, 1)
    return first
