r"""Exposure ratio of intervals from a fit to their sidebands, and global p-values of scans.

The background density along a column is :math:`\exp(\sum_k c_k P_k(u))` with Legendre polynomials of the scaled
column, fitted to the values in the Off intervals without bins. The likelihood of such a density is concave.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import chdtrc, log_ndtr, ndtri_exp

from excess._utils import checks
from excess._utils.checks import FloatArray
from excess._utils.errors import ArgumentError

Intervals = Sequence[tuple[float, float]]
MAX_DEGREE = 5
_N_NODES = 64  # of the quadrature in each interval
_LEVEL = 0.05  # p-value of the likelihood ratio below which further terms are added
_PER_TERM = 20  # minimum number of events per coefficient
_PER_BIN, _MOST_BINS, _MIN_GOODNESS = 20, 50, 0.001  # of the goodness-of-fit test
_MAX_ERROR = 0.5  # maximum relative error of the exposure ratio
_NODES, _WEIGHTS = legendre.leggauss(_N_NODES)


@dataclass(frozen=True, eq=False)
class SidebandFit:
    """Smooth background density fitted to Off intervals.

    Attributes
    ----------
    alpha, alpha_error : float
        Integral over the On intervals relative to that over the Off intervals, and its relative error.
    degree, goodness : int and float
        Degree of the polynomial in the logarithm of the density, and p-value of the fit in the Off intervals.
    shares : ndarray
        Integral over each Off interval, relative to that over all On intervals.
    coefficients, span : ndarray and tuple of float
        Coefficients of the Legendre polynomials from degree 1, and the values of the column mapped to -1 and 1.
    """

    alpha: float
    alpha_error: float
    degree: int
    goodness: float
    shares: FloatArray
    coefficients: FloatArray
    span: tuple[float, float]

    def sample(self, n: int, low: float, high: float, rng: np.random.Generator) -> FloatArray:
        """Draw random values between two limits from the density."""
        grid = np.linspace(low, high, 2001)
        density = np.exp(_basis(grid, self.span, self.degree) @ self.coefficients)
        cumulative = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2))
        return np.interp(rng.random(n), cumulative / cumulative[-1], grid)


def fit_sidebands(
    values: ArrayLike, on: Intervals, off: Intervals, *, max_degree: int = MAX_DEGREE, check: bool = True
) -> SidebandFit:
    """Fit a smooth background density to Off intervals, for the exposure ratio of On intervals.

    Parameters
    ----------
    values : array-like of shape (n_events,)
        Values of a column, such as a mass; values outside the Off intervals are ignored.
    on, off : sequence of pairs of float
        Lower and upper ends of the intervals.
    max_degree : int, default=5
        Maximum degree of the polynomial in the logarithm of the density; the degree is selected by likelihood ratios.
    check : bool, default=True
        Raise an error if the fit does not describe the Off intervals.

    Returns
    -------
    SidebandFit
        Exposure ratio with its relative error, and the density.

    Raises
    ------
    ValueError
        If an Off interval has no events, or the p-value of the fit is below 0.001.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import fit_sidebands
    >>> mass = np.random.default_rng(0).exponential(size=20_000)
    >>> fit = fit_sidebands(mass, on=[(1.0, 1.5)], off=[(0.5, 1.0), (1.5, 2.0)])
    >>> true = (np.exp(-1) - np.exp(-1.5)) / (np.exp(-0.5) - np.exp(-1) + np.exp(-1.5) - np.exp(-2))
    >>> fit.degree, bool(abs(fit.alpha / true - 1) < 2 * fit.alpha_error)
    (1, True)
    """
    x = checks.as_floats("values", np.asarray(values, dtype=np.float64))
    inside = [(x >= low) & (x < high) for low, high in off]
    for (low, high), own in zip(off, inside, strict=True):
        if not own.any():
            raise ArgumentError("off", f"has no events between {low:g} and {high:g}, which the fit requires")
    x = x[np.any(inside, axis=0)]
    ends = np.array([*on, *off], dtype=np.float64)
    span = float(ends.min()), float(ends.max())
    nodes = [_quadrature(intervals) for intervals in (on, off)]
    degree, tried, most = 1, {}, int(np.clip(len(x) // _PER_TERM, 1, max_degree))
    while True:
        for more in range(3):
            if degree + more <= most and degree + more not in tried:
                tried[degree + more] = _maximise(x, nodes[1], span, degree + more)
        gains = {more: tried[degree + more][1] - tried[degree][1] for more in (1, 2) if degree + more in tried}
        chosen = next((more for more, gain in gains.items() if chdtrc(more, 2 * max(gain, 0.0)) < _LEVEL), None)
        if chosen is None:
            break
        degree += chosen
    coefficients = tried[degree][0]
    density = [np.exp(_basis(at, span, degree) @ coefficients) * weight for at, weight in nodes]
    alpha = float(density[0].sum() / density[1].sum())
    # the next term, neither required nor excluded, contributes to the error by its weight in Akaike's criterion
    variances, weights = [], []
    for known in range(degree, min(degree + 1, most) + 1):
        other, variance = _ratio(nodes, span, tried[known][0], len(x))
        variances.append(variance + (np.log(other / alpha)) ** 2)
        weights.append(np.exp(tried[known][1] - known - tried[degree][1] + degree))
    goodness, error = _goodness(x, off, span, coefficients), float(np.sqrt(np.average(variances, weights=weights)))
    if check and goodness < _MIN_GOODNESS:
        what = f"is not described by a smooth density (p = {goodness:.1g} for a polynomial of degree {degree})"
        raise ArgumentError("off", f"{what}; choose narrower intervals without peaks or edges, or specify alpha")
    if check and not error < _MAX_ERROR:
        what = f"does not determine alpha by a fit, whose relative error is {error:.2g}"
        raise ArgumentError("off", f"{what}; choose wider intervals on both sides of On, or specify alpha")
    shares = density[1].reshape(len(off), -1).sum(axis=1) / density[0].sum()
    return SidebandFit(alpha, error, degree, goodness, shares, coefficients, span)


def _basis(x: FloatArray, span: tuple[float, float], degree: int) -> FloatArray:
    """Return Legendre polynomials of degree 1 and higher, one per column of the result."""
    scaled = (2 * x - span[0] - span[1]) / (span[1] - span[0])
    return np.asarray(legendre.legvander(scaled, degree)[:, 1:])


def _quadrature(intervals: Intervals) -> tuple[FloatArray, FloatArray]:
    """Return quadrature nodes in intervals, and their weights."""
    half = [(high - low) / 2 for low, high in intervals]
    at = [low + width * (1 + _NODES) for width, (low, _) in zip(half, intervals, strict=True)]
    return np.concatenate(at), np.concatenate([width * _WEIGHTS for width in half])


def _covariance(basis: FloatArray, density: FloatArray) -> FloatArray:
    mean = density @ basis / density.sum()
    return np.asarray((basis - mean).T @ ((basis - mean) * (density / density.sum())[:, np.newaxis]))


def _ratio(
    nodes: Sequence[tuple[FloatArray, FloatArray]], span: tuple[float, float], c: FloatArray, n_events: int
) -> tuple[float, float]:
    """Return the integral over On relative to that over Off, and the variance of its logarithm."""
    basis = [_basis(at, span, len(c)) for at, _ in nodes]
    density = [np.exp(own @ c) * weight for own, (_, weight) in zip(basis, nodes, strict=True)]
    means = [one @ own / one.sum() for one, own in zip(density, basis, strict=True)]
    slope = means[0] - means[1]
    variance = slope @ np.linalg.lstsq(n_events * _covariance(basis[1], density[1]), slope, rcond=None)[0]
    return float(density[0].sum() / density[1].sum()), float(variance)


def _maximise(
    x: FloatArray, nodes: tuple[FloatArray, FloatArray], span: tuple[float, float], degree: int
) -> tuple[FloatArray, float]:
    """Return the maximum-likelihood coefficients and the log-likelihood, by Newton's method."""
    wanted = _basis(x, span, degree).mean(axis=0)
    basis, weight = _basis(nodes[0], span, degree), nodes[1]

    def log_likelihood(c: FloatArray) -> float:
        exponent = basis @ c
        top = exponent.max()
        return float(len(x) * (wanted @ c - top - np.log(weight @ np.exp(exponent - top))))

    c = np.zeros(degree)
    best = log_likelihood(c)
    for _ in range(100):
        exponent = basis @ c
        density = weight * np.exp(exponent - exponent.max())
        slope = wanted - density @ basis / density.sum()
        step = np.linalg.lstsq(_covariance(basis, density), slope, rcond=None)[0]
        while (found := log_likelihood(c + step)) < best - 1e-9 and np.abs(step).max() > 1e-12:
            step = step / 2
        c, gain, best = c + step, found - best, found
        if abs(gain) < 1e-9 and np.abs(step).max() < 1e-6:
            break
    return c, best


