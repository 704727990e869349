"""Files with all plots of a run, for papers and slides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from excess._core.files import prepare_folder
from excess.report.bin_plots import plot_bins
from excess.report.feature_plots import plot_feature_histograms, plot_feature_importances
from excess.report.group_plots import plot_excess_rate, plot_light_curve
from excess.report.histograms import has_score
from excess.report.likelihood_plots import plot_likelihood
from excess.report.null_plots import plot_null_test
from excess.report.plots import (
    plot_score_histogram,
    plot_significance_over_time,
    plot_theta_squared,
    plot_threshold_curve,
)
from excess.report.rates import has_rates
from excess.report.series import has_light_curve
from excess.report.simulation_plots import plot_simulation_agreement
from excess.report.sky_plots import plot_sky_map
from excess.report.style import FORMATS
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest
from excess.validation.simulation_agreement import SimulationAgreement

__all__ = ["PLOT_FORMATS", "write_plots"]

PLOT_FORMATS = tuple(suffix.removeprefix(".") for suffix in FORMATS)

_PLOTS: dict[str, tuple[Callable[..., Any], Callable[[Detection], bool]]] = {
    "theta_squared": (plot_theta_squared, lambda found: found.theta is not None),
    "scores": (plot_score_histogram, lambda found: bool(has_score(found).any())),
    "threshold_curve": (plot_threshold_curve, lambda found: bool(has_score(found).any())),
    "likelihood": (plot_likelihood, lambda found: found.ratio is not None and bool(found.held_out.any())),
    "light_curve": (plot_light_curve, has_light_curve),
    "over_time": (plot_significance_over_time, lambda found: bool(found.held_out.any())),
    "importances": (plot_feature_importances, lambda found: found.importances is not None),
    "features": (partial(plot_feature_histograms, n_features=40), lambda found: bool(found.features)),
    "excess_rate": (plot_excess_rate, lambda found: has_rates(found, "group")),
    "excess_rate_by_night": (partial(plot_excess_rate, by="night"), lambda found: has_rates(found, "night")),
    "sky_map": (plot_sky_map, lambda found: found.sky is not None and "selected" in found.sky.layers),
    "sky_map_all": (partial(plot_sky_map, events="all"), lambda found: found.sky is not None),
    "bins": (plot_bins, lambda found: found.bins is not None),
}
"""Plots of a detection, and whether it has the data for them."""


def write_plots(
    detections: Mapping[str, Detection],
    folder: Path,
    suffix: str,
    *,
    null_tests: Mapping[str, NullTest] | None = None,
    simulation: SimulationAgreement | None = None,
) -> list[Path]:
    """Write the plots of all models; those without data are left out.

    Parameters
    ----------
    detections : mapping of str to Detection
        The detection of each model.
    folder : Path
        Folder of the files; it is created if necessary.
    suffix : {"png", "pdf", "svg"}
        Format of the files.
    null_tests : mapping of str to NullTest, default=None
        Searches in the Off regions, where there is no source.
    simulation : SimulationAgreement or None, default=None
        Where simulated events differ from observed ones.

    Returns
    -------
    list of Path
        The files, named by model and plot.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect
    >>> from excess.report import write_plots
    >>> X, on = make_classification(600, weights=[0.8], random_state=0)
    >>> found = cross_val_detect({"tree": OnOffTreeClassifier(max_depth=3)}, X, on, alpha=1 / 5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(*(path.name for path in write_plots(found, Path(folder), "svg")))
    tree_scores.svg tree_threshold_curve.svg tree_likelihood.svg tree_over_time.svg tree_importances.svg
    """
    if suffix not in PLOT_FORMATS:
        raise ValueError(f"suffix must be one of {', '.join(PLOT_FORMATS)}, got {suffix!r}")
    written = []
    prepare_folder(folder)
    for name, detection in detections.items():
        wanted = {plot: partial(draw, detection) for plot, (draw, known) in _PLOTS.items() if known(detection)}
        if null_tests is not None and name in null_tests:
            wanted["null_test"] = partial(plot_null_test, null_tests[name], detection=detection)
        for plot, draw in wanted.items():
            written.append(folder / f"{_as_file_name(name)}_{plot}.{suffix}")
            draw(path=written[-1])
    if simulation is not None and simulation.comparisons:
        written.append(folder / f"simulation_check.{suffix}")
        plot_simulation_agreement(simulation, n_features=8, path=written[-1])
    return written


def _as_file_name(name: str) -> str:
    """Return the name of a model, which may be a path, without characters that a file name cannot have."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name.lstrip("./"))
