"""Signal ratios and probabilities from scores: a monotone calibration on events that the model had not seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from excess._core.checks import BoolArray, FloatArray
from excess.estimators.model_state import StoredArrays, require
from excess.stats.curve import ThresholdCurve, compute_cell_curve

__all__ = ["SignalCalibration", "calibrate", "calibrate_out_of_fold"]

MIN_EVENTS = 20
"""Fewest events in a step of the calibration, so that one of them does not make a score mean certainty."""
_MAX_STEPS = 1000
_STEPS_TO_COMPARE = 200
"""Steps that are enough where likelihoods are compared, of which a fit computes many."""
_N_FOLDS = 5
_HALF_EVENT = 0.5
"""Off events that are added to each step, with as many On events as the background has for them: it bounds the odds."""
_LEAST = 1e-6
_CLOSEST_TO_CERTAIN = 1e-4
_LARGEST_EXPONENT = 40.0
_PRIOR = 0.01
_RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class SignalCalibration:
    """What a score says about signal, as a function that never falls.

    The probability of On is given at the mean scores of steps of at least 20 events, and interpolated between them. See
    ``docs/likelihood.md`` for how it is found, and how well it holds.

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

    def on_probability_at(self, score: FloatArray) -> FloatArray:
        """Return the probability of On at scores."""
        return np.interp(score, self.score, self.on_probability)

    def _excess(self, score: FloatArray) -> FloatArray:
        """Return the density of signal in On, over that of Off events."""
        on_probability = self.on_probability_at(score)
        return np.maximum(on_probability / (1 - on_probability) - self.alpha, 0.0)

    def to_arrays(self, name: str = "calibration") -> dict[str, NDArray[np.float64]]:
        """Return the arrays that a model file holds."""
        return {
            f"{name}_score": self.score,
            f"{name}_on_probability": self.on_probability,
            f"{name}_strength": np.array([self.strength]),
        }

    @classmethod
    def from_arrays(cls, arrays: StoredArrays, alpha: float, name: str = "calibration") -> SignalCalibration:
        """Return the calibration from the arrays of a model file."""
        score = arrays.take(f"{name}_score", np.float64, None)
        probability = arrays.take(f"{name}_on_probability", np.float64, len(score))
        strength = float(arrays.take(f"{name}_strength", np.float64, 1)[0])
        ascending = bool((np.diff(score) > 0).all() and (np.diff(probability) >= 0).all())
        possible = bool(np.isfinite(score).all() and (probability > 0).all() and (probability < 1).all())
        require(len(score) > 0 and ascending and possible and 0 <= strength < np.inf, "its calibration is not monotone")
        return cls(score, probability, alpha, strength)


