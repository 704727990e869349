"""The paper's ten imbalanced sets: from a local folder, or downloaded by imbalanced-learn."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess._core.errors import require
from excess.reproduction.settings import Settings

__all__ = [
    "IMBALANCED_SETS",
    "LabelledSet",
    "MissingDataError",
    "has_imbalanced_files",
    "imbalanced_checksums",
    "imbalanced_set",
]

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
"""Where the files come from."""


class MissingDataError(ValueError):
    """Data that are needed are not there; the message says which, and where to get them."""


class LabelledSet(NamedTuple):
    """Events with their clean labels: 1 is signal, or the rare class."""

    X: FloatArray
    clean: NDArray[np.int64]


@lru_cache(maxsize=2)
def imbalanced_set(name: str, settings: Settings) -> LabelledSet:
    """Return one of the ten sets, or a small stand-in for it; 1 is the rare class.

    The folder of data, or its folder ``imblearn``, is what imbalanced-learn calls ``data_home``. Without one, the sets
    are downloaded once into scikit-learn's data folder.
    """
    if settings.small:
        return _stand_in(name)
    datasets = require("imblearn.datasets", "reading the imbalanced sets", extra="experiments")
    home = None
    if settings.data is not None:
        _check_files(settings.data, [name])
        home = str(_home_of(settings.data, name))
    try:
        found = datasets.fetch_datasets(
            data_home=home, filter_data=(name,), download_if_missing=home is None, random_state=None
        )[name]
    except OSError as error:
        raise MissingDataError(
            f"{name}: cannot be downloaded from {ARCHIVE}: {error}. Unpack that archive and give its folder with "
            f"--data. {RUNS_WITHOUT}"
        ) from error
    return LabelledSet(np.ascontiguousarray(found.data, dtype=np.float64), (found.target == 1).astype(np.int64))


RUNS_WITHOUT = "The targets crab, crab-null, agreement, roc and calibration need no data."
"""What to say where the sets are missing."""


@lru_cache(maxsize=1)
def imbalanced_checksums(settings: Settings) -> dict[str, Any]:
    """Return what tells the sets from others: a checksum of the values of each."""
    if settings.data is not None and not settings.small:
        _check_files(settings.data, list(IMBALANCED_SETS))
    found = {}
    for name in IMBALANCED_SETS:
        X, clean = imbalanced_set(name, settings)
        found[name] = hashlib.sha256(X.tobytes() + clean.tobytes()).hexdigest()[:16]
    return {"sets": found}


def has_imbalanced_files(settings: Settings) -> bool:
    """Say whether the folder of data holds all of the sets."""
    return settings.data is not None and all(_home_of(settings.data, name) for name in IMBALANCED_SETS)


def _check_files(folder: Path, names: Sequence[str]) -> None:
    """Name all files that are missing, by MissingDataError."""
    missing = {_file_of(name): name for name in names if _home_of(folder, name) is None}
    if missing:
        what = ", ".join(f"{file} ({name})" for file, name in missing.items())
        raise MissingDataError(
            f"{folder}: {what} {'is' if len(missing) == 1 else 'are'} missing. Unpack {ARCHIVE} to "
            f"{folder / 'zenodo'}; without --data, the sets are downloaded. {RUNS_WITHOUT}"
        )


def _home_of(folder: Path, name: str) -> Path | None:
    """Return the folder that imbalanced-learn reads from, if the file of a set is in it."""
    return next((home for home in (folder, folder / "imblearn") if (home / _file_of(name)).is_file()), None)


def _file_of(name: str) -> str:
    return f"zenodo/x{IMBALANCED_SETS[name]}data.npz"


def _stand_in(name: str) -> LabelledSet:
    """Return a small set of the same name, to see that everything runs."""
    from sklearn.datasets import make_classification

    X, clean = make_classification(300, 6, weights=[0.8], class_sep=1.5, flip_y=0.0, random_state=IMBALANCED_SETS[name])
    return LabelledSet(X, clean.astype(np.int64))
