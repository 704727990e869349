"""Data of the figures: histograms, curves over thresholds, time and groups, and feature importances."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.checks import BoolArray, FloatArray, as_choice, number_groups
from excess.detection._histograms import FeatureHistogram
from excess.detection._result import LONGEST_PAUSE, Detection, count_cuts, count_events
from excess.stats._likelihood import compute_likelihood
from excess.stats._significance import OnOffCounts, li_ma_significance
from excess.stats._thresholds import ThresholdCurve

_BINS_PER_CUT = 10
_N_BINS = 12
_N_PROFILE = 201  # points of the fitted profile of squared angles
_MIN_EVENTS = 20  # minimum number of events in a bin of the likelihood ratio
_MAX_POINTS = 2_000  # maximum number of points of a curve; more could not be distinguished
_N_CUTS = 250  # points of a curve for events with different exposure ratios, because each point is then a fit
_N_MOMENTS = {"cut": 100, "likelihood": 50}
_MANY_EVENTS = 200_000  # number of events above which the likelihood is computed at fewer times


class OnOffHistogram(NamedTuple):
    """On and Off events in each bin, Off times alpha with its standard error, and alpha; None if it varies."""

    edges: FloatArray
    on: NDArray[np.int64]
    off: NDArray[np.int64]
    background: FloatArray
    background_error: FloatArray
    alpha: float | None


class LikelihoodBins(NamedTuple):
    """Events of the likelihood in bins of their likelihood ratio, On and Off, with the expected signal."""

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
        """True for bins in which the cut selects at least half of the events."""
        return 2 * self.n_selected >= self.n_on + self.n_off

    def ticks(self) -> dict[float, str]:
        """Return tick labels of the likelihood ratios at bin edges; the first bin extends from -0.5 to 0.5."""
        digits = next((n for n in (2, 3, 4) if len({f"{edge:.{n}g}" for edge in self.edges[1:]}) == len(self.n_on)), 5)
        ticks = {number - 0.5: f"{edge:.{digits}g}" for number, edge in enumerate(self.edges.tolist())}
        if self.edges[1] == 0:
            del ticks[-0.5], ticks[0.5]
            ticks = {0.0: "0", **ticks}
        return ticks


class OverTime(NamedTuple):
    """Significance of the hold-out events up to each time, negative for a deficit, by the declared statistic."""

    exposure: FloatArray
    significance: FloatArray
    unit: str


def alpha_of(detection: Detection, events: NDArray[np.intp]) -> FloatArray | float:
    """Return the exposure ratio of some events: a number, or one per event if it varies."""
    return detection.alpha if detection.event_alpha is None else detection.event_alpha[events]


def has_score(detection: Detection) -> BoolArray:
    """Return True for hold-out events with a finite score."""
    return detection.held_out & np.isfinite(detection.score)


def require_scores(detection: Detection) -> BoolArray:
    """Return True for hold-out events with a finite score; raise ValueError if there are none."""
    known = has_score(detection)
    if not known.any():
        raise ValueError("there are no scores to plot: no hold-out event has a score")
    return known


def has_angles(detection: Detection) -> bool:
    """Return whether angles between events and regions, and the cut on them, are known."""
    return detection.theta is not None and detection.theta_squared_cut is not None


def require_angles(detection: Detection) -> tuple[FloatArray, float]:
    """Return the angles and the cut of a detection; raise ValueError if they are missing or invalid."""
    if detection.theta is None or detection.theta_squared_cut is None:
        remedy = "pass theta and theta_squared_cut to detection.annotated(...)"
        raise ValueError(f"the detection has no angles between events and regions; {remedy}")
    if detection.theta_squared_cut <= 0:
        raise ValueError(f"theta_squared_cut must be positive, got {detection.theta_squared_cut:g}")
    nearby = detection.nearby
    if nearby is not None and nearby.theta is not None and nearby.theta.shape[1] != detection.theta.shape[1]:
        n_given = f"theta has {detection.theta.shape[1]} regions, but nearby_theta has {nearby.theta.shape[1]}"
        raise ValueError(f"{n_given}; pass the same regions to detection.annotated(...)")
    return detection.theta, detection.theta_squared_cut


def theta_squared_edges(detection: Detection) -> FloatArray:
    """Return edges of ten bins up to the cut on theta^2, and of 30 more beyond it if nearby events are known."""
    _, cut = require_angles(detection)
    widths = 1 if detection.nearby is None or detection.nearby.theta is None else 4
    # integers divided by ten, times the cut: the cut itself is an edge, to the last bit
    return cut * (np.arange(widths * _BINS_PER_CUT + 1) / _BINS_PER_CUT)


def theta_squared_histogram(detection: Detection, threshold: float | None = None) -> OnOffHistogram:
    """Count selected events by their squared angle to the source and to the centres of the Off regions, in deg^2."""
    theta, cut = require_angles(detection)
    edges = theta_squared_edges(detection)
    score = np.where(detection.held_out, detection.score, np.nan)
    alpha = np.broadcast_to(alpha_of(detection, np.arange(len(score))), score.shape)
    parts = [(_count_once(theta, cut, detection.on), score, detection.selected, alpha)]
    nearby = detection.nearby
    if nearby is not None and nearby.theta is not None:
        mean = np.full(len(nearby.score), detection.alpha)
        parts.append((_count_once(nearby.theta, cut, None), nearby.score, nearby.selected, mean))
    bins, alphas = [], []
    for squared, scores, selected, ratios in parts:
        chosen = selected if threshold is None else scores > threshold
        bins.append(find_bins(squared[chosen], edges))
        alphas.append(np.broadcast_to(ratios[chosen, np.newaxis], bins[-1][:, 1:].shape))
    place = np.concatenate(bins)
    return _count_bins(detection, edges, place[:, 0], place[:, 1:].ravel(), np.concatenate(alphas).ravel())


def fitted_profile(
    detection: Detection, counts: OnOffCounts, edges: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return squared angles, and expected On events per bin, over a flat background; None without fit or excess."""
    spread = detection.point_spread
    if spread is None or detection.containment_radius is None or counts.excess <= 0:
        return None
    inside, squared = (np.linspace(0, end, _N_PROFILE) for end in (spread.cut, edges[-1]))
    # the mean over the cut is the fraction of the signal inside it
    share = float(np.trapezoid(spread.ratio(np.sqrt(inside)), inside)) / spread.cut
    signal = counts.excess / share * spread.ratio(np.sqrt(squared))
    return squared, (counts.background + signal) * (edges[1] - edges[0]) / spread.cut


