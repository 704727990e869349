"""The Crab observation and the labelled events for the supervised reference: FACT's files, or simulations of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess._core.files import sha256_of
from excess.reproduction.datasets import LabelledSet
from excess.reproduction.settings import Settings

__all__ = [
    "CrabData",
    "are_labelled",
    "crab_data",
    "fact_files",
    "identify_crab",
    "labelled_events",
    "labelled_files",
]

_SEARCHED = ("", "fact")
_PATTERNS = {
    "dl2": ("*crab*dl2*.hdf5", "*crab*dl2*.h5"),
    "dl3": ("*crab*dl3*.hdf5", "*crab*dl3*.h5"),
    "gamma": ("gamma*.hdf5", "gamma*.h5"),
    "proton": ("proton*.hdf5", "proton*.h5"),
}
N_LABELLED = 240_000
"""Labelled events that the paper's supervised forest was trained on, half of them gammas."""
N_FEW_LABELLED = 2_000
"""The same of its small version."""
N_TEST = 40_000
"""Simulated events to draw ROC curves on."""


@dataclass(frozen=True, eq=False)
class CrabData:
    """On and Off events of the Crab."""

    X: FloatArray
    names: tuple[str, ...]  # of the features
    region: NDArray[np.int64]  # 0 is On
    n_regions: int  # On included
    groups: NDArray[Any]  # nights

    @property
    def on(self) -> BoolArray:
        """Who is On."""
        return self.region == 0

    @property
    def alpha(self) -> float:
        """Exposure ratio On/Off."""
        return 1 / (self.n_regions - 1)


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
    for kind, patterns in _PATTERNS.items():
        files = [
            path for part in _SEARCHED for pattern in patterns for path in sorted((settings.data / part).glob(pattern))
        ]
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
def crab_data(settings: Settings) -> CrabData:
    """Return the events of On and Off regions with their nights: FACT's, or simulated ones without FACT's files."""
    from excess.events import load_config
    from excess.observation.pipeline import observe, observe_table
    from excess.observation.simulation import simulate_observation

    config, files = load_config(), fact_files(settings)
    if files:
        observation = observe(files["dl2"], config, join=files.get("dl3"))
    elif settings.small:
        observation = observe_table(simulate_observation(60_000, 600, random_state=settings.seed), config)
    else:
        observation = observe_table(simulate_observation(random_state=settings.seed), config)
    if observation.groups is None:
        raise ValueError(f"{files['dl2']}: has no column of nights, which the cross-validation needs")
    return CrabData(
        np.ascontiguousarray(observation.X),
        observation.names,
        np.asarray(observation.regions.region, dtype=np.int64),
        observation.regions.n_regions,
        observation.groups,
    )


@lru_cache(maxsize=4)
def labelled_events(part: str, settings: Settings) -> LabelledSet | None:
    """Return labelled events: ``"train"``, ``"train-small"`` or ``"test"``; None where real data come without any.

    Of files, every other event is for training and the rest for testing.
    """
    from excess.observation.simulation import simulate_labelled

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
    from excess.events import load_config, read_events, to_features

    config = load_config()
    parts = []
    for kind in ("gamma", "proton"):
        features = to_features(read_events(files[kind], config.columns_needed()), config)
        X = features.X[features.valid]
        X = X[1::2] if part == "test" else X[::2]
        parts.append(X[: N_FEW_LABELLED // 2] if part == "train-small" else X)
    return LabelledSet(np.concatenate(parts), np.repeat([1, 0], [len(X) for X in parts]))
