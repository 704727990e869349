"""All plots of a run as files, for papers and slides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from excess._core.files import prepare_folder
from excess.report import plots
from excess.report.series import has_score
from excess.report.style import FORMATS
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest

__all__ = ["PLOT_FORMATS", "write_plots"]

PLOT_FORMATS = tuple(suffix.removeprefix(".") for suffix in FORMATS)

_PLOTS: dict[str, tuple[Callable[..., Any], Callable[[Detection], bool]]] = {
    "theta_squared": (plots.plot_theta_squared, lambda found: found.theta is not None),
    "scores": (plots.plot_score_histogram, lambda found: bool(has_score(found).any())),
    "threshold_curve": (plots.plot_threshold_curve, lambda found: bool(has_score(found).any())),
    "over_time": (plots.plot_significance_over_time, lambda found: bool(found.held_out.any())),
    "importances": (plots.plot_feature_importances, lambda found: found.importances is not None),
}
"""Plots of a detection, and whether it knows what they show; the report says what is missing."""


def write_plots(
    detections: Mapping[str, Detection], folder: Path, suffix: str, *, null_tests: Mapping[str, NullTest] | None = None
) -> list[Path]:
    """Write every plot of every model for which all is known that it shows.

    Parameters
    ----------
    detections : mapping of str to Detection
        What each model found.
    folder : Path
        Made if it is not there.
    suffix : {"png", "pdf", "svg"}
        Format of the files.
    null_tests : mapping of str to NullTest, default=None
        What was found where there is no source.

    Returns
    -------
    list of Path
        The files, named by model and plot.
    """
    if suffix not in PLOT_FORMATS:
        raise ValueError(f"suffix must be one of {', '.join(PLOT_FORMATS)}, got {suffix!r}")
    written = []
    prepare_folder(folder)
    for name, detection in detections.items():
        wanted = {plot: partial(draw, detection) for plot, (draw, known) in _PLOTS.items() if known(detection)}
        if null_tests is not None and name in null_tests:
            wanted["null_test"] = partial(plots.plot_null_test, null_tests[name], detection=detection)
        for plot, draw in wanted.items():
            written.append(folder / f"{_as_file_name(name)}_{plot}.{suffix}")
            draw(path=written[-1])
    return written


def _as_file_name(name: str) -> str:
    """Return the name of a model, which may be a path, without what a file name cannot hold."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name.lstrip("./"))