def _count_once(theta: FloatArray, cut: float, on: BoolArray | None) -> FloatArray:
    """Square angles, and replace those inside the cut of another region than the event's own by NaN."""
    squared = theta**2
    counted = np.zeros(squared.shape, dtype=np.bool_)
    if on is not None:
        nearest = 1 + np.where(np.isnan(theta), np.inf, theta)[:, 1:].argmin(axis=1)
        counted[np.arange(len(theta)), np.where(on, 0, nearest)] = True
    squared[(squared < cut) & ~counted] = np.nan
    return squared


def find_bins(values: FloatArray, edges: FloatArray) -> NDArray[np.intp]:
    """Return the bin of each value, including its lower edge; the number of bins for values outside."""
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
    number = np.searchsorted(edges[1:-1], score, side="right")
    off_alpha = np.broadcast_to(alpha_of(detection, np.flatnonzero(known)), score.shape)[~on]
    return _count_bins(detection, edges, number[on], number[~on], off_alpha)


def _count_bins(
    detection: Detection, edges: FloatArray, on: NDArray[np.intp], off: NDArray[np.intp], off_alpha: FloatArray
) -> OnOffHistogram:
    """Count On and Off events by their bin indices; the last index is for events outside all bins."""
    n_on, n_off = (np.bincount(number, minlength=len(edges))[:-1].astype(np.int64) for number in (on, off))
    if detection.event_alpha is None:
        alpha, numbers = detection.alpha, n_off.astype(np.float64)
        return OnOffHistogram(edges, n_on, n_off, alpha * numbers, alpha * np.sqrt(numbers), alpha)
    sums = [np.bincount(off, off_alpha**power, len(edges))[:-1].astype(np.float64) for power in (1, 2)]
    return OnOffHistogram(edges, n_on, n_off, sums[0], np.sqrt(sums[1]), None)


