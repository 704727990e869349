"""Class-conditional label noise: exposure ratio and noise rate, injection, and inversion."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import (
    FloatArray,
    Number,
    as_alpha,
    as_counts,
    as_labels,
    as_noise_rate,
    as_probability,
    as_random_state,
    as_result,
    binary_classes,
    check_broadcast,
)

__all__ = ["alpha_from_p_minus", "clean_counts", "inject_label_noise", "p_minus_from_alpha"]


@overload
def alpha_from_p_minus(p_minus: Number) -> float: ...
@overload
def alpha_from_p_minus(p_minus: ArrayLike) -> FloatArray: ...
def alpha_from_p_minus(p_minus: ArrayLike) -> Any:
    """Exposure ratio On/Off that belongs to a noise rate of the background.

    Parameters
    ----------
    p_minus : array-like
        Probability that a background event is labelled On, between 0 and 1.

    Returns
    -------
    float or ndarray of float64
        ``p_minus / (1 - p_minus)``.

    Examples
    --------
    >>> from excess import alpha_from_p_minus
    >>> alpha_from_p_minus(0.5)
    1.0
    """
    rate = as_noise_rate("p_minus", p_minus)
    return as_result(rate / (1 - rate))


@overload
def p_minus_from_alpha(alpha: Number) -> float: ...
@overload
def p_minus_from_alpha(alpha: ArrayLike) -> FloatArray: ...
def p_minus_from_alpha(alpha: ArrayLike) -> Any:
    """Noise rate of the background that belongs to an exposure ratio On/Off.

    Parameters
    ----------
    alpha : array-like
        Exposure ratio On/Off, positive.

    Returns
    -------
    float or ndarray of float64
        ``alpha / (1 + alpha)``.

    Examples
    --------
    >>> from excess import p_minus_from_alpha
    >>> round(p_minus_from_alpha(1 / 5), 6)
    0.166667
    """
    ratio = as_alpha(alpha)
    return as_result(ratio / (1 + ratio))


def inject_label_noise(y: ArrayLike, p_plus: float, p_minus: float, random_state: Any = None) -> NDArray[Any]:
    """Flip labels at random, each class with a rate of its own (the CCN model, Eq. 1 of the paper).

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Clean labels of two classes; the larger one in sorted order is the signal.
    p_plus : float
        Probability that a signal event is labelled Off.
    p_minus : float
        Probability that a background event is labelled On.
    random_state : int, RandomState instance or None, default=None
        Seed of the flips.

    Returns
    -------
    ndarray of shape (n_events,)
        A new array of noisy labels, of the same classes and dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import inject_label_noise
    >>> y = np.repeat([0, 1], 5000)
    >>> noisy = inject_label_noise(y, p_plus=0.1, p_minus=0.5, random_state=0)
    >>> print(noisy[y == 0].mean().round(1), noisy[y == 1].mean().round(1))
    0.5 0.9
    """
    p_plus = as_probability("p_plus", p_plus)
    p_minus = as_probability("p_minus", p_minus)
    labels = as_labels(y)
    off, on = binary_classes(labels)
    is_signal = labels == on
    flip = as_random_state(random_state).random_sample(len(labels)) < np.where(is_signal, p_plus, p_minus)
    noisy = labels.copy()
    noisy[is_signal & flip] = off
    noisy[~is_signal & flip] = on
    return noisy


@overload
def clean_counts(n_on: Number, n_off: Number, p_plus: float, p_minus: float) -> tuple[float, float]: ...
@overload
def clean_counts(n_on: ArrayLike, n_off: ArrayLike, p_plus: float, p_minus: float) -> tuple[FloatArray, FloatArray]: ...
def clean_counts(n_on: ArrayLike, n_off: ArrayLike, p_plus: float, p_minus: float) -> tuple[Any, Any]:
    """Estimate how many signal and background events are behind On and Off counts.

    The expected counts are a linear mixture of the clean ones, ``n_on = (1 - p_plus) n_signal + p_minus n_background``
    and ``n_off = p_plus n_signal + (1 - p_minus) n_background``; both equations are inverted at once. Divided by their
    totals, the results are the clean true and false positive rates of Menon et al. (2015), section 4.

    Parameters
    ----------
    n_on, n_off : array-like
        Counts of On and Off events.
    p_plus : float
        Probability that a signal event is labelled Off.
    p_minus : float
        Probability that a background event is labelled On. ``p_plus + p_minus`` must be below 1.

    Returns
    -------
    n_signal, n_background : float or ndarray
        Unbiased estimates, which can leave the range of counts by their sampling error.

    Examples
    --------
    >>> from excess import clean_counts
    >>> n_signal, n_background = clean_counts(290, 310, p_plus=0.1, p_minus=0.4)
    >>> round(n_signal, 6), round(n_background, 6)
    (100.0, 500.0)
    """
    p_plus = as_probability("p_plus", p_plus)
    p_minus = as_probability("p_minus", p_minus)
    remaining = 1 - p_plus - p_minus
    if remaining <= 0:
        raise ValueError(
            f"p_plus + p_minus must be below 1, got {p_plus:g} + {p_minus:g}: such labels say nothing about the classes"
        )
    on, off = as_counts("n_on", n_on), as_counts("n_off", n_off)
    check_broadcast(n_on=on, n_off=off)
    n_signal = ((1 - p_minus) * on - p_minus * off) / remaining
    n_background = ((1 - p_plus) * off - p_plus * on) / remaining
    return as_result(n_signal), as_result(n_background)
