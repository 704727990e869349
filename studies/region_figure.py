"""The figure of docs/regions.md: On and Off of each method, by events that are spread evenly over the sky.

    python -m studies.region_figure docs/figures/regions.png

Result of 2026-11-17 (commit 5737f51): docs/figures/regions.png.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from excess.config import RegionConfig
from excess.dataset import find_regions
from excess.report._style import GREY, OFF, ON, PAPER_STYLE

SOURCE = {"source_ra": 83.63, "source_dec": 22.01}
STAR = {"name": "star", "ra": 82.8, "dec": 22.95, "radius": 0.25}
POINTING = (83.2, 22.46)
PANELS = {
    "reflected, n_regions: 6": {"method": "reflected"},
    "reflected, n_regions: auto": {"method": "reflected", "n_regions": "auto", "exclusion": [STAR]},
    "ring": {"method": "ring", "n_regions": 2, "exclusion": [STAR]},
    "same_declination": {"method": "same_declination", "n_regions": 5},
}


def main(path: str) -> None:
    """Draw the figure."""
    import matplotlib as mpl

    rng = np.random.default_rng(0)
    n_events = 60_000
    events = pd.DataFrame(
        {
            "ra": POINTING[0] + rng.uniform(-1.7, 1.7, n_events),
            "dec": POINTING[1] + rng.uniform(-1.3, 1.3, n_events),
            "pointing_ra": POINTING[0],
            "pointing_dec": POINTING[1],
        }
    )
    with mpl.rc_context(dict(PAPER_STYLE)):
        figure = Figure(figsize=(7.0, 1.9), layout="constrained")
        axes = figure.subplots(1, len(PANELS), sharey=True)
        for ax, (title, settings) in zip(axes, PANELS.items(), strict=True):
            regions = find_regions(events, RegionConfig(**SOURCE, **settings))
            for chosen, color in ((regions.region > 0, OFF), (regions.region == 0, ON)):
                ax.plot(*events.loc[chosen, ["ra", "dec"]].to_numpy().T, ",", color=color, rasterized=True)
            if settings["method"] != "same_declination":
                ax.plot(*POINTING, "+", color=GREY, markersize=6)
            if "exclusion" in settings:
                angle = np.linspace(0, 2 * np.pi, 200)
                width = STAR["radius"] / np.cos(np.radians(STAR["dec"]))
                ax.plot(
                    STAR["ra"] + width * np.cos(angle), STAR["dec"] + STAR["radius"] * np.sin(angle), "--", color=GREY
                )
            ax.set(title=title, xlabel="right ascension / deg", xlim=(84.9, 81.5), ylim=(21.2, 23.7))
            ax.set_aspect(1 / np.cos(np.radians(POINTING[1])))
        axes[0].set_ylabel("declination / deg")
        figure.savefig(path, dpi=200, metadata={"Software": None})


if __name__ == "__main__":
    main(sys.argv[1])
