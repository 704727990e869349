"""Plot of the likelihood: On, Off and fitted signal in bins of the signal ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from excess.report.checks import PathLike, check_detection
from excess.report.histograms import common_alpha
from excess.report.likelihood_bins import LikelihoodBins, likelihood_bins
from excess.report.style import FIGURE_SIZE, GREY, OFF, ON, OTHER, alpha_label, paper_axes, split_axes
from excess.validation.detection import Detection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_likelihood"]

_TALL = (FIGURE_SIZE[0], 1.4 * FIGURE_SIZE[1])
"""Size of a figure with two panels."""


def plot_likelihood(detection: Detection, *, ax: Axes | None = None, path: PathLike | None = None) -> Axes:
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
    >>> from excess.report import plot_likelihood
    >>> X, y = make_classification(1000, weights=[0.9], random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> forest = OnOffForestClassifier(20, min_samples_leaf=20, random_state=0)
    >>> found = cross_val_detect(forest, X, on, alpha=1 / 5)
    >>> plot_likelihood(found).figure.axes[-1].get_xlabel()
    'signal ratio (signal / background density)'
    """
    check_detection(detection)
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
    ax.set_ylabel(f"events (Off scaled by {alpha_label(common_alpha(detection))})")
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], loc="upper right")


def _label_edges(ax: Axes, shown: LikelihoodBins) -> None:
    """Mark the borders of the bins with their signal ratios; the bin of ratio 0 is marked in its middle."""
    ticks = shown.ticks()
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.set_xlim(-0.5, len(shown.n_on) - 0.5)
