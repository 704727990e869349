"""Plot of efficiencies: fractions of simulated events by energy, a line for each range of zenith distances."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from excess._core.checks import FloatArray
from excess._core.errors import require
from excess.report.style import FIGURE_SIZE, GREY, paper_axes
from excess.stats.fractions import EventFraction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_efficiency"]

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Lines that colour-blind readers can tell apart; further ones begin again, with another marker."""
_MARKERS = "osD^v<>"
_LIMITS = (-0.03, 1.03)
"""Of the second axis, so that points at 0 and 1 are seen as a whole."""
_FEW_DECADES = 3.5
_SPREAD = 0.5
"""Part of a bin over which the points of several lines are spread, so that their errors do not overlap."""


def plot_efficiency(
    energy: FloatArray,
    fractions: Mapping[str, EventFraction],
    mean: EventFraction,
    *,
    label: str = "efficiency",
    ax: Axes | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Axes:
    r"""Plot fractions of simulated events by their energy.

    Parameters
    ----------
    energy : ndarray of shape (n_bins + 1,)
        Edges of the bins, in TeV.
    fractions : mapping of str to EventFraction
        A line each by its name in the legend: arrays of shape (n_bins,), NaN where there are no events.
    mean : EventFraction
        Of all events, drawn as a dashed line.
    label : str, default="efficiency"
        What is on the second axis.
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
    >>> import numpy as np
    >>> from excess.report import plot_efficiency
    >>> from excess.stats import event_fraction
    >>> low = event_fraction([20, 60], [100, 100])
    >>> plot_efficiency(np.array([0.1, 1.0, 10.0]), {"zenith 0 to 30 deg": low}, event_fraction(80, 200)).get_xlabel()
    'true energy / TeV'
    """
    width = np.log(energy[1:] / energy[:-1])
    centre = np.sqrt(energy[1:] * energy[:-1])
    with paper_axes(ax, path, (FIGURE_SIZE[0], 1.15 * FIGURE_SIZE[1])) as ax:
        for number, (name, own) in enumerate(fractions.items()):
            shift = _SPREAD * ((number + 0.5) / len(fractions) - 0.5)
            where = centre * np.exp(shift * width)
            known = ~np.isnan(own.value)
            ax.errorbar(
                where[known],
                own.value[known],
                yerr=[(own.value - own.low)[known], (own.high - own.value)[known]],
                xerr=[(where - energy[:-1])[known], (energy[1:] - where)[known]],
                fmt=_MARKERS[number // len(_COLOURS) % len(_MARKERS)],
                color=_COLOURS[number % len(_COLOURS)],
                elinewidth=0.8,
                label=name,
            )
        ax.axhline(mean.value, color=GREY, linestyle="--", linewidth=0.8, label=f"all events: {mean.value:.3f}")
        ax.set_xscale("log")
        ax.set_xlim(energy[0], energy[-1])
        ax.set_ylim(*_LIMITS)
        _label_energies(ax, math.log10(energy[-1] / energy[0]))
        ax.set_xlabel("true energy / TeV")
        ax.set_ylabel(label)
        # above the axes, where no point is
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2, columnspacing=1.2)
    return ax


def _label_energies(ax: Axes, n_decades: float) -> None:
    """Label a logarithmic axis by plain numbers: 1, 2, 5, 10 where there is room for them, else decades."""
    ticker = require("matplotlib.ticker", "plotting")
    steps = (1, 2, 5) if n_decades <= _FEW_DECADES else (1,)
    ax.xaxis.set_major_locator(ticker.LogLocator(subs=steps))
    ax.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())
