"""Figures: angles, scores, thresholds, time, groups, bins, null tests, features, the sky, simulations, efficiencies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from excess._utils.checks import FloatArray, as_choice, as_int, as_threshold
from excess.detection._histograms import FeatureHistogram, OnOffBins
from excess.detection._null_test import NullTest
from excess.detection._result import Detection
from excess.detection._simulation_check import FeatureComparison, SimulationAgreement
from excess.report import _series as series
from excess.report import _style as style
from excess.report._style import GREY, OFF, ON, OTHER, PathLike
from excess.stats._significance import EventFraction, OnOffCounts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_LOG_FROM = 100.0  # ratio of the largest to the smallest non-zero count above which the axis is logarithmic
_MAX_TICKS = 8  # maximum number of groups labelled below a figure; more than half of it are rotated
_LONG_NAME = 12
MAX_CIRCLES = 40  # maximum number of Off regions drawn in a map; none if there are more
_SKY_LABELS = {"significance": "significance / σ", "excess": "excess / events", "counts": "events"}
_LOOKS = {  # colours and labels of observed and simulated events of each sample
    "signal": (ON, OTHER, "On - α Off, by P(signal)", "simulated gammas, by P(signal)"),
    "background": (OFF, GREY, "Off", "simulated protons"),
}
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours of lines that colour-blind readers can distinguish; further lines have the same ones and another marker."""
_MARKERS = "osD^v<>"
_LARGEST_DECLINATION = 80.0  # declination of a source in deg up to which a map is labelled by right ascension
_LIMITS = (-0.03, 1.03)  # limits of an axis of fractions, with margins for points at 0 and 1
_FEW_DECADES = 3.5
_SPREAD = 0.5  # fraction of a bin over which the points of several lines are spread, to separate their errors


@style.figure()
def plot_theta_squared(ax: Axes, detection: Detection, *, threshold: float | None = None) -> None:
    """Plot selected events by their squared angle to the source and to the centres of the Off regions.

    Points are On events, filled steps are Off events times ``alpha``; the legend counts events inside the cut. If a
    point spread function was fitted, the line is its profile over a flat background.

    Parameters
    ----------
    detection : Detection
        With angles; see ``Detection.annotated``. With angles of nearby events the plot extends to four times the cut.
    threshold : float or None, default=None
        Select by this threshold instead of the tuned ones; the plot is then marked as exploration.

    Examples
    --------
    >>> from excess import OnOffTreeClassifier, cross_val_detect
    >>> from excess.dataset import OnOffDataset, simulate_observation
    >>> from excess.report import plot_theta_squared
    >>> seen = OnOffDataset.from_files(simulate_observation(20_000, 300, random_state=0))
    >>> tree = OnOffTreeClassifier(max_depth=3)
    >>> found = cross_val_detect(tree, seen.X, seen.on, alpha=seen.alpha, groups=seen.groups)
    >>> plot_theta_squared(seen.annotate(found)).get_xlabel()
    'θ² / deg²'
    """
    counts = detection.counts
    if threshold is not None:
        counts = detection.count(detection.held_out & (detection.score > as_threshold("threshold", threshold)))
    shown = series.theta_squared_histogram(detection, threshold)
    _, cut = series.require_angles(detection)
    drawn = _draw_on_off(ax, shown, counts)
    how, top = detection.strategy if threshold is None else "exploration", 0.0
    title = [f"{counts.significance:.1f} σ inside the cut ({how})"]
    if (profile := series.fitted_profile(detection, counts, shown.edges)) is not None:
        drawn += ax.plot(*profile, color=OTHER, label="fitted profile")
        top = profile[1].max()
    title.append(f"excess {style.with_error(counts.excess, counts.excess_error)}")
    title.append(f"On {counts.n_on:,}, Off {counts.n_off:,}, {style.alpha_label(shown.alpha)}")
    if profile is not None and detection.containment_radius is not None:
        title.append(f"68 % of signal within {style.with_error(*detection.containment_radius, '.3f')} deg")
    drawn.append(ax.axvline(cut, color=GREY, linestyle="--", linewidth=0.8, label=f"cut: {cut:.3g} deg²"))
    ax.set_xlim(0, shown.edges[-1] if shown.edges[-1] > cut else 1.02 * cut)
    ax.set_xlabel("θ² / deg²")
    _leave_room(ax, shown, 1.6, top)
    options: dict[str, Any] = {"loc": "upper right", "alignment": "left", "ncols": 2, "columnspacing": 1.0}
    options |= {"frameon": True, "facecolor": "none", "edgecolor": GREY, "fancybox": False}
    legend = ax.legend(handles=drawn, title="\n".join(title), **options)
    legend.get_frame().set_linewidth(0.4)
    legend.set_in_layout(False)  # it may be wider than small axes of the caller
    style.mark_exploration(ax, threshold)


@style.figure()
def plot_score_histogram(ax: Axes, detection: Detection) -> None:
    """Plot the scores of hold-out events, On and scaled Off, and the thresholds of the folds.

    Parameters
    ----------
    detection : Detection
        Detection; events without a score are excluded.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect
    >>> from excess.report import plot_score_histogram
    >>> X, on = make_classification(1000, weights=[0.8], random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_score_histogram(found).get_ylabel()
    'events (Off scaled by α = 0.2)'
    """
    shown = series.score_histogram(detection)
    marks, label = _fold_thresholds(detection)
    highest = np.maximum(shown.on, shown.background)
    drawn = _draw_on_off(ax, shown, detection.count(series.require_scores(detection)))
    if highest.max() > _LOG_FROM * highest[highest > 0].min():
        lowest = min(float(np.min(detection.exposure_ratio)), 1.0)  # height of a single event
        style.draw_logarithmic_counts(ax, lowest, highest.max(), 0.4)
    else:
        _leave_room(ax, shown, 1.4)
    line: dict[str, Any] = {"linewidth": 0.6, "linestyle": "--" if len(marks) else "none", "label": label}
    drawn.append(ax.vlines(marks, 0, 1, GREY, transform=ax.get_xaxis_transform(), **line))
    ax.set_xlabel("score of hold-out events")
    ax.legend(handles=drawn, loc="upper right")


