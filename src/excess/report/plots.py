"""Plots of a detection for papers: each function draws on axes, returns them, and can save the figure."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from excess._core.checks import FloatArray, as_int, as_threshold
from excess.report.series import (
    LikelihoodBins,
    largest_importances,
    light_curve,
    likelihood_bins,
    require_angles,
    require_scores,
    score_histogram,
    significance_over_time,
    theta_squared_histogram,
    threshold_steps,
)
from excess.report.style import (
    FIGURE_SIZE,
    GREY,
    OFF,
    ON,
    OTHER,
    alpha_label,
    draw_on_off,
    label_significance,
    leave_room,
    mark_exploration,
    paper_axes,
    split_axes,
)
from excess.stats.significance import OnOffCounts
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "plot_feature_importances",
    "plot_light_curve",
    "plot_likelihood",
    "plot_null_test",
    "plot_score_histogram",
    "plot_significance_over_time",
    "plot_theta_squared",
    "plot_threshold_curve",
]

Path = str | os.PathLike[str]

_LOG_FROM = 100.0
"""Ratio of the largest to the smallest non-zero count above which the axis is logarithmic."""
_TALL = (FIGURE_SIZE[0], 1.4 * FIGURE_SIZE[1])
"""Size of a figure with two panels."""
_MAX_TICKS = 8
"""Largest number of groups that are named below a light curve."""


def plot_theta_squared(
    detection: Detection, *, threshold: float | None = None, ax: Axes | None = None, path: Path | None = None
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
    _check_detection(detection)
    if threshold is None:
        counts = detection.counts
    else:
        chosen = detection.score > as_threshold("threshold", threshold)
        n_on = int(np.count_nonzero(chosen & detection.on))
        counts = OnOffCounts(n_on, int(np.count_nonzero(chosen)) - n_on, detection.alpha)
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


def plot_score_histogram(detection: Detection, *, ax: Axes | None = None, path: Path | None = None) -> Axes:
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
    >>> from excess.report.plots import plot_score_histogram
    >>> X, y = make_classification(1000, weights=[0.9], random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_score_histogram(found).get_ylabel()
    'events (Off scaled by $\\alpha$ = 0.2)'
    """
    _check_detection(detection)
    shown = score_histogram(detection)
    marks = _fold_thresholds(detection)
    with paper_axes(ax, path) as ax:
        highest = np.maximum(shown.on, shown.alpha * shown.off)
        logarithmic = highest.max() > _LOG_FROM * highest[highest > 0].min()
        if logarithmic:
            ax.set_yscale("log", nonpositive="clip")
        drawn = draw_on_off(ax, shown, OnOffCounts(int(shown.on.sum()), int(shown.off.sum()), shown.alpha))
        if logarithmic:
            lowest = min(shown.alpha, 1.0)  # height of a single event
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
    detection: Detection, *, threshold: float | None = None, ax: Axes | None = None, path: Path | None = None
) -> Axes:
    """Plot the significance of hold-out events over all thresholds, the same for all folds, and the folds' thresholds.

    The curve is for exploration. Its maximum is biased, because it is chosen on the events that are counted. The result
    of the cut is the dashed line: the significance of events that were selected by thresholds tuned on other events.
    The likelihood has no threshold, so it is not shown.

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
    >>> from excess.report.plots import plot_threshold_curve
    >>> X, y = make_classification(1000, weights=[0.9], random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_threshold_curve(found, threshold=0.4).get_title()
    'exploration: score > 0.4'
    """
    _check_detection(detection)
    if threshold is not None and not np.isfinite(as_threshold("threshold", threshold)):
        raise ValueError(f"threshold must be finite to be marked, got {threshold}")
    require_scores(detection)
    curve, result = detection.curve, detection.counts.significance
    steps = threshold_steps(curve)
    marks = _fold_thresholds(detection)
    with paper_axes(ax, path) as ax:
        ax.plot(*steps, color=OTHER, drawstyle="steps-post", label="one threshold for all folds")
        label = rf"tuned cut: {result:.1f} $\sigma$ ({detection.strategy})"
        ax.axhline(result, color=ON, linestyle="--", label=label)
        if threshold is not None:
            value = curve.significance[curve.index_of(threshold)]
            ax.plot([threshold, threshold], [0, value], color=OFF, linewidth=0.6)
            ax.plot(threshold, value, "o", color=OFF, label=rf"exploration: {value:.1f} $\sigma$")
        top = max(curve.significance.max(), result, 1.0)
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
        label_significance(ax, detection.alpha)
        ax.legend(loc="upper right")
        mark_exploration(ax, threshold)
    return ax


