r"""The On/Off likelihood: a significance that weights every event by its likelihood ratio.

Let On events at x have the density :math:`\mu s(x) + \alpha b(x)`, Off events :math:`b(x)`, and let
:math:`r(x) = s(x) / b(x)` be the likelihood ratio. An event at x is On with odds :math:`\mu r + \alpha`, independent
of b. Given the positions of the events,

.. math:: \ln L(\mu) = \sum_{On} \ln(\mu r_i + \alpha_i) - \sum_{all} \ln(\mu r_i + \alpha_i + 1)

and :math:`S = \mathrm{sign}(\hat\mu) \sqrt{2 (\ln L(\hat\mu) - \ln L(0))}`. If r is constant for some events and
0 for all others, this is the significance of Li & Ma.

Limits on a signal use the asymptotic formulae of Cowan et al. (2011), Eur. Phys. J. C 71, 1554: on the signal
strength, given the positions of the events, and on the number of signal events, with Poisson counts (WStat).

An uncertain exposure ratio, :math:`\alpha_i (1 + \delta \eta)` with relative error :math:`\delta`, adds
:math:`-\eta^2 / 2` for each :math:`\eta`, and :math:`\ln L(\mu)` is maximised over them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import chdtrc, ndtr, ndtri

from excess._utils import checks
from excess._utils.checks import BoolArray, FloatArray
from excess._utils.errors import with_error
from excess.stats import _kernels

_MAX_FINE = 2000  # number of cells above which maxima and interval are searched with coarser ones and refined with all
_PER_DECADE = 4  # signal strengths per decade in the search for maxima
_MAX_SORTED_APART = 100  # maximum number of exposure ratios whose events are sorted separately, which is faster
_SMALLEST_RATIO = 1e-100  # minimum ratio relative to the largest; below it, sums would leave the range of floats
_INFINITE = 1e12  # factor beyond the largest signal strength of the search that is treated as infinity
_EPSILON = np.finfo(np.float64).eps
LIMIT_METHODS = ("profile", "cls")  # upper limits by profile likelihood, or by CLs, which are never negative
_LARGEST_FACTOR = 1e6  # maximum multiple of the exposure for which a significance is predicted

AlphaError = float | Mapping[Any, float] | None  # relative error of alpha: common to all events, or per group


@dataclass(frozen=True)
class OnOffLikelihood:
    """Result of the On/Off likelihood of some events.

    Attributes
    ----------
    significance : float
        Signed square root of twice the log-likelihood ratio, in sigma; negative for a deficit.
    strength : float
        Signal strength at the maximum; for ratios of normalised densities, as ``likelihood_ratio`` of the classifiers,
        the number of signal events per Off event. Infinite if no Off event has a positive ratio.
    strength_interval : tuple of float
        Signal strengths with a log-likelihood at most 1/2 below the maximum: the interval of one sigma.
    n_signal, n_signal_error : float
        Expected number of signal events among the On events, and its standard error: half the width of the interval, or
        its upper part if the lower one is truncated at the minimum number.
    n_signal_interval : tuple of float
        Numbers of signal events with a log-likelihood at most 1/2 below the maximum.
    """

    significance: float
    strength: float
    strength_interval: tuple[float, float]
    n_signal: float
    n_signal_error: float
    n_signal_interval: tuple[float, float] = (-math.inf, math.inf)

    @property
    def p_value(self) -> float:
        """One-sided p-value: upper tail probability of the normal distribution at the significance."""
        return float(ndtr(-self.significance))

    def summary(self) -> dict[str, float]:
        """Return the results by name, for a table or a file."""
        values = self.significance, self.strength, *self.strength_interval, self.n_signal, self.n_signal_error
        return dict(zip(self.names(), (*values, *self.n_signal_interval), strict=True))

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names in a ``summary``."""
        signal = "n_signal", "n_signal_error", "n_signal_low", "n_signal_high"
        return "significance", "strength", "strength_low", "strength_high", *signal

    @classmethod
    def from_summary(cls, numbers: dict[str, Any]) -> OnOffLikelihood:
        """Create a likelihood from its ``summary``; infinities may be text, as JSON has none."""
        significance, strength, *others = (float(numbers.get(name, math.nan)) for name in cls.names())
        low, high, n_signal, error, fewest, most = others
        return cls(significance, strength, (low, high), n_signal, error, (fewest, most))

    def __str__(self) -> str:
        """Return signal events, signal strength and significance in one line."""
        low, high = self.strength_interval
        signal = f"{with_error(self.n_signal, self.n_signal_error)} signal events"
        return f"{signal}, signal strength {self.strength:.3g} ({low:.3g} to {high:.3g}), {self.significance:.1f} sigma"


