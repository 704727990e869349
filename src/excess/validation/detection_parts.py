"""Parts of a detection: one model of a cross-validation, the trust in references, and the events around the regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from excess._core.checks import BoolArray, FloatArray
from excess.stats.counts import OnOffCounts

if TYPE_CHECKING:
    from excess.estimators.score_bins import TunedBin

__all__ = ["Fold", "Nearby", "TrustRange", "range_trust"]


class Fold(NamedTuple):
    """One model of a cross-validation: what it was tuned on, and how it did on events that it had not seen.

    Attributes
    ----------
    n_train : int
        Events that the model was trained and tuned on.
    n_held_out : int
        Hold-out events that it predicted.
    threshold : float
        An event is selected when its score exceeds it; NaN for a classifier without a tuned threshold.
    tuned : OnOffCounts or None
        Selected events among those that the threshold was tuned on. Not a result to quote.
    held_out : OnOffCounts
        Selected hold-out events.
    likelihood_significance : float
        Signed significance of its hold-out events by the On/Off likelihood; NaN if the model has no signal ratio.
    trust : mapping of str to float or None
        How far it trusts each of its members, by name; None for a model without references.
    bins : tuple of TunedBin
        Threshold of each bin, and which bins it was tuned on; empty for a model without bins.
    """

    n_train: int
    n_held_out: int
    threshold: float
    tuned: OnOffCounts | None
    held_out: OnOffCounts
    likelihood_significance: float = float("nan")
    trust: Mapping[str, float] | None = None
    bins: tuple[TunedBin, ...] = ()


class TrustRange(NamedTuple):
    """How far the models of a cross-validation trust a reference, or what they learned themselves.

    Attributes
    ----------
    mean : float
        Mean over the folds.
    low, high : float
        The smallest and the largest of the folds.
    """

    mean: float
    low: float
    high: float


def range_trust(folds: Sequence[Fold]) -> dict[str, TrustRange]:
    """Return how far the models of folds trust each reference, by its name; empty where they have none."""
    known = [fold.trust for fold in folds if fold.trust is not None]
    values = {name: [trust[name] for trust in known] for name in (known[0] if known else ())}
    return {name: TrustRange(float(np.mean(own)), min(own), max(own)) for name, own in values.items()}


class Nearby(NamedTuple):
    """Events that are neither On nor Off, predicted by models that have not seen their group.

    Attributes
    ----------
    score : ndarray of shape (n_nearby,)
        Scores; NaN for events that no model has scored.
    selected : ndarray of bool of shape (n_nearby,)
        Selected events.
    theta : ndarray of shape (n_nearby, n_regions) or None
        Angle between each event and the centre of each region in deg, On first.
    """

    score: FloatArray
    selected: BoolArray
    theta: FloatArray | None = None
