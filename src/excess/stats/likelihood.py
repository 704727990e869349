r"""The On/Off likelihood: a significance that uses every event by how signal-like it is.

Let On events at x come with the density :math:`\mu s(x) + \alpha b(x)`, Off events with :math:`b(x)`, and let
:math:`r(x) = s(x) / b(x)` be the signal ratio. An event at x is On with the odds :math:`\mu r + \alpha`, whatever b is,
so that, given where the events are,

.. math:: \ln L(\mu) = \sum_{On} \ln(\mu r_i + \alpha_i) - \sum_{all} \ln(\mu r_i + \alpha_i + 1)

and :math:`S = \mathrm{sign}(\hat\mu) \sqrt{2 (\ln L(\hat\mu) - \ln L(0))}`. Where r is the same for some events and
0 for all others, this is the significance of Li & Ma. ``docs/likelihood.md`` has derivation, limits and references.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from excess._core.checks import (
    BoolArray,
    FloatArray,
    as_alpha,
    as_column,
    as_counts,
    as_labels,
    binary_classes,
    check_same_length,
)
from excess.stats.likelihood_kernels import (
    derivatives,
    divide_keys,
    merge_similar,
    merge_sorted,
    merge_sorted_keys,
    number_distinct,
    slopes_on_grid,
    sums_at_maximum,
    value_and_slope,
)

__all__ = ["OnOffLikelihood", "on_off_likelihood"]

_MAX_FINE = 2000
"""Cells beyond which maxima and interval are found with coarser ones; the best maximum is then followed with all."""
_PER_DECADE = 4
"""Signal strengths per factor of ten at which the maxima are looked for."""
_MAX_SORTED_APART = 100
"""Different exposure ratios up to which the events of each are sorted apart, which is faster."""
_SMALLEST_RATIO = 1e-100
"""Smallest ratio in units of the largest; below it, sums would leave the range of floats."""
_LARGEST_CORRECTION = 0.5
"""Largest higher-order correction of a significance that is believed."""
_EPSILON = np.finfo(np.float64).eps


@dataclass(frozen=True)
class OnOffLikelihood:
    """What the On/Off likelihood says about some events.

    Attributes
    ----------
    significance : float
        Signed square root of twice the log-likelihood ratio, in sigma; negative for a deficit.
    strength : float
        Signal strength at the maximum, in units of the signal ratio. For ratios of normalised densities, as
        ``signal_ratio`` of the classifiers gives them, it is the number of signal events for each Off event. Infinite
        where no Off event has a positive ratio.
    strength_interval : tuple of float
        Signal strengths whose log-likelihood is at most 1/2 below the maximum: the interval of one sigma.
    n_signal : float
        Expected number of signal events among the On events.
    n_signal_error : float
        Its standard error.
    corrected_significance : float
        The significance with the higher-order correction of Barndorff-Nielsen (r*), as Skovgaard approximates it:
        closer to a normal law where few events carry the signal. No correction where that would exceed 0.5, as it does
        where the strength is near its border.

    See Also
    --------
    on_off_likelihood : Computes it.
    OnOffCounts : Counts of selected events, where every event counts the same.
    """

    significance: float
    strength: float
    strength_interval: tuple[float, float]
    n_signal: float
    n_signal_error: float
    corrected_significance: float

    @property
    def p_value(self) -> float:
        """One-sided p-value: the upper tail of the normal law at the significance."""
        return float(ndtr(-self.significance))

    def summary(self) -> dict[str, float]:
        """Return the numbers by name, to be put into a table or a file."""
        low, high = self.strength_interval
        return {
            "significance": self.significance,
            "strength": self.strength,
            "strength_low": low,
            "strength_high": high,
            "n_signal": self.n_signal,
            "n_signal_error": self.n_signal_error,
            "corrected_significance": self.corrected_significance,
        }

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names in a ``summary``."""
        return tuple(cls(0.0, 0.0, (0.0, 0.0), 0.0, 0.0, 0.0).summary())

    @classmethod
    def from_summary(cls, numbers: dict[str, Any]) -> OnOffLikelihood:
        """Return the likelihood whose ``summary`` this is; infinities may be texts, as JSON has none."""
        values = {name: float(value) for name, value in numbers.items()}
        interval = values.pop("strength_low"), values.pop("strength_high")
        return cls(strength_interval=interval, **values)

    def __str__(self) -> str:
        """Say signal events, strength and significance in one line."""
        low, high = self.strength_interval
        return (
            f"{self.n_signal:.1f} +- {self.n_signal_error:.1f} signal events, strength {self.strength:.3g} "
            f"({low:.3g} to {high:.3g}), {self.significance:.1f} sigma"
        )


