"""P-values: of a sum of weighted squares of normal variables, and of several tests at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import chi2

from excess._core.checks import FloatArray, as_floats

__all__ = ["holm", "weighted_chi2_sf"]

_NEGLIGIBLE = 1e-10
"""Weights below this share of the largest are left out."""
_NEAR_MEAN = 1e-3
"""Signed root of the deviance below which the formula of the tail is 0 / 0, and its limit is used."""


def holm(p_values: ArrayLike) -> FloatArray:
    """Correct p-values for their number, by Holm's step-down method.

    Examples
    --------
    >>> from excess.stats.p_values import holm
    >>> print(holm([0.01, 0.04, 0.03]))
    [0.03 0.06 0.06]
    """
    p = as_floats("p_values", np.asarray(p_values))
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def weighted_chi2_sf(value: float, weights: ArrayLike) -> float:
    """Probability that a sum of weighted, independent chi-squared variables of one degree of freedom exceeds a value.

    By the saddlepoint approximation (Kuonen 1999, Biometrika 86, 929), which holds far into the tail. Its relative
    error is some per cent where one weight dominates, and less elsewhere.

    Parameters
    ----------
    value : float
        The value to exceed.
    weights : array-like of shape (n_weights,)
        Weights, 0 or more, not all of them 0.

    Returns
    -------
    float
        The probability.

    Examples
    --------
    >>> from excess.stats.p_values import weighted_chi2_sf
    >>> print(f"{weighted_chi2_sf(6.0, [1.0, 0.5, 0.25]):.4f}")
    0.0302
    """
    given = np.maximum(as_floats("weights", weights), 0.0)
    largest = given.max()
    if value <= 0:
        return 1.0
    scaled = given[given > _NEGLIGIBLE * largest] / largest
    x = value / largest
    if scaled.min() == 1:
        return float(chi2.sf(x, len(scaled)))

    def slope(t: float) -> float:
        return float(np.sum(scaled / (1 - 2 * t * scaled)))

    # the slope of the cumulant function grows from 0 to infinity as t goes from minus infinity to 1/2; these bounds
    # enclose the t at which it is x: to the left all terms together, to the right the largest alone
    low, high = min(0.0, (1 - len(scaled) / x) / 2) - 1.0 / scaled.min(), 0.5 - 0.25 / x
    while slope(low) > x:
        low *= 2
    while slope(high) < x:
        high = 0.25 + high / 2
    t = brentq(lambda at: slope(at) - x, low, high, xtol=1e-14, rtol=1e-14)
    cumulant = -0.5 * float(np.sum(np.log1p(-2 * t * scaled)))
    curvature = float(np.sum(2 * (scaled / (1 - 2 * t * scaled)) ** 2))
    root = float(np.sign(t) * np.sqrt(max(2 * (t * x - cumulant), 0.0)))
    if abs(root) < _NEAR_MEAN:
        third = float(np.sum(8 * scaled**3))
        return 0.5 - third / (6 * np.sqrt(2 * np.pi) * curvature**1.5)
    corrected = root + np.log(t * np.sqrt(curvature) / root) / root
    return float(ndtr(-corrected))
