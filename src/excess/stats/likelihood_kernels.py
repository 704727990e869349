"""Sums over cells of events for the On/Off likelihood: its value, its derivatives, and what follows at its maximum.

A cell is what events with the same signal ratio ``r`` and the same exposure ratio ``a`` share. An event of a cell is On
with odds ``m r + a`` at the signal strength ``m``.
"""

from __future__ import annotations

import math

import numpy as np

from excess._core.compilation import njit

_SERIES_BELOW = 0.02
"""Largest argument for which a difference of logarithms is replaced by its series."""


@njit(cache=True, nogil=True)
def merge_sorted(ratio, alpha, on):
    """Return ratio, alpha, On and Off counts of the cells of events that are sorted by alpha, then by ratio."""
    cells = np.empty((4, len(ratio)))
    n = -1
    for i in range(len(ratio)):
        if i == 0 or ratio[i] != ratio[i - 1] or alpha[i] != alpha[i - 1]:
            n += 1
            cells[0, n], cells[1, n] = ratio[i], alpha[i]
            cells[2, n] = cells[3, n] = 0.0
        if on[i]:
            cells[2, n] += 1.0
        else:
            cells[3, n] += 1.0
    return cells[:, : n + 1]


@njit(cache=True, nogil=True)
def merge_sorted_keys(keys, alpha):
    """Return the same of events that share their alpha, from sorted keys: bits of the ratio, and the label as bit 0."""
    cells = np.empty((4, len(keys)))
    bits_of = cells[0].view(np.uint64)
    n = -1
    for i in range(len(keys)):
        bits = keys[i] >> np.uint64(1)
        if i == 0 or bits != bits_of[n]:
            n += 1
            bits_of[n] = bits
            cells[1, n] = alpha
            cells[2, n] = cells[3, n] = 0.0
        cells[3 - np.int64(keys[i] & np.uint64(1)), n] += 1.0
    return cells[:, : n + 1]


@njit(cache=True, nogil=True)
def merge_similar(ratio, alpha, n_on, n_off):
    """Return ratio, alpha, On and Off counts of sorted cells, where ratios that are the same to a hundredth are merged.

    The cells that bound the strength from below stay as they are.
    """
    smallest = np.inf
    for i in range(len(ratio)):
        smallest = min(smallest, alpha[i] / ratio[i])
    bits = ratio.view(np.uint64)
    cells = np.empty((4, len(ratio)))
    n = -1
    was_bounding = True
    for i in range(len(ratio)):
        bounding = alpha[i] / ratio[i] <= smallest * (1.0 + 1e-15)
        # sign, exponent, and seven bits of the fraction
        similar = i > 0 and bits[i] >> np.uint64(45) == bits[i - 1] >> np.uint64(45) and alpha[i] == alpha[i - 1]
        if bounding or was_bounding or not similar:
            n += 1
            cells[1, n] = alpha[i]
            cells[0, n] = cells[2, n] = cells[3, n] = 0.0
        cells[0, n] += (n_on[i] + n_off[i]) * ratio[i]
        cells[2, n] += n_on[i]
        cells[3, n] += n_off[i]
        was_bounding = bounding
    for k in range(n + 1):
        cells[0, k] /= cells[2, k] + cells[3, k]
    return cells[:, : n + 1]


@njit(cache=True, nogil=True)
def number_distinct(values, most):
    """Return the distinct values in the order of their first use, and the number of that of each event.

    If there are more than ``most``, no value is returned.
    """
    found = np.empty(most)
    numbers = np.empty(len(values), dtype=np.uint8)
    n = 0
    k = 0
    for i in range(len(values)):
        if n == 0 or found[k] != values[i]:  # events of a run mostly come one after the other
            k = 0
            while k < n and found[k] != values[i]:
                k += 1
            if k == n:
                if n == most:
                    return found[:0], numbers
                found[n] = values[i]
                n += 1
        numbers[i] = k
    return found[:n], numbers