def on_off_likelihood(y: ArrayLike, ratio: ArrayLike, alpha: ArrayLike) -> OnOffLikelihood:
    """Significance and strength of a signal from all events, each by how signal-like it is.

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Noisy labels of at most two classes; the larger one in sorted order is On. Labels that are all the same must be
        0 and 1, or bools.
    ratio : array-like of shape (n_events,)
        Signal ratio of each event: density of signal over that of the background, 0 or more, in any common unit. It
        must not have been learned from these events; see ``signal_ratio`` of the classifiers.
    alpha : float or array-like of shape (n_events,)
        Exposure ratio On/Off: of all events, or of each, such as that of its run.

    Returns
    -------
    OnOffLikelihood
        Significance, signal strength with its interval, and expected number of signal events. Without any event of
        positive ratio the significance is 0 and the interval is not bounded.

    Raises
    ------
    ValueError
        If a ratio is negative or not finite, if ``alpha`` is not positive and finite, or if lengths differ.

    See Also
    --------
    li_ma_significance : The same for counts: all ratios equal.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import li_ma_significance, on_off_likelihood
    >>> y = np.repeat([1, 0], [20, 25])
    >>> print(on_off_likelihood(y, np.ones(45), alpha=0.2))
    15.0 +- 4.6 signal events, strength 0.6 (0.391 to 0.879), 4.4 sigma
    >>> round(li_ma_significance(20, 25, 0.2), 6) == round(on_off_likelihood(y, np.ones(45), 0.2).significance, 6)
    True
    """
    on = _as_on(y)
    ratios = as_column("ratio", as_counts("ratio", ratio))
    check_same_length(y=on, ratio=ratios)
    alphas = as_alpha(alpha)
    if alphas.ndim > 0:
        alphas = as_column("alpha", alphas)
        check_same_length(y=on, alpha=alphas)
    return compute_likelihood(on, ratios, alphas)


def compute_likelihood(on: BoolArray, ratio: FloatArray, alpha: FloatArray | float) -> OnOffLikelihood:
    """Compute the likelihood of events that have been checked before (no validation)."""
    cells = _make_cells(on, ratio, np.asarray(alpha, dtype=np.float64))
    return _NOTHING if cells is None else _maximise(cells)


_NOTHING = OnOffLikelihood(0.0, 0.0, (-math.inf, math.inf), 0.0, 0.0, 0.0)


class _Cells(NamedTuple):
    """Events of positive ratio, counted where ratio and alpha are the same; sorted, so that sums have the same bits."""

    ratio: FloatArray  # divided by the largest
    alpha: FloatArray
    n_on: FloatArray
    n_off: FloatArray

    def coarse(self) -> _Cells:
        """Return cells in which ratios are the same to a hundredth, where the likelihood is nearly the same."""
        if len(self.ratio) <= _MAX_FINE:
            return self
        return _Cells(*merge_similar(*self))