@style.figure()
def plot_threshold_curve(ax: Axes, detection: Detection, *, threshold: float | None = None) -> None:
    """Plot the significance of hold-out events against a common threshold, and the thresholds of the folds.

    The curve is for exploration: its maximum is biased, because it is selected on the counted events. The dashed
    line is the result of the cut: events selected by thresholds tuned on other events. If exposure ratios differ
    between events, the curve is computed at 250 thresholds. Values below 0 are deficits.

    Parameters
    ----------
    detection : Detection
        Detection; events without a score are not selected by any threshold.
    threshold : float or None, default=None
        Also mark this threshold. The plot is then marked as exploration.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect
    >>> from excess.report import plot_threshold_curve
    >>> X, on = make_classification(1000, weights=[0.8], random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_threshold_curve(found, threshold=0.4).get_title()
    'exploration: score > 0.4'
    """
    if threshold is not None and not np.isfinite(as_threshold("threshold", threshold)):
        raise ValueError(f"threshold must be finite to be marked, got {threshold}")
    result, (start, significance) = detection.counts.significance, series.detection_steps(detection)
    marks, label = _fold_thresholds(detection)
    ax.plot(start, significance, color=OTHER, drawstyle="steps-post", label="one threshold for all folds")
    ax.axhline(result, color=ON, linestyle="--", label=f"tuned cut: {result:.1f} σ ({detection.strategy})")
    if threshold is not None:
        value = detection.count(series.require_scores(detection) & (detection.score > threshold)).significance
        ax.plot([threshold, threshold], [0, value], color=OFF, linewidth=0.6)
        ax.plot(threshold, value, "o", color=OFF, label=f"exploration: {value:.1f} σ")
    top = max(significance.max(), result, 1.0)
    # from slightly below 0, to show a result of 0, up to the space of the legend
    ax.set_ylim(min(0.0, result, significance.min()) - 0.03 * top, (1.4 if threshold is None else 1.5) * top)
    ax.hlines(0, 0, 1, GREY, linewidth=0.6, transform=ax.get_yaxis_transform())
    line: dict[str, Any] = {"linestyle": "none", "transform": ax.get_xaxis_transform(), "clip_on": False}
    marker = "|" if len(marks) else ""
    ax.plot(marks, np.zeros(len(marks)), color=GREY, marker=marker, markersize=9, label=label, **line)
    ax.set_xlabel("threshold of the score")
    style.label_significance(ax, detection.alpha, differs=detection.event_alpha is not None)
    ax.legend(loc="upper right")
    style.mark_exploration(ax, threshold)


@style.figure()
def plot_significance_over_time(ax: Axes, detection: Detection) -> None:
    """Plot the significance of hold-out events up to each time of the observation, by the declared statistic.

    The dashed line shows the growth with the square root of time of a steady source up to the result.

    Parameters
    ----------
    detection : Detection
        With times, plotted in hours; otherwise the number of events is used. See ``Detection.annotated``.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect
    >>> from excess.report import plot_significance_over_time
    >>> X, on = make_classification(1000, weights=[0.8], random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_significance_over_time(found).get_xlabel()
    'hold-out events'
    >>> plot_significance_over_time(found.annotated(time=range(1000))).get_xlabel()
    'time of observation / h'
    """
    shown = series.significance_over_time(detection)
    end, result = shown.exposure[-1], shown.significance[-1]
    ax.axhline(0, color=GREY, linewidth=0.6)
    label = f"{detection.statistic}, hold-out events ({detection.strategy})"
    ax.plot(np.append(0, shown.exposure), np.append(0, shown.significance), color=ON, label=label)
    steady = np.linspace(0, end, 101)
    ax.plot(steady, result * np.sqrt(steady / end), color=GREY, linestyle="--", label="steady source")
    ax.plot(end, result, "o", color=ON, label=f"all of them: {result:.1f} σ", clip_on=False)
    ax.set_xlim(0, end)
    ax.set_xlabel("time of observation / h" if shown.unit == "h" else "hold-out events")
    style.label_significance(ax, detection.alpha, differs=detection.event_alpha is not None)
    ax.legend(loc="upper left" if result >= 0 else "lower left")