def on_off_likelihood(
    y: ArrayLike, ratio: ArrayLike, alpha: ArrayLike, *, alpha_error: AlphaError = None, groups: ArrayLike | None = None
) -> OnOffLikelihood:
    """Compute significance and signal strength from all events, weighted by their likelihood ratios.

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Noisy labels of at most two classes, the larger one On; a single class must be 0, 1 or bool.
    ratio : array-like of shape (n_events,)
        Density of signal over that of background at each event, up to a constant factor, not learned from these events;
        see ``likelihood_ratio`` of the classifiers.
    alpha : float or array-like of shape (n_events,)
        Exposure ratio On/Off, common to all events or one per event, such as that of its run.
    alpha_error : float or mapping of group to float, default=None
        Relative uncertainty of alpha, such as 0.05, as a nuisance parameter with a normal distribution, common to all
        events or independent for each group. Events with ratio 0 then contribute as well: they measure the background.
    groups : array-like of shape (n_events,), default=None
        Group of each event, if ``alpha_error`` is a mapping.

    Returns
    -------
    OnOffLikelihood
        The significance is 0, and the interval unbounded, without events of positive ratio.

    Examples
    --------
    >>> from excess import on_off_likelihood
    >>> print(on_off_likelihood([1] * 20 + [0] * 25, [1] * 45, alpha=0.2))
    15.0 +- 4.6 signal events, signal strength 0.6 (0.391 to 0.879), 4.4 sigma
    >>> round(on_off_likelihood([1] * 20 + [0] * 25, [1] * 45, alpha=0.2, alpha_error=0.5).significance, 3)
    3.014
    """
    return compute_likelihood(*check_events(y, ratio, alpha, alpha_error, groups))


def check_events(
    y: ArrayLike, ratio: ArrayLike, alpha: ArrayLike, alpha_error: AlphaError, groups: ArrayLike | None
) -> tuple[BoolArray, FloatArray, FloatArray, Nuisance | None]:
    """Validate events, and return the arguments of `compute_likelihood`."""
    on = _as_on(y)
    ratios = checks.as_column("ratio", checks.as_counts("ratio", ratio))
    checks.check_same_length(y=on, ratio=ratios)
    alphas = checks.as_alpha(alpha)
    if alphas.ndim > 0:
        alphas = checks.as_column("alpha", alphas)
        checks.check_same_length(y=on, alpha=alphas)
    return on, ratios, alphas, as_nuisance(alpha_error, groups, len(on))


class Nuisance(NamedTuple):
    """Relative errors of alpha, and the index of the error of each event; None for a common one."""

    errors: FloatArray
    number: NDArray[np.intp] | None = None

    def select(self, mask: BoolArray) -> Nuisance:
        """Return the errors of a subset of the events."""
        return self._replace(number=None if self.number is None else self.number[mask])


def as_nuisance(alpha_error: AlphaError, groups: ArrayLike | None, n_events: int) -> Nuisance | None:
    """Validate errors of alpha; None if there are none."""
    if alpha_error is None:
        return None
    if not isinstance(alpha_error, Mapping):
        error = checks.as_scalar("alpha_error", checks.as_counts("alpha_error", alpha_error))
        return Nuisance(np.array([error])) if error > 0 else None
    if groups is None:
        raise ValueError("alpha_error by group requires groups")
    names, number = np.unique(checks.as_column("groups", groups), return_inverse=True)
    if len(number) != n_events:
        raise ValueError(f"groups must have one entry per event: len(groups) = {len(number)}, {n_events} events")
    given = {str(name): value for name, value in alpha_error.items()}
    if missing := [str(name) for name in names if str(name) not in given]:
        raise ValueError(f"alpha_error has no value for the groups {', '.join(missing)}")
    errors = checks.as_counts("alpha_error", [given[str(name)] for name in names])
    return Nuisance(np.asarray(errors), number) if np.any(errors > 0) else None


def compute_likelihood(
    on: BoolArray, ratio: FloatArray, alpha: FloatArray | float, nuisance: Nuisance | None = None
) -> OnOffLikelihood:
    """Compute the likelihood of validated events."""
    cells = make_cells(on, ratio, np.asarray(alpha, dtype=np.float64), nuisance)
    return OnOffLikelihood(0.0, 0.0, (-math.inf, math.inf), 0.0, 0.0) if cells is None else _maximise(*cells)


