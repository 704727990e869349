"""Histograms of features: On against scaled Off before and after the selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray, as_floats
from excess.validation.feature_edges import choose_edges

__all__ = ["FeatureBinning", "FeatureHistogram", "OnOffBins"]

MAX_FEATURES = 200
"""Largest number of features whose histograms are kept; of more, those with the largest importance."""
_N_BINS = 30
_TAIL = 0.002
"""Share of events on either side that may be beyond the drawn range."""


class OnOffBins(NamedTuple):
    """On and scaled Off in each bin.

    Attributes
    ----------
    n_on : ndarray of int64 of shape (n_bins,)
        On events.
    background, background_error : ndarray of shape (n_bins,)
        Off events times alpha, each with its own where it differs, and the standard error of this sum.
    """

    n_on: NDArray[np.int64]
    background: FloatArray
    background_error: FloatArray


@dataclass(frozen=True, eq=False)
class FeatureHistogram:
    """One feature of hold-out events, On against scaled Off.

    Attributes
    ----------
    feature : str
        Its name.
    edges : ndarray of shape (n_bins + 1,)
        Bins; the first and the last one also hold what is beyond.
    logarithmic : bool
        Whether the bins have equal widths on a logarithmic axis.
    before, after : OnOffBins
        All hold-out events, and the selected ones among them. Events without a value (NaN) are in no bin.
    """

    feature: str
    edges: FloatArray
    logarithmic: bool
    before: OnOffBins
    after: OnOffBins

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes, as JSON has it; numbers are rounded to what can be seen."""
        return {
            "feature": self.feature,
            "edges": [float(f"{edge:.7g}") for edge in self.edges.tolist()],
            "logarithmic": self.logarithmic,
            **{
                stage: {
                    "n_on": bins.n_on.tolist(),
                    "background": bins.background.round(3).tolist(),
                    "background_error": bins.background_error.round(3).tolist(),
                }
                for stage, bins in (("before", self.before), ("after", self.after))
            },
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> FeatureHistogram:
        """Return the histogram of which ``to_dict`` was written."""
        edges = np.array(given["edges"], dtype=np.float64)
        stages = []
        for stage in ("before", "after"):
            own = given[stage]
            n_on = np.array(own["n_on"], dtype=np.int64)
            background, error = (np.array(own[name], dtype=np.float64) for name in ("background", "background_error"))
            if not len(n_on) == len(background) == len(error) == len(edges) - 1:
                raise ValueError(f"the histogram of {given['feature']!r} has other numbers of bins than its edges say")
            stages.append(OnOffBins(n_on, background, error))
        return cls(str(given["feature"]), edges, bool(given["logarithmic"]), *stages)


class FeatureBinning:
    """The bin of every event in every feature, found once for the histograms of several models.

    Parameters
    ----------
    X : array-like of shape (n_events, n_features)
        Features.
    names : sequence of str
        Their names.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.validation.feature_histograms import FeatureBinning
    >>> on, width = np.array([True, True, False, False]), np.array([[1.0], [2.0], [2.0], [3.0]])
    >>> found = FeatureBinning(width, ["width"]).histograms(on, on | True, on, 0.5)[0]
    >>> found.edges.tolist(), found.before.n_on.tolist(), found.before.background.tolist()
    ([0.5, 1.5, 2.5, 3.5], [1, 1, 0], [0.0, 0.5, 0.5])
    """

    def __init__(self, X: Any, names: Sequence[str]) -> None:
        if hasattr(X, "to_numpy"):
            X = X.to_numpy(dtype=np.float64)
        values = np.asarray(X, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(names):
            raise ValueError(f"features must have one column for each of {len(names)} names, got shape {values.shape}")
        self.names = tuple(map(str, names))
        self.n_events = len(values)
        self._bins: list[tuple[FloatArray, bool]] = []
        # a byte per event and feature; the last number is that of missing values
        self._place = np.empty((len(names), len(values)), dtype=np.uint8)
        for number, column in enumerate(values.T):
            edges, logarithmic = _edges_of(column)
            self._bins.append((edges, logarithmic))
            n_bins = len(edges) - 1
            place = np.searchsorted(edges[1:-1], column, side="right")
            self._place[number] = np.where(np.isnan(column), n_bins, place)

    def histograms(
        self,
        on: BoolArray,
        held_out: BoolArray,
        selected: BoolArray,
        alpha: FloatArray | float,
        importances: FloatArray | None = None,
    ) -> tuple[FeatureHistogram, ...]:
        """Count On and Off events in the bins, in the order of the features.

        Of more than 200 features, only those with the largest importances are kept, or the first ones.
        """
        chosen = np.arange(len(self.names))
        if len(chosen) > MAX_FEATURES:
            known = importances is not None and len(importances) == len(chosen)
            order = np.argsort(-importances, kind="stable") if known and importances is not None else chosen
            chosen = np.sort(order[:MAX_FEATURES])
        scale = np.broadcast_to(np.asarray(alpha, dtype=np.float64), on.shape)
        stages = []
        for mask in (held_out, selected & held_out):
            own, other = np.flatnonzero(mask & on), np.flatnonzero(mask & ~on)
            stages.append([self._count(number, own, other, scale[other]) for number in chosen.tolist()])
        return tuple(
            FeatureHistogram(self.names[number], self._bins[number][0], self._bins[number][1], before, after)
            for number, before, after in zip(chosen.tolist(), *stages, strict=True)
        )

    def _count(self, number: int, own: NDArray[np.intp], other: NDArray[np.intp], alpha: FloatArray) -> OnOffBins:
        n_bins, place = len(self._bins[number][0]) - 1, self._place[number]
        n_on = np.bincount(place[own], minlength=n_bins + 1)[:n_bins]
        background, variance = (np.bincount(place[other], alpha**k, n_bins + 1)[:n_bins] for k in (1, 2))
        return OnOffBins(n_on.astype(np.int64), background.astype(np.float64), np.sqrt(variance))


def _edges_of(column: FloatArray) -> tuple[FloatArray, bool]:
    """Return bins that enclose almost all values of a feature."""
    known = column[np.isfinite(column)]
    if len(known) == 0:
        return np.array([0.0, 1.0]), False
    as_floats("features", known)
    low, middle, high = np.quantile(known, [_TAIL, 0.5, 1 - _TAIL], method="inverted_cdf").tolist()
    return choose_edges(low, middle, high, whole=bool((known == np.rint(known)).all()), n_bins=_N_BINS)