@njit(cache=True, nogil=True)
def divide_keys(keys, numbers, n_parts):
    """Return the keys of each part one after the other, and where the parts end."""
    ends = np.zeros(n_parts + 1, dtype=np.int64)
    for i in range(len(keys)):
        ends[numbers[i] + 1] += 1
    ends = np.cumsum(ends)
    place = ends[:-1].copy()
    divided = np.empty_like(keys)
    for i in range(len(keys)):
        divided[place[numbers[i]]] = keys[i]
        place[numbers[i]] += 1
    return divided, ends


@njit(cache=True, nogil=True)
def derivatives(m, ratio, alpha, n_on, n_off):
    """Return first and second derivative of the log-likelihood by the signal strength.

    The first is infinite where an On event would be impossible.
    """
    first = second = 0.0
    for i in range(len(ratio)):
        odds = m * ratio[i] + alpha[i]
        either = ratio[i] / (odds + 1.0)
        # of On: 1 / odds - 1 / (odds + 1) as one fraction, so that nothing cancels
        if n_on[i] > 0.0:
            if odds <= 0.0:
                return np.inf, -np.inf
            of_on = ratio[i] / odds
            first += n_on[i] * of_on / (odds + 1.0) - n_off[i] * either
            second += (n_on[i] + n_off[i]) * either * either - n_on[i] * of_on * of_on
        else:
            first -= n_off[i] * either
            second += n_off[i] * either * either
    return first, second


@njit(cache=True, nogil=True)
def value_and_slope(m, ratio, alpha, n_on, n_off):
    """Return the log-likelihood above that without a signal, and its derivative."""
    value = slope = 0.0
    for i in range(len(ratio)):
        odds = m * ratio[i] + alpha[i]
        either = ratio[i] / (odds + 1.0)
        value -= (n_on[i] + n_off[i]) * math.log1p(m * ratio[i] / (1.0 + alpha[i]))
        slope -= n_off[i] * either
        if n_on[i] > 0.0:
            if odds <= 0.0:  # the border of what is possible; also where rounding falls below it
                return -np.inf, np.inf
            value += n_on[i] * math.log1p(m * ratio[i] / alpha[i])
            slope += n_on[i] * ratio[i] / odds / (odds + 1.0)
    return value, slope


@njit(cache=True, nogil=True)
def slopes_on_grid(grid, ratio, alpha, n_on, n_off):
    """Return the derivative of the log-likelihood at each signal strength of a grid."""
    slopes = np.empty(len(grid))
    for k in range(len(grid)):
        slopes[k] = derivatives(grid[k], ratio, alpha, n_on, n_off)[0]
    return slopes


@njit(cache=True, nogil=True)
def sums_at_maximum(m, ratio, alpha, n_on, n_off):
    """Return the sums that the results at a finite maximum are made of.

    These are: the log-likelihood above that without a signal; expected and observed information; the expected number of
    signal events, its derivative, and the sum of its squares; and the covariance that the higher-order correction uses.
    """
    value = expected = observed = 0.0
    n_signal = growth = squares = covariance = 0.0
    for i in range(len(ratio)):
        r, a = ratio[i], alpha[i]
        n = n_on[i] + n_off[i]
        odds = m * r + a
        either = 1.0 / (odds + 1.0)
        # the derivative is 0 at a maximum; its terms are subtracted here, so that small values do not cancel
        value -= n * _log_above_tangent(m * r / (1.0 + a))
        share = m * r * either
        n_signal += n * share
        squares += n * share * share
        growth += n * r * (1.0 + a) * either * either
        observed -= n * (r * either) ** 2
        if odds > 0.0:
            x = m * r / a
            if n_on[i] > 0.0:
                value += n_on[i] * _log_above_tangent(x)
                observed += n_on[i] * (r / odds) ** 2
            expected += n * (r * either) ** 2 / odds
            covariance += n * r * either * either * math.log1p(x)
    return value, expected, observed, n_signal, growth, squares, covariance


@njit(cache=True, nogil=True)
def _log_above_tangent(x):
    """Return ``log(1 + x) - x / (1 + x)``, which is of second order in x."""
    if abs(x) > _SERIES_BELOW:
        return math.log1p(x) - x / (1.0 + x)
    # with t = x / (1 + x): -log(1 - t) - t = t^2/2 + t^3/3 + ...
    t = x / (1.0 + x)
    total = 0.0
    for power in range(10, 1, -1):
        total = (total + 1.0 / power) * t
    return total * t
