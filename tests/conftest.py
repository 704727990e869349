"""Shared data of the tests: small, made on the spot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from dask_cluster import client, cluster, shared_client, shared_cluster  # noqa: F401
from hypothesis import settings
from sklearn.datasets import make_classification

import excess
from excess.estimators import _forest

collect_ignore_glob = ["*/conftest.py"]  # no doctests in there, and files of the same name cannot be imported twice

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels once, before several workers would do it side by side."""
    compiled = Path(_forest.__file__).parent / "__pycache__"
    if hasattr(session.config, "workerinput") or session.config.option.collectonly or any(compiled.glob("*.nbi")):
        return
    X, y = np.arange(1200.0).reshape(-1, 2) % 97, np.arange(600) % 3 == 0
    for order in ("C", "F"):
        for max_bins in (255, None):
            excess.OnOffTreeClassifier(max_depth=2, max_bins=max_bins, alpha=1.0).fit(np.asarray(X, order=order), y)
        excess.OnOffForestClassifier(2, alpha=1.0).fit(np.asarray(X, order=order), y)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a cluster or a browser as slow."""
    slow = {"cluster", "client", "shared_cluster", "shared_client", "browser"}
    for item in items:
        if slow & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module", autouse=True)
def _reports_without_figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave figures out of reports, where they take most of the time of a search; tests/report draws all of them."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name in ("analysis", "cli", "dataset"):
            patch.setattr("excess.report._page._draw_figures", lambda model: None)
        yield


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