@style.figure(style.TALL)
def plot_likelihood(ax: Axes, detection: Detection) -> None:
    """Plot hold-out events by their likelihood ratio, and the significance of each bin.

    In the upper panel, points are On events, filled steps are Off events times ``alpha``, and the line adds the signal
    expected by the likelihood. In the lower panel, the last axes of the figure, bars are the Li & Ma significance of
    each bin; the cut counts the filled bins, of which it selects at least half of the events, as one bin.

    Parameters
    ----------
    detection : Detection
        With likelihood ratios. All bins except that of ratio 0 expect about the same number of signal events.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffForestClassifier, cross_val_detect
    >>> from excess.report import plot_likelihood
    >>> X, on = make_classification(1000, weights=[0.8], random_state=0)
    >>> forest = OnOffForestClassifier(20, min_samples_leaf=20, random_state=0)
    >>> found = cross_val_detect(forest, X, on, alpha=1 / 5)
    >>> plot_likelihood(found).figure.axes[-1].get_xlabel()
    'likelihood ratio (signal / background density)'
    """
    shown = series.likelihood_bins(detection)
    places = np.arange(len(shown.n_on))
    _draw_bins_of_ratio(ax, shown, detection)
    below = style.split_axes(ax)
    inside = shown.mostly_selected
    for mask, fill, what in ((inside, OTHER, "in the cut"), (~inside, "none", "not in the cut")):
        below.bar(places[mask], shown.significance[mask], 0.8, color=fill, edgecolor=OTHER, linewidth=0.8, label=what)
    below.axhline(0, color=GREY, linewidth=0.6)
    low, high = min(shown.significance.min(), 0.0), max(shown.significance.max(), 1.0)
    below.set_ylim(1.1 * low, 1.7 * high)
    found = detection.outcome.significances
    title = f"cut: filled bins as one, {found['cut']:.1f} σ" + "\n"
    title += f"likelihood: all bins, each by its weight, {found['likelihood']:.1f} σ"
    below.legend(title=title, loc="upper left", alignment="left", ncols=2)
    below.set_ylabel("significance / σ")
    below.set_xlabel("likelihood ratio (signal / background density)")
    ticks = shown.ticks()
    below.set_xticks(list(ticks), list(ticks.values()))
    below.set_xlim(-0.5, len(places) - 0.5)


def _draw_bins_of_ratio(ax: Axes, shown: series.LikelihoodBins, detection: Detection) -> None:
    """Draw On, scaled Off, and scaled Off with the fitted signal in equally wide bins of the likelihood ratio."""
    places = np.arange(len(shown.n_on))
    edges = np.append(places, len(places)) - 0.5
    off, total = shown.background, shown.background + shown.signal
    style.draw_off(ax, edges, off, shown.background_error, f"Off × α: {off.sum():,.1f}")
    label = f"with fitted signal: {shown.signal.sum():+,.1f}"
    style.draw_steps(ax, total, edges, baseline=None, fill=False, color=OTHER, linewidth=1, label=label)
    style.draw_points(ax, places, shown.n_on, np.sqrt(shown.n_on), ON, f"On: {shown.n_on.sum():,}")
    highest = max((shown.n_on + np.sqrt(shown.n_on)).max(), total.max(), 1.0)
    heights = np.concatenate([shown.n_on, off])
    lowest = heights[heights > 0].min(initial=highest)
    if highest > 10 * lowest:
        style.draw_logarithmic_counts(ax, lowest, highest, 0.35)
    else:
        ax.set_ylim(0, 1.4 * highest)
    common = detection.alpha if detection.event_alpha is None else None
    ax.set_ylabel(f"events (Off scaled by {style.alpha_label(common)})")
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], loc="upper right")


def plot_light_curve(
    detection: Detection, *, by: str = "group", ax: Axes | None = None, path: PathLike | None = None
) -> Axes:
    """Plot the signal events per hour of each group or night, by the likelihood, with intervals of one sigma.

    Without observation times, plot the signal strength over its mean. The legend shows the p-value of a steady source.

    Parameters
    ----------
    detection : Detection
        With likelihood ratios and at least two groups, such as nights.
    by : {"group", "night"}, default="group"
        Grouping of the points.
    ax, path
        As for `plot_theta_squared`.

    Returns
    -------
    Axes
        With time as modified Julian date if known. The legend counts groups without a bounded interval or a time.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffForestClassifier, cross_val_detect
    >>> from excess.report import plot_light_curve
    >>> X, on = make_classification(1500, weights=[0.8], random_state=0)
    >>> night = [20131101 + i // 500 for i in range(1500)]
    >>> forest = OnOffForestClassifier(20, min_samples_leaf=20, random_state=0)
    >>> found = cross_val_detect(forest, X, on, alpha=1 / 5, groups=night)
    >>> [label.get_text() for label in plot_light_curve(found).get_xticklabels()]
    ['20131101', '20131102', '20131103']
    """
    style.check_detection(detection)
    shown, steady = series.light_curve(detection, by), detection.compare_rates(by)
    n_known, n_all = len(shown), len(detection.counts_by_group if by == "group" else detection.counts_by_night)
    timed = "rate" in shown
    mean = 1.0 if not timed else steady.mean if steady is not None else float("nan")
    label = f"steady source: {mean:.3g} / h" if timed else "mean"
    label += "" if steady is None else f" (p = {steady.p_value:.2g})"
    some = "" if n_known == n_all else f" ({n_known} of {n_all}; others have no bound or no time)"
    value, low, high = shown.iloc[:, :3].to_numpy().T
    with style.paper_axes(ax, path, bottom=0.38 if "mjd" in shown else _space_below(shown.index)) as ax:
        ax.axhline(mean, color=GREY, linestyle="--", linewidth=0.8, label=label)
        if "mjd" in shown:
            style.draw_points(ax, shown["mjd"].to_numpy(), value, (value - low, high - value), OTHER, f"{by}s{some}")
            ax.ticklabel_format(axis="x", useOffset=False)
            _set_height(ax, low, high)
        else:
            _draw_groups(ax, list(shown.index), (low, value, high), OTHER, f"{by}s{some}")
        ax.set_xlabel("time / MJD" if "mjd" in shown else by)
        ax.set_ylabel("signal events / h" if timed else "signal strength / mean")
    return ax


def plot_group_excess(detection: Detection) -> Axes:
    """Plot the excess of the selected events of each group, with its error."""
    counts = detection.counts_by_group
    excess, error = np.array([(one.excess, one.excess_error) for one in counts.values()]).reshape(-1, 2).T
    with style.paper_axes(None, None, bottom=_space_below(counts)) as ax:
        ax.axhline(0, color=GREY, linewidth=0.6)
        _draw_groups(ax, list(counts), (excess - error, excess, excess + error), OFF, "groups")
        ax.set_xlabel("group")
        ax.set_ylabel("excess / events")
    return ax


