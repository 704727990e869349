"""The Crab observation and the labelled events for the supervised reference: FACT's files, or simulations of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from excess._core.files import sha256_of
from excess.events import load_config, read_events, to_features
from excess.observation.observation import Observation
from excess.observation.observing import observe
from excess.observation.simulation import simulate_labelled, simulate_observation
from excess.reproduction.datasets import LabelledSet
from excess.reproduction.settings import Settings

__all__ = ["are_labelled", "crab_data", "fact_files", "identify_crab", "labelled_events", "labelled_files"]

_FILES = {"dl2": "*crab*dl2*", "dl3": "*crab*dl3*", "gamma": "gamma*", "proton": "proton*"}
N_REGIONS = 6
"""The On region and the Off regions of the open Crab analysis, which the default settings are of."""
N_LABELLED = 240_000
"""Labelled events that the paper's supervised forest was trained on, half of them gammas."""
N_FEW_LABELLED = 2_000
"""The same of its small version."""
N_TEST = 40_000
"""Simulated events to draw ROC curves on."""


def fact_files(settings: Settings) -> dict[str, Path]:
    """Return FACT's files in the folder of data, as far as they are there: dl2, dl3, gamma and proton.

    Without the DL2 file of the Crab there are none: then everything is simulated.
    """
    found = _files_found(settings)
    return found if "dl2" in found else {}


def labelled_files(settings: Settings) -> dict[str, Path]:
    """Return the files of gammas and protons in the folder of data, whether they are used or not."""
    return {kind: path for kind, path in _files_found(settings).items() if kind in ("gamma", "proton")}


def _files_found(settings: Settings) -> dict[str, Path]:
    if settings.data is None or settings.small:
        return {}
    found = {}
    for kind, name in _FILES.items():
        places = [(folder, suffix) for folder in (settings.data, settings.data / "fact") for suffix in ("hdf5", "h5")]
        files = [path for folder, suffix in places for path in sorted(folder.glob(f"{name}.{suffix}"))]
        if files:
            found[kind] = files[0]
    return found


def identify_crab(settings: Settings) -> dict[str, Any]:
    """Return what tells the events from others."""
    files = fact_files(settings)
    if not files:
        return {"crab": "simulated"}
    return {"crab": {kind: sha256_of(path)[:16] for kind, path in files.items()}}


def are_labelled(identity: Mapping[str, Any]) -> bool:
    """Say whether there are labelled events beside the Crab, from what `identify_crab` says about the data.

    Examples
    --------
    >>> from excess.reproduction.crab_data import are_labelled
    >>> are_labelled({"crab": "simulated"}), are_labelled({"crab": {"dl2": "0f"}})
    (True, False)
    """
    files = identity["crab"]
    return isinstance(files, str) or {"gamma", "proton"} <= set(files)


@lru_cache(maxsize=1)
def crab_data(settings: Settings) -> Observation:
    """Return the events of On and Off regions with their nights: FACT's, or simulated ones without FACT's files."""
    config, files = load_config(), fact_files(settings)
    if files:
        observation = observe(files["dl2"], config, join=files.get("dl3"), nearby=False)
        if observation.groups is None:
            raise ValueError(f"{files['dl2']}: has no column of nights, which the cross-validation needs")
        return observation
    size = (60_000, 600) if settings.small else ()
    return observe(simulate_observation(*size, random_state=settings.seed), config, nearby=False)


@lru_cache(maxsize=4)
def labelled_events(part: str, settings: Settings) -> LabelledSet | None:
    """Return labelled events: ``"train"``, ``"train-small"`` or ``"test"``; None where real data come without any.

    Of files, every other event is for training and the rest for testing.
    """
    sizes = {"train": N_LABELLED, "train-small": N_FEW_LABELLED, "test": N_TEST}
    files = fact_files(settings)
    if not are_labelled({"crab": files or "simulated"}):
        return None
    if files:
        return _from_files(files, part)
    n = sizes[part] // (20 if settings.small else 1) // 2
    number = list(sizes).index(part)
    events = simulate_labelled(n, n, random_state=settings.trial_seed(1_000, number))
    X = events[list(crab_data(settings).names)].to_numpy(np.float64)
    return LabelledSet(X, events["is_signal"].to_numpy(np.int64))


def _from_files(files: dict[str, Path], part: str) -> LabelledSet:
    config = load_config()
    parts = []
    for kind in ("gamma", "proton"):
        features = to_features(read_events(files[kind], config.columns_needed()), config)
        X = features.X[features.valid]
        X = X[1::2] if part == "test" else X[::2]
        parts.append(X[: N_FEW_LABELLED // 2] if part == "train-small" else X)
    return LabelledSet(np.concatenate(parts), np.repeat([1, 0], [len(X) for X in parts]))