def _goodness(x: FloatArray, off: Intervals, span: tuple[float, float], coefficients: FloatArray) -> float:
    """Return the p-value of chi-squared in bins of equal expectation in the Off intervals."""
    n_bins = min(len(x) // _PER_BIN, _MOST_BINS)
    freedom = n_bins - 1 - len(coefficients)
    if freedom < 1:
        return 1.0
    place, begin = np.empty(len(x)), 0.0
    for low, high in off:
        own, grid = (x >= low) & (x < high), np.linspace(low, high, 1001)
        density = np.exp(_basis(grid, span, len(coefficients)) @ coefficients)
        steps = np.append(0.0, np.cumsum((density[1:] + density[:-1]) * (high - low) / 2000))
        place[own] = begin + np.interp(x[own], grid, steps)
        begin += steps[-1]
    counts = np.bincount(np.minimum(place / begin * n_bins, n_bins - 1).astype(int), minlength=n_bins)
    return float(chdtrc(freedom, ((counts - len(x) / n_bins) ** 2).sum() / (len(x) / n_bins)))


UPCROSSING_LEVEL = 0.0
_MIN_EXCEEDING = 10  # minimum number of toys beyond the observed value to use their fraction directly


@dataclass(frozen=True)
class GlobalSignificance:
    """Largest of several local significances, with its global p-value by toys and by upcrossings.

    The p-value is the fraction of toys beyond the value if there are at least ten, else that of upcrossings (Gross and
    Vitells 2010, Eur. Phys. J. C 70, 525) or, for unordered positions, of the effective number of positions.
    """

    local: float
    p_value: float
    toys: float
    upcrossings: float
    log_p_value: float

    @property
    def significance(self) -> float:
        """Global significance in sigma."""
        return float(-ndtri_exp(min(self.log_p_value, -1e-300)))

    @property
    def trials(self) -> float:
        """Trials factor: global over local p-value."""
        return float(np.exp(self.log_p_value - log_ndtr(-self.local)))


def correct_for_trials(local: float, n_trials: float) -> float:
    """Return the significance of the maximum of independent local ones, in sigma."""
    log_p = log_ndtr(-local) + np.log(n_trials) if local > 5 else np.log(-np.expm1(n_trials * log_ndtr(local)))
    return float(-ndtri_exp(min(log_p, -1e-300)))


def global_significance(local: FloatArray, toys: FloatArray, *, ordered: bool = True) -> GlobalSignificance:
    """Correct the largest local significance for all positions, by toys of the whole scan, one per row."""
    best, largest = float(np.nanmax(local)), np.nanmax(toys, axis=1)
    n_beyond = int(np.count_nonzero(largest >= best))
    share = (1 + n_beyond) / (1 + len(largest))
    if ordered:
        known = np.nan_to_num(toys, nan=-np.inf)
        crossed = np.count_nonzero((known[:, :-1] < UPCROSSING_LEVEL) & (known[:, 1:] >= UPCROSSING_LEVEL), axis=1)
        rate = max(float(crossed.mean()), 1 / len(toys))

        def log_p_of(value: float) -> float:
            more = np.log(rate) - (max(value, 0.0) ** 2 - UPCROSSING_LEVEL**2) / 2
            return float(min(np.logaddexp(log_ndtr(-value), more), 0.0))

        # toys of a density that varies over the width of On exceed the normal distribution; scale by their median
        usual = brentq(lambda value: log_p_of(value) - np.log(0.5), 0.0, 10.0)
        log_extrapolated = log_p_of(best - max(float(np.median(largest)) - usual, 0.0))
    else:  # number of independent positions that reproduces the median of the toys
        n_positions = max(-np.log(2) / log_ndtr(float(np.median(largest))), 1.0)
        log_extrapolated = float(log_ndtr(-correct_for_trials(best, n_positions)))
    log_p = float(np.log(share)) if n_beyond >= _MIN_EXCEEDING else log_extrapolated
    return GlobalSignificance(best, float(np.exp(log_p)), share, float(np.exp(log_extrapolated)), log_p)
