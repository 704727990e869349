r"""Li & Ma significance of an excess of On over Off counts: the one home of the formula.

With ``q = alpha / (1 + alpha)`` and ``n = n_on + n_off``, formula (17) of Li & Ma (1983) reads

.. math:: S^2 / 2 = n_{on} \ln\frac{n_{on}}{q n} + n_{off} \ln\frac{n_{off}}{(1 - q) n}

It is computed as the sum of two Poisson deviances, neither of which can be negative, so that nothing
cancels near balance and no square root of a negative number is ever taken.

References
----------
Li, T.-P. & Ma, Y.-Q. (1983), "Analysis methods for results in gamma-ray astronomy",
The Astrophysical Journal 272, 317.
"""

from __future__ import annotations

import math
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from excess._core.checks import (
    FloatArray,
    Number,
    as_alpha,
    as_counts,
    as_result,
    check_broadcast,
)

__all__ = ["joint_significance", "li_ma_p_value", "li_ma_significance", "n_on_for_significance"]

_EPSILON = np.finfo(np.float64).eps
_SERIES_BELOW = 0.1
"""Relative distance to balance below which the logarithm is replaced by its series."""
_BLOCK = 32_768
"""Counts that are worked on at a time where there are many."""


@overload
def li_ma_significance(n_on: Number, n_off: Number, alpha: Number, *, signed: bool = ...) -> float: ...
@overload
def li_ma_significance(n_on: ArrayLike, n_off: ArrayLike, alpha: ArrayLike, *, signed: bool = ...) -> FloatArray: ...
def li_ma_significance(n_on: ArrayLike, n_off: ArrayLike, alpha: ArrayLike, *, signed: bool = False) -> Any:
    """Significance of an excess of On over Off counts, formula (17) of Li & Ma (1983).

    Parameters
    ----------
    n_on : array-like
        Number of On events. Any shape; ``n_on``, ``n_off`` and ``alpha`` broadcast like NumPy arrays.
    n_off : array-like
        Number of Off events.
    alpha : array-like
        Exposure ratio On/Off; five equal Off regions give 1/5.
    signed : bool, default=False
        By default a deficit (``n_on < alpha * n_off``) counts as 0, as the learning criteria want it.
        With ``signed=True`` a deficit is negative, as a result is reported.

    Returns
    -------
    float or ndarray of float64
        Significance in sigma: 0 where there are no events and at exact balance, never NaN (for counts and ratios up
        to 1e100).

    Raises
    ------
    ValueError
        If a count is negative or not finite, or if ``alpha`` is not positive and finite.

    See Also
    --------
    li_ma_p_value : The probability of at least this significance without a source.
    OnOffCounts : Counts and all that follows from them in one object.

    Examples
    --------
    >>> from excess import li_ma_significance
    >>> round(li_ma_significance(20, 25, 0.2), 3)
    4.354
    >>> li_ma_significance([10, 0, 0, 5], [0, 10, 0, 25], 0.2, signed=True).round(3)
    array([ 5.986, -1.91 ,  0.   ,  0.   ])
    """
    on, off, ratio = as_counts("n_on", n_on), as_counts("n_off", n_off), as_alpha(alpha)
    check_broadcast(n_on=on, n_off=off, alpha=ratio)
    significance = signed_significance(on, off, ratio)
    return as_result(significance if signed else np.maximum(significance, 0.0))


@overload
def li_ma_p_value(n_on: Number, n_off: Number, alpha: Number) -> float: ...
@overload
def li_ma_p_value(n_on: ArrayLike, n_off: ArrayLike, alpha: ArrayLike) -> FloatArray: ...
def li_ma_p_value(n_on: ArrayLike, n_off: ArrayLike, alpha: ArrayLike) -> Any:
    """One-sided p-value of an excess: the upper tail of the normal law at the signed significance.

    Parameters
    ----------
    n_on, n_off, alpha : array-like
        As for `li_ma_significance`.

    Returns
    -------
    float or ndarray of float64
        0.5 at balance, more than that for a deficit.

    Examples
    --------
    >>> from excess import li_ma_p_value
    >>> li_ma_p_value(5, 25, 0.2)
    0.5
    >>> f"{li_ma_p_value(20, 25, 0.2):.2g}"
    '6.7e-06'
    """
    return as_result(ndtr(-li_ma_significance(n_on, n_off, alpha, signed=True)))


