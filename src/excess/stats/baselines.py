"""Threshold rules from the literature on label noise, each one function, exact sweeps throughout.

Every rule takes ``(y, score, alpha)`` and returns a threshold: an event is selected when
``score > threshold``. ``BASELINES`` maps the names that estimators accept as ``method`` to the rules; a
rule with other settings is passed as ``functools.partial(menon_threshold, metric="accuracy")``.

References
----------
Menon, van Rooyen, Ong & Williamson (2015), "Learning from corrupted binary labels via class-probability estimation",
ICML.
Mithal, Nayak, Khandelwal, Kumar, Oza & Nemani (2017), "RAPT: Rare class prediction in absence of true labels", IEEE
TKDE 29 (11).
Yao, Liu, Han, Gong, Deng, Niu & Sugiyama (2020), "Dual T: Reducing estimation error for transition matrix in
label-noise learning", NeurIPS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from excess._core.checks import (
    BoolArray,
    FloatArray,
    as_choice,
    as_column,
    as_probability,
    as_scalar_alpha,
    as_scored_events,
)
from excess.stats.curve import strictest_argmax, sweep_events
from excess.stats.noise import clean_counts, p_minus_from_alpha

__all__ = ["BASELINES", "default_threshold", "menon_threshold", "mithal_threshold", "yao_threshold"]

Metric = Literal["accuracy", "f1"]
_METRICS = ("accuracy", "f1")


def menon_threshold(
    y: ArrayLike,
    score: ArrayLike,
    alpha: float | None = None,
    *,
    p_plus: float | None = None,
    estimate_p_minus: bool = False,
    metric: Metric = "f1",
    quantiles: tuple[float, float] = (0.0, 1.0),
) -> float:
    """Threshold that is best for the clean labels, given the noise rates (Menon et al. 2015).

    Noise rates that are not given are estimated from the range of the scores: where the classes are
    pure somewhere, ``P(On given x)`` runs from ``p_minus`` to ``1 - p_plus``.

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Noisy labels of two classes; the larger one in sorted order is On.
    score : array-like of shape (n_events,)
        Estimates of P(On given x), in [0, 1]; not those of the events that a model was trained on.
    alpha : float or None, default=None
        Exposure ratio On/Off, which fixes the noise rate of the background; None estimates it.
    p_plus : float or None, default=None
        Noise rate of the signal; None estimates it.
    estimate_p_minus : bool, default=False
        Estimate the noise rate of the background even where ``alpha`` is given, for both rates unknown.
    metric : {"f1", "accuracy"}, default="f1"
        What is maximised on the clean labels: F1 by an exact sweep, accuracy in closed form.
    quantiles : tuple of two floats, default=(0.0, 1.0)
        Quantiles of the scores that stand for the ends of their range: least and largest score, as published. Where
        scores are noisy, (0.01, 0.99) is steadier, but then the signal must be more than 1 % of the events.

    Returns
    -------
    float
        The threshold; +inf (select nothing) where the noise rates leave no room for signal.

    Examples
    --------
    >>> from excess import inject_label_noise, menon_threshold
    >>> y = inject_label_noise([0] * 50 + [1] * 50, p_plus=0.1, p_minus=0.4, random_state=0)
    >>> score = [0.4] * 50 + [0.9] * 50
    >>> menon_threshold(y, score, p_plus=0.1, alpha=2 / 3, metric="accuracy")
    0.65
    """
    on, scores = _check_events(y, score, alpha)
    as_choice("metric", metric, _METRICS)
    low, high = _check_quantiles(quantiles)
    rate_plus = None if p_plus is None else as_probability("p_plus", p_plus)
    rate_minus = None if alpha is None or estimate_p_minus else p_minus_from_alpha(alpha)
    if rate_minus is None or rate_plus is None or metric == "accuracy":
        _check_probabilities(scores, "menon")
    if rate_minus is None:
        rate_minus = float(np.quantile(scores, low))
    if rate_plus is None:
        rate_plus = 1 - float(np.quantile(scores, high))
    if metric == "accuracy":
        return _accuracy_threshold(rate_plus, rate_minus)
    return _f1_threshold(on, scores, rate_plus, rate_minus)


def mithal_threshold(y: ArrayLike, score: ArrayLike, alpha: float | None = None, *, quantile: float = 0.05) -> float:
    """Threshold that maximises an estimate of the clean G measure (RAPT, Mithal et al. 2017).

    With ``beta`` the On fraction among the lowest scores, which are taken to be pure background, the
    rule maximises ``max(P(On given score > t) - beta, 0)^2 P(score > t)``: precision times recall, up to a
    factor that does not depend on ``t``. (Without the maximum, it would reward a deficit like an excess.)

    Parameters
    ----------
    y, score : array-like of shape (n_events,)
        As for `menon_threshold`, but the scores may have any scale.
    alpha : float or None, default=None
        Not used: the rule estimates the noise rate of the background. Every rule accepts it.
    quantile : float, default=0.05
        Fraction of events that count as the lowest; ties are kept together.

    Returns
    -------
    float
        The threshold.

    Examples
    --------
    >>> from excess import mithal_threshold
    >>> mithal_threshold([0, 1, 0, 1, 1, 1], [0.1, 0.1, 0.2, 0.3, 0.8, 0.9])
    0.25
    """
    on, scores = _check_events(y, score, alpha)
    quantile = as_probability("quantile", quantile)
    _, thresholds, n_on, n_off = sweep_events(on, scores)
    n = n_on + n_off
    below = n[0] - n
    lowest = max(1, int(np.searchsorted(below, quantile * n[0])))
    beta = (n_on[0] - n_on[lowest]) / below[lowest]
    precision = np.divide(n_on, n, out=np.zeros(len(n)), where=n > 0)
    objective = np.maximum(precision - beta, 0.0) ** 2 * n
    return float(thresholds[strictest_argmax(objective)])


def yao_threshold(y: ArrayLike, score: ArrayLike, alpha: float | None = None, *, quantile: float = 0.97) -> float:
    """Threshold of best clean accuracy, at noise rates estimated by the Dual T method (Yao et al. 2020).

    The noise rates are a product of two transitions: from the clean class to an intermediate one, which
    the scores at anchor events tell, and from the intermediate class to the label, which is counted. The
    intermediate class of an event is On when its score exceeds 0.5. Where the noise is strong, both rates come out too
    large, but the errors largely cancel in the threshold.

    Parameters
    ----------
    y, score : array-like of shape (n_events,)
        As for `menon_threshold`.
    alpha : float or None, default=None
        Not used: the rule estimates both noise rates. Every rule accepts it.
    quantile : float, default=0.97
        Quantile of the class probabilities at which the anchor of each class is taken.

    Returns
    -------
    float
        The threshold; +inf (select nothing) where the noise rates leave no room for signal.

    Examples
    --------
    >>> from excess import yao_threshold
    >>> yao_threshold([0, 0, 0, 1] * 25, [0.1, 0.1, 0.1, 0.9] * 25)
    0.5
    """
    on, scores = _check_events(y, score, alpha)
    _check_probabilities(scores, "yao")
    return _accuracy_threshold(*_dual_t_rates(on, scores, as_probability("quantile", quantile)))


def default_threshold(
    y: ArrayLike, score: ArrayLike, alpha: float | None = None, *, metric: Metric = "accuracy"
) -> float:
    """Threshold that ignores the noise: 0.5, or the best F1 on the noisy labels.

    Parameters
    ----------
    y, score : array-like of shape (n_events,)
        As for `menon_threshold`; with ``metric="f1"`` the scores may have any scale.
    alpha : float or None, default=None
        Not used. Every rule accepts it.
    metric : {"accuracy", "f1"}, default="accuracy"
        ``"accuracy"`` gives 0.5, ``"f1"`` the best noisy F1 by an exact sweep.

    Returns
    -------
    float
        The threshold.

    Examples
    --------
    >>> from excess import default_threshold
    >>> default_threshold([0, 0, 1, 1], [0.1, 0.2, 0.3, 0.4])
    0.5
    >>> default_threshold([0, 0, 1, 1], [0.1, 0.2, 0.3, 0.4], metric="f1")
    0.25
    """
    on, scores = _check_events(y, score, alpha)
    as_choice("metric", metric, _METRICS)
    if metric == "accuracy":
        _check_probabilities(scores, "default")
        return 0.5
    return _f1_threshold(on, scores, p_plus=0.0, p_minus=0.0)


BASELINES: dict[str, Callable[..., float]] = {
    "menon": menon_threshold,
    "mithal": mithal_threshold,
    "yao": yao_threshold,
    "default": default_threshold,
}
"""The rules by the names that estimators accept as ``method``."""


def _accuracy_threshold(p_plus: float, p_minus: float) -> float:
    """Return where P(signal given x) is 1/2, on the scale of P(On given x)."""
    return (1 - p_plus + p_minus) / 2 if p_plus + p_minus < 1 else float("inf")


def _f1_threshold(on: BoolArray, scores: FloatArray, p_plus: float, p_minus: float) -> float:
    """Return the cut of the largest F1 on the clean labels, by an exact sweep."""
    if p_plus + p_minus >= 1:
        return float("inf")
    _, thresholds, n_on, n_off = sweep_events(on, scores)
    n_signal, _ = clean_counts(n_on, n_off, p_plus, p_minus)
    if n_signal[0] <= 0:
        return float("inf")
    f1 = 2 * n_signal / (n_signal[0] + n_on + n_off)
    return float(thresholds[strictest_argmax(np.maximum(f1, 0.0))])


def _dual_t_rates(on: BoolArray, scores: FloatArray, quantile: float) -> tuple[float, float]:
    """Return ``p_plus`` and ``p_minus`` as the Dual T method estimates them."""
    # P(intermediate On given clean class), at the anchors of background and signal
    anchors = np.quantile(scores, [1 - quantile, quantile])
    # P(label On given intermediate class), counted; an empty class falls back on its own definition
    above = scores > 0.5
    counted = [on[above == side].mean() if (above == side).any() else side for side in (False, True)]
    p_on = (1 - anchors) * counted[0] + anchors * counted[1]
    return 1 - float(p_on[1]), float(p_on[0])


def _check_events(y: ArrayLike, score: ArrayLike, alpha: Any) -> tuple[BoolArray, FloatArray]:
    if alpha is not None:
        as_scalar_alpha(alpha)
    return as_scored_events(y, score)


def _check_quantiles(quantiles: Any) -> tuple[float, float]:
    pair = as_column("quantiles", quantiles)
    if len(pair) != 2:
        raise ValueError(f"quantiles must be two numbers, got {len(pair)}")
    low, high = (as_probability("quantiles", q) for q in pair)
    if low >= high:
        raise ValueError(f"quantiles must ascend, got {low:g}, {high:g}")
    return low, high


def _check_probabilities(scores: FloatArray, method: str) -> None:
    if scores.min() < 0 or scores.max() > 1:
        raise ValueError(
            f"score must lie in [0, 1] for method {method!r}, got values from {scores.min():g} to "
            f"{scores.max():g}: use a classifier with predict_proba"
        )
