"""Plots of groups, such as nights: the light curve, and the excess per hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excess.report.checks import PathLike, check_detection
from excess.report.rates import excess_rates
from excess.report.series import light_curve
from excess.report.style import GREY, OFF, OTHER, paper_axes
from excess.validation.detection import Detection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_excess_rate", "plot_light_curve"]

_MAX_TICKS = 8
"""Largest number of groups that are named below a light curve."""


def plot_light_curve(detection: Detection, *, ax: Axes | None = None, path: PathLike | None = None) -> Axes:
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
    >>> from excess.report import plot_light_curve
    >>> X, y = make_classification(1500, weights=[0.9], class_sep=1.5, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> night = [20131101 + i // 500 for i in range(1500)]
    >>> forest = OnOffForestClassifier(20, min_samples_leaf=20, random_state=0)
    >>> found = cross_val_detect(forest, X, on, alpha=1 / 5, groups=night)
    >>> [label.get_text() for label in plot_light_curve(found).get_xticklabels()]
    ['20131101', '20131102', '20131103']
    """
    check_detection(detection)
    shown = light_curve(detection)
    n_known = len(shown.groups)
    with paper_axes(ax, path) as ax:
        ax.axhline(1, color=GREY, linestyle="--", linewidth=0.8, label="mean of all groups")
        places = np.arange(n_known)
        errors = np.array([shown.strength - shown.low, shown.high - shown.strength])
        some = "" if n_known == shown.n_groups else f" ({n_known} of {shown.n_groups}; the others have no bound)"
        ax.errorbar(places, shown.strength, yerr=errors, fmt="o", color=OTHER, elinewidth=0.8, label=f"groups{some}")
        _name_groups(ax, shown.groups)
        low, high = min([0.0, *shown.low]), max([1.0, *shown.high])
        ax.set_ylim(low - 0.05 * (high - low), high + 0.3 * (high - low))
        ax.set_xlabel("group")
        ax.set_ylabel("signal strength / mean")
        ax.legend(loc="upper left")
    return ax


def plot_excess_rate(
    detection: Detection, *, by: str = "group", ax: Axes | None = None, path: PathLike | None = None
) -> Axes:
    """Plot the excess of the selected events per hour of observation, with its error, of each group or night.

    Parameters
    ----------
    detection : Detection
        With observation times, which `excess.analysis.search` finds in files; see ``Detection.annotated``.
    by : {"group", "night"}, default="group"
        What the points are.
    ax, path
        As for `plot_theta_squared`.

    Returns
    -------
    Axes
        The axes. Groups without a known time are left out, and the legend counts them.

    Examples
    --------
    >>> from excess.analysis import observe, search
    >>> from excess.observation import simulate_observation
    >>> from excess.report import plot_excess_rate
    >>> run = search(observe(simulate_observation(20_000, 300, random_state=0)), "tree", null_tests=False)
    >>> plot_excess_rate(run.detections["tree"]).get_ylabel()
    'excess / h'
    """
    check_detection(detection)
    shown = excess_rates(detection, by)
    n_known = len(shown.labels)
    with paper_axes(ax, path) as ax:
        places = np.arange(n_known)
        ax.axhline(shown.mean, color=GREY, linestyle="--", linewidth=0.8, label=f"mean: {shown.mean:.1f} / h")
        some = f" ({n_known} of {n_known + shown.n_unknown}; of the others no time is known)" if shown.n_unknown else ""
        ax.errorbar(places, shown.rate, yerr=shown.error, fmt="o", color=OFF, elinewidth=0.8, label=f"{by}s{some}")
        _name_groups(ax, shown.labels)
        low, high = min([0.0, *(shown.rate - shown.error)]), max([1.0, *(shown.rate + shown.error)])
        ax.set_ylim(low - 0.05 * (high - low), high + 0.3 * (high - low))
        ax.set_xlabel(by)
        ax.set_ylabel("excess / h")
        ax.legend(loc="upper left")
    return ax


def _name_groups(ax: Axes, labels: list[Any]) -> None:
    """Name some of the groups below the axes."""
    step = -(-len(labels) // _MAX_TICKS) or 1
    names = [str(label).replace("$", r"\$") for label in labels[::step]]
    ax.set_xticks(np.arange(len(labels))[::step], names)
    if len(names) > _MAX_TICKS // 2:
        for label in ax.get_xticklabels():
            label.set(rotation=30, ha="right", rotation_mode="anchor")
    ax.set_xlim(-0.6, max(len(labels), 1) - 0.4)