def plot_significance_over_time(detection: Detection, *, ax: Axes | None = None, path: Path | None = None) -> Axes:
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
    >>> from excess.report.plots import plot_significance_over_time
    >>> X, y = make_classification(1000, weights=[0.9], random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_significance_over_time(found).get_xlabel()
    'hold-out events'
    >>> plot_significance_over_time(found.annotated(time=range(1000))).get_xlabel()
    'time of observation / h'
    """
    _check_detection(detection)
    shown = significance_over_time(detection)
    with paper_axes(ax, path) as ax:
        end, result = shown.exposure[-1], shown.significance[-1]
        ax.axhline(0, color=GREY, linewidth=0.6)
        label = f"{detection.statistic}, hold-out events ({detection.strategy})"
        ax.plot(np.append(0, shown.exposure), np.append(0, shown.significance), color=ON, label=label)
        steady = np.linspace(0, end, 101)
        ax.plot(steady, result * np.sqrt(steady / end), color=GREY, linestyle="--", label="steady source")
        ax.plot(end, result, "o", color=ON, label=rf"result: {result:.1f} $\sigma$", clip_on=False)
        ax.set_xlim(0, end)
        ax.set_xlabel("time of observation / h" if shown.unit == "h" else "hold-out events")
        label_significance(ax, detection.alpha)
        ax.legend(loc="upper left" if result >= 0 else "lower left")
    return ax


def plot_likelihood(detection: Detection, *, ax: Axes | None = None, path: Path | None = None) -> Axes:
    r"""Plot hold-out events by their signal ratio, and the significance bin by bin: what the likelihood adds to a cut.

    Above, points are On events, filled steps are Off events times ``alpha``, and the line is these plus the signal that
    the likelihood expects at its fitted strength. Below, bars are the significance of Li & Ma of each bin alone. A cut
    counts the filled ones as one bin, where it selects at least half of the events. The likelihood uses all of them,
    each by its weight.

    Parameters
    ----------
    detection : Detection
        With signal ratios. Each bin but that of ratio 0 expects about the same number of signal events.
    ax, path
        As for `plot_theta_squared`. The axes are divided into two panels; the lower one is the last axes of the figure.

    Returns
    -------
    Axes
        The upper axes. The axis of counts is logarithmic if they differ by more than a factor of 10.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffForestClassifier, cross_val_detect, inject_label_noise
    >>> from excess.report.plots import plot_likelihood
    >>> X, y = make_classification(1000, weights=[0.9], random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> forest = OnOffForestClassifier(20, min_samples_leaf=20, random_state=0)
    >>> found = cross_val_detect(forest, X, on, alpha=1 / 5)
    >>> plot_likelihood(found).figure.axes[-1].get_xlabel()
    'signal ratio (signal / background density)'
    """
    _check_detection(detection)
    shown = likelihood_bins(detection)
    places = np.arange(len(shown.n_on))
    with paper_axes(ax, path, _TALL) as ax:
        _draw_bins_of_ratio(ax, shown, detection)
        below = split_axes(ax)
        inside = shown.mostly_selected
        for mask, fill, what in ((inside, OTHER, "in the cut"), (~inside, "none", "not in the cut")):
            below.bar(
                places[mask], shown.significance[mask], 0.8, color=fill, edgecolor=OTHER, linewidth=0.8, label=what
            )
        below.axhline(0, color=GREY, linewidth=0.6)
        low, high = min(shown.significance.min(), 0.0), max(shown.significance.max(), 1.0)
        below.set_ylim(1.1 * low, 1.7 * high)
        found = detection.outcome.significances
        title = rf"cut: filled bins as one, {found['cut']:.1f} $\sigma$" + "\n"
        title += rf"likelihood: all bins, each by its weight, {found['likelihood']:.1f} $\sigma$"
        below.legend(title=title, loc="upper left", alignment="left", ncols=2)
        below.set_ylabel(r"significance / $\sigma$")
        below.set_xlabel("signal ratio (signal / background density)")
        _label_edges(below, shown)
    return ax


def _draw_bins_of_ratio(ax: Axes, shown: LikelihoodBins, detection: Detection) -> None:
    """Draw On, scaled Off, and scaled Off with the fitted signal in bins of the signal ratio, all of the same width."""
    edges = np.arange(len(shown.n_on) + 1) - 0.5
    off, error, total = shown.background, shown.background_error, shown.background + shown.signal
    ax.stairs(off, edges, fill=True, color=OFF, alpha=0.25, linewidth=0)
    ax.stairs(off + error, edges, baseline=off - error, fill=True, color=OFF, alpha=0.35, linewidth=0)
    ax.stairs(off, edges, color=OFF, linewidth=0.8, label=rf"Off $\times$ $\alpha$: {off.sum():,.1f}")
    ax.stairs(total, edges, baseline=None, color=OTHER, label=f"with fitted signal: {shown.signal.sum():+,.1f}")
    ax.errorbar(
        np.arange(len(shown.n_on)),
        shown.n_on,
        yerr=np.sqrt(shown.n_on),
        fmt="o",
        color=ON,
        elinewidth=0.8,
        label=f"On: {shown.n_on.sum():,}",
    )
    highest = max((shown.n_on + np.sqrt(shown.n_on)).max(), total.max(), 1.0)
    heights = np.concatenate([shown.n_on, off])
    lowest = heights[heights > 0].min(initial=highest)
    if highest > 10 * lowest:
        ax.set_yscale("log", nonpositive="clip")
        ax.set_ylim(0.5 * lowest, highest**1.35 / (0.5 * lowest) ** 0.35)
    else:
        ax.set_ylim(0, 1.4 * highest)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylabel(f"events (Off scaled by {alpha_label(detection.alpha)})")
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], loc="upper right")


def _label_edges(ax: Axes, shown: LikelihoodBins) -> None:
    """Mark the borders of the bins with their signal ratios; the bin of ratio 0 is marked in its middle."""
    ticks = shown.ticks()
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.set_xlim(-0.5, len(shown.n_on) - 0.5)


def plot_light_curve(detection: Detection, *, ax: Axes | None = None, path: Path | None = None) -> Axes:
    """Plot the strength of the source in each group, in units of its mean, with intervals of one sigma.

    A steady source scatters about the dashed line by about the intervals. The error of the mean is not in them.

    Parameters
    ----------
    detection : Detection
        With signal ratios and at least two groups, such as nights.
    ax, path
        As for `plot_theta_squared`.

    Returns
    -------
    Axes
        The axes. Groups without a bounded interval are left out, and the legend counts them.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffForestClassifier, cross_val_detect, inject_label_noise
    >>> from excess.report.plots import plot_light_curve
    >>> X, y = make_classification(1500, weights=[0.9], class_sep=1.5, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> night = [20131101 + i // 500 for i in range(1500)]
    >>> forest = OnOffForestClassifier(20, min_samples_leaf=20, random_state=0)
    >>> found = cross_val_detect(forest, X, on, alpha=1 / 5, groups=night)
    >>> [label.get_text() for label in plot_light_curve(found).get_xticklabels()]
    ['20131101', '20131102', '20131103']
    """
    _check_detection(detection)
    shown = light_curve(detection)
    n_known = len(shown.groups)
    with paper_axes(ax, path) as ax:
        ax.axhline(1, color=GREY, linestyle="--", linewidth=0.8, label="mean of all groups")
        places = np.arange(n_known)
        errors = np.array([shown.strength - shown.low, shown.high - shown.strength])
        some = "" if n_known == shown.n_groups else f" ({n_known} of {shown.n_groups}; the others have no bound)"
        ax.errorbar(places, shown.strength, yerr=errors, fmt="o", color=OTHER, elinewidth=0.8, label=f"groups{some}")
        step = -(-n_known // _MAX_TICKS) or 1
        names = [str(group).replace("$", r"\$") for group in shown.groups[::step]]
        ax.set_xticks(places[::step], names)
        if len(names) > _MAX_TICKS // 2:
            for label in ax.get_xticklabels():
                label.set(rotation=30, ha="right", rotation_mode="anchor")
        ax.set_xlim(-0.6, max(n_known, 1) - 0.4)
        low, high = min([0.0, *shown.low]), max([1.0, *shown.high])
        ax.set_ylim(low - 0.05 * (high - low), high + 0.3 * (high - low))
        ax.set_xlabel("group")
        ax.set_ylabel("signal strength / mean")
        ax.legend(loc="upper left")
    return ax


def plot_feature_importances(
    detection: Detection, *, n_features: int = 15, ax: Axes | None = None, path: Path | None = None
) -> Axes:
    """Plot the importances of features, averaged over the models of all folds, in descending order.

    Parameters
    ----------
    detection : Detection
        Of models that have importances. Features without names are called x0, x1 and so on; see
        ``Detection.annotated``.
    n_features : int, default=15
        Largest number of features to show.
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
    >>> from excess.report.plots import plot_feature_importances
    >>> X, y = make_classification(1000, weights=[0.9], random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_feature_importances(found, n_features=10).get_xlabel()
    'importance (10 of 20 features)'
    """
    _check_detection(detection)
    shown = largest_importances(detection, as_int("n_features", n_features, minimum=1))
    n_shown = len(shown.names)
    with paper_axes(ax, path) as ax:
        ax.barh(np.arange(n_shown), shown.values, color=OTHER, height=0.7)
        ax.set_yticks(np.arange(n_shown), [name.replace("$", r"\$") for name in shown.names])
        ax.set_ylim(n_shown - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        if not shown.values.any():
            ax.set_xlim(0, 1)
        some = "" if n_shown == shown.n_features else f" ({n_shown} of {shown.n_features} features)"
        ax.set_xlabel(f"importance{some}")
    return ax


def plot_null_test(
    null_test: NullTest, *, detection: Detection | None = None, ax: Axes | None = None, path: Path | None = None
) -> Axes:
    r"""Plot the significance of the search in each Off region, where there is no source, by the declared statistic.

    The bands contain 68 % and 95 % of a standard normal distribution.

    Parameters
    ----------
    null_test : NullTest
        The searches in the Off regions.
    detection : Detection or None, default=None
        The search in the On region, for comparison.
    ax, path
        As for `plot_theta_squared`.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import OnOffTreeClassifier, null_test
    >>> from excess.report.plots import plot_null_test
    >>> rng = np.random.default_rng(0)
    >>> X, region = rng.normal(size=(6000, 4)), rng.integers(0, 6, 6000)
    >>> tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=50)
    >>> plot_null_test(null_test(tree, X, region, n_regions=6, random_state=0)).get_ylabel()
    'significance / $\\sigma$ ($\\alpha$ = 0.25)'
    """
    if not isinstance(null_test, NullTest):
        raise TypeError(f"null_test must be a NullTest, got {type(null_test).__name__}{_pick(null_test)}")
    if not null_test.counts:
        raise ValueError("the null test has no regions; make one with excess.null_test")
    if detection is not None:
        _check_detection(detection)
    with paper_axes(ax, path) as ax:
        for width, shade in ((2, 0.15), (1, 0.25)):
            ax.axhspan(-width, width, color=GREY, alpha=shade, linewidth=0, label=rf"chance: $\pm${width} $\sigma$")
        ax.axhline(0, color=GREY, linewidth=0.6)
        values = null_test.significances
        places = np.arange(1, len(values) + 1)
        statistic = next(iter(null_test.outcomes.values())).statistic
        ax.plot(places, values, "o", color=OFF, label=f"Off regions ({statistic})")
        ticks = {int(place): str(region) for place, region in zip(places, null_test.counts, strict=True)}
        if detection is not None:
            sigma = detection.significance
            how = f"{detection.statistic}, {detection.strategy}, {alpha_label(detection.alpha)}"
            what = rf"On: {sigma:.1f} $\sigma$ ({how})"
            ax.plot(0, sigma, "D", color=ON, label=what)
            ticks = {0: "On", **ticks}
            values = np.append(values, sigma)
        low, high = min(-3.0, values.min()), max(3.0, values.max())
        # the upper third is for the legend: On, at the left, may reach into it, but no Off region
        roof = low + (max(3.0, null_test.significances.max()) - low) / 0.65
        ax.set_ylim(low - 0.05 * (high - low), max(roof, high + 0.05 * (high - low)))
        ax.set_xticks(list(ticks), list(ticks.values()))
        ax.set_xlim(min(ticks) - 0.6, max(ticks) + 0.6)
        ax.set_xlabel("region taken as On")
        label_significance(ax, null_test.alpha)
        handles, labels = ax.get_legend_handles_labels()
        ax.legend(handles[::-1], labels[::-1], loc="upper right")
    return ax


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


def _check_detection(detection: Any) -> None:
    if not isinstance(detection, Detection):
        raise TypeError(f"detection must be a Detection, got {type(detection).__name__}{_pick(detection)}")


def _pick(value: Any) -> str:
    """Return a hint for results of several models."""
    return f"; pick one of {', '.join(map(repr, value))}" if isinstance(value, dict) and value else ""
