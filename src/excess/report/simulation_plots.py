"""Plot of the simulation check: features of observed and simulated events side by side, worst first."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from excess._core.checks import as_int
from excess.report.style import GREY, OFF, ON, OTHER, draw_logarithmic, paper_axes
from excess.validation.feature_comparison import FeatureComparison
from excess.validation.simulation_agreement import SimulationAgreement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_simulation_agreement"]

_COLUMNS = 4
_PANEL = (1.75, 1.6)
"""Width and height of a panel in inches: four of them are as wide as a page of a paper."""
_LEGEND_HEIGHT = 0.4
_LABEL_SIZE, _LONG_NAME = 7.0, 22
"""Size of the names of features in points, and number of characters from which it is smaller."""
_LOOKS = {
    "signal": (ON, OTHER, r"On - $\alpha$ Off, by P(signal)", "simulated gammas, by P(signal)"),
    "background": (OFF, GREY, "Off", "simulated protons"),
}
"""Colours and names of observed and simulated events."""


def plot_simulation_agreement(
    agreement: SimulationAgreement, *, n_features: int = 4, path: str | os.PathLike[str] | None = None
) -> list[Axes]:
    r"""Plot features of observed and simulated events, those that differ most first.

    Points are observed events with their errors: On minus Off times alpha in the first rows, Off in the rows below.
    Steps are simulated gammas and protons, with their errors as a band. Titles say by how many simulated standard
    deviations the observed mean is shifted, the p-value, and that which is adjusted for the number of features.

    Parameters
    ----------
    agreement : SimulationAgreement
        The result of `excess.simulation_agreement`.
    n_features : int, default=4
        Largest number of features to show of each sample, four in a row.
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
    shown = {sample: agreement.of_sample(sample)[:n_features] for sample in _LOOKS}
    n_columns = min(_COLUMNS, max(map(len, shown.values())))
    if n_columns == 0:
        raise ValueError(f"the agreement has nothing to plot: {agreement.verdict}")
    n_rows = {sample: -(-len(own) // n_columns) for sample, own in shown.items()}
    # a single panel needs room for its legend
    size = (_PANEL[0] * max(n_columns, 2), _PANEL[1] * sum(n_rows.values()) + _LEGEND_HEIGHT)
    axes: list[Axes] = []
    with paper_axes(None, path, size) as first:
        figure: Any = first.figure
        grid = figure.add_gridspec(sum(n_rows.values()), n_columns)
        row = 0
        for sample, own in shown.items():
            for number, one in enumerate(own):
                cell = grid[row + number // n_columns, number % n_columns]
                if axes:
                    axes.append(figure.add_subplot(cell))
                else:
                    first.set_subplotspec(cell)
                    axes.append(first)
                _draw(axes[-1], one)
                if number % n_columns == 0:
                    axes[-1].set_ylabel("share of events")
            row += n_rows[sample]
        drawn = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in axes]
        handles = {label: handle for own in drawn for handle, label in reversed(list(own))}
        figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=max(n_columns, 2))
    return axes


def _draw(ax: Axes, one: FeatureComparison) -> None:
    """Draw the distributions of one feature."""
    ax.spines[["top", "right"]].set_visible(False)
    observed_color, simulated_color, observed_label, simulated_label = _LOOKS[one.sample]
    low, high = one.simulated - one.simulated_error, one.simulated + one.simulated_error
    ax.stairs(high, one.edges, baseline=low, fill=True, color=simulated_color, alpha=0.35, linewidth=0)
    ax.stairs(one.simulated, one.edges, baseline=None, color=simulated_color, label=simulated_label)
    if one.logarithmic:
        draw_logarithmic(ax, one.edges[0], one.edges[-1])
        middle = np.sqrt(one.edges[1:] * one.edges[:-1])
    else:
        middle = (one.edges[1:] + one.edges[:-1]) / 2
    ax.errorbar(
        middle,
        one.observed,
        yerr=one.observed_error,
        fmt="o",
        markersize=2,
        color=observed_color,
        elinewidth=0.8,
        label=observed_label,
    )
    ax.set_xlim(one.edges[0], one.edges[-1])
    if (one.observed - one.observed_error).min() < 0:
        ax.axhline(0, color=GREY, linewidth=0.6)
    else:
        ax.set_ylim(bottom=0)
    size = _LABEL_SIZE * min(1.0, _LONG_NAME / len(one.feature))
    ax.set_xlabel(one.feature.replace("$", r"\$"), fontsize=size)
    differs = "differs: " if one.flagged else ""
    shift = "" if np.isnan(one.shift) else rf"shift {one.shift:+.2f} $\pm$ {one.shift_error:.2f}"
    ax.set_title(f"{differs}{shift}\np = {one.p_value:.1g} (adjusted {one.adjusted_p_value:.1g})", fontsize="small")
