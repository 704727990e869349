"""Bins of the signal ratio: On, Off and fitted signal, and the significance of each bin."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.report.histograms import alpha_of
from excess.validation.detection import Detection
from excess.validation.outcome import count_events

_MIN_EVENTS = 20
"""Smallest number of events in a bin of the signal ratio."""


class LikelihoodBins(NamedTuple):
    """Hold-out events in bins of their signal ratio, On against Off, with the signal that the likelihood expects.

    Attributes
    ----------
    edges : ndarray of shape (n_bins + 1,)
        Signal ratios between the bins; an event belongs to a bin if its ratio is above the lower edge, and not above
        the upper one. Events of ratio 0 are in the first bin.
    n_on, n_off : ndarray of int64 of shape (n_bins,)
        On and Off events.
    n_selected : ndarray of int64 of shape (n_bins,)
        On and Off events that the cut selects.
    background, background_error : ndarray of shape (n_bins,)
        Off events times alpha, and the standard error of it.
    signal : ndarray of shape (n_bins,)
        Signal events that the likelihood expects among the On events, at the fitted strength: the sum over On and Off
        events of ``strength * ratio / (strength * ratio + alpha + 1)``. The sum over all bins is ``n_signal`` of the
        likelihood.
    significance : ndarray of shape (n_bins,)
        Significance of Li & Ma of each bin; negative for a deficit.
    """

    edges: FloatArray
    n_on: NDArray[np.int64]
    n_off: NDArray[np.int64]
    n_selected: NDArray[np.int64]
    background: FloatArray
    background_error: FloatArray
    signal: FloatArray
    significance: FloatArray

    @property
    def mostly_selected(self) -> BoolArray:
        """True for bins in which the cut selects half of the events, or more."""
        return 2 * self.n_selected >= self.n_on + self.n_off

    def ticks(self) -> dict[float, str]:
        """Return texts of the signal ratios at the borders of the bins, where the first bin goes from -0.5 to 0.5.

        The bin of ratio 0 has its text in the middle.
        """
        digits = next((n for n in (2, 3, 4) if len({f"{edge:.{n}g}" for edge in self.edges[1:]}) == len(self.n_on)), 5)
        ticks = {number - 0.5: f"{edge:.{digits}g}" for number, edge in enumerate(self.edges.tolist())}
        if self.edges[1] == 0:
            del ticks[-0.5], ticks[0.5]
            ticks = {0.0: "0", **ticks}
        return ticks


def likelihood_bins(detection: Detection, n_bins: int = 10) -> LikelihoodBins:
    """Count hold-out events in bins of their signal ratio: one for ratio 0, and at most ``n_bins`` above it.

    In each bin above 0 about the same number of signal events is expected, and there are at least 20 events, so that
    bins are narrow where signal is. Their events are all hold-out events.
    """
    fitted = detection.likelihood
    if detection.ratio is None or fitted is None:
        raise ValueError(
            "the detection has no signal ratios; use a model that has them, or wrap it in "
            "SignificanceThresholdClassifier"
        )
    held_out = np.flatnonzero(detection.held_out)
    if len(held_out) == 0:
        raise ValueError("no events were judged")
    on, ratio = detection.on[held_out], np.nan_to_num(detection.ratio[held_out])
    alpha = alpha_of(detection, held_out)
    edges = _edges_of_equal_signal(ratio, _signal_share(ratio, alpha, max(fitted.strength, 0.0)), n_bins)
    number = np.maximum(np.searchsorted(edges, ratio, side="left") - 1, 0)
    unit = 1.0 if np.isinf(fitted.strength) else fitted.strength

    def add_up(values: NDArray[Any]) -> FloatArray:
        return np.bincount(number, values.astype(np.float64), len(edges) - 1).astype(np.float64)

    counts = [count_events(on, number == one, alpha) for one in range(len(edges) - 1)]
    return LikelihoodBins(
        edges,
        add_up(on).astype(np.int64),
        add_up(~on).astype(np.int64),
        add_up(detection.selected[held_out]).astype(np.int64),
        add_up(alpha * ~on),
        np.sqrt(add_up(alpha**2 * ~on)),
        add_up(unit * _signal_share(ratio, alpha, fitted.strength)),
        np.array([one.significance for one in counts]),
    )


def _signal_share(ratio: FloatArray, alpha: FloatArray | float, strength: float) -> FloatArray:
    """Return the expected signal of each event, On or Off, per unit of strength; without a unit if it is infinite."""
    if np.isinf(strength):
        return (ratio > 0).astype(np.float64)
    return ratio / (strength * ratio + alpha + 1)


def _edges_of_equal_signal(ratio: FloatArray, share: FloatArray, n_bins: int) -> FloatArray:
    """Return ratios between bins that expect the same signal; the first bin is that of ratio 0, if there are any."""
    order = np.argsort(ratio, kind="stable")
    ratios, expected = ratio[order], np.cumsum(share[order])
    first = int(np.searchsorted(ratios, 0.0, side="right"))  # events of ratio 0 have a bin of their own
    n_events = len(ratios)
    if first == n_events:
        return np.zeros(2)
    targets = expected[-1] * np.arange(1, n_bins) / n_bins
    # events of the same ratio stay together, so a bin ends behind the last of them
    ends = np.searchsorted(ratios, ratios[np.searchsorted(expected, targets)], side="right")
    kept = [first]
    for end in ends.tolist():
        if min(end - kept[-1], n_events - end) >= _MIN_EVENTS:
            kept.append(end)
    edges = ratios[np.array(kept[1:], dtype=np.intp) - 1]
    below = [] if first == 0 else [0.0]
    return np.concatenate([[0.0], below, edges, ratios[-1:]])
