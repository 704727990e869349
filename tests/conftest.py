"""Shared data of the tests: small, made on the spot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from dask_cluster import client, cluster, shared_client, shared_cluster  # noqa: F401
from hypothesis import settings
from sklearn.datasets import make_classification

import excess

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


class NoisyData(NamedTuple):
    """A binary problem with known noise: features, clean and noisy labels, groups, and the rates."""

    X: np.ndarray
    clean: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    p_plus: float
    p_minus: float

    @property
    def alpha(self) -> float:
        return excess.alpha_from_p_minus(self.p_minus)


@pytest.fixture(scope="session")
def noisy_data() -> NoisyData:
    X, clean = make_classification(
        3000, n_features=8, n_informative=4, weights=[0.85], class_sep=1.5, flip_y=0.0, random_state=1
    )
    y = excess.inject_label_noise(clean, p_plus=0.1, p_minus=0.4, random_state=2)
    return NoisyData(X, clean, y, np.arange(len(y)) % 6, 0.1, 0.4)
