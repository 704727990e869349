r"""The point spread function, fitted to On and Off events.

Let theta be the angle between an event and the centre of its own region. Without a source it has the same distribution
in all regions, so it may enter the likelihood ratio: background is flat in :math:`\theta^2`. Gaussian and King
functions of several widths, and widths that decrease with energy, are averaged with weights proportional to their
On/Off likelihood times a prior centred on the width for which the cut on :math:`\theta^2` is optimal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from excess._utils.checks import BoolArray, FloatArray
from excess.stats._kernels import average_profiles, profile_gains

_BEST_CUT = 1.585  # radius, in units of the width, of the optimal cut on a Gaussian over flat background
_WIDTHS = np.geomspace(0.3, 4.0, 21)  # in units of the width for which the cut is optimal
_PRIOR_SPREAD = 0.5  # standard deviation of the prior of the logarithm of the width
_INDICES = (math.inf, 3.0, 1.8)  # of King functions; infinite for a Gaussian
_SLOPES = (0.0, 0.25, 0.5)  # powers of energy with which the width decreases
_LARGEST_COVARIATE = 2.0  # logarithm of energy relative to the median beyond which the width is constant
_SMALLEST_RATIO = 0.5  # events with smaller likelihood ratios barely constrain the profile
_MIN_WEIGHT = 1e-3  # profiles with smaller weights are dropped


class Direction(NamedTuple):
    """Angles of events to the centre of their own region, for the likelihood ratio of `cross_val_detect`.

    Parameters
    ----------
    theta : ndarray of shape (n_events,)
        Angle between each event and the centre of its own region, On or Off, in deg.
    cut : float
        Cut on theta^2 in deg^2, inside which events are used for training and counted.
    covariate : ndarray of shape (n_events,) or None, default=None
        Logarithm of energy, or of another quantity with which the point spread function may become narrower.
    training : bool, default=True
        Whether forests are also trained on events beyond the cut if that improves them.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import Direction
    >>> Direction(np.array([0.05, 0.2]), cut=0.025).core
    array([ True, False])
    """

    theta: FloatArray
    cut: float
    covariate: FloatArray | None = None
    training: bool = True

    @property
    def core(self) -> BoolArray:
        """True for events inside the cut."""
        return self.theta**2 < self.cut

    def take(self, rows: Any) -> Direction:
        """Return the directions of a subset of the events."""
        covariate = None if self.covariate is None else self.covariate[rows]
        return Direction(self.theta[rows], self.cut, covariate, self.training)

    def fit(self, on: BoolArray, ratio: FloatArray, alpha: FloatArray | float) -> PointSpread:
        """Fit the point spread function to these events, given their labels and likelihood ratios."""
        return PointSpread.fit(on, self.theta, ratio, alpha, self.cut, self.covariate)

    def ratio(self, spread: PointSpread) -> FloatArray:
        """Return the likelihood ratios of these events for a point spread function."""
        return spread.ratio(self.theta, self.covariate)


@dataclass(frozen=True, eq=False)
class PointSpread:
    """Average of profiles, as a likelihood ratio relative to a flat background."""

    width: FloatArray  # of each profile in deg, at the median covariate
    index: FloatArray
    slope: FloatArray
    weight: FloatArray
    cut: float  # on theta^2, in deg^2
    pivot: float = 0.0  # median of the covariate
    n_events: int = 0  # used to fit the profile

    @classmethod
    def fit(
        cls, on: BoolArray, theta: FloatArray, ratio: FloatArray, alpha: Any, cut: float, covariate: Any = None
    ) -> PointSpread:
        """Fit the profile to events with likelihood ratios from models trained on other events."""
        known, pivot = ratio >= _SMALLEST_RATIO, 0.0
        if covariate is not None:
            known &= np.isfinite(covariate)
            pivot = float(np.median(covariate[known])) if known.any() else 0.0
        width, index, slope, prior = _grid(cut, with_slope=covariate is not None)
        offset = np.zeros(np.count_nonzero(known)) if covariate is None else _clip(covariate[known] - pivot)
        alphas = np.broadcast_to(np.asarray(alpha, dtype=np.float64), on.shape)[known]
        gain = profile_gains(on[known], theta[known] ** 2, ratio[known] * cut, alphas, offset, width, index, slope)
        weight = prior * np.exp(gain - gain.max())
        weight /= weight.sum()
        kept = weight >= _MIN_WEIGHT * weight.max()
        weight = weight[kept] / weight[kept].sum()
        return cls(width[kept], index[kept], slope[kept], weight, cut, pivot, int(np.count_nonzero(known)))

    @classmethod
    def expected(cls, cut: float) -> PointSpread:
        """Return the average profile of the prior, for events before the first model."""
        width, index, slope, prior = _grid(cut, with_slope=False)
        return cls(width, index, slope, prior, cut)

    @classmethod
    def average(cls, parts: Sequence[PointSpread]) -> PointSpread | None:
        """Return the mean of the profiles of several models; None without any."""
        if not parts:
            return None
        joined = [np.concatenate([getattr(part, name) for part in parts]) for name in ("width", "index", "slope")]
        weight = np.concatenate([part.weight for part in parts]) / len(parts)
        keys, number = np.unique(np.column_stack(joined), axis=0, return_inverse=True)
        pivot, n_events = np.mean([part.pivot for part in parts]), max(part.n_events for part in parts)
        width, index, slope = keys.T
        shares = np.asarray(np.bincount(number.ravel(), weight), dtype=np.float64)
        return cls(width, index, slope, shares, parts[0].cut, float(pivot), n_events)

    def ratio(self, theta: FloatArray, covariate: FloatArray | None = None) -> FloatArray:
        """Return the density of signal over that of a flat background whose integral over the cut is 1."""
        offset = np.zeros(len(theta)) if covariate is None else _clip(np.nan_to_num(covariate - self.pivot))
        return self.cut * average_profiles(theta**2, offset, self.width, self.index, self.slope, self.weight)

    @property
    def radius(self) -> tuple[float, float]:
        """Radius in deg that contains 68 % of the signal, and its standard error."""
        steep = np.isinf(self.index)
        finite = np.where(steep, 2.0, self.index)
        king = finite * (0.32 ** (1 / (1 - finite)) - 1)
        radius = self.width * np.sqrt(2 * np.where(steep, -math.log(0.32), king))
        mean = float(self.weight @ radius)
        return mean, math.sqrt(max(float(self.weight @ radius**2) - mean**2, 0.0))

    @property
    def numbers(self) -> dict[str, Any]:
        """Return all numbers as JSON, with the radius; inverse of `from_dict`. The index of a Gaussian is 0 there."""
        radius, error = self.radius
        arrays = {name: getattr(self, name).tolist() for name in ("width", "slope", "weight")}
        index = np.where(np.isinf(self.index), 0.0, self.index).tolist()
        numbers = {name: getattr(self, name) for name in ("cut", "pivot", "n_events")}
        return {"radius": radius, "radius_error": error, **arrays, "index": index, **numbers}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> PointSpread:
        """Create a point spread function from its `numbers`."""
        arrays = {name: np.array(given[name], dtype=np.float64) for name in ("width", "index", "slope", "weight")}
        arrays["index"][arrays["index"] == 0] = np.inf
        return cls(**arrays, cut=given["cut"], pivot=given["pivot"], n_events=given["n_events"])


def _clip(offset: FloatArray) -> FloatArray:
    return np.clip(offset, -_LARGEST_COVARIATE, _LARGEST_COVARIATE)


def _grid(cut: float, *, with_slope: bool) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return width, King index, slope and prior probability of all profiles."""
    slopes = _SLOPES if with_slope else _SLOPES[:1]
    relative, index, slope = (one.ravel() for one in np.meshgrid(_WIDTHS, _INDICES, slopes, indexing="ij"))
    prior = np.exp(-0.5 * (np.log(relative) / _PRIOR_SPREAD) ** 2)
    return relative * math.sqrt(cut) / _BEST_CUT, index, slope, prior / prior.sum()