def _draw_groups(
    ax: Axes, labels: list[Any], values: tuple[FloatArray, FloatArray, FloatArray], color: str, label: str
) -> None:
    """Draw a point with lower and upper end for each group, and label some of the groups."""
    low, middle, high = values
    style.draw_points(ax, np.arange(len(labels)), middle, (middle - low, high - middle), color, label)
    step = -(-len(labels) // _MAX_TICKS) or 1
    ax.set_xticks(np.arange(len(labels))[::step], [style.as_text(one) for one in labels[::step]])
    if len(labels[::step]) > _MAX_TICKS // 2:
        style.rotate_labels(ax)
    ax.set_xlim(-0.6, max(len(labels), 1) - 0.4)
    _set_height(ax, low, high)


def _set_height(ax: Axes, low: FloatArray, high: FloatArray) -> None:
    """Leave room for the legend above the points."""
    bottom, top = min([0.0, *low]), max([1.0, *high])
    ax.set_ylim(bottom - 0.05 * (top - bottom), top + 0.3 * (top - bottom))
    ax.legend(loc="upper left")


def _space_below(labels: Iterable[Any]) -> float | None:
    """Return the space below axes with these groups in inches; None if it depends on long names."""
    lengths = [len(str(label)) for label in labels]
    if max(lengths, default=0) > _LONG_NAME:
        return None
    return 0.72 if len(lengths) > _MAX_TICKS // 2 else 0.38


@style.figure(style.TALL, bottom=None)
def plot_bins(ax: Axes, detection: Detection) -> None:
    """Plot the excess and both significances in bins of a column, such as energy.

    The axes are divided into two panels; the lower one is the last axes of the figure.

    Parameters
    ----------
    detection : Detection
        With bins.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffCounts, OnOffTreeClassifier, cross_val_detect
    >>> from excess.report import plot_bins
    >>> from excess.detection import DetectionBins, Outcome
    >>> X, on = make_classification(600, weights=[0.8], random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> outcomes = tuple(Outcome(OnOffCounts(n, 30, 0.2), None, "cut") for n in (8, 20))
    >>> bins = DetectionBins("energy", (0.5, 1.0, 5.0), outcomes, ("", ""))
    >>> plot_bins(replace(found, bins=bins)).figure.axes[-1].get_xlabel()
    'energy'
    """
    bins = detection.bins
    if bins is None:
        raise ValueError("the detection has no bins of a column, such as energy")
    places = np.arange(len(bins.outcomes))
    excess, error = np.array([(one.counts.excess, one.counts.excess_error) for one in bins.outcomes]).T
    found = {name: np.array([one.significances[name] for one in bins.outcomes]) for name in ("cut", "likelihood")}
    known = [name for name, values in found.items() if np.isfinite(values).any()]
    ax.axhline(0, color=GREY, linewidth=0.6)
    style.draw_points(ax, places, excess, error, ON)
    ax.set_ylabel("excess / events")
    below = style.split_axes(ax)
    width = 0.8 / len(known)
    for number, name in enumerate(known):
        left = places - 0.4 + width * (number + 0.5)
        below.bar(left, found[name], width, color={"cut": OFF, "likelihood": OTHER}[name], label=name)
    below.axhline(0, color=GREY, linewidth=0.6)
    below.set_xticks(places, [style.as_text(label) for label in bins.labels])
    if len(places) > 3:
        style.rotate_labels(below)
    below.set_ylabel("significance / σ")
    below.set_xlabel(style.as_text(bins.column))
    below.legend(loc="upper left", ncols=2)
    low, high = below.get_ylim()
    below.set_ylim(low, high + 0.25 * (high - low))


@style.figure()
def plot_null_test(ax: Axes, null_test: NullTest, *, detection: Detection | None = None) -> None:
    """Plot the significance of the search in each Off region by the declared statistic.

    The bands contain 68 % and 95 % of a standard normal distribution.

    Parameters
    ----------
    null_test : NullTest
        The searches in the Off regions.
    detection : Detection or None, default=None
        The search in the On region, for comparison.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import OnOffTreeClassifier, null_test
    >>> from excess.report import plot_null_test
    >>> rng = np.random.default_rng(0)
    >>> X, region = rng.normal(size=(6000, 4)), rng.integers(0, 6, 6000)
    >>> tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=50)
    >>> plot_null_test(null_test(tree, X, region, n_regions=6, random_state=0)).get_ylabel()
    'significance / σ (α = 0.25)'
    """
    if not isinstance(null_test, NullTest):
        raise TypeError(f"null_test must be a NullTest, got {type(null_test).__name__}{style.pick_one(null_test)}")
    if not null_test.counts:
        raise ValueError("the null test has no regions; run excess.null_test")
    if detection is not None:
        style.check_detection(detection)
    for width, shade in ((2, 0.15), (1, 0.25)):
        ax.axhspan(-width, width, color=GREY, alpha=shade, linewidth=0, label=f"chance: ±{width} σ")
    ax.axhline(0, color=GREY, linewidth=0.6)
    values = null_test.significances
    places = np.arange(1, len(values) + 1)
    statistic = next(iter(null_test.outcomes.values())).statistic
    ax.plot(places, values, "o", color=OFF, label=f"Off regions ({statistic})")
    ticks = {int(place): str(region) for place, region in zip(places, null_test.counts, strict=True)}
    if detection is not None:
        sigma = detection.significance
        mean = "" if detection.event_alpha is None else "mean "
        how = f"{detection.statistic}, {detection.strategy}, {mean}{style.alpha_label(detection.alpha)}"
        ax.plot(0, sigma, "D", color=ON, label=f"On: {sigma:.1f} σ ({how})")
        ticks = {0: "On", **ticks}
        values = np.append(values, sigma)
    low, high = min(-3.0, values.min()), max(3.0, values.max())
    # the upper third is for the legend: On, at the left, may reach into it, but no Off region
    roof = low + (max(3.0, null_test.significances.max()) - low) / 0.65
    ax.set_ylim(low - 0.05 * (high - low), max(roof, high + 0.05 * (high - low)))
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.set_xlim(min(ticks) - 0.6, max(ticks) + 0.6)
    ax.set_xlabel("region taken as On")
    style.label_significance(ax, null_test.alpha)
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], loc="upper right")


