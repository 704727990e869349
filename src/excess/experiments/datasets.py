"""The paper's ten imbalanced sets: from a local folder, or downloaded by imbalanced-learn."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._checks import FloatArray
from excess.events._errors import require
from excess.experiments.settings import Settings

__all__ = ["ARCHIVE", "IMBALANCED_SETS", "LabelledSet", "MissingDataError", "imbalanced_checksums", "imbalanced_set"]

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
    """Events with their clean labels."""

    X: FloatArray
    clean: NDArray[np.int64]


@lru_cache(maxsize=2)
def imbalanced_set(name: str, settings: Settings) -> LabelledSet:
    """Return one of the ten sets, or a small stand-in for it.

    Parameters
    ----------
    name : str
        One of ``IMBALANCED_SETS``.
    settings : Settings
        With ``data``, the folder to read from; it, or its folder ``imblearn``, is what imbalanced-learn calls
        ``data_home``. Without, the sets are downloaded once into scikit-learn's data folder.

    Returns
    -------
    LabelledSet
        Features, and labels of which 1 is the rare class.
    """
    if settings.small:
        return _stand_in(name)
    datasets = require("imblearn.datasets", "reading the imbalanced sets", extra="experiments")
    home = None if settings.data is None else _data_home(settings.data, name)
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
    found = {}
    for name in IMBALANCED_SETS:
        X, clean = imbalanced_set(name, settings)
        found[name] = hashlib.sha256(X.tobytes() + clean.tobytes()).hexdigest()[:16]
    return {"sets": found}


def _data_home(folder: Path, name: str) -> str:
    """Return the folder that imbalanced-learn reads from; MissingDataError where the file of a set is not in it."""
    homes = (folder, folder / "imblearn")
    file = f"zenodo/x{IMBALANCED_SETS[name]}data.npz"
    for home in homes:
        if (home / file).is_file():
            return str(home)
    raise MissingDataError(
        f"{folder / file}: is missing, the set {name}. It is in {ARCHIVE} (unpack it to {folder / 'zenodo'}); without "
        f"--data, it is downloaded. {RUNS_WITHOUT}"
    )


def _stand_in(name: str) -> LabelledSet:
    """Return a small set of the same name, to see that everything runs."""
    from sklearn.datasets import make_classification

    X, clean = make_classification(300, 6, weights=[0.8], class_sep=1.5, flip_y=0.0, random_state=IMBALANCED_SETS[name])
    return LabelledSet(X, clean.astype(np.int64))
