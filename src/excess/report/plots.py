"""Plots of the events of a detection for papers: each function draws on axes, returns them, and can save the figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from excess._core.checks import BoolArray, FloatArray, as_threshold
from excess.report.checks import PathLike, check_detection
from excess.report.histograms import (
    require_angles,
    require_scores,
    score_histogram,
    theta_squared_histogram,
)
from excess.report.series import detection_steps, significance_over_time
from excess.report.style import (
    GREY,
    OFF,
    ON,
    OTHER,
    draw_on_off,
    label_significance,
    leave_room,
    mark_exploration,
    paper_axes,
)
from excess.stats.counts import OnOffCounts
from excess.validation.detection import Detection
from excess.validation.judged import alphas_of
from excess.validation.outcome import count_events

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_score_histogram", "plot_significance_over_time", "plot_theta_squared", "plot_threshold_curve"]

_LOG_FROM = 100.0
"""Ratio of the largest to the smallest non-zero count above which the axis is logarithmic."""


def plot_theta_squared(
    detection: Detection, *, threshold: float | None = None, ax: Axes | None = None, path: PathLike | None = None
) -> Axes:
    r"""Plot selected events by their squared angle to the source, and to the centres of the Off regions.

    Points are On events, filled steps are Off events times ``alpha``; errors are the square root of the counts. The
    counts in the legend are those of the detection: events inside the cut.

    Parameters
    ----------
    detection : Detection
        With angles; see ``Detection.annotated``. With angles of nearby events the plot extends to four times the cut.
    threshold : float or None, default=None
        Select by this threshold instead of by those of the models. The plot is then marked as exploration, because
        a significance is biased if the threshold was chosen by it.
    ax : Axes or None, default=None
        Axes to draw on; by default of a new figure as wide as a column of a paper.
    path : path-like or None, default=None
        File to save the figure to, as PNG, PDF or SVG by its suffix.

    Returns
    -------
    Axes
        The axes; the figure is ``ax.figure``.

    Examples
    --------
    >>> from excess import OnOffTreeClassifier, cross_val_detect
    >>> from excess.observation import observe, simulate_observation
    >>> from excess.report import plot_theta_squared
    >>> seen = observe(simulate_observation(20_000, 300, random_state=0))
    >>> tree = OnOffTreeClassifier(max_depth=3)
    >>> found = cross_val_detect(tree, seen.X, seen.on, alpha=seen.alpha, groups=seen.groups)
    >>> plot_theta_squared(seen.annotate(found)).get_xlabel()
    '$\\theta^2$ / deg$^2$'
    """
    check_detection(detection)
    if threshold is None:
        counts = detection.counts
    else:
        counts = _count(detection, detection.held_out & (detection.score > as_threshold("threshold", threshold)))
    shown = theta_squared_histogram(detection, threshold)
    _, cut = require_angles(detection)
    with paper_axes(ax, path) as ax:
        drawn = draw_on_off(ax, shown, counts)
        drawn.append(ax.axvline(cut, color=GREY, linestyle="--", linewidth=0.8, label=rf"cut: {cut:.3g} deg$^2$"))
        ax.set_xlim(0, shown.edges[-1] if shown.edges[-1] > cut else 1.02 * cut)
        ax.set_xlabel(r"$\theta^2$ / deg$^2$")
        leave_room(ax, shown, 1.35)
        how = detection.strategy if threshold is None else "exploration"
        title = rf"{counts.significance:.1f} $\sigma$ inside the cut ({how})"
        ax.legend(handles=drawn, title=title, loc="upper right", alignment="left")
        mark_exploration(ax, threshold)
    return ax


def plot_score_histogram(detection: Detection, *, ax: Axes | None = None, path: PathLike | None = None) -> Axes:
    r"""Plot the scores of hold-out events, On against Off, and the thresholds of the folds.

    Parameters
    ----------
    detection : Detection
        The events. Those without a score are left out.
    ax, path
        As for `plot_theta_squared`.

    Returns
    -------
    Axes
        The axes. The axis of counts is logarithmic if they differ by more than a factor of 100.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect, inject_label_noise
    >>> from excess.report import plot_score_histogram
    >>> X, y = make_classification(1000, weights=[0.9], random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_score_histogram(found).get_ylabel()
    'events (Off scaled by $\\alpha$ = 0.2)'
    """
    check_detection(detection)
    shown = score_histogram(detection)
    marks = _fold_thresholds(detection)
    with paper_axes(ax, path) as ax:
        highest = np.maximum(shown.on, shown.background)
        logarithmic = highest.max() > _LOG_FROM * highest[highest > 0].min()
        if logarithmic:
            ax.set_yscale("log", nonpositive="clip")
        drawn = draw_on_off(ax, shown, _count(detection, require_scores(detection)))
        if logarithmic:
            lowest = min(float(np.min(alphas_of(detection))), 1.0)  # height of a single event
            ax.set_ylim(0.5 * lowest, highest.max() ** 1.4 / (0.5 * lowest) ** 0.4)
        else:
            leave_room(ax, shown, 1.4)
        for value in marks.values:
            ax.axvline(value, color=GREY, linewidth=0.6, linestyle="--")
        style = "--" if len(marks.values) else "none"
        drawn += ax.plot([], [], color=GREY, linewidth=0.6, linestyle=style, label=marks.label)
        ax.set_xlabel("score of hold-out events")
        ax.legend(handles=drawn, loc="upper right")
    return ax


def plot_threshold_curve(
    detection: Detection, *, threshold: float | None = None, ax: Axes | None = None, path: PathLike | None = None
) -> Axes:
    """Plot the significance of hold-out events over all thresholds, the same for all folds, and the folds' thresholds.

    The curve is for exploration. Its maximum is biased, because it is chosen on the events that are counted. The result
    of the cut is the dashed line: the significance of events that were selected by thresholds tuned on other events.
    The likelihood has no threshold, so it is not shown. Where exposure ratios differ between events, each event has its
    own, and the curve is computed at 250 thresholds.

    Parameters
    ----------
    detection : Detection
        The events. Those without a score are selected by no threshold.
    threshold : float or None, default=None
        Mark this threshold as well. The plot is then marked as exploration.
    ax, path
        As for `plot_theta_squared`.

    Returns
    -------
    Axes
        The axes. At most 2,000 points of a curve are drawn, including its maximum.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect, inject_label_noise
    >>> from excess.report import plot_threshold_curve
    >>> X, y = make_classification(1000, weights=[0.9], random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_threshold_curve(found, threshold=0.4).get_title()
    'exploration: score > 0.4'
    """
    check_detection(detection)
    if threshold is not None and not np.isfinite(as_threshold("threshold", threshold)):
        raise ValueError(f"threshold must be finite to be marked, got {threshold}")
    require_scores(detection)
    result, steps = detection.counts.significance, detection_steps(detection)
    marks = _fold_thresholds(detection)
    with paper_axes(ax, path) as ax:
        ax.plot(*steps, color=OTHER, drawstyle="steps-post", label="one threshold for all folds")
        label = rf"tuned cut: {result:.1f} $\sigma$ ({detection.strategy})"
        ax.axhline(result, color=ON, linestyle="--", label=label)
        if threshold is not None:
            value = max(_count(detection, require_scores(detection) & (detection.score > threshold)).significance, 0.0)
            ax.plot([threshold, threshold], [0, value], color=OFF, linewidth=0.6)
            ax.plot(threshold, value, "o", color=OFF, label=rf"exploration: {value:.1f} $\sigma$")
        top = max(steps.significance.max(), result, 1.0)
        # from a little below 0, so that a result of 0 can be seen, up to the space of the legend
        ax.set_ylim(min(0.0, result) - 0.03 * top, (1.4 if threshold is None else 1.5) * top)
        ax.plot(
            marks.values,
            np.zeros(len(marks.values)),
            color=GREY,
            marker="|" if len(marks.values) else "",
            markersize=9,
            linestyle="none",
            transform=ax.get_xaxis_transform(),
            clip_on=False,
            label=marks.label,
        )
        ax.set_xlabel("threshold of the score")
        label_significance(ax, detection.alpha, differs=detection.event_alpha is not None)
        ax.legend(loc="upper right")
        mark_exploration(ax, threshold)
    return ax


def plot_significance_over_time(detection: Detection, *, ax: Axes | None = None, path: PathLike | None = None) -> Axes:
    """Plot the significance of hold-out events up to each moment of the observation, by the declared statistic.

    The significance of a steady source grows with the square root of time; the dashed line shows this growth up to the
    result.

    Parameters
    ----------
    detection : Detection
        With times, which are shown in hours; otherwise the number of events is shown. See ``Detection.annotated``.
    ax, path
        As for `plot_theta_squared`.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect, inject_label_noise
    >>> from excess.report import plot_significance_over_time
    >>> X, y = make_classification(1000, weights=[0.9], random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_significance_over_time(found).get_xlabel()
    'hold-out events'
    >>> plot_significance_over_time(found.annotated(time=range(1000))).get_xlabel()
    'time of observation / h'
    """
    check_detection(detection)
    shown = significance_over_time(detection)
    with paper_axes(ax, path) as ax:
        end, result = shown.exposure[-1], shown.significance[-1]
        ax.axhline(0, color=GREY, linewidth=0.6)
        label = f"{detection.statistic}, hold-out events ({detection.strategy})"
        ax.plot(np.append(0, shown.exposure), np.append(0, shown.significance), color=ON, label=label)
        steady = np.linspace(0, end, 101)
        ax.plot(steady, result * np.sqrt(steady / end), color=GREY, linestyle="--", label="steady source")
        ax.plot(end, result, "o", color=ON, label=rf"all of them: {result:.1f} $\sigma$", clip_on=False)
        ax.set_xlim(0, end)
        ax.set_xlabel("time of observation / h" if shown.unit == "h" else "hold-out events")
        label_significance(ax, detection.alpha, differs=detection.event_alpha is not None)
        ax.legend(loc="upper left" if result >= 0 else "lower left")
    return ax


def _count(detection: Detection, mask: BoolArray) -> OnOffCounts:
    """Count some events, each with its own exposure ratio where it differs."""
    return count_events(detection.on, mask, alphas_of(detection))


class _Marks(NamedTuple):
    """Finite thresholds of the folds, and a label about all of them."""

    values: FloatArray
    label: str


def _fold_thresholds(detection: Detection) -> _Marks:
    thresholds = detection.thresholds
    finite = thresholds[np.isfinite(thresholds)]
    n_folds = len(thresholds)
    if n_folds == 1:
        label = "threshold"
    elif len(finite) == n_folds:
        label = f"thresholds of {n_folds} folds"
    else:
        label = f"thresholds of {len(finite)} of {n_folds} folds"
    others = [
        (np.isposinf(thresholds), "nothing selected"),
        (np.isneginf(thresholds), "all selected"),
        (np.isnan(thresholds), "none tuned"),
    ]
    notes = [what if n_folds == 1 else f"{mask.sum()}: {what}" for mask, what in others if mask.any()]
    return _Marks(finite, f"{label} ({', '.join(notes)})" if notes else label)