def _make_cells(on: BoolArray, ratio: FloatArray, alpha: FloatArray) -> _ScaledCells | None:
    """Return the cells of the events that have a positive ratio; None where there is no such event."""
    some = ratio > 0
    if not some.all():
        on, ratio, alpha = on[some], ratio[some], alpha[some] if alpha.ndim else alpha
    if len(ratio) == 0:
        return None
    # positive floats sort like their bits, whose highest is 0 and makes room for the label
    keys = (np.ascontiguousarray(ratio).view(np.uint64) << np.uint64(1)) | on.astype(np.uint64)
    values, ends = alpha[None], np.array([0, len(keys)])
    if alpha.ndim > 0:
        values, numbers = number_distinct(alpha, _MAX_SORTED_APART)
        keys, ends = divide_keys(keys, numbers, len(values)) if len(values) else (keys, ends)
    if len(values):
        parts = []
        for part in np.argsort(values):
            own = keys[ends[part] : ends[part + 1]]
            own.sort()
            parts.append(merge_sorted_keys(own, values[part]))
        ratios, alphas, n_on, n_off = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    else:
        order = np.lexsort((ratio, alpha))
        ratios, alphas, n_on, n_off = merge_sorted(ratio[order], alpha[order], on[order])
    unit = float(ratios.max())
    return _ScaledCells(_Cells(np.maximum(ratios / unit, _SMALLEST_RATIO), alphas, n_on, n_off), unit)


class _ScaledCells(NamedTuple):
    """Cells, and the unit of their ratios."""

    cells: _Cells
    unit: float


def _maximise(scaled: _ScaledCells) -> OnOffLikelihood:
    """Return all numbers at the maximum of the likelihood."""
    cells, unit = scaled
    curve = _Curve(cells.coarse(), lowest=-float((cells.alpha / cells.ratio).min()))
    strength = start = math.inf if not cells.n_off.any() else curve.find_maximum()
    low, high = curve.find_interval(strength)
    if math.isinf(strength):
        n_signal = variance = float(cells.n_on.sum())
        significance = corrected = math.sqrt(2 * float((cells.n_on * np.log1p(1 / cells.alpha)).sum()))
    else:
        at_border = strength == curve.lowest
        if curve.cells is not cells and not at_border:
            strength = _climb(start, cells, curve.lowest, math.inf)
            low = low if low == curve.lowest else max(low + strength - start, curve.lowest)
            high += strength - start
        top, expected, observed, n_signal, growth, squares, covariance = sums_at_maximum(strength, *cells)
        if at_border:
            top = value_and_slope(strength, *cells)[0]
        significance = corrected = math.copysign(math.sqrt(2 * max(top, 0.0)), strength)
        variance = squares if at_border else squares + growth**2 / expected
        # r* of Barndorff-Nielsen, with the derivatives by the data as Skovgaard (1996) replaces them; where the
        # significance is 0 to rounding, the ratio of two small numbers says nothing
        if not at_border and observed > 0 and abs(significance) > 1e-3:
            wald = covariance / expected * math.sqrt(observed)
            correction = math.log(wald / significance) / significance
            # near the border of the strength the expansion breaks down
            corrected += correction if abs(correction) < _LARGEST_CORRECTION else 0.0
    strength, low, high = (float(value) / unit for value in (strength, low, high))
    return OnOffLikelihood(significance, strength, (low, high), n_signal, math.sqrt(variance), corrected)


