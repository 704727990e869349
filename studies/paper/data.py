"""Data of the studies: the paper's ten imbalanced sets, and the Crab observation with labelled events.

A folder of local data has imbalanced-learn's files (``zenodo/x*data.npz``, also under ``imblearn/``) and FACT's open
Crab sample (``*crab*dl2*``, ``*crab*dl3*``, ``gamma*`` and ``proton*``, .hdf5 or .h5, also under ``fact/``).
Without it, the sets are downloaded once by imbalanced-learn, and the Crab is simulated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification

from excess.config import load_config, to_features
from excess.dataset import OnOffDataset, simulate_labelled, simulate_observation
from excess.io import read_events
from studies.paper.trials import Settings

IMBALANCED_SETS: dict[str, int] = {
    "abalone": 5,
    "sick_euthyroid": 6,
    "thyroid_sick": 14,
    "mammography": 25,
    "optical_digits": 2,
    "satimage": 3,
    "pen_digits": 4,
    "coil_2000": 15,
    "letter_img": 21,
    "protein_homo": 26,
}
"""Names of the sets in imbalanced-learn with the numbers of their files, roughly the fastest first."""
ARCHIVE = "https://zenodo.org/record/61452/files/benchmark-imbalanced-learn.tar.gz"

N_REGIONS = 6
"""On and Off regions of the open Crab analysis."""
N_LABELLED = {"train": 240_000, "train-small": 2_000, "test": 40_000}
"""Labelled events, half of them gammas: for the paper's supervised forest, its small version, and ROC curves."""
_FACT_FILES = {"dl2": "*crab*dl2*", "dl3": "*crab*dl3*", "gamma": "gamma*", "proton": "proton*"}


class LabelledSet(NamedTuple):
    """Events with their clean labels: 1 is signal, or the rare class."""

    X: NDArray[np.float64]
    clean: NDArray[np.int64]


@lru_cache(maxsize=2)
def imbalanced_set(name: str, settings: Settings) -> LabelledSet:
    """Return one of the ten sets, or a small substitute for it."""
    if settings.small:
        seed = IMBALANCED_SETS[name]
        X, clean = make_classification(300, 6, weights=[0.8], class_sep=1.5, flip_y=0.0, random_state=seed)
        return LabelledSet(X, clean.astype(np.int64))
    from imblearn.datasets import fetch_datasets

    home = None
    if settings.data is not None:
        file = f"zenodo/x{IMBALANCED_SETS[name]}data.npz"
        homes = (settings.data, settings.data / "imblearn")
        home = next((str(folder) for folder in homes if (folder / file).is_file()), None)
        if home is None:
            raise FileNotFoundError(f"{settings.data} has no {file} ({name}); unpack {ARCHIVE} there, or omit --data")
    found = fetch_datasets(data_home=home, filter_data=(name,), download_if_missing=home is None)[name]
    return LabelledSet(np.ascontiguousarray(found.data, dtype=np.float64), (found.target == 1).astype(np.int64))


@lru_cache(maxsize=1)
def identify_sets(settings: Settings) -> dict[str, Any]:
    """Return a checksum of the values of each set."""
    sets = {name: imbalanced_set(name, settings) for name in IMBALANCED_SETS}
    return {"sets": {name: hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()[:16] for name, (X, y) in sets.items()}}


def fact_files(settings: Settings) -> dict[str, Path]:
    """Return FACT's files by type; none without the DL2 file of the Crab: then everything is simulated."""
    found = {}
    if settings.data is not None and not settings.small:
        for kind, name in _FACT_FILES.items():
            files = [path for place in ("", "fact/") for path in sorted(settings.data.glob(f"{place}{name}.h*5"))]
            if files:
                found[kind] = files[0]
    return found if "dl2" in found else {}


def identify_crab(settings: Settings) -> dict[str, Any]:
    """Return checksums of FACT's files, or that the Crab is simulated."""
    files = fact_files(settings)
    return {"crab": {kind: _checksum(path) for kind, path in files.items()} or "simulated"}


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def has_labels(files: Any) -> bool:
    """Return whether labelled events come with the Crab, from FACT's files, their checksums or ``"simulated"``."""
    return files in ({}, "simulated") or {"gamma", "proton"} <= set(files)


@lru_cache(maxsize=1)
def crab_data(settings: Settings) -> OnOffDataset:
    """Return the events of On and Off regions with their nights, FACT's or simulated ones."""
    files = fact_files(settings)
    if files:
        return OnOffDataset.from_files(files["dl2"], load_config(), join=files.get("dl3"), nearby=False)
    size = (60_000, 600) if settings.small else ()
    return OnOffDataset.from_files(simulate_observation(*size, random_state=settings.seed), load_config(), nearby=False)


@lru_cache(maxsize=4)
def labelled_events(part: str, settings: Settings) -> LabelledSet | None:
    """Return labelled events, a part of ``N_LABELLED``; None for real data without any.

    Of files, every other event is for training and the rest for testing.
    """
    files = fact_files(settings)
    if not has_labels(files):
        return None
    if not files:
        n = N_LABELLED[part] // (20 if settings.small else 1) // 2
        events = simulate_labelled(n, n, random_state=settings.trial_seed(1_000, list(N_LABELLED).index(part)))
        X = events[list(crab_data(settings).names)].to_numpy(np.float64)
        return LabelledSet(X, events["is_signal"].to_numpy(np.int64))
    config, parts = load_config(), []
    for kind in ("gamma", "proton"):
        features = to_features(read_events(files[kind], config.columns_needed()), config)
        X = features.X[features.valid][part == "test" :: 2]
        parts.append(X[: N_LABELLED[part] // 2] if part == "train-small" else X)
    return LabelledSet(np.concatenate(parts), np.repeat([1, 0], [len(X) for X in parts]))


def describe_crab(header: Mapping[str, Any]) -> str:
    """Return which events the numbers are from."""
    if header["small"]:
        return "simulated, and small substitutes, whose numbers are meaningless"
    if header["crab"] == "simulated":
        return "SIMULATED, not FACT's open Crab sample: compare the order of methods, not the values, with the paper"
    return f"FACT's files of the Crab Nebula, {'with' if has_labels(header['crab']) else 'without'} labelled events"


def describe_sets(header: Mapping[str, Any]) -> str:
    """Return which sets the numbers are from."""
    return (
        "small substitutes, whose numbers are meaningless"
        if header["small"]
        else "imbalanced-learn's sets, labels noisy"
    )
