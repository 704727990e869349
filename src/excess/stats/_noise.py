"""Class-conditional label noise, and metrics of predicted labels corrected for it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import make_scorer

from excess._utils import checks
from excess.stats._significance import OnOffCounts


def alpha_from_p_minus(p_minus: ArrayLike) -> Any:
    """Convert a noise rate of the background to the exposure ratio On/Off.

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
    rate = checks.as_noise_rate("p_minus", p_minus)
    return checks.as_result(rate / (1 - rate))


def p_minus_from_alpha(alpha: ArrayLike) -> Any:
    """Convert an exposure ratio On/Off to the noise rate of the background.

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
    ratio = checks.as_alpha(alpha)
    return checks.as_result(ratio / (1 + ratio))


def inject_label_noise(y: ArrayLike, p_plus: float, p_minus: float, random_state: Any = None) -> NDArray[Any]:
    """Flip labels at random, with a separate rate for each class (the CCN model, Eq. 1 of the paper).

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Clean labels of two classes; the larger one in sorted order is the signal.
    p_plus, p_minus : float
        Probability that a signal event is labelled Off, and that a background event is labelled On.
    random_state : int, RandomState instance or None, default=None
        Random seed.

    Returns
    -------
    ndarray of shape (n_events,)
        Noisy labels, with the same classes and dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import inject_label_noise
    >>> y = np.repeat([0, 1], 5000)
    >>> noisy = inject_label_noise(y, p_plus=0.1, p_minus=0.5, random_state=0)
    >>> print(noisy[y == 0].mean().round(1), noisy[y == 1].mean().round(1))
    0.5 0.9
    """
    p_plus, p_minus = checks.as_probability("p_plus", p_plus), checks.as_probability("p_minus", p_minus)
    labels = checks.as_labels(y)
    off, on = checks.binary_classes(labels)
    is_signal = labels == on
    flip = checks.as_random_state(random_state).random_sample(len(labels)) < np.where(is_signal, p_plus, p_minus)
    return np.where(flip == is_signal, off, on).astype(labels.dtype)


def clean_counts(n_on: ArrayLike, n_off: ArrayLike, p_plus: float, p_minus: float) -> tuple[Any, Any]:
    """Estimate the numbers of signal and background events from On and Off counts.

    The inverse of ``n_on = (1 - p_plus) n_signal + p_minus n_background`` and
    ``n_off = p_plus n_signal + (1 - p_minus) n_background`` (Menon et al. 2015, section 4).

    Parameters
    ----------
    n_on, n_off : array-like
        Counts of On and Off events.
    p_plus, p_minus : float
        As for `inject_label_noise`; ``p_plus + p_minus`` must be below 1.

    Returns
    -------
    n_signal, n_background : float or ndarray
        Unbiased estimates, which may be outside the range of counts due to their sampling error.

    Examples
    --------
    >>> from excess import clean_counts
    >>> [round(n, 6) for n in clean_counts(290, 310, p_plus=0.1, p_minus=0.4)]
    [100.0, 500.0]
    """
    p_plus, p_minus = checks.as_probability("p_plus", p_plus), checks.as_probability("p_minus", p_minus)
    if (remaining := 1 - p_plus - p_minus) <= 0:
        raise ValueError(f"p_plus + p_minus must be below 1, got {p_plus:g} + {p_minus:g}")
    on, off = checks.as_counts("n_on", n_on), checks.as_counts("n_off", n_off)
    checks.check_broadcast(n_on=on, n_off=off)
    n_signal = ((1 - p_minus) * on - p_minus * off) / remaining
    n_background = ((1 - p_plus) * off - p_plus * on) / remaining
    return checks.as_result(n_signal), checks.as_result(n_background)


def count_selected(y: ArrayLike, y_pred: ArrayLike, alpha: float) -> OnOffCounts:
    """Count the On and Off events predicted as signal.

    Parameters
    ----------
    y, y_pred : array-like of shape (n_events,)
        Noisy labels, with the larger of the two classes as On, and predicted labels of the same classes; On is
        selected.
    alpha : float
        Exposure ratio On/Off.

    Returns
    -------
    OnOffCounts
        The selected events.

    Examples
    --------
    >>> from excess import count_selected
    >>> count_selected([0, 0, 1, 1], [0, 1, 1, 1], alpha=0.2)
    OnOffCounts(n_on=2, n_off=1, alpha=0.2)
    """
    return _count(y, y_pred, alpha)[0]


def significance_score(y: ArrayLike, y_pred: ArrayLike, alpha: float) -> float:
    """Compute the signed Li & Ma significance of the events predicted as signal.

    Parameters
    ----------
    y, y_pred, alpha
        As for `count_selected`.

    Returns
    -------
    float
        Significance in sigma, negative for a deficit.

    Examples
    --------
    >>> from excess import significance_score
    >>> round(significance_score([0, 0, 1, 1, 1], [0, 0, 0, 1, 1], alpha=1.0), 3)
    1.665
    """
    return count_selected(y, y_pred, alpha).significance


def significance_scorer(alpha: float) -> Callable[..., float]:
    """Create a significance scorer for ``GridSearchCV``, ``cross_val_score`` and similar functions.

    Parameters
    ----------
    alpha : float
        Exposure ratio On/Off.

    Returns
    -------
    callable
        A scorer with the signature ``scorer(estimator, X, y)``.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from excess import significance_scorer
    >>> X, y = make_classification(random_state=0)
    >>> cross_val_score(LogisticRegression(), X, y, scoring=significance_scorer(1.0)).round(1)
    array([1.4, 2.7, 2.5, 0.9, 3.3])
    """
    return make_scorer(significance_score, alpha=checks.as_scalar_alpha(alpha))


def corrected_precision_score(y: ArrayLike, y_pred: ArrayLike, alpha: float, *, p_plus: float = 0.0) -> float:
    """Estimate the fraction of signal among the selected events from noisy labels.

    Parameters
    ----------
    y, y_pred, alpha
        As for `count_selected`.
    p_plus : float, default=0.0
        Noise rate of the signal: the probability that a signal event is labelled Off.

    Returns
    -------
    float
        Clipped to [0, 1]; 0 if no event is selected.

    Examples
    --------
    >>> from excess import corrected_precision_score
    >>> corrected_precision_score([1] * 30 + [0] * 20, [1] * 30 + [1] * 20, alpha=1.0)
    0.2
    """
    n_selected, n_signal_selected, _ = _estimate_clean(y, y_pred, alpha, p_plus)
    return _ratio(n_signal_selected, n_selected)


def corrected_recall_score(y: ArrayLike, y_pred: ArrayLike, alpha: float, *, p_plus: float = 0.0) -> float:
    """Estimate the selected fraction of the signal from noisy labels.

    Parameters
    ----------
    y, y_pred, alpha
        As for `count_selected`.
    p_plus : float, default=0.0
        Noise rate of the signal, which cancels.

    Returns
    -------
    float
        Clipped to [0, 1]; 0 without an excess.

    Examples
    --------
    >>> from excess import corrected_recall_score
    >>> corrected_recall_score([1] * 30 + [0] * 20, [1] * 10 + [0] * 20 + [1] * 5 + [0] * 15, alpha=1.0)
    0.5
    """
    _, n_signal_selected, n_signal = _estimate_clean(y, y_pred, alpha, p_plus)
    return _ratio(n_signal_selected, n_signal)


def corrected_f1_score(y: ArrayLike, y_pred: ArrayLike, alpha: float, *, p_plus: float = 0.0) -> float:
    """Estimate the F1 score with respect to clean labels from noisy labels.

    Parameters
    ----------
    y, y_pred, alpha, p_plus
        As for `corrected_precision_score`.

    Returns
    -------
    float
        Harmonic mean of precision and recall, clipped to [0, 1]; 0 without an excess.

    Examples
    --------
    >>> from excess import corrected_f1_score
    >>> round(corrected_f1_score([1] * 30 + [0] * 20, [1] * 50, alpha=1.0), 3)
    0.333
    """
    n_selected, n_signal_selected, n_signal = _estimate_clean(y, y_pred, alpha, p_plus)
    return _ratio(2 * n_signal_selected, n_signal + n_selected) if n_signal > 0 else 0.0


def corrected_g_score(y: ArrayLike, y_pred: ArrayLike, alpha: float, *, p_plus: float = 0.0) -> float:
    """Estimate the G measure with respect to clean labels from noisy labels.

    Parameters
    ----------
    y, y_pred, alpha, p_plus
        As for `corrected_precision_score`.

    Returns
    -------
    float
        Geometric mean of precision and recall, in [0, 1].

    Examples
    --------
    >>> from excess import corrected_g_score
    >>> round(corrected_g_score([1] * 30 + [0] * 20, [1] * 50, alpha=1.0), 3)
    0.447
    """
    n_selected, n_signal_selected, n_signal = _estimate_clean(y, y_pred, alpha, p_plus)
    return math.sqrt(_ratio(n_signal_selected, n_selected) * _ratio(n_signal_selected, n_signal))


def _count(y: ArrayLike, y_pred: ArrayLike, alpha: float) -> tuple[OnOffCounts, OnOffCounts]:
    """Count the selected events, and all events."""
    labels, predicted = checks.as_labels(y), checks.as_labels(y_pred, name="y_pred")
    checks.check_same_length(y=labels, y_pred=predicted)
    ratio = checks.as_scalar_alpha(alpha)
    if (labels.dtype.kind in "biuf") != (predicted.dtype.kind in "biuf"):
        raise ValueError(f"y and y_pred must have the same type of labels, got {labels.dtype} and {predicted.dtype}")
    together = np.concatenate([labels, predicted])  # a fold may lack a class in either
    on_class: Any = 1  # all Off and none selected, or all On and all selected
    if together.dtype.kind not in "biuf" or (together != together[0]).any() or together[0] not in (-1, 0, 1):
        on_class = checks.binary_classes(together, name="y and y_pred together")[1]
    on, selected = labels == on_class, predicted == on_class
    n_on, n_selected, n_both = (int(np.count_nonzero(mask)) for mask in (on, selected, on & selected))
    return OnOffCounts(n_both, n_selected - n_both, ratio), OnOffCounts(n_on, len(on) - n_on, ratio)


def _estimate_clean(y: ArrayLike, y_pred: ArrayLike, alpha: float, p_plus: float) -> tuple[float, float, float]:
    """Return the number of selected events, and the estimated signal among them and among all events."""
    p_minus = p_minus_from_alpha(alpha)
    counted = _count(y, y_pred, alpha)
    n_signal_selected, n_signal = (clean_counts(c.n_on, c.n_off, p_plus, p_minus)[0] for c in counted)
    return counted[0].n_on + counted[0].n_off, n_signal_selected, n_signal


def _ratio(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
