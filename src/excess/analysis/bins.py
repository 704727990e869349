"""Bins of an observation, such as those of energy: their edges, and models with a threshold for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from excess._core.errors import MismatchError
from excess.analysis.references import is_hybrid
from excess.estimators.binned import OnOffBinnedClassifier
from excess.observation.observation import Observation

__all__ = ["fix_edges", "with_bins"]


def fix_edges(observation: Observation) -> Observation:
    """Return an observation whose bins have edges: where only their number is given, bins of equally many events.

    Labels are not looked at.
    """
    bins = observation.config.bins
    if bins is None or bins.n_bins is None:
        return observation
    values = observation.X[:, observation.names.index(bins.column)]
    edges = np.unique(np.quantile(values, np.arange(1, bins.n_bins) / bins.n_bins))
    # without digits that nobody asked for
    edges = np.unique([float(f"{edge:.4g}") for edge in edges])
    edges = edges[(edges > values.min()) & (edges <= values.max())]
    if len(edges) == 0:
        raise MismatchError("bins", f"cannot be made: {bins.column} has the same value in almost all events")
    fixed = bins.model_copy(update={"edges": tuple(edges.tolist()), "n_bins": None})
    return replace(observation, config=observation.config.model_copy(update={"bins": fixed}))


def with_bins(models: Mapping[str, Any], observation: Observation) -> dict[str, Any]:
    """Return models with a threshold and a calibration for each bin of an observation; as they are if it has none.

    Models that have bins themselves stay as they are.
    """
    bins = observation.config.bins
    if bins is None:
        return dict(models)
    plain = observation.config.without_references().features
    found = {}
    for name, model in models.items():
        known = model.get_params(deep=False)
        shared = ("threshold", "threshold_tolerance", "n_threshold_bootstrap", "n_jobs", "random_state")
        settings = {key: known[key] for key in shared if key in known}
        # a hybrid sees a table, the others an array of the features
        column = bins.column if is_hybrid(model) else plain.index(bins.column)
        found[name] = (
            model
            if isinstance(model, OnOffBinnedClassifier)
            else OnOffBinnedClassifier(model, column, bins.edges, passthrough=bool(bins.feature), **settings)
        )
    return found