class Cells(NamedTuple):
    """Counts of events with equal ratio and alpha, and the errors of alpha.

    Sorted, so sums are reproducible to the bit; events of ratio 0 are omitted unless alpha has an error.
    """

    ratio: FloatArray  # divided by the largest
    alpha: FloatArray
    n_on: FloatArray
    n_off: FloatArray
    starts: NDArray[np.int64]  # first cell of each error, and the end
    errors: FloatArray

    def coarse(self) -> Cells:
        """Merge cells with ratios equal to 1 %, for which the likelihood is nearly the same."""
        if len(self.ratio) <= _MAX_FINE:
            return self
        parts = [
            np.array(_kernels.merge_similar(*(column[low:high] for column in self[:4])))
            for low, high in zip(self.starts[:-1], self.starts[1:], strict=True)
        ]
        return _join_parts(parts, self.errors)

    @property
    def profiled(self) -> bool:
        """Whether alpha has an error."""
        return bool(self.errors.any())


def _join_parts(parts: list[Any], errors: FloatArray) -> Cells:
    """Concatenate the cells of several errors of alpha."""
    starts = np.cumsum([0, *(part.shape[1] for part in parts)])
    ratio, alpha, n_on, n_off = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    return Cells(ratio, alpha, n_on, n_off, starts, errors)


def make_cells(
    on: BoolArray, ratio: FloatArray, alpha: FloatArray, nuisance: Nuisance | None = None
) -> tuple[Cells, float] | None:
    """Return the cells of events, and the unit of their ratios; None without events of positive ratio."""
    if not (some := ratio > 0).any():
        return None
    errors, number = (np.zeros(1), None) if nuisance is None else nuisance
    parts = []
    for part in range(len(errors)):
        own = some if nuisance is None else np.ones(len(on), dtype=np.bool_) if number is None else number == part
        if own.all():
            parts.append(_count_cells(on, ratio, alpha))
        else:
            parts.append(_count_cells(on[own], ratio[own], alpha[own] if alpha.ndim else alpha))
    cells = _join_parts(parts, errors)
    unit = float(cells.ratio.max())
    return cells._replace(ratio=np.maximum(cells.ratio / unit, _SMALLEST_RATIO)), unit


def _count_cells(on: BoolArray, ratio: FloatArray, alpha: FloatArray) -> Any:
    """Return ratio, alpha, On and Off counts of the cells of some events."""
    # non-negative floats sort like their bits; the highest bit is 0 and leaves room for the label
    keys = (np.ascontiguousarray(ratio).view(np.uint64) << np.uint64(1)) | on.astype(np.uint64)
    values, ends = alpha[None], np.array([0, len(keys)])
    if alpha.ndim > 0:
        values, numbers = _kernels.number_distinct(alpha, _MAX_SORTED_APART)
        keys, ends = _kernels.divide_keys(keys, numbers, len(values)) if len(values) else (keys, ends)
    if len(values):
        parts = []
        for part in np.argsort(values):
            own = keys[ends[part] : ends[part + 1]]
            own.sort()
            parts.append(_kernels.merge_sorted_keys(own, values[part]))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    order = np.lexsort((ratio, alpha))
    return _kernels.merge_sorted(ratio[order], alpha[order], on[order])


def _maximise(cells: Cells, unit: float) -> OnOffLikelihood:
    """Return all results at the maximum of the likelihood."""
    curve = Curve(cells.coarse(), lowest=-float((cells.alpha / cells.ratio).min()))
    strength = start = curve.find_maximum()
    low, high = curve.find_interval(strength)
    fewest, most = curve.find_signal_interval(strength)
    exact = curve if curve.cells is cells else Curve(cells, curve.lowest)
    if exact is not curve and math.isfinite(strength) and strength != curve.lowest:
        strength = exact.climb(start, curve.lowest, math.inf)
        low = low if low == curve.lowest else max(low + strength - start, curve.lowest)
        high += strength - start
    top, n_signal = exact.value_and_signal(strength)
    if exact is not curve and math.isfinite(strength):
        shift = n_signal - curve.value_and_signal(start)[1]
        fewest, most = fewest + shift, most + shift
    significance = math.copysign(math.sqrt(2 * max(top, 0.0)), strength)
    cut_off = low == curve.lowest and fewest >= n_signal - 1e-9 * abs(n_signal)
    error = most - n_signal if cut_off else (most - fewest) / 2
    strength, low, high = (float(value) / unit for value in (strength, low, high))
    return OnOffLikelihood(significance, strength, (low, high), n_signal, error, (fewest, most))