def plot_models(names: Sequence[str], significances: Mapping[str, Sequence[float]], *, pooled: bool) -> Axes:
    """Plot the significance of each model by each statistic as bars; NaN for none."""
    places, height = np.arange(len(names)), 0.8 / len(significances)
    with style.paper_axes(
        None, None, (style.FIGURE_SIZE[0], 0.6 + (0.3 if len(significances) == 1 else 0.42) * len(names)), bottom=None
    ) as ax:
        for number, (statistic, values) in enumerate(significances.items()):
            known = np.isfinite(values)
            at, widths = (places - 0.4 + height * (number + 0.5))[known], np.array(values)[known]
            color = {"cut": OFF, "likelihood": OTHER}[statistic]
            bars = ax.barh(at, widths, 0.92 * height, color=color, label=statistic)
            ax.bar_label(bars, [f"{value:.1f}" for value in widths], padding=2, fontsize=7)
        # names may be paths of model files, which differ at the end
        ax.set_yticks(places, [style.as_text(name if len(name) <= 24 else f"…{name[-23:]}") for name in names])
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.margins(x=0.1)
        ax.set_xlabel(f"{'pooled ' if pooled else ''}significance / σ")
        if len(significances) > 1:
            ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return ax


def _draw_on_off(ax: Axes, shown: series.OnOffHistogram, counts: OnOffCounts) -> list[Any]:
    """Draw On as points and Off times alpha as filled steps, both with errors, and return them for the legend."""
    label = f"Off × α: {counts.background:,.1f}"
    steps = style.draw_off(ax, shown.edges, shown.background, shown.background_error, label)
    centers, label = style.bin_centers(shown.edges), f"On: {counts.n_on:,}"
    points = style.draw_points(ax, centers, shown.on, np.sqrt(shown.on), ON, label)
    ax.set_xlim(shown.edges[0], shown.edges[-1])
    ax.set_ylabel(f"events (Off scaled by {style.alpha_label(shown.alpha)})")
    return [points, steps]


def _leave_room(ax: Axes, shown: series.OnOffHistogram, factor: float, least: float = 1.0) -> None:
    """Start the axis of counts at 0, and end it above them with room for the legend."""
    highest = np.maximum(shown.on + np.sqrt(shown.on), shown.background + shown.background_error).max()
    ax.set_ylim(0, factor * max(highest, least, 1.0))


