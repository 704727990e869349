"""Events of the tests of fits on chunks, their groups and weights."""

import numpy as np
import pandas as pd
import pytest
from chunked_events import N_EVENTS, NAMES

from excess import exposure_weights


@pytest.fixture(scope="session")
def events():
    """Features with missing values, few values and many, and labels."""
    rng = np.random.default_rng(5)
    signal = rng.random(N_EVENTS) < 0.3
    X = rng.normal(signal[:, None] * 0.9, size=(N_EVENTS, len(NAMES)))
    X[::7, 2] = np.nan
    X[:, 3] = np.round(X[:, 3], 1)
    X[:, 4] = X[:, 4] > 0
    y = np.where(signal, rng.random(N_EVENTS) < 0.9, rng.random(N_EVENTS) < 0.4).astype(int)
    return pd.DataFrame(X, columns=NAMES), y


@pytest.fixture(scope="session")
def nights():
    """Groups of the events: four, in no order, one of them missing in the first half of the events."""
    drawn = np.random.default_rng(9).integers(0, 4, N_EVENTS)
    drawn[: N_EVENTS // 2] %= 3
    return np.array(["20131101", "20131102", "2013", "x"])[drawn]


@pytest.fixture(scope="session")
def weights(events):
    """Weights of events whose exposure ratios differ."""
    return exposure_weights(events[1], np.random.default_rng(2).choice([0.2, 1 / 3, 1.0], N_EVENTS))[0]


@pytest.fixture(scope="session")
def many_features():
    """Events with two pairs of features that are alike for signal, and uninformative features; and their labels."""
    rng = np.random.default_rng(0)
    signal = rng.random(4000) < 0.15
    X = rng.normal(size=(4000, 16))
    for one, other in ((0, 9), (4, 5)):
        X[signal, other] = X[signal, one] + 0.3 * rng.normal(size=signal.sum())
    X[::9, 4] = np.nan
    return pd.DataFrame(X).add_prefix("x"), (signal | (rng.random(4000) < 1 / 6)).astype(int)