class Curve:
    """Likelihood of some cells as a function of the signal strength, which is bounded below by ``lowest``."""

    def __init__(self, cells: Cells, lowest: float | None = None) -> None:
        self.cells = cells
        self.counts = cells[:4]
        self.lowest = lowest = -float((cells.alpha / cells.ratio).min()) if lowest is None else lowest
        # an On event would have zero density
        at_border = cells.alpha <= -lowest * cells.ratio * (1 + 4 * _EPSILON)
        self._border_possible = not cells.n_on[at_border].any()
        self._with_signal = cells.ratio > _SMALLEST_RATIO

    def value_and_slope(self, strength: float) -> tuple[float, float]:
        """Return the log-likelihood relative to no signal and the given alpha, and its derivative."""
        if self.cells.profiled:
            return _kernels.profile_derivatives(strength, *self.cells)[:2]
        return _kernels.value_and_slope(strength, *self.counts)

    def derivatives(self, strength: float) -> tuple[float, float]:
        """Return both derivatives of the log-likelihood."""
        if self.cells.profiled:
            return _kernels.profile_derivatives(strength, *self.cells)[1:]
        return _kernels.derivatives(strength, *self.counts)

    def alpha_at(self, strength: float) -> FloatArray:
        """Return alpha of each cell with the nuisance parameters profiled for a signal strength."""
        factors = _kernels.fit_nuisances(strength, strength, *self.cells)
        return self.cells.alpha * np.repeat(factors, np.diff(self.cells.starts))

    def value_and_signal(self, strength: float) -> tuple[float, float]:
        """Return the log-likelihood ratio to no signal, and the number of signal events, at the maximum."""
        cells = self.cells
        if not cells.profiled:
            if math.isinf(strength):
                return float((cells.n_on * np.log1p(1 / cells.alpha)).sum()), float(cells.n_on.sum())
            top, n_signal = _kernels.sums_at_maximum(strength, *self.counts)
            return self.value_and_slope(strength)[0] if strength == self.lowest else top, n_signal
        at = min(strength, _INFINITE * self._largest)
        n_signal = _kernels.sums_at_maximum(at, cells.ratio, self.alpha_at(at), cells.n_on, cells.n_off)[1]
        return self.value_and_slope(at)[0] - self.value_and_slope(0.0)[0], n_signal

    @property
    def _largest(self) -> float:
        """Signal strength beyond which the likelihood is constant."""
        ratio = self.cells.ratio[self._with_signal] if self.cells.profiled else self.cells.ratio
        return 1e3 * (1 + float(self.cells.alpha.max())) / float(ratio.min())

    def find_maximum(self) -> float:
        """Return the maximum-likelihood signal strength; infinite without Off events of positive ratio."""
        if not self.cells.n_off[self._with_signal].any():
            return math.inf
        candidates = [self.climb(start, low, high) for start, low, high in self._brackets()]
        candidates += [0.0] if self.cells.profiled else []  # its slope may jump at a bound of a nuisance parameter
        if self._border_possible:
            candidates.append(self.lowest)
        return max(candidates, key=lambda strength: self.value_and_slope(strength)[0], default=0.0)

    def _brackets(self) -> list[tuple[float, float, float]]:
        """Return start, lower and upper end of each interval of signal strengths with a maximum."""
        smallest, largest = 1e-6 * float(self.cells.alpha.min()), self._largest
        n_above = math.ceil(math.log10(largest / smallest) * _PER_DECADE) + 1
        # small steps at both ends of the negative side: near 0, and near the bound
        steps = np.geomspace(1e-6, 0.5, 12)
        below = self.lowest * np.concatenate([1 - steps, steps[::-1][1:]])
        grid = np.concatenate([[self.lowest], below, [0.0], np.geomspace(smallest, largest, n_above), [math.inf]])
        profiled = [self.derivatives(at)[0] for at in grid[:-1].tolist()] if self.cells.profiled else None
        inner = _kernels.slopes_on_grid(grid[:-1], *self.counts) if profiled is None else profiled
        slopes = np.append(inner, -1.0)  # at large signal strengths, the Off events dominate
        down = np.flatnonzero((slopes[:-1] > 0) & (slopes[1:] <= 0))
        return [(_between(low, high), low, high) for low, high in zip(grid[down], grid[down + 1], strict=True)]

    def find_interval(self, strength: float, drop: float = 0.5) -> tuple[float, float]:
        """Return the signal strengths around the maximum where the log-likelihood is lower by ``drop``."""
        if math.isinf(strength) and not self.cells.profiled:
            wanted = float((self.cells.n_on * np.log1p(1 / self.cells.alpha)).sum()) - drop
        else:
            wanted = self.value_and_slope(min(strength, _INFINITE * self._largest))[0] - drop
        low, high = self.lowest, math.inf
        if not (self._border_possible and self.value_and_slope(low)[0] >= wanted):
            low = self._cross(low, strength, wanted, up=False)
        if not math.isinf(strength):
            high = self._cross(strength, high, wanted, up=True)
        return low, high

    def _cross(self, low: float, high: float, wanted: float, *, up: bool) -> float:
        """Return where the log-likelihood has a given value, between a maximum and a lower value."""
        at = _between(low, high)
        for _ in range(200):
            value, slope = self.value_and_slope(at)
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

    def climb(self, strength: float, low: float, high: float) -> float:
        """Return the maximum between two signal strengths by Newton's method on the derivative, or bisection."""
        cells = self.cells
        if low <= 0.0 <= high and abs(strength) <= 1e-5 * float(cells.alpha.max()):
            slope = self.derivatives(0.0)[0]
            # 1/49 has no exact binary representation, so exact balance may be missed by rounding
            if abs(slope) <= 4 * _EPSILON * float((cells.n_on * cells.ratio / cells.alpha).sum()):
                return 0.0
        for _ in range(200):
            slope, curvature = self.derivatives(strength)
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

    def signal(self, strength: float) -> tuple[float, float]:
        """Return the maximum log-likelihood for a number of signal events, and this number.

        The background is fitted to On and Off counts for this number, not for the signal strength (as in WStat). The
        number increases with ``strength``; values below the lowest, by up to 1, interpolate between the number there
        and the next.
        """
        if strength >= self.lowest:
            return _kernels.balance_signal(strength, *self.cells)
        last = self.lowest
        if _kernels.signal_at(last, last, *self.cells)[2] > 0:
            last = brentq(lambda k: _kernels.signal_at(self.lowest, k, *self.cells)[2], last, 0.0, xtol=1e-300)
        at = last + (self.lowest - strength) * (self.lowest - last)
        return _kernels.signal_at(self.lowest, max(at, self.lowest), *self.cells)[:2]

    def find_signal_interval(self, strength: float, drop: float = 0.5) -> tuple[float, float]:
        """Return the numbers of signal events around the maximum where the log-likelihood is lower by ``drop``."""
        if math.isinf(strength):
            return self._pure_interval(drop)
        first = self.lowest - 1.0 if strength == self.lowest else strength
        top, best = self.signal(first)

        def excess(at: float) -> float:
            # the square root is nearly linear
            return math.sqrt(max(2 * (top - self.signal(at)[0]), 0.0)) - math.sqrt(2 * drop)

        low = best
        if first > self.lowest:
            border = self.lowest + 1e-12 * (strength - self.lowest)
            low = self.signal(brentq(excess, border, strength, rtol=1e-9) if excess(border) > 0 else border)[1]
        width = max(abs(strength), 1e-3 * float(self.cells.alpha.min()))
        far = max(strength, self.lowest) + width
        while excess(far) < 0:
            width *= 2
            far += width
        return low, self.signal(brentq(excess, first, far, xtol=1e-12 * width, rtol=1e-9))[1]

    def _pure_interval(self, drop: float) -> tuple[float, float]:
        """Return the interval of signal events if no Off event has a positive ratio: that of a Poisson count."""
        n = float(self.cells.n_on[self._with_signal].sum())

        def missing(s: float) -> float:
            return s - n - n * math.log(s / n) - drop

        smallest = n * math.exp(-1 - drop / n)
        return brentq(missing, smallest, n), brentq(missing, n, n + 2 * drop + 2 * math.sqrt(2 * drop * n) + 1)


