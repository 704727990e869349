"""Style of the figures: colours, sizes, axes, files, and elements common to several figures."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excess._utils.checks import FloatArray
from excess._utils.errors import require
from excess._utils.errors import with_error as _with_error
from excess._utils.files import replacing
from excess.detection._result import Detection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PathLike = str | os.PathLike[str]

ON = "#d55e00"
"""Colour of On events, distinguishable from the next two for colour-blind readers."""
OFF = "#0072b2"
"""Colour of Off events."""
OTHER = "#009e73"
"""Colour of data that are neither On nor Off."""
GREY = "#666666"
"""Colour of marks and expectations."""

FIGURE_SIZE = (3.4, 2.6)  # width and height of a figure in inches: one column of a paper
TALL = (FIGURE_SIZE[0], 1.4 * FIGURE_SIZE[1])  # size of a figure with two panels

PAPER_STYLE: Mapping[str, Any] = {
    **dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 7),
    **dict.fromkeys(("legend.fontsize", "legend.title_fontsize"), 6.5),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("xtick.minor.width", "ytick.minor.width"), 0.4),
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.0,
    "lines.markersize": 3,
}
"""Settings of matplotlib for new figures; axes of the caller keep their style."""

FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"format": "png", "dpi": 300, "metadata": {"Software": None}},
    ".pdf": {"format": "pdf", "metadata": {"Creator": None, "Producer": None, "CreationDate": None}},
    ".svg": {"format": "svg", "metadata": {"Creator": None, "Date": None}},
}
"""Arguments of ``savefig`` for each suffix; without dates and versions, so files are reproducible."""

_FILE_STYLE = {"svg.hashsalt": "excess", "pdf.fonttype": 42}  # reproducible SVG identifiers; PDF fonts for journals
_FORMULAS = {"σ": r"\sigma", "α": r"\alpha", "θ": r"\theta", "²": "^2", "×": r"\times", "±": r"\pm", "−": "-"}
_MOST_TICKS = 3  # maximum number of tick labels of a logarithmic axis
_PANEL_WIDTH, _COLUMNS = 1.75, 4  # width in inches, and panels in a row: four are as wide as a page of a paper
_LABEL_SIZE, _LONG_NAME = 7.0, 22  # font size of feature names, and number of characters above which it is smaller


def with_error(value: float, error: float, form: str = ",.1f") -> str:
    """Return a value and its error as text; nothing where one of them is not a number."""
    return "" if np.isnan([value, error]).any() else _with_error(value, error, form, "±").replace("-", "−")


def check_detection(detection: Any) -> None:
    """Raise TypeError unless this is a detection."""
    if not isinstance(detection, Detection):
        raise TypeError(f"detection must be a Detection, got {type(detection).__name__}{pick_one(detection)}")


def pick_one(value: Any) -> str:
    """Return a hint for results of several models."""
    return f"; pick one of {', '.join(map(repr, value))}" if isinstance(value, dict) and value else ""


def as_text(name: Any) -> str:
    """Escape a name, so matplotlib does not parse it as a formula."""
    return str(name).replace("$", r"\$")


def alpha_label(alpha: float | None) -> str:
    """Return an exposure ratio as text for axes and legends; None if it varies between events."""
    return "its own α" if alpha is None else f"α = {alpha:.3g}"


@contextmanager
def paper_axes(
    ax: Axes | None, path: PathLike | None, size: tuple[float, float] = FIGURE_SIZE, *, bottom: float | None = 0.38
) -> Iterator[Axes]:
    """Yield axes, by default of a new figure, saved if there is a path; without ``bottom``, margins follow labels."""
    target = None if path is None else Path(path)
    if target is not None:
        _check_target(target)
    require("matplotlib.figure", "plotting")
    mpl = require("matplotlib", "plotting")
    with mpl.rc_context(PAPER_STYLE if ax is None else {}):
        if ax is None:
            figure = mpl.figure.Figure(figsize=size, layout="constrained" if bottom is None else "none")
            ax = figure.add_subplot()
            if bottom is not None:
                figure.subplots_adjust(left=0.16, right=0.97, bottom=bottom / size[1], top=1 - 0.18 / size[1])
            ax.locator_params(nbins=6)
        ax.spines[["top", "right"]].set_visible(False)
        yield ax
        if mpl.rcParams["text.usetex"]:
            for text in ax.figure.findobj(mpl.text.Text):
                text.set_text(re.sub(f"[{''.join(_FORMULAS)}]", lambda one: f"${_FORMULAS[one[0]]}$", text.get_text()))
    if target is not None:
        _save(ax, target)


_SHARED = """
    ax : Axes or None, default=None
        Axes to draw on; by default of a new figure as wide as a column of a paper.
    path : path-like or None, default=None
        File to save the figure to, as PNG, PDF or SVG by its suffix.

    Returns
    -------
    Axes
        The axes; the figure is ``ax.figure``.

    Examples
