"""Counts of scored events: in cells of the scale of scores, and between cuts in bootstrap resamples.

Counts, smallest and largest scores do not depend on the order of events, so that parts of the events can be counted
apart and put together.
"""

from __future__ import annotations

import numpy as np

from excess._core.compilation import njit
from excess._core.rng import bootstrap_weights

_BLOCK = 4096
"""Events whose cuts are looked up once for all resamples; their places and weights stay in the cache."""


@njit(cache=True, nogil=True)
def count_on_grid(on, score, units, n_cells, low, high, n_on, n_off):
    """Add events with scores from 0 to 1 to the counts, the smallest and the largest score of their cells.

    ``units`` (int64) says how much each event counts, or is None for 1.
    """
    for i in range(len(score)):
        s = score[i]
        if np.isnan(s):
            continue
        # a product with a power of two is exact, so that the borders of cells are too; a score of 1 is in the last cell
        cell = min(np.int64(s * n_cells), n_cells - 1)
        unit = 1 if units is None else units[i]
        if on[i]:
            n_on[cell] += unit
        else:
            n_off[cell] += unit
        low[cell] = min(low[cell], s)
        high[cell] = max(high[cell], s)


@njit(cache=True, nogil=True)
def count_resamples(on, score, units, first, cuts, keys, counts):
    """Add the bootstrap weights of events to ``counts[resample, cut, label]``.

    An event counts at the last cut that is not above its score, as much as ``units`` (int64) says, or 1 where that is
    None. ``first`` is the number of the first event; events without a score (NaN) have no number.
    """
    places = np.empty(_BLOCK, dtype=np.int64)
    amounts = np.empty(_BLOCK, dtype=np.int64)
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
                if units is not None:
                    amounts[n] = units[i]
                n += 1
            i += 1
        # resamples outside, events inside: one resample at a time has its counts in the cache; integer sums are exact
        for k in range(len(keys)):
            bootstrap_weights(keys[k], first, weights[:n])
            flat = counts[k]
            for r in range(n):
                drawn = weights[r] if units is None else weights[r] * amounts[r]
                flat[places[r] >> 1, places[r] & 1] += drawn
        first += n


@njit(cache=True, nogil=True)
def count_labels(on, score, units, counts):
    """Add events with scores to ``counts[label, cell]``, where cells divide the scale from 0 to 1 evenly.

    Scores beyond the ends of the scale count at the ends; events without a score (NaN) do not count. ``units`` says how
    much each event counts, or is None for 1.
    """
    n_cells = counts.shape[1]
    for i in range(len(score)):
        s = score[i]
        if np.isnan(s):
            continue
        cell = min(max(np.int64(s * n_cells), 0), n_cells - 1)
        counts[1 if on[i] else 0, cell] += 1 if units is None else units[i]


@njit(cache=True, nogil=True)
def count_labels_without(on, score, units, contributions, features, counts):
    """Add events to ``counts[k, label, cell]`` by their scores less the contribution of the feature ``features[k]``."""
    n_cells = counts.shape[2]
    for i in range(len(score)):
        if np.isnan(score[i]):
            continue
        label, unit = 1 if on[i] else 0, 1 if units is None else units[i]
        for k in range(len(features)):
            s = score[i] - contributions[i, features[k]]
            counts[k, label, min(max(np.int64(s * n_cells), 0), n_cells - 1)] += unit
