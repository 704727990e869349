"""P-values: of permutations, correlated differences, a sum of weighted squares of normal variables, several tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import chi2

from excess._core.checks import FloatArray, as_floats

__all__ = ["difference_p_value", "holm", "permutation_p_value", "weighted_chi2_sf"]

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


def permutation_p_value(value: float, permuted: FloatArray) -> float:
    """Share of permutations, the identity among them, with no smaller value; NaN without any, or where value is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.stats.p_values import permutation_p_value
    >>> permutation_p_value(2.0, np.array([1.0, 2.0, 3.0]))
    0.75
    """
    if len(permuted) == 0 or np.isnan(value):
        return float("nan")
    return (1 + int(np.count_nonzero(permuted >= value))) / (1 + len(permuted))


def difference_p_value(difference: FloatArray, covariance: FloatArray, exponent: float = 0.5) -> float:
    """Probability of such differences, or larger ones, where they are normal with mean 0 and this covariance.

    Differences are divided by their standard deviations, and decomposed into the independent components of their
    correlation matrix. The statistic is the sum of the squared components, each divided by its eigenvalue and
    multiplied by a power of it. For cumulated differences of two distributions, the first component is about a shift,
    the second about a spread, and so on.

    Parameters
    ----------
    difference : ndarray of shape (n,)
        Differences, such as those of two cumulated distributions at n cuts.
    covariance : ndarray of shape (n, n)
        Their covariance where both distributions are the same. Differences without a variance are left out.
    exponent : float, default=0.5
        Power of the eigenvalues. With 1, the statistic is the sum of the squared differences in standard deviations:
        that of Anderson and Darling for two cumulated distributions, which finds shifts best. With 0 it is the
        chi-squared of all differences, which finds any difference equally badly.

    Returns
    -------
    float
        The p-value; 1 if no difference has a variance.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.stats.p_values import difference_p_value
    >>> covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    >>> [round(difference_p_value(np.array([2.0, 2.0]), covariance, power), 3) for power in (1.0, 0.5, 0.0)]
    [0.039, 0.046, 0.108]
    """
    variance = np.diag(covariance)
    known = variance > _NEGLIGIBLE * variance.max(initial=0.0)
    if not known.any():
        return 1.0
    deviation = np.sqrt(variance[known])
    values, vectors = np.linalg.eigh(covariance[np.ix_(known, known)] / np.outer(deviation, deviation))
    used = values > _NEGLIGIBLE * values[-1]
    components = (difference[known] / deviation) @ vectors[:, used]
    weights = values[used] ** exponent
    return weighted_chi2_sf(float(np.sum(components**2 / values[used] * weights)), weights)


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
    0.0267
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