@style.figure(bottom=None)
def plot_feature_importances(ax: Axes, detection: Detection, *, n_features: int = 15) -> None:
    """Plot feature importances, averaged over the models of all folds, in descending order.

    Parameters
    ----------
    detection : Detection
        Of models with importances. Features without names are labelled x0, x1 and so on.
    n_features : int, default=15
        Maximum number of features to show.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect
    >>> from excess.report import plot_feature_importances
    >>> X, on = make_classification(1000, weights=[0.8], random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_feature_importances(found, n_features=10).get_xlabel()
    'importance (10 of 20 features)'
    """
    shown = series.largest_importances(detection, as_int("n_features", n_features, minimum=1))
    n_shown, n_all = len(shown), 0 if detection.importances is None else len(detection.importances)
    ax.barh(np.arange(n_shown), list(shown.values()), color=OTHER, height=0.7)
    ax.set_yticks(np.arange(n_shown), [style.as_text(name) for name in shown])
    ax.set_ylim(n_shown - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    if not any(shown.values()):
        ax.set_xlim(0, 1)
    some = "" if n_shown == n_all else f" ({n_shown} of {n_all} features)"
    ax.set_xlabel(f"importance{some}")


def plot_feature_histograms(detection: Detection, *, n_features: int = 8, path: PathLike | None = None) -> list[Axes]:
    """Plot On and scaled Off in the most important features, all hold-out events above, selected ones below.

    Points are On events, filled steps are Off events times ``alpha``. The outermost bins include all values beyond.

    Parameters
    ----------
    detection : Detection
        With histograms of features; see ``Detection.annotated``.
    n_features : int, default=8
        Maximum number of features to show, four in a row.
    path : path-like or None, default=None
        File to save the figure to, as PNG, PDF or SVG by its suffix.

    Returns
    -------
    list of Axes
        Two for each feature; the figure is ``axes[0].figure``.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect
    >>> from excess.report import plot_feature_histograms
    >>> X, on = make_classification(600, 4, weights=[0.8], random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5).annotated(features=X)
    >>> len(plot_feature_histograms(found))
    8
    """
    style.check_detection(detection)
    shown = series.order_features(detection)[: as_int("n_features", n_features, minimum=1)]
    if not shown:
        raise ValueError("the detection has no histograms of features; pass features to detection.annotated(...)")
    places = [(2 * row + stage, column) for row, column in style.panel_places(len(shown)) for stage in (0, 1)]
    rows = [(0.08, 0.85, 0.05), (0.05, 0.8, 0.4)] * (1 + places[-1][0] // 2)
    with style.paper_panels(places, rows, path) as axes:
        for number, one in enumerate(shown):
            for ax, bins, what in zip(axes[2 * number :], (one.before, one.after), ("all", "selected"), strict=False):
                _draw_feature(ax, one, bins)
                if places[2 * number][1] == 0:
                    ax.set_ylabel(f"{what} events", fontsize=7)
            axes[2 * number].xaxis.set_visible(False)
    return axes


def _draw_feature(ax: Axes, one: FeatureHistogram, bins: OnOffBins) -> None:
    """Draw On and scaled Off in one feature."""
    off, error = bins.background, bins.background_error
    style.draw_off(ax, one.edges, off, error, "Off × α")
    if one.logarithmic:
        style.draw_logarithmic(ax, one.edges[0], one.edges[-1])
    middle = style.bin_centers(one.edges, logarithmic=one.logarithmic)
    style.draw_points(ax, middle, bins.n_on, np.sqrt(bins.n_on), ON, "On", markersize=2)
    ax.set_xlim(one.edges[0], one.edges[-1])
    ax.set_ylim(0, 1.1 * max(1.0, float((bins.n_on + np.sqrt(bins.n_on)).max()), float((off + error).max())))
    style.label_feature(ax, one.feature)


def plot_sky_map(
    detection: Detection,
    *,
    events: str = "selected",
    quantity: str = "significance",
    ax: Axes | None = None,
    path: PathLike | None = None,
) -> Axes:
    """Plot a sky map around the source, with the On region (solid) and the Off regions (dotted).

    Excess and significance refer to the events within the radius of a region around each pixel, so neighbouring pixels
    share events. The background is estimated from events at the same distance from the pointing, away from the source.

    Parameters
    ----------
    detection : Detection
        With a map; `excess.analysis.detect` creates one if files have sky positions and the source is known.
    events : {"selected", "all"}, default="selected"
        Events to map.
    quantity : {"significance", "excess", "counts"}, default="significance"
        Quantity to show.
    ax, path
        As for `plot_theta_squared`.

    Returns
    -------
    Axes
        The axes; the colour bar is the last axes of the figure.

    Examples
    --------
    >>> from excess.analysis import OnOffDataset, detect
    >>> from excess.config import AnalysisConfig
    >>> from excess.dataset import simulate_observation
    >>> from excess.report import plot_sky_map
    >>> crab = {"source_ra": 83.63, "source_dec": 22.01}
    >>> events = simulate_observation(20_000, 300, source=(83.63, 22.01), random_state=0)
    >>> run = detect(OnOffDataset.from_files(events, AnalysisConfig(regions=crab)), "tree", null_tests=False)
    >>> plot_sky_map(run.detections["tree"], events="all").get_xlabel()
    'right ascension / deg'
    """
    style.check_detection(detection)
    sky = detection.sky
    if sky is None:
        needs = "sky positions of events and pointing, and source_ra and source_dec"
        raise ValueError(f"the detection has no sky map, which requires {needs}")
    as_choice("quantity", quantity, tuple(_SKY_LABELS))
    as_choice("events", events, ("selected", "all"))
    if events not in sky.layers:
        raise ValueError(f"there are too few {events} events for a map")
    layer = sky.layers[events]
    values = getattr(layer, quantity)
    with style.paper_axes(ax, path, (3.4, 2.75)) as axes:
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.patches import Circle

        # transparent where there are no data, for any background
        # for a bright source, saturate the scale to keep the background visible
        diverging = quantity != "counts"
        shades = [(0, OFF), (0.5, f"{OFF}00"), (0.5, f"{ON}00"), (1, ON)] if diverging else [(0, f"{OFF}00"), (1, OFF)]
        largest = float(np.nanmax(np.abs(values), initial=1.0))
        spread = layer.spread if quantity == "significance" else 1.4826 * float(np.nanmedian(np.abs(values)))
        limit = min(largest, max(5 * spread, 1.0)) if diverging else largest
        half = (sky.axis[1] - sky.axis[0]) / 2
        low, high = sky.axis[0] - half, sky.axis[-1] + half
        scale = {"cmap": LinearSegmentedColormap.from_list("excess", shades), "vmin": -limit if diverging else 0}
        look: dict[str, Any] = {"origin": "lower", "interpolation": "none", "vmax": limit, **scale}
        drawn = axes.imshow(np.ma.masked_invalid(values), extent=(low, high, low, high), **look)
        place = None
        if ax is None:
            axes.set_position((0.17, 0.15, 0.61, 0.8))
            place = axes.figure.add_axes((0.81, 0.175, 0.03, 0.75))
        label = f"{_SKY_LABELS[quantity]} ({events} events)"
        at: dict[str, Any] = {"ax": axes if place is None else None, "cax": place}
        bar = axes.figure.colorbar(drawn, label=label, extend="neither" if limit == largest else "both", **at)
        if bar.solids is not None:
            bar.solids.set_rasterized(True)
        for center in sky.off_centers.tolist() if len(sky.off_centers) <= MAX_CIRCLES else ():
            axes.add_patch(Circle(center, sky.region_radius, fill=False, edgecolor=GREY, linestyle=":"))
        axes.add_patch(Circle((0, 0), sky.region_radius, fill=False, edgecolor="black"))
        axes.set_xlim(high, low)
        axes.set_ylim(low, high)
        axes.set_xlabel("east of the source / deg")
        axes.set_ylabel("north of the source / deg")
        if sky.center is not None and abs(sky.center[1]) < _LARGEST_DECLINATION:
            _label_sky(axes, sky.center)
    return axes


def _label_sky(ax: Axes, center: tuple[float, float]) -> None:
    """Label a map by right ascension, at the declination of the source, and declination."""
    from matplotlib.ticker import MaxNLocator

    for axis, at, scale in ((ax.xaxis, center[0], math.cos(math.radians(center[1]))), (ax.yaxis, center[1], 1.0)):
        low, high = sorted(at + end / scale for end in axis.get_view_interval())
        ticks = [tick for tick in MaxNLocator(4).tick_values(low, high) if low < tick < high]
        texts = [f"{tick % 360 if axis is ax.xaxis else tick:g}" for tick in ticks]
        axis.set_ticks([(tick - at) * scale for tick in ticks], texts)
    ax.set_xlabel("right ascension / deg")
    ax.set_ylabel("declination / deg")


@style.figure()
def plot_sky_significances(ax: Axes, detection: Detection, *, events: str = "selected") -> None:
    """Plot the distribution of pixel significances of a map, for all pixels and for those away from the source."""
    sky = detection.sky
    if sky is None or events not in sky.layers:
        raise ValueError(f"the detection has no map of {events} events")
    layer, known = sky.layers[events], np.isfinite(sky.layers[events].significance)
    away = known & (np.hypot(*np.meshgrid(sky.axis, sky.axis)) > 3 * sky.region_radius)
    values, background = layer.significance[known], layer.significance[away]
    edges = np.arange(np.floor(4 * min(values.min(), -3.0)), np.ceil(4 * max(values.max(), 3.0)) + 1) / 4
    every, shown = (np.histogram(own, edges)[0] for own in (values, background))
    style.draw_steps(ax, every, edges, baseline=0, fill=False, color=ON, label="all pixels")
    style.draw_steps(ax, shown, edges, baseline=0, fill=True, color=OFF, alpha=0.35, label="away from the source")
    at = np.linspace(edges[0], edges[-1], 400)
    fit = (layer.mean, layer.spread, OFF, "-", f"fit: {style.with_error(layer.mean, layer.spread, '+.2f')}")
    for mean, spread, color, line, label in (fit, (0.0, 1.0, GREY, "--", "expected: 0 ± 1")):
        curve = np.exp(-0.5 * ((at - mean) / spread) ** 2) / (spread * math.sqrt(2 * math.pi))
        ax.plot(at, curve * len(background) / 4, color=color, linestyle=line, label=label)
    ax.set_yscale("log")
    ax.set_ylim(0.5, 100 * max(shown.max(), 1))
    ax.set_xlim(edges[0], edges[-1])
    ax.set_xlabel(f"significance of a pixel / σ ({events} events)")
    ax.set_ylabel("pixels")
    ax.legend(loc="upper right")


@style.figure()
def plot_selected_by(
    ax: Axes, detection: Detection, shown: series.OnOffHistogram, label: str, *, logarithmic: bool = False
) -> None:
    """Plot selected events against a quantity, On and scaled Off, with the excess."""
    drawn = _draw_on_off(ax, shown, detection.counts)
    excess, error = shown.on - shown.background, np.sqrt(shown.on + shown.background_error**2)
    if logarithmic:
        style.draw_logarithmic(ax, shown.edges[0], shown.edges[-1])
    middle = style.bin_centers(shown.edges, logarithmic=logarithmic)
    legend = f"excess: {detection.counts.excess:,.1f}"
    drawn.append(style.draw_points(ax, middle, excess, error, OTHER, legend, markersize=3))
    ax.axhline(0, color=GREY, linewidth=0.6)
    top = max((shown.on + np.sqrt(shown.on)).max(), (shown.background + shown.background_error).max(), 1.0)
    ax.set_ylim(min(0.0, float((excess - error).min())), 1.35 * top)
    ax.set_xlabel(label)
    ax.legend(handles=drawn, loc="upper right", ncols=3)


def plot_simulation_agreement(
    agreement: SimulationAgreement, *, n_features: int = 4, path: PathLike | None = None
) -> list[Axes]:
    """Plot features of observed and simulated events, those that differ most first.

    Points are observed events: On minus Off times alpha in the first rows, Off in the rows below. Steps are simulated
    gammas and protons. Titles have the shift of the observed mean in simulated standard deviations and p-values.

    Parameters
    ----------
    agreement : SimulationAgreement
        Result of `excess.simulation_agreement`.
    n_features : int, default=4
        Maximum number of features of each sample, four in a row.
    path : path-like or None, default=None
        File to save the figure to, as PNG, PDF or SVG by its suffix.

    Returns
    -------
    list of Axes
        One for each feature, in the order of ``agreement.comparisons``; the figure is ``axes[0].figure``.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import OnOffTreeClassifier, simulation_agreement
    >>> from excess.report import plot_simulation_agreement
    >>> rng = np.random.default_rng(0)
    >>> X, on = rng.normal(size=(4000, 2)), np.repeat([0, 1], [3000, 1000])
    >>> X[3600:, 0] -= 2  # 400 gammas
    >>> tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=50)
    >>> found = simulation_agreement(X, on, rng.normal([-2, 0.5], size=(5000, 2)), alpha=1 / 5, estimator=tree)
    >>> [axes.get_xlabel() for axes in plot_simulation_agreement(found)]
    ['x1', 'x0']
    """
    if not isinstance(agreement, SimulationAgreement):
        raise TypeError(f"agreement must be a SimulationAgreement, got {type(agreement).__name__}")
    n_features = as_int("n_features", n_features, minimum=1)
    shown = [agreement.of_sample(sample)[:n_features] for sample in _LOOKS]
    if not any(shown):
        raise ValueError(f"nothing to plot: {agreement.verdict}")
    signal, background = (style.panel_places(len(own)) for own in shown)
    below = 1 + max((row for row, _ in signal), default=-1)
    places = [*signal, *((below + row, column) for row, column in background)]
    with style.paper_panels(places, [(0.32, 0.95, 0.4)] * (1 + places[-1][0]), path) as axes:
        for ax, one, (_, column) in zip(axes, [*shown[0], *shown[1]], places, strict=True):
            _draw_comparison(ax, one)
            if column == 0:
                ax.set_ylabel("share of events")
    return axes


def _draw_comparison(ax: Axes, one: FeatureComparison) -> None:
    """Draw one feature of observed and simulated events."""
    observed_color, simulated_color, observed_label, simulated_label = _LOOKS[one.sample]
    low, high = one.simulated - one.simulated_error, one.simulated + one.simulated_error
    style.draw_steps(ax, high, one.edges, baseline=low, fill=True, color=simulated_color, alpha=0.35, linewidth=0)
    line = {"fill": False, "color": simulated_color, "linewidth": 1, "label": simulated_label}
    style.draw_steps(ax, one.simulated, one.edges, baseline=None, **line)
    if one.logarithmic:
        style.draw_logarithmic(ax, one.edges[0], one.edges[-1])
    middle = style.bin_centers(one.edges, logarithmic=one.logarithmic)
    style.draw_points(ax, middle, one.observed, one.observed_error, observed_color, observed_label, markersize=2)
    ax.set_xlim(one.edges[0], one.edges[-1])
    bottom = min(0.0, (one.observed - one.observed_error).min())
    top = max((one.observed + one.observed_error).max(), high.max())
    if bottom < 0:
        ax.axhline(0, color=GREY, linewidth=0.6)
    ax.set_ylim(1.05 * bottom, 1.05 * top)
    style.label_feature(ax, one.feature)
    differs = "differs: " if one.flagged else ""
    shift = "" if np.isnan(one.shift) else f"shift {style.with_error(one.shift, one.shift_error, '+.2f')}"
    ax.set_title(f"{differs}{shift}\np = {one.p_value:.1g} (adjusted {one.adjusted_p_value:.1g})", fontsize=6.5, pad=3)


@style.figure((style.FIGURE_SIZE[0], 1.15 * style.FIGURE_SIZE[1]), bottom=None)
def plot_efficiency(
    ax: Axes,
    energy: FloatArray,
    fractions: Mapping[str, EventFraction],
    mean: EventFraction,
    *,
    label: str = "efficiency",
) -> None:
    """Plot fractions of simulated events against energy.

    Parameters
    ----------
    energy : ndarray of shape (n_bins + 1,)
        Edges of the bins, in TeV.
    fractions : mapping of str to EventFraction
        One line per name in the legend: arrays of shape (n_bins,), NaN for bins without events.
    mean : EventFraction
        Fraction of all events, drawn as a dashed line.
    label : str, default="efficiency"
        Label of the second axis.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.report import plot_efficiency
    >>> from excess.stats import event_fraction
    >>> low = event_fraction([20, 60], [100, 100])
    >>> plot_efficiency(np.array([0.1, 1.0, 10.0]), {"zenith 0 to 30 deg": low}, event_fraction(80, 200)).get_xlabel()
    'true energy / TeV'
    """
    from matplotlib import ticker

    width = np.log(energy[1:] / energy[:-1])
    centre = np.sqrt(energy[1:] * energy[:-1])
    for number, (name, own) in enumerate(fractions.items()):
        where = centre * np.exp(_SPREAD * ((number + 0.5) / len(fractions) - 0.5) * width)
        known = ~np.isnan(own.value)
        high = [(own.value - own.low)[known], (own.high - own.value)[known]]
        wide = [(where - energy[:-1])[known], (energy[1:] - where)[known]]
        look: dict[str, Any] = {"elinewidth": 0.8, "fmt": _MARKERS[number // len(_COLOURS) % len(_MARKERS)]}
        look["color"] = _COLOURS[number % len(_COLOURS)]
        ax.errorbar(where[known], own.value[known], yerr=high, xerr=wide, label=name, **look)
    ax.axhline(mean.value, color=GREY, linestyle="--", linewidth=0.8, label=f"all events: {mean.value:.3f}")
    ax.set_xscale("log")
    ax.set_xlim(energy[0], energy[-1])
    ax.set_ylim(*_LIMITS)
    # plain numbers: 1, 2, 5, 10 if there is room, else decades
    steps = (1, 2, 5) if math.log10(energy[-1] / energy[0]) <= _FEW_DECADES else (1,)
    ax.xaxis.set_major_locator(ticker.LogLocator(subs=steps))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("")
    ax.set_xlabel("true energy / TeV")
    ax.set_ylabel(label)
    # above the axes, where no point is
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2, columnspacing=1.2)


def _fold_thresholds(detection: Detection) -> tuple[FloatArray, str]:
    """Return the finite thresholds of the folds, and their label."""
    thresholds = detection.thresholds
    finite, n_folds = thresholds[np.isfinite(thresholds)], len(thresholds)
    some = "" if len(finite) == n_folds else f"{len(finite)} of "
    label = "threshold" if n_folds == 1 else f"thresholds of {some}{n_folds} folds"
    others = {"nothing selected": np.isposinf(thresholds), "all selected": np.isneginf(thresholds)}
    others["none tuned"] = np.isnan(thresholds)
    notes = [what if n_folds == 1 else f"{mask.sum()}: {what}" for what, mask in others.items() if mask.any()]
    return np.unique(finite), f"{label} ({', '.join(notes)})" if notes else label
