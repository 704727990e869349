"""Series that plots show: curves over thresholds, time and groups, and importances of features."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess._core.ordering import number_groups
from excess.report.histograms import alpha_of, require_scores
from excess.stats.curve import ThresholdCurve
from excess.stats.likelihood import compute_likelihood
from excess.stats.significance import li_ma_significance
from excess.validation.detection import Detection
from excess.validation.exposure import LONGEST_PAUSE
from excess.validation.outcome import count_cuts, count_events

_MAX_POINTS = 2_000
"""Points of a curve that are shown; more could not be distinguished."""
_N_CUTS = 250
"""Points of a curve whose events have exposure ratios of their own, because each point is then a fit."""
_N_MOMENTS = {"cut": 100, "likelihood": 50}
_MANY_EVENTS = 200_000
"""Events above which the likelihood is computed at fewer moments, so that it takes seconds for a million of them."""


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
        hours = np.cumsum(np.where(steps > LONGEST_PAUSE, 0.0, steps)) / 3600
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
    on, ratio, alpha = detection.on[order], detection.ratio[order], alpha_of(detection, order)
    found = [
        compute_likelihood(on[:n], ratio[:n], alpha[:n] if isinstance(alpha, np.ndarray) else alpha)
        for n in n_so_far.tolist()
    ]
    return np.array([one.significance for one in found])


def _cut_so_far(detection: Detection, order: NDArray[np.intp], n_so_far: NDArray[np.intp]) -> FloatArray:
    """Return the significance of the selected ones among the first events, for several numbers of events."""
    on, selected, alpha = detection.on[order], detection.selected[order], alpha_of(detection, order)
    if isinstance(alpha, np.ndarray):
        found = [count_events(on[:n], selected[:n], alpha[:n]) for n in n_so_far.tolist()]
        return np.array([one.significance for one in found])
    n_on, n_off = (np.append(0, np.cumsum(mask))[n_so_far] for mask in (selected & on, selected & ~on))
    return np.asarray(li_ma_significance(n_on, n_off, alpha, signed=True))


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


def detection_steps(detection: Detection) -> ThresholdSteps:
    """Return the significance of hold-out events over all thresholds, one for all folds.

    Where exposure ratios differ, each event has its own, and there are 250 thresholds in equal steps.
    """
    if detection.event_alpha is None:
        return threshold_steps(detection.curve)
    known = np.flatnonzero(require_scores(detection))
    score = detection.score[known]
    margin = 0.02 * (score.max() - score.min()) or 0.5
    start = np.linspace(score.min() - margin, score.max(), _N_CUTS)
    counts = count_cuts(
        detection.on[known], np.searchsorted(start, score, side="left"), detection.event_alpha[known], len(start)
    )
    return ThresholdSteps(start, np.array([max(one.significance, 0.0) for one in counts]))


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
