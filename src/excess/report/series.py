"""Series that plots show: histograms and curves of a detection, for the page and for papers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess._core.ordering import number_groups
from excess.stats.curve import ThresholdCurve
from excess.stats.likelihood import compute_likelihood
from excess.stats.significance import li_ma_significance
from excess.validation.detection import Detection
from excess.validation.outcome import count_events

_BINS_PER_CUT = 10
_MAX_POINTS = 2_000
"""Points of a curve that are shown; more could not be distinguished."""
_LONGEST_PAUSE = 900.0
"""Longest time in seconds between consecutive events that counts as observation time."""
_N_MOMENTS = {"cut": 100, "likelihood": 50}
_MANY_EVENTS = 200_000
"""Events above which the likelihood is computed at fewer moments, so that it takes seconds for a million of them."""
_MIN_EVENTS = 20
"""Smallest number of events in a bin of the signal ratio."""


class OnOffHistogram(NamedTuple):
    """Numbers of On and Off events in each bin; ``alpha`` is the factor by which ``off`` is scaled to ``on``."""

    edges: FloatArray
    on: NDArray[np.int64]
    off: NDArray[np.int64]
    alpha: float


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


class LightCurve(NamedTuple):
    """Strength of the source in each group, in units of its mean, with the interval of one sigma.

    Groups whose strength or interval is not bounded are left out; ``n_groups`` counts all of them.
    """

    groups: list[Any]
    strength: FloatArray
    low: FloatArray
    high: FloatArray
    n_groups: int


class OverTime(NamedTuple):
    """Significance of the hold-out events up to a moment, negative for a deficit, for a hundred moments or fewer.

    It is by the declared statistic. ``exposure`` is the observation up to the moment. Its ``unit`` is "h", without
    pauses of more than 15 minutes, or "events", of all regions, if times are not known.
    """

    exposure: FloatArray
    significance: FloatArray
    unit: str


class ThresholdSteps(NamedTuple):
    """One-sided significance of hold-out events above a threshold, the same for all folds.

    Each significance holds from the threshold ``start`` up to that of the next step.
    """

    start: FloatArray
    significance: FloatArray


class Importances(NamedTuple):
    """The largest importances of features, in descending order, and the number of all features."""

    names: list[str]
    values: FloatArray
    n_features: int


def has_score(detection: Detection) -> BoolArray:
    """Return True for hold-out events with a finite score."""
    return detection.held_out & np.isfinite(detection.score)


def require_scores(detection: Detection) -> BoolArray:
    """Return True for hold-out events with a finite score; raise ValueError if there are none."""
    known = has_score(detection)
    if not known.any():
        raise ValueError("there are no scores to show: no event was judged by a model that had not seen it")
    return known


def theta_squared_edges(detection: Detection) -> FloatArray:
    """Return edges of ten bins up to the cut in theta^2, and of 30 more beyond it if nearby events are known."""
    _, cut = require_angles(detection)
    widths = 1 if detection.nearby is None or detection.nearby.theta is None else 4
    # integers divided by ten, times the cut: so the cut itself is an edge, to the last bit
    return cut * (np.arange(widths * _BINS_PER_CUT + 1) / _BINS_PER_CUT)


def theta_squared_histogram(detection: Detection, threshold: float | None = None) -> OnOffHistogram:
    """Count selected events by their squared angle to the source and to the centres of the Off regions, in deg^2.

    With a threshold, events are selected by it instead of by the thresholds of the models, for exploration.
    """
    edges = theta_squared_edges(detection)
    parts = [
        squared[selected if threshold is None else score > threshold]
        for squared, score, selected in squared_angles(detection)
    ]
    bins = find_bins(np.concatenate(parts), edges)
    on, off = (np.bincount(part.ravel(), minlength=len(edges))[:-1] for part in (bins[:, :1], bins[:, 1:]))
    return OnOffHistogram(edges, on, off, detection.alpha)


def squared_angles(detection: Detection) -> list[tuple[FloatArray, FloatArray, BoolArray]]:
    """Return squared angles to all regions, scores and selection: of the events, and of nearby events if known.

    An event may be near several regions, and is then counted for each. But inside the cut it counts once, for its own
    region, so that these bins add up to the counts of the detection. Angles that do not count are NaN.
    """
    theta, cut = require_angles(detection)
    score = np.where(detection.held_out, detection.score, np.nan)
    parts = [(_count_once(theta, cut, detection.on), score, detection.selected)]
    nearby = detection.nearby
    if nearby is not None and nearby.theta is not None:
        parts.append((_count_once(nearby.theta, cut, None), nearby.score, nearby.selected))
    return parts


def _count_once(theta: FloatArray, cut: float, on: BoolArray | None) -> FloatArray:
    """Square angles, and replace those inside the cut to any region but the event's own by NaN.

    ``on`` is True for On events; the others belong to the nearest Off region, or to none if ``on`` is None.
    """
    squared = theta**2
    counted = np.zeros(squared.shape, dtype=np.bool_)
    if on is not None:
        nearest = 1 + np.where(np.isnan(theta), np.inf, theta)[:, 1:].argmin(axis=1)
        counted[np.arange(len(theta)), np.where(on, 0, nearest)] = True
    squared[(squared < cut) & ~counted] = np.nan
    return squared


def find_bins(values: FloatArray, edges: FloatArray) -> NDArray[np.intp]:
    """Return the bin of each value, its lower edge included; the number of bins for values in none."""
    number = np.searchsorted(edges, values, side="right") - 1
    return np.where((number < 0) | (number >= len(edges) - 1), len(edges) - 1, number)


def score_histogram(detection: Detection, n_bins: int = 50) -> OnOffHistogram:
    """Count hold-out events by their score."""
    known = require_scores(detection)
    score, on = detection.score[known], detection.on[known]
    low, high = score.min(), score.max()
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # too close to each other for bins between them
        margin = 0.5 * max(1.0, abs(low))
        low, high = low - margin, high + margin
    edges = np.linspace(low, high, n_bins + 1)
    counts = [np.histogram(score[mask], edges)[0].astype(np.int64) for mask in (on, ~on)]
    return OnOffHistogram(edges, counts[0], counts[1], detection.alpha)


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
    alpha = _alpha_of(detection, held_out)
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


def has_light_curve(detection: Detection) -> bool:
    """Return whether there are signal ratios, a mean strength as the unit, and at least two groups."""
    fitted = detection.likelihood
    return fitted is not None and 0 < fitted.strength < np.inf and len(detection.counts_by_group) > 1


def light_curve(detection: Detection) -> LightCurve:
    """Return the strength of the source in each group, in units of its mean; see ``Detection.groups_frame``."""
    if not has_light_curve(detection):
        raise ValueError("a light curve needs signal ratios, a positive mean strength, and at least two groups")
    frame = detection.groups_frame()
    values = frame[[f"relative_strength{end}" for end in ("", "_low", "_high")]].to_numpy(dtype=np.float64)
    known = np.isfinite(values).all(axis=1)
    groups = [group for group, one in zip(frame.index.tolist(), known, strict=True) if one]
    strength, low, high = values[known].T
    return LightCurve(groups, strength, low, high, len(frame))


def significance_over_time(detection: Detection, n_moments: int | None = None) -> OverTime:
    """Compute the significance up to each moment; that of the last moment is the significance of the detection.

    It is by the declared statistic. By default there are 100 moments for a cut, 50 for the likelihood, and 20 for that
    of more than 200,000 events, or 10 if their exposure ratios differ. Without times, events are ordered by their
    groups, or keep their order.
    """
    judged = np.flatnonzero(detection.held_out)
    if len(judged) == 0:
        raise ValueError("no events were judged")
    unit = "events"
    exposure = np.arange(1.0, len(judged) + 1)
    if detection.time is not None and np.isfinite(detection.time[judged]).all():
        judged = judged[np.argsort(detection.time[judged], kind="stable")]
        steps = np.diff(detection.time[judged], prepend=detection.time[judged[0]])
        hours = np.cumsum(np.where(steps > _LONGEST_PAUSE, 0.0, steps)) / 3600
        if hours[-1] > 0:
            exposure, unit = hours, "h"
    elif detection.groups is not None:
        judged = judged[np.argsort(number_groups(detection.groups[judged])[1], kind="stable")]
    if n_moments is None:
        n_moments = _N_MOMENTS[detection.statistic]
        if detection.statistic == "likelihood" and len(judged) > _MANY_EVENTS:
            n_moments = 20 if detection.event_alpha is None else 10
    targets = np.linspace(0, exposure[-1], min(n_moments, len(judged)) + 1)[1:]
    n_so_far = np.searchsorted(exposure, targets * (1 + 1e-12), side="right")[:-1]
    compute = _likelihood_so_far if detection.statistic == "likelihood" else _cut_so_far
    return OverTime(targets, np.append(compute(detection, judged, n_so_far), detection.significance), unit)


def _likelihood_so_far(detection: Detection, order: NDArray[np.intp], n_so_far: NDArray[np.intp]) -> FloatArray:
    """Return the significance of the first events by the likelihood, for several numbers of events."""
    if detection.ratio is None:
        return np.full(len(n_so_far), np.nan)
    on, ratio, alpha = detection.on[order], detection.ratio[order], _alpha_of(detection, order)
    found = [
        compute_likelihood(on[:n], ratio[:n], alpha[:n] if isinstance(alpha, np.ndarray) else alpha)
        for n in n_so_far.tolist()
    ]
    return np.array([one.significance for one in found])


def _cut_so_far(detection: Detection, order: NDArray[np.intp], n_so_far: NDArray[np.intp]) -> FloatArray:
    """Return the significance of the selected ones among the first events, for several numbers of events."""
    on, selected, alpha = detection.on[order], detection.selected[order], _alpha_of(detection, order)
    if isinstance(alpha, np.ndarray):
        found = [count_events(on[:n], selected[:n], alpha[:n]) for n in n_so_far.tolist()]
        return np.array([one.significance for one in found])
    n_on, n_off = (np.append(0, np.cumsum(mask))[n_so_far] for mask in (selected & on, selected & ~on))
    return np.asarray(li_ma_significance(n_on, n_off, alpha, signed=True))


def _alpha_of(detection: Detection, events: NDArray[np.intp]) -> FloatArray | float:
    """Return the exposure ratio of some events: one for all, or one for each where it differs."""
    return detection.alpha if detection.event_alpha is None else detection.event_alpha[events]


def threshold_steps(curve: ThresholdCurve, n_points: int = _MAX_POINTS) -> ThresholdSteps:
    """Return a curve as at most ``n_points`` steps: the ends and extremes of each interval, and the maximum.

    The first step, which selects all events, starts a little before the smallest score.
    """
    scores = curve.scores
    margin = 0.02 * (scores[-1] - scores[0]) or 0.5
    start = np.append(scores[0] - margin, scores)
    if len(start) <= n_points:
        return ThresholdSteps(start, curve.significance)
    borders = np.linspace(start[0], start[-1], (n_points - 1) // 4 + 1)[1:-1]
    first = np.unique(np.append(0, np.searchsorted(start, borders)))
    first = first[first < len(start)]
    last = np.append(first[1:], len(start)) - 1
    lowest, highest = (_find_maxima(sign * curve.significance, first) for sign in (-1, 1))
    kept = np.unique(np.concatenate([first, last, lowest, highest, [curve.best_index]]))
    return ThresholdSteps(start[kept], curve.significance[kept])


def largest_importances(detection: Detection, n_features: int) -> Importances:
    """Return the largest importances; features without names are called x0, x1 and so on."""
    if detection.importances is None:
        raise ValueError(
            "the detection has no importances of features; use a model that knows them, such as a tree or a forest "
            "(a model behind a step that makes other features does not know those of the events)"
        )
    names = detection.feature_names or tuple(f"x{number}" for number in range(len(detection.importances)))
    largest = np.argsort(-detection.importances, kind="stable")[:n_features]
    return Importances([names[number] for number in largest], detection.importances[largest], len(names))


def _find_maxima(values: FloatArray, first: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the index of the largest value in each interval, which starts at ``first`` and ends before the next."""
    interval = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(values))))
    at_top = np.flatnonzero(values == np.maximum.reduceat(values, first)[interval])
    return at_top[np.unique(interval[at_top], return_index=True)[1]]


def require_angles(detection: Detection) -> tuple[FloatArray, float]:
    """Return the angles and the cut of a detection; raise ValueError if they are missing or wrong."""
    if detection.theta is None or detection.theta_squared_cut is None:
        raise ValueError(
            "the detection has no angles between events and regions; give theta and theta_squared_cut with "
            "detection.annotated(...)"
        )
    if detection.theta_squared_cut <= 0:
        raise ValueError(f"theta_squared_cut must be positive, got {detection.theta_squared_cut:g}")
    nearby = detection.nearby
    if nearby is not None and nearby.theta is not None and nearby.theta.shape[1] != detection.theta.shape[1]:
        raise ValueError(
            f"theta has {detection.theta.shape[1]} regions, but nearby_theta has {nearby.theta.shape[1]}; give the "
            "same regions with detection.annotated(...)"
        )
    return detection.theta, detection.theta_squared_cut
