"""How plots look: the colours, the size, and the way into a file; shared by the plots for papers and the page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from excess._core.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from excess.report.series import ScoreHistogram, ThetaSquaredHistogram

__all__ = [
    "FIGURE_SIZE",
    "FORMATS",
    "GREY",
    "OFF",
    "ON",
    "OTHER",
    "PAPER_STYLE",
    "alpha_label",
    "draw_on_off",
    "label_significance",
    "leave_room",
    "mark_exploration",
    "paper_axes",
]

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

_FILE_STYLE = {"svg.hashsalt": "excess", "pdf.fonttype": 42}
"""Repeatable names inside SVG files; fonts inside PDF files that journals take."""


def alpha_label(alpha: float) -> str:
    r"""Return an exposure ratio as it stands on axes and in legends.

    Examples
    --------
    >>> from excess.report.style import alpha_label
    >>> print(alpha_label(1 / 3))
    $\alpha$ = 0.333
    """
    return rf"$\alpha$ = {alpha:.3g}"


@contextmanager
def paper_axes(
    ax: Axes | None, path: str | os.PathLike[str] | None, size: tuple[float, float] = FIGURE_SIZE
) -> Iterator[Axes]:
    """Give the axes to draw on, a new figure's where there are none, and save the figure when the block ends.

    A new figure belongs to whoever holds its axes: pyplot does not know of it, no display is needed, and nothing has to
    be closed. Nothing is saved after an error.

    Parameters
    ----------
    ax : Axes or None
        Axes to draw on.
    path : path-like or None
        File to save the whole figure to: PNG, PDF or SVG, as its suffix says.
    size : tuple of float
        Width and height of a new figure in inches.

    Examples
    --------
    >>> from excess.report.style import paper_axes
    >>> with paper_axes(None, None) as ax:
    ...     line = ax.plot([1, 2], [3, 4])
    >>> ax.figure.get_size_inches().tolist()
    [3.4, 2.6]
    >>> with paper_axes(None, "plot.gif") as ax:
    ...     pass
    Traceback (most recent call last):
        ...
    ValueError: plot.gif: a plot is saved as .png, .pdf or .svg; choose one of these suffixes
    """
    target = None if path is None else Path(path)
    if target is not None:
        _check_target(target)
    mpl = _matplotlib()
    with mpl.rc_context(PAPER_STYLE if ax is None else {}):
        if ax is None:
            ax = mpl.figure.Figure(figsize=size, layout="constrained").add_subplot()
        ax.spines[["top", "right"]].set_visible(False)
        yield ax
    if target is not None:
        _save(ax, target)


def draw_on_off(ax: Axes, shown: ScoreHistogram | ThetaSquaredHistogram, on_label: str, off_label: str) -> list[Any]:
    """Draw On as points and Off times alpha as filled steps, both with errors, and return them for the legend."""
    off, error = shown.alpha * shown.off, shown.alpha * np.sqrt(shown.off)
    ax.stairs(off, shown.edges, fill=True, color=OFF, alpha=0.25, linewidth=0)
    ax.stairs(off + error, shown.edges, baseline=off - error, fill=True, color=OFF, alpha=0.35, linewidth=0)
    steps = ax.stairs(off, shown.edges, color=OFF, linewidth=0.8, label=off_label)
    points = ax.errorbar(
        (shown.edges[1:] + shown.edges[:-1]) / 2,
        shown.on,
        yerr=np.sqrt(shown.on),
        fmt="o",
        color=ON,
        elinewidth=0.8,
        label=on_label,
    )
    ax.set_ylabel(f"events (Off scaled by {alpha_label(shown.alpha)})")
    return [points, steps]


def leave_room(ax: Axes, shown: ScoreHistogram | ThetaSquaredHistogram, factor: float) -> None:
    """Let counts start at 0 and end below the legend."""
    highest = np.maximum(shown.on + np.sqrt(shown.on), shown.alpha * (shown.off + np.sqrt(shown.off))).max()
    ax.set_ylim(0, factor * max(highest, 1.0))


def label_significance(ax: Axes, alpha: float) -> None:
    """Say what the second axis shows, in which unit, and with which exposure ratio."""
    ax.set_ylabel(rf"significance / $\sigma$ ({alpha_label(alpha)})")


def mark_exploration(ax: Axes, threshold: float | None) -> None:
    """Say on the plot that a threshold was chosen by looking."""
    if threshold is not None:
        ax.set_title(f"exploration: score > {threshold:.3g}")


def _matplotlib() -> Any:
    """Import matplotlib, or say which extra brings it."""
    try:
        import matplotlib as mpl
        import matplotlib.figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'excess[report]'") from error
    return mpl


def _check_target(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is drawn."""
    if path.suffix.lower() not in FORMATS:
        known = list(FORMATS)
        raise ValueError(
            f"{path}: a plot is saved as {', '.join(known[:-1])} or {known[-1]}; choose one of these suffixes"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist; make it first")


def _save(ax: Axes, path: Path) -> None:
    """Write the figure that the axes are part of, whole or not at all."""
    figure: Any = ax.figure
    whole: Figure = figure if hasattr(figure, "savefig") else figure.figure  # axes may be part of a subfigure
    with _matplotlib().rc_context(_FILE_STYLE), replacing(path) as temporary:
        whole.savefig(temporary, **FORMATS[path.suffix.lower()])
