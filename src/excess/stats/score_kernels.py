"""Counts of scored events: in cells of a grid of scores, and between cuts in bootstrap resamples.

Counts, smallest and largest scores do not depend on the order of events, so that parts of the events can be counted
apart and put together.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from excess._core.rng import bootstrap_weights

_BLOCK = 4096
"""Events whose cuts are looked up once for all resamples; their places and weights stay in the cache."""

LOG_LIKELIHOOD_SCALE = float(1 << 24)
"""Steps per unit of a log-likelihood. It is summed in whole steps, so that the order of events does not matter."""
_LEAST_PROBABILITY = 1e-6
"""Bounds what one event can add: 14 units, so that 64 bits hold the sum over more than 10^10 events."""


@njit(cache=True, nogil=True)
def count_on_grid(on, score, n_cells, low, high, n_on, n_off):
    """Add events with scores from 0 to 1 to the counts, the smallest and the largest score of their cells."""
    for i in range(len(score)):
        s = score[i]
        if np.isnan(s):
            continue
        # a product with a power of two is exact, so that the borders of cells are too; a score of 1 is in the last cell
        cell = min(np.int64(s * n_cells), n_cells - 1)
        if on[i]:
            n_on[cell] += 1
        else:
            n_off[cell] += 1
        low[cell] = min(low[cell], s)
        high[cell] = max(high[cell], s)


@njit(cache=True, nogil=True)
def count_resamples(on, score, first, cuts, keys, counts):
    """Add the bootstrap weights of events to ``counts[resample, cut, label]``.

    An event counts at the last cut that is not above its score. ``first`` is the number of the first event; events
    without a score (NaN) have no number.
    """
    places = np.empty(_BLOCK, dtype=np.int64)
    weights = np.empty(_BLOCK, dtype=np.uint8)
    # the smallest power of two that is not below the number of cuts: the first step of the binary search
    steps = 1
    while steps < len(cuts):
        steps *= 2
    i = 0
    while i < len(score):
        n = 0
        while n < _BLOCK and i < len(score):
            s = score[i]
            if not np.isnan(s):
                # invariant: the first `below` cuts are not above the score
                below = 0
                step = steps
                while step > 0:
                    position = below + step
                    if position <= len(cuts) and cuts[position - 1] <= s:
                        below = position
                    step //= 2
                # cut and label in one number: the label is bit 0, the cut the bits above it
                places[n] = 2 * (below - 1) + (1 if on[i] else 0)
                n += 1
            i += 1
        # resamples outside, events inside: one resample at a time has its counts in the cache; integer sums are exact
        for k in range(len(keys)):
            bootstrap_weights(keys[k], first, weights[:n])
            flat = counts[k]
            for r in range(n):
                flat[places[r] >> 1, places[r] & 1] += weights[r]
        first += n


@njit(cache=True, nogil=True)
def sum_log_likelihood(on, score):
    """Return the log-likelihood of labels under their scores in whole units, and how many events have a score."""
    total, n = np.int64(0), np.int64(0)
    for i in range(len(score)):
        if not np.isnan(score[i]):
            probability = score[i] if on[i] else 1.0 - score[i]
            # rounded to whole steps before the sum: integers add up to the same in any order, floats do not
            total += np.int64(np.rint(math.log(max(probability, _LEAST_PROBABILITY)) * LOG_LIKELIHOOD_SCALE))
            n += 1
    return total, n


def sum_weighted_log_likelihood(
    on: NDArray[np.bool_], score: NDArray[np.float64], weights: NDArray[np.float64] | None
) -> tuple[int, float]:
    """Return what `sum_log_likelihood` does where events have weights, and the weights of those that have a score."""
    if weights is None:
        return sum_log_likelihood(on, score)
    scored = ~np.isnan(score)
    own = weights[scored]
    probability = np.where(on, score, 1.0 - score)[scored]
    steps = np.rint(np.log(np.maximum(probability, _LEAST_PROBABILITY)) * own * LOG_LIKELIHOOD_SCALE)
    return int(steps.astype(np.int64).sum()), float(own.sum())
