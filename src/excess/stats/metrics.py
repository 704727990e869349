"""Scores of predicted labels against noisy ones: significance, and estimates of the clean metrics.

The estimates need the exposure ratio, which fixes the noise rate of the background. The noise rate of the signal,
``p_plus``, is 0 unless given: all signal is taken to come from the On region. Recall does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import make_scorer

from excess._core.checks import as_labels, as_scalar_alpha, binary_classes, check_same_length
from excess.stats.counts import OnOffCounts
from excess.stats.noise import clean_counts, p_minus_from_alpha

__all__ = [
    "corrected_f1_score",
    "corrected_g_score",
    "corrected_precision_score",
    "corrected_recall_score",
    "count_selected",
    "significance_score",
    "significance_scorer",
]


def count_selected(y: ArrayLike, y_pred: ArrayLike, alpha: float) -> OnOffCounts:
    """Count the On and Off events that are predicted as signal.

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Noisy labels; the larger of the two classes in sorted order is On.
    y_pred : array-like of shape (n_events,)
        Predicted labels of the same classes; On means selected.
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
    """Signed Li & Ma significance of the events that are predicted as signal.

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
    """Make a scorer of significance for ``GridSearchCV``, ``cross_val_score`` and their like.

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
    return make_scorer(significance_score, alpha=as_scalar_alpha(alpha))


def corrected_precision_score(y: ArrayLike, y_pred: ArrayLike, alpha: float, *, p_plus: float = 0.0) -> float:
    """Estimate, from noisy labels, the fraction of signal among the selected events.

    Parameters
    ----------
    y, y_pred, alpha
        As for `count_selected`.
    p_plus : float, default=0.0
        Noise rate of the signal: the probability that a signal event is labelled Off.

    Returns
    -------
    float
        Clipped to [0, 1]; 0 where nothing is selected.

    Examples
    --------
    >>> from excess import corrected_precision_score
    >>> corrected_precision_score([1] * 30 + [0] * 20, [1] * 30 + [1] * 20, alpha=1.0)
    0.2
    """
    n_selected, n_signal_selected, _ = _estimate_clean(y, y_pred, alpha, p_plus)
    return _ratio(n_signal_selected, n_selected)


def corrected_recall_score(y: ArrayLike, y_pred: ArrayLike, alpha: float, *, p_plus: float = 0.0) -> float:
    """Estimate, from noisy labels, the fraction of the signal that is selected.

    Parameters
    ----------
    y, y_pred, alpha
        As for `count_selected`.
    p_plus : float, default=0.0
        Noise rate of the signal; it cancels, and is here so that all these scores are called alike.

    Returns
    -------
    float
        Clipped to [0, 1]; 0 where there is no excess at all.

    Examples
    --------
    >>> from excess import corrected_recall_score
    >>> corrected_recall_score([1] * 30 + [0] * 20, [1] * 10 + [0] * 20 + [1] * 5 + [0] * 15, alpha=1.0)
    0.5
    """
    _, n_signal_selected, n_signal = _estimate_clean(y, y_pred, alpha, p_plus)
    return _ratio(n_signal_selected, n_signal)


def corrected_f1_score(y: ArrayLike, y_pred: ArrayLike, alpha: float, *, p_plus: float = 0.0) -> float:
    """Estimate, from noisy labels, the F1 score on the clean ones.

    Parameters
    ----------
    y, y_pred, alpha, p_plus
        As for `corrected_precision_score`.

    Returns
    -------
    float
        Harmonic mean of precision and recall, clipped to [0, 1]; 0 where there is no excess at all.

    Examples
    --------
    >>> from excess import corrected_f1_score
    >>> round(corrected_f1_score([1] * 30 + [0] * 20, [1] * 50, alpha=1.0), 3)
    0.333
    """
    n_selected, n_signal_selected, n_signal = _estimate_clean(y, y_pred, alpha, p_plus)
    return _ratio(2 * n_signal_selected, n_signal + n_selected) if n_signal > 0 else 0.0


def corrected_g_score(y: ArrayLike, y_pred: ArrayLike, alpha: float, *, p_plus: float = 0.0) -> float:
    """Estimate, from noisy labels, the G measure on the clean ones.

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
    labels, predicted = as_labels(y), as_labels(y_pred, name="y_pred")
    check_same_length(y=labels, y_pred=predicted)
    ratio = as_scalar_alpha(alpha)
    on_class = _on_class(labels, predicted)
    on, selected = labels == on_class, predicted == on_class
    n_on, n_selected, n_both = (int(np.count_nonzero(mask)) for mask in (on, selected, on & selected))
    return OnOffCounts(n_both, n_selected - n_both, ratio), OnOffCounts(n_on, len(on) - n_on, ratio)


def _on_class(labels: NDArray[Any], predicted: NDArray[Any]) -> Any:
    """Return the On class of labels and predictions together: a fold may lack a class in either."""
    if (labels.dtype.kind in "biuf") != (predicted.dtype.kind in "biuf"):
        raise ValueError(f"y and y_pred must hold labels of one kind, got {labels.dtype} and {predicted.dtype}")
    together = np.concatenate([labels, predicted])
    if together.dtype.kind in "biuf" and (together == together[0]).all() and together[0] in (-1, 0, 1):
        return 1  # all Off and nothing selected, or all On and all selected
    return binary_classes(together, name="y and y_pred together")[1]


def _estimate_clean(y: ArrayLike, y_pred: ArrayLike, alpha: float, p_plus: float) -> tuple[float, float, float]:
    """Return the number of selected events, and estimates of how many of them and of all events are signal."""
    p_minus = p_minus_from_alpha(alpha)
    counted = _count(y, y_pred, alpha)
    n_signal_selected, n_signal = (clean_counts(c.n_on, c.n_off, p_plus, p_minus)[0] for c in counted)
    return counted[0].n_on + counted[0].n_off, n_signal_selected, n_signal


def _ratio(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
