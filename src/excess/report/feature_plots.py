"""Plots of features: their importances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from excess._core.checks import as_int
from excess.report.checks import PathLike, check_detection
from excess.report.series import largest_importances
from excess.report.style import OTHER, paper_axes
from excess.validation.detection import Detection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_feature_importances"]


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
