"""Fractions of events, such as an efficiency, with Wilson's interval."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from excess._core.checks import as_counts, as_probability, as_result

__all__ = ["ONE_SIGMA", "EventFraction", "event_fraction"]

ONE_SIGMA = 0.6827
"""Probability within one standard deviation of a normal distribution."""


class EventFraction(NamedTuple):
    """Selected events over all events, with an interval.

    Attributes
    ----------
    value : float or ndarray
        The fraction; NaN where there are no events.
    low, high : float or ndarray
        Limits of the interval.
    """

    value: Any
    low: Any
    high: Any

    @property
    def error(self) -> Any:
        """Half the length of the interval."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        """Return the fraction with its interval."""
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def event_fraction(
    n_selected: ArrayLike,
    n_events: ArrayLike,
    *,
    n_effective: ArrayLike | None = None,
    confidence: float = ONE_SIGMA,
) -> EventFraction:
    """Return fractions of events with the interval of Wilson (1927).

    The interval lies within 0 and 1, and has a length where all events, or none, are selected.

    Parameters
    ----------
    n_selected, n_events : array-like of float
        Selected events, and all events; sums of weights where events have weights.
    n_effective : array-like of float or None, default=None
        Effective number of all events where they have weights w: (sum of w)^2 / (sum of w^2).
    confidence : float, default=0.6827
        Probability that the interval is to have, by default that of one standard deviation.

    Returns
    -------
    EventFraction
        ``value``, ``low`` and ``high``; NaN where there are no events.

    Examples
    --------
    >>> from excess.stats import event_fraction
    >>> print(event_fraction(50, 100))
    0.500 (0.450 to 0.550)
    >>> event_fraction([0, 10], [10, 10]).high.round(3)
    array([0.091, 1.   ])
    """
    selected, total = as_counts("n_selected", n_selected), as_counts("n_events", n_events)
    n = total if n_effective is None else as_counts("n_effective", n_effective)
    z = norm.isf((1 - as_probability("confidence", confidence)) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(total > 0, selected / total, np.nan)
        shrink = 1 / (1 + z**2 / n)
        centre = shrink * (p + z**2 / (2 * n))
        half = shrink * z * np.sqrt(np.maximum(p * (1 - p), 0) / n + (z / (2 * n)) ** 2)
    # rounding must take neither the limits out of 0 to 1 nor the fraction out of its interval
    low, high = np.minimum(np.clip(centre - half, 0, 1), p), np.maximum(np.clip(centre + half, 0, 1), p)
    return EventFraction(as_result(p), as_result(low), as_result(high))
