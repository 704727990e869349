"""Events of the tests of fits on chunks."""

import numpy as np
import pandas as pd
import pytest
from chunked_events import N_EVENTS, NAMES


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