"""
"""Documentation of the parameters added by `figure`."""
_OPTIONS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=f"{kind} | None")
    for name, kind in (("ax", "Axes"), ("path", "PathLike"))
]


def figure(
    size: tuple[float, float] = FIGURE_SIZE, *, bottom: float | None = 0.38
) -> Callable[..., Callable[..., Axes]]:
    """Turn a function that draws on axes into a plot with the options ``ax`` and ``path``; see `paper_axes`."""

    def decorate(draw: Callable[..., None]) -> Callable[..., Axes]:
        @wraps(draw)
        def plot(*given: Any, ax: Axes | None = None, path: PathLike | None = None, **options: Any) -> Axes:
            if first == "detection":
                check_detection(given[0] if given else options.get(first))
            with paper_axes(ax, path, size, bottom=bottom) as axes:
                draw(axes, *given, **options)
            return axes

        own = list(inspect.signature(draw).parameters.values())[1:]
        first = own[0].name
        plot.__signature__ = inspect.Signature([*own, *_OPTIONS], return_annotation="Axes")  # type: ignore[attr-defined]
        plot.__doc__ = (draw.__doc__ or "").replace("\n\n    Examples\n", _SHARED, 1)
        return plot

    return decorate


@contextmanager
def paper_panels(
    places: Sequence[tuple[int, int]], rows: Sequence[tuple[float, float, float]], path: PathLike | None
) -> Iterator[list[Axes]]:
    """Yield axes at rows (space above, height, and space below in inches) and columns, with one legend."""
    n_columns = 1 + max(column for _, column in places)
    ends = np.cumsum([0.3, *(sum(row) for row in rows)])
    width, height = _PANEL_WIDTH * max(n_columns, 2), ends[-1]  # a single panel needs room for its legend
    with paper_axes(None, path, (width, height)) as first:
        figure: Any = first.figure
        axes = [first, *(figure.add_axes((0, 0, 1, 1)) for _ in places[1:])]
        for ax, (row, column) in zip(axes, places, strict=True):
            _, inside, below = rows[row]
            bottom, left = height - ends[row + 1] + below, 0.5 + _PANEL_WIDTH * column
            ax.set_position((left / width, bottom / height, (_PANEL_WIDTH - 0.55) / width, inside / height))
            ax.spines[["top", "right"]].set_visible(False)
            ax.tick_params(pad=2)
            ax.locator_params(nbins=3)
        yield axes
        drawn = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in axes]
        handles = {label: handle for own in drawn for handle, label in reversed(list(own))}
        where = {"loc": "upper left", "bbox_to_anchor": (0.4 / width, 1), "ncols": max(n_columns, 2)}
        figure.legend(list(handles.values()), list(handles), **where)


def panel_places(n_panels: int) -> list[tuple[int, int]]:
    """Return row and column of each panel, four in a row."""
    return [divmod(number, _COLUMNS) for number in range(n_panels)]


def split_axes(ax: Axes, share: float = 0.42) -> Axes:
    """Divide axes into two panels with a common first axis, and return the lower one, with a fraction of the height."""
    figure: Any = ax.figure
    place = ax.get_subplotspec()
    if place is not None:
        grid = place.subgridspec(2, 1, height_ratios=(1 - share, share), hspace=0.08)
        ax.set_subplotspec(grid[0])
        below: Axes = figure.add_subplot(grid[1], sharex=ax)
    else:  # axes placed manually
        left, bottom, width, height = ax.get_position().bounds
        ax.set_position((left, bottom + share * height, width, (1 - share) * height))
        below = figure.add_axes((left, bottom, width, 0.92 * share * height), sharex=ax)
    below.spines[["top", "right"]].set_visible(False)
    ax.xaxis.set_visible(False)
    return below


def draw_steps(ax: Axes, values: FloatArray, edges: FloatArray, **style: Any) -> Any:
    """Draw a histogram like ``ax.stairs``, but without updating the axis limits, which is slower than drawing."""
    from matplotlib.patches import StepPatch

    return ax.add_artist(StepPatch(values, edges, **style))


def draw_off(ax: Axes, edges: FloatArray, values: FloatArray, error: FloatArray, label: str) -> Any:
    """Draw scaled Off as filled steps with an error band, and return the line for the legend."""
    draw_steps(ax, values, edges, fill=True, color=OFF, alpha=0.25, linewidth=0)
    draw_steps(ax, values + error, edges, baseline=values - error, fill=True, color=OFF, alpha=0.35, linewidth=0)
    return draw_steps(ax, values, edges, fill=False, color=OFF, linewidth=0.8, label=label)


def draw_points(
    ax: Axes, x: NDArray[Any], y: NDArray[Any], error: Any, color: str, label: str | None = None, **style: Any
) -> Any:
    """Draw points with one error, or a lower and an upper one; all bars are one line, which is faster."""
    low, high = (y + sign * one for sign, one in zip((-1, 1), np.broadcast_to(error, (2, len(y))), strict=True))
    bars = np.column_stack([low, high, np.full(len(y), np.nan)]).ravel()
    ax.plot(np.repeat(x, 3), bars, color=color, linewidth=0.8)
    return ax.plot(x, y, "o", color=color, label=label, **style)[0]


def draw_logarithmic(ax: Axes, low: float, high: float) -> None:
    """Make the first axis logarithmic, with a few round tick labels."""
    ax.set_xscale("log")
    ax.set_xticks(_logarithmic_ticks(low, high))
    ax.set_xticks([], minor=True)
    ax.xaxis.set_major_formatter("{x:g}")


def draw_logarithmic_counts(ax: Axes, low: float, high: float, room: float) -> None:
    """Make the second axis logarithmic, from slightly below a number to one with room for the legend."""
    ax.set_yscale("log", nonpositive="clip")
    ax.set_ylim(0.5 * low, high ** (1 + room) / (0.5 * low) ** room)
    ax.set_yticks([], minor=True)  # each tick takes as long as a line
    # short, because the margin is fixed
    ax.yaxis.set_major_formatter(lambda x, _: f"{x:g}" if x < 10_000 else f"{x / 1000:g}k")


def _logarithmic_ticks(low: float, high: float) -> FloatArray:
    """Return a few round numbers between two positive ones: powers of ten, with 2 and 5 if there is room."""
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for factors in ((1, 2, 3, 4, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = np.outer(decades, factors).ravel()
        ticks = ticks[(ticks >= low) & (ticks <= high)]
        if len(ticks) <= _MOST_TICKS:
            return ticks
    return ticks[:: -(-len(ticks) // _MOST_TICKS)]


def bin_centers(edges: FloatArray, *, logarithmic: bool = False) -> FloatArray:
    """Return the middle of each bin, on a logarithmic axis the geometric mean of its edges."""
    return np.sqrt(edges[1:] * edges[:-1]) if logarithmic else (edges[1:] + edges[:-1]) / 2


def label_feature(ax: Axes, name: str) -> None:
    """Label the first axis of a panel with the name of a feature, smaller if it is long."""
    ax.set_xlabel(as_text(name), fontsize=_LABEL_SIZE * min(1.0, _LONG_NAME / len(name)), labelpad=2)


def label_significance(ax: Axes, alpha: float, *, differs: bool = False) -> None:
    """Label the second axis: significance with its unit and the exposure ratio, or its mean."""
    ax.set_ylabel(f"significance / σ ({'mean ' if differs else ''}{alpha_label(alpha)})")


def mark_exploration(ax: Axes, threshold: float | None) -> None:
    """Mark the plot as exploration if a threshold was given."""
    if threshold is not None:
        ax.set_title(f"exploration: score > {threshold:.3g}")


def rotate_labels(ax: Axes) -> None:
    """Rotate the labels of the first axis."""
    for label in ax.get_xticklabels():
        label.set(rotation=30, ha="right", rotation_mode="anchor")


def _check_target(path: Path) -> None:
    """Raise an error for a file that cannot be written, before drawing."""
    if path.suffix.lower() not in FORMATS:
        known = list(FORMATS)
        raise ValueError(f"{path}: a plot is saved as {', '.join(known[:-1])} or {known[-1]}; choose a suffix")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist; create it first")


def _save(ax: Axes, path: Path) -> None:
    """Write the figure of the axes atomically."""
    figure: Any = ax.figure
    whole: Figure = figure if hasattr(figure, "savefig") else figure.figure  # axes may be part of a subfigure
    with require("matplotlib", "plotting").rc_context(_FILE_STYLE), replacing(path) as temporary:
        whole.savefig(temporary, **FORMATS[path.suffix.lower()])
