"""How much two classifiers agree about events, without any true label."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from excess._core.checks import FloatArray, as_array, as_column, as_floats, check_same_length

__all__ = ["Agreement", "agreement"]


class Agreement(NamedTuple):
    """Correlations between two scores.

    Attributes
    ----------
    pearson : float
        Linear correlation; NaN where a score is constant.
    spearman : float
        Correlation of ranks, ties averaged; NaN where a score is constant.
    n_events : int
        Events with both scores.
    """

    pearson: float
    spearman: float
    n_events: int


def agreement(score: ArrayLike, reference: ArrayLike) -> Agreement:
    """Pearson and Spearman correlation of two classifiers' outputs (appendix B of the paper).

    Parameters
    ----------
    score, reference : array-like of shape (n_events,)
        Soft scores, such as ``Detection.score``, or crisp selections, such as ``Detection.selected``, for either. An
        event without a score (NaN) in one of them is left out and not counted in ``n_events``.

    Returns
    -------
    Agreement
        The correlations, and over how many events.

    Examples
    --------
    >>> from excess import agreement
    >>> soft = agreement([0.1, 0.4, 0.5, 0.9], [0.0, 0.5, 0.4, 0.8])
    >>> print(f"{soft.pearson:.2f} {soft.spearman:.2f}")
    0.95 0.80
    >>> crisp = agreement([False, False, True, True], [0.0, 0.5, 0.4, 0.8])
    >>> print(f"{crisp.pearson:.2f} {crisp.spearman:.2f}")
    0.61 0.45
    """
    first, second = _as_scores("score", score), _as_scores("reference", reference)
    check_same_length(score=first, reference=second)
    known = ~(np.isnan(first) | np.isnan(second))
    first, second = first[known], second[known]
    return Agreement(_correlation(first, second), _correlation(rankdata(first), rankdata(second)), len(first))


def _as_scores(name: str, value: Any) -> FloatArray:
    """Return scores as float64; NaN is an event without a score."""
    array = as_column(name, as_array(name, value))
    if array.dtype.kind == "f":
        as_floats(name, array[~np.isnan(array)])
        return array.astype(np.float64, copy=False)
    return as_floats(name, array)


def _correlation(first: FloatArray, second: FloatArray) -> float:
    if len(first) < 2:
        return float("nan")
    a, b = first - first.mean(), second - second.mean()
    # sums, not products of vectors, whose last digits depend on the number of threads
    scale = float(np.sqrt(np.sum(a * a) * np.sum(b * b)))
    # the spread of a constant is a few last digits
    tiny = 1e-14 * len(first) * (np.abs(first).max() * np.abs(second).max())
    return float("nan") if scale <= tiny else float(np.clip(np.sum(a * b) / scale, -1.0, 1.0))