def calibrate(curve: ThresholdCurve, *, smooth: bool = True) -> SignalCalibration:
    """Calibrate scores on the events of a curve, which the model that scored them must not have seen.

    The result is midway between two calibrations that fail in different ways: a curve of three parameters is smooth but
    may have the wrong shape; isotonic regression follows any shape but has steps that are too high or low by chance.
    Without ``smooth`` it is isotonic regression alone.
    """
    steps = _Steps.of(curve, at_least=int(curve.n_on[0] + curve.n_off[0]) // _MAX_STEPS)
    levels = _isotonic(curve)
    on_probability = np.interp(steps.score, *levels)
    if smooth:
        fitted = _smooth(steps, curve.alpha)
        # between and beyond the levels, of which there are few, the smooth curve says how it goes on
        half = 0.5 * (levels.on_probability - np.interp(levels.score, steps.score, fitted))
        on_probability = np.clip(fitted + np.interp(steps.score, levels.score, half), _LEAST, 1 - _LEAST)
        on_probability = np.maximum.accumulate(on_probability)
    odds = on_probability / (1 - on_probability)
    # with this mean over the background, which is as large in a step as the odds say, the ratio is a density over one
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
    """Calibrate the scores of a model that has no out-of-bag scores.

    ``score(train, held_out)`` returns the scores of some events by a model that was trained on others. ``weights`` are
    the numbers of events that each event stands for, if they have any. Where there are too few events to leave some
    out, all scores mean the same.
    """
    scores = np.zeros(len(on))
    if len(on) >= 2 * MIN_EVENTS and min(np.count_nonzero(on), np.count_nonzero(~on)) >= _N_FOLDS:
        fold = np.empty(len(on), dtype=np.int64)
        rng = np.random.default_rng(0)  # which events share a fold does not depend on the seed of a model
        for own in (on, ~on):
            fold[own] = rng.permutation(np.count_nonzero(own)) % _N_FOLDS
        for number in range(_N_FOLDS):
            scores[fold == number] = score(fold != number, fold == number)
    n_on, n_off = (on, ~on) if weights is None else (np.where(on, weights, 0.0), np.where(on, 0.0, weights))
    return calibrate(compute_cell_curve(scores, n_on, n_off, alpha), smooth=smooth)


def calibrated_log_likelihood(counts: NDArray[Any], alpha: float) -> float:
    """Return the log-likelihood of labels under their calibrated scores; minus infinity where there are no events.

    ``counts`` of shape (2, n_cells) has the Off and the On events in cells that divide scores from 0 to 1 evenly. The
    calibration is the smooth one, of three parameters, so that what it learns from the labels is negligible.
    """
    n_off, n_on = counts
    filled = np.flatnonzero(n_off + n_on)
    if len(filled) == 0:
        return -np.inf
    score = (filled + 0.5) / len(n_on)
    n_all = int(n_off.sum() + n_on.sum())
    steps = _Steps.of_cells(score, n_on[filled], n_off[filled], at_least=n_all // _STEPS_TO_COMPARE)
    return steps.log_likelihood(_smooth(steps, alpha, tolerance=1e-3))


class _Steps(NamedTuple):
    """Events in ascending order of their scores, in steps of about equally many; a score is in one step only."""

    score: FloatArray  # mean over the events of a step
    n_on: NDArray[np.int64]
    n_off: NDArray[np.int64]

    @classmethod
    def of(cls, curve: ThresholdCurve, at_least: int) -> _Steps:
        """Divide the events of a curve into as many steps as there can be."""
        return cls.of_cells(curve.scores, -np.diff(curve.n_on), -np.diff(curve.n_off), at_least)

    @classmethod
    def of_cells(cls, score: FloatArray, n_on: NDArray[np.int64], n_off: NDArray[np.int64], at_least: int) -> _Steps:
        """Divide the events of cells, each with a score, into as many steps as there can be."""
        n = n_on + n_off
        n_all = int(n.sum())
        size = max(MIN_EVENTS, at_least)
        number = (np.cumsum(n) - n) * max(n_all // size, 1) // n_all
        first = np.flatnonzero(np.append(True, np.diff(number) != 0))
        # many events of one score may leave too few before or after them
        while len(first) > 1 and (small := np.add.reduceat(n, first) < size).any():
            small[0] = False
            first = first[~small] if small.any() else np.delete(first, 1)
        total, n_on, n_off = (np.add.reduceat(column, first) for column in (score * n, n_on, n_off))
        return cls(total / (n_on + n_off), n_on, n_off)

    def log_likelihood(self, on_probability: FloatArray) -> float:
        """Return the log-likelihood of the labels under the probability of On in each step."""
        return float((self.n_on * np.log(on_probability) + self.n_off * np.log1p(-on_probability)).sum())


class _Levels(NamedTuple):
    """Mean scores, and the probability of On there."""

    score: FloatArray
    on_probability: FloatArray


def _isotonic(curve: ThresholdCurve) -> _Levels:
    """Find the probability of On by isotonic regression on steps of many events."""
    steps = _Steps.of(curve, at_least=2 * math.isqrt(int(curve.n_on[0] + curve.n_off[0])))
    n = steps.n_on + steps.n_off
    level = isotonic_regression(steps.n_on / n, sample_weight=n.astype(np.float64))
    block = np.flatnonzero(np.append(True, np.diff(level) != 0))
    n_on, n_off, total = (np.add.reduceat(column, block) for column in (steps.n_on, steps.n_off, steps.score * n))
    odds = (n_on + curve.alpha * _HALF_EVENT) / (n_off + _HALF_EVENT)
    odds = np.maximum.accumulate(odds)  # what was added may differ between steps by more than they do
    return _Levels(total / (n_on + n_off), odds / (1 + odds))


def _smooth(steps: _Steps, alpha: float, tolerance: float = 1e-9) -> FloatArray:
    """Return the probability of On in each step by beta calibration (Kull et al. 2017) of the signal above alpha.

    The logarithm of the signal ratio is linear in ``ln s`` and ``-ln(1 - s)`` for scores from 0 to 1, and in the score
    itself for others; neither coefficient may be negative. Coefficients are found to within a tolerance.
    """
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
    odds = np.minimum(_signal(columns, fitted) + alpha, MIN_EVENTS / _HALF_EVENT)
    return odds / (1 + odds)


def _signal(columns: FloatArray, coefficients: FloatArray) -> FloatArray:
    """Return the density of signal in On, over that of Off events, in each step."""
    return np.exp(np.clip(columns @ coefficients, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))


def _fit_signal(columns: FloatArray, n_on: NDArray[Any], n: NDArray[Any], alpha: float, tolerance: float) -> FloatArray:
    """Return the coefficients of the likeliest signal, with a weak prior against certainty, by Fisher scoring.

    All but the first coefficient are 0 or more.
    """
    prior = np.append(0.0, np.full(columns.shape[1] - 1, 2 * _PRIOR))

    def terms(coefficients: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the log-likelihood of the labels, its gradient, and its information."""
        signal = _signal(columns, coefficients)
        odds = signal + alpha
        value = (n_on * np.log(odds) - n * np.log1p(odds)).sum() - 0.5 * prior @ coefficients**2
        gradient = ((n_on / odds - n / (1 + odds)) * signal) @ columns - prior * coefficients
        weights = n * (signal / (1 + odds)) ** 2 / odds
        return float(value), gradient, (columns * weights[:, None]).T @ columns + np.diag(prior + _RIDGE)

    lowest = np.append(-_LARGEST_EXPONENT, np.zeros(columns.shape[1] - 1))
    # a steep start is far off where a few scores are many times the spread away from the others
    starts = [np.append(-3.0, np.full(columns.shape[1] - 1, slope)) for slope in (0.5, 0.1, 0.0)]
    coefficients = max(starts, key=lambda start: terms(start)[0])
    value, gradient, information = terms(coefficients)
    for _ in range(200):
        free = (coefficients > lowest) | (gradient > 0)
        step = np.zeros(len(coefficients))
        step[free] = np.linalg.solve(information[np.ix_(free, free)], gradient[free])
        for _ in range(40):
            stepped = np.clip(coefficients + step, lowest, _LARGEST_EXPONENT)
            new = terms(stepped)
            if new[0] >= value:
                break
            step *= 0.5
        else:
            break
        moved = np.abs(stepped - coefficients).max()
        coefficients, (value, gradient, information) = stepped, new
        if moved < tolerance:
            break
    return coefficients