class _Curve:
    """The likelihood of some cells as a function of the signal strength, which must not fall below ``lowest``.

    There the density of On events would become negative somewhere.
    """

    def __init__(self, cells: _Cells, lowest: float) -> None:
        self.cells = cells
        self.lowest = lowest
        # an On event of this density would be impossible
        at_border = cells.alpha <= -lowest * cells.ratio * (1 + 4 * _EPSILON)
        self._border_possible = not cells.n_on[at_border].any()

    def find_maximum(self) -> float:
        """Return the signal strength of the largest likelihood; there are Off events."""
        candidates = [_climb(start, self.cells, low, high) for start, low, high in self._brackets()]
        if self._border_possible:
            candidates.append(self.lowest)
        return max(candidates, key=lambda strength: value_and_slope(strength, *self.cells)[0], default=0.0)

    def _brackets(self) -> list[tuple[float, float, float]]:
        """Return start, lower and upper end of each interval of signal strengths that has a maximum."""
        alpha, ratio = self.cells.alpha, self.cells.ratio
        smallest, largest = 1e-6 * float(alpha.min()), 1e3 * (1 + float(alpha.max())) / float(ratio.min())
        n_above = math.ceil(math.log10(largest / smallest) * _PER_DECADE) + 1
        # close steps at both ends of the negative side: near 0, and near the border
        steps = np.geomspace(1e-6, 0.5, 12)
        below = self.lowest * np.concatenate([1 - steps, steps[::-1][1:]])
        grid = np.concatenate([[self.lowest], below, [0.0], np.geomspace(smallest, largest, n_above), [math.inf]])
        slopes = np.append(slopes_on_grid(grid[:-1], *self.cells), -1.0)  # far out, the Off events decide
        down = np.flatnonzero((slopes[:-1] > 0) & (slopes[1:] <= 0))
        return [(_between(low, high), low, high) for low, high in zip(grid[down], grid[down + 1], strict=True)]

    def find_interval(self, strength: float) -> tuple[float, float]:
        """Return the signal strengths below and above the best, where the log-likelihood is 1/2 below its maximum."""
        if math.isinf(strength):
            wanted = float((self.cells.n_on * np.log1p(1 / self.cells.alpha)).sum()) - 0.5
        else:
            wanted = value_and_slope(strength, *self.cells)[0] - 0.5
        low, high = self.lowest, math.inf
        if not (self._border_possible and value_and_slope(low, *self.cells)[0] >= wanted):
            low = self._cross(low, strength, wanted, up=False)
        if not math.isinf(strength):
            high = self._cross(strength, high, wanted, up=True)
        return low, high

    def _cross(self, low: float, high: float, wanted: float, *, up: bool) -> float:
        """Return where the log-likelihood has a wanted value, between a maximum and a lower value."""
        at = _between(low, high)
        for _ in range(200):
            value, slope = value_and_slope(at, *self.cells)
            if (value > wanted) == up:
                low = at
            else:
                high = at
            stepped = at + (wanted - value) / slope if math.isfinite(value) and slope != 0 else math.nan
            if not low < stepped < high:
                stepped = _between(low, high)
            if abs(stepped - at) <= 4 * _EPSILON * abs(at) or stepped in (low, high):
                return stepped
            at = stepped
        return at


def _climb(strength: float, cells: _Cells, low: float, high: float) -> float:
    """Return the maximum between two signal strengths: Newton's method on the derivative, bisection where it fails."""
    if low <= 0.0 <= high and abs(strength) <= 1e-5 * float(cells.alpha.max()):
        slope = derivatives(0.0, *cells)[0]
        # 1/49 has no exact binary form, so that exact balance may be missed by the last bits
        if abs(slope) <= 4 * _EPSILON * float((cells.n_on * cells.ratio / cells.alpha).sum()):
            return 0.0
    for _ in range(200):
        slope, curvature = derivatives(strength, *cells)
        if slope > 0:
            low = strength
        else:
            high = strength
        stepped = strength - slope / curvature if curvature < 0 else math.nan
        if not low < stepped < high:
            stepped = _between(low, high)
        if abs(stepped - strength) <= 2 * _EPSILON * abs(stepped) or stepped in (low, high):
            return stepped
        strength = stepped
    return strength


def _between(low: float, high: float) -> float:
    """Return a signal strength between two others: in the middle, or of the mean magnitude if both are far apart."""
    if math.isinf(high):
        return 10 * max(low, 0.0) + 1.0
    return math.sqrt(low) * math.sqrt(high) if 0.0 < 4 * low < high else 0.5 * low + 0.5 * high


def _as_on(y: ArrayLike) -> BoolArray:
    """Return who is On: the larger of two classes, or 1 where all labels are 0, or all are 1."""
    labels = as_column("y", y)
    if len(labels) == 0:
        return np.empty(0, dtype=np.bool_)
    as_labels(labels)
    if labels.dtype.kind in "biuf" and labels.min() == labels.max():
        if labels[0] not in (0, 1):
            raise ValueError(f"y must hold two classes, or only 0 (Off) or only 1 (On), got {labels[:1].tolist()} only")
        return labels.astype(np.bool_)
    return np.asarray(labels == binary_classes(labels)[1])
