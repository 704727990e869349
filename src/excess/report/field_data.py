"""Data of the page about features, rates, bins and the sky, as JSON takes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from excess.report.exploration import counts_text
from excess.report.rates import TIMES, excess_rates, has_rates
from excess.report.tables import text_if_known
from excess.validation.detection import Detection
from excess.validation.feature_histograms import FeatureHistogram, OnOffBins

__all__ = ["bin_data", "bin_rows", "feature_data", "rate_data", "sky_data"]

_BYTES_OF_FEATURES = 250_000
_BYTES_PER_FEATURE = 1_300
_MIN_FEATURES = 5
"""Size of the histograms of features of all models together, of one feature, and features of a model at least."""
_MAX_MAPS = 4
"""Largest number of models that have a map of the sky on the page."""
MAX_CIRCLES = 40
"""Largest number of Off regions that are drawn into a map; of more, none is."""


def feature_data(detection: Detection, missing: list[str], n_models: int = 1) -> list[dict[str, Any]] | None:
    """Return On and scaled Off in each feature before and after the selection, the most important features first."""
    if not detection.features:
        missing.append(
            "Values of the features are not known (folders of older runs do not hold them), so On and Off "
            "are not compared in every feature."
        )
        return None
    found = order_features(detection)
    n_shown = max(_MIN_FEATURES, _BYTES_OF_FEATURES // _BYTES_PER_FEATURE // n_models)
    if len(found) > n_shown:
        missing.append(
            f"On and Off are compared in {n_shown} of {len(found)} features; histograms.json has all of them."
        )
    return [_feature(one) for one in found[:n_shown]]


def order_features(detection: Detection) -> list[FeatureHistogram]:
    """Return the histograms of features by their importance, where it is known."""
    found = list(detection.features or ())
    names, importances = detection.feature_names, detection.importances
    if names is None or importances is None:
        return found
    weight = dict(zip(names, importances.tolist(), strict=True))
    return sorted(found, key=lambda one: -weight.get(one.feature, float("inf")))


def _feature(one: FeatureHistogram) -> dict[str, Any]:
    """Return one histogram; from what a run folder keeps, so that the report of a finished run is that of the run."""
    kept = FeatureHistogram.from_dict(one.to_dict())

    def stage(bins: OnOffBins) -> dict[str, Any]:
        return {
            "on": bins.n_on.tolist(),
            "off": bins.background.round(2).tolist(),
            "off_error": bins.background_error.round(2).tolist(),
        }

    edges = [float(f"{edge:.5g}") for edge in kept.edges]
    return {
        "name": kept.feature,
        "edges": edges if len(set(edges)) == len(edges) else kept.edges.tolist(),
        "log": kept.logarithmic,
        "before": stage(kept.before),
        "after": stage(kept.after),
    }


def rate_data(detection: Detection, missing: list[str], max_rows: int) -> dict[str, Any] | None:
    """Return the excess per hour by group, and by night where that is something else."""
    if detection.exposure is None:
        missing.append("Observation times are not known, so there is no excess per hour.")
        return None
    found: dict[str, Any] = {}
    for by in ("group", "night"):
        if not has_rates(detection, by):
            continue
        rates = excess_rates(detection, by)
        if rates.n_unknown:
            n_all = len(rates.labels) + rates.n_unknown
            missing.append(f"The observation time of {rates.n_unknown:,} of {n_all:,} {by}s is not known.")
        if rates.labels:
            found[by] = {
                "labels": rates.labels[:max_rows],
                "hours": rates.hours[:max_rows].round(4).tolist(),
                "rate": rates.rate[:max_rows].round(3).tolist(),
                "error": rates.error[:max_rows].round(3).tolist(),
                "mean": round(rates.mean, 3),
            }
    if not found:
        return None
    return {**found, "source": TIMES[detection.exposure.source], "hours": f"{detection.exposure.total:.2f}"}


def bin_data(detection: Detection) -> dict[str, Any] | None:
    """Return excess and significance in the bins of a column; nothing where there are none."""
    bins = detection.bins
    if bins is None:
        return None

    def number(value: float) -> float | None:
        return None if np.isnan(value) else round(value, 3)

    return {
        "column": bins.column,
        "labels": list(bins.labels),
        "excess": [round(one.counts.excess, 3) for one in bins.outcomes],
        "error": [round(one.counts.excess_error, 3) for one in bins.outcomes],
        **{
            statistic: [number(one.significances[statistic]) for one in bins.outcomes]
            for statistic in ("cut", "likelihood")
        },
    }


def bin_rows(detection: Detection) -> list[dict[str, str]]:
    """Return one row of texts for each bin of a column, and one for all of them together."""
    bins = detection.bins
    if bins is None:
        return []
    named = [*zip(bins.labels, bins.outcomes, bins.notes, strict=True), ("joint", detection.outcome, "")]
    return [
        {
            "bin": label,
            **counts_text(outcome.counts),
            "likelihood": text_if_known("{:.2f}", outcome.significances["likelihood"]),
            "note": note,
        }
        for label, outcome, note in named
    ]


def sky_data(detection: Detection, missing: list[str], number: int = 0) -> dict[str, Any] | None:
    """Return the map of the sky; the page keeps that of all events once, because models do not change it."""
    sky = detection.sky
    if sky is None or not sky.layers:
        missing.append(
            "There is no map of the sky: it needs sky positions of events and of the pointing, the position of the "
            "source, and at least 100 events around it."
        )
        return None
    if number >= _MAX_MAPS:
        missing.append(f"The maps of the sky of the first {_MAX_MAPS} models are on the page.")
        return None
    if "selected" not in sky.layers:
        missing.append("Too few events are selected for a map of them.")
    written = sky.to_dict()
    circles = written.pop("off_centers")
    checks = {name: f"{layer.mean:+.2f} ± {layer.spread:.2f}".replace("-", "−") for name, layer in sky.layers.items()}
    return {
        **{name: written[name] for name in ("half_width", "n_pixels", "region_radius", "layers")},
        "off_centers": circles if len(circles) <= MAX_CIRCLES else [],
        "share": f"{100 * sky.share:.3g}",
        "checks": checks,
    }