def _between(low: float, high: float) -> float:
    """Return a signal strength between two others: the arithmetic, or for different magnitudes the geometric mean."""
    if math.isinf(high):
        return 10 * max(low, 0.0) + 1.0
    return math.sqrt(low) * math.sqrt(high) if 0.0 < 4 * low < high else 0.5 * low + 0.5 * high


def _as_on(y: ArrayLike) -> BoolArray:
    """Return the On mask: the larger of two classes, or 1 if all labels are 0, or all are 1."""
    labels = checks.as_column("y", y)
    if len(labels) == 0:
        return np.empty(0, dtype=np.bool_)
    checks.as_labels(labels)
    if labels.dtype.kind in "biuf" and labels.min() == labels.max():
        if labels[0] not in (0, 1):
            raise ValueError(
                f"y must contain two classes, or only 0 (Off) or only 1 (On), got {labels[:1].tolist()} only"
            )
        return labels.astype(np.bool_)
    return np.asarray(labels == checks.binary_classes(labels)[1])


class Limits(NamedTuple):
    """Interval, upper limit, and expected upper limit without a source, of one quantity."""

    low: float
    high: float
    upper: float
    expected_low: float
    expected: float
    expected_high: float


class SignalLimits(NamedTuple):
    """Limits of the signal strength, and of the number of signal events."""

    strength: Limits
    n_signal: Limits


