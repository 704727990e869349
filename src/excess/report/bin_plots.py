"""Plot of bins of a column, such as energy: excess and significance in each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from excess.report.checks import PathLike, check_detection
from excess.report.style import FIGURE_SIZE, GREY, OFF, ON, OTHER, paper_axes, split_axes
from excess.validation.detection import Detection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_bins"]

_TALL = (FIGURE_SIZE[0], 1.4 * FIGURE_SIZE[1])


def plot_bins(detection: Detection, *, ax: Axes | None = None, path: PathLike | None = None) -> Axes:
    r"""Plot the excess and both significances in bins of a column, such as energy.

    Parameters
    ----------
    detection : Detection
        With bins.
    ax, path
        As for `plot_theta_squared`. The axes are divided into two panels; the lower one is the last axes of the figure.

    Returns
    -------
    Axes
        The upper axes, with the excess of the selected events in each bin.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffCounts, OnOffTreeClassifier, cross_val_detect
    >>> from excess.report import plot_bins
    >>> from excess.validation import DetectionBins, Outcome
    >>> X, on = make_classification(600, weights=[0.8], random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> outcomes = tuple(Outcome(OnOffCounts(n, 30, 0.2), None, "cut") for n in (8, 20))
    >>> bins = DetectionBins("energy", (0.5, 1.0, 5.0), outcomes, ("", ""))
    >>> plot_bins(replace(found, bins=bins)).figure.axes[-1].get_xlabel()
    'energy'
    """
    check_detection(detection)
    bins = detection.bins
    if bins is None:
        raise ValueError("the detection has no bins of a column, such as energy")
    places = np.arange(len(bins.outcomes))
    excess, error = (
        np.array([getattr(one.counts, name) for one in bins.outcomes]) for name in ("excess", "excess_error")
    )
    found = {name: np.array([one.significances[name] for one in bins.outcomes]) for name in ("cut", "likelihood")}
    known = [name for name, values in found.items() if np.isfinite(values).any()]
    with paper_axes(ax, path, _TALL) as ax:
        ax.axhline(0, color=GREY, linewidth=0.6)
        ax.errorbar(places, excess, yerr=error, fmt="o", color=ON, elinewidth=0.8)
        ax.set_ylabel("excess / events")
        below = split_axes(ax)
        width = 0.8 / len(known)
        for number, name in enumerate(known):
            left = places - 0.4 + width * (number + 0.5)
            below.bar(left, found[name], width, color={"cut": OFF, "likelihood": OTHER}[name], label=name)
        below.axhline(0, color=GREY, linewidth=0.6)
        below.set_xticks(places, [label.replace("$", r"\$") for label in bins.labels])
        if len(places) > 3:
            for label in below.get_xticklabels():
                label.set(rotation=30, ha="right", rotation_mode="anchor")
        below.set_ylabel(r"significance / $\sigma$")
        below.set_xlabel(bins.column.replace("$", r"\$"))
        below.legend(loc="upper left", ncols=2)
        low, high = below.get_ylim()
        below.set_ylim(low, high + 0.25 * (high - low))
    return ax