def likelihood_bins(detection: Detection, n_bins: int = 10) -> LikelihoodBins:
    """Count events of the likelihood in bins of their likelihood ratio: one for ratio 0, at most ``n_bins`` above."""
    fitted = detection.likelihood
    if detection.ratio is None or fitted is None:
        raise ValueError("the detection has no likelihood ratios; wrap the model in SignificanceThresholdClassifier")
    used = np.flatnonzero(detection.in_likelihood)
    if len(used) == 0:
        raise ValueError("no events were held out")
    on, ratio = detection.on[used], np.nan_to_num(detection.ratio[used])
    alpha = alpha_of(detection, used)
    edges = _edges_of_equal_signal(ratio, _signal_share(ratio, alpha, max(fitted.strength, 0.0)), n_bins)
    number = np.maximum(np.searchsorted(edges, ratio, side="left") - 1, 0)
    unit = 1.0 if np.isinf(fitted.strength) else fitted.strength

    def add_up(values: NDArray[Any]) -> FloatArray:
        return np.bincount(number, values.astype(np.float64), len(edges) - 1).astype(np.float64)

    counts = [count_events(on, number == one, alpha) for one in range(len(edges) - 1)]
    n_on, n_off, n_selected = (add_up(mask).astype(np.int64) for mask in (on, ~on, detection.selected[used]))
    background, error = add_up(alpha * ~on), np.sqrt(add_up(alpha**2 * ~on))
    signal = add_up(unit * _signal_share(ratio, alpha, fitted.strength))
    significance = np.array([one.significance for one in counts])
    return LikelihoodBins(edges, n_on, n_off, n_selected, background, error, signal, significance)


def _signal_share(ratio: FloatArray, alpha: FloatArray | float, strength: float) -> FloatArray:
    """Return the expected signal of each event per unit of signal strength; in relative units if it is infinite."""
    if np.isinf(strength):
        return (ratio > 0).astype(np.float64)
    return ratio / (strength * ratio + alpha + 1)


def _edges_of_equal_signal(ratio: FloatArray, share: FloatArray, n_bins: int) -> FloatArray:
    """Return ratios between bins with equal expected signal; the first bin is that of ratio 0, if there are any."""
    order = np.argsort(ratio, kind="stable")
    ratios, expected = ratio[order], np.cumsum(share[order])
    first = int(np.searchsorted(ratios, 0.0, side="right"))  # events of ratio 0 have their own bin
    n_events = len(ratios)
    if first == n_events:
        return np.zeros(2)
    targets = expected[-1] * np.arange(1, n_bins) / n_bins
    # events of equal ratio stay together, so a bin ends after the last of them
    ends = np.searchsorted(ratios, ratios[np.searchsorted(expected, targets)], side="right")
    kept = [first]
    for end in ends.tolist():
        if min(end - kept[-1], n_events - end) >= _MIN_EVENTS:
            kept.append(end)
    edges = ratios[np.array(kept[1:], dtype=np.intp) - 1]
    return np.concatenate([[0.0], [] if first == 0 else [0.0], edges, ratios[-1:]])


def has_light_curve(detection: Detection, by: str = "group") -> bool:
    """Return whether there are likelihood ratios and several groups, or nights of several groups."""
    fitted, exposure = detection.likelihood, detection.exposure
    groups, nights = detection.counts_by_group, detection.counts_by_night
    if fitted is None:
        return False
    if by == "night":
        timed = exposure is not None and any(exposure.by_night.get(str(night), 0.0) > 0 for night in nights)
        return timed and len(nights) > 1 and set(map(str, groups)) != set(map(str, nights))
    timed = exposure is not None and any(exposure.by_group.get(str(group), 0.0) > 0 for group in groups)
    return len(groups) > 1 and (timed or 0 < fitted.strength < np.inf)


