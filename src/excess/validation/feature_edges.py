"""Bins in which a feature is drawn: their edges, and whether they are logarithmic."""

from __future__ import annotations

import numpy as np

from excess._core.checks import FloatArray

__all__ = ["choose_edges"]

_SKEWED = 4.0
"""Ratio of the two halves of a range from which positive values are drawn on a logarithmic axis."""


def choose_edges(low: float, middle: float, high: float, *, whole: bool, n_bins: int) -> tuple[FloatArray, bool]:
    """Return edges of bins, and whether they are logarithmic.

    Parameters
    ----------
    low, middle, high : float
        The smallest value to be shown, the median, and the largest value.
    whole : bool
        Whether all values are whole numbers, which then are in the middle of bins, or several of them in a bin.
    n_bins : int
        Number of bins; the largest one for whole numbers.

    Examples
    --------
    >>> from excess.validation.feature_edges import choose_edges
    >>> choose_edges(1.0, 2.0, 4.0, whole=True, n_bins=10)
    (array([0.5, 1.5, 2.5, 3.5, 4.5]), False)
    >>> choose_edges(1.0, 2.0, 100.0, whole=False, n_bins=2)
    (array([  1.,  10., 100.]), True)
    """
    if low == high:
        return np.array([low - 0.5, low + 0.5]), False
    if whole:
        step = max(1, -int(-(high - low + 1) // n_bins))
        n_steps = -int(-(high - low + 1) // step)
        return low - 0.5 + step * np.arange(n_steps + 1, dtype=np.float64), False
    if low > 0 and high - middle > _SKEWED * (middle - low):
        return low * (high / low) ** (np.arange(n_bins + 1, dtype=np.float64) / n_bins), True
    return low + (high - low) * np.arange(n_bins + 1, dtype=np.float64) / n_bins, False
