"""Plots of features: their importances, and On against Off in each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excess._core.checks import as_int
from excess.report.checks import PathLike, check_detection
from excess.report.field_data import order_features
from excess.report.series import largest_importances
from excess.report.style import OFF, ON, OTHER, draw_logarithmic, paper_axes
from excess.validation.detection import Detection
from excess.validation.feature_histograms import FeatureHistogram, OnOffBins

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_feature_histograms", "plot_feature_importances"]

_COLUMNS = 4
_PANEL = (1.75, 1.4)
"""Width and height of a panel in inches: four of them are as wide as a page of a paper."""
_LEGEND_HEIGHT = 0.3
_LABEL_SIZE, _LONG_NAME = 7.0, 22
"""Size of the names of features in points, and number of characters from which it is smaller."""


def plot_feature_importances(
    detection: Detection, *, n_features: int = 15, ax: Axes | None = None, path: PathLike | None = None
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
    >>> from excess.report import plot_feature_importances
    >>> X, y = make_classification(1000, weights=[0.9], random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=3), X, on, alpha=1 / 5)
    >>> plot_feature_importances(found, n_features=10).get_xlabel()
    'importance (10 of 20 features)'
    """
    check_detection(detection)
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


def plot_feature_histograms(detection: Detection, *, n_features: int = 8, path: PathLike | None = None) -> list[Axes]:
    r"""Plot On against scaled Off in the most important features, all hold-out events above, selected ones below.

    Points are On events, filled steps are Off events times ``alpha``; errors are those of the counts. The outermost
    bins also hold what is beyond.

    Parameters
    ----------
    detection : Detection
        With histograms of features; see ``Detection.annotated``.
    n_features : int, default=8
        Largest number of features to show, four in a row.
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
    check_detection(detection)
    shown = order_features(detection)[: as_int("n_features", n_features, minimum=1)]
    if not shown:
        raise ValueError("the detection has no histograms of features; give features with detection.annotated(...)")
    n_columns = min(_COLUMNS, len(shown))
    n_rows = 2 * -(-len(shown) // n_columns)
    # a single panel needs room for its legend
    size = (_PANEL[0] * max(n_columns, 2), _PANEL[1] * n_rows + _LEGEND_HEIGHT)
    axes: list[Axes] = []
    with paper_axes(None, path, size) as first:
        figure: Any = first.figure
        grid = figure.add_gridspec(n_rows, n_columns)
        for number, one in enumerate(shown):
            for stage, (bins, what) in enumerate(((one.before, "all"), (one.after, "selected"))):
                cell = grid[2 * (number // n_columns) + stage, number % n_columns]
                if axes:
                    axes.append(figure.add_subplot(cell))
                else:
                    first.set_subplotspec(cell)
                    axes.append(first)
                _draw_feature(axes[-1], one, bins)
                if number % n_columns == 0:
                    axes[-1].set_ylabel(f"{what} events")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=2)
    return axes


def _draw_feature(ax: Axes, one: FeatureHistogram, bins: OnOffBins) -> None:
    """Draw On and scaled Off in one feature."""
    ax.spines[["top", "right"]].set_visible(False)
    off, error = bins.background, bins.background_error
    ax.stairs(off, one.edges, fill=True, color=OFF, alpha=0.25, linewidth=0)
    ax.stairs(off + error, one.edges, baseline=off - error, fill=True, color=OFF, alpha=0.35, linewidth=0)
    ax.stairs(off, one.edges, color=OFF, linewidth=0.8, label=r"Off $\times$ $\alpha$")
    middle = (one.edges[1:] + one.edges[:-1]) / 2
    if one.logarithmic:
        draw_logarithmic(ax, one.edges[0], one.edges[-1])
        middle = np.sqrt(one.edges[1:] * one.edges[:-1])
    ax.errorbar(middle, bins.n_on, yerr=np.sqrt(bins.n_on), fmt="o", markersize=2, color=ON, elinewidth=0.8, label="On")
    ax.set_xlim(one.edges[0], one.edges[-1])
    ax.set_ylim(0, 1.1 * max(1.0, float((bins.n_on + np.sqrt(bins.n_on)).max()), float((off + error).max())))
    size = _LABEL_SIZE * min(1.0, _LONG_NAME / len(one.feature))
    ax.set_xlabel(one.feature.replace("$", r"\$"), fontsize=size)
