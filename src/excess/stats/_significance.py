r"""Li & Ma significance of an excess of On over Off counts; p-values, and fractions of events.

With ``q = alpha / (1 + alpha)`` and ``n = n_on + n_off``, formula (17) of Li & Ma (1983) reads

.. math:: S^2 / 2 = n_{on} \ln\frac{n_{on}}{q n} + n_{off} \ln\frac{n_{off}}{(1 - q) n}

(ApJ 272, 317), computed as a sum of two non-negative Poisson deviances to avoid cancellation near balance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import chi2, norm

from excess._utils import checks
from excess._utils.checks import FloatArray
from excess._utils.errors import with_error
from excess._utils.threads import Row, html_table
from excess.stats._likelihood import Cells, Curve

_EPSILON = np.finfo(np.float64).eps
_SERIES_BELOW = 0.1  # relative distance to balance below which the logarithm is replaced by its series
_BLOCK = 32_768  # counts processed at a time


def li_ma_significance(
    n_on: ArrayLike, n_off: ArrayLike, alpha: ArrayLike, *, signed: bool = False, alpha_error: ArrayLike | None = None
) -> Any:
    """Compute the significance of an excess of On over Off counts, formula (17) of Li & Ma (1983).

    Parameters
    ----------
    n_on, n_off : array-like
        Numbers of On and Off events. ``n_on``, ``n_off`` and ``alpha`` broadcast like NumPy arrays.
    alpha : array-like
        Exposure ratio On/Off; 1/5 for five equal Off regions.
    signed : bool, default=False
        Whether a deficit (``n_on < alpha * n_off``) is negative; by default it is 0.
    alpha_error : array-like, default=None
        Relative uncertainty of alpha, such as 0.05, as a normal nuisance parameter (Vianello 2018, ApJS 236, 17).

    Returns
    -------
    float or ndarray of float64
        Significance in sigma: 0 without events and at exact balance, never NaN (for counts and ratios up to 1e100).

    Examples
    --------
    >>> from excess import li_ma_significance
    >>> round(li_ma_significance(20, 25, 0.2), 3)
    4.354
    >>> li_ma_significance([10, 0, 0, 5], [0, 10, 0, 25], 0.2, signed=True).round(3)
    array([ 5.986, -1.91 ,  0.   ,  0.   ])
    >>> round(li_ma_significance(20, 25, 0.2, alpha_error=0.5), 3)
    3.014
    """
    on, off, ratio = _as_measurements(n_on, n_off, alpha)
    if alpha_error is None:
        significance = signed_significance(on, off, ratio)
    else:
        error = checks.as_counts("alpha_error", alpha_error)
        checks.check_broadcast(n_on=on, n_off=off, alpha=ratio, alpha_error=error)
        significance = _profiled_significance(*np.broadcast_arrays(on, off, ratio, error))
    return checks.as_result(significance if signed else np.maximum(significance, 0.0))


def li_ma_p_value(n_on: ArrayLike, n_off: ArrayLike, alpha: ArrayLike) -> Any:
    """Compute the one-sided p-value of an excess: the normal upper tail probability at the signed significance.

    Parameters
    ----------
    n_on, n_off, alpha : array-like
        As for `li_ma_significance`.

    Returns
    -------
    float or ndarray of float64
        0.5 at balance, larger for a deficit.

    Examples
    --------
    >>> from excess import li_ma_p_value
    >>> li_ma_p_value(5, 25, 0.2)
    0.5
    >>> f"{li_ma_p_value(20, 25, 0.2):.2g}"
    '6.7e-06'
    """
    return checks.as_result(ndtr(-li_ma_significance(n_on, n_off, alpha, signed=True)))


def n_on_for_significance(n_off: ArrayLike, alpha: ArrayLike, significance: ArrayLike) -> Any:
    """Compute the number of On events for a significance: the inverse of `li_ma_significance`.

    Parameters
    ----------
    n_off, alpha : array-like
        As for `li_ma_significance`.
    significance : array-like
        Required significance in sigma, non-negative.

    Returns
    -------
    float or ndarray of float64
        Real number of On events, at least ``alpha * n_off``. Round up for a count.

    Examples
    --------
    >>> from excess import li_ma_significance, n_on_for_significance
    >>> n_on = n_on_for_significance(100, 0.2, 5.0)
    >>> round(n_on, 2)
    50.23
    >>> round(li_ma_significance(n_on, 100, 0.2), 12)
    5.0
    """
    off, wanted = checks.as_counts("n_off", n_off), checks.as_counts("significance", significance)
    ratio = checks.as_alpha(alpha)
    checks.check_broadcast(n_off=off, alpha=ratio, significance=wanted)
    n_off, alpha, wanted = np.broadcast_arrays(off, ratio, wanted)

    # S increases with n_on from 0 at balance; without Off events the formula has a closed inverse: two lower bounds
    no_off = wanted**2 / (2 * np.log1p(1 / alpha))
    low = np.maximum(alpha * n_off, no_off)
    high = low + np.maximum(wanted, 1.0)
    while (short := signed_significance(high, n_off, alpha) < wanted).any():
        high = np.where(short, 2 * high, high)

    for _ in range(2100):  # bisection; the maximum number of halvings of the range of floats
        middle = 0.5 * low + 0.5 * high
        if ((middle <= low) | (middle >= high)).all():
            break
        short = signed_significance(middle, n_off, alpha) < wanted
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return checks.as_result(np.where(n_off == 0, no_off, np.where(wanted == 0, alpha * n_off, high)))


def joint_significance(
    n_on: ArrayLike, n_off: ArrayLike, alpha: ArrayLike, *, alpha_error: ArrayLike | None = None
) -> float:
    """Compute the significance of a common signal in measurements with different exposure ratios.

    Parameters
    ----------
    n_on, n_off, alpha : array-like of shape (n_measurements,)
        Numbers of On and Off events, and exposure ratio On/Off, of each measurement.
    alpha_error : float or array-like of shape (n_measurements,), default=None
        Relative uncertainty of alpha: common to all measurements, or independent for each.

    Returns
    -------
    float
        Signed significance in sigma, negative for a deficit; that of Li & Ma if the ratios are equal.

    Notes
    -----
    Measurement k expects ``alpha_k (1 + mu)`` On events per Off event. At the best ``mu``, the expected On events m_k
    sum to the observed ones, and ``S^2 = sum S_k(m_k, n_k - m_k, alpha_k)^2`` with the significances of Li & Ma.

    Examples
    --------
    >>> from excess import joint_significance
    >>> round(joint_significance([30, 120], [100, 100], [0.2, 1.0]), 3)
    2.132
    """
    measured = np.broadcast_arrays(*_as_measurements(n_on, n_off, alpha))
    on, off, ratio = (np.atleast_1d(values).ravel() for values in measured)
    if alpha_error is not None and len(on):
        errors = np.atleast_1d(checks.as_counts("alpha_error", alpha_error)).astype(np.float64)
        starts = np.array([0, len(on)]) if len(errors) == 1 else np.arange(len(on) + 1)
        checks.check_broadcast(n_on=on, alpha_error=errors)
        curve = Curve(Cells(ratio / ratio.max(), ratio, on.astype(np.float64), off.astype(np.float64), starts, errors))
        best = curve.find_maximum() if on.any() or off.any() else 0.0
        return math.copysign(math.sqrt(2 * max(curve.value_and_signal(best)[0], 0.0)), best)
    n, n_on_all = on + off, float(on.sum())
    if (ratio == ratio[:1]).all():
        return float(signed_significance(on.sum(), off.sum(), ratio[0])) if len(ratio) else 0.0
    expected = on if n_on_all == 0 or not off.any() else _expected_on(n_on_all, n, ratio)  # one class: observed
    squares = signed_significance(expected, n - expected, ratio) ** 2
    return math.copysign(math.sqrt(squares.sum()), n_on_all - float((n * ratio / (1 + ratio)).sum()))


def _as_measurements(n_on: ArrayLike, n_off: ArrayLike, alpha: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return validated counts and exposure ratios that broadcast."""
    on, off, ratio = checks.as_counts("n_on", n_on), checks.as_counts("n_off", n_off), checks.as_alpha(alpha)
    checks.check_broadcast(n_on=on, n_off=off, alpha=ratio)
    return on, off, ratio


