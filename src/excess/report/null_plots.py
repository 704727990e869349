"""Plot of null tests: the significance of the search in each Off region."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from excess.report.checks import PathLike, check_detection, pick_one
from excess.report.style import GREY, OFF, ON, alpha_label, label_significance, paper_axes
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_null_test"]


def plot_null_test(
    null_test: NullTest, *, detection: Detection | None = None, ax: Axes | None = None, path: PathLike | None = None
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
    >>> from excess.report import plot_null_test
    >>> rng = np.random.default_rng(0)
    >>> X, region = rng.normal(size=(6000, 4)), rng.integers(0, 6, 6000)
    >>> tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=50)
    >>> plot_null_test(null_test(tree, X, region, n_regions=6, random_state=0)).get_ylabel()
    'significance / $\\sigma$ ($\\alpha$ = 0.25)'
    """
    if not isinstance(null_test, NullTest):
        raise TypeError(f"null_test must be a NullTest, got {type(null_test).__name__}{pick_one(null_test)}")
    if not null_test.counts:
        raise ValueError("the null test has no regions; make one with excess.null_test")
    if detection is not None:
        check_detection(detection)
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
            mean = "" if detection.event_alpha is None else "mean "
            how = f"{detection.statistic}, {detection.strategy}, {mean}{alpha_label(detection.alpha)}"
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