def light_curve(detection: Detection, by: str = "group") -> pd.DataFrame:
    """Return the signal events per hour of each group or night with an interval of one sigma, hours, and MJD if known.

    Without times, it is the signal strength relative to its mean. Rows without a bound or a time are excluded.
    """
    as_choice("by", by, ("group", "night"))
    if not has_light_curve(detection, by):
        needs = f"likelihood ratios, several {by}s, and observation times or a positive mean signal strength"
        raise ValueError(f"a light curve by {by} requires {needs}; see detection.annotated(...)")
    frame = detection.groups_frame(by)
    name = "rate" if "rate" in frame else "relative_strength"
    columns = {name: name.removeprefix("relative_"), f"{name}_low": "low", f"{name}_high": "high"}
    more = [column for column in ("hours", "mjd") if column in frame]
    shown = frame[[*columns, *more]].rename(columns=columns).astype(np.float64)
    return shown.iloc[np.flatnonzero(np.isfinite(shown.iloc[:, :3].to_numpy()).all(axis=1))]


def significance_over_time(detection: Detection, n_moments: int | None = None) -> OverTime:
    """Compute the significance up to each time; the last one is the significance of the detection."""
    rows = np.flatnonzero(detection.in_likelihood if detection.statistic == "likelihood" else detection.held_out)
    if len(rows) == 0:
        raise ValueError("no events were held out")
    unit = "events"
    exposure = np.arange(1.0, len(rows) + 1)
    if detection.time is not None and np.isfinite(detection.time[rows]).all():
        rows = rows[np.argsort(detection.time[rows], kind="stable")]
        steps = np.diff(detection.time[rows], prepend=detection.time[rows[0]])
        hours = np.cumsum(np.where(steps > LONGEST_PAUSE, 0.0, steps)) / 3600
        if hours[-1] > 0:
            exposure, unit = hours, "h"
    elif detection.groups is not None:
        rows = rows[np.argsort(number_groups(detection.groups[rows])[1], kind="stable")]
    if n_moments is None:
        n_moments = _N_MOMENTS[detection.statistic]
        if detection.statistic == "likelihood" and len(rows) > _MANY_EVENTS:
            n_moments = 20 if detection.event_alpha is None else 10
    targets = np.linspace(0, exposure[-1], min(n_moments, len(rows)) + 1)[1:]
    n_so_far = np.searchsorted(exposure, targets * (1 + 1e-12), side="right")[:-1]
    compute = _likelihood_so_far if detection.statistic == "likelihood" else _cut_so_far
    compute = _outcome_so_far if detection.alpha_error else compute
    return OverTime(targets, np.append(compute(detection, rows, n_so_far), detection.significance), unit)


def _outcome_so_far(detection: Detection, order: NDArray[np.intp], n_so_far: NDArray[np.intp]) -> FloatArray:
    """Return the significance of the first events with an error of the exposure ratio."""
    rank = np.full(len(detection.on), len(order))
    rank[order] = np.arange(len(order))
    return np.array([detection.outcome_of(rank < n).significance for n in n_so_far.tolist()])


def _likelihood_so_far(detection: Detection, order: NDArray[np.intp], n_so_far: NDArray[np.intp]) -> FloatArray:
    """Return the significance of the first events by the likelihood, for several numbers of events."""
    if detection.ratio is None:
        return np.full(len(n_so_far), np.nan)
    on, ratio, alpha = detection.on[order], detection.ratio[order], alpha_of(detection, order)
    firsts = ((n, alpha[:n] if isinstance(alpha, np.ndarray) else alpha) for n in n_so_far.tolist())
    return np.array([compute_likelihood(on[:n], ratio[:n], own).significance for n, own in firsts])


