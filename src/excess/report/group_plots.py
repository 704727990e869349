"""Plots of groups, such as nights: the light curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from excess.report.checks import PathLike, check_detection
from excess.report.series import light_curve
from excess.report.style import GREY, OTHER, paper_axes
from excess.validation.detection import Detection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_light_curve"]

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