class Sensitivity(NamedTuple):
    """Weakest source detectable in a given time: signal strength, signal events, and signal events per hour."""

    strength: float
    n_signal: float
    rate: float


def signal_limits(
    y: ArrayLike,
    ratio: ArrayLike,
    alpha: ArrayLike,
    *,
    confidence_level: float = 0.95,
    method: str = "profile",
    alpha_error: AlphaError | None = None,
    groups: ArrayLike | None = None,
) -> SignalLimits:
    """Compute confidence interval, upper limit, and expected upper limit of a signal.

    Parameters
    ----------
    y, ratio, alpha, alpha_error, groups
        As for `on_off_likelihood`.
    confidence_level : float, default=0.95
        Coverage probability of the interval and of the upper limit; above 0.5. The limit corresponds to gammapy's
        ``compute_upper_limit`` with ``n_sigma = norm.ppf(confidence_level)``.
    method : {"profile", "cls"}, default="profile"
        Upper limits by the profile likelihood, which may be negative, or by CLs, which are larger and never negative.

    Returns
    -------
    SignalLimits
        ``strength`` and ``n_signal``, each with the interval ``low`` to ``high``, the limit ``upper``, and the limit
        expected without a source: its median ``expected``, and one sigma, ``expected_low`` to ``expected_high``.

    Examples
    --------
    >>> from excess import signal_limits
    >>> y, ratio = [1] * 3 + [0] * 40, [1] * 43
    >>> round(signal_limits(y, ratio, 0.2).n_signal.upper, 2)
    -0.78
    >>> found = signal_limits(y, ratio, 0.2, method="cls").n_signal
    >>> round(found.upper, 2), round(found.expected, 2)
    (3.88, 6.92)
    """
    if not 0.5 < confidence_level < 1:
        raise ValueError(f"confidence_level must be above 0.5 and below 1, got {confidence_level!r}")
    if method not in LIMIT_METHODS:
        raise ValueError(f"method must be one of {', '.join(LIMIT_METHODS)}, got {method!r}")
    return Signal(*check_events(y, ratio, alpha, alpha_error, groups)).limits(confidence_level, method)


def hours_to_significance(
    y: ArrayLike,
    ratio: ArrayLike,
    alpha: ArrayLike,
    hours: float,
    *,
    significance: float = 5.0,
    alpha_error: AlphaError | None = None,
    groups: ArrayLike | None = None,
) -> float:
    """Compute the total observation time in which this signal is expected to reach a significance.

    Parameters
    ----------
    y, ratio, alpha, alpha_error, groups
        As for `on_off_likelihood`. A relative error of alpha does not decrease with time.
    hours, significance : float
        Time in which the events were recorded, and the significance in sigma.

    Returns
    -------
    float
        Time in hours; infinite for a deficit, or if the error of alpha prevents the significance.

    Examples
    --------
    >>> from excess import hours_to_significance
    >>> round(hours_to_significance([1] * 40 + [0] * 100, [1] * 140, 0.2, hours=10), 1)
    20.3
    """
    return Signal(*check_events(y, ratio, alpha, alpha_error, groups)).hours_to(hours, significance)


def sensitivity(
    y: ArrayLike,
    ratio: ArrayLike,
    alpha: ArrayLike,
    hours: float,
    *,
    target_hours: float = 50.0,
    significance: float = 5.0,
    min_signal: float = 0.0,
    min_signal_to_background: float = 0.0,
    alpha_error: AlphaError | None = None,
    groups: ArrayLike | None = None,
) -> Sensitivity:
    """Compute the weakest source expected to reach a significance in a given time with this background.

    Parameters
    ----------
    y, ratio, alpha, alpha_error, groups
        As for `on_off_likelihood`.
    hours, target_hours : float
        Time in which the events were recorded, and time of the observation to predict.
    significance : float, default=5.0
        Significance in sigma.
    min_signal, min_signal_to_background : float, default=0.0
        Minimum number of signal events, by convention 10, and minimum per background event, by convention 0.05; the
        background is that of a cut with the same significance for weak signals.

    Returns
    -------
    Sensitivity
        Signal strength, signal events in ``target_hours``, and signal events per hour.

    Examples
    --------
    >>> from excess import sensitivity
    >>> round(sensitivity([1] * 20 + [0] * 100, [1] * 120, 0.2, hours=10).n_signal, 1)
    60.5
    """
    signal = Signal(*check_events(y, ratio, alpha, alpha_error, groups))
    return signal.sensitivity(hours, target_hours, significance, min_signal, min_signal_to_background)


