"""Plot of the sky around the source: events, excess or significance, with the regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from excess._core.checks import as_choice
from excess._core.errors import require
from excess.report.checks import PathLike, check_detection
from excess.report.field_data import MAX_CIRCLES
from excess.report.style import GREY, OFF, ON, paper_axes
from excess.validation.detection import Detection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_sky_map"]

_SIZE = (3.4, 2.9)
_LABELS = {"significance": r"significance / $\sigma$", "excess": "excess / events", "counts": "events"}


def plot_sky_map(
    detection: Detection,
    *,
    events: str = "selected",
    quantity: str = "significance",
    ax: Axes | None = None,
    path: PathLike | None = None,
) -> Axes:
    r"""Plot a map of the sky around the source, with the On region (solid) and the Off regions (dotted).

    Excess and significance are those of the events within the radius of a region around each pixel. Their background
    are events at the same distance from the pointing elsewhere, but not near the source: the acceptance is taken to
    depend on this distance alone, as for reflected regions. Neighbouring pixels share events.

    Parameters
    ----------
    detection : Detection
        With a map; `excess.analysis.search` makes one where files hold sky positions and the source is known.
    events : {"selected", "all"}, default="selected"
        Which events.
    quantity : {"significance", "excess", "counts"}, default="significance"
        What is shown.
    ax, path
        As for `plot_theta_squared`.

    Returns
    -------
    Axes
        The axes; the colour bar is the last axes of the figure.

    Examples
    --------
    >>> from excess.analysis import observe, search
    >>> from excess.events import AnalysisConfig
    >>> from excess.observation import simulate_observation
    >>> from excess.report import plot_sky_map
    >>> crab = {"source_ra": 83.63, "source_dec": 22.01}
    >>> events = simulate_observation(20_000, 300, source=(83.63, 22.01), random_state=0)
    >>> run = search(observe(events, AnalysisConfig(regions=crab)), "tree", null_tests=False)
    >>> plot_sky_map(run.detections["tree"], events="all").get_xlabel()
    'east of the source / deg'
    """
    check_detection(detection)
    sky = detection.sky
    if sky is None:
        raise ValueError(
            "the detection has no map of the sky; it needs files with sky positions of events and pointing, and the "
            "position of the source (source_ra and source_dec)"
        )
    as_choice("quantity", quantity, tuple(_LABELS))
    as_choice("events", events, ("selected", "all"))
    if events not in sky.layers:
        raise ValueError(f"there are too few {events} events for a map of them")
    layer = sky.layers[events]
    values = getattr(layer, quantity)
    with paper_axes(ax, path, _SIZE) as ax:
        colors = require("matplotlib.colors", "plotting", extra="report").LinearSegmentedColormap
        patches = require("matplotlib.patches", "plotting", extra="report")
        diverging = quantity != "counts"
        largest = float(np.nanmax(np.abs(values), initial=1.0))
        shades = [OFF, "#ffffff", ON] if diverging else ["#ffffff", OFF]
        half = (sky.axis[1] - sky.axis[0]) / 2
        edges = np.append(sky.axis - half, sky.axis[-1] + half)
        drawn = ax.pcolormesh(
            edges,
            edges,
            values,
            cmap=colors.from_list("excess", shades),
            vmin=-largest if diverging else 0,
            vmax=largest,
            rasterized=True,
        )
        ax.figure.colorbar(drawn, ax=ax, label=f"{_LABELS[quantity]} ({events} events)")
        shown = sky.off_centers if len(sky.off_centers) <= MAX_CIRCLES else sky.off_centers[:0]
        for center in shown.tolist():
            ax.add_patch(patches.Circle(center, sky.region_radius, fill=False, edgecolor=GREY, linestyle=":"))
        ax.add_patch(patches.Circle((0, 0), sky.region_radius, fill=False, edgecolor="black"))
        ax.set_aspect("equal")
        ax.set_xlim(sky.axis[-1] + half, sky.axis[0] - half)
        ax.set_ylim(sky.axis[0] - half, sky.axis[-1] + half)
        ax.set_xlabel("east of the source / deg")
        ax.set_ylabel("north of the source / deg")
    return ax