def _cut_so_far(detection: Detection, order: NDArray[np.intp], n_so_far: NDArray[np.intp]) -> FloatArray:
    """Return the significance of the selected events among the first events, for several numbers of events."""
    on, selected, alpha = detection.on[order], detection.selected[order], alpha_of(detection, order)
    if isinstance(alpha, np.ndarray):
        found = [count_events(on[:n], selected[:n], alpha[:n]) for n in n_so_far.tolist()]
        return np.array([one.significance for one in found])
    n_on, n_off = (np.append(0, np.cumsum(mask))[n_so_far] for mask in (selected & on, selected & ~on))
    return np.asarray(li_ma_significance(n_on, n_off, alpha, signed=True))


def threshold_steps(curve: ThresholdCurve, n_points: int = _MAX_POINTS) -> tuple[FloatArray, FloatArray]:
    """Return the starts of at most ``n_points`` steps of a curve, and their significances, negative for a deficit."""
    scores = curve.scores
    significance = np.asarray(li_ma_significance(curve.n_on, curve.n_off, curve.alpha, signed=True))
    margin = 0.02 * (scores[-1] - scores[0]) or 0.5
    start = np.append(scores[0] - margin, scores)
    if len(start) <= n_points:
        return start, significance
    borders = np.linspace(start[0], start[-1], (n_points - 1) // 4 + 1)[1:-1]
    interval = np.searchsorted(borders, start, side="right")
    values = pd.Series(significance).groupby(interval)
    ends = np.flatnonzero(np.diff(interval))
    marked = [0, curve.best_index, len(start) - 1]
    kept = np.unique(np.concatenate([marked, ends, ends + 1, values.idxmin(), values.idxmax()]))
    return start[kept], significance[kept]


def detection_steps(detection: Detection) -> tuple[FloatArray, FloatArray]:
    """Return the significance of hold-out events over common thresholds for all folds, as `threshold_steps` does."""
    known = np.flatnonzero(require_scores(detection))
    if detection.event_alpha is None:
        return threshold_steps(detection.curve)
    score = detection.score[known]
    margin = 0.02 * (score.max() - score.min()) or 0.5
    start = np.linspace(score.min() - margin, score.max(), _N_CUTS)
    n_passed = np.searchsorted(start, score, side="left")
    counts = count_cuts(detection.on[known], n_passed, detection.event_alpha[known], len(start))
    return start, np.array([one.significance for one in counts])


def histogram_by(detection: Detection, values: FloatArray, *, logarithmic: bool = False) -> OnOffHistogram | None:
    """Count selected events by a quantity, such as their energy; None if there is nothing to compare."""
    known = detection.selected & np.isfinite(values) & ((values > 0) | (not logarithmic))
    if np.count_nonzero(known) < _MIN_EVENTS or np.ptp(values[known]) == 0:
        return None
    low, high = values[known].min(), values[known].max()
    edges = (np.geomspace if logarithmic else np.linspace)(low, high, _N_BINS + 1)
    number = np.searchsorted(edges[1:-1], values, side="right")
    off_alpha = np.broadcast_to(alpha_of(detection, np.arange(len(values))), values.shape)
    on, off = known & detection.on, known & ~detection.on
    return _count_bins(detection, edges, number[on], number[off], off_alpha[off])


def largest_importances(detection: Detection, n_features: int) -> dict[str, float]:
    """Return the largest importances by feature; features without names are labelled x0, x1 and so on."""
    if detection.importances is None:
        remedy = "use a model with importances, such as a forest, without a step that creates other features"
        raise ValueError(f"the detection has no feature importances; {remedy}")
    names = detection.feature_names or tuple(f"x{number}" for number in range(len(detection.importances)))
    largest = np.argsort(-detection.importances, kind="stable")[:n_features]
    return {names[number]: float(detection.importances[number]) for number in largest}


def order_features(detection: Detection) -> list[FeatureHistogram]:
    """Sort the histograms of features by importance, if known."""
    found = list(detection.features or ())
    names, importances = detection.feature_names, detection.importances
    if names is None or importances is None:
        return found
    weight = dict(zip(names, importances.tolist(), strict=True))
    return sorted(found, key=lambda one: -weight.get(one.feature, float("inf")))