@overload
def n_on_for_significance(n_off: Number, alpha: Number, significance: Number) -> float: ...
@overload
def n_on_for_significance(n_off: ArrayLike, alpha: ArrayLike, significance: ArrayLike) -> FloatArray: ...
def n_on_for_significance(n_off: ArrayLike, alpha: ArrayLike, significance: ArrayLike) -> Any:
    """Number of On events that gives a significance: the inverse of `li_ma_significance`.

    Parameters
    ----------
    n_off : array-like
        Number of Off events.
    alpha : array-like
        Exposure ratio On/Off.
    significance : array-like
        Wanted significance in sigma, not negative.

    Returns
    -------
    float or ndarray of float64
        The real number of On events, at least ``alpha * n_off``. Round up for a count.

    Examples
    --------
    >>> from excess import li_ma_significance, n_on_for_significance
    >>> n_on = n_on_for_significance(100, 0.2, 5.0)
    >>> round(n_on, 2)
    50.23
    >>> round(li_ma_significance(n_on, 100, 0.2), 12)
    5.0
    """
    off, ratio, wanted = as_counts("n_off", n_off), as_alpha(alpha), as_counts("significance", significance)
    check_broadcast(n_off=off, alpha=ratio, significance=wanted)
    n_off, alpha, wanted = np.broadcast_arrays(off, ratio, wanted)

    # S grows with n_on from 0 at balance, and is largest where there are no Off events, for which the
    # formula has a closed inverse: two lower bounds of the root.
    no_off = wanted**2 / (2 * np.log1p(1 / alpha))
    low = np.maximum(alpha * n_off, no_off)
    high = low + np.maximum(wanted, 1.0)
    while (short := signed_significance(high, n_off, alpha) < wanted).any():
        high = np.where(short, 2 * high, high)

    # Newton's method from the left, which S's concave growth makes monotone; where rounding pushes a
    # step out of the bracket, bisection takes its place.
    root = low.copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(200):
            value = signed_significance(root, n_off, alpha)
            low = np.where(value < wanted, root, low)
            high = np.where(value > wanted, root, high)
            slope = np.where(
                value > 0,
                np.log1p((root - alpha * n_off) / (alpha * (root + n_off))) / value,
                1 / np.sqrt(alpha * (1 + alpha) * n_off),
            )
            stepped = root + (wanted - value) / slope
            inside = (stepped >= low) & (stepped <= high)
            stepped = np.where(inside, stepped, 0.5 * (low + high))
            stepped = np.where(value == wanted, root, stepped)
            done = np.abs(stepped - root) <= 2 * _EPSILON * root
            root = stepped
            if done.all():
                break
    exact = np.where(n_off == 0, no_off, np.where(wanted == 0, alpha * n_off, root))
    return as_result(exact)


def joint_significance(n_on: ArrayLike, n_off: ArrayLike, alpha: ArrayLike) -> float:
    """Significance of a common signal in measurements whose exposure ratios differ.

    Parameters
    ----------
    n_on, n_off, alpha : array-like of shape (n_measurements,)
        Numbers of On and Off events, and exposure ratio On/Off, of each measurement.

    Returns
    -------
    float
        Signed significance in sigma, negative for a deficit. That of one measurement, or of measurements with the same
        ratio, is Li & Ma's.

    Notes
    -----
    The signal is a common share of the background: measurement k expects ``alpha_k (1 + mu)`` On events for each Off
    event. That is the On/Off likelihood of all events with ``alpha_k`` as signal ratio, so that there is one parameter,
    and no signal means ``mu = 0``. At the best ``mu`` the expected On events m_k add up to those observed, and the
    likelihood ratio is ``S^2 = sum S_k(m_k, n_k - m_k, alpha_k)^2`` with the significances of Li & Ma.

    Examples
    --------
    >>> from excess import joint_significance
    >>> round(joint_significance([30, 120], [100, 100], [0.2, 1.0]), 3)
    2.132
    """
    on, off, ratio = as_counts("n_on", n_on), as_counts("n_off", n_off), as_alpha(alpha)
    check_broadcast(n_on=on, n_off=off, alpha=ratio)
    on, off, ratio = (np.atleast_1d(values).ravel() for values in np.broadcast_arrays(on, off, ratio))
    n, n_on_all = on + off, float(on.sum())
    if (ratio == ratio[:1]).all():
        return float(signed_significance(on.sum(), off.sum(), ratio[0])) if len(ratio) else 0.0
    if n_on_all == 0 or not off.any():  # no signal at all, or nothing else
        expected = on
    else:
        expected = n * _on_share(ratio, _common_odds(n_on_all, n, ratio))
    squares = signed_significance(expected, n - expected, ratio) ** 2
    return math.copysign(math.sqrt(squares.sum()), n_on_all - float((n * ratio / (1 + ratio)).sum()))