def _expected_on(n_on: float, n: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return expected On events among n events each, with odds of alpha times the factor that reproduces n_on."""

    def expected(log_factor: float) -> FloatArray:
        return n / (1 + np.exp(-log_factor) / alpha)

    # the expected number increases with the factor, which is between those of each ratio alone
    needed = math.log(n_on / (n.sum() - n_on)) - np.log(alpha[n > 0])
    low, high = float(needed.min()) - 1e-3, float(needed.max()) + 1e-3
    return expected(brentq(lambda at: expected(at).sum() - n_on, low, high, xtol=1e-15, rtol=4 * _EPSILON))


def significance_of_cuts(n_on: NDArray[Any], n_off: NDArray[Any], alpha: float) -> FloatArray:
    """Compute one-sided significances of many counts in blocks, whose temporaries fit into the cache."""
    significance = np.empty(len(n_on))
    for start in range(0, len(n_on), _BLOCK):
        block = slice(start, start + _BLOCK)
        significance[block] = signed_significance(n_on[block], n_off[block], alpha)
    return np.maximum(significance, 0.0, out=significance)


def signed_significance(n_on: NDArray[Any], n_off: NDArray[Any], alpha: FloatArray | float) -> FloatArray:
    """Compute the signed significance of validated counts."""
    share_off = 1 / (1 + alpha)  # 1 - q
    share_on = alpha * share_off  # q
    n = n_on + n_off
    background = alpha * n_off
    excess = n_on - background
    # 1/49 has no exact binary representation, so exact balance may be missed by rounding
    excess = np.where(np.abs(excess) <= 2 * _EPSILON * background, 0.0, excess)
    difference = share_off * excess  # n_on - q n
    half_square = _deviance(n_on, share_on * n, difference) + _deviance(n_off, share_off * n, -difference)
    return np.copysign(np.sqrt(2 * half_square), difference)


def _profiled_significance(n_on: FloatArray, n_off: FloatArray, alpha: FloatArray, error: FloatArray) -> FloatArray:
    """Return the signed significance for an exposure ratio ``alpha x``, with normal x of mean 1."""
    # without a signal, the best x is a root of x (x - 1) (1 + alpha x) + error^2 (alpha n_off x - n_on), between 1
    # and the x of balance
    square = error**2
    with np.errstate(divide="ignore", invalid="ignore"):
        balance = np.where(n_off > 0, n_on / (alpha * n_off), np.inf)
    most = 0.5 + np.sqrt(0.25 + square * n_on)  # upper bound, reached without Off events
    low, high = np.minimum(balance, 1.0), np.maximum(np.minimum(balance, most), 1.0)
    x = np.ones_like(square)
    for _ in range(200):
        value = x * (x - 1) * (1 + alpha * x) + square * (alpha * n_off * x - n_on)
        slope = (2 * x - 1) * (1 + alpha * x) + alpha * x * (x - 1) + square * alpha * n_off
        low, high = np.where(value < 0, x, low), np.where(value > 0, x, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            stepped = x - value / slope
        stepped = np.where((stepped >= low) & (stepped <= high), stepped, 0.5 * (low + high))
        done = np.abs(stepped - x) <= 2 * _EPSILON * x
        x = np.where(value == 0, x, stepped)
        if (done | (value == 0)).all():
            break
    tiny = np.maximum(x, 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        pull = np.where(error > 0, (x - 1) / error, 0.0)
    return np.copysign(np.hypot(signed_significance(n_on, n_off, alpha * tiny), pull), n_on - alpha * n_off)


def _deviance(observed: NDArray[Any], expected: NDArray[Any], difference: NDArray[Any]) -> FloatArray:
    """Return ``observed ln(observed / expected) - difference``, without cancellation at small differences."""
    total = observed + expected
    with np.errstate(divide="ignore", invalid="ignore"):
        v = np.where(total > 0, difference / total, 0.0)
        ratio = observed / expected
    far = observed * np.log(np.where(ratio > 0, ratio, 1.0)) - difference
    v2 = v * v
    tail = np.zeros_like(v)
    for power in range(17, 1, -2):  # artanh(v) - v = v^3/3 + v^5/5 + ...
        tail = (tail + 1 / power) * v2
    near = total * (v2 + (1 + v) * v * tail)
    return np.where(np.abs(v) < _SERIES_BELOW, near, far)


@dataclass(frozen=True)
class OnOffCounts:
    """Counts of an On/Off measurement, and derived quantities.

    Parameters
    ----------
    n_on, n_off : int or float
        Numbers of (selected) On and Off events.
    alpha : float
        Exposure ratio On/Off.
    parts : tuple of tuple of float, default=()
        ``n_on``, ``n_off`` and ``alpha`` of stacked measurements with different exposure ratios; see `stack`.
    alpha_error : float or tuple of float, default=0.0
        Relative uncertainty of alpha: common to all parts, or independent for each.

    Examples
    --------
    >>> from excess import OnOffCounts
    >>> night = OnOffCounts(n_on=618, n_off=1108, alpha=0.2)
    >>> print(night)
    On 618, Off 1108, alpha 0.2: excess 396.4 +- 25.7, 19.2 sigma
    >>> night + OnOffCounts(n_on=20, n_off=25, alpha=0.25)
    OnOffCounts(n_on=638, n_off=1133, alpha=0.2011...)
    """

    n_on: float
    n_off: float
    alpha: float
    parts: tuple[tuple[float, float, float], ...] = field(default=(), repr=False)
    alpha_error: float | tuple[float, ...] = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        """Validate the counts and convert NumPy scalars to Python numbers, for a readable repr."""
        for name in ("n_on", "n_off"):
            number = checks.as_count(name, getattr(self, name))
            object.__setattr__(self, name, int(number) if number.is_integer() else number)
        object.__setattr__(self, "alpha", checks.as_scalar_alpha(self.alpha))
        object.__setattr__(self, "parts", tuple(tuple(map(float, part)) for part in self.parts))
        if isinstance(self.alpha_error, Sequence):
            object.__setattr__(self, "alpha_error", tuple(map(float, self.alpha_error)))

    @classmethod
    def stack(cls, parts: Iterable[tuple[float, float, float]], alpha_error: float | Sequence[float] = 0.0) -> Self:
        """Stack measurements, given as ``n_on``, ``n_off`` and ``alpha`` of each; the significance is the joint one.

        The common exposure ratio is the mean weighted by the Off events, or the largest if there are none. An
        ``alpha_error`` is common to all, or one per measurement.
        """
        given = list(parts)
        if not isinstance(alpha_error, Sequence):  # measurements with equal ratios are merged
            added: dict[float, tuple[float, float]] = {}
            for n_on, n_off, alpha in given:
                if n_on + n_off > 0:
                    before = added.get(float(alpha), (0, 0))
                    added[float(alpha)] = (before[0] + n_on, before[1] + n_off)
            if len(added) <= 1:
                [(alpha, counts)] = added.items() or [(max(alpha for _, _, alpha in given), (0, 0))]
                return cls(counts[0], counts[1], alpha, alpha_error=alpha_error)
            given = [(n_on, n_off, alpha) for alpha, (n_on, n_off) in sorted(added.items())]
        total_on, total_off = (math.fsum(part[column] for part in given) for column in (0, 1))
        background = math.fsum(n_off * alpha for _, n_off, alpha in given)
        mean = background / total_off if total_off > 0 else max(part[2] for part in given)
        return cls(total_on, total_off, mean, tuple(given), alpha_error)  # type: ignore[arg-type]

    @property
    def background(self) -> float:
        """Expected number of background events among the On events, ``alpha * n_off``."""
        return self.alpha * self.n_off

    @property
    def excess(self) -> float:
        """Estimated number of signal events, ``n_on - alpha * n_off``."""
        return self.n_on - self.background

    @property
    def excess_error(self) -> float:
        """Standard error of the excess, ``sqrt(n_on + alpha^2 n_off)`` (Li & Ma, formula 4), with that of alpha."""
        variance = self.n_on + math.fsum(alpha**2 * n_off for _, n_off, alpha in self._measured)
        if isinstance(self.alpha_error, tuple):
            errors = zip(self._measured, self.alpha_error, strict=True)
            return math.sqrt(variance + math.fsum((error * alpha * n) ** 2 for (_, n, alpha), error in errors))
        return math.sqrt(variance + (self.alpha_error * self.background) ** 2)

    @property
    def significance(self) -> float:
        """Signed Li & Ma significance in sigma: negative for a deficit; the joint one of stacked measurements."""
        error = self.alpha_error or None
        if self.parts:
            return joint_significance(*np.transpose(self.parts), alpha_error=error)
        return li_ma_significance(self.n_on, self.n_off, self.alpha, signed=True, alpha_error=error)

    @property
    def p_value(self) -> float:
        """One-sided p-value of the signed significance."""
        return float(ndtr(-self.significance))

    @property
    def _measured(self) -> tuple[tuple[float, float, float], ...]:
        """The parts, or the whole as a single one."""
        return self.parts or ((self.n_on, self.n_off, self.alpha),)

    def __add__(self, other: OnOffCounts) -> OnOffCounts:
        """Stack two measurements, as `OnOffCounts.stack` does."""
        if not isinstance(other, OnOffCounts):
            return NotImplemented
        measured, error = (*self._measured, *other._measured), self.alpha_error
        if error == other.alpha_error and not isinstance(error, tuple):
            return OnOffCounts.stack(measured, error)
        given = [(one.alpha_error, len(one._measured)) for one in (self, other)]
        errors = [e if isinstance(e, tuple) else (e,) * n for e, n in given]
        return OnOffCounts.stack(measured, errors[0] + errors[1])

    def __radd__(self, other: object) -> OnOffCounts:
        """Support ``sum(measurements)``, which starts from the number 0."""
        return self if other == 0 else NotImplemented

    def summary(self) -> dict[str, float]:
        """Return the results by name, for a table or a file."""
        return {name: getattr(self, name) for name in ("n_on", "n_off", "excess", "excess_error", "significance")}

    def texts(self) -> list[str]:
        """Return On, Off, excess and significance as text, for the cells of a table."""
        counts = [f"{round(number, 1):.10g}" for number in (self.n_on, self.n_off)]
        return [*counts, with_error(self.excess, self.excess_error, sign="±"), f"{self.significance:.1f} sigma"]

    def _repr_html_(self) -> str:
        """Return a table with one row, for notebooks."""
        columns = ("On", "Off", "alpha", "excess", "significance")
        on, *others = self.texts()
        return html_table(columns, [Row(on, [others[0], f"{self.alpha:.4g}", *others[1:]])])

    def __str__(self) -> str:
        """Return counts, excess and significance in one line."""
        on, off, excess, significance = self.texts()
        return f"On {on}, Off {off}, alpha {self.alpha:.4g}: excess {excess.replace('±', '+-')}, {significance}"


_NEGLIGIBLE = 1e-10  # weights below this fraction of the largest are omitted
_NEAR_MEAN = 1e-3  # signed root of the deviance below which the tail formula is 0 / 0, and its limit is used


class BestOf(NamedTuple):
    """Largest of several significances, with its p-value corrected for their number."""

    name: Any
    significance: float
    p_value: float
    n_trials: int


def best_of(significances: Mapping[Any, float] | ArrayLike) -> BestOf:
    """Compute the p-value of the largest of several significances, such as of several models, positions or seeds.

    Parameters
    ----------
    significances : mapping of name to float, or array-like of shape (n_trials,)
        Significances of all trials, in sigma; NaN is ignored.

    Returns
    -------
    BestOf
        Name, or index, of the largest one, its value, ``p_value`` and ``n_trials``.

    Notes
    -----
    The p-value, ``1 - (1 - p)^n`` (Sidak), is exact for independent trials, and conservative if they share events.

    Examples
    --------
    >>> from excess import best_of
    >>> best = best_of({"forest": 2.1, "tree": 2.6, "k-means": 0.4})
    >>> best.name, best.n_trials, round(best.p_value, 4)
    ('tree', 3, 0.0139)
    """
    given = significances if isinstance(significances, Mapping) else dict(enumerate(np.asarray(significances).tolist()))
    known = {name: float(value) for name, value in given.items() if not np.isnan(value)}
    if not known:
        raise ValueError("significances must contain at least one number")
    name = max(known, key=known.__getitem__)
    p_value = -float(np.expm1(len(known) * np.log1p(-ndtr(-known[name])))) if np.isfinite(known[name]) else 0.0
    return BestOf(name, known[name], p_value, len(known))


def holm(p_values: ArrayLike) -> FloatArray:
    """Correct p-values for their number, by Holm's step-down method."""
    p = checks.as_floats("p_values", np.asarray(p_values))
    order = np.argsort(p, kind="stable")
    stepped = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return stepped[np.argsort(order)]


def permutation_p_value(value: float, permuted: FloatArray) -> float:
    """Return the fraction of permutations, including the identity, with at least this value; NaN if undefined."""
    if len(permuted) == 0 or np.isnan(value):
        return float("nan")
    return (1 + int(np.count_nonzero(permuted >= value))) / (1 + len(permuted))


def difference_p_value(difference: FloatArray, covariance: FloatArray, exponent: float = 0.5) -> float:
    """Return the p-value of differences that are normal with mean 0 and this covariance."""
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
    """Return the probability that a weighted sum of chi-squared variables of one degree of freedom exceeds a value."""
    given = np.maximum(checks.as_floats("weights", weights), 0.0)
    largest = given.max()
    if value <= 0:
        return 1.0
    scaled = given[given > _NEGLIGIBLE * largest] / largest
    x = value / largest
    if scaled.min() == 1:
        return float(chi2.sf(x, len(scaled)))

    def slope(t: float) -> float:
        return float(np.sum(scaled / (1 - 2 * t * scaled)))

    # the slope of the cumulant function increases with t up to 1/2; bounds from all terms, and from the largest
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
        return 0.5 - float(np.sum(8 * scaled**3)) / (6 * np.sqrt(2 * np.pi) * curvature**1.5)
    return float(ndtr(-(root + np.log(t * np.sqrt(curvature) / root) / root)))


ONE_SIGMA = 0.6827  # probability within one standard deviation of a normal distribution


class EventFraction(NamedTuple):
    """Ratio of selected to all events, with an interval."""

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
    n_selected: ArrayLike, n_events: ArrayLike, *, n_effective: ArrayLike | None = None, confidence: float = ONE_SIGMA
) -> EventFraction:
    """Return fractions of events with the interval of Wilson (1927)."""
    selected, total = checks.as_counts("n_selected", n_selected), checks.as_counts("n_events", n_events)
    n = total if n_effective is None else checks.as_counts("n_effective", n_effective)
    z = norm.isf((1 - checks.as_probability("confidence", confidence)) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(total > 0, selected / total, np.nan)
        shrink = 1 / (1 + z**2 / n)
        centre = shrink * (p + z**2 / (2 * n))
        half = shrink * z * np.sqrt(np.maximum(p * (1 - p), 0) / n + (z / (2 * n)) ** 2)
    # rounding must not move the limits beyond 0 and 1, or the fraction outside its interval
    low, high = np.minimum(np.clip(centre - half, 0, 1), p), np.maximum(np.clip(centre + half, 0, 1), p)
    return EventFraction(checks.as_result(p), checks.as_result(low), checks.as_result(high))
