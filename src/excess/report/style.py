"""Style of the plots for papers: colours, sizes, axes, and files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from excess._core.checks import FloatArray
from excess._core.errors import require
from excess._core.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from excess.report.histograms import OnOffHistogram
    from excess.stats.counts import OnOffCounts

ON = "#d55e00"
"""Colour of On events; this one and the next two can be told apart by colour-blind readers."""
OFF = "#0072b2"
"""Colour of Off events."""
OTHER = "#009e73"
"""Colour of what is neither On nor Off."""
GREY = "#666666"
"""Colour of marks and expectations."""

FIGURE_SIZE = (3.4, 2.6)
"""Width and height of a figure in inches: one column of a paper."""

PAPER_STYLE: Mapping[str, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "legend.fontsize": 6.5,
    "legend.title_fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.0,
    "lines.markersize": 3,
}
"""Settings of matplotlib for figures that are made here; the axes of a caller keep the caller's."""

FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"format": "png", "dpi": 300, "metadata": {"Software": None}},
    ".pdf": {"format": "pdf", "metadata": {"Creator": None, "Producer": None, "CreationDate": None}},
    ".svg": {"format": "svg", "metadata": {"Creator": None, "Date": None}},
}
"""What goes to ``savefig`` for each suffix; no dates and no versions, so that the same plot is the same file."""

_MOST_TICKS = 4
"""Numbers below a logarithmic axis."""
_FILE_STYLE = {"svg.hashsalt": "excess", "pdf.fonttype": 42}
"""Repeatable names inside SVG files; fonts inside PDF files that journals take."""


def alpha_label(alpha: float | None) -> str:
    """Return an exposure ratio as text for axes and legends; None where each event has its own."""
    return r"its own $\alpha$" if alpha is None else rf"$\alpha$ = {alpha:.3g}"


@contextmanager
def paper_axes(
    ax: Axes | None, path: str | os.PathLike[str] | None, size: tuple[float, float] = FIGURE_SIZE
) -> Iterator[Axes]:
    """Yield the axes to draw on, by default of a new figure, and save the figure at the end if there is a path.

    A new figure is not registered with pyplot, needs no display, and does not have to be closed. Nothing is saved after
    an error.
    """
    target = None if path is None else Path(path)
    if target is not None:
        _check_target(target)
    require("matplotlib.figure", "plotting")
    mpl = require("matplotlib", "plotting")
    with mpl.rc_context(PAPER_STYLE if ax is None else {}):
        if ax is None:
            ax = mpl.figure.Figure(figsize=size, layout="constrained").add_subplot()
        ax.spines[["top", "right"]].set_visible(False)
        yield ax
    if target is not None:
        _save(ax, target)


def split_axes(ax: Axes, share: float = 0.42) -> Axes:
    """Divide axes into two panels with a common first axis, and return the lower one, a share of the height."""
    figure: Any = ax.figure
    place = ax.get_subplotspec()
    if place is not None:
        grid = place.subgridspec(2, 1, height_ratios=(1 - share, share), hspace=0.08)
        ax.set_subplotspec(grid[0])
        below: Axes = figure.add_subplot(grid[1], sharex=ax)
    else:  # axes that were placed by hand
        left, bottom, width, height = ax.get_position().bounds
        ax.set_position((left, bottom + share * height, width, (1 - share) * height))
        below = figure.add_axes((left, bottom, width, 0.92 * share * height), sharex=ax)
    below.spines[["top", "right"]].set_visible(False)
    ax.tick_params(axis="x", which="both", labelbottom=False)
    return below


def draw_on_off(ax: Axes, shown: OnOffHistogram, counts: OnOffCounts) -> list[Any]:
    """Draw On as points and Off times alpha as filled steps, both with errors, and return them for the legend."""
    off, error = shown.background, shown.background_error
    ax.stairs(off, shown.edges, fill=True, color=OFF, alpha=0.25, linewidth=0)
    ax.stairs(off + error, shown.edges, baseline=off - error, fill=True, color=OFF, alpha=0.35, linewidth=0)
    steps = ax.stairs(
        off, shown.edges, color=OFF, linewidth=0.8, label=rf"Off $\times$ $\alpha$: {counts.background:,.1f}"
    )
    points = ax.errorbar(
        (shown.edges[1:] + shown.edges[:-1]) / 2,
        shown.on,
        yerr=np.sqrt(shown.on),
        fmt="o",
        color=ON,
        elinewidth=0.8,
        label=f"On: {counts.n_on:,}",
    )
    ax.set_ylabel(f"events (Off scaled by {alpha_label(shown.alpha)})")
    return [points, steps]


def leave_room(ax: Axes, shown: OnOffHistogram, factor: float) -> None:
    """Let the axis of counts start at 0, and end above them with room for the legend."""
    highest = np.maximum(shown.on + np.sqrt(shown.on), shown.background + shown.background_error).max()
    ax.set_ylim(0, factor * max(highest, 1.0))


def draw_logarithmic(ax: Axes, low: float, high: float) -> None:
    """Make the first axis logarithmic, with a few round numbers between two positive ones below it."""
    ax.set_xscale("log")
    ax.set_xticks(_logarithmic_ticks(low, high))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("")


def _logarithmic_ticks(low: float, high: float) -> FloatArray:
    """Return a few round numbers between two positive ones: powers of ten, with 2 and 5 where there is room."""
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for factors in ((1, 2, 3, 4, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = np.outer(decades, factors).ravel()
        ticks = ticks[(ticks >= low) & (ticks <= high)]
        if len(ticks) <= _MOST_TICKS:
            return ticks
    return ticks[:: -(-len(ticks) // _MOST_TICKS)]


def label_significance(ax: Axes, alpha: float, *, differs: bool = False) -> None:
    """Label the second axis: significance with its unit and the exposure ratio, the mean where it differs."""
    ax.set_ylabel(rf"significance / $\sigma$ ({'mean ' if differs else ''}{alpha_label(alpha)})")


def mark_exploration(ax: Axes, threshold: float | None) -> None:
    """Mark the plot as exploration if a threshold was given."""
    if threshold is not None:
        ax.set_title(f"exploration: score > {threshold:.3g}")


def _check_target(path: Path) -> None:
    """Raise an error for a file that cannot be written, before anything is drawn."""
    if path.suffix.lower() not in FORMATS:
        known = list(FORMATS)
        raise ValueError(
            f"{path}: a plot is saved as {', '.join(known[:-1])} or {known[-1]}; choose one of these suffixes"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist; make it first")


def _save(ax: Axes, path: Path) -> None:
    """Write the figure of the axes, completely or not at all."""
    figure: Any = ax.figure
    whole: Figure = figure if hasattr(figure, "savefig") else figure.figure  # axes may be part of a subfigure
    with require("matplotlib", "plotting").rc_context(_FILE_STYLE), replacing(path) as temporary:
        whole.savefig(temporary, **FORMATS[path.suffix.lower()])