def _on_share(alpha: FloatArray, log_factor: float) -> FloatArray:
    """Return the share of On events whose odds are alpha times a factor."""
    return 1 / (1 + np.exp(-log_factor) / alpha)


def _common_odds(n_on: float, n: FloatArray, alpha: FloatArray) -> float:
    """Return the logarithm of the factor by which odds of alpha explain the On events among n events each."""
    # the expected number grows with the factor, which lies between those that each ratio alone would need
    needed = math.log(n_on / (n.sum() - n_on)) - np.log(alpha[n > 0])
    low, high = float(needed.min()), float(needed.max())
    at = 0.5 * low + 0.5 * high
    for _ in range(200):
        share = _on_share(alpha, at)
        missing = n_on - float((n * share).sum())
        low, high = (at, high) if missing > 0 else (low, at)
        stepped = at + missing / float((n * share * (1 - share)).sum())
        if not low < stepped < high:
            stepped = 0.5 * low + 0.5 * high
        if abs(stepped - at) <= 2 * _EPSILON * max(abs(stepped), 1.0):
            return stepped
        at = stepped
    return at


def significance_of_cuts(n_on: NDArray[Any], n_off: NDArray[Any], alpha: float) -> FloatArray:
    """Compute one-sided significances of many counts, block by block so that temporaries stay in cache."""
    significance = np.empty(len(n_on))
    for start in range(0, len(n_on), _BLOCK):
        block = slice(start, start + _BLOCK)
        significance[block] = signed_significance(n_on[block], n_off[block], alpha)
    return np.maximum(significance, 0.0, out=significance)


def signed_significance(n_on: NDArray[Any], n_off: NDArray[Any], alpha: FloatArray | float) -> FloatArray:
    """Compute the signed significance of counts that have been checked before (no validation)."""
    share_off = 1 / (1 + alpha)  # 1 - q
    share_on = alpha * share_off  # q
    n = n_on + n_off
    background = alpha * n_off
    excess = n_on - background
    # 1/49 has no exact binary form, so exact balance may be missed by the last bits
    excess = np.where(np.abs(excess) <= 2 * _EPSILON * background, 0.0, excess)
    difference = share_off * excess  # n_on - q n
    half_square = _deviance(n_on, share_on * n, difference) + _deviance(n_off, share_off * n, -difference)
    return np.copysign(np.sqrt(2 * half_square), difference)


def _deviance(observed: NDArray[Any], expected: NDArray[Any], difference: NDArray[Any]) -> FloatArray:
    """Return ``observed ln(observed / expected) - difference``, without cancellation at small differences.

    With ``v = (observed - expected) / (observed + expected)`` the logarithm is ``2 artanh(v)``, and
    its first term drops out by hand instead of by subtraction.
    """
    total = observed + expected
    with np.errstate(divide="ignore", invalid="ignore"):
        v = np.where(total > 0, difference / total, 0.0)
        ratio = observed / expected
    far = observed * np.log(np.where(ratio > 0, ratio, 1.0)) - difference
    v2 = v * v
    tail = np.zeros_like(v)
    for power in range(17, 1, -2):  # artanh(v) - v = v^3/3 + v^5/5 + ...
        tail = (tail + 1 / power) * v2
    near = total * (v2 + (1 + v) * v * tail)
    return np.where(np.abs(v) < _SERIES_BELOW, near, far)