class Signal:
    """Signal of validated events: its limits and predictions."""

    def __init__(
        self, on: BoolArray, ratio: FloatArray, alpha: FloatArray | float, nuisance: Nuisance | None = None
    ) -> None:
        found = make_cells(on, ratio, np.asarray(alpha, dtype=np.float64), nuisance)
        if found is None:
            raise ValueError("ratio must be positive for at least one event")
        self._cells, self._unit = found[0].coarse(), found[1]
        self._curve = Curve(self._cells)
        self._best = self._curve.find_maximum()

    def best(self, *, counts: bool) -> float:
        """Return the best number of signal events, or the best signal strength; finite."""
        if counts:
            return self._curve.value_and_signal(self._best)[1]
        return (1e3 if math.isinf(self._best) else self._best) / self._unit

    def log_likelihood(self, value: float, *, counts: bool) -> float:
        """Return the log-likelihood, relative to its maximum, of a non-negative signal (events or signal strength)."""
        if not counts:
            top = self._curve.value_and_slope(min(self._best, _INFINITE * self._curve._largest))[0]
            return min(self._curve.value_and_slope(value * self._unit)[0] - top, 0.0)
        if math.isinf(self._best):  # a Poisson number of signal events
            n = self.best(counts=True)
            return n * math.log(max(value, 1e-300) / n) - value + n
        start = self._best if self._best > self._curve.lowest else self._curve.lowest - 1.0
        return min(_value_at(self._curve, value) - self._curve.signal(start)[0], 0.0)

    def limits(self, level: float, method: str) -> SignalLimits:
        """Return the limits at a confidence level."""
        interval = self._bounds(self._curve, self._best, ndtri((1 + level) / 2))
        expected = self._background_only()
        bands = []
        for n_sigma in (-1.0, 0.0, 1.0):
            z = n_sigma + (ndtri(1 - (1 - level) * ndtr(n_sigma)) if method == "cls" else ndtri(level))
            bands.append([ends[int(z > 0)] for ends in self._bounds(expected, 0.0, z)])
        if method == "cls":
            upper = [self._cls_limit(expected, level, counts=counts) for counts in (False, True)]
        else:
            upper = [high for _, high in self._bounds(self._curve, self._best, ndtri(level))]
        return SignalLimits(*(Limits(*interval[k], upper[k], *(one[k] for one in bands)) for k in (0, 1)))

    def hours_to(self, hours: float, significance: float = 5.0) -> float:
        """Return the time in which the signal reaches a significance."""
        top = self._curve.value_and_signal(self._best)[0]
        if self._best <= 0 or top <= 0:
            return math.inf
        if not self._cells.profiled:
            return hours * significance**2 / (2 * top)

        def missing(log_factor: float) -> float:
            n_on, n_off = (math.exp(log_factor) * counts for counts in (self._cells.n_on, self._cells.n_off))
            curve = Curve(self._cells._replace(n_on=n_on, n_off=n_off))
            value = curve.value_and_signal(curve.find_maximum())[0]
            return math.sqrt(2 * max(value, 0.0)) - significance

        ends = -math.log(_LARGEST_FACTOR), math.log(_LARGEST_FACTOR)
        return hours * math.exp(brentq(missing, *ends, xtol=1e-6)) if missing(ends[1]) > 0 else math.inf

    def sensitivity(
        self, hours: float, target: float = 50.0, significance: float = 5.0, n_least: float = 0.0, least: float = 0.0
    ) -> Sensitivity:
        """Return the weakest source detected in a time, with minimum signal events and signal-to-background ratio."""
        at = self._best if 0 < self._best < math.inf else 0.0
        alpha, ratio = self._curve.alpha_at(at), self._cells.ratio
        off = (self._cells.n_on + self._cells.n_off) / (1 + alpha + at * ratio) * (target / hours)

        def missing(log_strength: float) -> float:
            strength = math.exp(log_strength)
            curve = Curve(self._cells._replace(alpha=alpha, n_on=(strength * ratio + alpha) * off, n_off=off))
            return math.sqrt(2 * max(curve.value_and_signal(strength)[0], 0.0)) - significance

        of_signal = float((ratio * off).sum())
        background = float((alpha * ratio * off).sum()) ** 2 / float((alpha * ratio**2 * off).sum())
        low = high = math.log(significance**2 / of_signal)
        while missing(high) < 0 and high < 50:
            high += 1
        while missing(low) > 0:
            low -= 1
        best = math.exp(brentq(missing, low, high, xtol=1e-9)) if high < 50 else math.inf
        strength = max(best, n_least / of_signal, least * background / of_signal)
        return Sensitivity(strength / self._unit, strength * of_signal, strength * of_signal / target)

    def _bounds(self, curve: Curve, best: float, n_sigma: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the interval of both quantities."""
        low, high = curve.find_interval(best, n_sigma**2 / 2)
        return (low / self._unit, high / self._unit), curve.find_signal_interval(best, n_sigma**2 / 2)

    def _background_only(self) -> Curve:
        """Return the likelihood of the counts expected without a signal (Asimov data set)."""
        cells, alpha = self._cells, self._curve.alpha_at(0.0)
        n_off = (cells.n_on + cells.n_off) / (1 + alpha)
        # alpha (1 + error eta) around the fitted alpha: the absolute error is kept
        factors = (alpha / cells.alpha)[np.minimum(cells.starts[:-1], len(alpha) - 1)]
        return Curve(cells._replace(alpha=alpha, n_on=alpha * n_off, n_off=n_off, errors=cells.errors / factors))

    def _cls_limit(self, expected: Curve, level: float, *, counts: bool) -> float:
        """Return the value with CLs of ``1 - level``, for the test statistic of non-negative values."""
        curve = self._curve
        if math.isinf(self._best) and not counts:
            return math.inf
        n_pure = self.best(counts=True)

        def observe(at: float) -> tuple[float, float]:
            """Return log-likelihood and value at a point of the scan."""
            if math.isinf(self._best):  # a Poisson number of signal events
                return n_pure * math.log(at / n_pure) - at + n_pure, at
            return curve.signal(at) if counts else (curve.value_and_slope(at)[0], at)

        def expect(value: float) -> float:
            """Return the log-likelihood of a value without a signal."""
            return _value_at(expected, value) if counts else expected.value_and_slope(value)[0]

        start = n_pure if math.isinf(self._best) else max(self._best, 0.0)
        top = observe(start)[0]

        def missing(at: float) -> float:
            log_likelihood, value = observe(at)
            q, q_expected = max(2 * (top - log_likelihood), 0.0), max(-2 * expect(value), 1e-300)
            root = math.sqrt(q_expected)
            if q <= q_expected:
                with_signal, without = ndtr(-math.sqrt(q)), ndtr(root - math.sqrt(q))
            else:
                with_signal, without = ndtr(-(q + q_expected) / (2 * root)), ndtr(-(q - q_expected) / (2 * root))
            return float(with_signal / max(without, 1e-300)) - (1 - level)

        step = max(start, 1e-3 * float(self._cells.alpha.min()))
        high = start + step
        while missing(high) > 0:
            step *= 2
            high += step
        found = observe(brentq(missing, start, high, xtol=1e-12 * step, rtol=1e-9))[1]
        return found if counts else found / self._unit


def _value_at(curve: Curve, n_signal: float) -> float:
    """Return the log-likelihood of a non-negative number of signal events."""
    high = float(curve.cells.alpha.max())
    while curve.signal(high)[1] < n_signal:
        high *= 4
    return curve.signal(brentq(lambda at: curve.signal(at)[1] - n_signal, 0.0, high, rtol=1e-12))[0]


class Constancy(NamedTuple):
    """Test for a steady source: mean, chi-squared, and p-value."""

    mean: float
    chi_squared: float
    n_degrees_of_freedom: int
    p_value: float


def compare_with_constant(signals: Sequence[Signal], hours: FloatArray | None = None) -> Constancy:
    """Compare signals with a common rate per hour, or signal strength, by the likelihood ratio to individual values."""
    weights = np.ones(len(signals)) if hours is None else hours
    counts = hours is not None
    largest = max(one.best(counts=counts) / weight for one, weight in zip(signals, weights, strict=True))

    def chi_squared(rate: float) -> float:
        pairs = zip(signals, weights.tolist(), strict=True)
        return -2 * math.fsum(one.log_likelihood(rate * weight, counts=counts) for one, weight in pairs)

    mean, value = 0.0, chi_squared(0.0)
    if largest > 0:
        found = minimize_scalar(chi_squared, bounds=(0.0, largest), method="bounded", options={"xatol": 1e-5 * largest})
        mean, value = (float(found.x), float(found.fun)) if found.fun < value else (mean, value)
    n_free = len(signals) - 1
    return Constancy(mean, value, n_free, float(chdtrc(n_free, value)) if n_free else 1.0)
