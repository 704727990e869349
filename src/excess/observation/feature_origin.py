"""A test on the data for features that tell where an event is, whatever their names.

Two questions, for each feature alone. Can it tell Off regions from each other? No source is in any of them. And does it
tell On from Off by more than a source can? A source adds On events; it takes none away anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from excess._core.checks import FloatArray
from excess._core.errors import EventFileError

__all__ = ["FeatureOrigin", "check_origin", "find_origin"]

_MAX_EVENTS = 100_000
"""Events that are looked at; more would only find smaller differences, which are no matter of positions."""
_N_BINS = 20
_MIN_PER_BIN = 20
_N_SCALINGS = 30
_MAX_P_VALUE = 1e-9
"""Chance of a feature to differ by so much, below which it is refused; divided by the number of features."""
_MAX_ASSOCIATION = 0.1
"""Cramer's V between a feature and the Off region, corrected for chance, from which a feature is refused."""
_MAX_MISSING = 0.2
"""Share of the expected background that may be missing among On events where a feature has certain values.

Off observations of another night differ by a few per cent from On in features that follow the gain or the zenith angle;
they get a warning.
"""
_WARNING = 0.03
"""Association, or share of the background, from which there is a warning."""

logger = logging.getLogger("excess.observation")


@dataclass(frozen=True)
class FeatureOrigin:
    """How well a feature alone tells where an event is.

    Attributes
    ----------
    association : float
        Cramer's V between the feature and the Off region, from 0 to 1, corrected for chance; 0 with one Off region.
    association_p_value : float
        Chance of it where Off regions are alike.
    missing : float
        Share of the expected background that is missing among On events, in the range of the feature with a deficit.
    missing_p_value : float
        Chance of the deficits where On has all events that Off has, and those of a source.
    """

    association: float
    association_p_value: float
    missing: float
    missing_p_value: float


def find_origin(
    feature: FloatArray,
    region: NDArray[np.int64],
    alpha: FloatArray | float,
    n_regions: int,
    exposure: FloatArray | None = None,
) -> FeatureOrigin:
    """Test one feature of On and Off events.

    Parameters
    ----------
    feature : ndarray of shape (n_events,)
        Its values.
    region : ndarray of shape (n_events,)
        0 is On, 1 to ``n_regions - 1`` are Off.
    alpha : float or ndarray of shape (n_events,)
        Exposure ratio On/Off.
    n_regions : int
        Number of regions, On included.
    exposure : ndarray of shape (n_events, n_regions - 1) or None, default=None
        Exposure of each Off region for the pointing of each event, where it differs; else features that differ between
        pointings would seem to tell regions apart.

    Returns
    -------
    FeatureOrigin
        What was found.
    """
    off = region > 0
    n_bins = int(np.clip(np.count_nonzero(off) // (_MIN_PER_BIN * max(n_regions - 1, 1)), 2, _N_BINS))
    # quantiles of values that are there, so that a value that many events share is an edge once
    edges = np.unique(np.quantile(feature, np.arange(1, n_bins) / n_bins, method="higher"))
    number = np.searchsorted(edges, feature, side="right")
    n_bins = len(edges) + 1
    table = np.bincount(number * n_regions + region, minlength=n_bins * n_regions).reshape(n_bins, n_regions)
    ratio = np.broadcast_to(alpha, len(feature))[off]
    expected, variance = (np.bincount(number[off], weights, n_bins).astype(np.float64) for weights in (ratio, ratio**2))
    return FeatureOrigin(
        *_associate(table[:, 1:], _share(number, n_bins, off, exposure)),
        *_find_missing(table[:, 0], expected, variance),
    )


def _share(
    number: NDArray[np.intp], n_bins: int, off: NDArray[np.bool_], exposure: FloatArray | None
) -> FloatArray | None:
    """Return how Off events of each bin would be shared among regions by their exposure; None for equal shares."""
    if exposure is None:
        return None
    share = exposure[off] / exposure[off].sum(axis=1, keepdims=True)
    return np.stack([np.bincount(number[off], own, n_bins) for own in share.T], axis=1)


def _associate(table: NDArray[np.int64], share: FloatArray | None) -> tuple[float, float]:
    """Return Cramer's V of a table of counts, corrected for chance, and the p-value of its chi-squared.

    With shares, what is expected is the table nearest to them that has the sums of the counts.
    """
    columns, rows = table.any(axis=0), table.any(axis=1)
    table = table[rows][:, columns]
    if min(table.shape) < 2:
        return 0.0, 1.0
    n = table.sum()
    if share is None:
        expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    else:
        expected = _fit_sums(share[rows][:, columns], table)
    known = expected > 0
    chi_squared = float(np.sum((table - expected)[known] ** 2 / expected[known]))
    freedom = max(int(np.count_nonzero(known)) - sum(table.shape) + 1, 1)
    above = max(chi_squared - freedom, 0.0)
    return float(np.sqrt(above / n / (min(table.shape) - 1))), float(chdtrc(freedom, chi_squared))


def _fit_sums(expected: FloatArray, table: NDArray[np.int64]) -> FloatArray:
    """Scale rows and columns of a table in turn until it has the sums of another."""
    for _ in range(_N_SCALINGS):
        for axis in (0, 1):
            expected = expected * (table.sum(axis=axis, keepdims=True) / expected.sum(axis=axis, keepdims=True))
    return expected


def _find_missing(n_on: NDArray[np.int64], expected: FloatArray, variance: FloatArray) -> tuple[float, float]:
    """Return which share of the expected background On does not have, in the bins with a deficit, and its p-value.

    Where On has fewer events than expected in all, alpha may be wrong, which is no matter of the feature: then the
    background is scaled to the number of On events.
    """
    if n_on.sum() == 0 or expected.sum() == 0:
        return 0.0, 1.0
    scale = min(1.0, float(n_on.sum() / expected.sum()))
    deficit = np.maximum(scale * expected - n_on, 0.0)
    # with the variance under the hypothesis, for a bin may have no On events
    spread = np.maximum(scale * expected + scale**2 * variance, 1.0)
    chi_squared = float(np.sum(deficit**2 / spread))
    missing = max(float(deficit.sum()) - float(np.sum(np.sqrt(spread)) / np.sqrt(2 * np.pi)), 0.0)
    # at most as unlikely as a sum over all bins; exact enough for 1e-9
    return missing / (scale * float(expected.sum())), float(chdtrc(len(n_on), chi_squared))


def check_origin(
    X: FloatArray,
    region: NDArray[np.int64],
    alpha: FloatArray | float,
    n_regions: int,
    names: Sequence[str],
    where: str = "",
    exposure: FloatArray | None = None,
) -> None:
    """Raise EventFileError where a feature alone tells where an event is; see `find_origin`.

    Small but certain differences are a warning of the logger. The messages begin with ``where``.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.observation.feature_origin import check_origin
    >>> region = np.arange(6000) % 6
    >>> angle = region + np.random.default_rng(0).normal(size=6000)
    >>> check_origin(angle[:, np.newaxis], region, 0.2, 6, ["angle"])
    Traceback (most recent call last):
        ...
    excess._core.errors.EventFileError: feature 'angle' tells Off regions from each other (Cramer's V 0.50, ...
    """
    step = max(1, -(-len(X) // _MAX_EVENTS))
    own_alpha = alpha[::step] if isinstance(alpha, np.ndarray) else alpha
    own_exposure = None if exposure is None else exposure[::step]
    limit = _MAX_P_VALUE / len(names)
    advice = (
        "so a model would learn the regions and not the source; remove it, or insist with allow_origin_features: true"
    )
    for name, feature in zip(names, X[::step].T, strict=True):
        found = find_origin(np.ascontiguousarray(feature), region[::step], own_alpha, n_regions, own_exposure)
        apart = (
            f"feature {name!r} tells Off regions from each other (Cramer's V {found.association:.2f}, p "
            f"{found.association_p_value:.0e}), where no source is"
        )
        lacking = (
            f"feature {name!r} tells On from Off by more than a source could: {100 * found.missing:.0f} % of the "
            f"background that Off predicts is missing in On where the feature has certain values (p "
            f"{found.missing_p_value:.0e}), and a source takes no events away"
        )
        for text, effect, p_value, largest in (
            (apart, found.association, found.association_p_value, _MAX_ASSOCIATION),
            (lacking, found.missing, found.missing_p_value, _MAX_MISSING),
        ):
            if p_value < limit and effect > largest:
                raise EventFileError(f"{where}{text}, {advice}")
            if p_value < limit and effect > _WARNING:
                logger.warning(f"{where}{text}; part of the significance may come from that")
